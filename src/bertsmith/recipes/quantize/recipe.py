"""A model folder that is opened in int8 from then on, or a refusal.

Nothing is converted: the native kernels quantise the weights when a folder is opened, a scale for
each output, and what goes into each product by tokens.
"""

from __future__ import annotations

from shutil import copytree
from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import say
from bertsmith.core.ownership import new_folder
from bertsmith.engine.config import EngineConfig, Number
from bertsmith.engine.native import cannot
from bertsmith.engine.prepared import Prepared, multiplies_bf16, prepare_model
from bertsmith.hub.models import model_folder
from bertsmith.recipes.config import QuantizeConfig
from bertsmith.recipes.quantize.gate import (
    by_precision,
    judged_answering,
    measure_precisions,
    read_gate,
    refuse_slow_or_worse,
    show_measurements,
)
from bertsmith.weights.folder import load_model
from bertsmith.weights.quantized import write_quantized
from bertsmith.weights.sentence_folder import read_sentence_folder


def quantize(config: QuantizeConfig) -> dict[str, Any]:
    """Measure int8 beside the other precisions, and write a folder that is opened in int8.

    Raises `ConfigError`, after the table, where int8 is not faster than the fastest other precision
    of this processor or not as good as the gate asks; `ModelFolderError` for a model that cannot be
    computed in int8, `ExampleError` for its examples.
    """
    folder = model_folder(config.model)
    sentence = read_sentence_folder(folder)
    network = folder if sentence is None else sentence.network
    loaded, tokenizer = load_model(network)
    if reason := cannot(loaded.config.encoder, "int8"):
        raise ConfigError(f"no int8 products: {reason}", remedy="leave the model as it is")
    answering = judged_answering(loaded, tokenizer, sentence, config.length, where=config.model)
    gate = read_gate(answering, loaded.config, config.calibrate, config.dev, config.reading)
    engines: list[Prepared] = []
    precisions: tuple[Number, ...] = ("fp32", "bf16", "int8")
    for precision in precisions:
        if precision != "bf16" or multiplies_bf16():
            fresh, _ = load_model(network)
            engines.append(
                prepare_model(fresh, EngineConfig(precision=precision, threads=config.threads))
            )
    predictors = {each.precision: each.predictor(answering) for each in engines}
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
        copytree(folder, fresh_folder, dirs_exist_ok=True)
        write_quantized(fresh_folder, figures)
    say(f"{config.out} answers in int8; its weights are those of {config.model}")
    return {"precision": "int8", "measured": figures}
