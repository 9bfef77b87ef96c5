"""Fine-tuning a classifier with one seed: the same for every contestant and every recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bertsmith.batches.batch import Batch
from bertsmith.batches.examples import EncodedExamples, ExampleBatches
from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.evaluation.metrics import accuracy, macro_f1
from bertsmith.inference.classify import class_probabilities
from bertsmith.layers.attention import SelfAttention
from bertsmith.models.model import Model
from bertsmith.objectives.classify import Classify
from bertsmith.objectives.losses import Losses
from bertsmith.objectives.objective import Objective
from bertsmith.training.loop import FitConfig, fit
from bertsmith.training.optimiser import OptimiserConfig
from bertsmith.training.precision import Precision
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Budget, ScheduleConfig

# points of the loss curve that are kept
_POINTS = 200


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(Config):
    """How a classifier is trained; the defaults are within what BERT's authors recommend."""

    epochs: int = 3
    """Times the examples are gone through."""
    batch: int = 32
    """Examples a step."""
    rate: float = 5e-5
    """Peak learning rate; published are 2e-5 to 5e-5."""
    warm_up: float = 0.1
    """Share of the steps in which the rate rises; it falls to zero in the others."""
    weight_decay: float = 0.01
    """Decay of matrices."""
    longest: int = 128
    """Tokens a sequence at most, or the model's limit where that is less; the rest is cut."""
    dev_share: float = 0.1
    """Share of the examples held out to measure with, where no --dev is given."""
    dropout: float = 0.1
    """Share of hidden values and attention weights set to zero, whatever pre-training had."""
    precision: Precision = "bf16"
    """Number format of training, bf16 or fp32; dev is always measured in fp32."""
    seed: int = 0
    """The first seed, and that of the split."""
    baseline: bool = True
    """Also train TF-IDF + logistic regression, to see what the model is worth."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("longest", 8), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}", remedy=f"it must be at least {least}"
                )
        if not 0 < self.dev_share < 1:
            raise ConfigError(f"dev_share is {self.dev_share}", remedy="it must be in (0, 1)")
        if not 0 < self.rate < 1:
            raise ConfigError(f"rate is {self.rate}", remedy="it must be in (0, 1)")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout}", remedy="it must be in [0, 1)")
        if not 0 <= self.warm_up <= 1:
            raise ConfigError(f"warm_up is {self.warm_up}", remedy="it must be in [0, 1]")


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """What one seed came to on dev.

    `predictions` (dev examples,) are class numbers; `losses` the points (step, mean loss since the
    last point) of training; `seconds` those of training.
    """

    seed: int
    accuracy: float
    macro_f1: float
    predictions: NDArray[np.int64]
    losses: list[tuple[int, float]]
    seconds: float
    tokens: int

    @property
    def rank(self) -> tuple[float, float, int]:
        """Larger for the better seed: by accuracy, then by macro F1, then the earlier one."""
        return self.accuracy, self.macro_f1, -self.seed

    @property
    def degenerate(self) -> bool:
        """Whether one class was predicted throughout: training has failed."""
        return len(np.unique(self.predictions)) == 1

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return self.__dict__ | {"predictions": self.predictions.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SeedResult:
        """What `to_dict` gave."""
        predictions = np.array(data["predictions"], np.int64)
        losses = [(int(step), float(loss)) for step, loss in data["losses"]]
        return cls(**data | {"predictions": predictions, "losses": losses})


def run_seed(
    make_model: Callable[[int], Model],
    train: EncodedExamples,
    dev: EncodedExamples,
    config: FinetuneConfig,
    seed: int,
    folder: RunFolder | None = None,
    title: str = "",
) -> tuple[SeedResult, Model]:
    """Train the model that `make_model` gives for a seed, and measure it on dev.

    The seed decides the new weights, the order of the examples and what dropout drops. With a
    folder, a training that was stopped goes on; its checkpoints are left to the caller. Raises
    what `fit` raises.
    """
    assert dev.labels is not None
    model = make_model(seed)
    set_dropout(model, config.dropout)
    source = ExampleBatches(train, sequences_per_batch=config.batch, seed=seed)
    steps = config.epochs * source.batches
    if folder is not None:
        folder.path.mkdir(parents=True, exist_ok=True)
    watched = _Watched(every=max(1, steps // _POINTS))
    state = fit(
        _fit_config(config, steps, seed), model, watched, source, folder=folder, title=title
    )
    predictions = class_probabilities(model, dev).argmax(-1).astype(np.int64)
    result = SeedResult(
        seed=seed,
        accuracy=accuracy(dev.labels, predictions),
        macro_f1=macro_f1(dev.labels, predictions),
        predictions=predictions,
        losses=watched.points() if folder is None else _logged(folder),
        seconds=state.seconds,
        tokens=state.tokens,
    )
    return result, model


def set_dropout(model: Model, share: float) -> None:
    """Give every dropout of a model the same share."""
    encoder = replace(model.config.encoder, dropout=share, attention_dropout=share)
    model.config = replace(model.config, encoder=encoder, classifier_dropout=share)
    model.encoder.config = encoder
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = share
        elif isinstance(part, SelfAttention):
            part.dropout = share


class _Watched:
    """The objective, with its losses kept: the only trace of a run without a folder."""

    def __init__(self, every: int) -> None:
        self._objective = Objective(terms={"classify": Classify()})
        self._every = every
        self._means: list[Any] = []

    def __call__(self, model: Model, batch: Batch) -> Losses:
        losses = self._objective(model, batch)
        loss = losses.parts["classify"]
        self._means.append(loss.sum.detach() / loss.count)
        return losses

    def points(self) -> list[tuple[int, float]]:
        """Means over runs of steps, each at its last step."""
        means = [float(mean) for mean in self._means]
        runs = [means[i : i + self._every] for i in range(0, len(means), self._every)]
        ends = [min((i + 1) * self._every, len(means)) for i in range(len(runs))]
        return [(end, sum(run) / len(run)) for end, run in zip(ends, runs, strict=True)]


def _logged(folder: RunFolder) -> list[tuple[int, float]]:
    """The losses in a folder's log; of steps made again after a stop, the later ones."""
    lines = {line["step"]: line for line in folder.log() if "classify_loss" in line}
    return [(step, lines[step]["classify_loss"]) for step in sorted(lines)]


def _fit_config(config: FinetuneConfig, steps: int, seed: int) -> FitConfig:
    return FitConfig(
        budget=Budget(steps=steps),
        optimiser=OptimiserConfig(rate=config.rate, weight_decay=config.weight_decay),
        schedule=ScheduleConfig(warm_up=config.warm_up),
        precision=config.precision,
        seed=seed,
        log_every=max(1, steps // _POINTS),
    )
