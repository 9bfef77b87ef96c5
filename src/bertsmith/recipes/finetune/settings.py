"""The settings of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.network.model import Precision
from bertsmith.network.preprocessing import Fit
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.weighing import LabelLoss
from bertsmith.text.bad_rows import OnBad
from bertsmith.text.examples.columns import USUAL, Columns
from bertsmith.text.examples.formats.conll_columns import USUAL_TAGS, TagColumns
from bertsmith.training.loop import FitConfig
from bertsmith.training.optimisers import OptimiserConfig
from bertsmith.training.schedule import Budget, ScheduleConfig

# maximum number of points of the loss curve
POINTS = 200
# Howard & Ruder 2018, section 3.2: the rate begins and ends at a 32nd of its peak
_SLANTED_FLOOR = 1 / 32


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Config):
    """What --grid tries: every rate with every batch and every number of epochs.

    The defaults are those of Devlin et al. 2018, appendix A.3.
    """

    rates: tuple[float, ...] = (2e-5, 3e-5, 5e-5)
    """Peak learning rates that --grid tries."""
    batches: tuple[int, ...] = (16, 32)
    """Examples a step that it tries."""
    epochs: tuple[int, ...] = (2, 3, 4)
    """Numbers of epochs that it tries."""

    def __post_init__(self) -> None:
        for name in ("rates", "batches", "epochs"):
            values = getattr(self, name)
            if not values or min(values) <= 0:
                raise ConfigError(f"search.{name} is {list(values)}", remedy="give values above 0")
        if max(self.rates) >= 1:
            raise ConfigError(f"search.rates is {list(self.rates)}", remedy="give rates below 1")


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(Config):
    """How a model is fine-tuned; the defaults are within what BERT's authors recommend."""

    epochs: int = 3
    """Times the examples are gone through."""
    batch: int = 32
    """Examples a step; windows, where words or answers are looked for in long texts."""
    rate: float = 5e-5
    """Peak learning rate; published are 2e-5 to 5e-5."""
    schedule: Literal["linear", "slanted", "triangular", "cosine", "constant"] = "linear"
    """How the rate moves after the warm-up: linear and cosine fall to zero; slanted is ULMFiT's,
    which begins and ends at a 32nd of the peak; triangular rises for half of the steps."""
    warm_up: float = 0.1
    """Share of the steps in which the rate rises."""
    weight_decay: float = 0.01
    """Decay of matrices."""
    layer_decay: float = 1.0
    """What a layer's rate is of that of the layer above; 0.95 and 0.9 are usual, 1 is off."""
    reinitialise: int = 0
    """Top layers that start from random weights, and the pooler with them (Zhang et al. 2021)."""
    freeze: int = 0
    """Layers from the bottom that are not trained, and the embeddings with them; -1 freezes the
    embeddings alone."""
    class_weights: Literal["none", "balanced"] = "none"
    """Balanced weighs the classes so that rare ones count as much as common ones."""
    smoothing: float = 0.0
    """Share of each label that is spread over all labels."""
    patience: int = 0
    """Epochs in a row without a better score on dev that end the training, the best epoch's weights
    being kept; 0 trains to the end."""
    longest: int | None = None
    """Tokens a sequence at most, or the model's limit where that is less. Where none are named, as
    many as 95 % of the texts have, 128 at least and 512 at most, fewer where that would take hours;
    384 to look for answers, 128 for words and GLUE's tasks."""
    long: Fit = "head"
    """What is read of longer texts: head, tail, head+tail, or windows, all of it; words and
    answers are always looked for in windows."""
    stride: int | None = None
    """Tokens that two windows share, where words or answers are looked for in long texts; a third
    of them all where none are named."""
    dev_share: float = 0.1
    """Share of the examples held out to measure with, where no --dev is given."""
    dropout: float = 0.1
    """Share set to zero of embeddings, of what each layer adds, of attention weights and of what
    the classifier reads, whatever the family and pre-training had."""
    precision: Precision = "bf16"
    """Number format of training, bf16 or fp32; dev is always measured in fp32."""
    seed: int = 0
    """The first seed, and that of the split."""
    target_accuracy: float | None = None
    """For classes and choices: choose on dev the probability below which the model gives no answer,
    so that this share of the answers it gives is right; it is kept in the model's folder."""
    baseline: bool = True
    """Also train TF-IDF + a linear model, to see what the model is worth."""
    baseline_seconds: float = 20.0
    """Seconds that TF-IDF may take, about, or as many as the seeds have taken: it is made smaller,
    or left out, where it would take more time, or much memory; 0 tries all of it whatever comes."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """What --grid tries."""
    columns: Columns = USUAL
    """Columns of texts and labels."""
    tags: TagColumns = USUAL_TAGS
    """Columns of words and tags."""
    on_bad: OnBad = "fail"
    """What becomes of bad rows: fail, skip, or quarantine, which puts them into FILE.bad.jsonl."""

    def __post_init__(self) -> None:
        least = {
            "epochs": 1, "batch": 1, "longest": 8, "seed": 0, "reinitialise": 0, "freeze": -1,
            "patience": 0, "stride": 0,
        }  # fmt: skip
        for name, bound in least.items():
            if (value := getattr(self, name)) is not None and value < bound:
                raise ConfigError(f"{name} is {value}", remedy=f"it must be at least {bound}")
        for name in ("rate", "dev_share"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be in (0, 1)")
        for name in ("dropout", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be in [0, 1)")
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise ConfigError(
                f"target_accuracy is {self.target_accuracy}", remedy="it must be in (0, 1]"
            )
        if not 0 <= self.warm_up <= 1:
            raise ConfigError(f"warm_up is {self.warm_up}", remedy="it must be in [0, 1]")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"layer_decay is {self.layer_decay}", remedy="it must be in (0, 1]")

    @cached_property
    def reading(self) -> Reading:
        """Return how the files are read."""
        return Reading(columns=self.columns, tags=self.tags, on_bad=self.on_bad)

    @property
    def label_loss(self) -> LabelLoss:
        """Return the options of losses over labels."""
        return LabelLoss(class_weights=self.class_weights, smoothing=self.smoothing)

    def fit(self, steps: int, seed: int) -> FitConfig:
        """Return the training loop's config for a number of steps."""
        return FitConfig(
            budget=Budget(steps=steps),
            optimiser=OptimiserConfig(
                rate=self.rate, weight_decay=self.weight_decay, layer_decay=self.layer_decay
            ),
            schedule=self._schedule(),
            precision=self.precision,
            seed=seed,
            log_every=max(1, steps // POINTS),
            measurements=self.epochs if self.patience else 0,
            stop_after=self.patience,
        )

    def _schedule(self) -> ScheduleConfig:
        if self.schedule == "slanted":
            return ScheduleConfig(warm_up=self.warm_up, floor=_SLANTED_FLOOR)
        if self.schedule == "triangular":
            return ScheduleConfig(warm_up=0.5)
        decay: Literal["linear", "cosine", "none"] = (
            "none" if self.schedule == "constant" else self.schedule
        )
        return ScheduleConfig(warm_up=self.warm_up, decay=decay)
