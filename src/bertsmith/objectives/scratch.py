"""Memory for the largest array of a training step, kept from one step to the next.

Its size changes with every batch. Freed and asked for again it would find its place taken by
smaller arrays, and new pages, each cleared by the system, would cost as much as the arithmetic
(docs/log.md).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_free: dict[torch.dtype, list[Tensor]] = {}


class Scratch:
    """A tensor whose memory goes to the next one that asks, once this object is gone."""

    def __init__(self, shape: tuple[int, ...], kind: torch.dtype) -> None:
        count, free = math.prod(shape), _free.setdefault(kind, [])
        self._free = free
        self._memory = free.pop() if free else torch.empty(0, dtype=kind)
        if len(self._memory) < count:
            # a little more, so that it seldom grows
            self._memory = torch.empty(count + count // 8, dtype=kind)
        self.tensor = self._memory[:count].view(shape)

    def __del__(self) -> None:
        self._free.append(self._memory)
