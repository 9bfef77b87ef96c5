"""Thresholds and alignment against independent references."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from scipy.special import softmax
from sklearn.metrics import accuracy_score, f1_score
from sklearn.utils.class_weight import compute_class_weight

from bertsmith.batches.examples import encode_examples, pack_examples
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.evaluation.metrics import score_label
from bertsmith.evaluation.significance import Clusters
from bertsmith.network.config import Fit
from bertsmith.objectives.tasks import MultiLabel, Regress, Tag
from bertsmith.recipes.finetune.config import FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, check_task, prepare
from bertsmith.recipes.finetune.recipe import truncation_note
from bertsmith.recipes.glue import settings_of
from bertsmith.tasks.choice import CHOICE
from bertsmith.tasks.classify import CLASSIFY, class_measuring
from bertsmith.tasks.config import LabelLoss
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.rank import RANK
from bertsmith.tasks.regression import REGRESSION
from bertsmith.tasks.rows import task_named
from bertsmith.tasks.span import (
    SPAN,
    SpanAnswer,
    best_threshold,
    encode_questions,
    kept_threshold,
    with_threshold,
)
from bertsmith.tasks.span import Answer as SpanPlace
from bertsmith.tasks.tag import TAG, TagAnswer, raw_text
from bertsmith.tasks.task import UNTUNED, ReadingLimits, Task, score_answers
from bertsmith.tasks.uncertainty import clusters_note, interval_of, score_of_resamples
from bertsmith.tasks.word_windows import encode_text, encode_words
from bertsmith.text.examples.formats.choices import Choice
from bertsmith.text.examples.formats.squad import Answer, Question
from bertsmith.text.examples.glue import TASKS as GLUE_TASKS
from bertsmith.text.examples.reading import Example
from bertsmith.text.examples.tagged import Entity, Tagged, joined, words_of
from bertsmith.tokens.added import AddedToken, AddedTokens
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe import ByteRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.modern import ModernRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bounds import metric
from evaluation.official import squad_v1, squad_v2

WORDS = (*(f"word{n}" for n in range(30)), "good", "bad")
TOKENIZER = Tokenizer((*SPECIALS, *WORDS), BasicRules(lowercase=True))


@pytest.mark.parametrize("impossible", [False, True])
def test_answers_without_words_count_as_in_the_official_scripts(impossible: bool) -> None:
    texts = ["the", "cat", "a cat", "red cat", "an"]
    context = " ".join(texts)
    rows, answers, said = [], [], {}
    for number, (golds, found) in enumerate(
        itertools.product([["the"], ["the", "cat"], ["an", "the"], ["red cat"], []], texts)
    ):
        if not golds and not impossible:
            continue
        places = tuple(Answer(gold, context.index(gold)) for gold in golds)
        rows.append(
            Question(
                id=f"q{number}", question="q", context=context, answers=places,
                impossible=not golds, plausible=(), title="", source="m", line=1,
            )
        )  # fmt: skip
        said[f"q{number}"] = found
        answers.append(SpanAnswer((SpanPlace(found, 0, len(found), 1.0),), -1.0))
    right = {row.id: [answer.text for answer in row.answers] for row in rows}
    exact, f1 = SPAN.measuring.evidence(rows, answers, ())[:, :2].mean(0) * 100
    official = squad_v2(right, said) if impossible else squad_v1(right, said)
    assert exact == pytest.approx(official["exact" if impossible else "exact_match"])
    assert f1 == pytest.approx(official["f1"])


@pytest.mark.parametrize("seed", range(20))
def test_the_threshold_is_that_of_the_official_script(seed: int) -> None:
    random = np.random.default_rng(seed)
    answers: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    doubts: dict[str, float] = {}
    rows = []
    for number in range(60):
        name, possible = f"q{number}", bool(random.random() < 0.6)
        right = bool(random.random() < 0.7)
        doubt = float(random.normal(-1 if possible else 1))
        answers[name] = ["red cat"] if possible else []
        said[name] = "red cat" if right else "red dog"
        doubts[name] = doubt
        exact = float(possible and right)
        rows.append((exact, exact if right else 0.5 * possible, doubt, float(possible)))
    evidence = np.array(rows)
    official = squad_v2(answers, said, doubts)
    threshold = best_threshold(evidence)
    assert threshold == pytest.approx(official["best_f1_thresh"])
    exact, f1 = 100 * with_threshold(evidence, threshold).mean(0)
    assert f1 == pytest.approx(official["best_f1"])
    applied = squad_v2(answers, said, doubts, threshold)
    assert (exact, f1) == (pytest.approx(applied["exact"]), pytest.approx(applied["f1"]))


@pytest.mark.parametrize("seed", range(20))
def test_the_threshold_that_is_kept_decides_as_the_best_and_is_no_doubt(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.integers(1, 30))
    doubts = random.choice([-3.0, -0.5, 0.0, 0.25, 2.0, 1e9], rows)
    evidence = np.column_stack([random.random((rows, 2)), doubts, random.integers(0, 2, rows)])
    best, kept = best_threshold(evidence), kept_threshold(evidence)
    assert np.array_equal(doubts > best, doubts > kept)
    assert np.abs(doubts - kept).min() > 1e-3


@pytest.mark.parametrize("seed", range(20))
def test_no_threshold_is_better_where_doubts_are_equal(seed: int) -> None:
    """The official script answers some of those that are equally doubtful, which nobody can do."""
    random = np.random.default_rng(100 + seed)
    rows = int(random.integers(2, 12))
    possible = random.random(rows) < 0.5
    f1 = possible * random.random(rows)
    evidence = np.column_stack([f1 == 1, f1, random.choice([-1.0, 0.0, 3.0], rows), possible])
    thresholds = (-2.0, -1.0, 0.0, 3.0)
    most = max(float(with_threshold(evidence, one)[:, 1].mean()) for one in thresholds)
    found = with_threshold(evidence, best_threshold(evidence))[:, 1].mean()
    assert found == pytest.approx(most)


def test_the_threshold_that_is_kept_lies_midway_between_two_doubts() -> None:
    """Close to a doubt, the products of bf16 would decide whether its question is answered."""
    evidence = np.array([(1, 1, -24, 1), (1, 1, -26, 1), (0, 0, 20, 0), (0, 0, 22, 0)], float)
    assert best_threshold(evidence) == -24
    assert kept_threshold(evidence) == -2
    # a context without any tokens has no answer, and says nothing about others
    evidence[2:, 2] = 1e9
    assert -24 < kept_threshold(evidence) < -23


def test_where_silence_is_best_the_threshold_is_below_every_doubt() -> None:
    # answered with much confidence, and nothing was to be answered
    evidence = np.array([(0, 0, -3, 0), (0, 0, -1, 0), (0, 0, 2, 0), (1, 1, -0.5, 1)], float)
    answers = {"a": [], "b": [], "c": [], "d": ["cat"]}
    said = {"a": "cat", "b": "dog", "c": "cow", "d": "cat"}
    doubts = {"a": -3.0, "b": -1.0, "c": 2.0, "d": -0.5}
    official = squad_v2(answers, said, doubts)
    threshold = best_threshold(evidence)
    assert 100 * with_threshold(evidence, threshold)[:, 1].mean() == official["best_f1"] == 75
    assert squad_v2(answers, said, doubts, threshold)["f1"] == 75
    # as there, 0 where that will do
    assert best_threshold(evidence[2:3]) == official["best_f1_thresh"] == 0
    # of two that are as good it is the lower one, that of silence too
    assert best_threshold(np.array([(0, 0, -1, 0), (1, 1, 2, 1)], float)) < -1


def _modern() -> Tokenizer:
    """A vocabulary of ModernBERT's kind."""
    learned = learn_byte_bpe(["the old man and the sea"] * 4, size=290)
    assert isinstance(learned.rules, ByteRules)
    pieces = learned.vocabulary[5:]
    tokens = tuple(AddedToken(piece=each, special=True, normalized=False) for each in SPECIALS)
    added = AddedTokens(tokens=tokens, learned=len(pieces))
    rules = ModernRules(merges=learned.rules.merges, added=added)
    return Tokenizer((*pieces, *SPECIALS), rules)


