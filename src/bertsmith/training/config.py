"""The options of training: budget, schedule, optimiser, loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from bertsmith.core.config import Config, check_least, check_range, named
from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import counted
from bertsmith.network.config import Precision


@dataclass(frozen=True, kw_only=True)
class Budget(Config):
    """The budget of a run: steps, or minutes of wall-clock time."""

    steps: int | None = None
    """Optimiser steps."""
    minutes: float | None = None
    """Minutes from the start of the command to the saved model: checks, measurements and saving are
    among them. A resumed run has those that were left."""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ConfigError(
                "the budget needs either steps or minutes",
                remedy="give one of --steps and --minutes",
            )
        check_least(self, {"steps": 1})
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(
                f"--minutes is {self.minutes}", remedy="it must be above 0, and finite"
            )

    def progress(self, step: int) -> float:
        """Return the spent share of the steps, 0 to 1."""
        assert self.steps is not None
        return min(step / self.steps, 1.0)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Config):
    """Warm-up and decay of the learning rate, as shares of the budget."""

    warmup: float = 0.1
    """Share of the budget during which the learning rate rises linearly from zero to its peak."""
    decay: Literal["linear", "cosine", "root", "none"] = "linear"
    """Decay of the learning rate to zero: linear; cosine; root, 1 minus the square root of the
    elapsed share of the decay (Hägele et al. 2024); none keeps it at its peak."""
    hold: float = 0.0
    """Share of the budget, after the warm-up, during which the learning rate stays at its peak."""
    floor: float = 0.0
    """Share of the peak at which the learning rate starts and ends; 1/32 with a warm-up of 0.1 is
    the slanted triangle of Howard & Ruder 2018 (ULMFiT), section 3.2."""

    def __post_init__(self) -> None:
        check_range(self, ["warmup", "hold"], "[0, 1]")
        if self.warmup + self.hold > 1:
            raise ConfigError(f"--warmup {self.warmup} and --hold {self.hold} exceed the budget")
        check_range(self, ["floor"], "[0, 1]")

    def factor(self, progress: float) -> float:
        """Return the share of the peak rate at a progress in [0, 1]."""
        return self.floor + (1 - self.floor) * self._height(progress)

    def _height(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup
        begin = self.warmup + self.hold
        if self.decay == "none" or progress <= begin:
            return 1.0
        remaining = (1 - progress) / (1 - begin)
        if self.decay == "root":
            return 1 - math.sqrt(1 - remaining)
        return remaining if self.decay == "linear" else (1 - math.cos(math.pi * remaining)) / 2


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig(Config):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019), alone or beside Muon."""

    algorithm: Literal["adamw", "lamb"] = field(default="adamw", metadata=named("optimiser"))
    """adamw, or lamb (You et al. 2020) for steps of thousands of sequences."""
    learning_rate: float = 1e-4
    """Peak learning rate of AdamW or LAMB."""
    weight_decay: float = 0.01
    """Weight decay of matrices; biases and norms are never decayed."""
    beta_1: float = 0.9
    """Decay rate of the first moment."""
    beta_2: float = 0.999
    """Decay rate of the second moment."""
    epsilon: float = 1e-6
    """Term added to the square root of the second moment."""
    matrices: Literal["same", "muon"] = "same"
    """Optimiser of the matrices in the encoder's layers: the same as for all other weights, or Muon
    (Jordan 2024)."""
    muon_learning_rate: float = 0.02
    """Peak learning rate of Muon."""
    muon_momentum: float = 0.95
    """Momentum of Muon."""

    layer_decay: float = 1.0
    """Learning rate of a layer, as a factor of that of the layer above; the embeddings are lowest
    (Howard & Ruder 2018, section 3.2; Clark et al. 2020, appendix B); 1 for one rate."""

    def __post_init__(self) -> None:
        # with an epsilon of 0, weights without a gradient would become 0 / 0
        check_range(self, ["learning_rate", "muon_learning_rate", "epsilon"], "(0, inf)")
        check_range(self, ["weight_decay"], "[0, inf)")
        check_range(self, ["beta_1", "beta_2", "muon_momentum"], "[0, 1)")
        check_range(self, ["layer_decay"], "(0, 1]")
        if self.algorithm == "adamw":
            self._check_decay("learning_rate")
        if self.matrices == "muon":
            self._check_decay("muon_learning_rate")

    def _check_decay(self, name: str) -> None:
        """Raise `ConfigError` if a step at this peak rate would take away all of a matrix."""
        rate = getattr(self, name)
        if rate * self.weight_decay >= 1:
            raise ConfigError(
                f"--weight-decay is {self.weight_decay} at --{name.replace('_', '-')} {rate}",
                remedy="their product, the share of a matrix that a step removes, must be below 1",
            )


@dataclass(frozen=True, kw_only=True)
class Parallelism(Config):
    """The processes of this machine that share each batch, and the threads of each."""

    threads: int
    """Threads of torch."""
    replicas: int = 1
    """Processes, this one among them."""

    def __str__(self) -> str:
        if self.replicas > 1:
            return f"{self.replicas} replicas of {counted(self.threads, 'thread')}"
        return counted(self.threads, "thread")


@dataclass(frozen=True, kw_only=True)
class FitConfig(Config):
    """The settings of a training run."""

    budget: Budget
    """The length of the run."""
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    """The optimiser and its rates."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """The course of the learning rate."""
    max_gradient_norm: float = 1.0
    """Largest norm of the gradient; a larger gradient is scaled down to it. 0 for no limit."""
    spike: float = 0.0
    """A step is skipped when its gradient's norm is so many times the usual one; 0 for never."""
    patience: int = 10
    """Skipped steps in a row that end the training; those that are not finite are among them."""
    gradient_accumulation: int = 1
    """Batches whose gradients make one step, those of all processes together."""
    precision: Precision
    """bf16 (autocast, float32 weights) or fp32."""
    seed: int = 0
    """Seed of dropout."""
    log_every: int = 20
    """Steps between two lines of the log."""
    checkpoint_minutes: float = 10.0
    """Minutes of training between two checkpoints; one is always made at the end."""
    keep_checkpoints: int = 2
    """Newest checkpoints that are kept, besides the best."""
    measurements: int = 0
    """Measurements on held-out text, evenly over the budget; minutes pay for them too."""
    stop_after: int = 0
    """Measurements in a row without a better one after which training ends; 0 for never."""
    replicas: int = 1
    """Processes of this machine that compute the parts of each batch, one thread each; with more
    than one, batches are cut into twice as many parts, which changes what is dropped, and without
    dropout results in the last bits."""
    alternative: Parallelism | None = None
    """Another parallelism than the threads of torch and `replicas`, adopted where it is faster."""
    workers: int = 0
    """Processes that draw batches ahead; 0 draws them in this one. Changes nothing but the time."""

    def __post_init__(self) -> None:
        once = ("gradient_accumulation", "log_every", "patience", "keep_checkpoints", "replicas")
        check_least(self, dict.fromkeys(once, 1))
        check_least(self, dict.fromkeys(("spike", "measurements", "stop_after", "workers"), 0))
        check_range(self, ["max_gradient_norm", "checkpoint_minutes"], "[0, inf)")

    @property
    def learns(self) -> bool:
        """Return whether any step has a learning rate above 0, as far as their number is known.

        A warm-up begins with a rate of 0, and there may be no other step.
        """
        steps = self.budget.steps
        # whatever the schedule, at most one step is at 0
        return steps is None or any(self.schedule.factor(n / steps) > 0 for n in range(steps)[:2])
