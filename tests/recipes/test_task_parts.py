"""Thresholds and alignment against independent references."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.batches.examples import pack_examples
from bertsmith.errors import ConfigError
from bertsmith.evaluation.squad import squad_v2
from bertsmith.recipes.tasks.question_windows import question_windows
from bertsmith.recipes.tasks.task import Room
from bertsmith.recipes.tasks.thresholds import best_threshold, with_threshold
from bertsmith.recipes.tasks.word_windows import word_windows
from bertsmith.text.squad import Answer, Question
from bertsmith.text.tagged import Tagged, joined
from bertsmith.tokens.tokenizer import Tokenizer


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
    for column, name in ((0, "exact"), (1, "f1")):
        threshold = best_threshold(evidence, column)
        assert threshold == pytest.approx(official[f"best_{name}_thresh"])
        found = 100 * with_threshold(evidence, threshold)[:, column].mean()
        assert found == pytest.approx(official[f"best_{name}"])
        applied = squad_v2(answers, said, doubts, threshold)
        assert found == pytest.approx(applied[name])


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


@pytest.mark.parametrize(("longest", "least"), [(8, 12), (11, 12)])
def test_windows_too_small_for_a_question_are_refused(
    longest: int, least: int, tiny_tokenizer: Tokenizer
) -> None:
    row = Question(
        id="q", question="word0 " * 9, context="word1 " * 30, answers=(), impossible=True,
        plausible=(), title="", source="m", line=1,
    )  # fmt: skip
    with pytest.raises(ConfigError, match=f"longest is {longest}; .* at least {least} tokens"):
        question_windows(tiny_tokenizer, [row], Room(longest=longest), labelled=False)
    whole = question_windows(tiny_tokenizer, [row], Room(longest=least), labelled=False)
    assert all(len(ids) <= least for ids in whole.ids)


@pytest.mark.parametrize("room", [{"longest": 7}, {"longest": 20, "stride": -1}])
def test_no_room_and_windows_that_share_less_than_nothing_are_refused(
    room: dict[str, int],
) -> None:
    with pytest.raises(ConfigError, match="it must be at least"):
        Room(**room)


def test_every_word_is_asked_once_at_its_first_piece(tiny_tokenizer: Tokenizer) -> None:
    words = ["word1,", "good", "\u200b", "(word2)"] * 9
    text, spans = joined(words)
    row = Tagged(
        text=text, words=spans, tags=("O",) * 36, entities=(), document=0, source="m", line=1
    )
    numbers = list(range(36))
    encoded = word_windows(tiny_tokenizer, [row, row], [numbers, numbers], Room(longest=20))
    assert encoded.long.all()
    asked = [(int(r), w) for r, ws in zip(encoded.rows, encoded.words, strict=True) for w in ws]
    # what the tokenizer drops is asked nowhere
    wanted = [(row, word) for row in range(2) for word in range(36) if words[word] != "\u200b"]
    assert sorted(asked) == wanted
    pieces = tiny_tokenizer.vocabulary
    first = {"word1,": "word1", "good": "good", "(word2)": "[UNK]"}
    assert encoded.places is not None
    for ids, places, own in zip(encoded.ids, encoded.places, encoded.words, strict=True):
        assert len(ids) <= 20
        for place, word in zip(places, own, strict=True):
            assert pieces[ids[place]] == first[words[word]]
    batch = pack_examples(encoded, np.array([1, 0]))
    target = batch.targets["tag"]
    at = [pieces[number] for number in batch.ids[target.at].tolist()]
    assert at == [first[words[word]] for word in target.labels.tolist()]


def test_an_answer_is_found_again_from_its_tokens(tiny_tokenizer: Tokenizer) -> None:
    context = "word1  word2 (good) word3 " + "word4 " * 40 + "good word5"
    rows = [
        Question(
            id=name, question="word0 word9", context=context, answers=answers,
            impossible=not answers, plausible=(), title="", source="m", line=1,
        )
        for name, answers in (
            ("early", (Answer("good", context.index("good")),)),
            ("late", (Answer("good word5", context.rindex("good")),)),
            ("none", ()),
        )
    ]  # fmt: skip
    encoded = question_windows(tiny_tokenizer, rows, Room(longest=24), labelled=True)
    labels = np.asarray(encoded.labels)
    for number, row in enumerate(rows):
        units = np.flatnonzero(encoded.rows == number)
        own = np.zeros(len(encoded.pieces[number][0]), int)
        there = 0
        for unit in units:
            begin, offset = int(encoded.begins[unit]), int(encoded.offsets[unit])
            own[begin : begin + len(encoded.own[unit])] += encoded.own[unit]
            start, end = labels[unit]
            if start:
                starts, ends = encoded.pieces[number]
                said = context[starts[begin + start - offset] : ends[begin + end - offset]]
                assert said == row.answers[0].text
                there += 1
        # every token of the context is read in one window
        assert (own == 1).all()
        assert (there > 0) == bool(row.answers)
