"""A padded model as a file: a program of torch.export, ONNX, or OpenVINO's representation."""

from __future__ import annotations

import errno
import importlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch
from torch.export import Dim, ExportedProgram

from bertsmith.core.errors import MissingExtra
from bertsmith.recipes.export.config import Target
from bertsmith.recipes.export.graph import PaddedModel

ONNX_FILE, TORCH_FILE, OPENVINO_FILE = "model.onnx", "model.pt2", "openvino_model.xml"
QUANTISED_FILE = "model_quantized.onnx"
DATA_SUFFIX = "_data"
"""Suffix of a file of external weights, as optimum and transformers.js name it."""
OPSET = 18
"""The version of ONNX's operations that is written; onnxruntime has it since 1.14."""
# a protocol buffer holds 2 GiB; what is not weights is small
_MAX_BYTES = 2**31 - 2**26

_PACKAGES: dict[Target, tuple[tuple[str, str], ...]] = {
    "onnx": (("onnx", "export"), ("onnxscript", "export"), ("onnxruntime", "export")),
    "torch-export": (),
}
_PACKAGES["transformers.js"] = _PACKAGES["onnx"]
_PACKAGES["openvino"] = (*_PACKAGES["onnx"], ("openvino", "openvino"))


def require_packages(target: Target) -> None:
    """Raise `MissingExtra` where a package that writes or checks a target is not installed."""
    for package, extra in _PACKAGES[target]:
        if find_spec(package) is None:
            raise MissingExtra(package, extra, f"--to {target}")


def exported_program(model: PaddedModel) -> ExportedProgram:
    """Return a program of a model for batches of any size and texts of any length it reads."""
    choices = model.config.predicts == "choice"
    # sizes of an example must differ from 1, and from each other, to be taken for free
    shape = (2, 3, 5) if choices else (2, 5)
    # one tensor for several inputs would become one input
    example = {name: torch.ones(shape, dtype=torch.int64) for name in model.inputs}
    axes = [Dim("batch", min=1), Dim("choices", min=1)][: len(shape) - 1]
    axes.append(Dim("length", min=1, max=model.config.encoder.longest))
    dynamic = {name: dict(enumerate(axes)) for name in model.inputs}
    with quiet(), torch.no_grad():
        program = torch.export.export(model.eval(), (), example, dynamic_shapes=dynamic)
    for node in program.graph.nodes:
        # paths of this machine, which differ from one to the next
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            node.meta.pop(key, None)
    return program


def write_torch(program: ExportedProgram, path: Path) -> None:
    """Write a program of torch.export, which torch.export.load reads; raises `OSError`."""
    with quiet(), path.open("wb") as file:
        output = _DeferringFile(file)
        torch.export.save(program, cast("IO[bytes]", output))
        if output.error is not None:
            raise output.error


class _DeferringFile(io.RawIOBase):
    """A file that keeps the first error of the disk, at which torch would end the process."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        """Return True, which torch asks for."""
        return True

    def seekable(self) -> bool:
        """Return True, which torch asks for."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Stay at the end: torch goes back to the beginning when all is written."""
        assert offset == whence == 0
        return 0

    def write(self, data: Any) -> int:  # noqa: ANN401
        """Write a part; after an error it is left out."""
        try:
            if self.error is None:
                self._file.write(data)
        except OSError as error:
            self.error = error
        return len(data)


def write_onnx(program: ExportedProgram, model: PaddedModel, path: Path) -> bool:
    """Write a program as ONNX; return True if its weights went to a second file.

    That is done over 2 GB, which one file of ONNX cannot hold.
    """
    import onnx_ir

    size = sum(value.numel() * value.element_size() for value in program.state_dict.values())
    with quiet():
        written = torch.onnx.export(
            program,
            (),
            dynamo=True,
            input_names=model.inputs,
            output_names=model.outputs,
            opset_version=OPSET,
            optimize=True,
            verbose=False,
        )
        assert written is not None
        _clean_graph(written.model)
        external_data: bool = size > _MAX_BYTES
        data = f"{path.name}{DATA_SUFFIX}" if external_data else None
        onnx_ir.save(written.model, path, external_data=data)
    return external_data


def _clean_graph(written: Any) -> None:  # noqa: ANN401
    """Name the free axes, leave notes of the exporter out, and store matrices as they are read."""
    graph = written.graph
    axes = (
        ("batch", "choices", "length") if len(graph.inputs[0].shape) == 3 else ("batch", "length")
    )
    names = {str(dim): axis for dim, axis in zip(graph.inputs[0].shape, axes, strict=True)}
    values = [*graph.inputs]
    for node in [*graph.all_nodes()]:
        node.metadata_props.clear()
        values += node.outputs
        if node.op_type == "Transpose" and node.inputs[0].is_initializer():
            _store_transposed(node.inputs[0], graph)
    for value in values:
        value.metadata_props.clear()
        for number, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int):
                value.shape[number] = names.get(str(dim))


def _store_transposed(weight: Any, graph: Any) -> None:  # noqa: ANN401
    """Store a matrix that is only read transposed as that: quantising looks for stored ones."""
    import onnx_ir

    nodes = [node for node, _ in weight.uses()]
    if any(node.op_type != "Transpose" for node in nodes) or len(weight.shape) != 2:
        return
    turned = onnx_ir.tensor(weight.const_value.numpy().T.copy(), name=weight.name)
    weight.const_value, weight.shape = turned, turned.shape
    for node in nodes:
        onnx_ir.convenience.replace_all_uses_with(node.outputs[0], weight)
        graph.remove(node, safe=True)


_TELEMETRY = "openvino_telemetry"


def import_openvino() -> Any:  # noqa: ANN401
    """Import OpenVINO without its telemetry, which reports each import and conversion to Google.

    It does so in processes of its own, which also print tracebacks on Ctrl-C.
    """
    modules: dict[str, Any] = sys.modules
    if _TELEMETRY in modules:
        # imported by the caller
        return importlib.import_module("openvino")
    # as if it was not installed: OpenVINO has a stub for that
    modules[_TELEMETRY] = None
    try:
        return importlib.import_module("openvino")
    finally:
        del modules[_TELEMETRY]


def import_onnxruntime(name: str = "onnxruntime") -> Any:  # noqa: ANN401
    """Import ONNX Runtime, or a module of it, without its telemetry, which reports to Microsoft.

    A user who has set its variable decides. Once imported it has begun, with a file in TMPDIR.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module(name)


def write_openvino(onnx: Path, path: Path, *, longest: int) -> None:
    """Write OpenVINO's representation (.xml and .bin, in float32) of a file of ONNX.

    Its inputs state that texts have at most `longest` tokens. Without that OpenVINO would answer
    longer ones, with zeros for the positions that there are not. Raises `OSError`.
    """
    openvino = import_openvino()
    model = openvino.convert_model(onnx)
    shapes = {}
    for model_input in model.inputs:
        shape = model_input.get_partial_shape()
        shape[len(shape) - 1] = openvino.Dimension(1, longest)
        shapes[model_input.get_any_name()] = shape
    model.reshape(shapes)
    try:
        openvino.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:
        # its only sign of a full disk
        if "iostream" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress what the exporters print of themselves, and of packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
