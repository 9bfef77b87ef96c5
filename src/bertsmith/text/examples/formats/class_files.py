"""Texts labelled by the beginning of their line, or by the name of their file or folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from shlex import quote

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.core.files import parse_json, unreadable
from bertsmith.core.printable import counted
from bertsmith.text.bad_rows import BadRows, Refuse
from bertsmith.text.config import Columns
from bertsmith.text.encodings import Guesses
from bertsmith.text.examples.example import (
    Check,
    Example,
    Kind,
    checked,
    label_of,
    label_until,
    located,
    text_of,
)
from bertsmith.text.opening import FROM_ARROW, TextFile, kind_of

_EXTENSIONS = re.compile(r"(\.(txt|text))?(\.(gz|zst))?$", re.IGNORECASE)
_TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx", ".xls", ".zip", ".xml")
_PARTS = re.compile(r"train(ing)?|dev(el|elopment)?|valid(ation)?|val|test(ing)?", re.IGNORECASE)
# a text may be called license-renewal.txt
_NOT_DATA = re.compile(
    r"(?:README|LICEN[SC]E|COPYING)(?![A-Za-z])"
    r"|(?i:readme|licen[sc]e|copying)(?:\.\w+)*$|.*\.bad\.jsonl$"
)


FASTTEXT = "__label__"
_FASTTEXT_LINES = 1000


def fasttext_labels(path: Path, encoding: str) -> int:
    """Return the largest number of fastText's labels in one of the first lines, 0 without any.

    Labels precede the text: ``__label__x __label__y text``.
    """
    if kind_of(path) in (".parquet", ".json", ".jsonl", ".xml"):
        return 0
    largest = 0
    lines = TextFile(path, ExampleError, encoding).lines(escaped=True)
    for _, text in islice(lines, _FASTTEXT_LINES):
        if text.strip():
            count = len(fasttext_line(text)[0])
            if not largest and not count:
                return 0
            largest = max(largest, count)
    return largest


def fasttext_line(written: str) -> tuple[list[str], str]:
    """Return the labels at the beginning of a line, and the text after them."""
    labels = []
    rest = written.strip()
    while rest.startswith(FASTTEXT):
        label, _, rest = rest.replace("\t", " ", 1).partition(" ")
        labels.append(label.removeprefix(FASTTEXT))
        rest = rest.lstrip()
    return labels, rest


def fasttext_examples(
    path: Path, columns: Columns, kind: Kind, check: Check | None, bad: BadRows
) -> Iterator[Example]:
    """Yield the examples in lines of fastText: labels, each after ``__label__``, and a text."""

    def parse(file: TextFile, line: int, written: str) -> tuple[object, str]:
        labels, text = fasttext_line(written)
        return _fasttext_value(file, line, labels, text, kind), text

    return _examples_of_lines(path, columns, kind, check, bad, parse)


def _fasttext_value(file: TextFile, line: int, labels: list[str], text: str, kind: Kind) -> object:
    if any(word.startswith(FASTTEXT) for word in text.split()):
        raise file.fault("a label within the text", line, "write all labels before the text")
    if kind == "classes":
        return labels
    if len(labels) != 1:
        problem = f"{counted(len(labels), 'label')} instead of one" if labels else "no label"
        remedy = f"begin the line with one {FASTTEXT}x, or train with --task multi-label"
        raise file.fault(problem, line, remedy)
    return labels[0]


def has_labels_first(path: Path, columns: Columns) -> bool:
    """Return whether lines begin with their label: if stated, or in files like train_5500.label."""
    return columns.layout == "label-first" or kind_of(path) == ".label"


def label_first(
    path: Path, columns: Columns, kind: Kind, check: Check | None, bad: BadRows
) -> Iterator[Example]:
    """Yield the examples in lines of label and text, such as ``LOC:city What county is this ?``."""

    def parse(file: TextFile, line: int, written: str) -> tuple[object, str]:
        label, _, text = written.replace("\t", " ", 1).partition(" ")
        return label_until(label, columns.label_until), text

    return _examples_of_lines(path, columns, kind, check, bad, parse)


def _examples_of_lines(
    path: Path,
    columns: Columns,
    kind: Kind,
    check: Check | None,
    bad: BadRows,
    parse: Callable[[TextFile, int, str], tuple[object, str]],
) -> Iterator[Example]:
    """Yield the example of each line, which `parse` splits into the label's value and the text."""
    file = TextFile(path, ExampleError, columns.encoding)

    def rows(refuse: Refuse) -> Iterator[Example]:
        for line, written in _lines(file, refuse):
            try:
                value, text = parse(file, line, written)
                example = checked(file, _example(file, line, text, value, kind), check)
            except UserError as error:
                refuse(error, written)
            else:
                yield example

    return bad.read(file, rows)