ZEAL = Question(
    id="q", question="who", context="the old zeal", answers=(), impossible=True, plausible=(),
    title="", source="m", line=1,
)  # fmt: skip


@pytest.mark.parametrize("kind", ["albert", "modernbert"])
def test_an_answer_has_no_blanks_around_it(kind: str) -> None:
    """ALBERT's pieces may be a blank alone, those of ModernBERT begin with one."""
    albert = kind == "albert"
    made = learn_unigram(["the old man and the sea zq"] * 4, size=40) if albert else _modern()
    row = ZEAL
    encoded = encode_questions(made, [row], ReadingLimits(longest=40))
    (windows,) = encoded.sidecar
    logits = np.zeros((len(encoded.ids[0]), 2), np.float32)
    pieces = [made.vocabulary[number] for number in windows.context.ids]
    old = next(number for number, piece in enumerate(pieces) if piece.endswith("old"))
    logits[windows.offset + old, 0] = 9
    # the piece after it in ALBERT's is the blank before a rare word
    logits[windows.offset + old + albert, 1] = 9
    best = SPAN.answers.decode(row, windows, [logits], ()).best
    assert (best[0].text, best[0].start, best[0].end) == ("old", 4, 7)
    assert all(one.text == row.context[one.start : one.end].strip() for one in best)
    assert all(one.text for one in best)


def test_the_doubt_is_about_the_best_answer_that_is_no_blank() -> None:
    made = learn_unigram(["the old man and the sea zq"] * 4, size=40)
    row = ZEAL
    encoded = encode_questions(made, [row], ReadingLimits(longest=40))
    (windows,) = encoded.sidecar
    starts, ends = windows.context.starts, windows.context.ends
    blank = next(n for n in range(1, len(starts)) if not row.context[starts[n] : ends[n]].strip())
    logits = np.zeros((len(encoded.ids[0]), 2), np.float32)
    # alone it has 18, with a word before or after it 9
    logits[windows.offset + blank] = 9
    answer = SPAN.answers.decode(row, windows, [logits], ())
    assert answer.text.strip()
    assert answer.doubt == -9


def test_the_doubt_takes_the_least_score_of_no_answer_among_the_windows() -> None:
    """As in the original code: [CLS] as beginning and as end, in the window that gives it least."""
    row = replace(ZEAL, context=" ".join(f"word{n}" for n in range(30)))
    encoded = encode_questions(TOKENIZER, [row], ReadingLimits(longest=24))
    (windows,) = encoded.sidecar
    random = np.random.default_rng(5)
    logits = [random.normal(size=(len(ids), 2)).astype(np.float32) for ids in encoded.ids]
    assert len(logits) == 2
    first, second = [(3.0, -1.0), (1.5, 2.5)]
    for none in ((first, second), (second, first)):
        best = -np.inf
        for window, scores, own in zip(logits, none, windows.own, strict=True):
            window[0] = scores
            inner = window[windows.offset : windows.offset + len(own)].astype(float)
            sums = inner[:, None, 0] + inner[None, :, 1]
            in_order = np.triu(np.ones(sums.shape, bool))
            best = max(best, sums[own[:, None] & in_order].max())
        doubt = SPAN.answers.decode(row, windows, logits, ()).doubt
        assert doubt == pytest.approx(2 - best, abs=1e-6)


def test_of_two_places_of_a_text_the_better_one_is_the_answer() -> None:
    row = replace(ZEAL, context="word1 word2 word1")
    encoded = encode_questions(TOKENIZER, [row], ReadingLimits(longest=24))
    (windows,) = encoded.sidecar
    logits = np.zeros((len(encoded.ids[0]), 2), np.float32)
    logits[windows.offset], logits[windows.offset + 2] = 6, 7
    best = SPAN.answers.decode(row, windows, [logits], ()).best
    assert (best[0].text, best[0].start, best[0].end) == ("word1", 12, 17)
    assert [one.text for one in best].count("word1") == 1
    assert best[0].probability == max(one.probability for one in best)


def test_an_answer_ends_after_the_marks_on_its_last_letter() -> None:
    """Marks that the tokenizer drops were cut off: decomposed, "word1" with an accent lost it."""
    accented = "word1\u0301\u0323"
    # neither does it go on with what else the tokenizer drops
    for context in (f"word0 {accented} word2", f"word0 {accented}", f"word0 {accented}\u200b"):
        row = Question(
            id="q", question="word3", context=context, answers=(), impossible=True,
            plausible=(), title="", source="m", line=1,
        )  # fmt: skip
        encoded = encode_questions(TOKENIZER, [row], ReadingLimits(longest=24))
        (windows,) = encoded.sidecar
        logits = np.zeros((len(encoded.ids[0]), 2), np.float32)
        logits[windows.offset + 1] = 9
        best = SPAN.answers.decode(row, windows, [logits], ()).best[0]
        assert (best.text, best.start, best.end) == (accented, 6, 13)


def test_the_probability_of_an_answer_is_its_share_among_the_best() -> None:
    words = ["word1", "word2", "word3", "word4"]
    row = replace(ZEAL, context=" ".join(words))
    encoded = encode_questions(TOKENIZER, [row], ReadingLimits(longest=24))
    (windows,) = encoded.sidecar
    logits = np.random.default_rng(3).normal(size=(len(encoded.ids[0]), 2)).astype(np.float32)
    inner = logits[windows.offset :].astype(float)
    spans = [(first, last) for first in range(4) for last in range(first, 4)]
    shares = softmax([inner[first, 0] + inner[last, 1] for first, last in spans])
    best = SPAN.answers.decode(row, windows, [logits], ()).best
    found = {answer.text: answer.probability for answer in best}
    expected = [" ".join(words[first : last + 1]) for first, last in spans]
    assert found == pytest.approx(dict(zip(expected, shares.tolist(), strict=True)))
    assert best[0].probability == max(found.values())


