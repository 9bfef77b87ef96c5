"""Vectors of texts by a static model: the mean of the vectors of a text's pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith.core.errors import ExampleError
from bertsmith.engine.features import TextFeatures
from bertsmith.engine.predictor import ROWS, text_length, windows
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

_NONE = np.zeros((0, 2), np.int64)
# bytes of vectors of pieces that are looked up at once
_HELD = 2**24


@dataclass(frozen=True, kw_only=True)
class StaticVectors:
    """A static model that answers: `table` is (pieces, width), `prompt` stands before texts.

    `longest` pieces of a text are read, None for all; `after` are layers on the means.
    """

    table: NDArray[np.float32]
    tokenizer: Tokenizer
    prompt: str = ""
    longest: int | None = None
    after: Sequence[nn.Module] = ()
    normalize: bool = False

    @property
    def width(self) -> int:
        """The length of its vectors."""
        size = int(self.table.shape[1])
        for layer in self.after:
            size = getattr(layer, "outputs", size)
        return size

    def features(self, examples: Iterable[Example]) -> Iterator[TextFeatures]:
        """Yield the vectors of a stream of examples, in their order and in constant memory.

        Raises `ExampleError` for a pair: a mean cannot tell its texts apart.
        """
        for window in windows(examples, ROWS, text_length):
            if (pair := next((e for e in window if e.text_pair is not None), None)) is not None:
                raise ExampleError(
                    "is a pair of texts, but a static model gives vectors of single texts",
                    where=pair.source,
                    line=pair.line,
                    remedy="name its column with --text-column",
                )
            texts = [self.prompt + item.text for item in window]
            encoded = self.tokenizer.encode(texts)
            read = [ids[: self.longest] for ids in encoded]
            every = zip(window, encoded, read, self.means(read), strict=True)
            for example, ids, own, vector in every:
                yield TextFeatures(
                    example=example, vectors=vector, spans=_NONE, names=(), tokens=len(own),
                    left_out=len(ids) - len(own),
                )  # fmt: skip

    def means(self, pieces: Sequence[NDArray[np.integer]]) -> NDArray[np.float32]:
        """Return the means of the vectors of texts' pieces after all layers, (texts, width)."""
        results = np.zeros((len(pieces), self.table.shape[1]), np.float32)
        sizes = np.array([len(ids) for ids in pieces], np.int64)
        nonempty = np.flatnonzero(sizes)
        most = max(1, _HELD // (4 * self.table.shape[1]))
        for numbers in _groups(nonempty, sizes, most):
            ids = np.concatenate([pieces[number] for number in numbers.tolist()])
            # only a text by itself has more
            parts = [ids[begin : begin + most] for begin in range(0, len(ids), most)]
            begins = np.cumsum(sizes[numbers]) - sizes[numbers]
            sums = np.add.reduceat(self.table[parts[0]], begins, axis=0)
            for part in parts[1:]:
                sums += self.table[part].sum(axis=0)
            results[numbers] = sums / sizes[numbers, None]
        for layer in self.after:
            results = layer(torch.from_numpy(results)).numpy()
        if self.normalize:
            lengths = np.linalg.norm(results, axis=1, keepdims=True)
            results /= np.where(lengths > 0, lengths, 1)
        return results


def _groups(
    numbers: NDArray[np.int64], sizes: NDArray[np.int64], most: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of neighbouring texts of `most` pieces together, or of one with more."""
    ends = np.cumsum(sizes[numbers])
    begin = 0
    while begin < len(numbers):
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield numbers[begin:end]
        begin = end
