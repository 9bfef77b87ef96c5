"""Header lines of tables, and columns given by name or position.

A number is always a position, counted from 0; a name is looked up in the header. The presence of a
header in a CSV or TSV is detected from its first lines unless it is stated:

1. A first line of 0, 1, 2, ... (perhaps after an empty cell) above columns that hold more than
   numbers is a header, as pandas writes it for columns without names.
2. Evidence for data: a cell that is repeated further down in its column; a number above numbers; a
   sentence above sentences; letters and digits in the order of most cells below (``id 7``).
3. Evidence for a header: a word above numbers; a cell that is none of the few values that its
   column repeats; a short cell above long ones; usual names such as text and label.
4. If there is evidence for both, two or more usual names decide. Otherwise, and without any
   evidence, the header is undecided, and the user has to state it where it matters.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bertsmith.core.errors import UserError
from bertsmith.text.config import HeaderOption
from bertsmith.text.opening import TextFile

_SHOWN = 30
_LONG_TEXT = 20
_SENTENCE_WORDS = 6
_SENTENCE_CHARACTERS = 60
_FEW_ROWS = 10
# lines looked at for a header below a title
_LINES_BELOW = 6
# no table has as many columns, and Python reads no number of thousands of digits
_MAX_DIGITS = 9
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
_JOINS = re.compile(r"[\s_-]+")
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
# quotations are fewer: 3 % of the rows of MRPC
_SHARE_QUOTED = 0.1
_STOPS = tuple(".!?؟۔।。！？")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The decision whether the first line of a table is a header, and its reason.

    `present` is None if undecided. The names of a `counted` header are the numbers of the columns,
    which say nothing about their content.
    """

    present: bool | None
    reason: str = ""
    counted: bool = False


NAMED = Header(present=True)
"""The header of a table whose columns always have names."""

QUOTES_ARE_TEXT = "quotes around cells are read as text"
"""The note on a TSV whose cells an exporter seems to have quoted."""


def detect_header(sample: Sequence[Sequence[str]], usual: Collection[str]) -> Header:
    """Detect from the first lines of a table whether the first is a header.

    `usual` are frequent names of columns, in lower case.
    """
    first = [cell.strip() for cell in sample[0]]
    rows = [row for row in sample[1:] if len(row) == len(first)]
    columns = [[row[index].strip() for row in rows] for index in range(len(first))]
    if _counts(first) and any(not all(map(is_number, filter(None, column))) for column in columns):
        reason = "its first line numbers the columns, as pandas writes it for columns without names"
        return Header(present=True, reason=reason, counted=True)
    names = [cell for cell in first if cell.casefold() in usual]
    evidence = [_evidence(cell, values) for cell, values in zip(first, columns, strict=True)]
    data = [reason for is_header, reason in evidence if is_header is False]
    header = [reason for is_header, reason in evidence if is_header]
    repeated = [name for name in names if name in columns[first.index(name)]]
    if len(set(names)) > 1 and not repeated:
        return Header(present=True, reason=f"its first line has the names {listed(names)}")
    if data and (header or (names and not repeated)):
        return Header(
            present=None, reason=f"{data[0]}, but {(header or ['it has a usual name'])[0]}"
        )
    if data:
        return Header(present=False, reason=data[0])
    if header or names:
        return Header(present=True, reason=header[0] if header else f"it has the name {names[0]!r}")
    return Header(present=None, reason="its first line is much like the others")


def _counts(cells: Sequence[str]) -> bool:
    """Return whether cells are 0, 1, 2, ..., perhaps after an empty cell for the index."""
    numbers = cells[1:] if cells and not cells[0] else cells
    return len(numbers) > 1 and list(numbers) == [str(number) for number in range(len(numbers))]


