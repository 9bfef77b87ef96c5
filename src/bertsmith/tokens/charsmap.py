"""SentencePiece's compiled rules of normalisation: what stretches of text are exchanged for.

The rules are a trie of the bytes to be exchanged, as a double array (Aoe 1989, in the layout of
Darts-clone), and the texts that come in their place, each ended by a zero byte.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

_HEAD = 4
_LEAF = 1 << 31
_LABEL = _LEAF | 0xFF
_BLANK = 0x20
_LONGEST_MATCH, _LARGEST = 256, 2**20


class CharsMap:
    """Rules in the bytes that a SentencePiece model holds; none at all when there are none."""

    def __init__(self, data: bytes) -> None:
        """Raises `ValueError` for bytes that hold no rules."""
        if len(data) > _LARGEST:
            raise ValueError("they are longer than 1 MiB")
        size = int.from_bytes(data[:_HEAD], "little")
        if data and (len(data) < _HEAD or size % 4 or size > len(data) - _HEAD):
            raise ValueError("its table is longer than they are")
        self._units = np.frombuffer(data[_HEAD : _HEAD + size], "<u4")
        self._texts = data[_HEAD + size :]
        values = self._units[self._units >= _LEAF] & np.uint32(_LEAF - 1)
        if len(values) and (int(values.max()) >= len(self._texts) or self._texts[-1:] != b"\0"):
            raise ValueError("they point beyond their texts")
        self._trie: list[int] = self._units.tolist()

    def __bool__(self) -> bool:
        return bool(self._trie)

    def exchange(self, text: bytes, start: int) -> tuple[str, int]:
        """What stands for the longest match at a place, and how many bytes it takes: 0 if none."""
        trie, length, found = self._trie, 0, 0
        if not trie:
            return "", 0
        node = _offset(trie[0])
        for place in range(start, len(text)):
            node ^= text[place]
            if node >= len(trie) or trie[node] & _LABEL != text[place]:
                break
            unit = trie[node]
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(trie):
                length, found = place + 1 - start, trie[node] & (_LEAF - 1)
        if not length:
            return "", 0
        return self._texts[found : self._texts.find(b"\0", found)].decode(
            "utf-8", "replace"
        ), length

    @cached_property
    def crosses_blanks(self) -> bool:
        """Whether a rule holds a blank beside anything else, so that stretches of text depend."""
        units = self._units.astype(np.int64)
        nodes = np.arange(len(units))
        bases = nodes ^ (units >> 10 << ((units & 1 << 9) >> 6))
        labels = units & _LABEL
        level, depth = nodes[:1], 0
        while len(level):
            if depth > _LONGEST_MATCH:
                return True  # so deep only rules that lead in a circle
            after = nodes[(labels < 256) & np.isin(nodes ^ labels, bases[level])]
            if depth and (labels[after] == _BLANK).any():
                return True
            blank = level[labels[level] == _BLANK]
            if (
                depth == 1
                and np.isin(nodes ^ labels, bases[blank])[(labels > 0) & (labels < 256)].any()
            ):
                return True
            level, depth = np.unique(after[labels[after] > 0]), depth + 1
        return False


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)
