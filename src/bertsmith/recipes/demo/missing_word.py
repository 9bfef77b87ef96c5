"""The demo's word-order task: which word is missing, and where was it?

The pre-trained model answers with its masked-LM head, without fine-tuning: the candidate, or the
place, with the highest probability at the mask. Two baselines are trained on thousands of gaps
of the training text: the bag of the sentence's other words (TF-IDF + logistic regression), and the
two neighbours of the gap (one-hot + logistic regression, one for each question).

A gap is a sentence from which one of four frequent words has been taken. Which of the four was it,
and from which of four places was it taken? The other words of the sentence are the same at every
place, so the second question cannot be answered from the bag of words. The candidates are the four
most frequent of ten English prepositions in the training text, of those that are whole pieces of
the vocabulary. A sentence with a gap has exactly one of the four, once. Gaps for evaluation come
from documents held out of pre-training and do not occur in the training text; each candidate is the
answer equally often.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.log import Bar, console, progress, say, table_of
from bertsmith.core.printable import printable
from bertsmith.core.streams import Purpose, permutation, stream
from bertsmith.engine.language_model.fill_mask import fill_masks
from bertsmith.evaluation.significance import (
    Interval,
    mean_interval,
    mean_of,
    paired_bootstrap,
    share_interval,
)
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.baselines import StrengthSelection, linear_answers
from bertsmith.text.corpus.documentation import ModuleText
from bertsmith.text.corpus.sentences import split_sentences
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

PREPOSITIONS = ("of", "to", "in", "for", "with", "by", "on", "from", "as", "at")
CANDIDATES, PLACES = 4, 4
TRAIN_A_WORD, DEV_A_WORD = 1000, 150
TOKEN = re.compile(r"\w+|[^\w\s]")

_MIN_WORDS, _MAX_WORDS = 6, 30
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

    def text(self, position: int, filling: str) -> str:
        """Return the sentence with a text inserted at one of its places."""
        at = self.places[position]
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
            module
            for module, is_held_out in zip(modules, held_out, strict=True)
            if is_held_out == wanted
        )
        for wanted in (False, True)
    )
    candidates = choose_candidates(train, tokenizer)
    training_sentences = {sentence.lower() for sentence in train}
    task = GapTask(
        candidates=candidates,
        train=balanced_gaps(train, candidates, TRAIN_A_WORD),
        dev=balanced_gaps(dev, candidates, DEV_A_WORD, training_sentences.__contains__),
    )
    return task if len(candidates) == CANDIDATES and task.train and task.dev else None


def choose_candidates(sentences: Sequence[str], tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the most frequent prepositions that are one piece each, in order of frequency."""
    single_pieces = {word for word in PREPOSITIONS if len(tokenizer.encode([word])[0]) == 1}
    # a part of a long text is representative
    some = sentences[:: max(1, len(sentences) // _COUNTED)]
    counts = Counter(chain.from_iterable(map(str.split, some)))
    ranked = sorted(single_pieces & counts.keys(), key=lambda word: (-counts[word], word))
    return tuple(ranked[:CANDIDATES])


def balanced_gaps(
    sentences: Sequence[str],
    candidates: Sequence[str],
    per_candidate: int,
    is_known: Callable[[str], bool] = lambda sentence: False,
) -> list[Gap]:
    """Return up to `per_candidate` gaps for each candidate, equally many, from shuffled sentences.

    `is_known` returns whether a sentence in lower case must not be used. No sentence is used twice.
    """
    gaps: list[Gap] = []
    remaining = Counter(dict.fromkeys(range(len(candidates)), per_candidate))
    seen: set[str] = set()
    numbers = {word: number for number, word in enumerate(candidates)}
    order = permutation(len(sentences), stream(Purpose.DEMO_SENTENCES))
    for at in order.tolist():
        sentence = sentences[at]
        position = _candidate_position(sentence, numbers)
        if position is None:
            continue
        words, small = sentence.split(" "), sentence.lower()
        word = numbers[words[position]]
        if not remaining[word] or small in seen or is_known(small):
            continue
        seen.add(small)
        remaining[word] -= 1
        gaps.append(_gap(words, position, word, at))
        if not remaining.total():
            break
    return _balance(gaps, range(len(candidates)))


def _balance(gaps: list[Gap], words: Iterable[int]) -> list[Gap]:
    counts = Counter(gap.word for gap in gaps)
    remaining = Counter(dict.fromkeys(words, min((counts[word] for word in words), default=0)))
    balanced = []
    for gap in gaps:
        remaining[gap.word] -= 1
        if remaining[gap.word] >= 0:
            balanced.append(gap)
    return balanced


def _sentences(modules: Iterable[ModuleText]) -> list[str]:
    return [
        sentence
        for module in modules
        for paragraph in module.paragraphs
        for sentence in split_sentences(paragraph)
    ]


def _candidate_position(sentence: str, candidates: Mapping[str, int]) -> int | None:
    """Return the position of the only candidate in a sentence of prose, None if there is none.

    None, too, if a capital or punctuation touches it: "To", "(of".
    """
    words = sentence.split(" ")
    # one more than the others: the candidate itself
    if not _MIN_WORDS < len(words) <= _MAX_WORDS + 1:
        return None
    positions = [position for position, word in enumerate(words) if word in candidates]
    if len(positions) != 1 or positions[0] == 0 or not _is_prose(sentence):
        return None
    tokens = TOKEN.findall(sentence.lower())
    return positions[0] if sum(token in candidates for token in tokens) == 1 else None


def _gap(words: list[str], position: int, word: int, key: int) -> Gap:
    candidates = [at for at in range(1, len(words) - 1) if at != position]
    draws = stream(Purpose.DEMO_PLACES, key)
    chosen = permutation(len(candidates), draws)[: PLACES - 1].tolist()
    places = sorted([position, *(candidates[at] for at in chosen)])
    return Gap(
        words=(*words[:position], *words[position + 1 :]),
        word=word,
        places=tuple(places),
        place=places.index(position),
    )


def _is_prose(sentence: str) -> bool:
    if not sentence[0].isupper() or sentence[-1] not in ".!?" or not _CODE.isdisjoint(sentence):
        return False
    letters = sum(letter.isalpha() or letter == " " for letter in sentence)
    return letters >= _LETTERS * len(sentence)


CHANCE, BAG, NEIGHBOURS, MODEL = ("chance", "the bag of words", "the two neighbours", "the model")
WORD, PLACE = "which word", "which place"
QUESTIONS = (WORD, PLACE)
HEADER = ("", "which of 4 words? %", "where, of 4 places? %")
EXAMPLE_HEADER = ("sentence", "missing", "the model's probabilities", "right")

_STRENGTHS = (1.0, 4.0)
_RESAMPLES = 2000
_ROWS_TO_CHOOSE = 1500
_SHOWN_CHARACTERS = 120

Scores = NDArray[np.float64]
Right = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GapScores:
    """The scores of a method: of the words at the true place, of the places for the true word.

    Both are (gaps, 4).
    """

    words: Scores
    places: Scores

    def right(self, gaps: Sequence[Gap]) -> dict[str, Right]:
        """Return the correctness of each answer (gaps,): 1/n for a tie of n with the truth."""
        return {
            WORD: _right(self.words, [gap.word for gap in gaps]),
            PLACE: _right(self.places, [gap.place for gap in gaps]),
        }


@dataclass(frozen=True, kw_only=True)
class GapOutcome:
    """Correctness of each method on each gap (gaps,), by method and question."""

    task: GapTask
    right: dict[str, dict[str, Right]]
    probabilities: Scores
    """Probability of each candidate at the gap (gaps, 4), over the whole vocabulary."""
    seconds: float

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row per method: accuracy and its interval for each question, in per cent."""
        chance = (CHANCE, f"{100 / len(self.task.candidates):.1f}", f"{100 / PLACES:.1f}")
        return [
            chance,
            *(
                (name, *(_in_percent(right[question]) for question in QUESTIONS))
                for name, right in self.right.items()
            ),
        ]

    def verdicts(self) -> list[str]:
        """Return a sentence on each question: the model compared with the better baseline."""
        return [self._verdict(question) for question in QUESTIONS]

    def conclusion(self) -> str:
        """Return why word order matters here, and whether the model uses it."""
        right = self.right[MODEL][PLACE]
        low = _interval(right).low
        percent = f"{100 * right.mean():.1f} %"
        remark = (
            f"the model reads them in order and is right for {percent}"
            if low > 1 / PLACES
            else f"the model is right for {percent}, no better than chance: it has not learned "
            "order in this time"
        )
        return (
            "a package has words of its own, which a bag of words counts; here the other words "
            "of the sentence are the same at every place, so that counting them cannot tell one "
            f"place from another; {remark}"
        )

    def examples(self) -> list[tuple[str, str, str, str]]:
        """Return a row for the first gap of each outcome: sentence, word, probabilities, right."""
        by_name = {name: right[WORD] == 1 for name, right in self.right.items()}
        model, bag, others = (by_name[name] for name in (MODEL, BAG, NEIGHBOURS))
        outcomes = (
            ("the model alone", model & ~bag & ~others),
            ("all three", model & bag & others),
            ("the neighbours, not the model", others & ~model),
            ("none", ~model & ~bag & ~others),
        )
        return [
            self._example(int(np.argmax(chosen)), outcome)
            for outcome, chosen in outcomes
            if chosen.any()
        ][:3]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        figures: dict[str, Any] = {
            "candidates": list(self.task.candidates),
            "train": len(self.task.train),
            "dev": len(self.task.dev),
            "seconds": round(self.seconds, 1),
        }
        for name, right in self.right.items():
            figures[name] = {question: float(right[question].mean()) for question in QUESTIONS}
        return figures

    def _verdict(self, question: str) -> str:
        model = self.right[MODEL][question]
        baseline = max((BAG, NEIGHBOURS), key=lambda name: self.right[name][question].mean())
        other = self.right[baseline][question]
        compared = paired_bootstrap(
            mean_of(model), mean_of(other), len(model), resamples=_RESAMPLES
        )
        points = 100 * compared.difference
        interval = share_interval(compared.interval, len(model), lowest=-1.0)
        margin = f"({points:+z.1f} points, 95 %: {_range(interval)})"
        if interval.low <= 0 <= interval.high:
            return f"{question}: the model and {baseline} are a draw {margin}"
        word = "beats" if points > 0 else "loses to"
        return f"{question}: the model {word} {baseline} {margin}"

    def _example(self, number: int, outcome: str) -> tuple[str, str, str, str]:
        gap = self.task.dev[number]
        shares = ", ".join(
            f"{word} {100 * share:.1f} %"
            for word, share in zip(
                self.task.candidates, self.probabilities[number].tolist(), strict=True
            )
        )
        text = printable(gap.text(gap.place, "___"), _SHOWN_CHARACTERS)
        return text, self.task.candidates[gap.word], shares, outcome


def find_missing_words(task: GapTask, model: Model, tokenizer: Tokenizer) -> GapOutcome:
    """Answer both questions of each gap with the model and with the baselines."""
    started = time.perf_counter()
    with progress("the missing word", None) as bar:
        scores = _baseline_scores(task, bar)
        bar.note("the model")
        model_scores = model_answers(task, model, tokenizer)
    return GapOutcome(
        task=task,
        right={
            name: value.right(task.dev) for name, value in (scores | {MODEL: model_scores}).items()
        },
        probabilities=model_scores.words,
        seconds=time.perf_counter() - started,
    )


def print_missing_words(outcome: GapOutcome) -> None:
    """Print the questions, the table, some sentences, and the conclusion."""
    task = outcome.task
    say(
        f"6. the missing word: {len(task.dev)} sentences of held-out documents, each without its "
        f"only one of: {', '.join(task.candidates)}; the model was not fine-tuned, its rivals "
        f"(logistic regression) learned from {len(task.train):,} sentences of the training text"
    )
    console.print(table_of(HEADER, outcome.rows()))
    console.print(table_of(EXAMPLE_HEADER, outcome.examples()))
    for verdict in outcome.verdicts():
        say(verdict)
    say(outcome.conclusion())


def model_answers(task: GapTask, model: Model, tokenizer: Tokenizer) -> GapScores:
    """Return the probabilities of the model's masked-LM head."""
    pieces = [int(tokenizer.encode([word])[0][0]) for word in task.candidates]
    mask = tokenizer.vocabulary[tokenizer.mask_id]
    examples = (
        Example(text=gap.text(position, mask), text_pair=None, label=None, source="demo", line=line)
        for line, gap in enumerate(task.dev, 1)
        for position in range(PLACES)
    )
    probabilities = np.array(
        [
            [filling.probability for filling in filled[0]]
            for filled in fill_masks(model, tokenizer, examples, among=pieces)
        ]
    ).reshape(len(task.dev), PLACES, len(pieces))
    gaps = np.arange(len(task.dev))
    words, places = (
        np.array([getattr(gap, name) for gap in task.dev]) for name in ("word", "place")
    )
    return GapScores(words=probabilities[gaps, places], places=probabilities[gaps, :, words])


def bag_answers(task: GapTask) -> GapScores:
    """Return a linear model's probabilities of the words, given the bag of the other words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    counter = TfidfVectorizer(token_pattern=TOKEN.pattern, sublinear_tf=True)
    words = _learned(
        counter.fit_transform([" ".join(gap.words) for gap in task.train]),
        np.array([gap.word for gap in task.train]),
        counter.transform([" ".join(gap.words) for gap in task.dev]),
        len(task.candidates),
    )
    true_word_scores = words[np.arange(len(task.dev)), [gap.word for gap in task.dev]]
    # the bag is the same at every place, and so is its probability of the word
    return GapScores(words=words, places=np.repeat(true_word_scores[:, None], PLACES, axis=1))


def neighbour_answers(task: GapTask) -> GapScores:
    """Return linear models' probabilities, given the tokens next to the gap or to a place."""
    words = _one_hot(
        [_sides(gap, gap.place) for gap in task.train],
        np.array([gap.word for gap in task.train]),
        [_sides(gap, gap.place) for gap in task.dev],
        len(task.candidates),
    )
    train_tokens, dev_tokens = (
        [_sides_of_word(gap, position) for gap in gaps for position in range(PLACES)]
        for gaps in (task.train, task.dev)
    )
    true = np.array(
        [int(position == gap.place) for gap in task.train for position in range(PLACES)]
    )
    places = _one_hot(train_tokens, true, dev_tokens, 2)[:, 1]
    return GapScores(words=words, places=places.reshape(len(task.dev), PLACES))


def _baseline_scores(task: GapTask, bar: Bar) -> dict[str, GapScores]:
    baselines: dict[str, Callable[[GapTask], GapScores]] = {
        BAG: bag_answers,
        NEIGHBOURS: neighbour_answers,
    }
    results = {}
    for name, answers in baselines.items():
        bar.note(name)
        results[name] = answers(task)
    return results


def _sides(gap: Gap, place: int) -> list[str]:
    """Return the tokens before and after a place, marked by their side."""
    position = gap.places[place]
    before = TOKEN.findall(gap.words[position - 1].lower())[-1]
    right = TOKEN.findall(gap.words[position].lower())[0]
    return [f"{before}<", f">{right}"]


def _sides_of_word(gap: Gap, position: int) -> list[str]:
    sides = _sides(gap, position)
    return [*sides, *(f"{gap.word} {side}" for side in sides)]


def _one_hot(
    train: list[list[str]], truths: NDArray[np.int64], dev: list[list[str]], outputs: int
) -> Scores:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(analyzer=list, dtype=np.float64)
    return _learned(counter.fit_transform(train), truths, counter.transform(dev), outputs)


def _learned(train: Any, truths: NDArray[np.int64], dev: Any, outputs: int) -> Scores:  # noqa: ANN401
    choosing = StrengthSelection(folds=1, rows=_ROWS_TO_CHOOSE)
    answers, _ = linear_answers("class", train, truths, dev, outputs, _STRENGTHS, choosing)
    return np.array(answers, np.float64)


def _right(scores: Scores, truths: list[int]) -> Right:
    best = scores == scores.max(1, keepdims=True)
    return np.asarray(best[np.arange(len(truths)), truths] / best.sum(1))


def _interval(right: Right) -> Interval:
    return share_interval(mean_interval(right, resamples=_RESAMPLES), len(right))


def _in_percent(right: Right) -> str:
    return f"{100 * right.mean():.1f} ({_range(_interval(right))})"


def _range(interval: Interval) -> str:
    return f"{100 * interval.low:z.1f} to {100 * interval.high:z.1f}"
