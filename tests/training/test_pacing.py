"""Budgets of minutes, on a clock that the tests move."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.clock import Clock
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.pretraining import MaskedLM
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training import state as training_state
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Budget, FitConfig, ScheduleConfig
from bertsmith.training.distribution import ALONE
from bertsmith.training.loop import Session, fit
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Costs, Pacing, Timing
from bertsmith.training.state import Measure, Measurement
from invented import invented_documents

OBJECTIVE = Objective({"masked_lm": MaskedLM()})
STEP, MEASUREMENT, AFTERWARDS = 1.5, 4.0, 7.0


class Wall:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Slow:
    """Batches whose drawing moves the clock; one of them asks for a stop, as Ctrl-C does."""

    def __init__(self, batches: PretrainingBatches, wall: Wall, stop_at: int = -1) -> None:
        self._batches, self._wall, self._left = batches, wall, stop_at

    def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        self._wall.time += STEP
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return self._batches.next_batch(place)


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which a checkpoint takes no time, as it would be kept free for the next one."""
    monkeypatch.setattr(training_state, "time", SimpleNamespace(monotonic=lambda: 0.0))


@pytest.fixture(scope="module")
def batches(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> PretrainingBatches:
    folder = tmp_path_factory.mktemp("paced") / "store"
    prepare_store(invented_documents(30), tokenizer, folder, held_out=0.0)
    config = SampleConfig(max_length=16, tokens_per_batch=64, text="within_documents")
    return PretrainingBatches(TokenStore(folder), tokenizer, config, seed=3)


def model_of(batches: PretrainingBatches) -> Model:
    encoder = EncoderConfig(
        vocabulary=batches.store.tokenizer().size,
        hidden=14,
        layers=1,
        heads=2,
        feed_forward=19,
        longest=16,
    )
    return build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=5)


def config_of(minutes: float, **changes: int) -> FitConfig:
    return replace(
        FitConfig(budget=Budget(minutes=minutes), log_every=1, precision="fp32"),
        **changes,  # type: ignore[arg-type]
    )


def measuring(wall: Wall) -> Measure:
    def measure(model: Model, stopping: Callable[[], bool]) -> Measurement:
        wall.time += MEASUREMENT
        return Measurement(1.0, {"masked_lm_loss": 1.0})

    return measure


def timing_on(wall: Wall, began: float | None = None) -> Timing:
    costs = Costs(measurement=0.1, checkpoint=0.0, afterwards=AFTERWARDS)
    return Timing(clock=Clock(began, wall), costs=costs)


@pytest.mark.parametrize("measurements", [0, 5])
def test_minutes_are_those_of_the_clock(
    batches: PretrainingBatches, tmp_path: Path, measurements: int
) -> None:
    """What came before training counts, so do measurements, and time for the rest is left."""
    wall, folder = Wall(), RunFolder(tmp_path)
    config = config_of(2.0, measurements=measurements)
    state = fit(
        config, model_of(batches), OBJECTIVE, Slow(batches, wall),
        measure=measuring(wall), folder=folder,
        session=Session(timing=timing_on(wall, began=wall.time - 30)),
    )  # fmt: skip
    # no thread and no disk moves this clock
    assert wall.time - 970 == pytest.approx(120 - AFTERWARDS, abs=STEP)
    assert state.elapsed == pytest.approx(wall.time - 970)
    for_steps = 120 - 30 - AFTERWARDS - measurements * MEASUREMENT
    assert state.step == pytest.approx(for_steps / STEP, abs=1)
    assert state.seconds == pytest.approx(state.step * STEP)
    assert state.measured == measurements
    rates = [line["rate"] for line in folder.log() if "rate" in line]
    assert rates[0] == 0
    # the last step is made with what is left of a linear decay before it
    assert rates[-1] == pytest.approx(config.optimiser.learning_rate / (0.9 * state.step), rel=0.5)
    falling = rates[rates.index(max(rates)) :]
    steps = [before - after for before, after in itertools.pairwise(falling)]
    # evenly, whatever the pauses between two steps
    assert min(steps[2:]) > 0.5 * max(steps[2:])


@pytest.mark.parametrize("slowness", [3, 12])
def test_measurements_on_a_busy_machine_are_left_out_rather_than_steps(
    batches: PretrainingBatches, tmp_path: Path, slowness: int
) -> None:
    """What one took was once set aside for all that followed, and the run ended at the first."""
    wall = Wall()

    def measure(model: Model, stopping: Callable[[], bool]) -> Measurement:
        wall.time += slowness * MEASUREMENT
        return Measurement(1.0, {"masked_lm_loss": 1.0})

    folder = RunFolder(tmp_path)
    state = fit(
        config_of(2.0, measurements=10), model_of(batches), OBJECTIVE, Slow(batches, wall),
        measure=measure, folder=folder, session=Session(timing=timing_on(wall)),
    )  # fmt: skip
    assert wall.time - 1000 == pytest.approx(120 - AFTERWARDS, abs=STEP)
    measured = sum("held_out_masked_lm_loss" in line for line in folder.log())
    assert measured == {3: 2, 12: 1}[slowness]
    measuring = measured * slowness * MEASUREMENT
    assert state.step == pytest.approx((120 - AFTERWARDS - measuring) / STEP, abs=1)
    rates = [line["rate"] for line in folder.log() if "rate" in line]
    assert rates[-1] < 0.1 * max(rates)


