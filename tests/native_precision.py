"""The number format in which this machine trains; tests in another one are slow, or in faults."""

from __future__ import annotations

import torch

from bertsmith.engine.devices import training_precision
from bertsmith.network.config import Precision

NATIVE: Precision = training_precision("auto", torch.device("cpu"))
OTHER: Precision = "fp32" if NATIVE == "bf16" else "bf16"
