"""Muon: momentum whose matrices are made orthogonal before each step (Jordan et al. 2024).

The arithmetic is that of `torch.optim.Muon`, which the tests compare it with. This one takes all
matrices of one shape together, so that a small network's many small products become a few large
ones: on 2/128 from 16 % of a step to under 4 % (docs/log.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bertsmith.training.shares import shared_as, whole

# the quintic of Jordan's iteration, tuned for a steep rise at zero
_A, _B, _C = 3.4445, -4.7750, 2.0315
_TURNS = 5
_TINY = 1e-7


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised by Newton-Schulz iterations in bfloat16.

    A matrix (rows, columns) moves by `lr` times sqrt(max(1, rows / columns)); weight decay is
    decoupled. Only for matrices.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(list(params), defaults)
        for group in self.param_groups:
            assert all(parameter.dim() == 2 for parameter in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            shapes: defaultdict[tuple[int, int], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[min(parameter.shape), max(parameter.shape)].append(parameter)
            for parameters in shapes.values():
                self._step_alike(parameters, group)

    def _step_alike(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Change matrices of one shape, transposed or not."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        buffers = [self._buffer(parameter) for parameter in parameters]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        directions = torch._foreach_lerp(gradients, buffers, group["momentum"])
        # in shares, every rank does all of it: small beside what a step with shares computes
        complete = [whole(direction) for direction in directions]
        wide = [d.T if len(d) > d.shape[1] else d for d in complete]
        orthogonal = orthogonalise(torch.stack(wide)).unbind()
        for parameter, matrix in zip(parameters, orthogonal, strict=True):
            rows, columns = parameter.shape
            step = group["lr"] * max(1, rows / columns) ** 0.5
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            turned = matrix.T if rows > columns else matrix
            parameter.add_(shared_as(turned, parameter), alpha=-step)

    def _buffer(self, parameter: Tensor) -> Tensor:
        memory = self.state[parameter]
        if "momentum_buffer" not in memory:
            memory["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = memory["momentum_buffer"]
        return buffer


def orthogonalise(matrices: Tensor) -> Tensor:
    """Matrices (count, rows, columns), no taller than wide, with singular values near 1.

    Five Newton-Schulz iterations in bfloat16 from the matrix over its Frobenius norm.
    """
    wide = matrices.bfloat16()
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=_TINY)
    for _ in range(_TURNS):
        square = wide @ wide.mT
        wide = torch.baddbmm(
            wide, torch.baddbmm(square, square, square, beta=_B, alpha=_C), wide, beta=_A
        )
    return wide