def test_a_run_that_a_long_measurement_ended_has_ended(
    batches: PretrainingBatches, tmp_path: Path
) -> None:
    """Its last checkpoint did not know of the measurement: the same command trained on."""
    wall, folder = Wall(), RunFolder(tmp_path)

    def measure(model: Model, stopping: Callable[[], bool]) -> Measurement:
        wall.time += 60
        return Measurement(1.0, {"masked_lm_loss": 1.0})

    def run() -> State:
        return fit(
            config_of(2.0, measurements=2), model_of(batches), OBJECTIVE, Slow(batches, wall),
            measure=measure, folder=folder, session=Session(timing=timing_on(wall)),
        )  # fmt: skip

    ended = run()
    assert ended.elapsed == wall.time - 1000 > 120 - AFTERWARDS
    assert run().step == ended.step
    assert wall.time == 1000 + ended.elapsed


def test_a_resumed_run_goes_on_with_the_minutes_it_had_left(
    batches: PretrainingBatches, tmp_path: Path
) -> None:
    wall, folder = Wall(), RunFolder(tmp_path)
    with pytest.raises(Interrupted):
        fit(
            config_of(2.0), model_of(batches), OBJECTIVE, Slow(batches, wall, stop_at=40),
            folder=folder, session=Session(timing=timing_on(wall)),
        )  # fmt: skip
    assert wall.time == 1000 + 40 * STEP
    wall.time += 86_400
    began, wall.time = wall.time, wall.time + 5
    state = fit(
        config_of(2.0), model_of(batches), OBJECTIVE, Slow(batches, wall),
        folder=folder, session=Session(timing=timing_on(wall, began)),
    )  # fmt: skip
    assert state.elapsed == pytest.approx(120 - AFTERWARDS, abs=STEP)
    assert wall.time - began == pytest.approx(60 - AFTERWARDS, abs=STEP)
    rates = [line["rate"] for line in folder.log() if "rate" in line]
    assert len(rates) == state.step
    # no jump where it was stopped, and zero in the end
    assert abs(rates[40] - rates[39]) < 3 * abs(rates[39] - rates[38])
    assert rates[-1] < 0.05 * max(rates)
    # a budget that is spent makes no other step
    again = fit(
        config_of(2.0), model_of(batches), OBJECTIVE, Slow(batches, wall),
        folder=folder, session=Session(timing=timing_on(wall)),
    )  # fmt: skip
    assert again.step == state.step


def test_a_resumed_run_without_minutes_for_steps_says_so(
    batches: PretrainingBatches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wall, folder = Wall(), RunFolder(tmp_path)
    with pytest.raises(Interrupted):
        fit(
            config_of(2.0), model_of(batches), OBJECTIVE, Slow(batches, wall, stop_at=40),
            folder=folder, session=Session(timing=timing_on(wall)),
        )  # fmt: skip
    began, wall.time = wall.time, wall.time + 55
    state = fit(
        config_of(2.0), model_of(batches), OBJECTIVE, Slow(batches, wall),
        folder=folder, session=Session(timing=timing_on(wall, began)),
    )  # fmt: skip
    assert state.step == 40
    told = " ".join(capsys.readouterr().err.split())
    assert "no minutes are left for steps: 1.00 were spent before" in told
    assert "the weights stay those of step 40" in told


@pytest.mark.parametrize("warmup", [0.1, 0.0])
def test_too_few_minutes_make_one_step(
    batches: PretrainingBatches, capsys: pytest.CaptureFixture[str], warmup: float
) -> None:
    """At the first rate of a warm-up, which is 0, it changes nothing, and that is said."""
    wall, model, before = Wall(), model_of(batches), model_of(batches).state_dict()
    state = fit(
        replace(config_of(0.1), schedule=ScheduleConfig(warmup=warmup)), model, OBJECTIVE,
        Slow(batches, wall), session=Session(timing=timing_on(wall)),
    )  # fmt: skip
    assert state.step == 1
    same = all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    said = "the learning rate of the only step was 0, so nothing was learned: give more --minutes"
    assert same == (said in " ".join(capsys.readouterr().err.split())) == (warmup > 0)


@pytest.mark.parametrize("speed", [0.25, 4.0])
def test_the_share_follows_the_clock_when_the_machine_changes_its_speed(speed: float) -> None:
    """A machine that another program slows down halfway ends in time all the same.

    A checkpoint that takes less than was kept free for it leaves more time, and no share is less.
    """
    wall, state = Wall(), State()
    costs = Costs(checkpoint=9.0, afterwards=9.0)
    pacing = Pacing(
        Budget(minutes=10.0), Timing(clock=Clock(None, wall), costs=costs), ALONE,
        lambda state: 0, lambda: None if wall.time < 1200 else 1.0,
    )  # fmt: skip
    state = pacing.begin(state)
    shares = [0.0]
    while shares[-1] < 1:
        seconds = STEP if wall.time < 1300 else STEP / speed
        wall.time += seconds
        state = pacing.stepped(replace(state, step=state.step + 1), seconds)
        shares.append(pacing.spent(state))
    assert wall.time == pytest.approx(1590, abs=STEP / speed)
    assert shares == sorted(shares)


def test_steps_know_no_clock() -> None:
    wall = Wall()
    pacing = Pacing(
        Budget(steps=4), Timing(clock=Clock(None, wall)), ALONE, lambda state: 0, lambda: None
    )
    state = pacing.begin(State())
    wall.time += 1e6
    state = pacing.stepped(replace(state, step=1), 1e6)
    assert pacing.spent(state) == 0.25
    assert state.elapsed == 1e6
