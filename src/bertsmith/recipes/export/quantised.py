"""An int8 variant of an exported file, behind the gate of `bertsmith quantize`.

onnxruntime quantises the weights by output, and what goes into each product by a scale for all of
it, when it runs. Whether that is faster here and as good is measured through onnxruntime, on the
user's texts and labels, with the readers, decoders and scores of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.core.shapes import ClassLogits, Hidden, Places, Scores, SpanLogits, TagLogits
from bertsmith.engine.config import Number
from bertsmith.engine.predictor import Predictor
from bertsmith.network.batch import Batch
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.model import Model
from bertsmith.recipes.export.config import ExportConfig
from bertsmith.recipes.export.graph import input_names
from bertsmith.recipes.export.program import QUANTISED_FILE
from bertsmith.recipes.export.runtimes import Runtime, open_onnx, padded_inputs
from bertsmith.recipes.predict.evaluate import labelled_rows, task_answering
from bertsmith.recipes.quantize import (
    by_precision,
    calibration_requests,
    measure_precisions,
    refuse_slow_or_worse,
    show_measurements,
)
from bertsmith.tasks.answering import TaskAnswering, answering_of
from bertsmith.tasks.config import AnsweringConfig
from bertsmith.tokens.tokenizer import Tokenizer


class ExportedModel(Model):
    """An exported file in the place of a model with a head for a task.

    Its encoder runs the file, head and all, and its head returns what came of that.
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
        del batch
        return encoded.last

    def tag(self, hidden: Hidden) -> TagLogits:
        """Return the outputs, (tokens, labels)."""
        return hidden

    def span(self, hidden: Hidden) -> SpanLogits:
        """Return the outputs, (tokens, 2)."""
        return hidden

    def choose(self, encoded: Encoded, batch: Batch) -> Scores:
        """Return the outputs, (sequences,)."""
        del batch
        return encoded.last[:, 0]


class _Outputs(nn.Module):
    """The encoder of an exported file: its last states are the outputs of the head."""

    def __init__(self, config: ModelConfig, runtime: Runtime, pad_id: int) -> None:
        super().__init__()
        self._config, self._runtime, self._pad_id = config, runtime, pad_id

    def forward(self, batch: Batch, *, at: Places | None = None, taps: Taps = NO_TAPS) -> Encoded:
        """Return the outputs of all tokens or sequences, whatever is asked."""
        del at, taps
        config = self._config
        choices = 1 if config.predicts == "choice" else None
        inputs = padded_inputs(batch, input_names(config), pad_id=self._pad_id, choices=choices)
        found = list(self._runtime(inputs).values())
        outputs = np.stack(found, -1) if config.predicts == "span" else found[0]
        if config.head in ("tag", "span"):
            outputs = outputs[inputs["attention_mask"].astype(bool)]
        last: Tensor = torch.from_numpy(outputs)
        return Encoded(last=last)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The texts and labels by which an int8 variant is judged."""

    answering: TaskAnswering
    rows: Sequence[Any]
    """Labelled rows."""
    asked: Sequence[Any]
    """Texts whose time is taken."""


def read_gate(config: ExportConfig, model: ModelConfig, tokenizer: Tokenizer) -> Gate:
    """Read the texts and labels; raises what reading them raises.

    Raises `ModelFolderError` for a model without a task.
    """
    assert config.calibrate is not None
    assert config.dev is not None
    options = AnsweringConfig(**config.length.to_dict())
    stand_in = ExportedModel(model, dict, pad_id=tokenizer.pad_id)
    answering = task_answering(
        answering_of(stand_in, tokenizer, options, where=config.model), config.model
    )
    return Gate(
        answering=answering,
        rows=labelled_rows(model, answering, config.dev, config.reading),
        asked=calibration_requests(answering, model, config.calibrate),
    )


def add_int8(
    config: ExportConfig, gate: Gate, model: ModelConfig, exact: Path, *, pad_id: int
) -> dict[str, Any]:
    """Write the int8 variant of a file beside it, and return what was measured of both.

    Raises `ConfigError`, after the table, where it is not faster than the exact file or costs more
    than half a point of the score.
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
    measured = measure_precisions(predictors, gate.answering, gate.rows, gate.asked)
    show_measurements(measured, len(gate.asked), len(gate.rows))
    refuse_slow_or_worse(measured, "export")
    figures = {"texts": len(gate.asked), "rows": len(gate.rows)}
    return figures | {"precisions": by_precision(measured)}


def _quantise(exact: Path, quantised: Path) -> None:
    """Write a file of ONNX with int8 products."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    before = logging.root.level
    # it advises steps that change nothing here
    logging.root.setLevel(logging.ERROR)
    try:
        quantize_dynamic(
            exact,
            quantised,
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
    finally:
        logging.root.setLevel(before)