def class_folder(
    folder: Path, columns: Columns, kind: Kind, check: Check | None, bad: BadRows
) -> Iterator[Example]:
    """Yield the texts of one file per class, one per line, or one folder per class, one per file.

    The labels are those of `classes_of_folder`. A class without texts is an error.
    """
    classes = [
        (label, path, _texts_of_class(path, label))
        for label, path in classes_of_folder(folder, columns.classes)
    ]
    _print_encodings([text for _, _, texts in classes for text in texts], columns)
    before, empty = bad.count, True
    for label, path, texts in classes:
        has_text = False
        for text in texts:
            file = TextFile(text, ExampleError, columns.encoding)
            with bad.of(text) as refuse:
                lines = _read_whole(file, refuse) if path.is_dir() else _lines(file, refuse)
                for line, written in lines:
                    has_text = True
                    try:
                        example = checked(file, _example(file, line, written, label, kind), check)
                    except UserError as error:
                        refuse(error, written)
                    else:
                        empty = False
                        yield example
        if not has_text:
            with bad.of(path) as refuse:
                remedy = "write texts into it, or move it out of the folder"
                problem = f"holds no text, so the class {label!r} has no examples"
                refuse(ExampleError(problem, where=path, remedy=remedy), "")
    if empty:
        raise bad.examples_missing(TextFile(folder, ExampleError), before)


def _print_encodings(texts: Sequence[Path], columns: Columns) -> None:
    """Detect the encodings of files, and report guesses in one line per encoding."""
    guesses = Guesses()
    for text in texts:
        # an unreadable file is reported when it is read
        with suppress(UserError):
            TextFile(text, ExampleError, columns.encoding).examine(guesses)
    guesses.print()


def _texts_of_class(path: Path, label: str) -> list[Path]:
    """Return the files with the texts of a class. Raises `ExampleError` for a folder among them."""
    if not path.is_dir():
        return [path]
    texts = sorted(_visible(path))
    inner = [text.name for text in texts if text.is_dir()]
    if inner:
        problem = f"the folder of class {label!r} holds folders: {_preview(inner)}"
        raise ExampleError(
            problem, where=path, remedy="give each class a folder of files, one text per file"
        )
    return texts


def classes_of_folder(folder: Path, wanted: Sequence[str] = ()) -> list[tuple[str, Path]]:
    """Return class and path of each file or folder in it.

    The class is the name of the folder or, of a file, its name without extension and without a
    beginning or end that all share: ``pos`` of ``rt-polarity.pos``. If folders have the names of
    `wanted` classes, nothing else is looked at. Raises `ExampleError` if invalid.
    """
    paths = sorted(_visible(folder))
    paths = [path for path in paths if path.is_dir() and path.name in wanted] or paths
    remedy = "give a file, or a folder with one file or folder per class"
    folders = [path.name for path in paths if path.is_dir()]
    files = [path.name for path in paths if not path.is_dir()]
    _check_not_saved_by_datasets(folder, paths)
    _check_no_splits(folder, [path.name for path in paths])
    if 1 < len(folders) < len(files):
        raise ExampleError(
            f"may hold a folder per class, {_preview(folders)}, or a file, {_preview(files)}",
            where=folder,
            remedy=f"name the folders: --classes {quote(','.join(folders[:2]))}; or move the rest",
        )
    if folders and files:
        several = len(folders) >= len(files)
        kinds, stray = ("folders", files) if several else ("files", folders)
        other = "file" if several else "folder"
        problem = f"holds {kinds}, one per class, but also the {other}{'s' * (len(stray) > 1)} "
        raise ExampleError(
            problem + _preview(stray), where=folder, remedy="move them elsewhere, or " + remedy
        )
    if len(paths) < 2:
        held = f"only {paths[0].name!r}" if paths else "nothing"
        raise ExampleError(f"holds {held}, so no classes", where=folder, remedy=remedy)
    _check_classes(folder, paths)
    names = folders or _without_shared_ends(files)
    return list(zip(names, paths, strict=True))


