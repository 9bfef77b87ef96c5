"""Attributions against closed forms, against transformers in float64, and by encoding anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import transformers
from torch import Tensor

import bertsmith
from bertsmith.analysis.attributions import subjects
from bertsmith.analysis.attributions.attribution import (
    Explainer,
    attention_rollout,
    by_word,
    integrate,
)
from bertsmith.analysis.attributions.deletion import DeletionTest
from bertsmith.analysis.attributions.subjects import Subject, subjects_of, text_of_words
from bertsmith.network.config import EncoderConfig, ModelConfig, Pooled, Predicts
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, build_model
from bertsmith.tasks.answering import task_predictor
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.span import SPAN
from bertsmith.tasks.tag import TAG, raw_text
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.squad import Question
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from bounds import close_statistics, close_unit_vectors

MASK = 4
TOKENIZER = Tokenizer(
    (*SPECIALS, *(f"word{n}" for n in range(20)), "##ing", "##ed", "."), BasicRules(lowercase=True)
)
LABELS: dict[Predicts, tuple[str, ...]] = {
    "class": ("ham", "spam", "news"),
    "tags": ("NOUN", "VERB", "ADJ"),
    "span": (),
}
ROOM = ReadingLimits(longest=24)
REFERENCES: dict[Predicts, Any] = {
    "class": transformers.BertForSequenceClassification,
    "tags": transformers.BertForTokenClassification,
    "span": transformers.BertForQuestionAnswering,
}


def text(words: str, second: str | None = None) -> Example:
    return Example(text=words, text_pair=second, label=None, source="memory", line=1)


QUESTION = Question(
    id="a", question="word1 word2ing", context="word3 word4, word5ed word6 word7 word8 word9.",
    answers=(), impossible=False, plausible=(), title="", source="memory", line=1,
)  # fmt: skip
ROWS: dict[Predicts, Any] = {
    "class": (CLASSIFY, text("word1 word2ing, word3.", "word4 word5")),
    "tags": (TAG, raw_text(text("word1 word2ing word3ed word4."))),
    "span": (SPAN, QUESTION),
}
HEADS: tuple[Predicts, ...] = ("class", "tags", "span")


@pytest.fixture(scope="module")
def models() -> dict[Predicts, Model]:
    found = {}
    for head in HEADS:
        encoder = EncoderConfig(
            vocabulary=TOKENIZER.size, hidden=24, layers=3, heads=3, feed_forward=37, longest=29,
            initial_std=0.25,
        )  # fmt: skip
        config = ModelConfig(
            encoder=encoder, predicts=head, labels=LABELS[head], pooler=head == "class"
        )
        found[head] = build_model(config, seed=4).eval().requires_grad_(False)
    return found


def subject_of(head: Predicts, model: Model) -> Subject:
    task, row = ROWS[head]
    return next(subjects_of(task, model, TOKENIZER, row, ROOM))


@pytest.fixture(scope="module", params=HEADS)
def case(
    request: pytest.FixtureRequest,
    models: dict[Predicts, Model],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Model, Subject, Any]:
    """A model, an answer of it, and the same model of transformers in float64."""
    model = models[request.param]
    folder: Path = tmp_path_factory.mktemp("explained") / "model"
    save_model(folder, model, TOKENIZER)
    reference = REFERENCES[request.param].from_pretrained(folder, attn_implementation="eager")
    return model, subject_of(request.param, model), reference.double().eval().requires_grad_(False)


def logit(reference: Any, subject: Subject, hidden: Tensor) -> Tensor:  # noqa: ANN401
    """Return the logit of the answer by transformers, given embeddings (copies, length, hidden)."""
    states = reference.bert.encoder(hidden)[0]
    target: Any = subject.target
    found: Tensor
    if hasattr(reference, "qa_outputs"):
        logits = reference.qa_outputs(states)
        found = logits[:, target.first, 0] + logits[:, target.last, 1]
    elif reference.bert.pooler is not None:
        found = reference.classifier(reference.bert.pooler(states))[:, target.label]
    else:
        found = reference.classifier(states)[:, target.place, target.label]
    return found


def embeddings(reference: Any, subject: Subject, ids: Any) -> Tensor:  # noqa: ANN401
    found: Tensor = reference.bert.embeddings(
        input_ids=torch.tensor(np.array(ids))[None],
        token_type_ids=torch.tensor(np.array(subject.segments, np.int64))[None],
    )
    return found


def test_a_linear_function_is_shared_out_exactly() -> None:
    random = torch.Generator().manual_seed(1)
    inputs, baseline, weight = (torch.randn(7, 5, generator=random) for _ in range(3))
    found = integrate(
        lambda points: (points * weight).sum((1, 2)), inputs, baseline, tolerance=1e-3
    )
    expected = ((inputs - baseline).double() * weight.double()).sum(-1)
    close_statistics(found.shares, expected)
    assert found.steps == 16
    # the path integral of a product of two inputs is known too
    found = integrate(
        lambda points: points[:, 0, 0] * points[:, 1, 0], inputs, baseline, tolerance=1e-3
    )
    (a, b), (c, d) = ((float(tensor[0, 0]), float(tensor[1, 0])) for tensor in (inputs, baseline))
    expected = torch.tensor([(a - c) * (b + d) / 2, (b - d) * (a + c) / 2] + [0.0] * 5)
    close_statistics(found.shares, expected)


def test_more_steps_are_taken_until_the_shares_add_up() -> None:
    def steep(points: Tensor) -> Tensor:
        return torch.tanh(60 * (points.sum((1, 2)) - 0.9))

    ends = torch.ones(1, 1), torch.zeros(1, 1)
    found = integrate(steep, *ends, tolerance=1e-3)
    assert found.gap is not None
    assert found.gap <= 1e-3
    assert found.steps is not None
    assert found.steps > 16
    few = integrate(steep, *ends, tolerance=1e-3, most_steps=16)
    assert few.steps == 16
    assert few.gap is not None
    assert few.gap > 1e-3


def test_integrated_gradients_are_those_of_transformers_and_add_up(
    case: tuple[Model, Subject, Any],
) -> None:
    model, subject, reference = case
    found = Explainer(model=model, inventory=TOKENIZER).integrated_gradients(subject)
    masked = subject.ids.copy()
    special = np.isin(subject.ids, [TOKENIZER.cls_id, TOKENIZER.sep_id])
    masked[~special] = MASK
    upper, lower = (embeddings(reference, subject, ids) for ids in (subject.ids, masked))
    count = 300
    at = ((torch.arange(count, dtype=torch.float64) + 0.5) / count)[:, None, None]
    points = (lower + at * (upper - lower)).detach().requires_grad_(True)
    (gradients,) = torch.autograd.grad(logit(reference, subject, points).sum(), points)
    expected = ((upper - lower)[0] * gradients.mean(0)).sum(-1).detach().numpy()
    difference = float(logit(reference, subject, upper) - logit(reference, subject, lower))
    np.testing.assert_allclose(found.shares, expected, atol=2e-4)
    assert found.difference == pytest.approx(difference, abs=1e-5)
    assert abs(found.shares.sum() - difference) < 1e-3 + 1e-5
    assert np.abs(found.shares[special]).max() == 0
    assert np.abs(found.shares).max() > 0.01


def test_gradient_times_input_is_that_of_transformers(case: tuple[Model, Subject, Any]) -> None:
    model, subject, reference = case
    found = Explainer(model=model, inventory=TOKENIZER).gradient_times_input(subject)
    point = embeddings(reference, subject, subject.ids).detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(logit(reference, subject, point).sum(), point)
    close_statistics(found, (point * gradient)[0].sum(-1))


def test_leaving_a_word_out_is_what_a_text_with_masks_gives(
    case: tuple[Model, Subject, Any],
) -> None:
    model, subject, reference = case
    found = Explainer(model=model, inventory=TOKENIZER).leave_one_out(subject)
    whole = float(logit(reference, subject, embeddings(reference, subject, subject.ids)))
    # the words are written anew, with as many masks as the word has pieces
    for number, share in enumerate(found):
        texts: list[list[str]] = [[], []]
        for other, word in enumerate(subject.words):
            pieces = TOKENIZER.pieces(word.text)
            texts[word.second] += ["[MASK]"] * len(pieces) if other == number else [word.text]
        parts = [TOKENIZER.encode([" ".join(item)])[0].tolist() for item in texts if item]
        ids = [TOKENIZER.cls_id, *(item for part in parts for item in [*part, TOKENIZER.sep_id])]
        assert len(ids) == len(subject.ids)
        without = float(logit(reference, subject, embeddings(reference, subject, ids)))
        assert share == pytest.approx(whole - without, abs=1e-5)


def test_rollout_is_the_product_of_the_layers(case: tuple[Model, Subject, Any]) -> None:
    model, subject, reference = case
    hidden = embeddings(reference, subject, subject.ids)
    with torch.no_grad():
        weights = reference.bert.encoder(hidden, output_attentions=True).attentions
    length = len(subject.ids)
    expected = np.eye(length)
    for layer in weights:
        expected = (0.5 * layer[0].mean(0).numpy() + 0.5 * np.eye(length)) @ expected
    rows = expected[list(subject.target.positions)].mean(0)
    found = Explainer(model=model, inventory=TOKENIZER).rollout(subject)
    close_unit_vectors(found, rows)
    assert found.sum() == pytest.approx(1)
    assert np.ptp(rows) > 1e-3


@pytest.mark.parametrize(
    ("pooled", "read"), [("first", [0]), ("last", [4]), ("mean", [0, 1, 2, 3, 4])]
)
def test_rollout_follows_attention_to_the_tokens_that_the_pooler_reads(
    models: dict[Predicts, Model],
    pooled: Pooled,
    read: list[int],
) -> None:
    config = models["class"].config
    encoder = replace(config.encoder, pooled=pooled, causal=pooled == "last")
    model = build_model(replace(config, encoder=encoder), seed=4).eval().requires_grad_(False)
    (subject,) = subjects_of(CLASSIFY, model, TOKENIZER, text("word1 word2 word3"), ROOM)
    batch = subject.copies([subject.ids])
    weights = model.encoder(batch, taps=Taps(weights=frozenset((1, 2, 3)))).weights
    shares = np.eye(5)
    for layer in (1, 2, 3):
        shares = (weights[layer][0].mean(0).double().numpy() + np.eye(5)) / 2 @ shares
    found = Explainer(model=model, inventory=TOKENIZER).rollout(subject)
    close_unit_vectors(found, shares[read].mean(0))


def test_rollout_of_one_head_that_looks_back() -> None:
    back = torch.tensor([[[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]])
    expected = torch.tensor([[1.0, 0, 0], [0.75, 0.25, 0], [0.25, 0.5, 0.25]])
    torch.testing.assert_close(attention_rollout([back, back]).float(), expected)


def test_words_and_answers_are_those_of_the_text(models: dict[Predicts, Model]) -> None:
    pair = subject_of("class", models["class"])
    shown = [(word.text, len(word.positions), word.second) for word in pair.words]
    first = [("word1", 1), ("word2ing", 2), (",", 1), ("word3", 1), (".", 1)]
    second = [("word4", 1), ("word5", 1)]
    assert shown == [(*item, False) for item in first] + [(*item, True) for item in second]
    assert pair.answer in LABELS["class"]
    span = subject_of("span", models["span"])
    own = [word.text for word in span.words if word.in_answer]
    assert "".join(own) == span.answer.replace(" ", "")
    assert by_word(span, np.ones(len(span.ids))).tolist() == [
        len(TOKENIZER.pieces(word.text)) for word in span.words
    ]
    long = next(subjects_of(CLASSIFY, models["class"], TOKENIZER, text("word1 " * 30), ROOM))
    assert long.cut
    assert not pair.cut
    assert [len(word.positions) for word in long.words] == [1] * 22 + [0] * 8
    further = replace(QUESTION, context="word3 word4 " * 20)
    assert not span.cut
    assert next(subjects_of(SPAN, models["span"], TOKENIZER, further, ROOM)).cut


def test_an_answer_that_ends_with_a_blank_is_explained_without_it() -> None:
    """A piece of ALBERT's may be the blank before the next word, which is no part of the answer."""
    made = learn_unigram(["the old man and the sea zq"] * 4, size=40)
    encoder = EncoderConfig(
        vocabulary=made.size, hidden=24, layers=2, heads=3, feed_forward=37, longest=29,
        initial_std=0.5,
    )  # fmt: skip
    model = build_model(ModelConfig(encoder=encoder, predicts="span", pooler=False), seed=4).eval()
    draw, blanks = np.random.default_rng(2), 0
    for _ in range(12):
        context = " ".join(draw.permutation(["the", "old", "zm", "sea", "qz"]))
        question = Question(
            id="q", question="man", context=context, answers=(), impossible=True,
            plausible=(), title="", source="m", line=1,
        )  # fmt: skip
        (subject,) = subjects_of(SPAN, model, made, question, ROOM)
        assert isinstance(subject.target, subjects.SpanTarget)
        blanks += made.vocabulary[subject.ids[subject.target.last]] == "\u2581"
        assert subject.answer == subject.answer.strip()
        own = " ".join(word.text for word in subject.words if word.in_answer)
        assert len(own.split(" ")) == len(subject.answer.split(" "))
        assert subject.answer in own
    assert blanks


