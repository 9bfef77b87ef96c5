"""The speed of models in the engine on this machine, and the choice of a student's size by it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import progress, say
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.predictor import Request, split_requests
from bertsmith.engine.prepared import Prepared as Engine
from bertsmith.engine.prepared import prepare_model
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil.config import DistilConfig
from bertsmith.recipes.distil.student import student_encoder
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.recipes.resources import layer_weights
from bertsmith.tasks.answering import TaskAnswering

# texts answered together, those answered one by one, and turns of each
_TEXTS, _SINGLE, _TURNS = 256, 32, 5
# widths that are tried, in shares of the teacher's
_WIDTHS = (1.0, 0.75, 0.5, 0.375, 0.25)
# more weights than this share of what the target allows are not tried
_HOPELESS = 2.0
_TURNS_OF_A_SIZE = 3


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of a model in the engine on this machine."""

    bulk: float
    """Texts a second, many together."""
    single: float
    """Seconds of one text by itself, the median."""
    engine: str
    """Precision, backend and threads."""


def sample_requests(
    prepared: Prepared, labels: tuple[str, ...]
) -> tuple[TaskAnswering, list[Request[Any]]]:
    """Return the answering of dev rows, and the requests of a sample spread over them."""
    answering = TaskAnswering(
        task=prepared.task, tokenizer=prepared.tokenizer, labels=labels, limits=prepared.limits
    )
    rows = prepared.data.dev[:: max(1, len(prepared.data.dev) // _TEXTS)][:_TEXTS]
    return answering, split_requests(rows, answering.encode(rows))


def measure_speeds(
    models: Mapping[str, Model],
    answering: TaskAnswering,
    requests: Sequence[Request[Any]],
    *,
    turns: int = _TURNS,
    single: int = _SINGLE,
) -> dict[str, Speed]:
    """Measure models in turns, so that other work on the machine slows all alike.

    The models are changed: their encoders only answer afterwards.
    """
    engines = {name: prepare_model(model, EngineConfig()) for name, model in models.items()}
    bulk: dict[str, list[float]] = {name: [] for name in engines}
    alone: dict[str, list[float]] = {name: [] for name in engines}
    # the first turn warms up
    for repetition in range(turns + 1):
        for name, engine in engines.items():
            seconds = _seconds(engine, answering, [requests])
            one_by_one = _seconds(engine, answering, [[request] for request in requests[:single]])
            if repetition:
                bulk[name] += seconds
                alone[name] += one_by_one
    return {
        name: Speed(
            bulk=len(requests) / statistics.median(bulk[name]),
            single=statistics.median(alone[name]) if alone[name] else 0.0,
            engine=str(engine),
        )
        for name, engine in engines.items()
    }


def _seconds(
    engine: Engine, answering: TaskAnswering, request_groups: Sequence[Sequence[Request[Any]]]
) -> list[float]:
    predictor, seconds = engine.predictor(answering), []
    for requests in request_groups:
        started = time.perf_counter()
        predictor.run(requests)
        seconds.append(time.perf_counter() - started)
    return seconds


def choose_student(config: DistilConfig, teacher: Model, prepared: Prepared) -> EncoderConfig:
    """Return the student's encoder: of the size asked for, or the largest that is fast enough.

    Raises `ConfigError` where none is.
    """
    encoder = teacher.config.encoder
    if config.student.size is not None:
        return student_encoder(encoder, *config.student.size, config.student)
    target = config.student.speedup
    answering, requests = sample_requests(prepared, teacher.config.labels)
    best = 0.0
    with progress("measuring students of several sizes", None) as bar:
        for candidate in _candidates(config, encoder):
            if layer_weights(candidate) > _HOPELESS * layer_weights(encoder) / target:
                continue
            shape = f"{candidate.layers}/{candidate.hidden}"
            bar.note(shape)
            # measured side by side, as the speed of a machine changes with the time
            speeds = measure_speeds(
                {"teacher": _fresh(teacher, encoder), "student": _fresh(teacher, candidate)},
                answering,
                requests,
                turns=_TURNS_OF_A_SIZE,
                single=0,
            )
            times = speeds["student"].bulk / speeds["teacher"].bulk
            best = max(best, times)
            if times >= target:
                say(
                    f"student {shape}: {times:.1f} times as fast as the teacher "
                    f"({speeds['student'].bulk:,.0f} texts/s; {speeds['student'].engine})"
                )
                return candidate
    raise ConfigError(
        f"no student of the sizes tried is {target:g} times as fast as the teacher, the fastest "
        f"{best:.1f} times",
        remedy="lower --target, or name a size with --student",
    )


def _candidates(config: DistilConfig, teacher: EncoderConfig) -> Iterator[EncoderConfig]:
    """Yield encoders smaller than the teacher's, those with the most weights first."""
    candidates = []
    for share in _WIDTHS:
        width = round(share * teacher.hidden / teacher.heads) * teacher.heads
        if share < 1 and ("distilbert" in config.method or not width):
            continue
        layers = range(1, teacher.layers if share == 1 else teacher.layers + 1)
        candidates += [student_encoder(teacher, number, width, config.student) for number in layers]
    yield from sorted(candidates, key=layer_weights, reverse=True)


def _fresh(teacher: Model, encoder: EncoderConfig) -> Model:
    """Return a model with the teacher's head and an encoder of random weights, to be measured."""
    config: ModelConfig = replace(teacher.config, encoder=encoder)
    return build_model(config, seed=0).to(teacher.device)
