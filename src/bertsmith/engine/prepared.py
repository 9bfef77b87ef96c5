"""Models made ready to answer: the backend that computes, and the number format.

native    the package's own kernels, where they are built and hold the model's wiring
torch     torch's kernels on packed weights, on every processor
network   the training network itself, on other devices
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

from bertsmith.core.errors import ConfigError
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import EngineConfig, Number
from bertsmith.engine.predictor import Answering, Predictor
from bertsmith.engine.prepacked import PackedEncoder, packs
from bertsmith.network.model import Model

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

    def __str__(self) -> str:
        kernels = f"{self.backend} ({self.instructions})" if self.instructions else self.backend
        place = f"{self.threads} thread{'s' * (self.threads != 1)}"
        if self.model.device.type != "cpu":
            place = str(self.model.device)
        independent = ", reproducible" if self.reproducible else ""
        return f"{self.precision}, {kernels}, {place}{independent}"

    def to_dict(self) -> dict[str, Any]:
        """Return precision, backend and threads as plain JSON values."""
        return {"precision": self.precision, "backend": self.backend, "threads": self.threads}


def prepare_model(
    model: Model, config: EngineConfig, *, automatic: Number | None = None
) -> Prepared:
    """Make a model ready to answer on the device where it is.

    The model is changed: on a processor its encoder is replaced by one with packed weights, which
    only answers. `automatic` is the precision that auto stands for, None for the fastest that keeps
    answers within rounding. Raises `ConfigError` for a precision that the device cannot compute.
    """
    on_processor = model.device.type == "cpu"
    precision = config.precision
    if precision == "auto":
        precision = automatic or ("bf16" if on_processor and multiplies_bf16() else "fp32")
    model.eval()
    if precision == "int8":
        raise ConfigError(
            "there are no int8 products on this machine", remedy="take --precision bf16 or fp32"
        )
    if on_processor:
        with torch.no_grad():
            model.encoder = PackedEncoder(model.encoder, precision=precision)  # type: ignore[assignment]
    return Prepared(
        model=model,
        backend="torch" if on_processor else "network",
        precision=precision,
        threads=config.threads or torch.get_num_threads(),
        reproducible=config.reproducible,
    )


def multiplies_bf16() -> bool:
    """Return whether the processor has instructions for products of bf16."""
    named = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    checks = [getattr(torch.cpu, name, None) for name in named]
    return packs(torch.bfloat16) and any(check is not None and check() for check in checks)