@pytest.mark.parametrize("learn", [learn_unigram, learn_wordpiece])
def test_the_answer_that_is_explained_is_the_one_that_is_predicted(
    learn: Callable[..., Tokenizer],
) -> None:
    """It is never a blank alone, and has the marks on its last letter that are not read."""
    words = ["the", "old", "zm", "sea", "e\u0301te\u0301"]
    made = learn(["the old man and the sea zq ete"] * 4, size=40)
    encoder = EncoderConfig(
        vocabulary=made.size, hidden=24, layers=2, heads=3, feed_forward=37, longest=29,
        initial_std=0.5,
    )  # fmt: skip
    model = build_model(ModelConfig(encoder=encoder, predicts="span", pooler=False), seed=11).eval()
    draw, marks = np.random.default_rng(2), 0
    questions = [
        Question(
            id="q", question="man", context="  ".join(draw.permutation(words)[:2]), answers=(),
            impossible=True, plausible=(), title="", source="m", line=1,
        )
        for _ in range(12)
    ]  # fmt: skip
    for question, answer in zip(
        questions, task_predictor(SPAN, model, made, ROOM)(questions), strict=True
    ):
        (subject,) = subjects_of(SPAN, model, made, question, ROOM)
        assert subject.answer == answer.text != ""
        marks += subject.answer.endswith("\u0301")
    assert marks


