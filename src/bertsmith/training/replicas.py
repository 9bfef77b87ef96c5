"""A model in training on several ranks: replicated on each (DDP) or sharded (FSDP2).

In both cases a step's gradient is that of the mean over all its targets, whatever the number of
ranks, and the computation is the same: shards are gathered in float32 before autocast. Only the
order in which gradients are summed differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Loss, Losses
from bertsmith.training.distribution import World


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context of bfloat16 matrix products with float32 weights, or of float32 only."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def is_sharded(tensor: Tensor) -> bool:
    """Return whether a tensor is sharded."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor; if it is sharded, every rank has to call this."""
    if not is_sharded(tensor):
        return tensor
    gathered: Tensor = _distributed(tensor).full_tensor()
    return gathered


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard, or a plain tensor as it is."""
    if not is_sharded(tensor):
        return tensor
    share: Tensor = _distributed(tensor).to_local()
    return share


def sharded_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a tensor that every rank holds, sharded if `like` is, without communication."""
    if not is_sharded(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    model = _distributed(like)
    shared = distribute_tensor(tensor, model.device_mesh, model.placements, src_data_rank=None)
    # else the shard would be a view of the whole tensor
    return shared.clone()


def tensors_to_save(tensors: Mapping[str, Tensor], *, first: bool) -> dict[str, Tensor]:
    """Return this rank's non-empty shards; on the first rank also the tensors not sharded."""
    shards = {
        name: local_shard(tensor) for name, tensor in tensors.items() if first or is_sharded(tensor)
    }
    return {name: shard for name, shard in shards.items() if shard.dim() == 0 or len(shard)}


def shard_starts(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the first row of this rank's shard of each sharded tensor."""
    return {name: _shard_start(tensor) for name, tensor in tensors.items() if is_sharded(tensor)}


def _shard_start(tensor: Tensor) -> int:
    """Return the first row of this rank's shard: rows are split into equal runs, the last short.

    FSDP2 splits this way; no tensor is sharded along another dimension here.
    """
    model = _distributed(tensor)
    size, rank = model.device_mesh.size(), model.device_mesh.get_local_rank()
    return int(min(rank * -(-len(tensor) // size), len(tensor)))


def _distributed(tensor: Tensor) -> Any:  # noqa: ANN401
    return tensor


LossFunction = Callable[[Model, Batch], Losses]
"""A function of a model and a batch that returns the parts of a loss, such as an `Objective`."""
PlainLosses = Mapping[str, tuple[Tensor, Tensor, int, float, bool]]
"""Losses by name as plain values: sum, correct, count, weight, predicts."""

_OWN = "objective"


def own_modules(objective: LossFunction) -> nn.ModuleDict:
    """Return what is trained beside the model; a plain function owns nothing."""
    own: nn.ModuleDict = getattr(objective, "own", nn.ModuleDict())
    return own


def to_losses(parts: PlainLosses) -> Losses:
    """Return losses, given their plain values."""
    return Losses(
        parts={
            name: Loss(sum=total, count=count, correct=correct, weight=weight, predicts=predicts)
            for name, (total, correct, count, weight, predicts) in parts.items()
        }
    )


class TrainedParameters(nn.Module):
    """The trained parameters: those of a model by its names, those of terms below `objective`."""

    def __init__(self, model: Model, term_modules: nn.ModuleDict) -> None:
        super().__init__()
        for name, part in model.named_children():
            self.add_module(name, part)
        if term_modules:
            self.add_module(_OWN, term_modules.to(model.device))


def model_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the model's weights, without those of terms."""
    return {name: weight for name, weight in weights.items() if not name.startswith(f"{_OWN}.")}


class Replica:
    """This rank's replica of a model in training: computes losses and accumulates gradients.

    If the world shards, the model's parameters are replaced by shards (`DTensor`), so optimisers
    have to be made afterwards.
    """

    def __init__(
        self, model: Model, objective: LossFunction, precision: Precision, world: World
    ) -> None:
        self.model = model
        self.world = world
        self._precision: Precision = precision
        self._step: Callable[[Batch], PlainLosses]
        self._step = step = _Step(model, objective)
        self.trained = TrainedParameters(model, step.own)
        self._copies: Any = None
        self._shares: Any = None
        if world.shard:
            _shard(model, step, world)
            self._shares = step
        elif world.size > 1:
            # parameters that a run does not train require no gradient, so none goes unused
            self._step = self._copies = nn.parallel.DistributedDataParallel(step)
        step.train()

    def losses(self, batch: Batch) -> Losses:
        """Return the objective's losses over one batch."""
        with autocast(self._precision, self.model.device):
            return to_losses(self._step(batch))

    @contextmanager
    def part_of_step(self, *, last: bool) -> Iterator[None]:
        """Wrap the losses and gradient of one batch; ranks exchange gradients with the `last`.

        Sharded gradients are exchanged with every batch: keeping whole ones would defeat sharding.
        """
        if self._copies is None or last:
            yield
        else:
            with self._copies.no_sync():
                yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather the whole model meanwhile; for all ranks to call together, outside of steps."""
        if self._shares is not None:
            self._shares.unshard()
        yield
        if self._shares is not None:
            self._shares.reshard()

    def add_gradient(self, loss: Tensor) -> None:
        """Accumulate the gradient of a batch's loss; all ranks have to call this."""
        # DDP and FSDP take the mean over the ranks, and a step's loss is a sum over its batches
        (loss * self.world.size if self.world.size > 1 else loss).backward()


class _Step(nn.Module):
    """Model and objective as one module that returns plain tensors, as DDP and FSDP require."""

    def __init__(self, model: Model, objective: LossFunction) -> None:
        super().__init__()
        self.model = model
        self.own = own_modules(objective)
        self._objective = objective

    def forward(self, batch: Batch) -> PlainLosses:
        losses = self._objective(self.model, batch)
        return {
            name: (one.sum, one.correct, one.count, one.weight, one.predicts)
            for name, one in losses.parts.items()
        }


def _shard(model: Model, step: _Step, world: World) -> None:
    """Shard each block's parameters, and then the remaining ones, over the ranks.

    Blocks shared by several layers (ALBERT's) are few and small: they stay with the rest.
    """
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # as DDP does: each rank has made them itself, and unlike machines make others
    for parameter in step.parameters():
        distributed.broadcast(parameter.detach(), 0)

    mesh = init_device_mesh(model.device.type, (world.size,))
    blocks = model.encoder.blocks
    for block in blocks if len(blocks) == model.config.encoder.layers else ():
        fully_shard(block, mesh=mesh)
    fully_shard(step, mesh=mesh)


def gather_model(model: Model, world: World) -> Model:
    """Return a separate model with the weights of a sharded one on rank 0, elsewhere the shards.

    A model that is not sharded is returned as it is.
    """
    shares = model.state_dict()
    if not any(map(is_sharded, shares.values())):
        return model
    weights = {name: full_tensor(share).cpu() for name, share in shares.items()}
    if not world.first:
        return model
    gathered = build_model(model.config, seed=0)
    gathered.load_state_dict(weights)
    return gathered.to(model.device)


@torch.no_grad()
def unshard(modules: nn.Module) -> None:
    """Replace the shards of modules by their whole tensors; every rank has to call this."""
    for part in modules.modules():
        for name, share in list(part.named_parameters(recurse=False)):
            if is_sharded(share):
                setattr(part, name, nn.Parameter(full_tensor(share)))
