"""One step of training: the gradient of all its batches, and whether it is fit to be used."""

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
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch
from bertsmith.objectives.objective import Loss, Losses
from bertsmith.training.distribution import World
from bertsmith.training.replicas import Replica, whole

_RECENT = 64
_FEW = 16


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """What a step's gradient is known by; the gradient itself is in the model."""

    norm: float
    """Its norm before it was clipped."""
    loss: float
    """The mean loss over all batches."""
    losses: Sequence[Losses]
    """The losses of each batch, or of all of them together where several ranks share them."""
    tokens: int
    """The tokens of all batches."""


def gradient_of(
    replica: Replica,
    drawn: Sequence[Batch],
    seed: int,
    step: int,
    *,
    clip: float,
    stopping: Callable[[], bool] = lambda: False,
) -> Gradient | None:
    """Leave the gradient of the mean loss over the step's batches in what is trained, clipped.

    `drawn` are this rank's batches. Dropout is a function of the seed, the step and a batch's
    number among those of all ranks. None, and no gradient, when `stopping` says so between two
    batches.
    """
    trained, world = replica.trained, replica.world
    tokens, counts = _all_counts(drawn, world)
    losses, totals = [], []
    for number, each in enumerate(drawn):
        if number and stopping():
            trained.zero_grad(set_to_none=True)
            return None
        batch = each.to(replica.model.device)
        of_all = world.rank + number * world.size
        torch.manual_seed(int(stream(Purpose.DROPOUT, seed, step, of_all)))
        with replica.part_of_step(last=number + 1 == len(drawn)):
            found = replica.losses(batch)
            total = found.total(counts)
            replica.add_gradient(total)
        totals.append(total.detach())
        losses.append(_detached(found))
    gradients = [each.grad for each in trained.parameters() if each.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    size, loss = torch.stack([whole(norm), torch.stack(totals).sum()]).tolist()
    # scaling by 1 would read and write every gradient for nothing
    if clip and size > clip:
        torch.nn.utils.clip_grads_with_norm_(trained.parameters(), clip, norm)
    if world.size > 1:
        loss, losses = _over_ranks(loss, losses, world)
    return Gradient(norm=size, loss=loss, losses=losses, tokens=tokens)


def _detached(losses: Losses) -> Losses:
    """The same figures without what backward has walked."""
    parts = {name: replace(part, sum=part.sum.detach()) for name, part in losses.parts.items()}
    return Losses(parts=parts)


def _all_counts(drawn: Iterable[Batch], world: World) -> tuple[int, Mapping[str, int]]:
    """The tokens of all ranks' batches, and their targets by name."""
    tokens, counts = 0, dict[str, int]()
    for batch in drawn:
        tokens += batch.tokens
        for name, target in batch.targets.items():
            counts[name] = counts.get(name, 0) + len(target)
    # the names are those of the run's objectives, on every rank
    tokens, *targets = (int(each) for each in world.sum([tokens, *counts.values()]))
    return tokens, dict(zip(counts, targets, strict=True))


def _over_ranks(loss: float, losses: Iterable[Losses], world: World) -> tuple[float, list[Losses]]:
    """The loss of all ranks' batches, and their figures summed."""
    sums: dict[str, list[Tensor]] = {}
    for each in losses:
        for name, part in each.parts.items():
            row = torch.stack([part.sum.double(), part.correct.double()])
            sums.setdefault(name, []).append(torch.cat([row, row.new_tensor([part.count])]))
    rows = torch.stack([torch.stack(each).sum(0) for each in sums.values()]).tolist()
    loss, *flat = world.sum([loss, *(value for row in rows for value in row)])
    parts = {}
    for name, total, correct, count in zip(sums, flat[::3], flat[1::3], flat[2::3], strict=True):
        parts[name] = Loss(
            sum=torch.tensor(total, dtype=torch.float64),
            count=int(count),
            correct=torch.tensor(int(correct)),
        )
    return loss, [Losses(parts=parts)]


class Watch:
    """Tells gradients that must not be used: no numbers, or spikes far above the recent ones.

    A spike has `spike` times the median norm of the last 64 steps; 0 lets all numbers pass. What
    was refused counts among them too, so that a lasting rise becomes the new measure. Decides by
    the loss and the norm of the whole step alone: the same on every process that shares it.
    """

    def __init__(self, spike: float, patience: int, norms: Iterable[float] = ()) -> None:
        self._spike = spike
        self._patience = patience
        self._recent = deque(norms, _RECENT)
        self._refused = 0

    @property
    def refusing(self) -> bool:
        """Whether the last gradient was unfit."""
        return self._refused > 0

    def accepts(self, gradient: Gradient, step: int) -> bool:
        """Whether a gradient is fit to be used; tells when it is not.

        Raises `TrainingDiverged` for the last of `patience` unfit ones in a row.
        """
        problem = self._problem(gradient)
        if math.isfinite(gradient.norm):
            self._recent.append(gradient.norm)
        if not problem:
            self._refused = 0
            return True
        self._refused += 1
        if self._refused >= self._patience:
            row = f"for {self._refused} steps in a row " if self._refused > 1 else ""
            raise TrainingDiverged(
                f"{problem} at step {step}, {row}unfit to learn from; no weight was changed by it",
                remedy="lower the learning rate or lengthen the warm-up, with another --out",
            )
        say(f"step {step} was skipped: {problem}")
        return False

    def memory(self) -> dict[str, object]:
        """What a resumed run needs to decide in the same way, as plain JSON values."""
        return {"norms": list(self._recent), "refused": self._refused}

    def recall(self, memory: Mapping[str, object]) -> None:
        """Take back what `memory` gave."""
        norms, refused = memory["norms"], memory["refused"]
        assert isinstance(norms, list)
        assert isinstance(refused, int)
        self._recent = deque(norms, _RECENT)
        self._refused = refused

    def _problem(self, gradient: Gradient) -> str:
        if not math.isfinite(gradient.loss):
            return f"the loss is {gradient.loss}"
        if not math.isfinite(gradient.norm):
            return f"the gradient is {gradient.norm}"
        if self._spike and len(self._recent) >= _FEW:
            usual = statistics.median(self._recent)
            if gradient.norm > self._spike * usual:
                return f"the gradient's norm is {gradient.norm:.3g}, where {usual:.3g} is usual"
        return ""
