"""The kinds of vocabularies: what is special in each, and what turns text into its ids.

wordpiece  words by BERT's rules, cut into pieces, longest first         BERT, DistilBERT
byte-bpe   words with the blank before them, their bytes joined by pairs RoBERTa, ModernBERT
unigram    text without blanks, cut as is likeliest (SentencePiece)      ALBERT
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe.modern import ModernRules, ModernText
from bertsmith.tokens.bpe.pairs import BLANK, ByteRules, read
from bertsmith.tokens.bpe.text import ByteText
from bertsmith.tokens.spans import Stretch
from bertsmith.tokens.unigram.pieces import SPACE
from bertsmith.tokens.unigram.rules import UnigramRules
from bertsmith.tokens.unigram.text import UnigramText
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, SPECIALS, UNIGRAM_SPECIALS, KindName
from bertsmith.tokens.wordpiece import CONTINUES, WordPieceText

Rules = BasicRules | ByteRules | ModernRules | UnigramRules


class TextEncoder(Protocol):
    """Turns texts into ids, and remembers what it has met, in bounded memory."""

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterable[Sequence[int]]:
        """The ids of a text, in parts; `inside` a paragraph a text goes on from another."""
        ...

    def spans(self, text: str, *, specials_in_text: bool) -> Iterable[Stretch]:
        """The same with the places of the pieces."""
        ...


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is common to all vocabularies of a kind."""

    name: KindName
    specials: tuple[str, ...]
    """The special tokens that stand for padding, the unknown, a beginning, an end and a mask."""
    separators: int
    """How many separators stand between the two texts of a pair."""
    segments: bool
    """Whether the second text of a pair is told from the first by its segment."""
    encoder: Callable[[Sequence[str], Any, int], TextEncoder]
    """Of a vocabulary, rules of this kind, and the id of the unknown."""
    goes_on: Callable[[str], bool]
    """Whether a piece goes on a word that began before it."""
    joined: Callable[[Sequence[str]], str]
    """The text of some pieces."""
    lowercase: Callable[[Any], bool]
    """Whether rules take capitals away."""
    identity: Callable[[Any], list[object]]
    """What of the rules changes ids."""


def kind_of(rules: Rules) -> Kind:
    """The kind that rules are for."""
    return _KINDS[type(rules)]


def _words(pieces: Sequence[str]) -> str:
    return " ".join(pieces).replace(" " + CONTINUES, "").strip()


def _bytes(pieces: Sequence[str]) -> str:
    return read("".join(pieces)).decode("utf-8", "replace")


def _goes_on_bytes(piece: str) -> bool:
    """Without a blank, unless it is a mark: those are words, as in WordPiece.

    Letters behind a mark count as going it on: the piece does not tell.
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
    return [charsmap, *switches, rules.number_commas, rules.mask_takes_blank, *numbers]


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
    UnigramRules: Kind(
        name="unigram",
        specials=UNIGRAM_SPECIALS,
        separators=1,
        segments=True,
        encoder=UnigramText,
        goes_on=_goes_on_marked,
        joined=_marked,
        lowercase=lambda rules: bool(rules.lowercase),
        identity=_unigram_identity,
    ),
}
