"""Exported files opened in their runtimes, all with one interface: as functions, and as models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.core.shapes import ClassLogits, Hidden, Scores, SelectedTokens, SpanLogits, TagLogits
from bertsmith.network.batch import Batch
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.model import Model
from bertsmith.recipes.export.config import Target
from bertsmith.recipes.export.graph import SENTENCE_OUTPUT, input_names
from bertsmith.recipes.export.program import (
    ONNX_FILE,
    OPENVINO_FILE,
    TORCH_FILE,
    import_onnxruntime,
    import_openvino,
    quiet,
)

Arrays = dict[str, NDArray[Any]]
Runtime = Callable[[Mapping[str, NDArray[np.int64]]], Arrays]
"""Inputs by name to outputs by name."""


def output_file(folder: Path, target: Target) -> Path:
    """Return the file that an export writes into its folder."""
    if target == "transformers.js":
        return folder / "onnx" / ONNX_FILE
    names = {"onnx": ONNX_FILE, "openvino": OPENVINO_FILE, "torch-export": TORCH_FILE}
    return folder / names[target]


def open_exported(path: Path, target: Target, outputs: Sequence[str]) -> Runtime:
    """Return a file opened in its own runtime: onnxruntime, OpenVINO in float32, or torch.

    `outputs` are their names, which a program of torch does not keep.
    """
    if target == "openvino":
        return _openvino(path)
    return _torch(path, outputs) if target == "torch-export" else open_onnx(path)


def open_onnx(path: Path, threads: int | None = None) -> Runtime:
    """Return a file of ONNX opened in onnxruntime on the processor."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run


def _openvino(path: Path) -> Runtime:
    openvino = import_openvino()
    # processors with bf16 would take that, and be further off than rounding
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(path, "CPU", settings)

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        results = compiled(dict(inputs))
        return {output.get_any_name(): np.array(results[output]) for output in compiled.outputs}

    return run


def _torch(path: Path, outputs: Sequence[str]) -> Runtime:
    with quiet():
        module = torch.export.load(path).module()

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        with torch.no_grad():
            results = module(**{name: torch.from_numpy(item) for name, item in inputs.items()})
        return {name: result.numpy() for name, result in zip(outputs, results, strict=True)}

    return run


def padded_inputs(
    batch: Batch, names: list[str], *, pad_id: int, choices: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """Return a packed batch as the inputs of an exported model, padded on the right.

    Each is (sequences, longest); with `choices` (sequences / choices, choices, longest).
    """
    lengths = np.array(batch.lengths)
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded: dict[str, NDArray[np.int64]] = {}
    for name, values, empty in (
        ("input_ids", batch.ids.numpy(), pad_id),
        ("attention_mask", 1, 0),
        ("token_type_ids", batch.segments.numpy(), 0),
    ):
        if name in names:
            padded[name] = np.full(mask.shape, empty, np.int64)
            padded[name][mask] = values
    if choices is None:
        return padded
    return {name: result.reshape(-1, choices, mask.shape[1]) for name, result in padded.items()}


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
