"""Optimisers: AdamW or LAMB for everything, or Muon for the matrices inside the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.training.lamb import Lamb
from bertsmith.training.muon import Muon
from bertsmith.training.shares import shared_as


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig(Config):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019), alone or beside Muon."""

    method: Literal["adamw", "lamb"] = "adamw"
    """AdamW, or LAMB (You et al. 2020) where thousands of sequences make one step."""
    rate: float = 1e-4
    """Peak learning rate of AdamW or LAMB."""
    weight_decay: float = 0.01
    """Decay of matrices; biases and norms are never decayed."""
    beta_1: float = 0.9
    """Decay of the first moment."""
    beta_2: float = 0.999
    """Decay of the second moment."""
    epsilon: float = 1e-6
    """Added to the root of the second moment."""
    matrices: Literal["same", "muon"] = "same"
    """What trains the matrices of the encoder's layers: the same as all else, or Muon (Jordan
    2024)."""
    muon_rate: float = 0.02
    """Peak learning rate of Muon."""
    muon_momentum: float = 0.95
    """Momentum of Muon."""

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.muon_rate <= 0:
            raise ConfigError("a learning rate must be above 0")


class Optimiser:
    """One or two torch optimisers stepped together, their rates scaled by one factor."""

    def __init__(self, model: nn.Module, config: OptimiserConfig) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in model.named_parameters()
        }
        plain, decayed, orthogonal = [], [], []
        for parameter, name in self.names.items():
            if parameter.dim() < 2:
                plain.append(parameter)
            elif config.matrices == "muon" and _is_hidden_matrix(name):
                orthogonal.append(parameter)
            else:
                decayed.append(parameter)
        self.parts = [_adam(decayed, plain, config)]
        if orthogonal:
            self.parts.append(
                Muon(
                    orthogonal,
                    lr=config.muon_rate,
                    weight_decay=config.weight_decay,
                    momentum=config.muon_momentum,
                )
            )
        self._peaks = [[group["lr"] for group in part.param_groups] for part in self.parts]

    def step(self, factor: float) -> None:
        """Change the weights, every rate at `factor` of its peak; gradients are dropped."""
        for part, peaks in zip(self.parts, self._peaks, strict=True):
            for group, peak in zip(part.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """The optimisers' memory, named by parameter and quantity."""
        return {
            f"{self.names[parameter]}/{quantity}": value
            for part in self.parts
            for parameter, memory in part.state.items()
            for quantity, value in memory.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the memory back from `tensors`, a copy of it."""
        by_parameter: dict[str, dict[str, str]] = {}
        for name in tensors:
            parameter, _, quantity = name.rpartition("/")
            by_parameter.setdefault(parameter, {})[quantity] = name
        for part in self.parts:
            for parameter in _parameters(part):
                # one after another: they may be many, and this rank may keep but a share of each
                if memory := by_parameter.get(self.names[parameter]):
                    part.state[parameter] = {
                        quantity: _as_memory_of(parameter, tensors[name])
                        for quantity, name in memory.items()
                    }


def _adam(
    decayed: list[Tensor], plain: list[Tensor], config: OptimiserConfig
) -> torch.optim.Optimizer:
    """AdamW or LAMB; norms and biases, the `plain` ones, are not decayed and not scaled."""
    betas = (config.beta_1, config.beta_2)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    if config.method == "lamb":
        groups[1]["trust"] = False
        return Lamb(groups, lr=config.rate, betas=betas, eps=config.epsilon)
    return torch.optim.AdamW(groups, lr=config.rate, betas=betas, eps=config.epsilon, fused=True)


def _as_memory_of(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy where the parameter is, in shares if the parameter is."""
    copy = tensor.to(parameter.device, copy=True)
    return shared_as(copy, parameter) if copy.shape == parameter.shape else copy


def _is_hidden_matrix(name: str) -> bool:
    """Whether a matrix maps hidden values to hidden values; tables and last layers do not."""
    return name.startswith("encoder.blocks.")


def _parameters(part: torch.optim.Optimizer) -> Iterator[Any]:
    for group in part.param_groups:
        yield from group["params"]
