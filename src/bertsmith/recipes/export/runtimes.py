"""Exported files opened in their runtimes, all with one interface, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.network.batch import Batch
from bertsmith.recipes.export.config import Target
from bertsmith.recipes.export.program import ONNX_FILE, OPENVINO_FILE, TORCH_FILE, quiet

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
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run


def _openvino(path: Path) -> Runtime:
    import openvino

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
