"""Added tokens: matched in a text before it is split into pieces, as the compiled tokenizers do.

Users add them for what a vocabulary lacks: markers of entities, names of users, terms. There are
two passes. Tokens that are not normalised are matched in the text as given, the others in what the
rules make of the text between them (lower-cased, say). In both the leftmost match counts, and of
several there the longest; the parts between matches are encoded as texts of their own.

`LiteralSpecials` finds the special tokens alone, as the slow tokenizers do."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bertsmith.core.config import Config
from bertsmith.tokens.vocabulary import WHITE_SPACE, Pieces, TextEncoder, TextRun

_WHITE: Final = re.compile(f"[{WHITE_SPACE}]*")
_DEPTH: Final = 8  # of the tree; few tokens have more characters in common
LEFT_OVER: Final = ("<|padding|>", "<|endoftext|>")
"""Special tokens of ModernBERT's vocabulary that its models do not know."""


@dataclass(frozen=True, kw_only=True)
class AddedToken(Config):
    """A token that is matched in text before the text is split into pieces."""

    piece: str
    special: bool
    """True if it is a special token and not text."""
    normalized: bool
    """True if it is matched in the text as the rules normalise it, not in the original one."""
    single_word: bool = False
    """True if no letter or digit may stand beside it."""
    lstrip: bool = False
    """True if the blanks before it belong to it."""
    rstrip: bool = False
    """True if the blanks after it belong to it."""


@dataclass(frozen=True, kw_only=True)
class AddedTokens(Config):
    """The added tokens of a vocabulary, which may be among the pieces of its model."""

    tokens: tuple[AddedToken, ...]
    """All of them in the order of ids, special tokens included."""
    learned: int
    """Number of pieces, the vocabulary's first, that words are split into."""

    def identity(self) -> list[object]:
        """Return what of the tokens affects ids."""
        flags = ("single_word", "lstrip", "rstrip")
        return [
            self.learned,
            *(
                [
                    token.piece,
                    token.special,
                    token.normalized,
                    *(n for n in flags if getattr(token, n)),
                ]
                for token in self.tokens
            ),
        ]


class Part(NamedTuple):
    """A part of a text, with the id of the added token if it is one."""

    start: int
    end: int
    number: int | None


class LiteralSpecials:
    """Finds the special tokens of a kind in a text, as the slow tokenizers do."""

    def __init__(
        self,
        ids: Mapping[str, int],
        specials: Sequence[str],
        *,
        mask_takes_blank: bool = False,
        lowercase: bool = False,
    ) -> None:
        """With `mask_takes_blank` the white space before a mask, the last of them, is left out.

        With `lowercase` special tokens without capitals are found in capitals too.
        """
        self._ids = {piece: ids[piece] for piece in specials}
        self._mask = specials[-1] if mask_takes_blank else None
        small = "|".join(re.escape(piece) for piece in specials if piece == piece.lower())
        large = [re.escape(piece) for piece in specials if piece != piece.lower()]
        patterns = [*large, f"(?{'i' * lowercase}:{small})"] if small else large
        self._pattern = re.compile("|".join(patterns))

    def parts(self, text: str) -> Iterator[Part]:
        """Yield the special tokens of a text and the parts between them."""
        position = 0
        for match in self._pattern.finditer(text):
            piece = match[0] if match[0] in self._ids else match[0].lower()
            start, end = match.span()
            before = text[position:start]
            if piece == self._mask:
                before = before.rstrip()
            if before:
                yield Part(position, position + len(before), None)
            yield Part(start, end, self._ids[piece])
            position = end
        if position < len(text):
            yield Part(position, len(text), None)


