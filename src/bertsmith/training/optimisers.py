"""Optimisers: AdamW or LAMB for everything, or Muon for the matrices inside the encoder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.engine.devices import multiplies_bf16
from bertsmith.training.config import OptimiserConfig
from bertsmith.training.replicas import full_tensor, sharded_like


class Lamb(torch.optim.Optimizer):
    """LAMB: Adam's direction plus decay, scaled to the tensor's norm (You et al. 2020).

    With first and second moment m and v, both bias-corrected, a tensor x moves by

        lr |x| / |u| u,   u = m / (sqrt(v) + eps) + weight_decay x

    The ratio of the norms is 1 if either is zero, and in groups without `trust`: norms and biases,
    which the published runs train with plain Adam.
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
        """Update every tensor that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                directions = self._directions(parameters, group)
                if group["trust"]:
                    _scale_to_parameter_norms(parameters, directions)
                torch._foreach_add_(parameters, directions, alpha=-group["lr"])

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return Adam's directions with weight decay, each of its tensor's shape."""
        beta_1, beta_2 = group["betas"]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        steps, firsts, seconds = zip(
            *(self._moments(parameter) for parameter in parameters), strict=True
        )
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(firsts, gradients, 1 - beta_1)
        torch._foreach_mul_(seconds, beta_2)
        torch._foreach_addcmul_(seconds, gradients, gradients, value=1 - beta_2)
        # a head without targets in some batches has made fewer steps than the rest
        counts = torch.stack(steps).tolist()
        sizes = torch._foreach_div(seconds, [1 - beta_2**count for count in counts])
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, group["eps"])
        directions = torch._foreach_div(firsts, [1 - beta_1**count for count in counts])
        torch._foreach_div_(directions, sizes)
        if group["weight_decay"]:
            torch._foreach_add_(directions, parameters, alpha=group["weight_decay"])
        return list(directions)

    def _moments(self, parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the number of steps, the first and the second moment."""
        memory = self.state[parameter]
        if not memory:
            memory["step"] = torch.zeros((), device=parameter.device)
            memory["exp_avg"] = torch.zeros_like(parameter)
            memory["exp_avg_sq"] = torch.zeros_like(parameter)
        return memory["step"], memory["exp_avg"], memory["exp_avg_sq"]


def _scale_to_parameter_norms(parameters: list[Tensor], directions: list[Tensor]) -> None:
    """Scale directions to the norms of the tensors that they update."""
    parameter_norms, direction_norms = (
        torch.stack(torch._foreach_norm(tensors)) for tensors in (parameters, directions)
    )
    ratios = torch.where(
        (parameter_norms > 0) & (direction_norms > 0), parameter_norms / direction_norms, 1.0
    )
    torch._foreach_mul_(directions, list(ratios.unbind()))


# the quintic of Jordan's iteration, tuned for a steep rise at zero
_A, _B, _C = 3.4445, -4.7750, 2.0315
_TURNS = 5
_TINY = 1e-7


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised by Newton-Schulz iterations.

    A matrix (rows, columns) moves by `lr` times sqrt(max(1, rows / columns)); weight decay is
    decoupled. Only for matrices.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(list(params), defaults)  # type: ignore[arg-type]
        for group in self.param_groups:
            assert all(parameter.dim() == 2 for parameter in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            shapes: defaultdict[tuple[int, int], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[min(parameter.shape), max(parameter.shape)].append(parameter)
            for parameters in shapes.values():
                self._step_same_shape(parameters, group)

    def _step_same_shape(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update matrices of one shape, up to transposition."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        buffers = [self._buffer(parameter) for parameter in parameters]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        # one by one: torch 2.10 has no _foreach_lerp of sharded tensors
        directions = [
            torch.lerp(gradient, buffer, group["momentum"])
            for gradient, buffer in zip(gradients, buffers, strict=True)
        ]
        # with sharding, every rank computes all of it: cheap compared with the rest of a step
        complete = [full_tensor(direction) for direction in directions]
        wide = [d.T if len(d) > d.shape[1] else d for d in complete]
        orthogonal = orthogonalise(torch.stack(wide)).unbind()
        for parameter, matrix in zip(parameters, orthogonal, strict=True):
            rows, columns = parameter.shape
            step = group["lr"] * max(1, rows / columns) ** 0.5
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            turned = matrix.T if rows > columns else matrix
            parameter.add_(sharded_like(turned, parameter), alpha=-step)

    def _buffer(self, parameter: Tensor) -> Tensor:
        memory = self.state[parameter]
        if "momentum_buffer" not in memory:
            memory["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = memory["momentum_buffer"]
        return buffer


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices (count, rows, columns), rows <= columns, with singular values near 1.

    Five Newton-Schulz iterations, from the matrix divided by its Frobenius norm: in bfloat16, or in
    float32 on a device that would only emulate it, at a fraction of the speed.
    """
    wide = matrices.bfloat16() if multiplies_bf16(matrices.device) else matrices.float()
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=_TINY)
    for _ in range(_TURNS):
        square = wide @ wide.mT
        wide = torch.baddbmm(
            wide, torch.baddbmm(square, square, square, beta=_B, alpha=_C), wide, beta=_A
        )
    return wide


