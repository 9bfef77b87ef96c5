"""Planning of a budget: the default size of a new network, and the division of the minutes.

A network learns most from a budget when it reads about 20 tokens for each weight of its layers
(Hoffmann et al. 2022, section 3: Chinchilla), and repeating the text more than 16 times has no
further benefit (Muennighoff et al. 2023, section 6). So the default is the largest published size
that reads so much in the given time, at its measured speed on this machine, from a corpus of this
length.

The cost of what follows training is measured beforehand on this machine and reserved; how much
held-out text is read depends on the minutes. A budget of steps has no time limit: all held-out text
is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.pretraining import PhasedBatches, PretrainingBatches
from bertsmith.core.errors import ConfigError, MissingExtra
from bertsmith.core.files import write_json
from bertsmith.core.log import progress, short_number
from bertsmith.core.printable import counted
from bertsmith.network.config import ModelConfig, Precision
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.pretrain.config import PretrainRun
from bertsmith.recipes.pretrain.preflight import shares_of
from bertsmith.recipes.pretrain.report import HeldOutPlan, evaluate_objective
from bertsmith.recipes.pretrain.speed import MAX_SECONDS, TrainedCopy, measure, two_digits
from bertsmith.recipes.resources import layer_weights
from bertsmith.reports.curves import curves_svg
from bertsmith.reports.training import CURVES
from bertsmith.store.store import TokenStore
from bertsmith.training.replicas import LossFunction
from bertsmith.training.run_folder import HELD_OUT_PLAN, RunFolder
from bertsmith.training.schedule import Costs

SIZES = ("tiny", "mini", "small", "medium", "base")
TOKENS_A_WEIGHT, USEFUL_TIMES = 20, 16
# shares of the minutes: for trying one size, and for everything but steps
_TRYING, _NO_STEPS = 0.01, 0.25


@dataclass(frozen=True, kw_only=True)
class SizeChoice:
    """A size, and why it was chosen."""

    size: str
    reason: str


def pick_size(
    weights: Mapping[str, float], tokens_of: Callable[[str], float], corpus: int, time: str
) -> SizeChoice:
    """Choose among sizes, in growing order of their `weights`, for a corpus of tokens.

    `tokens_of` returns how many tokens a size reads in the budget; a larger one reads no more than
    a smaller one, and is measured only if that would be enough.
    """
    sizes = list(weights)
    chosen, read = sizes[0], tokens_of(sizes[0])
    max_useful = USEFUL_TIMES * corpus
    wanting = ""
    for size in sizes[1:]:
        tokens_wanted = TOKENS_A_WEIGHT * weights[size]
        tokens_read = tokens_of(size) if min(read, max_useful) >= tokens_wanted else read
        if min(tokens_read, max_useful) < tokens_wanted:
            wanting = (
                f"; {size} would need {short_number(tokens_wanted)}, {TOKENS_A_WEIGHT} for each of "
                f"the {short_number(weights[size])} weights in its layers"
            )
            if max_useful < tokens_read:
                wanting += f", and text read more than {USEFUL_TIMES} times teaches nothing new"
            break
        chosen, read = size, tokens_read
    return SizeChoice(
        size=chosen,
        reason=f"size {chosen}, since no --model is given: it reads about {short_number(read)} "
        f"tokens in {time}, the corpus {two_digits(read / max(corpus, 1))} times{wanting}",
    )


def choose_size(
    run: PretrainRun,
    store: TokenStore,
    network_of: Callable[[str], ModelConfig],
    device: torch.device,
    *,
    sizes: Sequence[str] = SIZES,
    processes: int,
    replicas: int,
) -> SizeChoice:
    """Choose among `sizes` for a new run; `network_of` returns the config of a size."""
    budget, settings, precision = run.budget, run.settings, run.precision
    configs = {sizes[0]: network_of(sizes[0])}
    for size in sizes[1:]:
        # not every family has all of them
        with suppress(ConfigError):
            configs[size] = network_of(size)
    batches = PhasedBatches(
        store, store.tokenizer(), settings.samples, settings.phases, settings.seed
    )

    notes: dict[str, str] = {}

    def tokens_of(size: str) -> float:
        if budget.steps is not None:
            a_step = processes * settings.gradient_accumulation * settings.samples.tokens_per_batch
            return float(budget.steps * a_step)
        assert budget.minutes is not None
        seconds = 60 * budget.minutes
        model = build_model(configs[size], seed=settings.seed).to(device)
        objective = objective_of(configs[size], seed=settings.seed)
        costs = measure(
            TrainedCopy(model, objective, settings.optimiser, precision),
            list(zip(shares_of(settings.phases), batches.parts, strict=True)),
            seconds=min(MAX_SECONDS, _TRYING * seconds),
        )
        accumulate = settings.gradient_accumulation
        costs = replace(costs, accumulate=accumulate, processes=processes, replicas=replicas)
        notes[size] = next((trial.note for trial in costs.trials if trial.note), "")
        return costs.outcome(budget, _NO_STEPS * seconds)[2]

    if budget.steps is None:
        time = counted(budget.minutes or 0, "minute") + " here"
    else:
        time = counted(budget.steps, "step")
    weights = {size: layer_weights(config.encoder) for size, config in configs.items()}
    choice = pick_size(weights, tokens_of, store.tokens, time)
    return replace(choice, reason=choice.reason + notes.get(choice.size, ""))


# shares of the minutes: all measurements, the evaluation, finding out what they cost
_MEASURING, _EVALUATING, _PROBING = 0.05, 0.05, 0.01
_MIN_TOKENS = 8_000
# assumed until a checkpoint has been timed, for a busy machine
_BYTES_A_SECOND, _MIN_SAVING = 1e8, 0.2
# the tables of the report, and the exit of the process, which is slower if startup was
_LEAVING, _LEAVING_OF_STARTUP = 0.5, 0.35


def plan_time(
    run: PretrainRun,
    model: Model,
    objective: LossFunction,
    held_out: PretrainingBatches | None,
    folder: RunFolder,
    startup: float = 0.0,
) -> tuple[HeldOutPlan, Costs]:
    """Return a plan for held-out text, and the cost of reading it and of saving.

    A resumed run reads the same as before, so that its measurements can be compared. `startup` is
    the time that the process took to start, in seconds.
    """
    full_plan = HeldOutPlan(measurements=run.settings.measurements)
    if run.budget.minutes is None:
        return full_plan, Costs()
    seconds = 60 * run.budget.minutes
    with progress("measuring what evaluation and saving cost", None):
        speeds = dict.fromkeys(("training", "evaluation"), float("inf"))
        if held_out is not None:
            limit = _PROBING * seconds
            precisions: dict[str, Precision] = {"training": run.precision, "evaluation": "fp32"}
            speeds = {
                name: _reading_speed(model, objective, held_out, precision, limit)
                for name, precision in precisions.items()
            }
        drawing = _drawing_seconds()
    path, tokens = folder.path / HELD_OUT_PLAN, 0 if held_out is None else held_out.store.tokens
    if path.exists():
        plan = HeldOutPlan.load(path)
    else:
        plan = _fit_to_budget(full_plan, seconds, tokens, speeds["training"], speeds["evaluation"])
        write_json(path, plan.to_dict())
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    saving = _MIN_SAVING + size / _BYTES_A_SECOND
    leaving = _LEAVING + _LEAVING_OF_STARTUP * startup
    evaluation = min(plan.evaluated_tokens, tokens) / speeds["evaluation"]
    return plan, Costs(
        measurement=min(plan.measured_tokens, tokens) / speeds["training"],
        # weights and two moments of each
        checkpoint=3 * saving,
        afterwards=evaluation + saving + CURVES * drawing + leaving,
    )


def _fit_to_budget(
    full_plan: HeldOutPlan, seconds: float, held_out: int, training: float, evaluation: float
) -> HeldOutPlan:
    """Return the number and size of the measurements that their shares of the time allow.

    `training` and `evaluation` are tokens per second, in the number format of each.
    """
    counts = [count for count in (10, 5, 2, 1) if count < full_plan.measurements]
    for count in filter(None, (full_plan.measurements, *counts)):
        affordable = _MEASURING * seconds * training / count
        if affordable >= min(_MIN_TOKENS, held_out):
            break
    else:
        count, affordable = 0, 0.0
    return HeldOutPlan(
        measurements=count,
        measured_tokens=_halve_until(full_plan.measured_tokens, affordable),
        evaluated_tokens=_halve_until(
            full_plan.evaluated_tokens, _EVALUATING * seconds * evaluation
        ),
    )


def _halve_until(tokens: int, affordable: float) -> int:
    """Halve a number of tokens until affordable, so that similar runs read the same number."""
    while tokens > affordable and tokens // 2 >= _MIN_TOKENS:
        tokens //= 2
    return tokens


def _reading_speed(
    model: Model,
    objective: LossFunction,
    batches: PretrainingBatches,
    precision: Precision,
    limit: float,
) -> float:
    """Return tokens of held-out text per second, measured in about `limit` seconds."""
    whole, _ = batches.next_batch(DataPosition())
    sequences = min(2, whole.sequences)
    started = time.perf_counter()
    while True:
        batch = batches.samples(np.arange(sequences), 0)
        seconds = _seconds(
            partial(evaluate_objective, model, objective, [batch], precision=precision)
        )
        spent = time.perf_counter() - started
        # the next one takes up to four times as long
        if sequences == whole.sequences or spent + 4 * seconds > limit:
            return batch.tokens / seconds
        sequences = min(4 * sequences, whole.sequences)


def _drawing_seconds() -> float:
    """Return the time of one figure of the report; 0 if there will be no report."""
    points = [(float(x), 1.0 / (1 + x)) for x in range(150)]

    def draw() -> None:
        curves_svg({"a": points, "b": points}, name="", x_label="", y_label="", percent=False)

    try:
        draw()  # loads its imports
    except MissingExtra:
        return 0.0
    return _seconds(draw)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return max(time.perf_counter() - started, 1e-9)
