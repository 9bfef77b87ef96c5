"""The settings of a pre-training run.

The defaults are the common base of all recipes: a BERT as published, trained plainly. A recipe
(published.py) is a function from the size and the budget to changed settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.batches.pretraining import Phase, SampleConfig
from bertsmith.core.config import Config
from bertsmith.network.block import Activation, Norm
from bertsmith.network.embeddings import Positions
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Precision
from bertsmith.training.loop import FitConfig
from bertsmith.training.optimisers import OptimiserConfig
from bertsmith.training.schedule import Budget, ScheduleConfig


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Config):
    """What is free in a network of a given size."""

    family: FamilyName = "bert"
    """Family whose sizes, wiring and heads these are; layers of an albert share their weights, and
    its tables are narrow; a modernbert has rotary positions and takes long texts."""
    start: Literal["random", "neighbours"] = "random"
    """What weights start from: random ones, as published, or counts of which tokens stand next to
    which in the corpus, with positions to match (some seconds; BERTs only)."""
    positions: Positions | None = None
    """Learned, sinusoidal (not trained), rotary or none; by default the family's, as are the
    following six. What no class of transformers computes is said before training and saved as
    model_type bertsmith."""
    norm: Norm | None = None
    """Layer norms after each sum, or before attention and feed-forward."""
    gated: bool | None = None
    """Feed-forward networks that multiply two of their inner values."""
    biases: bool | None = None
    """Biases of linear layers and norms."""
    segments: int | None = None
    """Segment embeddings; 0 for none."""
    window: int | None = None
    """Tokens, half of them on either side, that a token sees in layers of local attention."""
    global_every: int | None = None
    """One layer in so many sees all tokens, the others a window."""
    position_start: Literal["sinusoidal", "random", "parent"] = "random"
    """What learned positions start from, where start is random; parent: from those of the model
    that is continued."""
    position_scale: float = 0.05
    """Amplitude of the sinusoids that learned positions start from."""
    activation: Activation = "gelu"
    """The exact GELU, or its tanh formula."""
    longest: int = 512
    """The longest sequence the model will ever take; each position has an embedding, if any has."""
    dropout: float = 0.1
    """Share of hidden values set to zero while pre-training; fine-tuning has its own."""
    attention_dropout: float = 0.1
    """Share of attention weights set to zero while pre-training."""


WIRING = ("positions", "norm", "gated", "biases", "segments", "window", "global_every")
"""Settings of the network that are its family's where they are None."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(Config):
    """The settings of a pre-training run."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The network."""
    samples: SampleConfig = field(default_factory=SampleConfig)
    """The sequences."""
    phases: tuple[Phase, ...] = ()
    """Shares of the budget, before the rest of it, in which sequences are shorter; the paper's is
    [{"share": 0.9, "longest": 128}] with samples.longest 512."""
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    """The optimiser."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """The learning rate's way."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no limit."""
    spike: float = 5.0
    """A step is skipped when its gradient's norm is so many times the usual one; 0 for never. One
    whose loss or gradient is no number always is."""
    patience: int = 10
    """Skipped steps in a row that end the run."""
    accumulate: int = 1
    """Batches whose gradients make one step, of each process that the run begins with."""
    precision: Precision = "bf16"
    """bf16 (autocast, float32 weights) or fp32."""
    seed: int = 0
    """Seed of weights, samples and dropout."""
    log_every: int = 20
    """Steps between two lines of the log."""
    checkpoint_minutes: float = 10.0
    """Minutes of training between two checkpoints."""
    keep: int = 2
    """Newest checkpoints that are kept, besides that of the best measurement."""
    measurements: int = 10
    """Measurements on held-out text during the run, evenly over the budget; minutes pay for them,
    and few minutes for fewer or smaller ones."""


@dataclass(frozen=True, kw_only=True)
class Parent(Config):
    """The model from which a run continues."""

    folder: Path
    """Folder of the model."""
    files_hash: str
    """SHA-256 of its config, weights and vocabulary."""
    origin: str | None = field(default=None, compare=False)
    """Name and commit on the hub, if it came from there."""


@dataclass(frozen=True, kw_only=True)
class PretrainRun(Config):
    """A resolved run: all that determines its result."""

    store: Path
    """Folder of the token store."""
    store_hash: str
    """SHA-256 of the store's index, which names the hash of every file."""
    model: str
    """Name of the model size."""
    budget: Budget
    """Length of the run."""
    threads: int
    """Threads of torch; part of what makes a run reproducible bit for bit."""
    device: str
    """Type of the device."""
    settings: PretrainConfig
    """All other settings."""
    batches_per_step: int | None = None
    """Batches of all processes together in one step; None in runs started before there could be
    several processes, for settings.accumulate."""
    parent: Parent | None = None
    """The parent model, None if the run starts from new weights."""


def fit_config(run: PretrainRun, *, workers: int = 0) -> FitConfig:
    """Return the training loop's config; `workers` does not change the result."""
    settings = run.settings
    return FitConfig(
        budget=run.budget,
        optimiser=settings.optimiser,
        schedule=settings.schedule,
        clip=settings.clip,
        spike=settings.spike,
        patience=settings.patience,
        accumulate=run.batches_per_step or settings.accumulate,
        precision=settings.precision,
        seed=settings.seed,
        log_every=settings.log_every,
        checkpoint_minutes=settings.checkpoint_minutes,
        keep=settings.keep,
        measurements=settings.measurements,
        workers=workers,
    )