class OneWordCounts:
    """A target that depends on one place only: the answer is the token there."""

    positions = (0,)

    def __init__(self, place: int) -> None:
        self.place = place

    def values(self, model: Model, encoded: Any, batch: Any) -> Tensor:  # noqa: ANN401
        del model, encoded
        ids: Tensor = batch.ids[batch.starts + self.place]
        return (ids != MASK).float()

    def answers(self, model: Model, encoded: Any, batch: Any) -> list[Any]:  # noqa: ANN401
        return self.values(model, encoded, batch).tolist()


def test_deletion_finds_the_word_that_decides(models: dict[Predicts, Model]) -> None:
    model = models["class"]
    words = subject_of("class", model).words
    subject = subject_of("class", model)
    explainer = Explainer(model=model, inventory=TOKENIZER)
    test = DeletionTest(explainer)
    for number, word in enumerate(words):
        one = Subject(
            ids=subject.ids, segments=subject.segments, words=words, answer="",
            target=OneWordCounts(int(word.positions[0])), cut=False,
        )  # fmt: skip
        shares = explainer.leave_one_out(one)
        assert shares.tolist() == [float(n == number) for n in range(len(words))]
        for _ in range(8):
            test.add(one, {"leave-one-out": shares, "rollout": -shares})
    figures = test.figures()
    for item in figures["leave-one-out"]:
        assert item.top == 1
        assert item.answers == 8 * len(words)
        # k of the words are drawn, and one of them decides
        assert item.random == pytest.approx(item.words / len(words), abs=0.1)
        assert item.difference.low > 0.3
    assert [item.top for item in figures["rollout"]] == [0, 0, 0]


