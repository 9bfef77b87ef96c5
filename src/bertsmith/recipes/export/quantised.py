"""An int8 variant of an exported file, behind the gate of `bertsmith quantize`.

onnxruntime quantises the weights by output, and what goes into each product by a scale for all of
it, when it runs. Whether that is faster here and as good is measured through onnxruntime, on the
user's texts and labels, with the readers, decoders and scores of the task, or by the vectors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.core.shapes import ClassLogits, Hidden, Scores, SelectedTokens, SpanLogits, TagLogits
from bertsmith.engine.config import Number
from bertsmith.engine.predictor import Predictor
from bertsmith.network.batch import Batch
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.model import Model
from bertsmith.recipes.export.config import ExportConfig
from bertsmith.recipes.export.graph import SENTENCE_OUTPUT, input_names
from bertsmith.recipes.export.program import QUANTISED_FILE
from bertsmith.recipes.export.runtimes import Runtime, open_onnx, padded_inputs
from bertsmith.recipes.quantize import (
    Gate,
    Measurement,
    judged_answering,
    measure_precisions,
    read_gate,
    refuse_slow_or_worse,
    show_measurements,
)
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.sentence_folder import SentenceSettings


class ExportedModel(Model):
    """An exported file in the place of a model with a head for a task, or of one without heads.

    Its encoder runs the file, head and all, and its head returns what came of that. Where the file
    gives the vector of a text, that stands at each of its tokens.
    """

    def __init__(self, config: ModelConfig, runtime: Runtime, *, pad_id: int) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.encoder = _Outputs(config, runtime, pad_id)  # type: ignore[assignment]

    @property
    def device(self) -> torch.device:
        """The processor."""
        return torch.device("cpu")

    def classify(self, encoded: Encoded, batch: Batch) -> ClassLogits:
        """Return the outputs, (sequences, labels)."""
        return encoded.last

    def tag(self, hidden: Hidden) -> TagLogits:
        """Return the outputs, (tokens, labels)."""
        return hidden

    def span(self, hidden: Hidden) -> SpanLogits:
        """Return the outputs, (tokens, 2)."""
        return hidden

    def choose(self, encoded: Encoded, batch: Batch) -> Scores:
        """Return the outputs, (sequences,)."""
        return encoded.last[:, 0]


class _Outputs(nn.Module):
    """The encoder of an exported file: its last states are the outputs of the head."""

    def __init__(self, config: ModelConfig, runtime: Runtime, pad_id: int) -> None:
        super().__init__()
        self._config, self._runtime, self._pad_id = config, runtime, pad_id

    def forward(
        self, batch: Batch, *, selected: SelectedTokens | None = None, taps: Taps = NO_TAPS
    ) -> Encoded:
        """Return the outputs of all tokens or sequences, whatever the query."""
        config = self._config
        choices = 1 if config.predicts == "choice" else None
        inputs = padded_inputs(batch, input_names(config), pad_id=self._pad_id, choices=choices)
        result = self._runtime(inputs)
        outputs = next(iter(result.values()))
        if config.predicts == "span":
            outputs = np.stack(list(result.values()), -1)
        if (vectors := result.get(SENTENCE_OUTPUT)) is not None:
            outputs = np.repeat(vectors, batch.lengths, axis=0)
        elif config.head in (None, "tag", "span"):
            outputs = outputs[inputs["attention_mask"].astype(bool)]
        last: Tensor = torch.from_numpy(outputs)
        return Encoded(last=last, states={config.encoder.layers: last})


def read_int8_gate(
    config: ExportConfig,
    model: ModelConfig,
    tokenizer: Tokenizer,
    sentence: SentenceSettings | None,
) -> Gate:
    """Read the texts and labels by which an int8 variant is judged; raises what that raises.

    Raises `ModelFolderError` for a model with heads of pre-training only.
    """
    assert config.calibrate is not None
    stand_in = ExportedModel(model, dict, pad_id=tokenizer.pad_id)
    if sentence is not None:
        # the file itself pools and maps
        sentence = replace(sentence, pool=("cls",), after=())
    answering = judged_answering(stand_in, tokenizer, sentence, config.length, where=config.model)
    return read_gate(answering, model, config.calibrate, config.dev, config.reading)


def add_int8(
    config: ExportConfig, gate: Gate, model: ModelConfig, exact: Path, *, pad_id: int
) -> list[Measurement]:
    """Write the int8 variant of a file beside it, and return what was measured of both.

    Raises `ConfigError`, after the table, where it is not faster than the exact file or not as good
    as the gate asks.
    """
    quantised = exact.with_name(QUANTISED_FILE)
    _quantise(exact, quantised)
    files: dict[Number, Path] = {"fp32": exact, "int8": quantised}
    predictors = {
        precision: Predictor(
            model=ExportedModel(model, open_onnx(path, config.threads), pad_id=pad_id),
            answering=gate.answering,
        )
        for precision, path in files.items()
    }
    measured = measure_precisions(predictors, gate)
    show_measurements(measured, gate)
    refuse_slow_or_worse(measured, "export")
    return measured


def _quantise(exact: Path, quantised: Path) -> None:
    """Write a file of ONNX with int8 products."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    level = logging.root.level
    # it advises steps that change nothing here
    logging.root.setLevel(logging.ERROR)
    try:
        quantize_dynamic(
            exact,
            quantised,
            per_channel=True,
            # with signed weights its products saturate on x86 chips that have no VNNI
            weight_type=QuantType.QUInt8,
            extra_options={"MatMulConstBOnly": True},
        )
    finally:
        logging.root.setLevel(level)