class Finder:
    """Finds added tokens in a text."""

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        ids: Mapping[str, int],
        reserved: Sequence[str],
        normalised: Callable[[str], str] = str,
    ) -> None:
        """`reserved` are the special tokens of the rules, which are not matched in corpora.

        The tokens are matched as they are `normalised`.
        """
        self._reserved = frozenset((*reserved, *LEFT_OVER))
        self._tokens: dict[str, AddedToken] = {}
        self._ids = ids
        # of tokens that are normalised alike the first counts
        for token in sorted(tokens, key=lambda token: not token.special):
            self._tokens.setdefault(normalised(token.piece), token)
        self._pattern = re.compile(_pattern(list(self._tokens))) if tokens else None
        self.has_blanks = any(set(piece) & set(WHITE_SPACE) for piece in self._tokens)
        """True if there is white space in a token."""

    def parts(self, text: str, specials_in_text: bool) -> Iterator[Part]:
        """Yield the added tokens of a text and the parts between them."""
        position = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            token = self._tokens[match[0]]
            start, end = match.span()
            if token.piece in self._reserved and not specials_in_text:
                continue
            if token.single_word and not _stands_alone(text, start, end):
                continue
            if token.lstrip:
                start = position + len(text[position:start].rstrip(WHITE_SPACE))
            if token.rstrip:
                end = _end_of_blanks(text, end)
            if position < start:
                yield Part(position, start, None)
            # its blanks may all belong to the token before, which leaves nothing of it
            if start < end:
                yield Part(start, end, self._ids[token.piece])
            position = end
        if position < len(text):
            yield Part(position, len(text), None)

    def matches(self, text: str) -> bool:
        """Return whether any added token may be in a text."""
        return self._pattern is not None and self._pattern.search(text) is not None


def finders(
    added: AddedTokens,
    ids: Mapping[str, int],
    reserved: Sequence[str],
    normalised: Callable[[str], str] = str,
) -> tuple[Finder, Finder]:
    """Return the finders of the two passes; the latter's text has been `normalised`."""
    early = [token for token in added.tokens if not token.normalized]
    late = [token for token in added.tokens if token.normalized]
    return Finder(early, ids, reserved), Finder(late, ids, reserved, normalised)


class AddedText:
    """Encodes texts with added tokens, and what is between them by another encoder."""

    def __init__(self, finder: Finder, between: TextEncoder, *, trims: bool = False) -> None:
        """With `trims` the places of tokens are without the blanks that belong to them."""
        self._finder = finder
        self._between = between
        self._trims = trims

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts; `inside` if it continues a paragraph."""
        for start, end, number in self._finder.parts(text, specials_in_text):
            if number is not None:
                yield (number,)
            else:
                yield from self._between.ids(
                    text[start:end],
                    specials_in_text=specials_in_text,
                    inside=inside and not start,
                )

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces."""
        for start, end, number in self._finder.parts(text, specials_in_text):
            if number is not None:
                token = text[start:end]
                first = len(token) - len(token.lstrip(WHITE_SPACE)) if self._trims else 0
                last = len(token.rstrip(WHITE_SPACE)) if self._trims else len(token)
                yield TextRun(start, (number,), (first,), (max(first, last),))
                continue
            runs = self._between.spans(text[start:end], specials_in_text=specials_in_text)
            if start == 0:
                yield from runs
                continue
            for offset, ids, starts, ends in runs:
                yield TextRun(start + offset, ids, starts, ends)


def learned_pieces(vocabulary: Pieces, added: AddedTokens | None) -> Pieces:
    """Return the pieces that words are split into."""
    if added is None or added.learned == len(vocabulary):
        return vocabulary
    return Pieces(vocabulary[: added.learned])


def _pattern(pieces: Sequence[str], depth: int = _DEPTH) -> str:
    """Return a regular expression of alternatives, of which the longest that match are first.

    They are a tree by their first characters, so that few are tried at a position of a text.
    """
    if depth == 0 or len(pieces) < 3:
        return "|".join(map(re.escape, sorted(pieces, key=len, reverse=True)))
    groups: dict[str, list[str]] = {}
    for piece in pieces:
        groups.setdefault(piece[:1], []).append(piece[1:])
    ends = groups.pop("", [])
    branches = [
        re.escape(first) + (f"(?:{_pattern(rest, depth - 1)})" if rest[1:] else re.escape(rest[0]))
        for first, rest in groups.items()
    ]
    return "|".join([*branches, *ends[:1]])


def _end_of_blanks(text: str, start: int) -> int:
    blanks = _WHITE.match(text, start)
    return start if blanks is None else blanks.end()


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not _is_of_word(text[start - 1 : start]) and not _is_of_word(text[end : end + 1])


# joiners and letters in circles
_ALSO_OF_WORD: Final = re.compile(
    "[\u200c\u200d\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]"
)


def _is_of_word(character: str) -> bool:
    """Return whether a character is one of a word (Unicode Technical Standard 18, annex C)."""
    if not character:
        return False
    category = unicodedata.category(character)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return True
    return _ALSO_OF_WORD.match(character) is not None
