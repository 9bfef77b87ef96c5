"""Running a model to read its answers: no dropout, no gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from bertsmith.models.model import Model

Precision = Literal["bf16", "fp32"]


@contextmanager
def forward_only(model: Model, precision: Precision) -> Iterator[None]:
    """Evaluation mode without gradients, in bf16 autocast or float32; the mode is put back."""
    training = model.training
    model.eval()
    half = torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bf16")
    try:
        with torch.no_grad(), half:
            yield
    finally:
        model.train(training)
