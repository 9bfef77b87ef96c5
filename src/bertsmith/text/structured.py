"""Structured values: JSON files read with line numbers, and Python or JSON literals in cells."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from bertsmith.core.files import NestedTooDeep, json_problem, parse_json
from bertsmith.text.opening import TextFile

_MAX_DEPTH = 16
_MAX_LENGTH = 1 << 24
_SPACE = re.compile(r"[\s,]*")
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w.]*|-?\d[\d_]{0,30}\.?\d{0,30}(?:[eE][+-]?\d{1,3})?")
_CONSTANTS = {
    **{"None": None, "null": None, "nan": None, "NaN": None},
    **{"True": True, "true": True, "False": False, "false": False},
    **{"np.True_": True, "np.False_": False, "np.nan": None},
}
# Python's lists of numpy's values have these since numpy 2
_BRACKETED = re.compile(r"array|np\.(?:array|str_|u?int\d+|float\d+)")
_TYPE = re.compile(r"\s*+,?\s*+(?:dtype|shape)=(?:\w+|'[^']*'|\([^)]*\))")


def literal(written: str) -> object:
    """Parse a list or object in a cell. Raises `ValueError` for anything else."""
    if len(written) > _MAX_LENGTH:
        raise ValueError(f"longer than {_MAX_LENGTH:,} characters")
    try:
        return parse_json(written)
    except NestedTooDeep:
        raise
    except ValueError:
        pass
    value, end = _value(written, _after_space(written, 0), 0)
    if _after_space(written, end) != len(written):
        raise ValueError(f"not a list or object: {written[end : end + 20]!r} after it")
    return value


def _after_space(text: str, at: int, space: re.Pattern[str] = _SPACE) -> int:
    match = space.match(text, at)
    assert match is not None
    return match.end()


def _value(text: str, at: int, depth: int) -> tuple[object, int]:
    sign = text[at : at + 1]
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if sign in ("[", "("):
        return _list(text, at + 1, "]" if sign == "[" else ")", depth)
    if sign == "{":
        return _object(text, at + 1, depth)
    if string := _STRING.match(text, at):
        try:
            written = string[0].replace("\n", "\\n").replace("\r", "\\r")
            return ast.literal_eval(written), string.end()
        except (ValueError, SyntaxError) as error:
            raise ValueError("a string that cannot be read") from error
    word = _WORD.match(text, at)
    if word is None:
        raise ValueError(f"not a list or object: {text[at : at + 20]!r}")
    if _BRACKETED.fullmatch(word[0]) and text[word.end() : word.end() + 1] == "(":
        return _array(text, word.end() + 1, depth)
    if word[0] in _CONSTANTS:
        return _CONSTANTS[word[0]], word.end()
    try:
        return int(word[0]), word.end()
    except ValueError:
        return float(word[0]), word.end()


def _array(text: str, at: int, depth: int) -> tuple[object, int]:
    value, at = _value(text, _after_space(text, at), depth + 1)
    while match := _TYPE.match(text, at):
        at = match.end()
    at = _after_space(text, at)
    if text[at : at + 1] != ")":
        raise ValueError("an array or value that is not closed")
    return value, at + 1


def _list(text: str, at: int, end: str, depth: int) -> tuple[list[object], int]:
    results: list[object] = []
    at = _after_space(text, at)
    while text[at : at + 1] != end:
        value, at = _value(text, at, depth + 1)
        results.append(value)
        at = _after_space(text, at)
    return results, at + 1


def _object(text: str, at: int, depth: int) -> tuple[dict[str, object], int]:
    results: dict[str, object] = {}
    at = _after_space(text, at)
    while text[at : at + 1] != "}":
        key, at = _value(text, at, depth + 1)
        at = _after_space(text, at)
        if text[at : at + 1] != ":" or not isinstance(key, str):
            raise ValueError("an object without a colon after its key")
        results[key], at = _value(text, _after_space(text, at + 1), depth + 1)
        at = _after_space(text, at)
    return results, at + 1


_JSON_SPACE = re.compile(r"[ \t\n]*")
RECORDS = ("data", "examples", "records", "rows")
"""Keys of an object that may hold the list of records."""


class LocatedValue(NamedTuple):
    """A value and the line where it begins."""

    value: object
    line: int


class LocatedJson:
    """A JSON file read part by part; raises the file's error if it is not valid JSON."""

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self._text = file.whole()
        self._decode = json.JSONDecoder().raw_decode
        self._counted, self._line = 0, 1

    def elements(self, keys: Sequence[str]) -> Iterator[LocatedValue]:
        """Yield the elements of the list under the first key of the file's object.

        In each, a list under the next key is a list of `LocatedValue`, and so on to the last key.
        """
        with self._errors("copy or export it again"):
            value, end = self._value(self._after(0), keys)
            self._check_end(end)
        if not isinstance(value, dict) or not isinstance(value.get(keys[0]), list):
            remedy = f'the file must be an object with a list {keys[0]!r}: {{"{keys[0]}": [...]}}'
            raise self._file.fault(f"no list {keys[0]!r}", 1, remedy)
        yield from value[keys[0]]

    def records(self) -> Iterator[LocatedValue]:
        """Yield the records of the file.

        They are in a list, in a list under a key of an object (`RECORDS`), or one per line.
        """
        with self._errors('write a list of objects: [{"text": "..."}, ...]'):
            start = self._after(0)
            whole = self._sign(start) == "["
            inner = self._list_of_object(start) if self._sign(start) == "{" else None
            bracket = whole or inner is not None
            at = self._after(start + 1) if whole else start if inner is None else inner
            while self._sign(at) not in ("", "]"):
                line = self._line_of(at)
                value, at = self._decode(self._text, at)
                yield LocatedValue(value, line)
                at = self._after(at)
                if bracket and self._sign(at) not in (",", "]"):
                    raise self._expected("',' delimiter", at)
                if self._sign(at) == ",":
                    at = self._after(at + 1)
            if bracket != (self._sign(at) == "]"):
                raise self._expected("a list of objects", at)
            if whole:
                self._check_end(at + 1)

    def _list_of_object(self, start: int) -> int | None:
        """Return the offset of the first record of a list in an object, None without a list."""
        at, ended = self._after(start + 1), False
        while not ended and self._sign(at) == '"':
            key, at = self._key(at)
            if key in RECORDS and self._sign(at) == "[":
                return self._after(at + 1)
            _, at = self._decode(self._text, at)
            at, ended = self._next(at, "}")
        return None

    @contextmanager
    def _errors(self, remedy: str) -> Iterator[None]:
        """Raise the file's error for errors inside; `remedy` is that of what is not JSON."""
        try:
            yield
        except json.JSONDecodeError as error:
            line = self._text.count("\n", 0, error.pos) + 1
            raise self._file.fault(f"not JSON: {error.msg}", line, remedy) from error
        except (ValueError, RecursionError) as error:
            # Python gives no position here: it is in the record that began last
            remedy = "copy or export it again"
            problem = f"not JSON: {json_problem(error)}"
            raise self._file.fault(problem, self._line, remedy) from error

    def _expected(self, what: str, at: int) -> json.JSONDecodeError:
        return json.JSONDecodeError(f"Expecting {what}", self._text, at)

    def _check_end(self, end: int) -> None:
        if self._after(end) != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, end)

    def _sign(self, at: int) -> str:
        return self._text[at : at + 1]

    def _after(self, at: int) -> int:
        return _after_space(self._text, at, _JSON_SPACE)

    def _line_of(self, at: int) -> int:
        # positions only grow, so every character is counted once
        self._line += self._text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def _value(self, at: int, keys: Sequence[str]) -> tuple[object, int]:
        if keys and self._sign(at) == "{":
            return self._object(at + 1, keys)
        return self._decode(self._text, at)

    def _object(self, at: int, keys: Sequence[str]) -> tuple[dict[str, object], int]:
        results: dict[str, object] = {}
        at = self._after(at)
        if self._sign(at) == "}":
            return results, at + 1
        ended = False
        while not ended:
            if self._sign(at) != '"':
                raise self._expected("a key in double quotes", at)
            key, at = self._key(at)
            if key == keys[0] and self._sign(at) == "[":
                results[key], at = self._list(at + 1, keys[1:])
            else:
                results[key], at = self._decode(self._text, at)
            at, ended = self._next(at, "}")
        return results, at

    def _list(self, at: int, keys: Sequence[str]) -> tuple[list[LocatedValue], int]:
        results: list[LocatedValue] = []
        at = self._after(at)
        if self._sign(at) == "]":
            return results, at + 1
        ended = False
        while not ended:
            line = self._line_of(at)
            value, at = self._value(at, keys)
            results.append(LocatedValue(value, line))
            at, ended = self._next(at, "]")
        return results, at

    def _key(self, at: int) -> tuple[str, int]:
        """Return a key of an object, and the offset of its value."""
        key, at = self._decode(self._text, at)
        at = self._after(at)
        if self._sign(at) != ":":
            raise self._expected("':' delimiter", at)
        return key, self._after(at + 1)

    def _next(self, at: int, end: str) -> tuple[int, bool]:
        """Return the start of the next part and False, or the end of the last and True."""
        at = self._after(at)
        if self._sign(at) not in (",", end):
            raise self._expected("',' delimiter", at)
        return (at + 1, True) if self._sign(at) == end else (self._after(at + 1), False)


def first_keys(file: TextFile) -> set[str]:
    """Return the keys of the first record of a JSON file; none if it is not an object."""
    first = next(LocatedJson(file).records(), None)
    return set(first.value) if first is not None and isinstance(first.value, dict) else set()
