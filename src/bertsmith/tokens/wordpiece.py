"""WordPiece: words by the basic rules to token ids, with or without positions in the text.

`BasicRules.words` composes, lower-cases and decomposes whole texts; for positions, every character
is tracked through these steps. A character composed of several spans them all; an accent that was
stripped is in no span, as in the compiled tokenizers' offsets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Final, NamedTuple

from bertsmith.tokens.added import (
    AddedText,
    Finder,
    LiteralSpecials,
    finders,
    learned_pieces,
)
from bertsmith.tokens.basic import ASCII_REMOVED, ASCII_WORD, BasicRules, is_punctuation
from bertsmith.tokens.vocabulary import (
    SPECIALS,
    BoundedCache,
    Pieces,
    Spans,
    TextEncoder,
    TextRun,
    Traced,
    sizes_by_beginning,
)

MAX_WORD_LENGTH = 100
CONTINUES = "##"

_PREFIX = 3
_SHORT = (2, 1)  # sizes of pieces below that of a prefix


class WordPiece:
    """Splits words into pieces of a vocabulary (Wu et al. 2016, section 4.1, greedily)."""

    def __init__(self, vocabulary: Pieces, unknown_id: int) -> None:
        self._unknown = [unknown_id]
        self._first = vocabulary.ids

    # made for the first word that is split, as many questions have none
    @cached_property
    def _later(self) -> dict[str, int]:
        return {
            piece[len(CONTINUES) :]: number
            for piece, number in self._first.items()
            if piece.startswith(CONTINUES)
        }

    @cached_property
    def _first_sizes(self) -> dict[str, tuple[int, ...]]:
        return _sizes(self._first)

    @cached_property
    def _later_sizes(self) -> dict[str, tuple[int, ...]]:
        return _sizes(self._later)

    def ids(self, word: str) -> list[int]:
        """Return a word's ids; one [UNK] if no pieces match or it has over 100 characters."""
        length = len(word)
        if length > MAX_WORD_LENGTH:
            return self._unknown
        if word in self._first:
            return [self._first[word]]
        ids: list[int] = []
        pieces, sizes, start = self._first, self._first_sizes, 0
        while start < length:
            for size in sizes.get(word[start : start + _PREFIX], _SHORT):
                number = pieces.get(word[start : start + size])
                if number is not None:
                    break
            else:
                return self._unknown
            ids.append(number)
            pieces, sizes, start = self._later, self._later_sizes, start + size
        return ids

    def ids_of(self, words: Iterable[str]) -> list[int]:
        """Return the ids of several words, concatenated."""
        return [number for word in words for number in self.ids(word)]


