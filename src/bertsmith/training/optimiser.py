"""Optimisers: AdamW or LAMB for everything, or Muon for the matrices inside the encoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.training.lamb import Lamb
from bertsmith.training.muon import Muon
from bertsmith.training.shares import shared_as

_BLOCKS = "encoder.blocks."


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

    layer_decay: float = 1.0
    """What a layer's rate is of that of the layer above it, embeddings lowest (Howard & Ruder 2018,
    section 3.2; Clark et al. 2020, appendix B); 1 for one rate."""

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.muon_rate <= 0:
            raise ConfigError("a learning rate must be above 0")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(
                f"layer_decay is {self.layer_decay}", remedy="it must be above 0 and at most 1"
            )


class Optimiser:
    """One or two torch optimisers stepped together, their rates scaled by one factor."""

    def __init__(self, model: nn.Module, config: OptimiserConfig) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in model.named_parameters()
        }
        kinds: dict[tuple[float, bool], list[Tensor]] = {(1.0, True): [], (1.0, False): []}
        orthogonal = []
        top = _top(self.names.values())
        for parameter, name in self.names.items():
            if config.matrices == "muon" and parameter.dim() > 1 and _is_hidden_matrix(name):
                orthogonal.append(parameter)
            else:
                scale = config.layer_decay ** (top - _depth(name, top))
                kinds.setdefault((scale, parameter.dim() > 1), []).append(parameter)
        self.parts = [_adam(kinds, config)]
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
    kinds: Mapping[tuple[float, bool], list[Tensor]], config: OptimiserConfig
) -> torch.optim.Optimizer:
    """AdamW or LAMB for parameters by (share of the rate, whether they are matrices).

    Norms and biases, which are no matrices, are not decayed, and not scaled by LAMB.
    """
    betas = (config.beta_1, config.beta_2)
    lamb = config.method == "lamb"
    groups: list[dict[str, Any]] = [
        {
            "params": parameters,
            "lr": config.rate * scale,
            "weight_decay": config.weight_decay if matrices else 0.0,
            **({"trust": False} if lamb and not matrices else {}),
        }
        for (scale, matrices), parameters in kinds.items()
    ]
    if lamb:
        return Lamb(groups, lr=config.rate, betas=betas, eps=config.epsilon)
    return torch.optim.AdamW(groups, lr=config.rate, betas=betas, eps=config.epsilon, fused=True)


def _as_memory_of(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy where the parameter is, in shares if the parameter is."""
    copy = tensor.to(parameter.device, copy=True)
    return shared_as(copy, parameter) if copy.shape == parameter.shape else copy


def _is_hidden_matrix(name: str) -> bool:
    """Whether a matrix maps hidden values to hidden values; tables and last layers do not."""
    return name.startswith(_BLOCKS)


def _top(names: Iterable[str]) -> int:
    """The depth of what stands on the blocks."""
    blocks = (int(name.split(".")[2]) for name in names if name.startswith(_BLOCKS))
    return 2 + max(blocks, default=-1)


def _depth(name: str, top: int) -> int:
    """0 for the embeddings, then the number of the block, from 1; `top` for what stands on them."""
    if name.startswith(_BLOCKS):
        return 1 + int(name.split(".")[2])
    return 0 if name.startswith("encoder.embeddings.") else top


def _parameters(part: torch.optim.Optimizer) -> Iterator[Any]:
    for group in part.param_groups:
        yield from group["params"]