def test_the_best_of_all_windows_are_twenty() -> None:
    """Each window has as many, and the probability of an answer is its share among the best."""
    row = replace(ZEAL, context=" ".join(f"word{n}" for n in range(30)))
    encoded = encode_questions(TOKENIZER, [row], ReadingLimits(longest=24))
    (windows,) = encoded.sidecar
    assert len(windows.begins) > 1
    random = np.random.default_rng(3)
    logits = [random.normal(size=(len(ids), 2)).astype(np.float32) for ids in encoded.ids]
    best = SPAN.answers.decode(row, windows, logits, ()).best
    assert len(best) == 20
    assert sum(answer.probability for answer in best) == pytest.approx(1)


def test_a_sentence_is_right_with_the_true_entities_or_with_all_words() -> None:
    right = TAG.measuring.right
    assert right is not None
    entities = [(1, 1, 1, 7, 6), (1, 1, 0, 7, 7), (0, 0, 0, 7, 7), (0, 1, 0, 7, 7)]
    assert right(np.array(entities, float), UNTUNED).tolist() == [True, False, True, False]
    words = [(0, 0, 0, 7, 7), (0, 0, 0, 7, 6)]
    assert right(np.array(words, float), UNTUNED).tolist() == [True, False]


@pytest.mark.parametrize(("longest", "least"), [(8, 12), (11, 12)])
def test_windows_too_small_for_a_question_are_refused(longest: int, least: int) -> None:
    row = Question(
        id="q", question="word0 " * 9, context="word1 " * 30, answers=(), impossible=True,
        plausible=(), title="", source="m", line=1,
    )  # fmt: skip
    with pytest.raises(ConfigError, match=rf"{longest} tokens .*; .* at least {least} tokens"):
        encode_questions(TOKENIZER, [row], ReadingLimits(longest=longest))
    whole = encode_questions(TOKENIZER, [row], ReadingLimits(longest=least))
    assert all(len(ids) <= least for ids in whole.ids)


def test_of_a_long_question_64_tokens_are_read_and_windows_share_half_at_most() -> None:
    row = replace(ZEAL, question="word0 " * 70, context="word1 " * 90)
    encoded = encode_questions(TOKENIZER, [row], ReadingLimits(longest=100, stride=90))
    (windows,) = encoded.sidecar
    assert (windows.question, windows.asked) == (70, 64)
    # 33 tokens of the context have room in each window
    assert windows.begins == [0, 17, 34, 51, 57]
    assert {len(ids) for ids in encoded.ids} == {100}


@pytest.mark.parametrize("limits", [{"longest": 7}, {"longest": 20, "stride": -1}])
def test_no_room_and_windows_that_share_less_than_nothing_are_refused(
    limits: dict[str, int],
) -> None:
    with pytest.raises(ConfigError, match="it must be at least"):
        ReadingLimits.from_dict(limits)


def test_texts_in_several_windows_are_counted_once() -> None:
    rows = []
    for length in (3, 90, 4):
        text, spans = joined(["good"] * length)
        tags = ("O",) * length
        rows.append(
            Tagged(text=text, words=spans, tags=tags, entities=(), document=0, source="m", line=1)
        )
    encoded = encode_words(TOKENIZER, rows, ReadingLimits(longest=20))
    assert len(encoded) > 6
    assert (encoded.texts, encoded.long_texts, encoded.cut_texts) == (3, 1, 0)
    question = Question(
        id="q", question="word0 " * 70, context="word1 " * 300, answers=(), impossible=True,
        plausible=(), title="", source="m", line=1,
    )  # fmt: skip
    brief = replace(question, question="word2", context="word1")
    data = LabelledData(
        task=SPAN, labels=(), train=[question, brief], dev=[brief, brief], dev_is_cut=False
    )
    prepared = prepare(data, TOKENIZER, ReadingLimits(longest=128))
    assert truncation_note(prepared) == (
        "1 of 4 texts (25.0 %) was longer than 128 tokens: read in windows; "
        "of 1 question itself only the beginning was read"
    )


def test_rare_tags_weigh_as_much_as_common_ones() -> None:
    text, spans = joined([f"word{n}" for n in range(8)])
    tags = ("O", "O", "O", "B-X", "O", "O", "I-X", "O")
    row = Tagged(text=text, words=spans, tags=tags, entities=(), document=0, source="m", line=1)
    settings = FinetuneSettings(
        label_loss=LabelLoss(class_weights="balanced", label_smoothing=0.25)
    )
    labels = ("B-X", "I-X", "O", "B-Y")
    term = TAG.learning.objective([row, row], labels, settings.label_loss).terms["tag"]
    # scikit-learn's "balanced", for the tags that there are
    numbers = [labels.index(tag) for tag in (*tags, *tags)]
    expected = compute_class_weight("balanced", classes=np.arange(3), y=numbers)
    assert isinstance(term, Tag)
    assert term.weights[:3] == pytest.approx(expected.tolist())
    assert np.mean([term.weights[number] for number in numbers]) == pytest.approx(1)
    assert term.smoothing == 0.25


def test_words_of_which_nothing_is_read_do_not_count() -> None:
    """Not for a sentence, nor for an entity: the tokenizer drops control characters."""
    labels = ("B-X", "I-X", "O")

    def answered(words: Sequence[str]) -> dict[str, Any]:
        text, spans = joined(list(words))
        row = Tagged(
            text=text, words=spans, tags=None, entities=None, document=0, source="m", line=1
        )
        encoded = encode_words(TOKENIZER, [row], ReadingLimits(longest=20))
        assert encoded.positions is not None
        outputs = [np.array([[0.75, 0.0, 0.25], [0.1, 0.4, 0.5], [0.0, 0.125, 0.875]])]
        asked = [output[: len(encoded.positions[0])] for output in outputs]
        answer = TAG.answers.decode(row, encoded.sidecar[0], asked, labels)
        return TAG.answers.record(answer, labels, 1, UNTUNED)

    assert answered(["word1", "word2", "word3"])["probability"] == 0.5
    for dropped in ("\x00\x01", "\u200b", "\ufffd"):
        found = answered([dropped, "word1", dropped, "word2"])
        (entity,) = found["entities"]
        assert (entity["text"], entity["probability"], found["probability"]) == ("word1", 0.75, 0.5)
        assert answered([dropped]) == {"entities": [], "probability": 0.0}


