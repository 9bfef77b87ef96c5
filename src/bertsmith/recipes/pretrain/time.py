"""Division of the minutes of a pre-training run: checks, steps, held-out text and saving.

The cost of what follows training is measured beforehand on this machine and reserved; how much
held-out text is read depends on the minutes. A budget of steps has no time limit: all held-out text
is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from bertsmith.batches import DataPosition
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import MissingExtra
from bertsmith.core.json_files import write_json
from bertsmith.core.log import progress
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.model import Model
from bertsmith.recipes.pretrain.config import PretrainRun
from bertsmith.recipes.pretrain.evaluation import (
    HeldOutPlan,
    Objective,
    evaluate_objective,
    held_out_batches,
)
from bertsmith.reports.page import curves_svg
from bertsmith.reports.training import CURVES
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import HELD_OUT_PLAN, RunFolder
from bertsmith.training.schedule import Costs

# shares of the minutes: all measurements, the evaluation, finding out what they cost
_MEASURING, _EVALUATING, _PROBING = 0.05, 0.05, 0.01
_LEAST_TOKENS = 8_000
# assumed until a checkpoint has been timed, for a busy machine
_BYTES_A_SECOND, _LEAST_SAVING = 1e8, 0.2
# the tables of the report, and the exit of the process, which is slower if startup was
_LEAVING, _LEAVING_OF_STARTUP = 0.5, 0.35


def plan_time(
    run: PretrainRun,
    model: Model,
    objective: Objective,
    tokenizer: Tokenizer,
    store: TokenStore,
    folder: RunFolder,
    startup: float = 0.0,
) -> tuple[HeldOutPlan, Costs]:
    """Return how much held-out text is read, and the cost of that and of saving.

    A resumed run reads the same as before, so that its measurements can be compared. `startup` is
    the time that the process took to start, in seconds.
    """
    wanted = HeldOutPlan(measurements=run.settings.measurements)
    if run.budget.minutes is None:
        return wanted, Costs()
    seconds = 60 * run.budget.minutes
    batches = held_out_batches(tokenizer, store, run.settings.samples)
    with progress("measuring what evaluation and saving cost", None):
        speeds = dict.fromkeys(("training", "evaluation"), float("inf"))
        if batches is not None:
            limit = _PROBING * seconds
            precisions: dict[str, Precision] = {
                "training": run.settings.precision,
                "evaluation": "fp32",
            }
            speeds = {
                name: _reading_speed(model, objective, batches, precision, limit)
                for name, precision in precisions.items()
            }
        drawing = _drawing_seconds()
    path, held_out = folder.path / HELD_OUT_PLAN, 0 if batches is None else batches.store.tokens
    if path.exists():
        plan = HeldOutPlan.load(path)
    else:
        plan = _sized(wanted, seconds, held_out, speeds["training"], speeds["evaluation"])
        write_json(path, plan.to_dict())
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    saving = _LEAST_SAVING + size / _BYTES_A_SECOND
    leaving = _LEAVING + _LEAVING_OF_STARTUP * startup
    evaluation = min(plan.evaluated_tokens, held_out) / speeds["evaluation"]
    return plan, Costs(
        measurement=min(plan.measured_tokens, held_out) / speeds["training"],
        # weights and two moments of each
        checkpoint=3 * saving,
        afterwards=evaluation + saving + CURVES * drawing + leaving,
    )


def _sized(
    wanted: HeldOutPlan, seconds: float, held_out: int, training: float, evaluation: float
) -> HeldOutPlan:
    """Return the number and size of the measurements that their shares of the time allow.

    `training` and `evaluation` are tokens per second, in the number format of each.
    """
    counts = [count for count in (10, 5, 2, 1) if count < wanted.measurements]
    for count in filter(None, (wanted.measurements, *counts)):
        affordable = _MEASURING * seconds * training / count
        if affordable >= min(_LEAST_TOKENS, held_out):
            break
    else:
        count, affordable = 0, 0.0
    return HeldOutPlan(
        measurements=count,
        measured_tokens=_halved(wanted.measured_tokens, affordable),
        evaluated_tokens=_halved(wanted.evaluated_tokens, _EVALUATING * seconds * evaluation),
    )


def _halved(tokens: int, affordable: float) -> int:
    """Halve a number of tokens until affordable, so that similar runs read the same number."""
    while tokens > affordable and tokens // 2 >= _LEAST_TOKENS:
        tokens //= 2
    return tokens


def _reading_speed(
    model: Model,
    objective: Objective,
    batches: PretrainingBatches,
    precision: Precision,
    limit: float,
) -> float:
    """Return tokens of held-out text per second, measured in about `seconds`."""
    whole, _ = batches.next_batch(DataPosition())
    sequences = min(2, whole.sequences)
    began = time.perf_counter()
    while True:
        batch = batches.samples(np.arange(sequences), 0)
        seconds = _seconds(partial(_read, model, objective, batch, precision))
        spent = time.perf_counter() - began
        # the next one takes up to four times as long
        if sequences == whole.sequences or spent + 4 * seconds > limit:
            return batch.tokens / seconds
        sequences = min(4 * sequences, whole.sequences)


def _read(model: Model, objective: Objective, batch: Batch, precision: Precision) -> object:
    return evaluate_objective(model, objective, [batch], precision=precision)


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
    began = time.perf_counter()
    call()
    return max(time.perf_counter() - began, 1e-9)
