"""One step of training: the gradient over all its batches, and the detection of bad gradients."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertsmith.core.errors import TrainingDiverged
from bertsmith.core.log import say
from bertsmith.network.batch import Batch
from bertsmith.objectives.objective import Loss, Losses
from bertsmith.training.distribution import World
from bertsmith.training.local import DropoutKey, LocalReplicas
from bertsmith.training.replicas import Replica, full_tensor, is_sharded

_RECENT = 64
_MIN_RECENT = 16


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """The norm and losses of a step's gradient; the gradient itself is in the model."""

    norm: float
    """Norm before clipping."""
    loss: float
    """Mean loss over all batches."""
    losses: Sequence[Losses]
    """Losses of each batch, or of all together if several ranks share them."""
    tokens: int
    """Number of tokens of all batches."""


def compute_gradient(
    replica: Replica,
    batches: Sequence[Batch],
    seed: int,
    step: int,
    *,
    clip: float,
    stopping: Callable[[], bool] = lambda: False,
    local: LocalReplicas | None = None,
) -> Gradient | None:
    """Compute the gradient of the mean loss over the step's batches, clipped to a norm.

    It is left in the parameters. `batches` are those of this rank, each computed in parts by
    `local` replicas if there are any. Dropout is a function of the seed, the step and the number of
    a batch or part among those of all ranks. Returns None, leaving no gradient, when `stopping`
    returns true between two batches.
    """
    trained, world = replica.trained, replica.world
    tokens, counts = _sum_counts(batches, world)
    losses, totals = list[Losses](), list[Tensor]()
    for number, drawn_batch in enumerate(batches):
        if number and stopping():
            trained.zero_grad(set_to_none=True)
            return None
        batch = drawn_batch.to(replica.model.device)
        of_all = world.rank + number * world.size
        key = DropoutKey(seed, step, of_all)
        if local is None:
            with replica.part_of_step(last=number + 1 == len(batches)):
                results = [_add_gradient(replica, batch, counts, key)]
        else:
            results = local.add_gradient(batch, counts, key)
        totals += [total for total, _ in results]
        losses += [each_loss for _, each_loss in results]
    gradients = [parameter.grad for parameter in trained.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    size, loss = torch.stack([full_tensor(norm), torch.stack(totals).sum()]).tolist()
    if world.size > 1:
        size, loss, losses = _agree(size, loss, losses, world)
        if not is_sharded(norm):
            norm.fill_(size)
    # scaling by 1 would read and write every gradient for nothing
    if clip and size > clip:
        torch.nn.utils.clip_grads_with_norm_(trained.parameters(), clip, norm)
    return Gradient(norm=size, loss=loss, losses=losses, tokens=tokens)


def _add_gradient(
    replica: Replica, batch: Batch, counts: Mapping[str, int], key: DropoutKey
) -> tuple[Tensor, Losses]:
    """Add a batch's gradient to that of the parameters; return its share of the loss."""
    with key.seeded():
        losses = replica.losses(batch)
    total = losses.total(counts)
    replica.add_gradient(total)
    parts = {name: replace(part, sum=part.sum.detach()) for name, part in losses.parts.items()}
    return total.detach(), Losses(parts=parts)


def _sum_counts(batches: Iterable[Batch], world: World) -> tuple[int, Mapping[str, int]]:
    """Return the number of tokens of all ranks' batches, and of their targets by name."""
    tokens, counts = 0, dict[str, int]()
    for batch in batches:
        tokens += batch.tokens
        for name, target in batch.targets.items():
            counts[name] = counts.get(name, 0) + len(target)
    # the names are those of the run's objectives, on every rank
    tokens, *targets = (int(total) for total in world.sum([tokens, *counts.values()]))
    return tokens, dict(zip(counts, targets, strict=True))


def _agree(
    norm: float, loss: float, losses: Iterable[Losses], world: World
) -> tuple[float, float, list[Losses]]:
    """Return rank 0's norm, the loss of all ranks' batches, and the sums of their losses.

    On unlike machines the norms of equal gradients differ in the last bits, and all ranks have to
    clip or skip the same ones.
    """
    sums: dict[str, list[Tensor]] = {}
    predicts: dict[str, bool] = {}
    for batch_losses in losses:
        for name, part in batch_losses.parts.items():
            predicts[name] = part.predicts
            row = torch.stack([part.sum.double(), part.correct.double()])
            sums.setdefault(name, []).append(torch.cat([row, row.new_tensor([part.count])]))
    rows = torch.stack([torch.stack(item).sum(0) for item in sums.values()]).tolist()
    own_norm = norm if world.first else 0.0
    norm, loss, *flat = world.sum([own_norm, loss, *(value for row in rows for value in row)])
    parts = {}
    for name, total, correct, count in zip(sums, flat[::3], flat[1::3], flat[2::3], strict=True):
        parts[name] = Loss(
            sum=torch.tensor(total, dtype=torch.float64),
            count=int(count),
            correct=torch.tensor(int(correct)),
            predicts=predicts[name],
        )
    return norm, loss, [Losses(parts=parts)]


class GradientGuard:
    """Rejects gradients that are not finite, or spikes far above the recent norms.

    A spike has `spike` times the median norm of the last 64 steps; 0 accepts all finite ones.
    Rejected norms count for the median too, so that a lasting rise becomes the new normal. The
    decision depends only on the loss and norm of the whole step: it is equal on every rank.
    """

    def __init__(self, spike: float, patience: int) -> None:
        self._spike = spike
        self._patience = patience
        self._recent = deque[float](maxlen=_RECENT)
        self._rejected = 0

    @property
    def rejected_last(self) -> bool:
        """Return whether the last gradient was rejected."""
        return self._rejected > 0

    def accepts(self, gradient: Gradient, step: int) -> bool:
        """Return whether a gradient can be used; prints a line if not.

        Raises `TrainingDiverged` for the last of `patience` rejected ones in a row.
        """
        problem = self._problem(gradient)
        if math.isfinite(gradient.norm):
            self._recent.append(gradient.norm)
        if not problem:
            self._rejected = 0
            return True
        self._rejected += 1
        if self._rejected >= self._patience:
            many = self._rejected > 1
            skipped = f"{self._rejected} steps in a row were" if many else "the step was"
            raise TrainingDiverged(
                f"{problem} at step {step}; {skipped} skipped and changed no weight",
                remedy="lower the learning rate or lengthen the warm-up, with another --out",
            )
        say(f"step {step} was skipped: {problem}")
        return False

    def state_dict(self) -> dict[str, object]:
        """Return the state that a resumed run needs to decide equally, as JSON values."""
        return {"norms": list(self._recent), "refused": self._rejected}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state returned by `state_dict`."""
        norms, refused = state["norms"], state["refused"]
        assert isinstance(norms, list)
        assert isinstance(refused, int)
        self._recent = deque(norms, _RECENT)
        self._rejected = refused

    def _problem(self, gradient: Gradient) -> str:
        if not math.isfinite(gradient.loss):
            return f"the loss is {gradient.loss}"
        if not math.isfinite(gradient.norm):
            return f"the gradient is {gradient.norm}"
        if self._spike and len(self._recent) >= _MIN_RECENT:
            usual = statistics.median(self._recent)
            # of batches without targets the gradient is 0, and of many such the median
            if usual and gradient.norm > self._spike * usual:
                return f"the gradient's norm is {gradient.norm:.3g}, where {usual:.3g} is usual"
        return ""