def test_tags_that_are_read_as_they_are_have_entities_to_score() -> None:
    text, spans = joined(["word1", "word2", "word3"])
    tags = ("B-X", "E-X", "S-Y")
    row = Tagged(text=text, words=spans, tags=tags, entities=None, document=0, source="m", line=1)
    labels = ("B-X", "E-X", "O", "S-Y")
    answers = [TagAnswer(row, said, np.ones(3, np.float32)) for said in (tags, ("O", *tags[1:]))]
    evidence = TAG.measuring.evidence([row, row], answers, labels)
    assert evidence.tolist() == [[2, 2, 2, 3, 3], [2, 2, 1, 3, 2]]
    assert TAG.measuring.scores(evidence, labels, UNTUNED)["f1"] == pytest.approx(6 / 8)
    entities = TAG.answers.record(answers[0], labels, 1, UNTUNED)["entities"]
    assert [entity["text"] for entity in entities] == ["word1 word2", "word3"]


def test_a_label_of_all_rows_is_learned_too() -> None:
    rows = [
        Example(text="a", text_pair=None, label=None, labels=labels, source="m", line=1)
        for labels in (("all", "some"), ("all",), ("all",), ("all",))
    ]
    settings = FinetuneSettings(label_loss=LabelLoss(class_weights="balanced"))
    labels = ("all", "some", "none")
    term = MULTI_LABEL.learning.objective(rows, labels, settings.label_loss).terms["classify"]
    assert isinstance(term, MultiLabel)
    assert term.weights == pytest.approx((0.25, 3.0, 4.0))


def test_numbers_are_scored_as_they_stand_and_one_for_all_is_a_failure() -> None:
    rows = [
        Example(text="a", text_pair=None, label=None, number=number, source="m", line=1)
        for number in (1e9 + 1, 1e9 + 2, 1e9 + 4, 3.8)
    ]
    measuring = REGRESSION.measuring
    evidence = measuring.evidence(rows[:3], [1.0, 2.0, 4.0], ("number",))
    assert measuring.scores(evidence, ("number",), UNTUNED) == {
        "pearson": pytest.approx(1), "spearman": pytest.approx(1),
    }  # fmt: skip
    unknown = measuring.evidence(rows[:3], [1.0, float("nan"), 4.0], ("number",))
    assert np.isnan(list(measuring.scores(unknown, ("number",), UNTUNED).values())).all()
    assert measuring.evidence(rows[3:], [0.0], ("number",))[0, 0] == 3.8
    assert RANK.measuring.constant(rows[:3], [0.31, 0.31, 0.31005])
    assert not RANK.measuring.constant(rows[:3], [0.31, 0.3, 0.32])


def test_queries_that_no_score_counts_are_reported() -> None:
    rows = [
        Example(text=query, text_pair="p", label=None, number=n, group=query, source="m", line=1)
        for query, n in (("a", 0.0), ("a", 2.0), ("b", 0.0), ("c", 1.0), ("c", 0.0))
    ]
    scores = RANK.measuring.scores(
        RANK.measuring.evidence(rows, [0.1, 0.9, 0.5, 0.2, 0.7], RANK.labels.fixed), (), UNTUNED
    )
    assert scores["mrr"] == pytest.approx((1 + 1 / 2) / 2)
    assert RANK.present.describe(rows, RANK.labels.fixed) == (
        "3 queries, 2 pairs relevant; scores leave out 1 query without a relevant passage"
    )
    assert RANK.present.describe(rows[:2], RANK.labels.fixed) == "1 query, 1 pair relevant"


def numbered(numbers: Sequence[float]) -> list[Example]:
    """Rows of numbers."""
    return [
        Example(text="a", text_pair=None, label=None, number=number, source="m", line=line)
        for line, number in enumerate(numbers)
    ]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
@pytest.mark.parametrize("days", [0.0, 30.0, -3000.0, 245_900.5])
def test_numbers_vary_by_their_own_range(scale: float, days: float) -> None:
    """Julian days of one year differ by a six-thousandth of their size."""
    random = np.random.default_rng(3)
    truth = scale * (days + random.uniform(0, 365, 40))
    rows, shift = numbered(truth.tolist()), scale * (days + 150)
    measuring = REGRESSION.measuring
    # models answer in float32
    for spread, constant in ((365.0, False), (5.0, False), (0.01, True), (0.0, True)):
        answers = (shift + scale * spread * random.uniform(0, 1, 40)).astype(np.float32)
        assert measuring.constant(rows, answers.tolist()) is constant
    # in float64 before they are standardised
    objective = REGRESSION.learning.objective(rows, ("number",), LabelLoss())
    term = objective.terms["regress"]
    assert isinstance(term, Regress)
    assert (truth - term.mean).std() / term.spread == pytest.approx(1)


def test_numbers_are_shown_and_learned_as_they_stand() -> None:
    random = np.random.default_rng(3)
    days = (2_459_000.5 + np.arange(40)).tolist()
    present = REGRESSION.present
    assert [present.truth(row) for row in numbered([days[1], 3.8, 4, 1e-9])] == [
        "2459001.5", "3.8", "4", "1e-09",
    ]  # fmt: skip
    assert present.describe(numbered(days), ()) == "2459000 to 2459040, on average 2459020"
    assert present.describe(numbered([0.5, 2, 4.25]), ()) == "0.5 to 4.25, on average 2.25"
    stays = [*range(1, 9), -999, 9999, 9999]
    far = present.describe(numbered(stays), ()).partition("; ")[2]
    assert far == "3 are far from the others, such as 9999"
    assert present.describe(numbered([0] * 9 + [1]), ()) == "0 to 1, on average 0.1"
    record = REGRESSION.answers.record(2_459_001.5, ("number",), 5, UNTUNED)
    assert (record["number"], present.prediction(record)) == (2_459_001.5, "2459002")
    record = REGRESSION.answers.record(1.23456789e-8, ("number",), 5, UNTUNED)
    assert (record["number"], present.prediction(record)) == (1.23457e-8, "1.235e-08")
    seconds = numbered((1.7e9 + random.uniform(0, 300, 40)).tolist())
    with pytest.raises(ExampleError, match=r"too little for their size.*subtract 17000000"):
        REGRESSION.labels.names(seconds, ())
    assert REGRESSION.labels.names(numbered(days), ()) == ("number",)


def test_an_interval_is_of_the_threshold_that_the_model_keeps() -> None:
    """Tuned anew for each draw it would lie too high: here no draw could score less than 50 %."""
    random = np.random.default_rng(3)
    possible = np.arange(40) % 2
    evidence = np.stack([possible, possible, random.normal(size=40), possible], 1).astype(float)
    told = (evidence[:, 2] > best_threshold(evidence)).astype(int)
    right = np.where(told, 1 - possible, possible)
    means = [right[random.integers(0, 40, 40)].mean() for _ in range(20_000)]
    low, high = np.quantile(means, [0.025, 0.975])
    clusters = Clusters.alone(40)
    interval = interval_of(SPAN, evidence, (), clusters)
    assert interval.low == pytest.approx(low, abs=0.026)
    assert interval.high == pytest.approx(high, abs=0.026)
    assert interval == interval_of(SPAN, evidence, (), clusters, SPAN.measuring.tune(evidence))


