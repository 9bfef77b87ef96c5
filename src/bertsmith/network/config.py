"""The settings of networks that options state, as names."""

from __future__ import annotations

from typing import Literal

Precision = Literal["bf16", "fp32"]
Positions = Literal["learned", "sinusoidal", "rotary", "none"]
Activation = Literal["gelu", "gelu_tanh"]
Norm = Literal["after", "before"]
VectorPooling = Literal["cls", "max", "mean", "mean-sqrt-length", "weighted-mean", "last-token"]
Fit = Literal["head", "tail", "head+tail", "windows"]
