"""A model in training on several ranks: a whole copy on each (DDP), or a share of it (FSDP2).

Either way a step's gradient is that of the mean over all its targets, whatever the number of
ranks, and what is computed is the same: shares are gathered in float32 and autocast takes it from
there. Only the order in which gradients are added up differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from bertsmith.batches.batch import Batch
from bertsmith.evaluation.forward_only import Precision
from bertsmith.models.model import Model, build_model
from bertsmith.objectives.losses import Loss, Losses
from bertsmith.training.distribution import World
from bertsmith.training.precision import autocast
from bertsmith.training.shares import in_shares, whole

Objective = Callable[[Model, Batch], Losses]


class Replica:
    """This rank's part in training a model: a batch to losses, and their gradient to the model.

    Where the world wants shares, the model's parameters become shares of themselves (`DTensor`), so
    that optimisers have to be made afterwards.
    """

    def __init__(
        self, model: Model, objective: Objective, precision: Precision, world: World
    ) -> None:
        self.model = model
        self.world = world
        self._precision: Precision = precision
        self._step: Callable[[Batch], dict[str, tuple[Tensor, Tensor, int]]]
        self._step = step = _Step(model, objective)
        self._copies: Any = None
        self._shares: Any = None
        if world.shard:
            _shard(model, step, world)
            self._shares = step
        elif world.size > 1:
            # the parts of a model that a run does not train need no gradient: none goes unused
            self._step = self._copies = nn.parallel.DistributedDataParallel(step)
        step.train()

    def losses(self, batch: Batch) -> Losses:
        """The objective's losses over one batch."""
        with autocast(self._precision, self.model.device):
            parts = self._step(batch)
        return Losses(
            parts={
                name: Loss(sum=total, count=count, correct=correct)
                for name, (total, correct, count) in parts.items()
            }
        )

    @contextmanager
    def part_of_step(self, *, last: bool) -> Iterator[None]:
        """Around the losses and gradient of one batch; ranks exchange gradients with the `last`.

        Shares are exchanged with every batch: to keep whole gradients is what shares are to avoid.
        """
        if self._copies is None or last:
            yield
        else:
            with self._copies.no_sync():
                yield

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """The model as a whole one meanwhile, to be called outside of steps; by all ranks alike."""
        if self._shares is not None:
            self._shares.unshard()
        yield
        if self._shares is not None:
            self._shares.reshard()

    def add_gradient(self, loss: Tensor) -> None:
        """Add a loss's gradient to those of the step's other batches, on all ranks."""
        # DDP and FSDP take the mean over the ranks, and a step's loss is a sum over its batches
        (loss * self.world.size if self.world.size > 1 else loss).backward()


class _Step(nn.Module):
    """Model and objective as one module, which gives plain tensors, as DDP and FSDP ask for."""

    def __init__(self, model: Model, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self._objective = objective

    def forward(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor, int]]:
        losses = self._objective(self.model, batch)
        return {name: (one.sum, one.correct, one.count) for name, one in losses.parts.items()}


def _shard(model: Model, step: _Step, world: World) -> None:
    """Split each block's parameters, and then the rest's, over the ranks.

    Blocks that serve several layers (ALBERT's) are few and small: they stay with the rest.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(model.device.type, (world.size,))
    blocks = model.encoder.blocks
    for block in blocks if len(blocks) == model.config.encoder.layers else ():
        fully_shard(block, mesh=mesh)
    fully_shard(step, mesh=mesh)


def complete(model: Model, world: World) -> Model:
    """A model of its own on rank 0 with the weights of one in shares; elsewhere the shares.

    A model that is not in shares is returned as it is.
    """
    shares = model.state_dict()
    if not any(map(in_shares, shares.values())):
        return model
    weights = {name: whole(share).cpu() for name, share in shares.items()}
    if not world.first:
        return model
    gathered = build_model(model.config, seed=0)
    gathered.load_state_dict(weights)
    return gathered.to(model.device)
