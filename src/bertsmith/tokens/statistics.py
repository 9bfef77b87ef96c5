"""How well a vocabulary fits a text: pieces a word and the share of [UNK]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.wordpiece import WordPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFit:
    """Counts over a text: its words, their pieces, and what is unknown of them.

    Words are those of the basic rules with WordPiece, of which [UNK] stands for a whole one; with
    other kinds they are what blanks part.
    """

    words: int
    pieces: int
    unknown: int

    @property
    def pieces_per_word(self) -> float:
        """1.0 would be a vocabulary of all the words; 0.0 when there are none."""
        return self.pieces / self.words if self.words else 0.0

    @property
    def unknown_share(self) -> float:
        """The share of words that are [UNK], 0 to 1."""
        return self.unknown / self.words if self.words else 0.0


def measure_fit(tokenizer: Tokenizer, texts: Iterable[str]) -> VocabularyFit:
    """Encode a stream of texts and count; literal special tokens count as plain text."""
    words = pieces = unknown = 0
    for text in texts:
        (ids,) = tokenizer.encode([text], specials_in_text=False)
        pieces += len(ids)
        if tokenizer.kind == "wordpiece":
            # every word begins with exactly one piece that goes on none
            words += int(np.count_nonzero(~tokenizer.continues[ids]))
        else:
            words += len(text.split())
        unknown += int(np.count_nonzero(ids == tokenizer.unknown_id))
    return VocabularyFit(words=words, pieces=pieces, unknown=unknown)


def measure_words(tokenizer: Tokenizer, words: Mapping[str, int]) -> VocabularyFit:
    """The same for words by the basic rules and how often each occurs."""
    cut = WordPiece(tokenizer.vocabulary, tokenizer.unknown_id)
    pieces = unknown = 0
    for word, number in words.items():
        ids = cut.ids(word)
        pieces += number * len(ids)
        unknown += number * (ids == [tokenizer.unknown_id])
    return VocabularyFit(words=sum(words.values()), pieces=pieces, unknown=unknown)
