"""Settings by which a file is read: those of training, or those of a labelled file beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bertsmith.core.errors import ExampleError
from bertsmith.core.log import say
from bertsmith.network.config import Preprocessing
from bertsmith.tasks.config import Reading
from bertsmith.text.config import USUAL_TAGS, Columns
from bertsmith.text.examples.columns import USUAL_NAMES
from bertsmith.text.examples.formats.conll import is_laid_out
from bertsmith.text.examples.formats.tag_tables import recognise_tag_table
from bertsmith.text.examples.label_lists import known_separator
from bertsmith.text.headers import index_of, is_position, stated_header
from bertsmith.text.opening import TEXTS, TextFile, kind_of
from bertsmith.text.tables import DELIMITED, TABLES, Table

_LINES = 50


def reading_as_trained(
    reading: Reading,
    trained: Preprocessing | None,
    file: str,
    *,
    labelled: bool,
    several: Sequence[str] = (),
) -> Reading:
    """Return how a file is read: texts, and labels, from the columns of training if none is named.

    Says so where the file lacks one: the usual names are looked for then. Labels are taken from
    their cells as in training, unless an option says otherwise. Of a model of `several` labels a
    text, the separator is taken that alone divides the cells into these.
    """
    columns, path = reading.columns, Path(file)
    if trained is None or file == "-":
        return reading
    given, reading = reading.tags, _tags_as_trained(reading, trained, path)
    if not labelled and reading.tags != given:
        _warn_of_texts(path, reading)
    trained_columns = _columns_of(trained, columns, labelled=labelled)
    if path.is_dir() or kind_of(path) not in TABLES:
        trained_columns = {}
    names = [name for value in trained_columns.values() for name in _names_in(value)]
    missing = [name for name in names if not _has_column(path, columns, name)]
    if missing:
        say(f"{path.name} has no column {missing[0]!r}, on which the model was trained")
        trained_columns = {}
    elif names and not labelled:
        _note_positions(path, columns, names)
    if not missing:
        trained_columns |= _group_of(trained, reading, path, labelled=labelled)
    if labelled and columns.label_until is None and trained.label_until is not None:
        trained_columns["label_until"] = trained.label_until
    if labelled and columns.label_separator == "auto":
        trained_columns["label_separator"] = trained.label_separator
    reading = reading.override(**{f"columns.{key}": name for key, name in trained_columns.items()})
    if several and columns.label_separator == "auto":
        sign, of_training = known_separator(path, reading.columns, several), trained.label_separator
        if sign is not None and sign != of_training:
            if of_training != "auto":
                say(
                    f"{path.name}: labels are separated by {sign!r}, in training by {of_training!r}"
                )
            reading = reading.override(**{"columns.label_separator": sign})
    return reading


def _columns_of(
    trained: Preprocessing, given: Columns, *, labelled: bool
) -> dict[str, str | tuple[str, ...]]:
    """Return the columns named in training, of texts and of labels, where none of these is given.

    An id or a label that is named does not change which text is read.
    """
    roles: dict[str, str | tuple[str, ...] | None] = {}
    if given.text is None and given.text_pair is None:
        roles |= {"text": trained.text_column, "text_pair": trained.text_pair_column}
    if labelled and given.label is None and not given.labels:
        roles |= {"label": trained.label_column, "labels": trained.label_columns}
    return {role: names for role, names in roles.items() if names}


def _group_of(
    trained: Preprocessing, reading: Reading, path: Path, *, labelled: bool
) -> dict[str, str | tuple[str, ...]]:
    """Return the column of groups or sentences that was named in training, if none is given.

    Without labels a group of texts has no use, and a file may lack it.
    """
    given, group, texts = reading.columns, trained.group_column, trained.pairs is not None
    if group is None or given.group is not None or (texts and not labelled):
        return {}
    # words in other tables than CSV and TSV are in lists, one for each sentence
    if path.is_dir() or kind_of(path) not in (TABLES if texts else DELIMITED):
        return {}
    if not _has_column(path, given, group):
        say(f"{path.name} has no column {group!r}, by which rows were grouped in training")
        return {}
    if not labelled and trained.text_column is None:
        # rows may be whole texts
        grouped = replace(given, group=group)
        if recognise_tag_table(path, grouped, reading.tags, need_tags=False) is None:
            return {}
    return {"group": group}


def _note_positions(path: Path, columns: Columns, names: Sequence[str]) -> None:
    """Say which columns are read by their positions in training where a header names them."""
    head = Table(path, ExampleError, encoding=columns.encoding).head()
    if head is None or not head.delimited:
        return
    header = stated_header(columns.header, head.sample, (), USUAL_NAMES)
    read = [name for name in names if is_position(name) and name not in head.names]
    if read and header.present and not header.counted:
        shown = " and ".join(f"column {name}, {head.names[int(name)]!r}," for name in read)
        are = "is" if len(read) == 1 else "are"
        say(f"{path.name}: {shown} {are} read, by position as in training; --text-column names one")


def _names_in(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


@contextmanager
def beside_labelled_rows() -> Iterator[None]:
    """Keep errors in texts beside a labelled file from asking for an option that is of both."""
    try:
        yield
    except ExampleError as error:
        if "-column" not in error.remedy:
            raise
        remedy = "name its columns as in the labelled file: the options apply to both"
        raise ExampleError(
            error.problem, where=error.where, line=error.line, remedy=remedy
        ) from error


def reading_of_texts(reading: Reading, texts: Path, labelled: Path) -> Reading:
    """Return how a file of texts is read, where a reading was given for a labelled file beside it.

    The columns of texts, the header, the layout of words and the encoding are the same, as far as
    the file has them; says so where it lacks a column that was named.
    """
    given = reading.columns
    columns = Columns(encoding=given.encoding)
    if not texts.is_dir() and kind_of(texts) in TABLES:
        if kind_of(texts) in DELIMITED:
            columns = replace(columns, header=given.header)
        named = [name for name in (given.text, given.text_pair) if name is not None]
        missing = [name for name in named if not _has_column(texts, given, name)]
        if missing:
            say(f"{texts.name} has no column {missing[0]!r}: the usual names are looked for")
        else:
            columns = replace(columns, text=given.text, text_pair=given.text_pair)
        # only some files have names for their rows
        if given.id is not None and _has_column(texts, given, given.id):
            columns = replace(columns, id=given.id)
        if given.group is not None and _has_column(texts, given, given.group):
            columns = replace(columns, group=given.group)
        elif given.group is not None:
            say(f"{texts.name} has no column {given.group!r}, by which labelled rows are grouped")
    tags = reading.tags
    if not is_laid_out(texts, tags, kind_of(labelled), given.encoding):
        tags = USUAL_TAGS
    return Reading(columns=columns, tags=tags, on_bad=reading.on_bad)


def _tags_as_trained(reading: Reading, trained: Preprocessing, path: Path) -> Reading:
    """Return how words and tags are read: as in training, where a file can be read like that."""
    tags = trained.tags
    if tags is None or reading.tags != USUAL_TAGS:
        return reading
    if not is_laid_out(path, tags, trained.tags_kind, reading.columns.encoding):
        say(f"{path.name} is not laid out as the file on which the model was trained")
        tags = replace(USUAL_TAGS, scheme=tags.scheme)
    return reading.override(**{f"tags.{key}": value for key, value in tags.to_dict().items()})


def _warn_of_texts(path: Path, reading: Reading) -> None:
    """Say that lines are words, where as in training each is one, and they may be texts as well.

    In columns, empty lines are between sentences.
    """
    if reading.tags.layout != "columns" or kind_of(path) not in TEXTS or not path.is_file():
        return
    lines = TextFile(path, ExampleError, reading.columns.encoding).lines(escaped=True)
    if all(text.strip() for _, text in islice(lines, _LINES)):
        say(
            f"{path.name} has no empty line: each of its lines is read as a word, as in training; "
            "if each is a text, give them as standard input (-)"
        )


def _has_column(path: Path, columns: Columns, name: str) -> bool:
    """Return whether a table has a column of a name, or of a number where it is a CSV or TSV."""
    head = Table(path, ExampleError, encoding=columns.encoding).head()
    if head is None:
        return False
    number = head.delimited and is_position(name) and int(name) < len(head.names)
    return number or index_of(head.names, name) is not None
