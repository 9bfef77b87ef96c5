"""Structured values: JSON files read with line numbers, and Python or JSON literals in cells."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bertsmith.core.errors import UserError
from bertsmith.core.files import NestedTooDeep, parse_json
from bertsmith.text.opening import TextFile

_MAX_DEPTH = 16
_MAX_LENGTH = 1 << 24
_SPACE = re.compile(r"[\s,]*")
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w.]*|-?\d[\d_]{0,30}\.?\d{0,30}(?:[eE][+-]?\d{1,3})?")
_CONSTANTS = {
    **{"None": None, "null": None, "nan": None, "NaN": None},
    **{"True": True, "true": True, "False": False, "false": False},
}
_TYPE = re.compile(r"\s*,?\s*(?:dtype|shape)=(?:\w+|'[^']*'|\([^)]*\))")


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
        raise ValueError("nested too deep")
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
    if word[0] in ("array", "np.array") and text[word.end() : word.end() + 1] == "(":
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
        raise ValueError("an array that is not closed")
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


def _after(text: str, at: int) -> int:
    return _after_space(text, at, _JSON_SPACE)


class LocatedValue(NamedTuple):
    """A value and the line where it begins."""

    value: object
    line: int


class LocatedJson:
    """A JSON file read part by part; raises the file's error if it is not valid JSON."""

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self._text = file.whole()
        self._decoder = json.JSONDecoder()
        self._counted, self._line = 0, 1

    def elements(self, keys: Sequence[str]) -> Iterator[LocatedValue]:
        """Yield the elements of the list under the first key of the file's object.

        In each, a list under the next key is a list of `LocatedValue`, and so on to the last key.
        """
        try:
            value, end = self._value(_after(self._text, 0), keys)
            if _after(self._text, end) != len(self._text):
                raise json.JSONDecodeError("Extra data", self._text, end)
        except json.JSONDecodeError as error:
            line = self._text.count("\n", 0, error.pos) + 1
            raise self._fault(error.msg, line) from error
        except (ValueError, RecursionError) as error:
            raise self._fault(str(error), None) from error
        if not isinstance(value, dict) or not isinstance(value.get(keys[0]), list):
            remedy = f'the file must be an object with a list {keys[0]!r}: {{"{keys[0]}": [...]}}'
            raise self._file.fault(f"no list {keys[0]!r}", 1, remedy)
        yield from value[keys[0]]

    def _fault(self, problem: str, line: int | None) -> UserError:
        return self._file.fault(f"not JSON: {problem}", line, "copy or export it again")

    def _line_of(self, at: int) -> int:
        # positions only grow, so every character is counted once
        self._line += self._text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def _value(self, at: int, keys: Sequence[str]) -> tuple[object, int]:
        if keys and self._text[at : at + 1] == "{":
            return self._object(at + 1, keys)
        return self._decoder.raw_decode(self._text, at)

    def _object(self, at: int, keys: Sequence[str]) -> tuple[dict[str, object], int]:
        results: dict[str, object] = {}
        at = _after(self._text, at)
        if self._text[at : at + 1] == "}":
            return results, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                raise json.JSONDecodeError("Expecting a key in double quotes", self._text, at)
            key, at = self._decoder.raw_decode(self._text, at)
            at = _after(self._text, at)
            if self._text[at : at + 1] != ":":
                raise json.JSONDecodeError("Expecting ':' delimiter", self._text, at)
            at = _after(self._text, at + 1)
            if key == keys[0] and self._text[at : at + 1] == "[":
                results[key], at = self._list(at + 1, keys[1:])
            else:
                results[key], at = self._decoder.raw_decode(self._text, at)
            at, ended = self._next(at, "}")
            if ended:
                return results, at

    def _list(self, at: int, keys: Sequence[str]) -> tuple[list[LocatedValue], int]:
        results: list[LocatedValue] = []
        at = _after(self._text, at)
        if self._text[at : at + 1] == "]":
            return results, at + 1
        while True:
            line = self._line_of(at)
            value, at = self._value(at, keys)
            results.append(LocatedValue(value, line))
            at, ended = self._next(at, "]")
            if ended:
                return results, at

    def _next(self, at: int, end: str) -> tuple[int, bool]:
        """Return the start of the next part and False, or the end of the last and True."""
        at = _after(self._text, at)
        sign = self._text[at : at + 1]
        if sign not in (",", end):
            raise json.JSONDecodeError("Expecting ',' delimiter", self._text, at)
        return (at + 1, True) if sign == end else (_after(self._text, at + 1), False)


RECORDS = ("data", "examples", "records", "rows")
"""Keys of an object that may hold the list of records."""


def first_keys(file: TextFile) -> set[str]:
    """Return the keys of the first record of a JSON file; none if it is not an object."""
    first = next(json_records(file), None)
    return set(first.value) if first is not None and isinstance(first.value, dict) else set()


def json_records(file: TextFile) -> Iterator[LocatedValue]:
    """Yield the records of a JSON file, each with its line.

    The records are in a list, in a list under a key of an object (`RECORDS`), or one per line.
    Raises the file's error.
    """
    text = file.whole()
    decoder = json.JSONDecoder()
    at = _after(text, 0)
    counted, line = 0, 1
    try:
        whole = text[at : at + 1] == "["
        if text[at : at + 1] == "{":
            at, bracket = _list_of_object(text, at, decoder)
        else:
            bracket = text[at : at + 1] == "["
            at = _after(text, at + 1)
        while text[at : at + 1] not in ("", "]"):
            line += text.count("\n", counted, at)
            counted = at
            value, end = decoder.raw_decode(text, at)
            yield LocatedValue(value, line)
            at = _after(text, end)
            sign = text[at : at + 1]
            if bracket and sign not in (",", "]"):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            if sign == ",":
                at = _after(text, at + 1)
        if bracket != (text[at : at + 1] == "]"):
            raise json.JSONDecodeError("Expecting a list of objects", text, at)
        if whole and _after(text, at + 1) != len(text):
            raise json.JSONDecodeError("Extra data", text, at + 1)
    except json.JSONDecodeError as error:
        line = text.count("\n", 0, error.pos) + 1
        remedy = 'write a list of objects: [{"text": "..."}, ...]'
        raise file.fault(f"not JSON: {error.msg}", line, remedy) from error
    except (ValueError, RecursionError) as error:
        raise file.fault(f"not JSON: {error}", line, "copy or export it again") from error


def _list_of_object(text: str, start: int, decoder: json.JSONDecoder) -> tuple[int, bool]:
    """Return the offset of the first record, and whether it is in a list, not one per line."""
    at = _after(text, start + 1)
    while text[at : at + 1] == '"':
        key, at = decoder.raw_decode(text, at)
        at = _after(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = _after(text, at + 1)
        if key in RECORDS and text[at : at + 1] == "[":
            return _after(text, at + 1), True
        _, at = decoder.raw_decode(text, at)
        at = _after(text, at)
        if text[at : at + 1] not in (",", "}"):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        if text[at : at + 1] == ",":
            at = _after(text, at + 1)
    return start, False
