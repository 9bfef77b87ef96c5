"""Operations counted from sizes are those that torch counts while it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertsmith.batches.batch import Batch, Target, pack
from bertsmith.models.bert import bert
from bertsmith.models.encoder import EncoderConfig
from bertsmith.models.flops import Work, forward_flops, training_flops, work_of
from bertsmith.models.model import ModelConfig, build_model
from bertsmith.objectives.pretraining import PRETRAINING

# attention on a processor fills up to multiples of 32
LENGTHS = (64, 32, 96, 32)
ENCODER = EncoderConfig(vocabulary=99, hidden=24, layers=3, heads=4, feed_forward=37, longest=96)


def batch() -> Batch:
    generator = np.random.default_rng(0)
    ids = [generator.integers(5, 99, length) for length in LENGTHS]
    masked = Target(at=torch.tensor([2, 3, 9, 64, 170]), labels=torch.tensor([7, 8, 9, 10, 11]))
    paired = Target(at=torch.tensor([0, 1, 2, 3]), labels=torch.tensor([0, 1, 1, 0]))
    targets = {"masked_lm": masked, "next_sentence": paired}
    return replace(pack(ids, [np.zeros_like(each) for each in ids]), targets=targets)


@pytest.mark.parametrize("encoder", [ENCODER, replace(ENCODER, embedding=20, groups=1)])
@pytest.mark.parametrize("last_needed", [False, True])
def test_a_training_step_takes_what_torch_counts(last_needed: bool, encoder: EncoderConfig) -> None:
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    model = build_model(config, seed=1).train()
    objective = PRETRAINING if last_needed else replace(PRETRAINING, at_targets=None)
    with FlopCounterMode(display=False) as counter:
        losses = objective(model, batch())
        forward = counter.get_total_flops()
        losses.total().backward()
    work = work_of(batch(), last_needed=last_needed)
    assert forward == forward_flops(config, work)
    assert counter.get_total_flops() == training_flops(config, work)


def test_work_is_read_off_the_batch() -> None:
    squares = 64**2 + 32**2 + 96**2 + 32**2
    whole = Work(tokens=224, pairs=squares, targets=5, sequences=4)
    assert work_of(batch()) == whole
    # the first tokens are 0, 64, 96 and 192; 64 is a target as well, 170 in the third
    needed = replace(whole, last_tokens=8, last_pairs=4 * 64 + 32 + 2 * 96 + 32)
    assert work_of(batch(), last_needed=True) == needed


def test_what_is_not_needed_earns_nothing() -> None:
    config = ModelConfig(encoder=ENCODER, masked_lm=True, pooler=False)
    whole, part = work_of(batch()), work_of(batch(), last_needed=True)
    skipped = forward_flops(config, whole) - forward_flops(config, part)
    rows, pairs = 224 - 8, whole.pairs - (4 * 64 + 32 + 2 * 96 + 32)
    assert skipped == rows * 2 * (2 * 24**2 + 2 * 24 * 37) + pairs * 4 * 24


def test_bert_base_needs_six_operations_a_weight_and_token() -> None:
    """12 layers of 12 H^2 weights, on 8 sequences of 512 tokens."""
    config = ModelConfig(encoder=bert("base", 30_522), pooler=False)
    weights = 12 * 12 * 768**2
    work = Work(tokens=4096, pairs=8 * 512**2)
    attention = 12 * 12 * 768 * 8 * 512**2
    assert training_flops(config, work) == pytest.approx(6 * weights * 4096 + attention, rel=1e-12)