def test_questions_of_one_context_are_drawn_together() -> None:
    """Five questions of each of 30 contexts, of which only the context decides, are 30 rows.

    Drawn one by one, intervals of such questions missed the truth in 10 of 40 cases.
    """
    rows = [
        Question(
            id=f"{number}", question=f"q{number}", context=f"context {number % 30}",
            answers=(Answer("context", 0),), impossible=False, plausible=(), title="", source="m",
            line=1,
        )
        for number in range(150)
    ]  # fmt: skip
    right = np.random.default_rng(0).random(30) < 0.6
    answers = [
        SpanAnswer((SpanPlace("context" if right[number % 30] else "x", 0, 7, 1.0),), -1.0)
        for number in range(150)
    ]
    measured = score_answers(SPAN, rows, answers, ())
    found = interval_of(SPAN, measured.evidence, (), measured.clusters)
    once = interval_of(SPAN, measured.evidence[:30], (), Clusters.alone(30))
    assert [found.low, found.high] == pytest.approx([once.low, once.high], abs=1e-12)
    alone = interval_of(SPAN, measured.evidence, (), Clusters.alone(150))
    assert clusters_note(measured.clusters).endswith("together: 30 groups of 150 rows")
    assert clusters_note(Clusters.alone(150)) == ""
    assert alone.high - alone.low < 0.6 * (found.high - found.low)
    # all right, they are 30 of evidence too
    sure = interval_of(SPAN, np.ones_like(measured.evidence), (), measured.clusters)
    assert sure.low == pytest.approx(0.025 ** (1 / 30))


def test_sentences_of_one_document_are_drawn_together() -> None:
    def sentences(documents: list[int], source: str = "m") -> list[Tagged]:
        text, spans = joined(["word1", "word2"])
        return [
            Tagged(
                text=f"{text}{line}", words=spans, tags=("B-X", "O"), entities=None,
                document=document, source=source, line=line,
            )
            for line, document in enumerate(documents)
        ]  # fmt: skip

    def clusters(rows: list[Tagged]) -> list[int]:
        answers = [TagAnswer(row, ("O", "O"), np.ones(2, np.float32)) for row in rows]
        measured = score_answers(TAG, rows, answers, ("B-X", "O"))
        return list(measured.clusters.numbers)

    assert clusters(sentences([1, 1, 2, 2, 2, 3])) == [0, 0, 1, 1, 1, 2]
    # of files that are not divided, only copies belong together
    undivided = [*sentences([0, 0, 0]), *sentences([0, 0], "n")]
    assert clusters(undivided) == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_an_interval_has_a_width_where_no_example_is_right_or_every_one_is(right: float) -> None:
    """None of twelve leaves room for 26 %: an interval of no width made any baseline certain."""
    evidence = np.tile([right, right, -1.0, 1.0], (12, 1))
    interval = interval_of(SPAN, evidence, (), Clusters.alone(12), UNTUNED, "exact_match")
    assert interval.low <= right <= interval.high
    assert interval.high - interval.low == pytest.approx(0.2646, abs=1e-4)


def test_windows_share_fewer_tokens_than_they_have() -> None:
    assert ReadingLimits(longest=24, stride=23).overlap == 23
    with pytest.raises(ConfigError, match=r"stride is 24; .* below the 24 tokens of a window"):
        ReadingLimits(longest=24, stride=24)


def test_glue_asks_no_accuracy_of_numbers() -> None:
    settings = settings_of(GLUE_TASKS["STS-B"], FinetuneSettings(target_accuracy=0.9))
    check_task(task_named("STS-B"), settings)


@pytest.mark.parametrize("name", ["regression", "rank", "choice", "span", "STS-B"])
def test_weights_and_smoothing_of_classes_are_refused_where_there_are_none(name: str) -> None:
    for settings in (
        FinetuneSettings(label_loss=LabelLoss(class_weights="balanced")),
        FinetuneSettings(label_loss=LabelLoss(label_smoothing=0.1)),
    ):
        with pytest.raises(ConfigError, match=f"and {name} has no classes; leave it out"):
            check_task(task_named(name), settings)
        check_task(task_named(name), settings_of(GLUE_TASKS["STS-B"], settings))
        for other in ("classify", "multi-label", "tag", "RTE"):
            check_task(task_named(other), settings)
        assert settings_of(GLUE_TASKS["RTE"], settings) == settings


def test_a_word_of_which_nothing_is_read_gets_no_tag_where_none_is_for_nothing() -> None:
    """Neither the first part of speech, nor an entity."""
    text, spans = joined(["word1", "\u200b"])
    row = Tagged(text=text, words=spans, tags=None, entities=None, document=0, source="m", line=1)
    encoded = encode_words(TOKENIZER, [row], ReadingLimits(longest=20))

    def answered(labels: tuple[str, ...]) -> dict[str, Any]:
        outputs = [np.array([[0.25, 0.75]])]
        answer = TAG.answers.decode(row, encoded.sidecar[0], outputs, labels)
        return TAG.answers.record(answer, labels, 1, UNTUNED)

    parts = answered(("DET", "NOUN"))
    assert parts["words"] == [{"word": "word1", "tag": "NOUN"}, {"word": "\u200b", "tag": None}]
    assert TAG.present.prediction(parts) == "NOUN -"
    assert list(TAG.present.lines(row, parts, ("DET", "NOUN"), str)) == ["word1/NOUN \u200b"]
    assert [entity["text"] for entity in answered(("B-X", "B-Y"))["entities"]] == ["word1"]
    # it is outside of entities, and right where it is so in a file
    labels = ("B-X", "O")
    answer = TAG.answers.decode(row, encoded.sidecar[0], [np.array([[0.75, 0.25]])], labels)
    tagged = replace(row, tags=labels, entities=(Entity(*spans[0], "X"),))
    assert TAG.measuring.evidence([tagged], [answer], labels).tolist() == [[1, 1, 1, 2, 2]]


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        (("O", "B-X", "I-X"), ["McDonald's"]),
        (("O", "B-X", "E-X"), ["McDonald's"]),
        (("O", "B-X", "L-X"), ["McDonald's"]),
        (("I-X", "O", "I-X"), ["'s", "'s"]),
        (("S-X", "O", "U-X"), ["'s", "'s"]),
        (("B-X", "S-X", "B-X"), ["'s", "McDonald", "'s"]),
        (("B", "I", "I"), ["'s McDonald's"]),
        (("X", "Y", "Z"), ["'/X", "s/X", "McDonald/Y", "'/Z", "s/Z"]),
    ],
)
def test_a_word_inside_a_piece_goes_on_with_the_word_before_it(
    tags: tuple[str, ...], entities: list[str]
) -> None:
    """Byte pairs read 's as one piece, and BIOES tags made two entities of it."""
    tokenizer = learn_byte_bpe(["McDonald's 's"] * 4, size=280)
    row = raw_text(Example(text="'s McDonald's", text_pair=None, label=None, source="m", line=1))
    encoded = encode_words(tokenizer, [row], ReadingLimits(longest=20))
    labels = tuple(dict.fromkeys(tags))
    outputs = [np.array([[0.5 * (label == tag) for label in labels] for tag in tags])]
    answer = TAG.answers.decode(row, encoded.sidecar[0], outputs, labels)
    assert answer.probabilities.tolist() == [0.5] * len(row.words)
    found = TAG.answers.record(answer, labels, 1, UNTUNED)
    if "words" in found:
        assert [f"{word['word']}/{word['tag']}" for word in found["words"]] == entities
    else:
        assert [entity["text"] for entity in found["entities"]] == entities
        assert {entity["probability"] for entity in found["entities"]} == {0.5}


