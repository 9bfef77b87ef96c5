"""The settings of a pre-training run.

The defaults are the common base of all recipes: a BERT as published, trained plainly. A recipe
(published.py) is a function from the size to changed settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.batches.config import MaskingConfig, Phase, SampleConfig, check_phases
from bertsmith.core.config import (
    CHANGEABLE,
    INLINE,
    POSITIONAL,
    Config,
    check_least,
    check_range,
    named,
    path_of,
)
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import Activation, Norm, Positions, Precision, TrainingPrecision
from bertsmith.network.families.family import FamilyName
from bertsmith.training.config import (
    Budget,
    FitConfig,
    OptimiserConfig,
    Parallelism,
    ScheduleConfig,
)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Config):
    """Family, wiring and dropout of the network."""

    family: FamilyName = "bert"
    """Model family: its sizes, wiring and heads. Objective and initial weights that it cannot have
    are replaced in the recipe; electra has its own objective in the recipe electra alone. The
    layers of albert share their weights, and its embeddings are narrow; modernbert has rotary
    positions and reads long texts."""
    initialisation: Literal["random", "neighbours"] = "random"
    """Initial weights: random, as published; or neighbours, from counts of neighbouring tokens in
    the corpus, with positions to match (takes some seconds; needs learned positions, and
    embeddings as wide as the layers)."""
    positions: Positions | None = None
    """Positions: learned, sinusoidal (not trained), rotary or none. The family decides the default
    of this option and the next six. A wiring that no class of transformers computes is reported
    before training and saved as model_type bertsmith."""
    norm: Norm | None = None
    """Layer norms: after each residual sum, or before attention and feed-forward."""
    gated: bool | None = None
    """Gated feed-forward networks, which multiply two of their inner values."""
    biases: bool | None = None
    """Biases in linear layers and norms."""
    segments: int | None = None
    """Number of segment embeddings; 0 for none."""
    window: int | None = None
    """Width of local attention: number of tokens that a token sees, half of them on either side."""
    global_every: int | None = None
    """Every n-th layer has global attention, the others local attention."""
    position_initialisation: Literal["sinusoidal", "random", "parent"] = "random"
    """Initial values of learned positions if --initialisation is random; parent takes those of the
    model in --from."""
    position_scale: float = 0.05
    """Amplitude of the sinusoids from which learned positions start."""
    activation: Activation = "gelu"
    """Activation function: the exact GELU, or its approximation by tanh."""
    max_positions: int = 512
    """Longest sequence that the model can read; learned positions have an embedding for each."""
    hidden_dropout: float = 0.1
    """Dropout rate of hidden states in pre-training; fine-tuning has its own."""
    attention_dropout: float = 0.1
    """Dropout rate of attention weights in pre-training."""

    def __post_init__(self) -> None:
        check_least(self, {"segments": 0, "window": 1, "global_every": 1, "max_positions": 8})
        check_range(self, ["hidden_dropout", "attention_dropout"], "[0, 1)")
        check_range(self, ["position_scale"], "[0, inf)")


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
    """Phases at the beginning, each with a share of the budget and shorter sequences; the paper has
    [{share: 0.9, max_length: 128}] with --max-length 512."""
    optimiser: OptimiserConfig = field(default=OptimiserConfig(), metadata=INLINE)
    """The optimiser."""
    schedule: ScheduleConfig = field(default=ScheduleConfig(), metadata=INLINE)
    """The course of the learning rate."""
    max_gradient_norm: float = 1.0
    """Norm to which larger gradients are clipped; 0 for no limit."""
    spike: float = 5.0
    """Skip a step if the norm of its gradient is this many times the usual one; 0 for never. A step
    whose loss or gradient is not finite is always skipped."""
    patience: int = 10
    """Number of successive skipped steps that ends the run."""
    gradient_accumulation: int = 1
    """Number of batches in a step, for each process with which the run begins."""
    precision: TrainingPrecision = "auto"
    """Number format: bf16 (autocast, float32 weights) or fp32; auto is bf16 where the device
    multiplies it natively, and the format of a run that is resumed."""
    seed: int = 0
    """Seed of weights, samples and dropout."""
    log_every: int = field(default=20, metadata=CHANGEABLE)
    """Number of steps between two lines of the log."""
    checkpoint_minutes: float = field(default=10.0, metadata=CHANGEABLE)
    """Minutes of training between two checkpoints."""
    keep_checkpoints: int = field(default=2, metadata=CHANGEABLE)
    """Number of newest checkpoints to keep, in addition to that of the best evaluation."""
    measurements: int = 10
    """Number of evaluations on held-out text, evenly spread over the run. With --minutes they use
    some of the time, and a small budget has fewer or smaller ones."""

    def __post_init__(self) -> None:
        check_phases(self.samples, self.phases)


Size = Literal["tiny", "mini", "small", "medium", "base", "large", "xlarge", "xxlarge"]
RecipeName = Literal["quick", "paper", "roberta", "albert", "modern", "electra"]


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(Config):
    """The options of pre-training."""

    store: Path | None = field(default=None, metadata=POSITIONAL)
    """Folder made by prepare; omit it to resume the run in OUT."""
    out: Path
    """Folder of the run: checkpoints, log, report and, when it is done, the model."""
    model: str | None = None
    """Size of the network: tiny (2 layers of width 128), mini, small, medium, base or large (24 of
    1024), for an ALBERT up to xxlarge (12 of 4096), or layers and width, such as 4/192. By default
    a size from tiny to base that suits text and budget, which is reported."""
    recipe: RecipeName | None = None
    """Recipe, which sets the defaults of the settings below; quick by default."""
    from_: Path | None = field(default=None, metadata=named("from"))
    """Folder of a model, or hub:owner/name, to train further; the store must have its vocabulary.
    It decides network, dropout and pairs; the optimiser is AdamW at 1e-4."""
    minutes: float | None = None
    """Wall-clock minutes from this command to the saved model; a resumed run has those that were
    left."""
    steps: int | None = None
    """Number of updates, in place of --minutes; the learning rate decays to zero over either."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one, and the device of a run that is
    resumed."""
    workers: int | None = None
    """Number of processes that prepare batches in advance, by default two for a GPU and none for a
    processor; the result does not depend on it."""
    tensorboard: bool = False
    """Also write the log for TensorBoard: tensorboard --logdir OUT."""
    shard: bool = False
    """Under torchrun, keep only a part of the weights in each process (docs/many-machines.md)."""
    force: bool = False
    """Train whatever the check before training finds."""
    dry_run: bool = False
    """Print the findings of the check before training, and stop; OUT is not changed."""
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
                "a resumed run keeps its settings",
                remedy="leave them out, or give the whole command that began it, with its store",
            )
        if self.model is not None and not self.model.strip():
            # a variable of the shell may be unset
            raise ConfigError("--model is empty", remedy="name a size, or leave it out")
        for name in ("model", "recipe"):
            if {name, "from"} <= set_options:
                raise ConfigError(
                    f"--{name} and --from exclude each other", remedy="leave one of them out"
                )


@dataclass(frozen=True, kw_only=True)
class Parent(Config):
    """The model from which a run continues."""

    folder: Path = field(metadata=path_of("files_hash"))
    """Folder of the model."""
    files_hash: str
    """SHA-256 of its config, weights and vocabulary."""
    origin: str | None = field(default=None, compare=False)
    """Name and commit on the hub, if it came from there."""


@dataclass(frozen=True, kw_only=True)
class PretrainRun(Config):
    """A resolved run: all that determines its result."""

    store: Path = field(metadata=path_of("store_hash"))
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
    alternative: Parallelism | None = None
    """Another parallelism, adopted where it becomes faster while the run goes on."""
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


# making a batch takes some 10 ms, for which a GPU would wait in every step
_WORKERS = {"cpu": 0, "cuda": 2}


def fit_config(run: PretrainRun, *, workers: int | None = None) -> FitConfig:
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
        alternative=run.alternative,
        workers=_WORKERS[run.device] if workers is None else workers,
    )


def electra_masking(*, large: bool) -> MaskingConfig:
    """Return the masking of ELECTRA's released code, for its generator."""
    return MaskingConfig(probability=0.25 if large else 0.15, as_mask=0.85, as_random=0.0)
