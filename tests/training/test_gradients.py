from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import TrainingDiverged
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Losses
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.pretrain.config import PretrainSettings
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training import loop
from bertsmith.training.checkpoints import Checkpoints, State
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig, ScheduleConfig
from bertsmith.training.gradients import Gradient, GradientGuard
from bertsmith.training.loop import fit
from bertsmith.training.peak import Peak
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.state import Evaluator, Measurement

STEPS = 24
BAD = 20  # where what is too large comes: by then there are enough steps to know what is usual

# no checkpoint is read
LIKE_PRETRAINING = {"spike": PretrainSettings().spike, "checkpoint_minutes": 60.0}


class Run:
    """A small run that may be shown one unfit gradient."""

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, place: Path) -> None:
        samples = SampleConfig(max_length=41, tokens_per_batch=300)
        encoder = EncoderConfig(
            vocabulary=tokenizer.size, hidden=28, layers=2, heads=7, feed_forward=37, longest=41
        )
        self.batches = PretrainingBatches(store, tokenizer, samples, seed=3)
        config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
        self.model = build_model(config, seed=5)
        self.folder = RunFolder(place)
        self.before: dict[str, Tensor] = {}

    def fit(self, spoil: Callable[[Losses, int], Losses], **changes: object) -> int:
        config = FitConfig(
            budget=Budget(steps=STEPS),
            optimiser=OptimiserConfig(learning_rate=2e-3, matrices="muon"),
            schedule=ScheduleConfig(decay="none", warmup=0),
            precision="fp32",
            gradient_accumulation=2,
            log_every=1,
            spike=10.0,
            checkpoint_minutes=1e-9,
            keep_checkpoints=3,
        )
        calls = 0

        def objective(model: Model, batch: Batch) -> Losses:
            nonlocal calls
            calls += 1
            return spoil(PRETRAINING(model, batch), (calls + 1) // 2)

        config = config.override(**changes)
        return fit(config, self.model, objective, self.batches, folder=self.folder).skipped

    def saved(self, step: int) -> dict[str, Tensor]:
        """Weights and moments after a step."""
        checkpoints = Checkpoints(self.folder.checkpoints)
        path = self.folder.checkpoints / f"step-{step:08}"
        checkpoints._step_folders = lambda: [path]  # type: ignore[method-assign]
        found = checkpoints.load()
        assert found is not None
        return {**found.weights, **{f"moments/{k}": v for k, v in found.optimiser.items()}}


@pytest.fixture
def run(store: TokenStore, tokenizer: Tokenizer, tmp_path: Path) -> Run:
    return Run(store, tokenizer, tmp_path)


def scaled(factor: float, *steps: int) -> Callable[[Losses, int], Losses]:
    """Losses whose gradients are so many times as large in some steps."""

    def spoil(losses: Losses, step: int) -> Losses:
        if step not in steps:
            return losses
        parts = {name: replace(p, sum=p.sum * factor) for name, p in losses.parts.items()}
        return Losses(parts=parts)

    return spoil


def test_a_peak_that_training_exceeds_is_measured_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def machine(*_: object, reached: float = 0.0, **__: object) -> Peak:
        asked.append(reached)
        return Peak(flops=1e18 if reached else 1.0, occasions=1, measured=0.0)

    monkeypatch.setattr(loop, "matrix_peak", machine)
    run.fit(scaled(1.0), budget={"steps": 3})
    assert [request > 1 for request in asked] == [False, True]
    assert [line["peak_gflops"] for line in run.folder.log()] == [1e9] * 3
    assert all(line["mfu"] < 1 for line in run.folder.log())


@pytest.mark.parametrize(("factor", "bad"), [(math.nan, 3), (math.inf, 3), (40.0, BAD)])
def test_an_unfit_step_changes_nothing_and_is_counted(run: Run, factor: float, bad: int) -> None:
    assert run.fit(scaled(factor, bad), budget={"steps": bad + 1}) == 1
    before, after, next_one = (run.saved(step) for step in (bad - 1, bad, bad + 1))
    assert before.keys() == after.keys() == next_one.keys()
    assert any("/momentum_buffer" in name for name in before)
    assert any("/exp_avg_sq" in name for name in before)
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name
    assert not all(torch.equal(tensor, next_one[name]) for name, tensor in after.items())
    lines = run.folder.log()
    assert [line["skipped"] for line in lines] == [0] * (bad - 1) + [1, 1]
    assert "gradient_norm" not in lines[bad - 1]
    assert "masked_lm_loss" not in lines[bad - 1]
    assert lines[bad]["masked_lm_loss"] < 10


def test_tenfold_is_told_from_what_is_usual(run: Run) -> None:
    """The gradient of any ordinary step, times ten, is refused; twice as much is not."""
    assert run.fit(scaled(10.0, *range(18, 24, 2)), **LIKE_PRETRAINING) == 3


def test_twice_as_much_is_no_spike(run: Run) -> None:
    assert run.fit(scaled(2.0, 18, 21), **LIKE_PRETRAINING) == 0
    norms = sorted(line["gradient_norm"] for line in run.folder.log())
    assert norms[-1] < 5 * norms[len(norms) // 2]


def test_a_gradient_alone_that_is_no_number(run: Run) -> None:
    weight = run.model.encoder.embeddings.norm.weight
    calls = 0

    def spoil(gradient: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return gradient * math.nan if calls == 9 else gradient  # in the first half of step 5

    weight.register_hook(spoil)
    assert run.fit(scaled(1.0), budget={"steps": 6}) == 1
    assert [line["skipped"] for line in run.folder.log()] == [0, 0, 0, 0, 1, 1]


def test_a_row_of_them_ends_training(run: Run) -> None:
    with pytest.raises(TrainingDiverged) as diverged:
        run.fit(scaled(math.nan, 2, 5, 6, 7), patience=3)
    assert "loss is nan at step 7; 3 steps in a row were skipped and changed no weight" in str(
        diverged.value
    )
    assert "lower the learning rate" in str(diverged.value)
    assert [line["skipped"] for line in run.folder.log()] == [0, 1, 1, 1, 2, 3]
    for name, tensor in run.saved(4).items():
        if not name.startswith("moments/"):
            assert torch.equal(tensor, run.model.state_dict()[name]), name


def gradient(norm: float) -> Gradient:
    return Gradient(norm=norm, loss=1.0, losses=(), tokens=1)


def test_a_lasting_rise_becomes_what_is_usual() -> None:
    watch = GradientGuard(spike=10, patience=40)
    for step in range(64):
        assert watch.accepts(gradient(0.5), step)
    accepted = [watch.accepts(gradient(7.0), step) for step in range(64, 104)]
    assert accepted == [False] * 32 + [True] * 8


def test_norms_that_are_no_numbers_are_not_usual() -> None:
    watch = GradientGuard(spike=10, patience=2)
    accepted = [
        watch.accepts(gradient(norm), step) for step, norm in enumerate([1.0, math.inf] * 20)
    ]
    assert accepted == [True, False] * 20
    assert watch.accepts(gradient(9.0), 40)
    assert not watch.accepts(gradient(11.0), 41)


def test_the_first_steps_are_free_and_zero_lets_all_pass() -> None:
    watch = GradientGuard(spike=10, patience=2)
    assert all(watch.accepts(gradient(norm), 1) for norm in [0.01] * 15 + [90.0])
    assert not watch.accepts(gradient(90.0), 2)
    watch = GradientGuard(spike=0, patience=2)
    assert all(watch.accepts(gradient(norm), 1) for norm in [0.01] * 50 + [90.0])


def test_what_is_usual_is_remembered() -> None:
    watch, resumed = GradientGuard(spike=10, patience=2), GradientGuard(spike=10, patience=2)
    for step in range(20):
        assert watch.accepts(gradient(1.0), step)
    assert not watch.accepts(gradient(11.0), 20)
    resumed.load_state_dict(watch.state_dict())
    with pytest.raises(TrainingDiverged, match="; 2 steps in a row were skipped"):
        resumed.accepts(gradient(11.0), 21)


def test_batches_without_targets_make_no_gradient_a_spike() -> None:
    watch = GradientGuard(spike=5, patience=2)
    accepted = [
        watch.accepts(gradient(norm), step) for step, norm in enumerate([0.0, 0.0, 0.7] * 9)
    ]
    assert all(accepted)


@pytest.mark.parametrize("count", [22, 49, 107])
def test_every_measurement_comes_after_its_step(count: int) -> None:
    measuring = Evaluator(lambda model, stopping: Measurement(0.0, {}), count)
    budget = Budget(steps=3 * count)
    due = [
        step
        for step in range(3 * count + 1)
        if measuring.due(State(measured=(step - 1) // 3 if step else 0), budget.progress(step))
    ]
    assert due == list(range(3, 3 * count + 1, 3))


@pytest.mark.parametrize(
    ("losses", "best_steps"),
    [
        ([math.nan, 2.0, math.nan, 3.0], [1, 2, 2, 2]),
        ([3.0, 2.0, math.nan, math.nan], [1, 2, 2, 2]),
        # training ends early without a single number as well
        ([math.nan, math.nan, math.nan, math.nan], [1, 1, 1, 1]),
    ],
)
def test_a_measurement_that_is_no_number_is_not_the_best_for_ever(
    losses: list[float], best_steps: list[int]
) -> None:
    encoder = EncoderConfig(vocabulary=5, hidden=2, layers=1, heads=1, feed_forward=3, longest=8)
    model = build_model(ModelConfig(encoder=encoder), seed=1)
    rest = iter(losses)
    measuring = Evaluator(
        lambda model, stopping: Measurement(next(rest), {"figure": 1.0}), 4, stop_after=2
    )
    state, best = State(), []
    for number in range(1, 5):
        found = measuring.measure(model, replace(state, step=number), number / 4, lambda: False)
        assert found is not None
        state, _ = found
        best.append(state.best_step)
    assert best == best_steps
    assert measuring.enough(state)
