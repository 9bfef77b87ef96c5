"""Positions: embeddings, learned or sinusoidal, rotary ones (rotary.py), or none."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Positions = Literal["learned", "sinusoidal", "rotary", "none"]


def sinusoidal_table(longest: int, hidden: int) -> Tensor:
    """Sines and cosines of geometrically spaced wavelengths, (longest, hidden), values in [-1, 1].

    Vaswani et al. 2017, section 3.5: even columns are sines, odd ones cosines.
    """
    position = torch.arange(longest, dtype=torch.float64)[:, None]
    column = torch.arange(hidden, dtype=torch.float64)
    angle = position / 10_000 ** (2 * (column // 2) / hidden)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()
