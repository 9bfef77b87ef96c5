"""The kinds of vocabularies, with their properties and encoders.

wordpiece  words by BERT's rules, split into pieces, longest match first BERT, DistilBERT
byte-bpe   words with the preceding blank, merges of bytes               RoBERTa, ModernBERT
unigram    most probable segmentation of text (SentencePiece)            ALBERT, XLM-RoBERTa
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe import BLANK, ByteRules, ByteText, read
from bertsmith.tokens.compiled_unigram import CompiledUnigramText
from bertsmith.tokens.config import KindName
from bertsmith.tokens.modern import ModernRules, ModernText
from bertsmith.tokens.normalisation import SPACE, PlainRules, UnigramRules
from bertsmith.tokens.unigram import UnigramText
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, SPECIALS, UNIGRAM_SPECIALS, Stretch
from bertsmith.tokens.wordpiece import CONTINUES, WordPieceText

# XLM-RoBERTa's PlainRules are UnigramRules too
Rules = BasicRules | ByteRules | ModernRules | UnigramRules


class TextEncoder(Protocol):
    """Encodes texts, with a bounded cache."""

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterable[Sequence[int]]:
        """Yield the ids of a text, in parts; `inside` if it continues a paragraph."""
        ...

    def spans(self, text: str, *, specials_in_text: bool) -> Iterable[Stretch]:
        """Yield the ids with the positions of the pieces."""
        ...


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The properties that all vocabularies of a kind share."""

    name: KindName
    specials: tuple[str, ...]
    """Special tokens for padding, unknown, beginning, end and mask."""
    separators: int
    """Number of separators between the two texts of a pair."""
    segments: bool
    """True if the second text of a pair has segment id 1."""
    encoder: Callable[[Sequence[str], Any, int], TextEncoder]
    """Makes an encoder from a vocabulary, rules of this kind, and the id of the unknown token."""
    goes_on: Callable[[str], bool]
    """Returns whether a piece continues a word."""
    joined: Callable[[Sequence[str]], str]
    """Returns the text of some pieces."""
    lowercase: Callable[[Any], bool]
    """Returns whether rules lower-case text."""
    identity: Callable[[Any], list[object]]
    """Returns the parts of the rules that affect ids."""


def kind_of(rules: Rules) -> Kind:
    """Return the kind that rules belong to."""
    return _KINDS[type(rules)]


def _words(pieces: Sequence[str]) -> str:
    return " ".join(pieces).replace(" " + CONTINUES, "").strip()


def _bytes(pieces: Sequence[str]) -> str:
    return read("".join(pieces)).decode("utf-8", "replace")


def _goes_on_bytes(piece: str) -> bool:
    """Return whether a piece has no blank before it and is no punctuation, a word in itself.

    Letters after punctuation count as continuing a word: the piece does not show the difference.
    """
    if piece.startswith(BLANK):
        return False
    first = _bytes([piece])[:1]
    return first.isalnum() or first == "\ufffd"


def _marked(pieces: Sequence[str]) -> str:
    return "".join(pieces).replace(SPACE, " ").strip()


def _goes_on_marked(piece: str) -> bool:
    return piece[0] != SPACE and piece[0].isalnum()


def _unigram_identity(rules: UnigramRules) -> list[object]:
    charsmap = hashlib.sha256(rules.charsmap).hexdigest()
    switches = [rules.prefix_space, rules.lowercase, rules.keep_accents, rules.remove_space]
    numbers = [rules.scores, sorted(rules.control), sorted(rules.wanted)]
    compiled = ["compiled", rules.gaps, rules.strips_end, rules.late_mask] if rules.compiled else []
    return [charsmap, *switches, rules.number_commas, rules.mask_takes_blank, *numbers, *compiled]


def _unigram_text(vocabulary: Sequence[str], rules: UnigramRules, unknown: int) -> TextEncoder:
    return (CompiledUnigramText if rules.compiled else UnigramText)(vocabulary, rules, unknown)


_UNIGRAM = Kind(
    name="unigram",
    specials=UNIGRAM_SPECIALS,
    separators=1,
    segments=True,
    encoder=_unigram_text,
    goes_on=_goes_on_marked,
    joined=_marked,
    lowercase=lambda rules: bool(rules.lowercase),
    identity=_unigram_identity,
)
_KINDS: dict[type, Kind] = {
    BasicRules: Kind(
        name="wordpiece",
        specials=SPECIALS,
        separators=1,
        segments=True,
        encoder=WordPieceText,
        goes_on=lambda piece: piece.startswith(CONTINUES),
        joined=_words,
        lowercase=lambda rules: bool(rules.lowercase),
        identity=lambda rules: [
            *(rules.lowercase, rules.strips, rules.space_cjk),
            *([] if rules.composes else ["as given"]),
        ],
    ),
    ByteRules: Kind(
        name="byte-bpe",
        specials=BYTE_SPECIALS,
        separators=2,
        segments=False,
        encoder=ByteText,
        goes_on=_goes_on_bytes,
        joined=_bytes,
        lowercase=lambda rules: False,
        identity=lambda rules: [
            *(rules.merges, rules.prefix_blank, rules.mask_takes_blank),
            *(["each part"] if rules.prefix_parts else []),
        ],
    ),
    ModernRules: Kind(
        name="byte-bpe",
        specials=SPECIALS,
        separators=1,
        segments=True,
        encoder=ModernText,
        goes_on=_goes_on_bytes,
        joined=_bytes,
        lowercase=lambda rules: False,
        identity=lambda rules: [rules.to_dict()],
    ),
    UnigramRules: _UNIGRAM,
    PlainRules: replace(
        _UNIGRAM,
        specials=PlainRules.specials,
        separators=PlainRules.separators,
        segments=False,
        identity=lambda rules: ["plain", *_unigram_identity(rules)],
    ),
}
