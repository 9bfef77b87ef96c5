"""GLUE as distributed: the files, columns, labels and metrics of each task.

Wang et al. 2018. Files have tabs and no quotes, and a header except for CoLA's train and dev files.
Test files have indices in place of labels, which a submission to the leaderboard repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bertsmith.core.errors import ExampleError
from bertsmith.core.files import canonical, unreadable
from bertsmith.text.bad_rows import FAIL, BadRows
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.reading import read_examples
from bertsmith.text.opening import COMPRESSED


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task of GLUE."""

    name: str
    """Name as in the paper."""
    text: str
    """Column of the text, or of the first of a pair."""
    text_pair: str | None = None
    """Column of the second text."""
    label: str
    """Column of the label, which test files lack."""
    numbered: Mapping[str, str] = field(default_factory=dict)
    """Positions of columns by role in files without header, if any."""
    labels: tuple[str, ...] = ()
    """Classes in the order of the model's outputs; empty if the task is a regression."""
    metrics: tuple[str, ...]
    """Metrics of the paper, by their names in `bertsmith.evaluation.metrics`."""
    index: str = "index"
    """Column of the index in test files."""
    train: str | None = "train"
    """Split to train on."""
    dev: tuple[str, ...] = ("dev",)
    """Splits to evaluate on."""
    test: tuple[str, ...] = ("test",)
    """Splits to predict for the leaderboard."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """File names by split, in order of preference, if they are not SPLIT.tsv."""
    submission: Mapping[str, str]
    """Name of the submission's file for each split of `test`."""
    sizes: Mapping[str, int]
    """Number of examples by split, as published."""

    @property
    def predicts(self) -> Literal["class", "number"]:
        """Kind of output that the task requires."""
        return "class" if self.labels else "number"

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits of the task."""
        return (*((self.train,) if self.train else ()), *self.dev, *self.test)

    def names_of(self, split: str) -> tuple[str, ...]:
        """Return the possible file names of a split."""
        return self.files.get(split, (f"{split}.tsv",))


_ENTAILS = ("entailment", "not_entailment")
_THREE = ("entailment", "neutral", "contradiction")

_ALL = (
    GlueTask(
        name="CoLA",
        text="sentence",
        label="label",
        numbered={"text": "3", "label": "1"},
        labels=("0", "1"),
        metrics=("matthews",),
        submission={"test": "CoLA.tsv"},
        sizes={"train": 8_551, "dev": 1_043, "test": 1_063},
    ),
    GlueTask(
        name="SST-2",
        text="sentence",
        label="label",
        labels=("0", "1"),
        metrics=("accuracy",),
        submission={"test": "SST-2.tsv"},
        sizes={"train": 67_349, "dev": 872, "test": 1_821},
    ),
    GlueTask(
        name="MRPC",
        text="#1 String",
        text_pair="#2 String",
        label="Quality",
        labels=("0", "1"),
        metrics=("f1", "accuracy"),
        files={
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "test": ("test.tsv", "msr_paraphrase_test.txt"),
        },
        submission={"test": "MRPC.tsv"},
        sizes={"train": 3_668, "dev": 408, "test": 1_725},
    ),
    GlueTask(
        name="STS-B",
        text="sentence1",
        text_pair="sentence2",
        label="score",
        metrics=("pearson", "spearman"),
        submission={"test": "STS-B.tsv"},
        sizes={"train": 5_749, "dev": 1_500, "test": 1_379},
    ),
    GlueTask(
        name="QQP",
        text="question1",
        text_pair="question2",
        index="id",
        label="is_duplicate",
        labels=("0", "1"),
        metrics=("f1", "accuracy"),
        submission={"test": "QQP.tsv"},
        sizes={"train": 363_846, "dev": 40_430, "test": 390_965},
    ),
    GlueTask(
        name="MNLI",
        text="sentence1",
        text_pair="sentence2",
        label="gold_label",
        labels=_THREE,
        metrics=("accuracy",),
        dev=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"),
        submission={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
        sizes={
            "train": 392_702,
            "dev_matched": 9_815,
            "dev_mismatched": 9_832,
            "test_matched": 9_796,
            "test_mismatched": 9_847,
        },
    ),
    GlueTask(
        name="QNLI",
        text="question",
        text_pair="sentence",
        label="label",
        labels=_ENTAILS,
        metrics=("accuracy",),
        submission={"test": "QNLI.tsv"},
        sizes={"train": 104_743, "dev": 5_463, "test": 5_463},
    ),
    GlueTask(
        name="RTE",
        text="sentence1",
        text_pair="sentence2",
        label="label",
        labels=_ENTAILS,
        metrics=("accuracy",),
        submission={"test": "RTE.tsv"},
        sizes={"train": 2_490, "dev": 277, "test": 3_000},
    ),
    GlueTask(
        name="WNLI",
        text="sentence1",
        text_pair="sentence2",
        label="label",
        labels=("0", "1"),
        metrics=("accuracy",),
        submission={"test": "WNLI.tsv"},
        sizes={"train": 635, "dev": 71, "test": 146},
    ),
    # the diagnostic set, predicted by the model of MNLI
    GlueTask(
        name="AX",
        text="sentence1",
        text_pair="sentence2",
        label="label",
        labels=_THREE,
        metrics=("matthews",),
        train=None,
        dev=(),
        files={"test": ("diagnostic.tsv", "AX.tsv", "test.tsv")},
        submission={"test": "AX.tsv"},
        sizes={"test": 1_104},
    ),
)

TASKS = {task.name: task for task in _ALL}


MAX_SCORE = 5.0
"""Highest score of STS-B; the lowest is 0."""

_MICROSOFTS = "msr_paraphrase"


def find_glue(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the files in a folder of GLUE, by task and split, in the paper's order.

    A task's files are in the folder of its name, in any case, as GLUE's script creates it; or
    `folder` is itself that of one task. Raises `ExampleError` if there are none.
    """
    try:
        inside = {path.name.lower(): path for path in folder.iterdir() if path.is_dir()}
    except OSError as error:
        raise unreadable(ExampleError, error, folder) from error
    inside.setdefault(folder.name.lower(), folder)
    tasks: dict[str, dict[str, Path]] = {}
    for name, task in TASKS.items():
        subfolders = ("ax", "diagnostic", "mnli") if name == "AX" else (name.lower(),)
        for subfolder in (inside[known] for known in subfolders if known in inside):
            files = {split: _file(subfolder, task, split) for split in task.splits}
            existing = {split: path for split, path in files.items() if path is not None}
            if existing and name not in tasks:
                tasks[name] = existing
    if not tasks:
        remedy = "name the folder that contains CoLA/, SST-2/ and so on"
        raise ExampleError("contains no files of GLUE", where=folder, remedy=remedy)
    return tasks