def _evidence(cell: str, column: Sequence[str]) -> tuple[bool | None, str]:
    """Return whether the first cell of a column appears to be its name, and the reason."""
    values = [value for value in column if value]
    if not cell or not values:
        return None, ""
    shown = repr(cell[:_SHOWN])
    if cell in values:
        return False, f"{shown} in its first line is repeated below"
    if all(map(is_number, values)):
        if is_number(cell):
            return False, f"{shown} in its first line is a number, as below"
        if len(values) > 1:
            return True, f"{shown} is above numbers"
    shape = _shape(cell)
    if "0" in shape and 2 * sum(_shape(value) == shape for value in values) >= len(values) > 1:
        return False, f"{shown} in its first line is written like the values below"
    lengths = sorted(map(len, values))
    stops = sum(value.endswith(_STOPS) for value in values)
    if (cell.endswith(_STOPS) and 2 * stops >= len(values)) or (
        median(lengths) >= _LONG_TEXT and _is_sentence(cell)
    ):
        return False, f"{shown} in its first line is a sentence, as below"
    if len(values) >= _FEW_ROWS and is_categorical(values):
        return True, f"{shown} is none of the values below it"
    long = len(values) >= _FEW_ROWS // 2 and median(lengths) >= _LONG_TEXT
    # one text in 50 may be as short as a name
    if long and len(cell) < lengths[len(lengths) // 50] and len(cell.split()) <= 2:
        return True, f"{shown} is above longer texts"
    return None, ""


def _shape(cell: str) -> str:
    """Return a cell with each run of letters or digits reduced to one."""
    return _LETTERS.sub("a", _DIGITS.sub("0", cell))


def is_categorical(values: Sequence[str]) -> bool:
    """Return whether values repeat like labels: at least five times each, on average."""
    return 5 * len(set(values)) <= len(values)


def is_number(cell: str) -> bool:
    """Return whether a cell holds a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _is_sentence(cell: str) -> bool:
    return len(cell) > _SENTENCE_CHARACTERS or len(cell.split()) >= _SENTENCE_WORDS


def column_of(
    name: str,
    names: Sequence[str],
    header: Header,
    file: TextFile,
    *,
    sample: Sequence[Sequence[str]] = (),
    option: str = "",
) -> int:
    """Return the position of a column given by name or by position.

    `names` are the cells of the first line, `sample` the first lines; `option` is the one that
    names the column, if it was not given. Raises the file's error unless there is exactly one such
    column.
    """
    if header is NAMED or not is_position(name):
        return _by_name(name, names, header, file, sample=sample, option=option)
    position, width = int(name), len(names)
    same = [i for i, other in enumerate(names) if other.strip() == name] if header.present else []
    if not same and position < width:
        return position
    if not same:
        remedy = f"its {width} column{'s are' * (width > 1)}{' is' * (width == 1)} numbered from 0"
        raise file.fault(f"no column {name!r}", 1, remedy)
    if position < width and same != [position]:
        problem = (
            f"column {name!r} may be the one at position {position}, {names[position][:_SHOWN]!r}, "
            f"or the one with the name {name!r}, at position {same[0]}"
        )
        raise file.fault(
            problem, 1, "rename the columns in its first line so that none is such a number"
        )
    return same[0]


def _by_name(
    name: str,
    names: Sequence[str],
    header: Header,
    file: TextFile,
    *,
    sample: Sequence[Sequence[str]],
    option: str,
) -> int:
    index = index_of(names, name)
    if index is None or header.present is False:
        if header.present is False:
            problem = f"no column {name!r}, since it has no header: {header.reason}"
            remedy = f"name columns by position: {positions(names)}; or give --header yes"
            raise file.fault(problem, 1, remedy)
        same = [i for i, other in enumerate(names) if _composed(other) == _composed(name)]
        with_option = f" with {option}" if option else ""
        remedy = f"name one of its columns{with_option}: {listed(names)}"
        remedy = header_below(sample, (name.strip().casefold(),), least=1) or remedy
        if same:
            # the two look alike
            remedy = "its own is in other characters of Unicode (composed or not): write both alike"
            remedy += "" if header is NAMED else f", or name it by its position: {same[0]}"
        raise file.fault(f"no column {name!r}", 1, remedy)
    check_unique(index, names, header, file)
    return index


def header_below(sample: Sequence[Sequence[str]], names: Collection[str], least: int = 2) -> str:
    """Return the remedy for lines above a header, such as a title; "" if no line looks like one.

    A header below the first line is one of the next lines that has `least` of the usual `names`, in
    lower case.
    """
    for row in sample[1:_LINES_BELOW]:
        if sum(cell.strip().casefold() in names for cell in row) >= least:
            return f"remove the lines above its header, which seems to be {listed(row)}"
    return ""


def _composed(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip()


def check_unique(index: int, names: Sequence[str], header: Header, file: TextFile) -> None:
    """Raise the file's error if another column has the same name."""
    same = [i for i, name in enumerate(names) if name.strip() == names[index].strip()]
    if len(same) > 1:
        remedy = "give each column a unique name"
        if header is not NAMED:
            remedy = f"name one by its position: {' or '.join(map(str, same))}"
        raise file.fault(f"{len(same)} columns have the name {names[index][:_SHOWN]!r}", 1, remedy)


def is_position(name: str) -> bool:
    """Return whether a column is given by position, not by name."""
    return name.isascii() and name.isdecimal() and len(name) <= _MAX_DIGITS


def stated_header(
    option: HeaderOption,
    sample: Sequence[Sequence[str]],
    given: Sequence[str],
    usual: Collection[str],
) -> Header:
    """Return the stated header or, with `auto`, the one detected from the first lines.

    An undecided first line that contains one of the `given` names is a header.
    """
    if option != "auto":
        return Header(present=option == "yes", reason="as stated")
    header = detect_header(sample, usual)
    named = [name for name in given if not is_position(name)]
    if header.present is None and any(index_of(sample[0], name) is not None for name in named):
        return Header(present=True, reason="it has a name that was given")
    return header


def undecided(header: Header, names: Sequence[str], file: TextFile) -> UserError:
    """Return the error for a file whose header is undecided."""
    problem = f"its first line may be a header or not: {listed(names)}; {header.reason}"
    return file.fault(problem, 1, "state it: --header yes or --header no")


def is_quoted(cell: str) -> bool:
    """Return whether a cell is in double quotes, those inside it doubled."""
    return _QUOTED.fullmatch(cell) is not None


def _exporter_quoted(sample: Sequence[Sequence[str]]) -> bool:
    """Return whether the cells of first lines seem to be in quotes that are not of their texts."""
    quoted = [[cell for cell in row if is_quoted(cell)] for row in sample]
    # no quotation doubles the quotes inside it
    doubled = any('"' in cell[1:-1] for cells in quoted for cell in cells)
    return doubled or sum(map(bool, quoted)) >= _SHARE_QUOTED * len(sample) > 1


def described_columns(
    extension: str,
    names: Sequence[str],
    header: Header,
    roles: Mapping[str, int],
    sample: Sequence[Sequence[str]] = (),
) -> str:
    """Return a short description of a table's header, its columns' roles, and quotes in it."""
    described = _roles_shown(extension, names, header, roles)
    if extension != ".tsv" or not _exporter_quoted(sample):
        return described
    return f"{described}; {QUOTES_ARE_TEXT}: name the file .csv to have them removed"


def _roles_shown(
    extension: str, names: Sequence[str], header: Header, roles: Mapping[str, int]
) -> str:
    named = header.present is not False and not header.counted
    held = ", ".join(
        f"{role} is {repr(names[index]) if named else f'column {index}'}"
        for role, index in roles.items()
    )
    kind = extension.removeprefix(".").upper()
    if header is NAMED:
        return f"{kind}: {held}"
    if header.counted:
        return f"{kind} with a header of numbers ({header.reason}): {held}"
    if not named:
        return f"{kind} without header ({header.reason}): {held} (counted from 0)"
    return f"{kind} with a header: {held}"


def index_of(names: Sequence[str], name: str) -> int | None:
    """Return the position of a name; None if missing.

    An exact match comes before one in another case, and that before the only name that is spelled
    alike, as ``Answer Start`` and ``answerStart`` are for ``answer_start``.
    """
    if name in names:
        return list(names).index(name)
    folded = [other.strip().casefold() for other in names]
    key = name.strip().casefold()
    if key in folded:
        return folded.index(key)
    key = _spelling(name)
    alike = [index for index, other in enumerate(names) if key and _spelling(other) == key]
    return alike[0] if len(alike) == 1 else None


def _spelling(name: str) -> str:
    """Return a name in lower case without blanks, hyphens, underscores, and marks at its end."""
    return _JOINS.sub("", name.casefold()).rstrip("?:.")


def listed(names: Sequence[str]) -> str:
    """Format a few names for an error message."""
    shown = ", ".join(repr(name[:_SHOWN]) for name in names[:12])
    return shown + (", ..." if len(names) > 12 else "")


def positions(cells: Sequence[str]) -> str:
    """Format the cells of a first line with their positions, for an error message."""
    shown = ", ".join(f"{index} is {cell[:_SHOWN]!r}" for index, cell in enumerate(cells[:12]))
    return shown + (", ..." if len(cells) > 12 else "")
