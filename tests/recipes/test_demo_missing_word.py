"""The demo's task of order, on a small invented text."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, BertTokenizer

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes.demo import missing_word as demo_gaps
from bertsmith.recipes.demo.missing_word import (
    BAG,
    MODEL,
    NEIGHBOURS,
    PLACE,
    PLACES,
    WORD,
    Gap,
    GapOutcome,
    GapTask,
    bag_answers,
    balanced_gaps,
    choose_candidates,
    make_gap_task,
    model_answers,
    neighbour_answers,
)
from bertsmith.recipes.demo.recipe import as_documents
from bertsmith.store.preparing import held_out_documents, prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documentation import ModuleText
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from bounds import close_to_transformers

NOUNS = ("house", "river", "garden", "tower", "forest", "village", "harbour", "bridge")
# the word that follows tells which of the four it was
FOLLOWERS = {"of": "stone", "to": "walk", "in": "winter", "for": "nothing"}
SHARE = 0.3


def sentence(number: int) -> str:
    word = list(FOLLOWERS)[number % 4]
    first, second = NOUNS[number % 8], NOUNS[(number // 8) % 8]
    return f"The {first} nr{number} has a {second} {word} {FOLLOWERS[word]} there, too."


@pytest.fixture(scope="module")
def modules() -> list[ModuleText]:
    shared = "The miller nobody met has a mill of stone there, too."
    return [
        ModuleText(
            package="p",
            module=f"p.m{number}",
            docstrings=((" ".join([*map(sentence, range(9 * number, 9 * number + 9)), shared]),),),
        )
        for number in range(60)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = ("the", "has", "a", "there", "too", ".", ",", *NOUNS, *FOLLOWERS, *FOLLOWERS.values())
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = (*letters, *(f"##{letter}" for letter in letters))
    return Tokenizer(
        (*SPECIALS, *(piece for piece in pieces if piece not in words), *words),
        BasicRules(lowercase=True),
    )


@pytest.fixture(scope="module")
def task(modules: list[ModuleText], tokenizer: Tokenizer) -> GapTask:
    held_out = held_out_documents(as_documents(modules), SHARE)
    made = make_gap_task(modules, held_out, tokenizer)
    assert made is not None
    return made


def texts(task: GapTask, gaps: list[Gap]) -> list[str]:
    return [gap.text(gap.place, task.candidates[gap.word]) for gap in gaps]


def test_each_word_is_the_answer_equally_often(task: GapTask) -> None:
    assert set(task.candidates) == set(FOLLOWERS)
    for gaps in (task.train, task.dev):
        counts = Counter(gap.word for gap in gaps)
        assert set(counts) == {0, 1, 2, 3}
        assert len(set(counts.values())) == 1
    for gap in (*task.train, *task.dev):
        assert len(set(gap.places)) == PLACES
        assert not set(task.candidates) & set(gap.words)


def test_gaps_to_measure_with_are_from_documents_that_the_store_holds_out(
    modules: list[ModuleText], tokenizer: Tokenizer, task: GapTask, tmp_path: Path
) -> None:
    documents = as_documents(modules)
    held_out = held_out_documents(documents, SHARE)
    prepare_store(iter(documents), tokenizer, tmp_path / "store", held_out=SHARE)
    store = TokenStore(tmp_path / "store").held_out()
    assert store is not None
    assert store.index.documents == sum(held_out)
    assert 5 < sum(held_out) < 35
    trained, measured = (
        " ".join(
            module.paragraphs[0] for module, at in zip(modules, held_out, strict=True) if at == w
        )
        for w in (False, True)
    )
    assert all(text in trained for text in texts(task, task.train))
    # the sentence that all documents share is known from training, and is left out
    assert "nobody met" in trained
    assert all(text in measured and text not in trained for text in texts(task, task.dev))


def test_sentences_that_are_no_prose_or_have_other_candidates_give_no_gap() -> None:
    sentences = [
        "The tower of stone stood of the village there.",
        "Of stone is the tower that stood there, too.",
        "The tower (of stone) stood beside the village there.",
        "The tower of `stone` stood beside the village there.",
        "the tower of stone stood beside the village there.",
        "The tower of stone.",
        "The tower of stone stood beside the village there.",
    ]
    (gap,) = balanced_gaps(sentences, ["of"], 10)
    assert gap.text(gap.place, "of") == sentences[-1]
    # as many of each as of the rarest, which is none
    assert balanced_gaps(sentences, ["of", "with"], 10) == []


def test_candidates_are_the_commonest_prepositions_of_one_piece(tokenizer: Tokenizer) -> None:
    sentences = ["by by by of of to in in in for with with with"]
    # with and by are several pieces here; ties go by the alphabet
    assert choose_candidates(sentences, tokenizer) == ("in", "of", "for", "to")
    assert choose_candidates(["nothing"], tokenizer) == ()


def test_too_little_text_makes_no_task(modules: list[ModuleText], tokenizer: Tokenizer) -> None:
    assert make_gap_task(modules, [False] * len(modules), tokenizer) is None


def test_a_bag_of_words_cannot_see_order_and_neighbours_can(task: GapTask) -> None:
    random = np.random.default_rng(0)
    shuffled = [
        replace(gap, words=tuple(random.permutation(gap.words).tolist())) for gap in task.dev
    ]
    other = replace(task, dev=shuffled)
    assert np.array_equal(bag_answers(task).words, bag_answers(other).words)
    # the bag is the same at every place: a tie of four
    assert np.all(bag_answers(task).right(task.dev)[PLACE] == 1 / PLACES)
    found = neighbour_answers(task).right(task.dev)
    assert found[WORD].mean() == found[PLACE].mean() == 1
    assert neighbour_answers(other).right(shuffled)[PLACE].mean() < 0.9


def test_the_model_answers_with_the_probabilities_of_transformers(
    task: GapTask, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    encoder = EncoderConfig(
        vocabulary=tokenizer.size + 3, hidden=24, layers=2, heads=3, feed_forward=48, longest=60,
        initial_std=0.3,
    )  # fmt: skip
    config = ModelConfig(encoder=encoder, pooler=False, masked_lm=True)
    model = build_model(config, seed=5)
    save_model(tmp_path / "model", model, tokenizer)
    theirs = BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    own = BertTokenizer.from_pretrained(tmp_path / "model")
    few = replace(task, dev=task.dev[:3])
    answers = model_answers(few, model, tokenizer)
    ids = own.convert_tokens_to_ids(list(task.candidates))
    for number, gap in enumerate(few.dev):
        expected = []
        for place in range(PLACES):
            inputs = own(gap.text(place, "[MASK]"), return_tensors="pt")
            with torch.no_grad():
                logits = theirs(**inputs).logits[0, :, : tokenizer.size]
            at = inputs["input_ids"][0].tolist().index(own.mask_token_id)
            expected.append(logits[at].softmax(-1)[ids])
        found = torch.stack(expected)
        close_to_transformers(answers.words[number], found[gap.place])
        close_to_transformers(answers.places[number], found[:, gap.word])


def outcome(task: GapTask, model: list[int], near: list[int]) -> GapOutcome:
    """Whether the model and the neighbours were right on each gap; the bag is at chance."""
    count = len(model)
    answers = {
        BAG: np.full(count, 0.25),
        NEIGHBOURS: np.array(near, float),
        MODEL: np.array(model, float),
    }
    return GapOutcome(
        task=replace(task, dev=(task.dev * 8)[:count]),
        right={name: {WORD: right, PLACE: right} for name, right in answers.items()},
        probabilities=np.full((count, 4), 0.125),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("model", "near", "verdict", "conclusion"),
    [
        ([1] * 30 + [0] * 10, [0] * 28 + [1] * 12, "beats the two neighbours (+45.0", "is right"),
        ([0] * 30 + [1] * 10, [1] * 40, "loses to the two neighbours (-75.0", "no better"),
        ([1, 0] * 20, [0, 1] * 20, "and the two neighbours are a draw (+0.0", "is right for"),
        ([1] * 40, [0] * 40, "beats the bag of words (+75.0", "is right for 100.0 %"),
    ],
)  # fmt: skip
def test_what_is_said_follows_from_the_figures(
    task: GapTask, model: list[int], near: list[int], verdict: str, conclusion: str
) -> None:
    found = outcome(task, model, near)
    assert [f"which {what}: the model {verdict}" in line for what, line in zip(
        ("word", "place"), found.verdicts(), strict=True)] == [True, True]  # fmt: skip
    assert conclusion in found.conclusion()
    figures = found.to_dict()
    assert figures[MODEL] == {WORD: np.mean(model), PLACE: np.mean(model)}


def test_answers_that_are_all_right_have_an_interval_too(task: GapTask) -> None:
    """It was left out, and a lead on all rows had one without width: 75.0 to 75.0."""
    found = outcome(task, [1] * 40, [0] * 40)
    others = 1 - 0.025 ** (1 / 40)
    row = {name: shown for name, *shown in found.rows()}[MODEL]
    assert row == [f"100.0 ({100 * (1 - others):.1f} to 100.0)"] * 2
    low, high = 75 * (1 - others) - 100 * others, 75 + 25 * others
    assert f"(+75.0 points, 95 %: {low:.1f} to {high:.1f})" in found.verdicts()[0]


def test_a_sentence_is_shown_for_each_outcome(task: GapTask) -> None:
    found = outcome(task, [0, 1, 0, 1], [1, 0, 0, 0])
    rows = found.examples()
    assert [row[3] for row in rows] == ["the model alone", "the neighbours, not the model", "none"]
    for row, number in zip(rows, (1, 0, 2), strict=True):
        gap = found.task.dev[number]
        assert row[0] == gap.text(gap.place, "___")
        assert row[1] == task.candidates[gap.word]
        assert row[2].count("12.5 %") == demo_gaps.CANDIDATES