@pytest.mark.parametrize(
    ("labels", "tags", "entities"),
    [
        (("O", "B-X", "I-X"), ("B-X", "I-X"), ["word1 \u200e word2"]),
        (("O", "B-X", "I-X", "E-X"), ("B-X", "E-X"), ["word1 \u200e word2"]),
        (("O", "B", "I"), ("I", "I"), ["word1 \u200e word2"]),
        (("O", "B-X", "I-X"), ("I-X", "B-X"), ["word1", "word2"]),
        (("O", "B-X", "I-X", "I-Y"), ("B-X", "I-Y"), ["word1", "word2"]),
        (("O", "B-X", "E-X"), ("E-X", "E-X"), ["word1", "word2"]),
    ],
)
def test_a_sign_of_which_nothing_is_read_parts_no_entity(
    labels: tuple[str, ...], tags: tuple[str, ...], entities: list[str]
) -> None:
    """Marks of direction and spaces without width stand in the names of many web pages."""
    text, spans = joined(["word1", "\u200e", "word2", "\u200e"])
    row = Tagged(text=text, words=spans, tags=None, entities=None, document=0, source="m", line=1)
    encoded = encode_words(TOKENIZER, [row], ReadingLimits(longest=20))
    outputs = [np.array([[0.5 * (label == tag) for label in labels] for tag in tags])]
    answer = TAG.answers.decode(row, encoded.sidecar[0], outputs, labels)
    found = TAG.answers.record(answer, labels, 1, UNTUNED)
    assert [entity["text"] for entity in found["entities"]] == entities
    assert {entity["probability"] for entity in found["entities"]} == {0.5}


def test_every_word_is_asked_once_at_its_first_piece() -> None:
    words = [w for n in range(9) for w in (f"word{n},", "good", "\u200b", f"(word{n + 9})")]
    # one tag a word: its number is that of the word
    tags = tuple(f"T{number}" for number in range(36))
    text, spans = joined(words)
    row = Tagged(text=text, words=spans, tags=tags, entities=(), document=0, source="m", line=1)
    encoded = encode_words(TOKENIZER, [row, row], ReadingLimits(longest=20))
    words_in = [window for windows in encoded.sidecar for window in windows.words]
    assert encoded.long.all()
    assert encoded.owners is not None
    asked = [(int(r), w) for r, ws in zip(encoded.owners, words_in, strict=True) for w in ws]
    # what the tokenizer drops is asked nowhere
    wanted = [(row, word) for row in range(2) for word in range(36) if words[word] != "\u200b"]
    assert sorted(asked) == wanted
    pieces = TOKENIZER.vocabulary
    first = {word: "[UNK]" if word[0] == "(" else word.strip(",") for word in words}
    assert encoded.positions is not None
    assert max(map(len, encoded.ids)) == 20
    for ids, places, own in zip(encoded.ids, encoded.positions, words_in, strict=True):
        assert len(ids) <= 20
        assert ids[-1] == TOKENIZER.sep_id
        for place, word in zip(places, own, strict=True):
            assert pieces[ids[place]] == first[words[word]]
    learned = TAG.learning.targets([row, row], tags, encoded)
    batch = pack_examples(learned, np.array([1, 0]))
    target = batch.targets["tag"]
    at = [pieces[number] for number in batch.ids[target.positions].tolist()]
    assert at == [first[words[word]] for word in target.labels.tolist()]


@pytest.mark.parametrize("space", ["\f", "\x85", "\n", " \r\n ", "\u3000"])
@pytest.mark.parametrize("kind", ["wordpiece", "byte pairs", "unigram"])
def test_texts_that_are_tagged_are_read_with_single_spaces(space: str, kind: str) -> None:
    """A file's texts keep their white space, which standard input and the server tidy."""
    texts = ["word1 word2 good"] * 9
    tokenizer = {
        "wordpiece": lambda: TOKENIZER,
        "byte pairs": lambda: learn_byte_bpe(texts, size=280),
        "unigram": lambda: learn_unigram(texts, size=40),
    }[kind]()
    plain, written = (
        raw_text(Example(text=text, text_pair=None, label=None, source="m", line=1))
        for text in ("word1 word2 good", f"{space}word1 word2{space}good{space}")
    )
    limits = ReadingLimits(longest=40)
    one, other = (encode_words(tokenizer, [row], limits) for row in (plain, written))
    assert one.ids[0].tolist() == other.ids[0].tolist()
    assert one.positions is not None
    assert other.positions is not None
    assert one.positions[0].tolist() == other.positions[0].tolist()
    encoded = encode_text(tokenizer, written)
    read = [written.text[slice(*place)] for place in zip(encoded.starts, encoded.ends, strict=True)]
    assert "".join("".join(read).split()) == "word1word2good"


def test_an_answer_is_found_again_from_its_tokens() -> None:
    context = "word1  word2 (good) word3 " + "word4 " * 40 + "good word5"
    rows = [
        Question(
            id=name, question="word0 word9", context=context, answers=answers,
            impossible=not answers, plausible=(), title="", source="m", line=1,
        )
        for name, answers in (
            ("early", (Answer("good", context.index("good")),)),
            ("late", (Answer("good word5", context.rindex("good")),)),
            ("first", (Answer("word1", 0),)),
            ("none", ()),
            # some begin or end in a window that does not hold them whole
            *(("across", (Answer("word4 " * 2 + "word4", match.start()),))
              for match in re.finditer("word4(?= word4 word4)", context)),
        )
    ]  # fmt: skip
    encoded = encode_questions(TOKENIZER, rows, ReadingLimits(longest=24))
    labels = np.split(
        np.asarray(SPAN.learning.targets(rows, (), encoded).labels),
        np.cumsum([len(windows.begins) for windows in encoded.sidecar])[:-1],
    )
    for row, windows, places in zip(rows, encoded.sidecar, labels, strict=True):
        starts, ends, offset = windows.context.starts, windows.context.ends, windows.offset
        own = np.zeros(len(windows.context), int)
        held = there = 0
        for begin, best, (start, end) in zip(windows.begins, windows.own, places, strict=True):
            own[begin : begin + len(best)] += best
            if start:
                said = context[starts[begin + start - offset] : ends[begin + end - offset]]
                assert said == row.answers[0].text
                there += 1
            else:
                assert end == 0
            for answer in row.answers:
                first, last = starts[begin], ends[begin + len(best) - 1]
                held += first <= answer.start and answer.start + len(answer.text) <= last
        # every token of the context is read in one window
        assert (own == 1).all()
        assert there == held
        assert (there > 0) == bool(row.answers)