def _sizes(pieces: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of pieces by their beginnings, without those longer than any word."""
    return sizes_by_beginning((piece for piece in pieces if len(piece) <= MAX_WORD_LENGTH), _PREFIX)


class _Character(NamedTuple):
    """A character with the positions in the text of the parts it decomposes into, (parts,)."""

    text: str
    places: tuple[int, ...]


def aligned_words(rules: BasicRules, text: str, kept: frozenset[str]) -> list[Traced]:
    """Return `rules.words_keeping(text, kept)`, each word with the positions of its characters.

    Without `kept` the words are `rules.words(text)`.
    """
    if text.isascii() and not kept and not ASCII_REMOVED.search(text):
        lowered = text.lower() if rules.lowercase else text
        return [
            Traced(match[0], range(*match.span()), range(match.start() + 1, match.end() + 1))
            for match in ASCII_WORD.finditer(lowered)
        ]
    words: list[Traced] = []
    for word in _parted(_cleaned(rules, text)):
        bare = word if _text(word) in kept else _bare(rules, word)
        parts = [bare] if _text(bare) in kept else _words(bare)
        words += map(_aligned, parts)
    return words


def _cleaned(rules: BasicRules, text: str) -> list[_Character]:
    """Lower-case each character, remove control characters, separate CJK, and compose if set."""
    table = rules.cleaning()
    decomposed = partial(unicodedata.normalize, "NFD") if rules.slow else str
    parts = [
        _Character(part, (place,))
        for place, character in enumerate(text)
        for part in decomposed(character.translate(table))
    ]
    return _composed(_ordered(parts)) if rules.slow else parts


def _composed(parts: list[_Character]) -> list[_Character]:
    """Compose (NFC) parts in canonical order, each of which keeps its position."""
    whole = unicodedata.normalize("NFC", _text(parts))
    waiting = parts[::-1]
    return [_take_parts(character, waiting) for character in whole]


def _take_parts(character: str, waiting: list[_Character]) -> _Character:
    """Return a composed character with the positions of its parts, removed from `waiting`."""
    places: list[int] = []
    for part in unicodedata.normalize("NFD", character):
        # composition may skip marks of other classes, which stay in `waiting`
        number = len(waiting) - 1
        while waiting[number].text != part:
            number -= 1
        places += waiting.pop(number).places
    return _Character(character, tuple(places))


def _bare(rules: BasicRules, word: list[_Character]) -> list[_Character]:
    """Lower-case again and strip accents, as `BasicRules` does."""
    if rules.lowercase:
        word = [part for item in word for part in _spread(item, item.text.lower())]
    if not rules.strips:
        return word
    parts = [
        part for item in word for part in _spread(item, unicodedata.normalize("NFD", item.text))
    ]
    return [item for item in _ordered(parts) if unicodedata.category(item.text) != "Mn"]


def _spread(before: _Character, after: str) -> Iterator[_Character]:
    """Yield the characters that replace one, each with its part's position or all positions."""
    if len(after) == len(before.places):
        yield from (
            _Character(part, (place,)) for part, place in zip(after, before.places, strict=True)
        )
    else:
        yield from (_Character(part, before.places) for part in after)


def _ordered(parts: Iterable[_Character]) -> list[_Character]:
    """Sort into canonical order: runs of combining characters by class (Unicode, D108)."""
    ordered: list[_Character] = []
    run: list[_Character] = []
    for character in parts:
        if unicodedata.combining(character.text):
            run.append(character)
            continue
        ordered += sorted(run, key=_class) if len(run) > 1 else run
        ordered.append(character)
        run = []
    return [*ordered, *sorted(run, key=_class)]


def _class(character: _Character) -> int:
    return unicodedata.combining(character.text)


def _words(text: list[_Character]) -> list[list[_Character]]:
    words: list[list[_Character]] = []
    for stretch in _parted(text):
        word: list[_Character] = []
        for character in stretch:
            if is_punctuation(character.text):
                words += [word, [character]] if word else [[character]]
                word = []
            else:
                word.append(character)
        words += [word] if word else []
    return words


def _parted(text: list[_Character]) -> list[list[_Character]]:
    stretches: list[list[_Character]] = [[]]
    for character in text:
        if character.text.isspace():
            stretches.append([])
        else:
            stretches[-1].append(character)
    return [stretch for stretch in stretches if stretch]


def _text(characters: Sequence[_Character]) -> str:
    return "".join(character.text for character in characters)


def _aligned(word: list[_Character]) -> Traced:
    return Traced(
        _text(word),
        tuple(min(character.places) for character in word),
        tuple(max(character.places) + 1 for character in word),
    )


_SPECIALS: Final = frozenset(SPECIALS)
# str.split treats these as blanks; to the rules they are control characters, which are removed
_FALSE_BLANKS: Final = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_STRETCH: Final = re.compile(r"[\S\x0b\x0c\x1c-\x1f\x85]+")
_BEYOND_PLAIN: Final = re.compile(r"[^\t\n\r -~]")


class WordPieceText:
    """Encodes texts by the basic rules and WordPiece."""

    def __init__(self, vocabulary: Pieces, rules: BasicRules, unknown_id: int) -> None:
        self._vocabulary = vocabulary
        self._rules = rules
        self._specials = LiteralSpecials(vocabulary.ids, SPECIALS)
        self._pieces = WordPiece(learned_pieces(vocabulary, rules.added), unknown_id)
        self._unknown = unknown_id
        self._chunks = BoundedCache(self._chunk_ids)
        self._chunk_spans = BoundedCache(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts, independent of its context."""
        del inside
        if not specials_in_text or "[" not in text:
            return self._plain(text)
        return chain.from_iterable(
            self._between_specials(text[start:end]) if special is None else [(special,)]
            for start, end, special in self._specials.parts(text)
        )

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces."""
        if not specials_in_text or "[" not in text:
            yield from self._plain_spans(text, 0, len(text))
            return
        for start, end, special in self._specials.parts(text):
            if special is None:
                yield from self._spans_between(text, start, end)
            else:
                yield TextRun(start, (special,), (0,), (end - start,))

    def _plain(self, text: str) -> Iterator[tuple[int, ...]]:
        if _FALSE_BLANKS.search(text):
            text = _FALSE_BLANKS.sub("", text)
        return map(self._chunks.__getitem__, text.split())

    def _plain_spans(self, text: str, start: int, end: int) -> Iterator[TextRun]:
        for match in _STRETCH.finditer(text, start, end):
            yield TextRun(match.start(), *self._chunk_spans[match[0]])

    def _between_specials(self, text: str) -> Iterator[Sequence[int]]:
        if self._may_hide_special(text):
            return iter([self._pieces.ids_of(self._rules.words_keeping(text, _SPECIALS))])
        return self._plain(text)

    def _spans_between(self, text: str, start: int, end: int) -> Iterator[TextRun]:
        if not self._may_hide_special(text[start:end]):
            yield from self._plain_spans(text, start, end)
            return
        for match in _STRETCH.finditer(text, start, end):
            yield TextRun(match.start(), *self._spans_of(match[0], _SPECIALS))

    def _may_hide_special(self, text: str) -> bool:
        """Return whether removing a character or an accent may yield a special token.

        Never in lower-cased text; only the slow tokenizer, which composes text, looks for them.
        """
        cased = self._rules.slow and not self._rules.lowercase
        return cased and "[" in text and bool(_BEYOND_PLAIN.search(text))

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        return tuple(self._pieces.ids_of(self._rules.words(chunk)))

    def _spans_of(self, chunk: str, kept: frozenset[str] = frozenset()) -> Spans:
        return self._word_spans(aligned_words(self._rules, chunk, kept))

    def _word_spans(self, words: Iterable[Traced]) -> Spans:
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for word in words:
            first = 0
            for number in self._pieces.ids(word.text):
                last = (
                    len(word.text) if number == self._unknown else first + self._size(number, first)
                )
                ids.append(number)
                # marks in canonical order need not lie in the order of the text
                starts.append(min(word.starts[first:last]))
                ends.append(max(word.ends[first:last]))
                first = last
        return tuple(ids), tuple(starts), tuple(ends)

    def _size(self, number: int, first: int) -> int:
        """Return the number of characters of a piece that begins or continues a word."""
        return len(self._vocabulary[number]) - (len(CONTINUES) if first else 0)


class AddedWordPieceText(WordPieceText):
    """Encodes texts in which added tokens are matched once they are normalised."""

    def __init__(
        self, vocabulary: Pieces, rules: BasicRules, unknown_id: int, finder: Finder
    ) -> None:
        super().__init__(vocabulary, rules, unknown_id)
        self._finder = finder

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts, independent of its context."""
        normalised = self._rules.normalised(text)
        if not self._finder.matches(normalised):
            # special tokens are added ones, which were found before where they count
            yield from super().ids(text, specials_in_text=False, inside=inside)
            return
        for start, end, number in self._finder.parts(normalised, specials_in_text):
            if number is not None:
                yield (number,)
            else:
                yield self._pieces.ids_of(self._rules.words_in(normalised[start:end]))

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces."""
        if not self._finder.matches(self._rules.normalised(text)):
            yield from super().spans(text, specials_in_text=False)
            return
        characters = _bare(self._rules, _cleaned(self._rules, text))
        for start, end, number in self._finder.parts(_text(characters), specials_in_text):
            part = characters[start:end]
            if number is None:
                yield TextRun(0, *self._word_spans(map(_aligned, _words(part))))
            else:
                token = _aligned(part)
                yield TextRun(0, (number,), (min(token.starts),), (max(token.ends),))


def wordpiece_text(vocabulary: Pieces, rules: BasicRules, unknown_id: int) -> TextEncoder:
    """Return the encoder of texts by the basic rules, with added tokens if there are any."""
    if rules.added is None:
        return WordPieceText(vocabulary, rules, unknown_id)
    early, late = finders(rules.added, vocabulary.ids, SPECIALS, rules.normalised)
    return AddedText(early, AddedWordPieceText(vocabulary, rules, unknown_id, late))
