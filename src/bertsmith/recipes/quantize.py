"""Answers in int8, where that is faster on this processor and as good: `bertsmith quantize`.

Nothing is converted: the native kernels quantise the weights when a folder is opened, a scale for
each output, and what goes into each product by tokens. The folder says that it is opened in int8.

Before that precisions are measured beside each other on the user's texts, and int8 is refused where
it is not worth it (`precision_gate`); the int8 of `bertsmith export` goes through the same gate.
"""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile
from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.core.files import name_is_taken
from bertsmith.core.log import say
from bertsmith.core.ownership import claimed_output, new_folder
from bertsmith.engine.config import EngineConfig, Number
from bertsmith.engine.native import unsupported_reason
from bertsmith.engine.prepared import Prepared, multiplies_packed_bf16, prepare_model
from bertsmith.hub.models import model_folder
from bertsmith.recipes.config import QuantizeConfig
from bertsmith.recipes.precision_gate import (
    by_precision,
    judged_answering,
    measure_precisions,
    read_gate,
    refuse_slow_or_worse,
    show_measurements,
)
from bertsmith.weights.folder import load_model, write_quantized
from bertsmith.weights.sentence_folder import read_sentence_folder
from bertsmith.weights.versions import FolderVersion


def quantize(config: QuantizeConfig) -> dict[str, Any]:
    """Measure int8 beside the other precisions, and write a folder that is opened in int8.

    Raises `ConfigError`, after the table, where int8 is not faster than the fastest other precision
    of this processor or not as good as the gate asks; `ModelFolderError` for a model that cannot be
    computed in int8, `ExampleError` for its examples.
    """
    with claimed_output(config.out):
        if name_is_taken(config.out):
            raise ConfigError(f"--out is {config.out}, which exists", remedy="choose another name")
        return _quantize(config)


def _quantize(config: QuantizeConfig) -> dict[str, Any]:
    """Measure, judge and write."""
    folder = model_folder(config.model)
    version = FolderVersion.of(folder)
    sentence = read_sentence_folder(folder)
    network = folder if sentence is None else sentence.network
    loaded, tokenizer = load_model(network)
    if reason := unsupported_reason(loaded.config.encoder, "int8"):
        raise ConfigError(f"no int8 products: {reason}", remedy="leave the model as it is")
    answering = judged_answering(loaded, tokenizer, sentence, config.length, where=config.model)
    gate = read_gate(answering, loaded.config, config.calibrate, config.dev, config.reading)
    engines: list[Prepared] = []
    precisions: tuple[Number, ...] = ("fp32", "bf16", "int8")
    for precision in precisions:
        if precision != "bf16" or multiplies_packed_bf16():
            fresh, _ = load_model(network)
            engines.append(
                prepare_model(fresh, EngineConfig(precision=precision, threads=config.threads))
            )
    predictors = {engine.precision: engine.predictor(answering) for engine in engines}
    measured = measure_precisions(predictors, gate)
    show_measurements(measured, gate)
    refuse_slow_or_worse(measured)
    figures: dict[str, Any] = {
        "instructions": engines[-1].instructions,
        "threads": engines[-1].threads,
        **gate.counts,
        "precisions": by_precision(measured),
    }
    with new_folder(config.out) as fresh_folder:
        _copy_files(folder, fresh_folder)
        # what was measured is what was copied
        version.check()
        write_quantized(fresh_folder, figures)
    say(f"{config.out} answers in int8; its weights are those of {config.model}")
    return {"precision": "int8", "measured": figures}


def _copy_files(folder: Path, to: Path) -> None:
    """Copy what a model folder holds, hidden files and their permissions aside.

    What is hidden is no part of a model: a history of git, or `to` itself where it is in `folder`.
    A read-only folder, whose permissions a copy would have, could not be completed or deleted.
    """
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            (to / path.name).mkdir()
            _copy_files(path, to / path.name)
        else:
            copyfile(path, to / path.name)
