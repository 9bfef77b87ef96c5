"""Losses of the tasks against torch's own formulas, sequence by sequence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, kl_divergence

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.distillation import LOGITS, Answer, SoftTargets
from bertsmith.objectives.objective import Loss, Objective
from bertsmith.objectives.tasks import Choose, Classify, MultiLabel, Regress, Relevance, Span, Tag
from bounds import close_losses

ENCODER = EncoderConfig(
    vocabulary=99, hidden=32, layers=2, heads=4, feed_forward=37, longest=23, dropout=0.0,
    attention_dropout=0.0, initial_std=0.3,
)  # fmt: skip
LENGTHS = (13, 7, 2, 19, 5, 11)


def model(predicts: Predicts, labels: tuple[str, ...] = ()) -> Model:
    config = ModelConfig(
        encoder=ENCODER, predicts=predicts, labels=labels, classifier_dropout=0.0,
        pooler=predicts not in ("tags", "span"),
    )  # fmt: skip
    return build_model(config, seed=3)


def batch(name: str, positions: list[int], labels: Tensor) -> Batch:
    random = np.random.default_rng(5)
    ids = [random.integers(5, 99, length) for length in LENGTHS]
    target = Target(positions=torch.tensor(positions), labels=labels)
    return pack(ids, [np.zeros(length, np.int64) for length in LENGTHS], {name: target})


def test_windows_of_one_text_are_averaged_before_the_softmax() -> None:
    one = model("class", ("a", "b", "c"))
    asked = batch("classify", [0, 2, 5], torch.tensor([2, 0, 1]))
    logits = one.classify(one.encoder(asked), asked)
    means = torch.stack([logits[:2].mean(0), logits[2:5].mean(0), logits[5]])
    loss = Objective({"classify": Classify()})(one, asked).parts["classify"]
    expected = F.cross_entropy(means, torch.tensor([2, 0, 1]), reduction="sum")
    close_losses(loss.sum, expected)
    assert loss.count == 3


def test_classes_can_be_weighted() -> None:
    logits = torch.randn(13, 4, generator=torch.Generator().manual_seed(1))
    labels, weights = torch.arange(13) % 4, torch.tensor([0.5, 2.0, 1.0, 3.0])
    own = -logits.double().log_softmax(-1)[torch.arange(13), labels]
    expected = float((own * weights[labels]).sum())
    found = cross_entropy(logits, labels, 0.0, weights)
    assert found.sum.item() == pytest.approx(expected)
    assert found.correct == (logits.argmax(-1) == labels).sum()


def test_every_label_is_told_for_itself() -> None:
    one = model("classes", ("a", "b", "c"))
    truth = (torch.arange(18).view(6, 3) % 5 < 2).float()
    asked = batch("classify", list(range(6)), truth)
    logits = one.classify(one.encoder(asked), asked).double()
    own = -(truth * F.logsigmoid(logits) + (1 - truth) * F.logsigmoid(-logits))
    found = Objective({"classify": MultiLabel()})(one, asked).parts["classify"]
    close_losses(found.sum, own.mean(-1).sum())
    assert found.correct == ((logits > 0) == (truth > 0)).all(-1).sum()
    smooth = truth * 0.8 + 0.1
    both = -(smooth * F.logsigmoid(logits) + (1 - smooth) * F.logsigmoid(-logits))
    smoothed = Objective({"classify": MultiLabel(smoothing=0.2)})(one, asked).parts["classify"]
    close_losses(smoothed.sum, both.mean(-1).sum())
    weighted = MultiLabel(weights=(2.0, 3.0, 4.0))
    found = Objective({"classify": weighted})(one, asked).parts["classify"]
    own = torch.where(truth > 0, own * torch.tensor([2.0, 3.0, 4.0]), own)
    close_losses(found.sum, own.mean(-1).sum())


def test_numbers_are_compared_in_units_of_their_spread() -> None:
    one = model("number", ("number",))
    truth = torch.tensor([1.0, 250.0, -3.0, 40.0, 0.0, 7.0])
    asked = batch("regress", list(range(6)), truth)
    said = one.classify(one.encoder(asked), asked)[:, 0].double()
    found = Objective({"regress": Regress(mean=40.0, spread=90.0)})(one, asked)
    expected = (said - (truth - 40) / 90).square().sum()
    close_losses(found.parts["regress"].sum, expected)
    nearer = (said * 90 + 40 - truth).abs() < (40 - truth).abs()
    assert found.parts["regress"].correct == nearer.sum()
    # large numbers that differ little, as Julian days do
    days = 2_459_000 + (truth.double() - 40) / 900
    found = Objective({"regress": Regress(mean=2_459_000.0, spread=0.1)})(
        one, batch("regress", list(range(6)), days)
    )
    close_losses(found.parts["regress"].sum, expected)
    share = batch("rank", list(range(6)), torch.tensor([1.0, 0.0, 0.5, 0.0, 1.0, 1.0]))
    loss = Objective({"rank": Relevance()})(one, share).parts["rank"]
    wanted = share.targets["rank"].labels
    own = F.binary_cross_entropy_with_logits(said, wanted.double(), reduction="sum")
    close_losses(loss.sum, own)
    assert loss.correct == ((said > 0) == (wanted > 0.5)).sum()


def test_options_compete_within_their_question_only() -> None:
    one = model("choice")
    asked = batch("choose", [0, 2, 5], torch.tensor([1, 2, 0]))
    scores = one.choose(one.encoder(asked), asked).double()
    expected = -(
        scores[:2].log_softmax(0)[1] + scores[2:5].log_softmax(0)[2] + scores[5:].log_softmax(0)[0]
    )
    loss = Objective({"choose": Choose()})(one, asked).parts["choose"]
    close_losses(loss.sum, expected)
    best = [int(part.argmax()) for part in scores.split([2, 3, 1])]
    assert loss.correct == sum(map(int.__eq__, best, [1, 2, 0]))
    loss.sum.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in one.parameters())


def test_tags_are_read_at_their_tokens_only() -> None:
    one = model("tags", ("O", "B-x", "I-x"))
    places = [1, 3, 14, 22, 40]
    asked = batch("tag", places, torch.tensor([0, 1, 2, 0, 1]))
    logits = one.tag(one.encoder(asked).last)[places].double()
    expected = F.cross_entropy(logits, torch.tensor([0, 1, 2, 0, 1]), reduction="sum")
    objective = Objective({"tag": Tag()})
    assert objective.selected_tokens(one, asked) is not None
    close_losses(objective(one, asked).parts["tag"].sum, expected)


def test_spans_begin_and_end_in_their_own_window() -> None:
    one = model("span")
    labels = torch.tensor([[3, 5], [0, 0], [1, 1], [0, 18], [2, 4], [0, 0]])
    asked = batch("span", list(range(6)), labels)
    logits = one.span(one.encoder(asked).last).double()
    expected, right = 0.0, 0
    for part, (start, end) in zip(logits.split(list(LENGTHS)), labels.tolist(), strict=True):
        expected -= (part[:, 0].log_softmax(0)[start] + part[:, 1].log_softmax(0)[end]).item() / 2
        right += part.argmax(0).tolist() == [start, end]
    loss = Objective({"span": Span()})(one, asked).parts["span"]
    close_losses(loss.sum, expected)
    assert (loss.count, int(loss.correct)) == (6, right)


HEADS: dict[Answer, tuple[Predicts, tuple[str, ...]]] = {
    "classes": ("classes", ("a", "b", "c")),
    "relevance": ("number", ("relevance",)),
    "tags": ("tags", ("O", "B-x", "I-x")),
    "choice": ("choice", ()),
    "span": ("span", ()),
}


def soft_loss(answer: Answer, at: list[int]) -> tuple[Loss, Tensor, Tensor]:
    """The loss at temperature 3, and the logits of student and teacher in float64."""
    one = model(*HEADS[answer])
    asked = batch("soft", at, torch.zeros(len(at), dtype=torch.long))
    encoded = one.encoder(asked)
    own = {
        "tags": lambda: one.tag(encoded.last[at]),
        "span": lambda: one.span(encoded.last),
        "choice": lambda: one.choose(encoded, asked)[:, None],
    }.get(answer, lambda: one.classify(encoded, asked))()
    taught = torch.randn(own.shape, generator=torch.Generator().manual_seed(2)) * 2
    asked = dataclasses.replace(asked, given={LOGITS: taught})
    term = SoftTargets(answer, temperature=3.0, weight=0.7)
    loss = Objective({"soft": term})(one, asked).parts["soft"]
    assert (loss.count, loss.weight) == (len(at), 0.7)
    return loss, own.detach().double(), taught.double()


@pytest.mark.parametrize("answer", ["classes", "relevance"])
def test_a_teacher_is_followed_in_each_label_for_itself(answer: Answer) -> None:
    loss, own, taught = soft_loss(answer, list(range(6)))
    apart = kl_divergence(Bernoulli(logits=taught / 3), Bernoulli(logits=own / 3))
    close_losses(loss.sum, 9 * apart.mean(-1).sum())
    assert loss.correct == ((own > 0) == (taught > 0)).all(-1).sum()


@pytest.mark.parametrize("answer", ["tags", "choice", "span"])
def test_a_teacher_is_followed_among_the_choices_of_each_row(answer: Answer) -> None:
    at = {"tags": [1, 3, 14, 22, 40], "choice": [0, 2, 5], "span": list(range(6))}[answer]
    loss, own, taught = soft_loss(answer, at)
    # what a softmax is over: labels, options of a question, or tokens of a window, twice
    size = {"tags": [1] * 5, "choice": [2, 3, 1], "span": list(LENGTHS)}[answer]
    expected, agreed = 0.0, 0
    for mine, theirs in zip(own.split(size), taught.split(size), strict=True):
        rows = (mine, theirs) if answer == "tags" else (mine.T, theirs.T)
        student, teacher = (Categorical(logits=row / 3) for row in rows)
        expected += 9 * float(kl_divergence(teacher, student).mean())
        agreed += int((student.mode == teacher.mode).all())
    close_losses(loss.sum, expected)
    assert loss.correct == agreed


def test_a_teacher_of_numbers_is_followed_in_units_of_their_spread() -> None:
    one = model("number", ("number",))
    asked = batch("soft", list(range(6)), torch.zeros(6))
    own = one.classify(one.encoder(asked), asked).double()
    taught = torch.tensor([[1.0], [250.0], [-3.0], [40.5], [0.0], [7.0]])
    asked = dataclasses.replace(asked, given={LOGITS: taught})
    term = SoftTargets("number", mean=40.0, spread=90.0)
    found = Objective({"soft": term})(one, asked).parts["soft"]
    close_losses(found.sum, (own - (taught.double() - 40) / 90).square().sum())
