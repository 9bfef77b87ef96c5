"""Finding and reading the files of GLUE's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bertsmith.errors import ExampleError
from bertsmith.text.bad_rows import FAIL, BadRows
from bertsmith.text.columns import Columns
from bertsmith.text.example import Example
from bertsmith.text.examples import read_examples
from bertsmith.text.glue import TASKS, GlueTask
from bertsmith.text.opening import COMPRESSED

HIGHEST = 5.0
"""The scores of STS-B are from 0 to this."""

_MICROSOFTS = "msr_paraphrase"


def find_glue(folder: Path) -> dict[str, dict[str, Path]]:
    """The files that a folder of GLUE has, by task and split, in the paper's order.

    A task's files stand in the folder of its name, in upper or lower case, as GLUE's own script
    lays them; or `folder` is itself that of one task. Raises `ExampleError` when there are none.
    """
    try:
        inside = {path.name.lower(): path for path in folder.iterdir() if path.is_dir()}
    except OSError as error:
        raise ExampleError(f"cannot be read: {error.strerror}", where=folder) from error
    inside.setdefault(folder.name.lower(), folder)
    found: dict[str, dict[str, Path]] = {}
    for name, task in TASKS.items():
        places = ("ax", "diagnostic", "mnli") if name == "AX" else (name.lower(),)
        for place in (inside[each] for each in places if each in inside):
            files = {split: _file(place, task, split) for split in task.splits}
            there = {split: path for split, path in files.items() if path is not None}
            if there and name not in found:
                found[name] = there
    if not found:
        remedy = "name the folder that has CoLA/, SST-2/ and so on in it"
        raise ExampleError("no files of GLUE in it", where=folder, remedy=remedy)
    return found


def task_of(path: Path) -> tuple[GlueTask, str] | None:
    """The task and split of a file that lies in a folder of its task's name; None of others."""
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    for task in TASKS.values():
        if task.name.lower() == path.resolve().parent.name.lower():
            splits = (split for split in task.splits if name in task.names_of(split))
            return next(((task, split) for split in splits), None)
    return None


def read_glue(path: Path, task: GlueTask, split: str, *, bad: BadRows = FAIL) -> Iterator[Example]:
    """Stream the examples of a split, the number of the leaderboard as `id` where it has one.

    Examples of train and dev have a label of `task.labels`, those of STS-B a `number` from 0 to 5;
    test files have none. Raises `ExampleError`, with file and line, unless `bad` takes the fault.
    """
    answered = split not in task.test
    columns = Columns(text=task.text, text_pair=task.text_pair, label=task.label, header="yes")
    if task.numbered and answered:
        numbered = task.numbered
        columns = Columns(text=numbered["text"], label=numbered["label"], header="no")
    # Microsoft's own file of MRPC has the answers and no numbers, which are those of its rows
    elif not answered:
        index = None if path.name.startswith(_MICROSOFTS) else task.index
        columns = replace(columns, label=None, id=index)
    found = read_examples(
        path,
        columns,
        need_label=answered,
        kind="class" if task.labels else "number",
        check=lambda example: _wrong(example, task) if answered else None,
        bad=bad,
    )
    for number, example in enumerate(found):
        if answered:
            yield example
        else:
            name = str(number) if example.id is None else example.id
            yield replace(example, label=None, number=None, id=name)


def _wrong(example: Example, task: GlueTask) -> str | None:
    if task.labels and example.label not in task.labels:
        return f"the label {example.label!r} is none of {task.name}'s: {', '.join(task.labels)}"
    if example.number is not None and not 0 <= example.number <= HIGHEST:
        return f"the score {example.number:g} is not from 0 to {HIGHEST:g}"
    return None


def _file(folder: Path, task: GlueTask, split: str) -> Path | None:
    names = (f"{name}{packed}" for name in task.names_of(split) for packed in ("", *COMPRESSED))
    return next((folder / name for name in names if (folder / name).is_file()), None)