_BLOCKS = "encoder.blocks."


class Optimiser:
    """One or two torch optimisers stepped together, with learning rates scaled by one factor."""

    def __init__(self, model: nn.Module, config: OptimiserConfig) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in model.named_parameters()
        }
        kinds: dict[tuple[float, bool], list[Tensor]] = {}
        orthogonal: dict[float, list[Tensor]] = {}
        top = _top(self.names.values())
        for parameter, name in self.names.items():
            scale = config.layer_decay ** (top - _depth(name, top))
            # embeddings and heads do not map hidden to hidden values
            inside = name.startswith(_BLOCKS) and parameter.dim() > 1
            if config.matrices == "muon" and inside:
                orthogonal.setdefault(scale, []).append(parameter)
            else:
                kinds.setdefault((scale, parameter.dim() > 1), []).append(parameter)
        self.parts = [_adam(kinds, config)]
        if orthogonal:
            self.parts.append(_muon(orthogonal, config))
        self._peaks = [[group["lr"] for group in part.param_groups] for part in self.parts]

    def step(self, factor: float) -> None:
        """Update the weights, with every rate at `factor` of its peak, and clear the gradients."""
        for part, peaks in zip(self.parts, self._peaks, strict=True):
            for group, peak in zip(part.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimisers' state, named by parameter and quantity."""
        return {
            f"{self.names[parameter]}/{quantity}": value
            for part in self.parts
            for parameter, memory in part.state.items()
            for quantity, value in memory.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from a copy of `tensors`."""
        by_parameter: dict[str, dict[str, str]] = {}
        for name in tensors:
            parameter, _, quantity = name.rpartition("/")
            by_parameter.setdefault(parameter, {})[quantity] = name
        for part in self.parts:
            for parameter in chain.from_iterable(group["params"] for group in part.param_groups):
                # one by one: they may be many, and this rank may keep only a shard of each
                if memory := by_parameter.get(self.names[parameter]):
                    part.state[parameter] = {
                        quantity: _state_like(parameter, tensors[name])
                        for quantity, name in memory.items()
                    }


def _adam(
    kinds: Mapping[tuple[float, bool], list[Tensor]], config: OptimiserConfig
) -> torch.optim.Optimizer:
    """Return AdamW or LAMB for parameters grouped by (learning rate scale, is a matrix).

    Norms and biases, which are not matrices, are neither decayed nor scaled by LAMB.
    """
    betas = (config.beta_1, config.beta_2)
    lamb = config.algorithm == "lamb"
    groups: list[dict[str, Any]] = [
        {
            "params": parameters,
            "lr": config.learning_rate * scale,
            "weight_decay": config.weight_decay if matrices else 0.0,
            **({"trust": False} if lamb and not matrices else {}),
        }
        for (scale, matrices), parameters in kinds.items()
    ]
    if lamb:
        return Lamb(groups, lr=config.learning_rate, betas=betas, eps=config.epsilon)
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=betas, eps=config.epsilon, fused=True
    )


def _muon(matrices: Mapping[float, list[Tensor]], config: OptimiserConfig) -> Muon:
    """Return Muon for matrices grouped by the scale of their learning rate."""
    groups: list[dict[str, Any]] = [
        {"params": parameters, "lr": config.muon_learning_rate * scale}
        for scale, parameters in matrices.items()
    ]
    return Muon(
        groups,
        lr=config.muon_learning_rate,
        weight_decay=config.weight_decay,
        momentum=config.muon_momentum,
    )


def _state_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Return a copy on the parameter's device, sharded if the parameter is."""
    copy = tensor.to(parameter.device, copy=True)
    return sharded_like(copy, parameter) if copy.shape == parameter.shape else copy


def _top(names: Iterable[str]) -> int:
    """Return the depth of the layers above the blocks."""
    blocks = (int(name.split(".")[2]) for name in names if name.startswith(_BLOCKS))
    return 2 + max(blocks, default=-1)


def _depth(name: str, top: int) -> int:
    """Return 0 for the embeddings, the block's number from 1, or `top` for layers above them."""
    if name.startswith(_BLOCKS):
        return 1 + int(name.split(".")[2])
    return 0 if name.startswith("encoder.embeddings.") else top
