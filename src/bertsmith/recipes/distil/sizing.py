"""The choice of a student's size: as asked for, or by the speed that the engine measures here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import progress, say
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil.comparison import asked_of, measure_speeds
from bertsmith.recipes.distil.config import DistilConfig
from bertsmith.recipes.distil.student import student_encoder
from bertsmith.recipes.finetune.inputs import Prepared

# widths in shares of the teacher's
_WIDTHS = (1.0, 0.75, 0.5, 0.375, 0.25)
# more weights than this share of what the target allows are not tried
_HOPELESS = 2.0
_TURNS = 3


def choose_student(config: DistilConfig, teacher: Model, prepared: Prepared) -> EncoderConfig:
    """Return the student's encoder: of the size asked for, or the largest that is fast enough.

    Raises `ConfigError` where none is.
    """
    encoder = teacher.config.encoder
    if config.student.size is not None:
        return student_encoder(encoder, *config.student.size, config.student)
    target = config.student.speedup
    answering, requests = asked_of(prepared, teacher.config.labels)
    best = 0.0
    with progress("measuring students of several sizes", None) as bar:
        for candidate in _candidates(config, encoder):
            if _weights(candidate) > _HOPELESS * _weights(encoder) / target:
                continue
            shape = f"{candidate.layers}/{candidate.hidden}"
            bar.note(shape)
            # measured side by side, as the speed of a machine changes with the time
            speeds = measure_speeds(
                {"teacher": _fresh(teacher, encoder), "student": _fresh(teacher, candidate)},
                answering,
                requests,
                turns=_TURNS,
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
    found = []
    for share in _WIDTHS:
        width = round(share * teacher.hidden / teacher.heads) * teacher.heads
        if share < 1 and ("distilbert" in config.method or not width):
            continue
        layers = range(1, teacher.layers if share == 1 else teacher.layers + 1)
        found += [student_encoder(teacher, number, width, config.student) for number in layers]
    yield from sorted(found, key=_weights, reverse=True)


def _weights(encoder: EncoderConfig) -> float:
    """Return the weights in the matrices of all layers."""
    matrices = 4 * encoder.hidden + (3 if encoder.gated else 2) * encoder.feed_forward
    return float(encoder.layers * encoder.hidden * matrices)


def _fresh(teacher: Model, encoder: EncoderConfig) -> Model:
    """Return a model with the teacher's head and an encoder of random weights, to be measured."""
    config: ModelConfig = replace(teacher.config, encoder=encoder)
    return build_model(config, seed=0).to(teacher.device)