def task_of(path: Path) -> tuple[GlueTask, str] | None:
    """Return the task and split of a file in a folder of its task's name; None for others."""
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    for task in TASKS.values():
        if task.name.lower() == canonical(path).parent.name.lower():
            splits = (split for split in task.splits if name in task.names_of(split))
            return next(((task, split) for split in splits), None)
    return None


def read_glue(path: Path, task: GlueTask, split: str, *, bad: BadRows = FAIL) -> Iterator[Example]:
    """Yield the examples of a split, with the leaderboard's index, if any, as `id`.

    Examples of train and dev have a label of `task.labels`, those of STS-B a `number` from 0 to 5;
    test files have none. Raises `ExampleError`, with file and line, unless `bad` takes the error.
    """
    labelled = split not in task.test
    columns = Columns(text=task.text, text_pair=task.text_pair, label=task.label, header="yes")
    if task.numbered and labelled:
        numbered = task.numbered
        columns = Columns(text=numbered["text"], label=numbered["label"], header="no")
    # Microsoft's file of MRPC has labels and no indices: they are the row numbers
    elif not labelled:
        index = None if path.name.startswith(_MICROSOFTS) else task.index
        columns = replace(columns, label=None, id=index)
    examples = read_examples(
        path,
        columns,
        need_label=labelled,
        kind="class" if task.labels else "number",
        check=lambda example: _wrong(example, task) if labelled else None,
        bad=bad,
    )
    for number, example in enumerate(examples):
        if labelled:
            yield example
        else:
            name = str(number) if example.id is None else example.id
            yield replace(example, label=None, number=None, id=name)


def _wrong(example: Example, task: GlueTask) -> str | None:
    if task.labels and example.label not in task.labels:
        return f"the label {example.label!r} is not one of {task.name}'s: {', '.join(task.labels)}"
    if example.number is not None and not 0 <= example.number <= MAX_SCORE:
        return f"the score {example.number:g} is not from 0 to {MAX_SCORE:g}"
    return None


def _file(folder: Path, task: GlueTask, split: str) -> Path | None:
    names = (f"{name}{packed}" for name in task.names_of(split) for packed in ("", *COMPRESSED))
    return next((folder / name for name in names if (folder / name).is_file()), None)
