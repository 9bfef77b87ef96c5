"""Losses: their formulas, and batches of one step adding up to one large batch."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.objective import Losses, Objective
from bertsmith.objectives.pretraining import MaskedLM, NextSentence
from bertsmith.objectives.tasks import Classify
from bounds import close_gradients, close_losses

ENCODER = EncoderConfig(
    vocabulary=99, hidden=32, layers=2, heads=4, feed_forward=37, longest=23, dropout=0.0,
    attention_dropout=0.0, initial_std=0.3,
)  # fmt: skip
LENGTHS = (13, 7, 2, 19, 5, 11)
OBJECTIVE = Objective(
    {"masked_lm": MaskedLM(), "next_sentence": NextSentence(), "classify": Classify(smoothing=0.1)}
)


@pytest.fixture
def model() -> Model:
    config = ModelConfig(
        encoder=ENCODER, masked_lm=True, next_sentence=True, predicts="class",
        labels=("a", "b", "c", "d", "e"), classifier_dropout=0.0,
    )  # fmt: skip
    return build_model(config, seed=3)


def batch(first: int = 0, last: int = len(LENGTHS)) -> Batch:
    """Some of six sequences, each the same whichever are asked for."""
    ids, kinds, at, words, start = [], [], [], [], 0
    for number in range(first, last):
        generator = np.random.default_rng(number)
        ids.append(generator.integers(5, 99, LENGTHS[number]))
        kinds.append(generator.integers(0, 2, LENGTHS[number]))
        chosen = np.flatnonzero(generator.random(LENGTHS[number]) < 0.1 * (number + 1))
        at.append(chosen + start)
        words.append(generator.integers(5, 99, len(chosen)))
        start += LENGTHS[number]
    numbers = torch.arange(first, last)
    targets = {
        "masked_lm": Target(
            positions=torch.from_numpy(np.concatenate(at)),
            labels=torch.from_numpy(np.concatenate(words)),
        ),
        "next_sentence": Target(positions=numbers - first, labels=numbers // 2 % 2),
        "classify": Target(positions=numbers - first, labels=numbers % 5),
    }
    return pack(ids, kinds, targets)


def gradients(model: Model) -> dict[str, Tensor]:
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def test_cross_entropy_is_minus_the_log_of_the_right_one() -> None:
    logits = torch.randn(13, 7, generator=torch.Generator().manual_seed(1)) * 4
    labels = torch.arange(13) % 7
    loss = cross_entropy(logits, labels)
    exact = logits.double().exp()
    right = exact[torch.arange(13), labels] / exact.sum(-1)
    close_losses(loss.sum, -right.log().sum())
    assert loss.count == 13
    assert int(loss.correct) == int((exact.argmax(-1) == labels).sum())


def test_smoothing_gives_every_class_its_share() -> None:
    logits = torch.randn(13, 7, generator=torch.Generator().manual_seed(1)) * 4
    labels = torch.arange(13) % 7
    wanted = torch.full((13, 7), 0.2 / 7, dtype=torch.float64)
    wanted[torch.arange(13), labels] += 0.8
    expected = -(wanted * logits.double().log_softmax(-1)).sum()
    close_losses(cross_entropy(logits, labels, 0.2).sum, expected)


def test_losses_are_float32_under_autocast() -> None:
    logits = torch.randn(13, 7, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(logits, torch.zeros(13, dtype=torch.long))
    assert loss.sum.dtype == torch.float32
    close_losses(loss.sum, -logits.double().log_softmax(-1)[:, 0].sum())


@torch.no_grad()
def test_terms_are_the_losses_over_their_targets(model: Model) -> None:
    packed = batch()
    parts = OBJECTIVE(model, packed).parts
    encoded = model.encoder(packed)
    words = torch.full((packed.tokens,), -100)
    words[packed.targets["masked_lm"].positions] = packed.targets["masked_lm"].labels
    everywhere = F.cross_entropy(model.masked_lm(encoded.last), words, ignore_index=-100)
    mean = {name: float(loss.sum) / loss.count for name, loss in parts.items()}
    close_losses(mean["masked_lm"], everywhere)
    following = F.cross_entropy(
        model.next_sentence(encoded, packed), packed.targets["next_sentence"].labels
    )
    close_losses(mean["next_sentence"], following)
    kinds = torch.tensor([0, 1, 2, 3, 4, 0])
    classes = F.cross_entropy(model.classify(encoded, packed), kinds, label_smoothing=0.1)
    close_losses(mean["classify"], classes)
    counts = {name: loss.count for name, loss in parts.items()}
    assert counts == {"masked_lm": int((words >= 0).sum()), "next_sentence": 6, "classify": 6}


def test_totals_of_a_step_add_up_to_one_large_batch(model: Model) -> None:
    whole = OBJECTIVE(model, batch())
    total = whole.total()
    total.backward()
    expected = gradients(model)

    pieces = [batch(0, 1), batch(1, 4), batch(4, 6)]
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update({name: len(target) for name, target in piece.targets.items()})
    assert counts == {name: loss.count for name, loss in whole.parts.items()}
    assert len({len(piece.targets["masked_lm"]) for piece in pieces}) == 3
    added = torch.zeros(())
    for piece in pieces:
        part = OBJECTIVE(model, piece).total(counts)
        part.backward()
        added += part.detach()
    close_losses(added, total)
    found = gradients(model)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        close_gradients(found[name], gradient, name)


def test_a_term_without_targets_adds_nothing(model: Model) -> None:
    none = Target(
        positions=torch.zeros(0, dtype=torch.long), labels=torch.zeros(0, dtype=torch.long)
    )
    packed = batch()
    empty = dataclasses.replace(packed, targets={**packed.targets, "masked_lm": none})
    losses = OBJECTIVE(model, empty)
    assert losses.parts["masked_lm"].count == 0
    others = {name: part for name, part in losses.parts.items() if name != "masked_lm"}
    assert torch.equal(losses.total(), Losses(parts=others).total())
    losses.total().backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


def test_only_the_terms_whose_targets_are_there_are_computed(model: Model) -> None:
    packed = batch()
    some = dataclasses.replace(packed, targets={"classify": packed.targets["classify"]})
    runs: list[int] = []
    model.encoder.register_forward_hook(lambda *_: runs.append(1))
    assert list(OBJECTIVE(model, some).parts) == ["classify"]
    assert list(OBJECTIVE(model, packed).parts) == ["masked_lm", "next_sentence", "classify"]
    assert len(runs) == 2
