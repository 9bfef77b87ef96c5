"""Small changes to the files of a model folder that know what the files are made of.

Every case is a pure function of its number, so that a case that does harm can be made again.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

# stand for what json cannot write: nesting near Python's limit, numbers of thousands of digits
_DEEP, _LONG = "@deep@", "@long@"
_DEPTHS = (30, 63, 64, 100, 500, 900, 940, 960, 970, 975, 980, 985, 990, 995, 1000, 5000)
_DIGITS = (300, 4299, 4300, 4301, 20_000)

# values that are of another type, out of range, or trouble for whoever prints or encodes them
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 31, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**40, 2**48,
    2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5, 1.0, 1.5, 1e-320, 1e308,
    float("inf"), float("-inf"), float("nan"), "", " ", "0", "1", "-1", "true", "NaN", "none",
    "gelu", "relu", "bert", "roberta", "albert", "distilbert", "modernbert", "absolute",
    "relative_key", "rope", "WordPiece", "BPE", "Unigram", "BertNormalizer", "Precompiled",
    "ByteLevel", "Metaspace", "TemplateProcessing", "BertPreTokenizer", "Sequence", "Split",
    "BertTokenizer", "RobertaTokenizerFast", "AlbertTokenizer", "F32", "BF16", "F8_E4M3", "I64",
    "[MASK]", "[UNK]", "##a", "<s>", "▁", "..", "../../etc/passwd", "/dev/zero", "a/b", "x" * 300,
    "x" * 100_000, "\ud800", "\udfff\ud800", "\x00", "\n", "\r", "\u2028", "é", "e\u0301", "İ",
    "ﷺ", "\U0010ffff", "👩‍👩‍👧", "%s%n", "{}", "\\", '"', "]]>", "(a*)*b", "((((", "[", "*",
    [], [[]], [None], [0] * 1000, ["a"] * 1000, [1, 2], [-1], [0, 4], [2**40, 2**40], {}, {"": 0},
    {"a": {"a": {"a": 1}}}, {str(number): number for number in range(1000)}, _DEEP, _DEEP, _LONG,
)  # fmt: skip

_TEXTS = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xc0\x80", b"\xed\xa0\x80", b"\r\n", b"\n", b"\r", b"\t",
    b" ", b"{", b"}", b"[", b"]", b'"', b",", b":", b"-", b"e999999", b"1e9999", b"NaN",
    b"-Infinity", b"\\u0000", b"\\ud800", b"[MASK]", b"##", b"9" * 5000, b"[" * 3000, b"{" * 3000,
    b'{"a":' * 2000, b"\x00" * 100, b"\xe2\x80\xa8", b"\xf4\x8f\xbf\xbf",
)  # fmt: skip

Path = tuple[str | int, ...]


def mutated_json(chance: random.Random, data: Any, words: Sequence[str]) -> bytes:  # noqa: ANN401
    """JSON that was changed in one place or a few; `words` are keys worth having."""
    data = copy.deepcopy(data)
    for _ in range(_few(chance)):
        data = chance.choice(_CHANGES)(chance, data, words)
    text = json.dumps(data, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    depth, digits = chance.choice(_DEPTHS), chance.choice(_DIGITS)
    opened, closed = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    text = text.replace(b'"@deep@"', opened * depth + b"0" + closed * depth)
    text = text.replace(b'"@long@"', b"7" * digits)
    if chance.random() < 0.1:
        key = json.dumps(chance.choice(words)).encode()
        value = json.dumps(chance.choice(_VALUES)).encode()
        text = text.replace(b"{", b"{" + key + b": " + value + b", ", 1)
    return mutated_bytes(chance, text) if chance.random() < 0.15 else text


def mutated_bytes(chance: random.Random, data: bytes) -> bytes:
    """Bytes that were cut, flipped, doubled, moved or added to."""
    for _ in range(_few(chance)):
        first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        last = min(last, first + chance.choice((1, 2, 8, 100, len(data))))
        how = chance.randrange(7)
        if how == 0:
            data = data[:first]
        elif how == 1:
            data = data[:first] + data[last:]
        elif how == 2:
            data = data[:first] + chance.choice(_TEXTS) + data[first:]
        elif how == 3 and data:
            place = chance.randrange(len(data))
            data = (
                data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
            )
        elif how == 4:
            data = data[:last] + data[first:last] + data[last:]
        elif how == 5:
            data = data[:first] + chance.randbytes(last - first) + data[last:]
        else:
            data = data[:first] + chance.choice(_TEXTS) + data[last:]
    return data


def mutated_lines(chance: random.Random, data: bytes) -> bytes:
    """A file of lines with some changed, moved, doubled, emptied or left out."""
    lines = data.split(b"\n")
    for _ in range(_few(chance)):
        place, other = (chance.randrange(len(lines)) for _ in range(2))
        how = chance.randrange(6)
        if how == 0:
            del lines[place]
        elif how == 1:
            lines.insert(place, lines[other])
        elif how == 2:
            lines[place], lines[other] = lines[other], lines[place]
        elif how == 3:
            value = chance.choice(_VALUES)
            lines[place] = str(value)[:200_000].encode("utf-8", "surrogatepass")
        elif how == 4:
            lines[place] = mutated_bytes(chance, lines[place])
        else:
            lines[place:] = []
        lines = lines or [b""]
    return mutated_bytes(chance, b"\n".join(lines)) if chance.random() < 0.2 else b"\n".join(lines)


def mutated_tensors(chance: random.Random, data: bytes, words: Sequence[str]) -> bytes:
    """A safetensors file whose header, length or data were changed."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    kind = chance.random()
    if kind < 0.1:
        return mutated_bytes(chance, data)
    text = data[8 : 8 + length]
    if kind < 0.7:
        text = mutated_json(chance, header, words)
    elif kind < 0.9:
        name = chance.choice([name for name in header if name != "__metadata__"])
        entry = header[name]
        key = chance.choice(("shape", "data_offsets"))
        place = chance.randrange(len(entry[key]))
        entry[key][place] = chance.choice(
            (entry[key][place] + chance.randint(-9, 9), chance.choice(_VALUES))
        )
        text = json.dumps(header).encode()
    else:
        body = body[: chance.randrange(len(body))] + bytes(chance.choice((0, 1, 4, 4096)))
    told = len(text)
    if chance.random() < 0.15:
        told = chance.choice(
            (0, 1, told - 1, told + 1, 2**20, 100 * 2**20, 2**31, 2**32, 2**63, 2**64 - 1)
        )
    return max(told, 0).to_bytes(8, "little") + text + body


