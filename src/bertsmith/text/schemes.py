"""How tags of words say where an entity begins and ends: BIO1, BIO2 and BIOES, turned into BIO2.

    word          BIO1    BIO2    BIOES
    Alex          I-PER   B-PER   S-PER
    is            O       O       O
    in            O       O       O
    Los           I-LOC   B-LOC   B-LOC
    Angeles       I-LOC   I-LOC   E-LOC
    California    B-LOC   B-LOC   S-LOC

BIO1 begins an entity with B only where another of its type stands just before (Ramshaw and Marcus
1995; the CoNLL tasks to 2003), BIO2 always. BILOU is BIOES with L and U for E and S. Other tags,
such as parts of speech, are plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

Scheme = Literal["bio1", "bio2", "bioes", "plain"]

_TAG = re.compile(r"O|[BI]|[BIESLU]-.+", re.DOTALL)
_LIKE_BIOES = {"L": "E", "U": "S"}
_INSIDE = frozenset("BIES")


class BadTag(ValueError):
    """A tag, the `index`-th of its sentence, that cannot stand where it does."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index, self.what = index, what


def recognise_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of the tags of some sentences.

    Any E, S, L or U means BIOES. An entity that begins with I, and no B but between two entities of
    a type, means BIO1; otherwise it is BIO2.
    """
    inside_begins = begin_alone = False
    for tags in sentences:
        before = ("O", "")
        for tag in tags:
            if not _TAG.fullmatch(tag):
                return "plain"
            now = parted(tag)
            if now[0] in "ES":
                return "bioes" if all(_TAG.fullmatch(each) for each in tags) else "plain"
            follows = before[0] != "O" and before[1] == now[1]
            inside_begins |= now[0] == "I" and not follows
            begin_alone |= now[0] == "B" and not follows
            before = now
    return "bio1" if inside_begins and not begin_alone else "bio2"


def is_entity_tag(tag: str) -> bool:
    """Tell whether a tag is one of a scheme of entities, such as O and B-PER."""
    return _TAG.fullmatch(tag) is not None


def parted(tag: str) -> tuple[str, str]:
    """The letter of a tag (B, I, O, E or S) and its type, which may be empty."""
    letter, _, kind = tag.partition("-")
    return _LIKE_BIOES.get(letter, letter), kind


def entity_spans(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the first word, the word after the last, and the type of each entity of a sentence.

    Tags of any scheme, also such as a model predicts: as conlleval has it, an entity also begins
    with an I or E that follows none of its type, and ends where another begins. A tag of no scheme
    is outside of entities.
    """
    begin, before, kind = 0, "O", ""
    for index, tag in enumerate((*tags, "O")):
        letter, label = parted(tag)
        letter = letter if letter in _INSIDE else "O"
        begins = letter in "BS" or before in "OES" or label != kind
        if before != "O" and (letter == "O" or begins):
            yield begin, index, kind
        if letter != "O" and begins:
            begin = index
        before, kind = letter, label


def names_entities(labels: Sequence[str]) -> bool:
    """Return whether the tags that a model knows name entities, rather than parts of speech, say.

    One tag with a type is enough: published models also have tags of no scheme, such as X.
    """
    typed = any(tag[:2] in ("B-", "I-") for tag in labels)
    return typed or recognise_scheme([labels]) != "plain"


def to_bio2(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """The tags of a sentence in BIO2; raises `BadTag` for one that its scheme does not allow."""
    if scheme == "plain":
        return tuple(tags)
    found: list[str] = []
    before = ("O", "")
    for index, tag in enumerate(tags):
        if not _TAG.fullmatch(tag) or (scheme != "bioes" and parted(tag)[0] in "ES"):
            raise BadTag(index, f"{tag!r} is no tag of {scheme.upper()}")
        letter, kind = parted(tag)
        follows = before[0] in "BI" and before[1] == kind
        if scheme == "bioes":
            _check_bioes(index, tag, before, follows=follows)
        elif scheme == "bio2" and letter == "I" and not follows:
            raise BadTag(index, f"{tag!r} does not follow a tag of its type, so nothing starts it")
        if letter in "BS" or (letter == "I" and not follows):
            found.append(f"B-{kind}" if kind else "B")
        elif letter == "O":
            found.append("O")
        else:
            found.append(f"I-{kind}" if kind else "I")
        before = letter, kind
    if scheme == "bioes" and before[0] in "BI":
        raise BadTag(len(tags) - 1, f"the sentence ends within {tags[-1]!r}; E ends, S is single")
    return tuple(found)


def _check_bioes(index: int, tag: str, before: tuple[str, str], *, follows: bool) -> None:
    if parted(tag)[0] in "IE":
        if not follows:
            what = f"{tag!r} does not follow a tag of its type, so nothing starts it"
            raise BadTag(index, what)
    elif before[0] in "BI":
        raise BadTag(index, f"{tag!r} follows an entity that has not ended; E ends it")
