"""The demo's gaps: sentences from which one of four frequent words has been taken.

Each poses two questions: which of the four words was taken, and from which of four places. The
other words of the sentence are the same at every place, so the second question cannot be answered
from the bag of words.

The candidates are the four most frequent of ten English prepositions in the training text, of those
that are whole pieces of the vocabulary. A sentence with a gap has exactly one of the four, once.
Gaps for evaluation come from documents held out of pre-training and do not occur in the training
text; each candidate is the answer equally often.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from bertsmith.core.streams import Purpose, permuted, stream
from bertsmith.text.corpus.documentation import ModuleText
from bertsmith.text.corpus.sentences import split_sentences
from bertsmith.tokens.tokenizer import Tokenizer

PREPOSITIONS = ("of", "to", "in", "for", "with", "by", "on", "from", "as", "at")
CANDIDATES, PLACES = 4, 4
TRAIN_A_WORD, DEV_A_WORD = 1000, 150
TOKEN = re.compile(r"\w+|[^\w\s]")

_FEWEST, _MOST = 6, 30
_LETTERS, _CODE = 0.9, frozenset("[]`=<>{}_*|")
_COUNTED = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A sentence with one word removed."""

    words: tuple[str, ...]
    """The other words, in order, with adjacent punctuation."""
    word: int
    """Number of the candidate removed."""
    places: tuple[int, ...]
    """Possible positions of it between words, ascending: place i is before word i."""
    place: int
    """Number of the true position among `places`."""

    def text(self, place: int, filling: str) -> str:
        """Return the sentence with a text inserted at one of its places."""
        at = self.places[place]
        return " ".join((*self.words[:at], filling, *self.words[at:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class GapTask:
    """The candidates, and gaps for training and evaluation."""

    candidates: tuple[str, ...]
    train: list[Gap]
    dev: list[Gap]


def make_gap_task(
    modules: Sequence[ModuleText], held_out: Sequence[bool], tokenizer: Tokenizer
) -> GapTask | None:
    """Make gaps from the documentation; None if there is too little text for it."""
    train, dev = (
        _sentences(
            module for module, apart in zip(modules, held_out, strict=True) if apart == wanted
        )
        for wanted in (False, True)
    )
    candidates = choose_candidates(train, tokenizer)
    known = {sentence.lower() for sentence in train}
    task = GapTask(
        candidates=candidates,
        train=balanced_gaps(train, candidates, TRAIN_A_WORD),
        dev=balanced_gaps(dev, candidates, DEV_A_WORD, known.__contains__),
    )
    return task if len(candidates) == CANDIDATES and task.train and task.dev else None


def choose_candidates(sentences: Sequence[str], tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the most frequent prepositions that are one piece each, in order of frequency."""
    whole = {word for word in PREPOSITIONS if len(tokenizer.encode([word])[0]) == 1}
    # a part of a long text is representative
    some = sentences[:: max(1, len(sentences) // _COUNTED)]
    counts = Counter(chain.from_iterable(map(str.split, some)))
    ranked = sorted(whole & counts.keys(), key=lambda word: (-counts[word], word))
    return tuple(ranked[:CANDIDATES])


def balanced_gaps(
    sentences: Sequence[str],
    candidates: Sequence[str],
    each: int,
    is_known: Callable[[str], bool] = lambda sentence: False,
) -> list[Gap]:
    """Return at most `each` gaps per candidate, equally many, from sentences in random order.

    `is_known` returns whether a sentence in lower case must not be used. No sentence is used twice.
    """
    gaps: list[Gap] = []
    left = Counter(dict.fromkeys(range(len(candidates)), each))
    seen: set[str] = set()
    numbers = {word: number for number, word in enumerate(candidates)}
    order = permuted(np.arange(len(sentences)), len(sentences), stream(Purpose.DEMO_SENTENCES))
    for at in order.tolist():
        sentence = sentences[at]
        place = _place(sentence, numbers)
        if place is None:
            continue
        words, small = sentence.split(" "), sentence.lower()
        word = numbers[words[place]]
        if not left[word] or small in seen or is_known(small):
            continue
        seen.add(small)
        left[word] -= 1
        gaps.append(_gap(words, place, word, at))
        if not left.total():
            break
    return _as_many_each(gaps, range(len(candidates)))


def _as_many_each(gaps: list[Gap], words: Iterable[int]) -> list[Gap]:
    counts = Counter(gap.word for gap in gaps)
    left = Counter(dict.fromkeys(words, min((counts[word] for word in words), default=0)))
    kept = []
    for gap in gaps:
        left[gap.word] -= 1
        if left[gap.word] >= 0:
            kept.append(gap)
    return kept


def _sentences(modules: Iterable[ModuleText]) -> list[str]:
    return [
        sentence
        for module in modules
        for paragraph in module.paragraphs
        for sentence in split_sentences(paragraph)
    ]


def _place(sentence: str, candidates: Mapping[str, int]) -> int | None:
    """Return the position of the only candidate in a sentence of prose, None if there is none.

    None, too, if a capital or punctuation touches it: "To", "(of".
    """
    words = sentence.split(" ")
    # one more than the others: the candidate itself
    if not _FEWEST < len(words) <= _MOST + 1:
        return None
    places = [place for place, word in enumerate(words) if word in candidates]
    if len(places) != 1 or places[0] == 0 or not _is_prose(sentence):
        return None
    tokens = TOKEN.findall(sentence.lower())
    return places[0] if sum(token in candidates for token in tokens) == 1 else None


def _gap(words: list[str], place: int, word: int, key: int) -> Gap:
    others = [at for at in range(1, len(words) - 1) if at != place]
    draws = stream(Purpose.DEMO_PLACES, key)
    drawn = permuted(np.arange(PLACES - 1), len(others), draws).tolist()
    places = sorted([place, *(others[at] for at in drawn)])
    return Gap(
        words=(*words[:place], *words[place + 1 :]),
        word=word,
        places=tuple(places),
        place=places.index(place),
    )


def _is_prose(sentence: str) -> bool:
    if not sentence[0].isupper() or sentence[-1] not in ".!?" or not _CODE.isdisjoint(sentence):
        return False
    letters = sum(letter.isalpha() or letter == " " for letter in sentence)
    return letters >= _LETTERS * len(sentence)