def test_words_of_the_answer_stay_and_no_difference_has_an_interval(
    models: dict[Predicts, Model],
) -> None:
    subject = subject_of("class", models["class"])
    decides = next(n for n, word in enumerate(subject.words) if len(word.positions) == 1)
    words = tuple(
        replace(word, in_answer=number == decides) for number, word in enumerate(subject.words)
    )
    target = OneWordCounts(int(words[decides].positions[0]))
    test = DeletionTest(Explainer(model=models["class"], inventory=TOKENIZER))
    shares = np.eye(len(words))[decides]
    for _ in range(6):
        test.add(replace(subject, words=words, target=target), {"leave-one-out": shares})
    # with 6 answers, up to 1 - 0.025 ** (1 / 6) of others may differ in either direction
    others = 1 - scipy.stats.binomtest(6, 6).proportion_ci(0.95, method="exact").low
    for item in test.figures()["leave-one-out"]:
        assert (item.answers, item.top, item.random) == (6, 0, 0)
        assert item.difference.low == pytest.approx(-others)
        assert item.difference.high == pytest.approx(others)


def test_each_label_above_one_half_is_explained(models: dict[Predicts, Model]) -> None:
    config = replace(models["class"].config, predicts="classes")
    model = build_model(config, seed=4).eval().requires_grad_(False)
    model.get_parameter("heads.classify.weight").zero_()
    row = text("word1 word2ing")
    for logits, chosen in (((0.3, -0.2, 0.4), (0, 2)), ((-0.3, -0.1, -0.2), (1,))):
        model.get_parameter("heads.classify.bias").copy_(torch.tensor(logits))
        found = list(subjects_of(MULTI_LABEL, model, TOKENIZER, row, ROOM))
        assert [subject.answer for subject in found] == [LABELS["class"][n] for n in chosen]
        for subject, label in zip(found, chosen, strict=True):
            encoded, batch = subjects.run(model, subject, [subject.ids])
            assert subject.target.answers(model, encoded, batch) == [logits[label] > 0]


