"""LAMB: Adam whose step is scaled to the size of each tensor (You et al. 2020, algorithm 2).

It lets thousands of sequences share one step. Large batches hold few steps, so the time one takes
matters little; all tensors are taken together all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Adam's direction plus decay, as long as the tensor itself is, times the rate.

    With first and second moment m and v, both bias-corrected, a tensor x moves by

        lr |x| / |u| u,   u = m / (sqrt(v) + eps) + weight_decay x

    The ratio of the norms is 1 where either is zero, and in groups without `trust`: norms and
    biases, which the published runs leave to plain Adam.
    """

    def __init__(
        self,
        params: Iterable[Tensor | dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        trust: bool = True,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "trust": trust
        }  # fmt: skip
        super().__init__(params, defaults)  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change every tensor that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            parameters = [each for each in group["params"] if each.grad is not None]
            if parameters:
                directions = self._directions(parameters, group)
                if group["trust"]:
                    _as_long_as(parameters, directions)
                torch._foreach_add_(parameters, directions, alpha=-group["lr"])

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Adam's directions with the decay, each of its tensor's shape."""
        beta_1, beta_2 = group["betas"]
        gradients = [each.grad for each in parameters if each.grad is not None]
        steps, firsts, seconds = zip(*(self._memory(each) for each in parameters), strict=True)
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(firsts, gradients, 1 - beta_1)
        torch._foreach_mul_(seconds, beta_2)
        torch._foreach_addcmul_(seconds, gradients, gradients, value=1 - beta_2)
        # a head that some batches have nothing for has made fewer steps than the rest
        counts = torch.stack(steps).tolist()
        sizes = torch._foreach_div(seconds, [1 - beta_2**count for count in counts])
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, group["eps"])
        directions = torch._foreach_div(firsts, [1 - beta_1**count for count in counts])
        torch._foreach_div_(directions, sizes)
        if group["weight_decay"]:
            torch._foreach_add_(directions, parameters, alpha=group["weight_decay"])
        return list(directions)

    def _memory(self, parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Steps made, first and second moment."""
        memory = self.state[parameter]
        if not memory:
            memory["step"] = torch.zeros((), device=parameter.device)
            memory["exp_avg"] = torch.zeros_like(parameter)
            memory["exp_avg_sq"] = torch.zeros_like(parameter)
        return memory["step"], memory["exp_avg"], memory["exp_avg_sq"]


def _as_long_as(parameters: list[Tensor], directions: list[Tensor]) -> None:
    """Scale directions to the norms of the tensors they move."""
    wanted, has = (torch.stack(torch._foreach_norm(each)) for each in (parameters, directions))
    ratios = torch.where((wanted > 0) & (has > 0), wanted / has, 1.0)
    torch._foreach_mul_(directions, list(ratios.unbind()))