def _check_not_saved_by_datasets(folder: Path, paths: Sequence[Path]) -> None:
    """Raise `ExampleError` for what `save_to_disk` of Hugging Face's `datasets` writes."""
    arrow = "state.json" in {path.name for path in paths} and any(
        kind_of(path) == ".arrow" for path in paths
    )
    if arrow or any(path.name == "dataset_dict.json" for path in paths):
        problem = "holds a data set saved by Hugging Face's `datasets`"
        raise ExampleError(problem, where=folder, remedy=FROM_ARROW)


def _check_no_splits(folder: Path, names: Sequence[str]) -> None:
    """Raise `ExampleError` for the splits of a data set instead of classes."""
    parts = [name for name in names if _PARTS.fullmatch(_stem(name))]
    several = len(names) > 1 and len(parts) == len(names)
    if several or any(_stem(name).lower() == "train" for name in parts):
        split = next((name for name in parts if name.lower().startswith("train")), parts[0])
        problem = f"holds the splits of a data set, not classes: {_preview(parts)}"
        remedy = f"give one of them, such as {folder / split}"
        raise ExampleError(problem, where=folder, remedy=remedy)


def _check_classes(folder: Path, paths: Sequence[Path]) -> None:
    """Raise `ExampleError` for tables, for a model, and for what brat writes."""
    names = {path.name for path in paths}
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        remedy = "the model comes first, then the file or folder of examples"
        raise ExampleError("is a model folder, not one of classes", where=folder, remedy=remedy)
    if marked := [path.name for path in paths if kind_of(path) == ".ann"]:
        what = f"holds annotations of brat, not classes: {_preview(marked)}"
        remedy = (
            'write each text with its entities to a .jsonl: {"text": "...", "entities": '
            "[[start, end, label], ...]}"
        )
        raise ExampleError(what, where=folder, remedy=remedy)
    tables = [path.name for path in paths if not path.is_dir() and kind_of(path) in _TABLES]
    if tables:
        problem = f"holds tables, not one file of texts per class: {_preview(tables)}"
        raise ExampleError(problem, where=folder, remedy="give one table, with a column of labels")


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _preview(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _without_shared_ends(files: Sequence[str]) -> list[str]:
    """Return names of files without their extensions and without shared beginnings and ends."""
    names = [_EXTENSIONS.sub("", name) for name in files]
    for backwards in (False, True):
        turned = [name[::-1] if backwards else name for name in names]
        shared = commonprefix(turned)  # noqa: RUF071 (of letters, not of path components)
        size = max((shared.rfind(mark) + 1 for mark in "-_. "), default=0)
        if all(len(name) > size for name in turned):
            turned = [name[size:] for name in turned]
        names = [name[::-1] if backwards else name for name in turned]
    # two names may differ only in their extension
    return names if len(set(names)) == len(names) else list(files)


def data_files(folder: Path) -> list[Path]:
    """Return the files of a folder that are read as classes, or may be. Raises `ExampleError`."""
    inside = [_visible(path) if path.is_dir() else [path] for path in _visible(folder)]
    return sorted(path for paths in inside for path in paths if path.is_file())


def _visible(folder: Path) -> list[Path]:
    """Return the entries of a folder. Raises `ExampleError` for one that cannot be listed."""
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
        return [path for path in paths if path.is_dir() or not _NOT_DATA.match(path.name)]
    except OSError as error:
        raise unreadable(ExampleError, error, folder) from error


def _lines(file: TextFile, refuse: Refuse) -> Iterator[tuple[int, str]]:
    for line, text in file.lines(escaped=True):
        if error := file.undecodable(text, line):
            refuse(error, text)
        elif text and not text.isspace():
            yield line, text.strip()


def _read_whole(file: TextFile, refuse: Refuse) -> Iterator[tuple[int, str]]:
    try:
        text = file.whole()
    except UserError as error:
        refuse(error, "")
        return
    if _is_json(text):
        remedy = "give texts, or a table of them such as a .jsonl with its columns named"
        refuse(file.fault("holds an object of JSON, not a text", 1, remedy), "")
        return
    yield 1, text


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        return isinstance(parse_json(text), dict)
    except ValueError:
        return False


def _example(file: TextFile, line: int, text: str, value: object, kind: Kind) -> Example:
    with located(file, line):
        label, number, labels = label_of(kind, value)
    if (label, number, labels) == (None, None, None):
        raise file.fault("no label", line, "begin the line with its label")
    return Example(
        text=text_of(file, line, "text", text),
        text_pair=None,
        label=label,
        source=str(file.path),
        line=line,
        labels=labels,
        number=number,
    )