@pytest.mark.parametrize("learn", [learn_wordpiece, learn_unigram, learn_byte_bpe])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("เพิ่มคำบรรยายภาพ ลงในภาพนิ่ง BERT", None),
        ("他说语言模型。不，语言模型！", None),
        ("the film, (it) was good.", ["the", "film", ",", "(", "it", ")", "was", "good", "."]),
    ],
)
def test_no_piece_is_cut_into_characters(
    learn: Callable[..., Tokenizer], text: str, words: list[str] | None
) -> None:
    """Else the share of a piece of several letters would stand beside its last one."""
    made = learn([text] * 9, size=700 if learn is learn_byte_bpe else 90)
    encoded = made.encode_spans(text)
    found = subjects._words(text, encoded, 1, np.arange(len(encoded)))
    assert text_of_words(found).replace(" ", "") == text.replace(" ", "")
    positions = np.concatenate([word.positions for word in found])
    assert positions.tolist() == list(range(1, len(encoded) + 1))
    if words is not None:
        # pieces of bytes may hold several marks
        assert [word.text for word in found] == words or learn is learn_byte_bpe
        return
    assert text_of_words(found).count(" ") == text.count(" ")
    assert all(len(word.positions) for word in found)
    letters = [word.text for word in found if len(word.text) == 1 and word.text.isalpha()]
    assert len(letters) < len(text) / 3 or (learn is learn_wordpiece and "他" in text)


@pytest.mark.parametrize(
    "labels", [("O", "I-PER", "I-LOC"), ("O", "B-PER", "I-PER"), ("O", "S-PER", "B-PER", "E-PER")]
)
def test_each_entity_that_is_predicted_is_explained(
    labels: tuple[str, ...], tmp_path: Path
) -> None:
    """Published models have tags of other schemes, and weak ones predict an I after an O."""
    encoder = EncoderConfig(
        vocabulary=TOKENIZER.size, hidden=24, layers=2, heads=3, feed_forward=37, longest=29,
        initial_std=0.5,
    )  # fmt: skip
    config = ModelConfig(encoder=encoder, predicts="tags", labels=labels, pooler=False)
    save_model(tmp_path / "model", build_model(config, seed=4).eval(), TOKENIZER)
    # as explained: bf16 may answer otherwise
    model = bertsmith.load(tmp_path / "model", precision="fp32")
    random = np.random.default_rng(6)
    texts = [" ".join(f"word{n}" for n in random.integers(20, size=9)) for _ in range(12)]
    predicted = [
        (number, entity["text"].split()[0])
        for number, answer in enumerate(model.predict(texts))
        for entity in answer["entities"]
    ]
    record = model.explain(texts, methods=["rollout"], answers=9)
    explained = [
        (one["text"], one["words"][one["answer_words"][0]]) for one in record["explanations"]
    ]
    assert explained == predicted
    assert len(predicted) > len(texts)
