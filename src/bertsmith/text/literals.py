"""Lists and objects written into the cells of tables: as JSON, or as Python and numpy print them.

pandas writes ``{'text': array(['a'], dtype=object), 'answer_start': array([3])}`` or ``['a' 'b']``
where a cell held a list. Nothing is evaluated: only brackets, strings, numbers and names of
constants are read, to a depth of `_DEEPEST`.
"""

from __future__ import annotations

import ast
import json
import re

_DEEPEST = 16
_LONGEST = 1 << 24
_SPACE = re.compile(r"[\s,]*")
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w.]*|-?\d[\d_]{0,30}\.?\d{0,30}(?:[eE][+-]?\d{1,3})?")
_CONSTANTS = {
    **{"None": None, "null": None, "nan": None, "NaN": None},
    **{"True": True, "true": True, "False": False, "false": False},
}
_TYPE = re.compile(r"\s*,?\s*(?:dtype|shape)=(?:\w+|'[^']*'|\([^)]*\))")


def literal(written: str) -> object:
    """Return the value of a cell with a list or an object; raises `ValueError` for others."""
    if len(written) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST:,} characters")
    try:
        return json.loads(written)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except ValueError:
        pass
    value, end = _value(written, _after_space(written, 0), 0)
    if _after_space(written, end) != len(written):
        raise ValueError(f"no list or object: {written[end : end + 20]!r} after it")
    return value


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _value(text: str, at: int, depth: int) -> tuple[object, int]:
    sign = text[at : at + 1]
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    if sign in ("[", "("):
        return _list(text, at + 1, "]" if sign == "[" else ")", depth)
    if sign == "{":
        return _object(text, at + 1, depth)
    if string := _STRING.match(text, at):
        try:
            return ast.literal_eval(string[0].replace("\n", "\\n")), string.end()
        except (ValueError, SyntaxError) as error:
            raise ValueError("a string that cannot be read") from error
    word = _WORD.match(text, at)
    if word is None:
        raise ValueError(f"no list or object: {text[at : at + 20]!r}")
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
    while typed := _TYPE.match(text, at):
        at = typed.end()
    at = _after_space(text, at)
    if text[at : at + 1] != ")":
        raise ValueError("an array that is not closed")
    return value, at + 1


def _list(text: str, at: int, end: str, depth: int) -> tuple[list[object], int]:
    found: list[object] = []
    at = _after_space(text, at)
    while text[at : at + 1] != end:
        value, at = _value(text, at, depth + 1)
        found.append(value)
        at = _after_space(text, at)
    return found, at + 1


def _object(text: str, at: int, depth: int) -> tuple[dict[str, object], int]:
    found: dict[str, object] = {}
    at = _after_space(text, at)
    while text[at : at + 1] != "}":
        key, at = _value(text, at, depth + 1)
        at = _after_space(text, at)
        if text[at : at + 1] != ":" or not isinstance(key, str):
            raise ValueError("an object without a colon after its key")
        found[key], at = _value(text, _after_space(text, at + 1), depth + 1)
        at = _after_space(text, at)
    return found, at + 1