def test_classes_of_wide_letters_are_aligned() -> None:
    labels = ("体育", "science", "文化")
    row = Example(text="He ran.", text_pair=None, label=None, source="a", line=1)
    lines = [
        next(CLASSIFY.present.lines(row, {"label": label, "probability": 0.5}, labels, str))
        for label in labels
    ]
    assert lines[0] == "体育     0.500  He ran."
    assert len({cell_len(line) for line in lines}) == 1


def test_entities_that_end_inside_a_word_are_told() -> None:
    """No tags of words give them: a model that learned them well scored an F1 of 0."""
    rows = [
        Tagged(
            text="Parisian Ann", words=((0, 8), (9, 12)), tags=("B-LOC", "B-PER"),
            entities=(Entity(0, end, "LOC"), Entity(9, 12, "PER")), document=0, source="m", line=1,
        )
        for end in (5, 8)
    ]  # fmt: skip
    told = [TAG.present.describe([row], ("B-LOC", "B-PER", "O")) for row in rows]
    assert told[1] == "2 words; LOC 1, PER 1"
    assert told[0] == told[1] + (
        "; 1 entity begins or ends inside a word: tags of words cannot give it, and it counts as "
        "not found"
    )
    both = TAG.present.describe([rows[0]] * 2, ("B-LOC", "B-PER", "O"))
    assert both.endswith(
        "2 entities begin or end inside words: tags of words cannot give them, and "
        "they count as not found"
    )


def test_words_that_raw_text_would_split_are_told() -> None:
    """A tagger of Japanese words finds none of its entities in raw text."""
    text = "東京大学のアダがU.S.へ"
    ends = (4, 5, 7, 8, 12, 13)
    row = Tagged(
        text=text, words=tuple(zip((0, *ends), ends, strict=False)),
        tags=("B-ORG", "O", "B-PER", "O", "B-LOC", "O"), entities=None, document=0, source="m",
        line=1,
    )  # fmt: skip
    told = TAG.present.describe([row], ("B-LOC", "B-ORG", "B-PER", "O"))
    assert told.startswith("6 words, 50 % of which are several words in raw text: split")
    raw = replace(row, words=words_of(text), tags=("O",) * len(words_of(text)))
    assert "raw" not in TAG.present.describe([raw], ("B-LOC", "O"))
    # so does one of logs, whose words have signs inside
    text, spans = joined(["peer", "10.3.21.154:80", "request_id=bd59", "failed"])
    row = replace(row, text=text, words=spans, tags=("O", "B-LOC", "O", "O"))
    told = TAG.present.describe([row], ("B-LOC", "O"))
    assert told.startswith("4 words, 50 % of which are several words in raw text: split")


def test_a_ranking_is_compared_with_chance() -> None:
    """With one passage a query, or relevant ones alone, any order scores 100 %."""

    def queries(*groups: Sequence[float]) -> list[Example]:
        return [
            replace(row, text_pair=f"p{row.line}", group=str(number))
            for number, group in enumerate(groups)
            for row in numbered(group)
        ]

    # the relevant one of three stands at 1, 2 and 3 alike; a query without one does not count
    for rows, score in (
        (queries([1, 0, 0], [0]), (1 + 1 / 2 + 1 / 3) / 3),
        (queries([1], [0], [1]), 1.0),
        (queries([1, 1]), 1.0),
    ):
        found = RANK.measuring.majority_baseline([], rows, RANK.labels.fixed)
        assert found is not None
        assert found[0] == "ordering passages at random"
        assert found[1] == pytest.approx(score)
    assert (score_label("ndcg@10"), score_label("f1_at_0")) == ("nDCG@10", "F1 at 0")


def test_options_that_would_do_nothing_are_refused() -> None:
    refused: list[tuple[Task[Any], dict[str, Any], str]] = [
        (CLASSIFY, {"stride": 3}, "--stride is for words and answers in windows"),
        (TAG, {"truncation": "tail"}, "--truncation is tail, and tagging reads long texts in win"),
        (SPAN, {"truncation": "head+tail"}, "and question answering reads long texts in windows"),
    ]
    for task, options, told in refused:
        with pytest.raises(ConfigError, match=re.escape(told)):
            check_task(task, FinetuneSettings().override(**options))
    check_task(TAG, FinetuneSettings(truncation="windows", stride=3))
    with pytest.raises(ConfigError, match="--schedule triangular rises for half of the steps"):
        FinetuneSettings(schedule="triangular", warmup=0.2)
    here = Path()
    with pytest.raises(ConfigError, match=r"--dev-share is 0\.2, and --dev names"):
        FinetuneConfig(
            model=here, train=here, out=here, dev=here, settings=FinetuneSettings(dev_share=0.2)
        )


