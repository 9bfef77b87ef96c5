"""What stands in a line of the log, against counts made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.flops import training_flops, work_of
from bertsmith.objectives.objective import Loss, Losses
from bertsmith.training.checkpoints import State
from bertsmith.training.state import MetricSums

CONFIG = ModelConfig(encoder=encoder_of("bert", "tiny", 97, longest=41), masked_lm=True)


def batch(*lengths: int) -> Batch:
    packed = pack([np.arange(n) for n in lengths], [np.zeros(n, np.int64) for n in lengths])
    target = Target(positions=torch.tensor([1, 2]), labels=torch.tensor([3, 4]))
    return replace(packed, targets={"masked_lm": target})


def line_after(figures: MetricSums, state: State) -> dict[str, float]:
    return figures.line(state, rate=1e-3, peak=1e9)


def test_speed_padding_and_utilisation_stand_in_every_line() -> None:
    figures = MetricSums()
    drawn = [batch(7, 9), batch(5)]
    figures.add_work(CONFIG, drawn)
    figures.add_step(21, 0.5, norm=2.0)
    figures.add_work(CONFIG, drawn)
    figures.add_step(21, 1.5, norm=4.0)
    state = State(step=2, seconds=2.0, tokens=42, place=DataPosition(epoch=1, index=3, phase=1))
    line = line_after(figures, state)
    flops = 2 * sum(training_flops(CONFIG, work_of(item, last_needed=True)) for item in drawn)
    assert line["tokens_per_second"] == 21
    assert line["padding"] == 0.0
    assert line["mfu"] == pytest.approx(flops / 2.0 / 1e9, abs=1e-4)
    assert (line["gradient_norm"], line["epoch"], line["phase"]) == (3.0, 1, 1)
    assert "padding 0 %" in figures.note(line)
    assert f"MFU {100 * line['mfu']:.0f} %" in figures.note(line)


def test_tokens_of_no_sequence_are_padding() -> None:
    whole = batch(7, 9)
    padded = replace(whole, offsets=torch.tensor([0, 7, 12]), lengths=(7, 5))
    figures = MetricSums()
    figures.add_work(CONFIG, [padded])
    figures.add_step(16, 1.0, norm=1.0)
    line = line_after(figures, State(step=1, seconds=1.0, tokens=16))
    assert line["padding"] == 4 / 16
    assert "padding 25 %" in figures.note(line)


def test_a_skipped_step_counts_for_its_time_alone() -> None:
    figures = MetricSums()
    figures.add_losses(
        Losses(parts={"masked_lm": Loss(sum=torch.tensor(6.0), count=2, correct=torch.tensor(1))})
    )
    figures.add_work(CONFIG, [batch(8)])
    figures.add_step(8, 1.0, norm=3.0)
    figures.add_work(CONFIG, [batch(8)])
    figures.add_step(8, 1.0, norm=None)
    line = line_after(figures, State(step=2, seconds=2.0, tokens=16, skipped=1))
    assert (line["gradient_norm"], line["masked_lm_loss"], line["skipped"]) == (3.0, 3.0, 1)
    assert figures.note(line).endswith("masked LM 3.000 (50 %) · 1 skipped")


def test_steps_that_were_all_skipped_have_no_norm() -> None:
    figures = MetricSums()
    figures.add_work(CONFIG, [batch(8)])
    figures.add_step(8, 1.0, norm=None)
    line = line_after(figures, State(step=1, seconds=1.0, tokens=8, skipped=1))
    assert "gradient_norm" not in line
    assert line["tokens_per_second"] == 8