def _few(chance: random.Random) -> int:
    return chance.choice((1, 1, 1, 2, 2, 3, 5))


def _places(data: Any, limit: int = 2000) -> list[tuple[Path, Any]]:  # noqa: ANN401
    """Paths to what is in some JSON, with the container that each is in; the outermost first."""
    found: list[tuple[Path, Any]] = []
    waiting: list[tuple[Path, Any]] = [((), data)]
    while waiting and len(found) < limit:
        path, node = waiting.pop(0)
        if isinstance(node, dict | list):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            for key in keys:
                found.append(((*path, key), node))
                waiting.append(((*path, key), node[key]))
    return found


def _somewhere(chance: random.Random, data: Any) -> tuple[Any, Any] | None:  # noqa: ANN401
    places = _places(data)
    if not places:
        return None
    # large tables would take all attention from the settings
    few = [place for place in places if len(place[1]) < 50]
    path, container = chance.choice(few if few and chance.random() < 0.7 else places)
    return container, path[-1]


Change = Callable[[random.Random, Any, Sequence[str]], Any]


def _replace(chance: random.Random, data: Any, words: Sequence[str]) -> Any:  # noqa: ANN401
    place = _somewhere(chance, data)
    if place is None or chance.random() < 0.02:
        return chance.choice(_VALUES)
    place[0][place[1]] = copy.deepcopy(chance.choice(_VALUES))
    return data


def _remove(chance: random.Random, data: Any, words: Sequence[str]) -> Any:  # noqa: ANN401
    place = _somewhere(chance, data)
    if place is not None:
        del place[0][place[1]]
    return data


def _exchange(chance: random.Random, data: Any, words: Sequence[str]) -> Any:  # noqa: ANN401
    one, other = _somewhere(chance, data), _somewhere(chance, data)
    if one is not None and other is not None:
        one[0][one[1]] = copy.deepcopy(other[0][other[1]])
    return data


def _retype(chance: random.Random, data: Any, words: Sequence[str]) -> Any:  # noqa: ANN401
    place = _somewhere(chance, data)
    if place is not None:
        container, key = place
        value = container[key]
        container[key] = chance.choice(([value], str(value), {"value": value}, {str(value): 0}))
        if isinstance(value, int | float) and chance.random() < 0.5:
            container[key] = chance.choice(
                (-value, value * 2, value * 2**20, value + 1, value // 3)
            )
    return data


def _rename(chance: random.Random, data: Any, words: Sequence[str]) -> Any:  # noqa: ANN401
    place = _somewhere(chance, data)
    if place is not None and isinstance(place[0], dict):
        container, key = place
        container[chance.choice((*words, key + "x", key.upper(), ""))] = container.pop(key)
    return data


def _add(chance: random.Random, data: Any, words: Sequence[str]) -> Any:  # noqa: ANN401
    place = _somewhere(chance, data)
    container = place[0] if place is not None else data
    value = copy.deepcopy(chance.choice(_VALUES))
    if isinstance(container, dict):
        container[chance.choice(words)] = value
    elif isinstance(container, list):
        container.insert(chance.randrange(len(container) + 1), value)
    return data


_CHANGES: tuple[Change, ...] = (
    _replace,
    _replace,
    _replace,
    _remove,
    _exchange,
    _retype,
    _rename,
    _add,
)
