"""The settings of fine-tuning, and those of GLUE, which fine-tunes on each of its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import Fit, Precision, TrainingPrecision
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig, ScheduleConfig

# maximum number of points of the loss curve
POINTS = 200
# Howard & Ruder 2018, section 3.2: the rate begins and ends at a 32nd of its peak
_SLANTED_FLOOR = 1 / 32


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Config):
    """Search space of --grid: every rate with every batch size and every number of epochs.

    The defaults are those of Devlin et al. 2018, appendix A.3.
    """

    learning_rates: tuple[float, ...] = (2e-5, 3e-5, 5e-5)
    """Peak learning rates that --grid tries."""
    batch_sizes: tuple[int, ...] = (16, 32)
    """Examples a step that it tries."""
    epochs: tuple[int, ...] = (2, 3, 4)
    """Numbers of epochs that it tries."""

    def __post_init__(self) -> None:
        for name in ("learning_rates", "batch_sizes", "epochs"):
            values = getattr(self, name)
            if not values or min(values) <= 0:
                problem = f"--search.{name.replace('_', '-')} is {list(values)}"
                raise ConfigError(problem, remedy="give values above 0")
        if max(self.learning_rates) >= 1:
            problem = f"--search.learning-rates is {list(self.learning_rates)}"
            raise ConfigError(problem, remedy="give rates below 1")


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(Config):
    """Settings of each training; the defaults are within what BERT's authors recommend."""

    epochs: int = 3
    """Times the examples are gone through."""
    batch_size: int = 32
    """Examples a step; windows, where words or answers are looked for in long texts."""
    learning_rate: float = 5e-5
    """Peak learning rate; published are 2e-5 to 5e-5."""
    schedule: Literal["linear", "slanted", "triangular", "cosine", "constant"] = "linear"
    """Shape of the rate after the warm-up: linear and cosine fall to zero; slanted is ULMFiT's,
    which begins and ends at a 32nd of the peak; triangular rises for half of the steps."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises."""
    weight_decay: float = 0.01
    """Decay of matrices."""
    layer_decay: float = 1.0
    """Factor of a layer's rate to that of the layer above; 0.95 and 0.9 are usual, 1 is off."""
    reinitialise_layers: int = 0
    """Top layers that start from random weights, and the pooler with them (Zhang et al. 2021)."""
    freeze_layers: int = 0
    """Layers from the bottom that are not trained, and the embeddings with them; -1 freezes the
    embeddings alone."""
    patience: int = 0
    """Epochs in a row without a better score on dev that end the training, the best epoch's weights
    being kept; 0 trains to the end."""
    max_length: int | None = None
    """Tokens a sequence at most, or the model's limit where that is less. Where none are named, as
    many as 95 % of the texts have, 128 at least and 512 at most, fewer where that would take hours;
    384 to look for answers, 128 for words and GLUE's tasks."""
    truncation: Fit = "head"
    """Part of longer texts that is read: head, tail, head+tail, or windows, all of it; words and
    answers are always looked for in windows."""
    stride: int | None = None
    """Tokens that two windows share, where words or answers are looked for in long texts; a third
    of them all where none are named."""
    dev_share: float = 0.1
    """Share of the examples held out to measure with, where no --dev is given."""
    dropout: float = 0.1
    """Share set to zero of embeddings, of what each layer adds, of attention weights and of what
    the classifier reads, whatever the family and pre-training had."""
    precision: TrainingPrecision = "auto"
    """Number format of training, bf16 or fp32; auto is bf16 where the device multiplies it
    natively, and that of a run that is resumed. Dev is always measured in fp32."""
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
    label_loss: LabelLoss = field(default=LabelLoss(), metadata=INLINE)
    """The loss over labels."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of files."""

    def __post_init__(self) -> None:
        least = {
            "epochs": 1, "batch_size": 1, "max_length": 8, "seed": 0, "reinitialise_layers": 0,
            "freeze_layers": -1, "patience": 0, "stride": 0,
        }  # fmt: skip
        check_least(self, least)
        check_range(self, ["learning_rate", "dev_share"], "(0, 1)")
        check_range(self, ["dropout"], "[0, 1)")
        check_range(self, ["target_accuracy", "layer_decay"], "(0, 1]")
        check_range(self, ["warmup"], "[0, 1]")

    @property
    def chosen_precision(self) -> Precision:
        """Return the precision, which is no longer auto when training begins."""
        assert self.precision != "auto"
        return self.precision

    def fit(self, steps: int, seed: int) -> FitConfig:
        """Return the training loop's config for a number of steps."""
        return FitConfig(
            budget=Budget(steps=steps),
            optimiser=OptimiserConfig(
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                layer_decay=self.layer_decay,
            ),
            schedule=self._schedule(),
            precision=self.chosen_precision,
            seed=seed,
            log_every=max(1, steps // POINTS),
            measurements=self.epochs if self.patience else 0,
            stop_after=self.patience,
        )

    def _schedule(self) -> ScheduleConfig:
        if self.schedule == "slanted":
            return ScheduleConfig(warmup=self.warmup, floor=_SLANTED_FLOOR)
        if self.schedule == "triangular":
            return ScheduleConfig(warmup=0.5)
        decay: Literal["linear", "cosine", "none"] = (
            "none" if self.schedule == "constant" else self.schedule
        )
        return ScheduleConfig(warmup=self.warmup, decay=decay)


AtOnce = int | Literal["auto"]


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig(Config):
    """The trainings of a run, and where they take place."""

    seeds: int = 5
    """Number of trainings; scores have their mean and spread; a run that is given again with more
    adds them."""
    grid: bool = False
    """First choose learning rate, batch size and epochs on dev, out of --search.learning-rates,
    --search.batch-sizes and --search.epochs."""
    search: SearchConfig = SearchConfig()
    """The search space of --grid."""
    minutes: float | None = None
    """Minutes on the clock for the grid; as many cells as fit, in random order."""
    curve: bool = False
    """Also train with half of the examples, a quarter and so on, with three seeds."""
    baselines: bool = False
    """Also measure static vectors, every layer of the frozen encoder, a mix of them, and the same
    network from random weights."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto is a GPU if there is one."""
    side_by_side: AtOnce = "auto"
    """Number of trainings at once, each a process with its part of the cores; 1 makes them in
    turn with all cores; auto takes what should be fastest of what free memory has room for, and
    reports it; a run keeps the threads of its beginning."""

    def __post_init__(self) -> None:
        check_least(self, {"seeds": 1})
        if self.minutes is not None and not self.grid:
            raise ConfigError(
                "--minutes are for --grid", remedy="leave them out, or give --grid too"
            )
        if self.search != SearchConfig() and not self.grid:
            raise ConfigError(
                "--search.* are for --grid", remedy="leave them out, or give --grid too"
            )
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"--minutes is {self.minutes}", remedy="it must be above 0")


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(Config):
    """The options of fine-tuning."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a pre-trained model, or hub:owner/name, or with @revision."""
    train: Path = field(metadata=POSITIONAL)
    """Labelled examples: tables, CoNLL's columns, SQuAD's JSON, a folder of classes."""
    out: Path
    """Folder of the run, and of the model in it."""
    dev: Path | None = None
    """Labelled examples to measure with; a tenth of the others if not given."""
    task: str | None = None
    """Task to be learned, where the data do not tell: classify, pair, multi-label, regression,
    tag, span, choice or rank."""
    dry_run: bool = False
    """Read and check the examples, show two of them as the model will get them, and stop."""
    tensorboard: bool = False
    """Write the logs for TensorBoard too, to be read by tensorboard --logdir OUT."""
    experiment: ExperimentConfig = field(default=ExperimentConfig(), metadata=INLINE)
    """The trainings."""
    settings: FinetuneSettings = field(default=FinetuneSettings(), metadata=INLINE)
    """The settings of each training."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Config):
    """The options of comparing two runs."""

    first: Path = field(metadata=POSITIONAL)
    """Folder of a run."""
    second: Path = field(metadata=POSITIONAL)
    """Folder of another one."""
    json: bool = False
    """Print the figures as one JSON object on standard output."""


@dataclass(frozen=True, kw_only=True)
class GlueConfig(Config):
    """The options of GLUE."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a pre-trained model, or hub:owner/name, or with @revision."""
    data: Path
    """Folder with CoLA/, SST-2/ and so on, as GLUE distributes them."""
    out: Path
    """Folder for a run a task, the table and submission.zip."""
    tasks: tuple[str, ...] = ()
    """Tasks, with commas between them; all that are there if not given."""
    json: bool = False
    """Print the scores as one JSON object on standard output."""
    experiment: ExperimentConfig = field(default=ExperimentConfig(), metadata=INLINE)
    """The trainings of each task."""
    settings: FinetuneSettings = field(default=FinetuneSettings(), metadata=INLINE)
    """The settings of each training."""
