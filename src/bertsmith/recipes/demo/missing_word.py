"""The demo's word-order task: which word is missing, and where was it?

The pre-trained model answers with its masked-LM head, without fine-tuning: the candidate, or the
place, with the highest probability at the mask. Two baselines are trained on thousands of gaps
of the training text: the bag of the sentence's other words (TF-IDF + logistic regression), and the
two neighbours of the gap (one-hot + logistic regression, one for each question).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.log import Bar, Table, console, progress, say
from bertsmith.core.printable import printable
from bertsmith.engine.fill_mask import fill_masks
from bertsmith.evaluation.significance import Interval, bootstrap_interval, paired_bootstrap
from bertsmith.network.model import Model
from bertsmith.recipes.demo.gaps import PLACES, TOKEN, Gap, GapTask
from bertsmith.recipes.finetune.baselines import Choosing, linear_answers
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

CHANCE, BAG, NEIGHBOURS, MODEL = (
    "chance",
    "the bag of words",
    "the two neighbours",
    "the model",
)
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
class Asked:
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

    def moral(self) -> str:
        """Return why word order matters here, and whether the model uses it."""
        right = self.right[MODEL][PLACE]
        low = bootstrap_interval(_mean(right), len(right), resamples=_RESAMPLES).low
        percent = f"{100 * right.mean():.1f} %"
        known = (
            f"the model reads them in order and is right for {percent}"
            if low > 1 / PLACES
            else f"the model is right for {percent}, no better than chance: it has not learned "
            "order in this time"
        )
        return (
            "a package has words of its own, which a bag of words counts; here the other words "
            "of the sentence are the same at every place, so that counting them cannot tell one "
            f"place from another; {known}"
        )

    def examples(self) -> list[tuple[str, str, str, str]]:
        """Return a row for the first gap of each outcome: sentence, word, probabilities, right."""
        by_name = {name: right[WORD] == 1 for name, right in self.right.items()}
        model, bag, near = (by_name[name] for name in (MODEL, BAG, NEIGHBOURS))
        outcomes = (
            ("the model alone", model & ~bag & ~near),
            ("all three", model & bag & near),
            ("the neighbours, not the model", near & ~model),
            ("none", ~model & ~bag & ~near),
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
        rival = max((BAG, NEIGHBOURS), key=lambda name: self.right[name][question].mean())
        other = self.right[rival][question]
        compared = paired_bootstrap(_mean(model), _mean(other), len(model), resamples=_RESAMPLES)
        points = 100 * compared.difference
        margin = f"({points:+.1f} points, 95 %: {_range(compared.interval)})"
        if compared.interval.low <= 0 <= compared.interval.high:
            return f"{question}: the model and {rival} are a draw {margin}"
        word = "beats" if points > 0 else "loses to"
        return f"{question}: the model {word} {rival} {margin}"

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
    began = time.perf_counter()
    with progress("the missing word", None) as bar:
        asked = _asked_rivals(task, bar)
        bar.note("the model")
        own = model_answers(task, model, tokenizer)
    return GapOutcome(
        task=task,
        right={name: each.right(task.dev) for name, each in (asked | {MODEL: own}).items()},
        probabilities=own.words,
        seconds=time.perf_counter() - began,
    )


def tell_missing_words(outcome: GapOutcome) -> None:
    """Print the questions, the table, some sentences, and the conclusion."""
    task = outcome.task
    say(
        f"6. the missing word: {len(task.dev)} sentences of held-out documents, each without its "
        f"only one of: {', '.join(task.candidates)}; the model was not fine-tuned, its rivals "
        f"(logistic regression) learned from {len(task.train):,} sentences of the training text"
    )
    for header, rows in ((HEADER, outcome.rows()), (EXAMPLE_HEADER, outcome.examples())):
        table = Table(*header)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for verdict in outcome.verdicts():
        say(verdict)
    say(outcome.moral())


def model_answers(task: GapTask, model: Model, tokenizer: Tokenizer) -> Asked:
    """Return the probabilities of the model's masked-LM head."""
    pieces = [int(tokenizer.encode([word])[0][0]) for word in task.candidates]
    mask = tokenizer.vocabulary[tokenizer.mask_id]
    examples = (
        Example(text=gap.text(place, mask), text_pair=None, label=None, source="demo", line=line)
        for line, gap in enumerate(task.dev, 1)
        for place in range(PLACES)
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
    return Asked(words=probabilities[gaps, places], places=probabilities[gaps, :, words])


def bag_answers(task: GapTask) -> Asked:
    """Return a linear model's probabilities of the words, given the bag of the other words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    counter = TfidfVectorizer(token_pattern=TOKEN.pattern, sublinear_tf=True)
    words = _learned(
        counter.fit_transform([" ".join(gap.words) for gap in task.train]),
        np.array([gap.word for gap in task.train]),
        counter.transform([" ".join(gap.words) for gap in task.dev]),
        len(task.candidates),
    )
    own = words[np.arange(len(task.dev)), [gap.word for gap in task.dev]]
    # the bag is the same at every place, and so is its probability of the word
    return Asked(words=words, places=np.repeat(own[:, None], PLACES, axis=1))


def neighbour_answers(task: GapTask) -> Asked:
    """Return linear models' probabilities, given the tokens next to the gap or to a place."""
    words = _one_hot(
        [_sides(gap, gap.place) for gap in task.train],
        np.array([gap.word for gap in task.train]),
        [_sides(gap, gap.place) for gap in task.dev],
        len(task.candidates),
    )
    known, asked = (
        [_sides_of_word(gap, place) for gap in gaps for place in range(PLACES)]
        for gaps in (task.train, task.dev)
    )
    true = np.array([int(place == gap.place) for gap in task.train for place in range(PLACES)])
    places = _one_hot(known, true, asked, 2)[:, 1]
    return Asked(words=words, places=places.reshape(len(task.dev), PLACES))


def _asked_rivals(task: GapTask, bar: Bar) -> dict[str, Asked]:
    rivals: dict[str, Callable[[GapTask], Asked]] = {
        BAG: bag_answers,
        NEIGHBOURS: neighbour_answers,
    }
    results = {}
    for name, answers in rivals.items():
        bar.note(name)
        results[name] = answers(task)
    return results


def _sides(gap: Gap, place: int) -> list[str]:
    """Return the tokens before and after a place, marked by their side."""
    at = gap.places[place]
    left = TOKEN.findall(gap.words[at - 1].lower())[-1]
    right = TOKEN.findall(gap.words[at].lower())[0]
    return [f"{left}<", f">{right}"]


def _sides_of_word(gap: Gap, place: int) -> list[str]:
    sides = _sides(gap, place)
    return [*sides, *(f"{gap.word} {side}" for side in sides)]


def _one_hot(
    known: list[list[str]], truths: NDArray[np.int64], asked: list[list[str]], outputs: int
) -> Scores:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(analyzer=list, dtype=np.float64)
    return _learned(counter.fit_transform(known), truths, counter.transform(asked), outputs)


def _learned(known: Any, truths: NDArray[np.int64], asked: Any, outputs: int) -> Scores:  # noqa: ANN401
    choosing = Choosing(folds=1, rows=_ROWS_TO_CHOOSE)
    answers, _ = linear_answers("class", known, truths, asked, outputs, _STRENGTHS, choosing)
    return np.array(answers, np.float64)


def _right(scores: Scores, truths: list[int]) -> Right:
    best = scores == scores.max(1, keepdims=True)
    return np.asarray(best[np.arange(len(truths)), truths] / best.sum(1))


def _mean(right: Right) -> Callable[[NDArray[np.int64]], float]:
    return lambda drawn: float(right[drawn].mean())


def _in_percent(right: Right) -> str:
    interval = bootstrap_interval(_mean(right), len(right), resamples=_RESAMPLES)
    mean = f"{100 * right.mean():.1f}"
    return mean if interval.low == interval.high else f"{mean} ({_range(interval)})"


def _range(interval: Interval) -> str:
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"
