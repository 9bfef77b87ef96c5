"""The settings of a pre-training run.

The defaults are the common base of all recipes: a BERT as published, trained plainly. A recipe
(published.py) is a function from the size and the budget to changed settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.batches.config import Phase, SampleConfig
from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range, named
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import Activation, Norm, Positions, Precision, TrainingPrecision
from bertsmith.network.families.family import FamilyName
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig, ScheduleConfig


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Config):
    """Family, wiring and dropout of the network."""

    family: FamilyName = "bert"
    """Family whose sizes, wiring and heads these are; layers of an albert share their weights, and
    its tables are narrow; a modernbert has rotary positions and takes long texts."""
    initialisation: Literal["random", "neighbours"] = "random"
    """Initial weights: random ones, as published, or counts of which tokens stand next to
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
    position_initialisation: Literal["sinusoidal", "random", "parent"] = "random"
    """Initial values of learned positions, where --initialisation is random; parent: those of the
    model that is continued."""
    position_scale: float = 0.05
    """Amplitude of the sinusoids that learned positions start from."""
    activation: Activation = "gelu"
    """The exact GELU, or its tanh formula."""
    max_positions: int = 512
    """The longest sequence the model will ever take; each position has an embedding, if any has."""
    hidden_dropout: float = 0.1
    """Share of hidden values set to zero while pre-training; fine-tuning has its own."""
    attention_dropout: float = 0.1
    """Share of attention weights set to zero while pre-training."""

    def __post_init__(self) -> None:
        check_least(self, {"segments": 0, "window": 1, "global_every": 1, "max_positions": 8})
        check_range(self, ["hidden_dropout", "attention_dropout"], "[0, 1)")


WIRING = ("positions", "norm", "gated", "biases", "segments", "window", "global_every")
"""Settings of the network that are its family's where they are None."""


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(Config):
    """The settings of a pre-training run."""

    network: NetworkConfig = field(default=NetworkConfig(), metadata=INLINE)
    """The network."""
    samples: SampleConfig = field(default=SampleConfig(), metadata=INLINE)
    """The sequences."""
    phases: tuple[Phase, ...] = ()
    """Shares of the budget, before the rest of it, in which sequences are shorter; the paper's is
    [{share: 0.9, max_length: 128}] with --max-length 512."""
    optimiser: OptimiserConfig = field(default=OptimiserConfig(), metadata=INLINE)
    """The optimiser."""
    schedule: ScheduleConfig = field(default=ScheduleConfig(), metadata=INLINE)
    """The learning rate's way."""
    max_gradient_norm: float = 1.0
    """Largest norm of the gradient; 0 for no limit."""
    spike: float = 5.0
    """A step is skipped when its gradient's norm is so many times the usual one; 0 for never. One
    whose loss or gradient is no number always is."""
    patience: int = 10
    """Skipped steps in a row that end the run."""
    gradient_accumulation: int = 1
    """Batches whose gradients make one step, of each process that the run begins with."""
    precision: TrainingPrecision = "auto"
    """bf16 (autocast, float32 weights) or fp32; auto is bf16 where the device multiplies it
    natively, and that of a run that is resumed."""
    seed: int = 0
    """Seed of weights, samples and dropout."""
    log_every: int = 20
    """Steps between two lines of the log."""
    checkpoint_minutes: float = 10.0
    """Minutes of training between two checkpoints."""
    keep_checkpoints: int = 2
    """Newest checkpoints that are kept, besides that of the best measurement."""
    measurements: int = 10
    """Measurements on held-out text during the run, evenly over the budget; minutes pay for them,
    and few minutes for fewer or smaller ones."""


Size = Literal["tiny", "mini", "small", "medium", "base", "large", "xlarge", "xxlarge"]
RecipeName = Literal["quick", "paper", "roberta", "albert", "modern", "electra"]


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(Config):
    """The options of pre-training."""

    store: Path | None = field(default=None, metadata=POSITIONAL)
    """Folder made by prepare; may be left out where OUT holds a run, which is resumed."""
    out: Path
    """Folder of the run: checkpoints, log, report, and the model in it when done."""
    model: str | None = None
    """Size of the network: tiny (2 layers of 128), mini, small, medium, base or large (24 of 1024),
    of an ALBERT up to xxlarge (12 of 4096), or layers and width, as 4/192; if not given, tiny to
    base, chosen by text and budget, which is reported."""
    recipe: RecipeName | None = None
    """Defaults of the settings below; quick if not given."""
    from_: Path | None = field(default=None, metadata=named("from"))
    """Folder of a model, or hub:owner/name, to train further; the store must have its vocabulary.
    Network, dropout and pairs are its own, the optimiser AdamW at 1e-4."""
    minutes: float | None = None
    """Time on the clock from this command, or from its resumption, to the saved model."""
    steps: int | None = None
    """Updates to train, in place of minutes; the learning rate decays to zero over either."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto is a GPU if there is one, and that of a run that is resumed."""
    workers: int = 0
    """Processes that draw batches ahead of training; the result is the same."""
    tensorboard: bool = False
    """Write the log for TensorBoard too, to be read by tensorboard --logdir OUT."""
    shard: bool = False
    """Below torchrun, each process holds a share of the weights (docs/many-machines.md)."""
    force: bool = False
    """Go on whatever the check before training finds."""
    dry_run: bool = False
    """Print what the check before training finds, and stop; OUT is left as it is."""
    settings: PretrainSettings | None = field(default=None, metadata=INLINE)
    """The settings of the run; None for those of the recipe, or of the run that is resumed."""

    def __post_init__(self) -> None:
        options = {
            "model": self.model, "recipe": self.recipe, "from": self.from_, "steps": self.steps,
            "minutes": self.minutes, "settings": self.settings,
        }  # fmt: skip
        set_options = {name for name, value in options.items() if value is not None}
        if self.store is None and set_options:
            raise ConfigError(
                "a run that goes on keeps its settings", remedy="leave them out, or name a store"
            )
        for name in ("model", "recipe"):
            if {name, "from"} <= set_options:
                raise ConfigError(
                    f"--{name} and --from exclude each other", remedy="leave one of them out"
                )


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
    replicas: int = 1
    """Processes of this machine that share each batch, which is part of it too; how many there
    really are is not."""
    device: str
    """Type of the device."""
    precision: Precision
    """Number format of training, which auto of the settings stands for."""
    settings: PretrainSettings
    """All other settings."""
    batches_per_step: int | None = None
    """Batches of all processes together in one step; None in runs started before there could be
    several processes, for settings.gradient_accumulation."""
    parent: Parent | None = None
    """The parent model, None if the run starts from new weights."""


def fit_config(run: PretrainRun, *, workers: int = 0) -> FitConfig:
    """Return the training loop's config; `workers` does not change the result."""
    settings = run.settings
    return FitConfig(
        budget=run.budget,
        optimiser=settings.optimiser,
        schedule=settings.schedule,
        max_gradient_norm=settings.max_gradient_norm,
        spike=settings.spike,
        patience=settings.patience,
        gradient_accumulation=run.batches_per_step or settings.gradient_accumulation,
        precision=run.precision,
        seed=settings.seed,
        log_every=settings.log_every,
        checkpoint_minutes=settings.checkpoint_minutes,
        keep_checkpoints=settings.keep_checkpoints,
        measurements=settings.measurements,
        replicas=run.replicas,
        workers=workers,
    )
