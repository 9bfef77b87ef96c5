"""Words by the basic rules together with where each of their characters stands in the text.

`BasicRules.words` composes, lower-cases and decomposes whole stretches; here every character is
followed through these steps. A character made of several spans them all; an accent that was taken
away is in no span, as in the compiled tokenizers' offsets.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bertsmith.tokens.basic import ASCII_REMOVED, ASCII_WORD, BasicRules, is_punctuation


class _Character(NamedTuple):
    """A character with the places in the text of what it decomposes into, (parts,)."""

    text: str
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """A word; `starts` and `ends` (characters,) of its characters in the text."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def aligned_words(rules: BasicRules, text: str, kept: frozenset[str]) -> list[AlignedWord]:
    """What `rules.words_keeping(text, kept)` gives, each word with the places of its characters.

    Without `kept` that is `rules.words(text)`.
    """
    if text.isascii() and not kept and not ASCII_REMOVED.search(text):
        lowered = text.lower() if rules.lowercase else text
        return [
            AlignedWord(
                found[0],
                tuple(range(*found.span())),
                tuple(range(found.start() + 1, found.end() + 1)),
            )
            for found in ASCII_WORD.finditer(lowered)
        ]
    words: list[AlignedWord] = []
    cleaned = _composed(_cleaned(rules, text)) if rules.composes else _as_given(rules, text)
    for word in _parted(cleaned, str.isspace):
        bare = word if _text(word) in kept else _bare(rules, word)
        parts = [bare] if _text(bare) in kept else _words(bare)
        words += map(_aligned, parts)
    return words


def _cleaned(rules: BasicRules, text: str) -> list[_Character]:
    """Lower-cased and decomposed one by one, without control characters, CJK apart."""
    table = rules.cleaning()
    return _ordered(
        _Character(part, (place,))
        for place, character in enumerate(text)
        for part in unicodedata.normalize("NFD", character.translate(table))
    )


def _as_given(rules: BasicRules, text: str) -> list[_Character]:
    """Lower-cased one by one, without control characters, CJK apart."""
    table = rules.cleaning()
    return [
        _Character(part, (place,))
        for place, character in enumerate(text)
        for part in character.translate(table)
    ]


def _composed(parts: list[_Character]) -> list[_Character]:
    """Composed (NFC) from parts in canonical order, each of which keeps its place."""
    whole = unicodedata.normalize("NFC", _text(parts))
    waiting = parts[::-1]
    return [_taken(character, waiting) for character in whole]


def _taken(character: str, waiting: list[_Character]) -> _Character:
    """A composed character with the places of its parts, which are taken off the waiting ones."""
    places: list[int] = []
    for part in unicodedata.normalize("NFD", character):
        # composition may reach over marks of other classes, which then stay waiting
        number = len(waiting) - 1
        while waiting[number].text != part:
            number -= 1
        places += waiting.pop(number).places
    return _Character(character, tuple(places))


def _bare(rules: BasicRules, word: list[_Character]) -> list[_Character]:
    """As `BasicRules` does it: lower-cased again, and without accents."""
    if rules.lowercase:
        word = [part for each in word for part in _spread(each, each.text.lower())]
    if not rules.strips:
        return word
    parts = [
        part for each in word for part in _spread(each, unicodedata.normalize("NFD", each.text))
    ]
    return [each for each in _ordered(parts) if unicodedata.category(each.text) != "Mn"]


def _spread(before: _Character, after: str) -> Iterator[_Character]:
    """What a character became: part by part where they match, or else each from all of it."""
    if len(after) == len(before.places):
        yield from (
            _Character(part, (place,)) for part, place in zip(after, before.places, strict=True)
        )
    else:
        yield from (_Character(part, before.places) for part in after)


def _ordered(parts: Iterator[_Character] | list[_Character]) -> list[_Character]:
    """In canonical order: runs of combining characters by their classes (Unicode, D108)."""
    ordered: list[_Character] = []
    run: list[_Character] = []
    for each in parts:
        if unicodedata.combining(each.text):
            run.append(each)
            continue
        ordered += sorted(run, key=_class) if len(run) > 1 else run
        ordered.append(each)
        run = []
    return [*ordered, *sorted(run, key=_class)]


def _class(character: _Character) -> int:
    return unicodedata.combining(character.text)


def _words(text: list[_Character]) -> list[list[_Character]]:
    words: list[list[_Character]] = []
    for stretch in _parted(text, str.isspace):
        word: list[_Character] = []
        for each in stretch:
            if is_punctuation(each.text):
                words += [word, [each]] if word else [[each]]
                word = []
            else:
                word.append(each)
        words += [word] if word else []
    return words


def _parted(text: list[_Character], blank: Callable[[str], bool]) -> list[list[_Character]]:
    stretches: list[list[_Character]] = [[]]
    for each in text:
        if blank(each.text):
            stretches.append([])
        else:
            stretches[-1].append(each)
    return [stretch for stretch in stretches if stretch]


def _text(characters: Sequence[_Character]) -> str:
    return "".join(each.text for each in characters)


def _aligned(word: list[_Character]) -> AlignedWord:
    return AlignedWord(
        _text(word),
        tuple(min(each.places) for each in word),
        tuple(max(each.places) + 1 for each in word),
    )
