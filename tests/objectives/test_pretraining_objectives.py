"""Sentence order and left-to-right language modelling, against their formulas."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.core.errors import ConfigError
from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig, Pooled
from bertsmith.network.model import Model, build_model
from bertsmith.objectives import pretraining as module
from bertsmith.objectives.pretraining import PRETRAINING
from bounds import close_gradients, close_losses
from families import ENCODERS

ENCODER = EncoderConfig(
    vocabulary=99, hidden=32, layers=2, heads=4, feed_forward=37, longest=23, dropout=0.0,
    attention_dropout=0.0, initial_std=0.3, causal=True,
)  # fmt: skip
LENGTHS = (13, 7, 2, 19)


@pytest.fixture
def model() -> Model:
    return build_model(ModelConfig(encoder=ENCODER, masked_lm=True, next_sentence=True), seed=3)


def batch() -> Batch:
    random = np.random.default_rng(4)
    ids = [random.integers(5, 99, length) for length in LENGTHS]
    packed = pack(ids, [np.zeros(length, np.int64) for length in LENGTHS])
    at = torch.tensor([n for n in range(sum(LENGTHS)) if n not in (12, 19, 21, 40)])
    return dataclasses.replace(
        packed, targets={"left_to_right": Target(positions=at, labels=packed.ids[at + 1])}
    )


def gradients(model: Model) -> dict[str, Tensor]:
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def test_left_to_right_is_the_chain_rule(model: Model) -> None:
    """The loss is minus the log probability of each token after reading what precedes it only."""
    packed, logs, right = batch(), [], 0
    with torch.no_grad():
        for ids in packed.ids.split(LENGTHS):
            for length in range(1, len(ids)):
                prefix = ids[:length].numpy()
                read = pack([prefix], [np.zeros(length, np.int64)])
                logits = model.masked_lm(model.encoder(read).last[-1:])[0].double()
                logs.append(float(logits.log_softmax(-1)[ids[length]]))
                right += int(logits.argmax() == ids[length])
    loss = PRETRAINING(model, packed).parts["left_to_right"]
    assert loss.count == len(logs) == sum(LENGTHS) - len(LENGTHS)
    close_losses(loss.sum, -sum(logs))
    assert int(loss.correct) == right


def test_logits_in_slices_give_the_same_loss_and_gradients(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PRETRAINING(model, batch())
    whole.total().backward()
    expected = gradients(model)
    monkeypatch.setattr(module, "_LOGITS", 5 * 99)
    shapes: list[int] = []
    model.heads["masked_lm"].register_forward_hook(lambda *each: shapes.append(len(each[-1])))
    sliced = PRETRAINING(model, batch())
    assert shapes == [5] * 7 + [2]
    sliced.total().backward()
    assert len(shapes) == 16
    parts = whole.parts["left_to_right"], sliced.parts["left_to_right"]
    assert parts[0].count == parts[1].count
    assert int(parts[0].correct) == int(parts[1].correct)
    close_losses(parts[1].sum, parts[0].sum)
    found = gradients(model)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        close_gradients(found[name], gradient, name)


def test_an_encoder_that_sees_both_sides_is_refused() -> None:
    both = dataclasses.replace(ENCODER, causal=False)
    with pytest.raises(ConfigError, match="causal"):
        PRETRAINING(build_model(ModelConfig(encoder=both, masked_lm=True), seed=3), batch())


def test_sentence_order_is_cross_entropy_where_there_is_a_label(model: Model) -> None:
    target = Target(positions=torch.tensor([0, 3]), labels=torch.tensor([1, 0]))
    packed = dataclasses.replace(batch(), targets={"sentence_order": target})
    losses = PRETRAINING(model, packed)
    logits = model.next_sentence(model.encoder(packed), packed)
    expected = F.cross_entropy(logits, torch.tensor([1, -100, -100, 0]))
    assert list(losses.parts) == ["sentence_order"]
    assert losses.parts["sentence_order"].count == 2
    close_losses(losses.total(), expected)


POOLED: dict[Pooled, EncoderConfig] = {
    "first": dataclasses.replace(ENCODER, causal=False),
    "last": dataclasses.replace(ENCODER, pooled="last"),
    "mean": dataclasses.replace(ENCODERS["modernbert"], pooled="mean"),
}


def test_only_what_is_read_is_asked_of_the_last_layer() -> None:
    tokens = pack([np.arange(5, 25), np.arange(5, 45)], [np.zeros(20, int), np.zeros(40, int)])
    masked = Target(positions=torch.tensor([3, 20, 50]), labels=torch.tensor([7, 8, 9]))
    paired = Target(positions=torch.tensor([1]), labels=torch.tensor([0]))
    many = Target(positions=torch.arange(40), labels=torch.arange(40))

    def read(pooled: Pooled = "first", **targets: Target) -> list[int] | None:
        asked = dataclasses.replace(tokens, targets=targets)
        with torch.device("meta"):
            model = Model(ModelConfig(encoder=POOLED[pooled], predicts="choice"))
        found = PRETRAINING.selected_tokens(model, asked)
        return None if found is None else found.tolist()

    assert read(masked_lm=masked) == [3, 20, 50]
    assert read(masked_lm=masked, next_sentence=paired) == [0, 3, 20, 50]
    assert read(sentence_order=paired) == [0, 20]
    assert read(masked_lm=masked, something_else=paired) == [3, 20, 50]
    assert read(masked_lm=many) is None
    assert read() is None
    # of a causal encoder the last tokens, of a mean all
    assert read("last", next_sentence=paired) == [19, 59]
    assert read("mean", next_sentence=paired) is None
