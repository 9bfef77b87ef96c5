"""Operations counted from sizes are those that torch counts while it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts, encoder_of
from bertsmith.network.flops import Work, forward_flops, training_flops, work_of
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.pretraining import PRETRAINING, MaskedLM

LENGTHS, MASKED = (64, 32, 96, 32), (2, 3, 9, 64, 170)
# where as much is asked of sequences of one length, a multiple of 32, attention has no spare rows
EQUAL, ONE_EACH = (64, 64, 64, 64), (2, 70, 170, 200)
ENCODER = EncoderConfig(vocabulary=99, hidden=24, layers=3, heads=4, feed_forward=37, longest=96)

MODERN = replace(
    ENCODER, family="modernbert", segments=0, positions="rotary", gated=True, norm="before",
    biases=False, pooling="gelu", window=15,
)  # fmt: skip


def batch(lengths: tuple[int, ...] = LENGTHS, positions: tuple[int, ...] = MASKED) -> Batch:
    generator = np.random.default_rng(0)
    ids = [generator.integers(5, 99, length) for length in lengths]
    masked = Target(positions=torch.tensor(positions), labels=torch.arange(7, 7 + len(positions)))
    paired = Target(positions=torch.tensor([0, 1, 2, 3]), labels=torch.tensor([0, 1, 1, 0]))
    targets = {"masked_lm": masked, "next_sentence": paired}
    return replace(pack(ids, [np.zeros_like(id_) for id_ in ids]), targets=targets)


class Everywhere(MaskedLM):
    """Reads the last layer at all tokens."""

    def selected_tokens(self, model: Model, batch: Batch, target: Target) -> None:
        return None


@pytest.mark.parametrize("encoder", [ENCODER, replace(ENCODER, embedding=20, groups=1)])
@pytest.mark.parametrize("last_needed", [False, True])
def test_a_training_step_takes_what_torch_counts(last_needed: bool, encoder: EncoderConfig) -> None:
    # a multiple of 64: the gradient of another table has spare rows, which are no work to count
    encoder = replace(encoder, vocabulary=128)
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    model = build_model(config, seed=1).train()
    objective = (
        PRETRAINING if last_needed else Objective({**PRETRAINING.terms, "masked_lm": Everywhere()})
    )
    with FlopCounterMode(display=False) as counter:
        losses = objective(model, batch(EQUAL, ONE_EACH))
        forward = counter.get_total_flops()
        losses.total().backward()
    work = work_of(batch(EQUAL, ONE_EACH), last_needed=last_needed)
    assert forward == forward_flops(config, work)
    assert counter.get_total_flops() == training_flops(config, work)


@pytest.mark.parametrize("last_needed", [False, True])
@pytest.mark.parametrize("predicts", [None, "tags"])
def test_gates_and_a_layer_below_every_head_are_counted(
    last_needed: bool, predicts: Predicts | None
) -> None:
    """Layers that see all: of those with a window torch also counts what nobody sees."""
    labels = ("a", "b") if predicts else ()
    config = ModelConfig(
        encoder=MODERN, masked_lm=not predicts, pooler=bool(predicts), predicts=predicts,
        labels=labels,
    )  # fmt: skip
    model, packed = build_model(config, seed=1).train(), batch(EQUAL, ONE_EACH)
    read = torch.tensor([0, 2, 64, 70, 128, 170, 192, 200]) if last_needed else None
    with FlopCounterMode(display=False) as counter:
        hidden = model.encoder(packed, selected=read).last
        if predicts:
            model.tag(hidden)
        else:
            model.masked_lm(hidden[: len(ONE_EACH)])
    work = work_of(packed, last_needed=last_needed)
    assert counter.get_total_flops() == forward_flops(config, work)


def test_work_is_read_off_the_batch() -> None:
    squares = 64**2 + 32**2 + 96**2 + 32**2
    whole = Work(tokens=224, pairs=squares, targets=5, sequences=4)
    assert work_of(batch()) == whole
    # the first tokens are 0, 64, 96 and 192; 64 is a target as well, 170 in the third
    needed = replace(whole, last_tokens=8, last_pairs=4 * 64 + 32 + 2 * 96 + 32)
    assert work_of(batch(), last_needed=True) == needed


def test_layers_with_a_window_are_counted_by_what_their_tokens_see() -> None:
    owner = torch.repeat_interleave(torch.tensor(LENGTHS))
    place = torch.arange(len(owner))
    near = ((place[:, None] - place).abs() <= 7) & (owner[:, None] == owner)
    work = work_of(batch(), window=15, last_needed=True)
    assert work.last_pairs is not None
    assert work.near_pairs is not None
    assert work.near_pairs == near.sum()
    assert work.last_near_pairs is not None
    assert work.last_near_pairs == near[[0, 2, 3, 9, 64, 96, 170, 192]].sum()
    assert work.pairs == work_of(batch()).pairs
    # of five layers the first and the fourth see all
    five = replace(MODERN, layers=5, global_every=3)
    local, everywhere = (
        forward_flops(ModelConfig(encoder=item, pooler=False), work)
        for item in (five, replace(five, global_every=1))
    )
    saved = 2 * (work.pairs - work.near_pairs) + work.last_pairs - work.last_near_pairs
    assert everywhere - local == 4 * 24 * saved


def test_what_is_not_needed_earns_nothing() -> None:
    config = ModelConfig(encoder=ENCODER, masked_lm=True, pooler=False)
    whole, part = work_of(batch()), work_of(batch(), last_needed=True)
    skipped = forward_flops(config, whole) - forward_flops(config, part)
    rows, pairs = 224 - 8, whole.pairs - (4 * 64 + 32 + 2 * 96 + 32)
    assert skipped == rows * 2 * (2 * 24**2 + 2 * 24 * 37) + pairs * 4 * 24


def test_bert_base_needs_six_operations_a_weight_and_token() -> None:
    """12 layers of 12 H^2 weights, on 8 sequences of 512 tokens."""
    config = ModelConfig(encoder=encoder_of("bert", "base", 30_522), pooler=False)
    weights = 12 * 12 * 768**2
    work = Work(tokens=4096, pairs=8 * 512**2)
    attention = 12 * 12 * 768 * 8 * 512**2
    assert training_flops(config, work) == pytest.approx(6 * weights * 4096 + attention, rel=1e-12)
