"""Models made ready to answer: the backend that computes, and the number format.

native    the package's own kernels, where they are built and hold the model's wiring
torch     torch's kernels on packed weights, on every processor and GPU
network   the training network itself, as the reference
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from bertsmith.core.errors import ConfigError
from bertsmith.core.kernels import WITH_BF16, instruction_set
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import EngineConfig, Number
from bertsmith.engine.devices import has_amx, multiplies_bf16
from bertsmith.engine.native import NativeEncoder, unsupported_reason
from bertsmith.engine.predictor import Answering, Predictor
from bertsmith.engine.prepacked import PackedEncoder, supports_packing
from bertsmith.network.model import Model
from bertsmith.weights.folder import StoredModel

Backend = Literal["native", "torch", "network"]

E = TypeVar("E")
A = TypeVar("A")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model that answers, and how it computes."""

    model: Model
    backend: Backend
    precision: Number
    threads: int
    reproducible: bool = False
    instructions: str | None = None
    """The instruction set of the native kernels, where these compute."""

    @property
    def forward(self) -> Forward:
        """The settings of forward passes."""
        half = self.backend == "network" and self.precision == "bf16"
        return Forward(precision="bf16" if half else "fp32", alone=self.reproducible)

    def predictor(self, answering: Answering[E, A]) -> Predictor[E, A]:
        """Return the predictor by which the model gives answers of a kind."""
        return Predictor(
            model=self.model, answering=answering, forward=self.forward, threads=self.threads
        )

    def in_one_thread(self) -> Prepared:
        """Return the same, that computes in one thread from now on."""
        if isinstance(self.model.encoder, NativeEncoder):
            self.model.encoder.threads = 1
        return replace(self, threads=1)

    def __repr__(self) -> str:
        return f"<Prepared: {self}>"

    def __str__(self) -> str:
        kernels = f"{self.backend} ({self.instructions})" if self.instructions else self.backend
        processor = f"{self.threads} thread{'s' * (self.threads != 1)}"
        if self.model.device.type != "cpu":
            processor = str(self.model.device)
        independent = ", reproducible" if self.reproducible else ""
        return f"{self.precision}, {kernels}, {processor}{independent}"

    def to_dict(self) -> dict[str, Any]:
        """Return precision, backend and threads as plain JSON values."""
        return {"precision": self.precision, "backend": self.backend, "threads": self.threads}


def prepare_model(
    model: Model | StoredModel,
    config: EngineConfig,
    *,
    automatic: Number | None = None,
    backend: Backend | None = None,
) -> Prepared:
    """Make a model ready to answer on the device where it is.

    The model is changed: its encoder is replaced by one with packed weights, which only answers. A
    `StoredModel` is read as it is packed. `automatic` is the precision that auto stands for, where
    it can be computed; None for the fastest that keeps answers within rounding.
    `backend` is None for the fastest there is.
    Raises `ConfigError` for a precision that the device cannot compute.
    """
    stored = model if isinstance(model, StoredModel) else None
    if isinstance(model, StoredModel):
        model = model.model
    precision = config.precision
    if precision == "auto":
        if automatic == "int8" and _int8_obstacle(model):
            automatic = None
        precision = automatic or ("bf16" if _multiplies_bf16(model.device) else "fp32")
    model.eval()
    threads = config.threads or torch.get_num_threads()
    backend = backend or _backend(model, precision)
    if stored is not None and backend != "native":
        stored.whole()
    encoder: nn.Module = model.encoder
    with torch.no_grad():
        if backend == "native":
            encoder = NativeEncoder(
                model.encoder,
                precision=precision,
                threads=threads,
                release=True,
                stored=None if stored is None else stored.locate_block,
            )
        elif backend == "torch":
            assert precision != "int8"
            encoder = PackedEncoder(model.encoder, precision=precision)
    # the weights of the blocks are released here
    model.encoder = encoder  # type: ignore[assignment]
    return Prepared(
        model=model,
        backend=backend,
        precision=precision,
        threads=threads,
        reproducible=config.reproducible,
        instructions=instruction_set() if backend == "native" else None,
    )


def _backend(model: Model, precision: Number) -> Backend:
    """Return the fastest backend that computes a model; `ConfigError` where none does."""
    if precision == "int8" and (reason := _int8_obstacle(model)):
        raise ConfigError(
            f"no int8 products: {reason}", remedy="leave --precision out, or set it to fp32"
        )
    if model.device.type != "cpu":
        return "torch"
    reason = unsupported_reason(model.config.encoder, precision)
    # AMX multiplies bf16 several times as fast as AVX-512: oneDNN has it, the kernels where their
    # compiler knew it
    by_tiles = precision == "bf16" and has_amx() and instruction_set() != "amx"
    return "torch" if reason or by_tiles else "native"


def _int8_obstacle(model: Model) -> str | None:
    """Return why a model cannot be computed in int8, None if it can."""
    if model.device.type != "cpu":
        return "only processors have them here"
    return unsupported_reason(model.config.encoder, "int8")


def _multiplies_bf16(device: torch.device) -> bool:
    return multiplies_packed_bf16() if device.type == "cpu" else multiplies_bf16(device)


def multiplies_packed_bf16() -> bool:
    """Return whether the processor multiplies packed weights in bf16 natively."""
    if instruction_set() in WITH_BF16:
        return True
    return supports_packing(torch.bfloat16) and multiplies_bf16(torch.device("cpu"))