def test_the_option_that_is_chosen_is_marked_and_questions_of_a_story_stay_together() -> None:
    story, other = "It rained. Ann sat.", "It was hot."
    first, second, third = (
        Choice(
            id=None, text=f"{context} {question}", context=context, label=1, source="m", line=line,
            choices=("dry", "wet", "hot"),
        )
        for line, (context, question) in enumerate([(story, "Why?"), (story, "Who?"), (other, "?")])
    )  # fmt: skip
    assert CHOICE.identity(first) == CHOICE.identity(second) != CHOICE.identity(third)
    alone = replace(first, context=None)
    assert CHOICE.identity(alone) != CHOICE.identity(replace(second, context=None))
    answer = np.array([0.2, 0.7, 0.1], np.float32)
    tuned = replace(UNTUNED, set_threshold=0.15)
    record = CHOICE.answers.record(answer, (), 5, tuned)
    assert list(CHOICE.present.lines(first, record, (), str)) == [
        first.text, "  + 0.200  dry", "  > 0.700  wet", "    0.100  hot",
    ]  # fmt: skip
    unsure = CHOICE.answers.record(answer, (), 5, replace(UNTUNED, min_confidence=0.8))
    assert [line[:4] for line in CHOICE.present.lines(first, unsure, (), str)][1:] == ["    "] * 3
    assert (CHOICE.present.predicted(first, record), CHOICE.present.predicted(first, unsure)) == (
        "wet", "-",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("long", "kept"),
    [("head", range(9)), ("tail", range(31, 40)), ("head+tail", [0, 1, *range(33, 40)])],
)
def test_a_question_after_a_long_story_is_read_and_the_story_is_cut(
    long: Fit, kept: Sequence[int]
) -> None:
    """Of a story longer than the model reads, all questions were the same: none was read."""
    tokenizer = Tokenizer((*SPECIALS, *(f"w{n}" for n in range(50))), BasicRules(lowercase=True))
    story = " ".join(f"w{n}" for n in range(40))
    row = Choice(
        id=None, text=f"{story} w41 w42", context=story, label=0, source="m", line=1,
        choices=("w45", "w46 w47"),
    )  # fmt: skip

    def read(row: Choice, longest: int) -> list[list[int]]:
        limits = ReadingLimits(longest=longest, long=long)
        ids = CHOICE.answers.encode(tokenizer, [row], limits).ids
        return [[token - len(SPECIALS) for token in each if token >= len(SPECIALS)] for each in ids]

    # one token of the story fewer beside the longer option
    assert read(row, 15)[0] == [*kept, 41, 42, 45]
    assert read(row, 15)[1][-4:] == [41, 42, 46, 47]
    assert len(read(row, 15)[1]) == 12
    assert read(row, 99) == [[*range(40), 41, 42, 45], [*range(40), 41, 42, 46, 47]]
    # a question that leaves no room for its story is cut itself
    asked = replace(row, text=f"{story} " + " ".join(f"w{n}" for n in range(41, 49)))
    assert set(read(asked, 8)[0]) <= {*range(41, 49)}
    # a text without a question of its own is cut as any other
    alone = CHOICE.answers.encode(
        tokenizer, [replace(row, context=None)], ReadingLimits(longest=15, long=long)
    )
    other = encode_examples(tokenizer, [row.text], ["w45"], longest=15, fit=long)
    assert alone.ids[0].tolist() == other.ids[0].tolist()


def test_the_passage_of_a_query_is_shown_with_its_relevance() -> None:
    row = Example(
        text="who", text_pair="Ann sat", label=None, number=1.0, group="who", source="m", line=1
    )
    record = RANK.answers.record(np.log(1 / 3), RANK.labels.fixed, 5, UNTUNED)
    assert list(RANK.present.lines(row, record, RANK.labels.fixed, str)) == ["0.2500  Ann sat"]
    parts = {"query": "who", "passage": "Ann sat", "relevance": "1"}
    assert RANK.present.labelled_parts(row) == parts


def test_classes_are_compared_with_the_most_frequent_one_of_training() -> None:
    train, dev = (
        [
            Example(text="a", text_pair=None, label=label, source="m", line=line)
            for line, label in enumerate(labels)
        ]
        for labels in ("abbb", "aaba")
    )
    measuring = class_measuring(("accuracy", "f1", "matthews"))
    name, accuracy = measuring.majority_baseline(train, dev, ("a", "b")) or ("", 0.0)
    assert (name, accuracy) == ("always predicting the most frequent class", 0.25)
    # F1 is a share among the rows that are of class 1, or said to be
    answers = [np.array(shares) for shares in ([0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3])]
    evidence = measuring.evidence(dev, answers, ("a", "b"))
    units = [measuring.units(evidence, name) for name in ("accuracy", "f1", "matthews")]
    assert [None if rows is None else rows.sum() for rows in units] == [4, 2, None]


def test_as_many_probabilities_of_labels_are_given_as_are_asked_for() -> None:
    answer = np.array([0.2, 0.9, 0.6], np.float32)
    record = MULTI_LABEL.answers.record(answer, ("a", "b", "c"), 1, UNTUNED)
    assert record == {"labels": ["b", "c"], "probabilities": {"b": pytest.approx(0.9)}}
    none = MULTI_LABEL.answers.record(answer / 2, ("a", "b", "c"), 5, UNTUNED)
    assert (none["labels"], list(none["probabilities"])) == ([], ["b", "c", "a"])
    shown = [MULTI_LABEL.present.prediction(each) for each in (record, none)]
    assert shown == ["b, c", "-"]
    evidence = np.array([[1.0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    names = ("micro_f1", "macro_f1", "exact_match")
    units = [MULTI_LABEL.measuring.units(evidence, name) for name in names]
    assert [None if rows is None else rows.sum() for rows in units] == [2, None, 3]


def test_thousands_of_tags_are_compared_with_the_commonest_in_time() -> None:
    began = time.process_time()
    tags = tuple(f"tag {number:04}" for number in range(5_000))
    text, words = joined([f"w{number}" for number in range(20_000)])
    row = Tagged(
        text=text, words=words, tags=tags * 4, entities=None, document=1, source="train", line=1
    )
    assert TAG.measuring.majority_baseline([row], [row], tags) == (
        "predicting each word's most frequent tag", 1.0,
    )  # fmt: skip
    assert time.process_time() - began < 5  # what grew with the product would take minutes


def test_thousands_of_classes_are_looked_up_and_shown_in_time() -> None:
    began = time.process_time()
    labels = tuple(f"class {number:05}" for number in range(10_000))
    rows = [
        Example(text="a", text_pair=None, label=labels[-1], source="dev", line=line)
        for line in range(1, 10_001)
    ]
    CLASSIFY.labels.check(rows[:1], rows, labels)
    record = {"label": labels[-1], "probability": 1.0}
    for row in rows:
        (line,) = CLASSIFY.present.lines(row, record, labels, str)
    assert line == "class 09999  1.000  a"
    assert time.process_time() - began < 5  # what grew with the product would take minutes


@pytest.mark.parametrize("rows", [5, 2_000])
def test_intervals_of_thousands_of_labels_are_those_of_the_drawn_rows(rows: int) -> None:
    """Drawing rows of all labels a thousand times took a minute."""
    began, random = time.process_time(), np.random.default_rng(rows)
    labels = tuple(map(str, range(2_000 if rows > 5 else 7)))
    evidence = (random.random((rows, 2 * len(labels))) < 0.1).astype(np.float64)
    drawn = random.integers(0, rows, rows)
    true, predicted = np.split(evidence[drawn] > 0, 2, axis=1)
    expected = {
        "micro_f1": f1_score(true, predicted, average="micro", zero_division=0.0),
        "macro_f1": f1_score(true, predicted, average="macro", zero_division=0.0),
        "exact_match": accuracy_score(true, predicted),
    }
    for name, score in expected.items():
        statistic = score_of_resamples(MULTI_LABEL.measuring, evidence, labels, UNTUNED, name)
        assert statistic(drawn) == metric(score)
    for name in ("micro_f1", "exact_match"):
        interval_of(MULTI_LABEL, evidence, labels, Clusters.alone(rows), UNTUNED, name)
    assert time.process_time() - began < 10  # what grew with the product would take minutes
