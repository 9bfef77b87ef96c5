"""Heads against coreference (Clark et al. 2019, section 4.3).

Of each mention whose passage has an earlier mention of the same thing, the head word is asked: to
which of the head words of earlier mentions does it attend most, and is that a mention of the same?
This is compared with choosing the nearest earlier mention, and the nearest one with the same head
word (the nearest at all where there is none).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.heads.attention import scan
from bertsmith.analysis.heads.best_heads import Counts, HeadShares, held_out_share
from bertsmith.analysis.heads.words import SplitWords, split_words, word_attention, word_sums
from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.log import Bar
from bertsmith.network.model import Model
from bertsmith.text.coreference import Kind, MarkedDocument, Mention
from bertsmith.tokens.tokenizer import Tokenizer

ALL = "all"
"""The name under which mentions of all kinds are counted together."""
KINDS: tuple[Kind, ...] = ("pronoun", "proper", "nominal")
_PASSAGES = 64


@dataclass(frozen=True, slots=True)
class Passage:
    """Sentences of a document that are read at once; `mentions` are those that lie in it whole."""

    split: SplitWords
    words: tuple[str, ...]
    mentions: tuple[Mention, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Anaphor:
    """An anaphoric mention: its head word, the head words before it, and which of them are right.

    `candidates` rise.
    """

    word: int
    kind: Kind
    candidates: Counts
    right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreferenceFigures(HeadShares):
    """The accuracy of heads: of `count` mentions the share whose most attended candidate is right.

    `accuracy` is (layers, heads); `nearest` and `same_word` are the shares of the two rules, and
    `candidates` the mean number of candidates.
    """

    name: str
    count: int
    nearest: float
    same_word: float
    candidates: float


def passages(
    documents: Iterable[MarkedDocument], tokenizer: Tokenizer, longest: int
) -> Iterator[Passage | None]:
    """Yield whole sentences of documents, as many at once as fit; None for one that is too long."""
    number = 0
    max_pieces = longest - tokenizer.specials_around(pair=False)
    for document in documents:
        first = begin = used = 0
        for sentence in document.sentences:
            pieces = len(tokenizer.encode_spans(" ".join(sentence.words), specials_in_text=False))
            if used and used + pieces > max_pieces:
                yield _passage(document, tokenizer, (begin, first), number, longest)
                number, begin, used = number + 1, first, 0
            used, first = used + pieces, first + len(sentence.words)
        if used:
            yield _passage(document, tokenizer, (begin, first), number, longest)
            number += 1


def _passage(
    document: MarkedDocument, tokenizer: Tokenizer, span: tuple[int, int], number: int, longest: int
) -> Passage | None:
    begin, end = span
    words = tuple(word for sentence in document.sentences for word in sentence.words)[begin:end]
    split = split_words(tokenizer, words, longest)
    if split is None:
        return None
    mentions = tuple(
        mention._replace(
            begin=mention.begin - begin, end=mention.end - begin, head=mention.head - begin
        )
        for mention in document.mentions
        if begin <= mention.begin and mention.end <= end
    )
    return Passage(split=split, words=words, mentions=mentions, number=number)


def anaphors(passage: Passage) -> Iterator[Anaphor]:
    """Yield the mentions with an earlier one of the same; words without tokens take no part."""
    words_with_tokens = set(passage.split.owner.tolist())
    mentions = sorted(
        (mention for mention in passage.mentions if mention.head in words_with_tokens),
        key=attrgetter("head", "begin", "end"),
    )
    for mention in mentions:
        before = [other for other in mentions if other.head < mention.head]
        right = {other.head for other in before if other.entity == mention.entity}
        if right:
            candidates = sorted({other.head for other in before})
            marks = np.array([word in right for word in candidates])
            yield Anaphor(mention.head, mention.kind, np.array(candidates, np.int64), marks)


class _Counts:
    """Counts of mentions by kind, the first row being all of them."""

    def __init__(self, layers: int, heads: int) -> None:
        rows = 1 + len(KINDS)
        self._hits = np.zeros((rows, 2, layers, heads), np.int64)
        self._words = np.zeros((rows, 2), np.int64)
        self._rules: list[Counter[str]] = [Counter() for _ in range(rows)]

    def add_anaphor(self, passage: Passage, anaphor: Anaphor) -> None:
        """Count a mention, and whether the two rules are right."""
        words = [passage.words[word].casefold() for word in anaphor.candidates]
        same = [n for n, word in enumerate(words) if word == passage.words[anaphor.word].casefold()]
        for row in (0, 1 + KINDS.index(anaphor.kind)):
            self._words[row, passage.number % 2] += 1
            self._rules[row]["nearest"] += int(anaphor.right[-1])
            self._rules[row]["same_word"] += int(anaphor.right[same[-1] if same else -1])
            self._rules[row]["candidates"] += len(words)

    def add_answer(
        self, passage: Passage, anaphor: Anaphor, layer: int, right: NDArray[np.bool_]
    ) -> None:
        """Count for which heads of a layer, (heads,), the most attended candidate is right."""
        for row in (0, 1 + KINDS.index(anaphor.kind)):
            self._hits[row, passage.number % 2, layer - 1] += right

    def figures(self) -> list[CoreferenceFigures]:
        """Return all mentions, and then each kind that there is."""
        results = []
        for name, hits, words, rules in zip(
            (ALL, *KINDS), self._hits, self._words, self._rules, strict=True
        ):
            if not (total := int(words.sum())):
                continue
            results.append(
                CoreferenceFigures(
                    name=name,
                    count=total,
                    accuracy=hits.sum(0) / total,
                    held_out=held_out_share(hits, words),
                    nearest=rules["nearest"] / total,
                    same_word=rules["same_word"] / total,
                    candidates=rules["candidates"] / total,
                )
            )
        return results


def coreference_figures(
    model: Model, results: Iterable[Passage], bar: Bar | None = None
) -> list[CoreferenceFigures]:
    """Return the figures of a model's heads in passages; none without an anaphoric mention."""
    config = model.config.encoder
    counts = _Counts(config.layers, config.heads)
    rest = iter(results)
    while window := list(islice(rest, _PASSAGES)):
        anaphors_of = [list(anaphors(item)) for item in window]
        for passage, own_anaphors in zip(window, anaphors_of, strict=True):
            for item in own_anaphors:
                counts.add_anaphor(passage, item)
        _answer(model, window, anaphors_of, counts)
        if bar is not None:
            bar.advance(len(window))
    return counts.figures()


def _answer(
    model: Model, window: Sequence[Passage], anaphors: Sequence[Sequence[Anaphor]], counts: _Counts
) -> None:
    """Count what the heads find in some passages."""
    splits = [item.split for item in window]
    encoded = EncodedExamples.of(
        [split.ids for split in splits], [split.segments for split in splits]
    )
    for scanned in scan(model, encoded):
        units = scanned.units.tolist()
        sums = word_sums(scanned.block, [splits[unit] for unit in units], scanned.batch.ids.device)
        for layer in scanned.layers:
            words = word_attention(layer.weights, sums).cpu().numpy()
            for row, unit in enumerate(units):
                for item in anaphors[unit]:
                    attended = words[row, :, item.word][:, item.candidates].argmax(-1)
                    counts.add_answer(window[unit], item, layer.layer, item.right[attended])
