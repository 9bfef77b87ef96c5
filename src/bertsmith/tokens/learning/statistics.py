"""The fit of a vocabulary to a text: pieces per word, or per character, and the share of [UNK].

Defined once for all kinds of vocabularies and all commands: pieces per word are the tokens of a
text, without special tokens, divided by the words separated by white space, as in
`len(tokenizer.tokenize(text)) / len(text.split())` with `transformers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertsmith.text.corpus.documents import TextSize, size_of, tidy
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFit:
    """Counts over a text: its size, its number of pieces, and how many of them are [UNK]."""

    size: TextSize
    pieces: int
    unknown: int

    @property
    def unit(self) -> Literal["word", "character"]:
        """Unit: characters if more than a quarter are of scripts without blanks between words."""
        return "character" if 4 * self.size.unspaced > self.size.characters else "word"

    @property
    def pieces_per_unit(self) -> float:
        """Pieces per word, or per character; 0.0 if there is no text."""
        units = self.size.words if self.unit == "word" else self.size.characters
        return self.pieces / units if units else 0.0

    @property
    def unknown_share(self) -> float:
        """Share of the pieces that are [UNK], 0 to 1."""
        return self.unknown / self.pieces if self.pieces else 0.0

    def describe(self, digits: int = 2) -> str:
        """Return the ratio with its unit: ``1.37 pieces a word``."""
        return f"{self.pieces_per_unit:.{digits}f} pieces a {self.unit}"


def measure_fit(tokenizer: Tokenizer, texts: Iterable[str]) -> VocabularyFit:
    """Encode a stream of texts and count; literal special tokens count as plain text."""
    words, characters, unspaced, pieces, unknown = 0, 0, 0, 0, 0
    for text in texts:
        plain = tidy(text)
        (ids,) = tokenizer.encode([plain], specials_in_text=False)
        size = size_of(plain)
        words, characters = words + size.words, characters + size.characters
        unspaced += size.unspaced
        pieces += len(ids)
        unknown += int(np.count_nonzero(ids == tokenizer.unknown_id))
    size = TextSize(words=words, characters=characters, unspaced=unspaced)
    return VocabularyFit(size=size, pieces=pieces, unknown=unknown)


def measure_words(tokenizer: Tokenizer, words: Mapping[str, int]) -> VocabularyFit:
    """Measure how well a WordPiece vocabulary fits words between blanks with counts."""
    assert tokenizer.kind == "wordpiece", "with other kinds a word depends on what is before it"
    size, pieces, unknown = TextSize(), 0, 0
    for word, number in words.items():
        (ids,) = tokenizer.encode([word], specials_in_text=False)
        size += size_of(word) * number
        pieces += number * len(ids)
        unknown += number * int(np.count_nonzero(ids == tokenizer.unknown_id))
    return VocabularyFit(size=size, pieces=pieces, unknown=unknown)
