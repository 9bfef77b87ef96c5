"""Which task a file or folder of examples is for, and how one sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bertsmith.errors import ExampleError, UserError
from bertsmith.text.class_files import (
    classes_of_folder,
    fasttext_labels,
    has_labels_first,
)
from bertsmith.text.columns import USUAL, Columns
from bertsmith.text.conll_columns import DOCUMENT, USUAL_TAGS, TagColumns, column_sentences
from bertsmith.text.foreign import refuse_foreign
from bertsmith.text.glue_files import find_glue, task_of
from bertsmith.text.joined_tags import joining_sign
from bertsmith.text.json_places import first_keys
from bertsmith.text.mctest import has_stories
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.pairs_xml import has_pairs
from bertsmith.text.recognising_tables import TASK_NAMES, TaskName, recognise_table
from bertsmith.text.schemes import recognise_scheme
from bertsmith.text.tables import TABLES
from bertsmith.text.tag_tables import recognise_tag_table
from bertsmith.text.tagged import Words

_TAGGED = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes")
_SENTENCES = 50
_MANY_CLASSES = 30


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """A task and why; of GLUE's, `glue` is the name, None for a folder of several."""

    task: TaskName
    reason: str
    glue: str | None = None


def recognise(path: Path, columns: Columns = USUAL, tags: TagColumns = USUAL_TAGS) -> Recognised:
    """See from a file or folder what task its examples are for.

    The beginning decides. Raises `ExampleError`, naming what to pass as --task, where that is not
    certain, and for a path that cannot be read.
    """
    if path.is_dir():
        return _folder(path)
    if tags.sign or tags.layout != "auto":
        return Recognised(task="tag", reason="its layout was stated as one of words and tags")
    refuse_foreign(path)
    if known := task_of(path):
        reason = f"it has the name and place of GLUE's {known[0].name}, {known[1]}"
        return Recognised(task="glue", reason=reason, glue=known[0].name)
    kind = kind_of(path)
    if kind == ".json" and "paragraphs" in first_keys(
        TextFile(path, ExampleError, columns.encoding)
    ):
        return Recognised(task="span", reason="it is laid out as SQuAD is")
    if kind == ".xml":
        return _xml(path, columns)
    if kind in _TAGGED:
        return Recognised(task="tag", reason=f"a {kind} file has a word and its tags a line")
    if has_stories(path, columns.encoding):
        return Recognised(task="choice", reason="it has stories with questions, as MCTest has")
    if labels := fasttext_labels(path, columns.encoding):
        task: TaskName = "multi-label" if labels > 1 else "classify"
        return Recognised(task=task, reason="its lines begin with __label__, as fastText's do")
    if has_labels_first(path, columns):
        how = "as was said" if columns.layout == "label-first" else f"as in any {kind} file"
        return Recognised(task="classify", reason=f"its lines begin with their label, {how}")
    if sign := joining_sign(path, tags, columns.encoding):
        return Recognised(task="tag", reason=f"its lines are sentences of word{sign}TAG")
    shown = (
        recognise_tag_table(path, columns, tags, need_tags=True)
        if kind in TABLES
        else columns_of_tags(path, columns)
    )
    if shown:
        return Recognised(task="tag", reason=shown)
    file = TextFile(path, ExampleError, columns.encoding)
    if kind not in TABLES and "\t" not in next(file.lines(escaped=True), (1, ""))[1]:
        remedy = (
            "pass --columns.layout label-first for lines of a label and a text, "
            f"or --task: {', '.join(TASK_NAMES)}"
        )
        raise file.fault("cannot be told for a table or for columns of tags", 1, remedy)
    found, reason = recognise_table(path, columns)
    return Recognised(task=found, reason=reason)


def _xml(path: Path, columns: Columns) -> Recognised:
    if has_pairs(TextFile(path, ExampleError, columns.encoding)):
        return Recognised(task="pair", reason="its <pair>s have two texts")
    return Recognised(task="choice", reason="an .xml file is laid out as COPA is")


def _folder(path: Path) -> Recognised:
    try:
        names = list(find_glue(path))
    except UserError:
        names = []
    if names:
        reason = f"it has the files of GLUE's {', '.join(names)}"
        return Recognised(task="glue", reason=reason, glue=names[0] if len(names) == 1 else None)
    classes = [label for label, _ in classes_of_folder(path)]
    shown = f"{len(classes)} files or folders as if one for each class, such as {classes[0]!r}"
    if len(classes) > _MANY_CLASSES:
        remedy = "pass --task classify if they are classes"
        raise ExampleError(f"holds {shown}", where=path, remedy=remedy)
    return Recognised(task="classify", reason=f"it holds {shown}")


def columns_of_tags(path: Path, columns: Columns) -> str | None:
    """What shows the first sentences to be columns of words and tags; None if they are not."""
    file = TextFile(path, ExampleError, columns.encoding)
    if next(file.lines(escaped=True), (1, ""))[1].startswith(DOCUMENT):
        return f"it begins with {DOCUMENT}"
    file = TextFile(path, ExampleError, columns.encoding)
    usual = TagColumns()
    try:
        blocks = list(islice(column_sentences(file, usual, need_tags=True), _SENTENCES))
    except UserError:  # a table of thousands of lines has no empty one
        return None
    found = [block for block in blocks if isinstance(block, Words)]
    if len(found) < 2 or 2 * len(found) < len(blocks) or not _short(found):
        return None
    plain = recognise_scheme(block.tags for block in found if block.tags) == "plain"
    return f"its lines are words with {'tags' if plain else 'tags of entities'}, in sentences"


def _short(blocks: Sequence[Words]) -> bool:
    """Whether words are words, tags repeat, and sentences mostly have several."""
    words = [word for block in blocks for word in block.words]
    tags = [tag for block in blocks for tag in block.tags or ()]
    several = sum(len(block.words) > 1 for block in blocks)
    return (
        not any(" " in cell for cell in (*words, *tags))
        and 2 * len(set(tags)) <= len(tags)
        and 2 * several >= len(blocks)
    )
