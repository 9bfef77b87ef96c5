"""The settings of fine-tuning, and those of GLUE, which fine-tunes on each of its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range, path_of
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import Fit, Precision, TrainingPrecision
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig, ScheduleConfig

# maximum number of points of the loss curve
_POINTS = 200
# Howard & Ruder 2018, section 3.2: the rate begins and ends at a 32nd of its peak
_SLANTED_FLOOR = 1 / 32
# Devlin et al. 2018, appendix A.3, for encoders of base size, 768 wide, and larger ones
_RATE, _SEARCHED_RATES, _BASE_WIDTH = 5e-5, (2e-5, 3e-5, 5e-5), 768
_MAX_FACTOR = 8.0
_EPOCHS, _SEARCHED_EPOCHS = 3, (2, 3, 4)
# Mosbach et al. 2021, section 6: few examples need as many epochs, since they need steps
_MAX_EPOCHS, _ENOUGH_STEPS = 20, 300


def _for_width(rate: float, width: int) -> float:
    """Return the learning rate of an encoder that is as wide, in two figures.

    `rate` is for encoders of base size; narrower ones need more, in inverse proportion to their
    width, as Adam's rates of matrices do where widths differ (Yang et al. 2022); thus
    ELECTRA-Small, 256 wide, has three times that of Base (Clark et al. 2020, appendix B).
    """
    return float(f"{rate * min(max(_BASE_WIDTH / width, 1.0), _MAX_FACTOR):.2g}")


def _epochs_for(rows: int, batch_size: int, usual: int) -> int:
    """Return the epochs of so many examples: the usual ones, and more where these are few steps."""
    steps = -(-rows // batch_size)
    return max(usual, min(_MAX_EPOCHS, -(-_ENOUGH_STEPS // steps)))


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Config):
    """Search space of --grid: every rate with every batch size and every number of epochs.

    The defaults are those of Devlin et al. 2018, appendix A.3.
    """

    learning_rates: tuple[float, ...] = ()
    """Peak learning rates that --grid tries, separated by commas; by default 2e-5, 3e-5 and 5e-5,
    and more for models less than 768 wide, as with --learning-rate."""
    batch_sizes: tuple[int, ...] = (16, 32)
    """Batch sizes that --grid tries."""
    epochs: tuple[int, ...] = ()
    """Numbers of epochs that --grid tries; by default 2, 3 and 4, and more where examples are few,
    as with --epochs."""

    def __post_init__(self) -> None:
        for name in ("learning_rates", "batch_sizes", "epochs"):
            values = getattr(self, name)
            needed = name == "batch_sizes"
            if (needed and not values) or min(values, default=1) <= 0:
                problem = f"--search.{name.replace('_', '-')} is {list(values)}"
                raise ConfigError(problem, remedy="give values above 0")
        if max(self.learning_rates, default=0.0) >= 1:
            problem = f"--search.learning-rates is {list(self.learning_rates)}"
            raise ConfigError(problem, remedy="give rates below 1")

    def resolved(self, width: int, rows: int) -> SearchConfig:
        """Return the search space with the rates of an encoder's width, and epochs of the examples.

        Those that are given hold.
        """
        rates = tuple(_for_width(rate, width) for rate in _SEARCHED_RATES)
        usual = _epochs_for(rows, max(self.batch_sizes), _EPOCHS)
        epochs = tuple(round(usual * number / _EPOCHS) for number in _SEARCHED_EPOCHS)
        return replace(
            self, learning_rates=self.learning_rates or rates, epochs=self.epochs or epochs
        )


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(Config):
    """Settings of each training; by default within what BERT's paper recommends for base size."""

    epochs: int | None = None
    """Number of passes over the examples; by default 3 (6 where a student is distilled), and more
    for few examples: as many as make 300 steps, at most 20."""
    batch_size: int = 32
    """Number of examples in a step; for tags and spans, number of windows of text."""
    learning_rate: float | None = None
    """Peak learning rate; by default 5e-5, and more for models less than 768 wide: 1e-4 at a width
    of 384, 3e-4 at 128. Published values are 2e-5 to 5e-5 for models of base size."""
    schedule: Literal["linear", "slanted", "triangular", "cosine", "constant"] = "linear"
    """Course of the learning rate after the warm-up: linear and cosine fall to zero; slanted, as in
    ULMFiT, begins and ends at a 32nd of the peak; triangular rises for half of the steps; constant
    stays."""
    warmup: float = 0.1
    """Share of the steps during which the learning rate rises."""
    weight_decay: float = 0.01
    """Weight decay of matrices."""
    layer_decay: float = 1.0
    """Learning rate of a layer, as a factor of that of the layer above; 0.95 and 0.9 are usual, 1
    is off."""
    reinitialise_layers: int = 0
    """Number of top layers that start from random weights, together with the pooler (Zhang et al.
    2021)."""
    freeze_layers: int = 0
    """Number of bottom layers that are not trained, together with the embeddings; -1 freezes only
    the embeddings."""
    patience: int = 0
    """Number of successive epochs without a better score on dev that end the training, which keeps
    the best epoch's weights; 0 trains to the end."""
    max_length: int | None = None
    """Maximum number of tokens in a sequence, up to the model's limit. By default enough for 95 %
    of the texts, at least 128, at most 512, and fewer if that would take hours; 384 for spans, 128
    for tags and for GLUE's tasks."""
    truncation: Fit | None = None
    """Part of a longer text that is read: head, tail, head+tail, or windows, which cover all of it;
    by default head, or where a student is distilled that of its teacher. Tags and spans always use
    windows."""
    stride: int | None = None
    """Number of tokens that two successive windows share, for tags and spans; a third of a window
    by default."""
    dev_share: float = 0.1
    """Share of the examples that is held out for evaluation if --dev is not given."""
    dropout: float = 0.1
    """Dropout rate of embeddings, of the outputs of each layer's attention and feed-forward, of
    attention weights and of the classifier's input, in every family and whatever pre-training
    used."""
    precision: TrainingPrecision = "auto"
    """Number format of training, bf16 or fp32; auto is bf16 where the device multiplies it
    natively, and the format of a run that is resumed. Scores on dev are always computed in fp32."""
    seed: int = 0
    """First seed, and seed of the split."""
    target_accuracy: float | None = None
    """For classes and choices: choose on dev the probability below which the model gives no answer,
    so that this share of its answers is right, and keep it in the model folder."""
    baseline: bool = True
    """Also train TF-IDF with a linear model as a baseline."""
    baseline_seconds: float = 20.0
    """Approximate time limit for TF-IDF in seconds, or the time of the seeds if that is longer;
    TF-IDF is made smaller or left out if it would take more time, or much memory. 0 is for no
    limit."""
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
        if self.schedule == "triangular" and self.warmup != FinetuneSettings.warmup:
            raise ConfigError(
                f"--warmup is {self.warmup}, and --schedule triangular rises for half of the steps",
                remedy="leave one of them out",
            )

    def with_rate(self, width: int, earlier: float | None) -> tuple[FinetuneSettings, str]:
        """Return the settings with a learning rate, and a line about one that is not usual.

        If none is given, it is the `earlier` one of a run that is resumed, or that of the width.
        """
        rate = self.learning_rate or earlier or _for_width(_RATE, width)
        note = ""
        # the earlier one may have been given
        if not (self.learning_rate or earlier) and rate != _RATE:
            note = f"peak learning rate {rate:g}, as the model is {width} wide; --learning-rate"
            note += " sets another"
        return replace(self, learning_rate=rate), note

    def with_epochs(
        self, rows: int, earlier: int | None, usual: int = _EPOCHS
    ) -> tuple[FinetuneSettings, str]:
        """Return the settings with a number of epochs, and a line about one that is not usual.

        If none is given, it is the `earlier` one of a run that is resumed, or that of the examples.
        """
        epochs = self.epochs or earlier or _epochs_for(rows, self.batch_size, usual)
        note = ""
        if not (self.epochs or earlier) and epochs != usual:
            note = f"{epochs} epochs, as {rows:,} examples make few steps; --epochs sets the number"
        return replace(self, epochs=epochs), note

    def for_part(self, count: int, rows: int) -> FinetuneSettings:
        """Return the settings for some of the rows, with about as many steps as for all of them.

        At most 20 epochs, or those of all rows. A learning curve would else show what few steps
        cost, and not what few examples do.
        """
        epochs = self.chosen_epochs
        more = min(_MAX_EPOCHS, round(epochs * rows / count))
        return replace(self, epochs=max(epochs, more))

    @property
    def chosen_learning_rate(self) -> float:
        """Return the peak learning rate, which is a number when training begins."""
        assert self.learning_rate is not None
        return self.learning_rate

    @property
    def chosen_epochs(self) -> int:
        """Return the number of epochs, which is known when training begins."""
        assert self.epochs is not None
        return self.epochs

    @property
    def chosen_truncation(self) -> Fit:
        """Return the part of longer texts that is read."""
        return self.truncation or "head"

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
                learning_rate=self.chosen_learning_rate,
                weight_decay=self.weight_decay,
                layer_decay=self.layer_decay,
            ),
            schedule=self._schedule(),
            precision=self.chosen_precision,
            seed=seed,
            log_every=max(1, steps // _POINTS),
            measurements=self.chosen_epochs if self.patience else 0,
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
class LabelledFiles(Config):
    """The labelled examples of a resolved run, whose files may be moved before it is resumed."""

    train: Path = field(metadata=path_of("train_hash", "train_kind"))
    """File of the training examples."""
    train_hash: str
    """SHA-256 of their file."""
    dev: Path | None = field(metadata=path_of("dev_hash", "dev_kind"))
    """File of the dev examples, None for a share of the training file."""
    dev_hash: str | None
    """SHA-256 of their file."""

    @property
    def train_kind(self) -> str:
        """The kind of the training file, by which it is read."""
        return _kind_of(self.train)

    @property
    def dev_kind(self) -> str:
        """The kind of the dev file, "" without one."""
        return "" if self.dev is None else _kind_of(self.dev)


def _kind_of(path: Path) -> str:
    # it knows encodings, for which help should not wait
    from bertsmith.text.opening import kind_of

    return kind_of(path)


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig(Config):
    """The trainings of a run, and the device."""

    seeds: int = 5
    """Number of trainings with different seeds; scores are reported with mean and spread. The same
    command with a larger number adds seeds to a finished run."""
    grid: bool = False
    """First choose learning rate, batch size and epochs on dev, from --search.learning-rates,
    --search.batch-sizes and --search.epochs."""
    search: SearchConfig = SearchConfig()
    """The search space of --grid."""
    minutes: float | None = None
    """Wall-clock minutes for the grid, which tries as many cells as fit, in random order."""
    curve: bool = False
    """Learning curve: also train with half of the examples, a quarter and so on, with three seeds
    and about as many steps as for all of them, within 20 epochs."""
    baselines: bool = False
    """Also score static vectors, each layer of the frozen encoder, a mix of the layers, and the
    same network from random weights."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    side_by_side: AtOnce = "auto"
    """Number of simultaneous trainings, each a process with its part of the cores; 1 trains in turn
    with all cores; auto chooses the fastest that fits into free memory, and reports it. A resumed
    run keeps its number of threads."""

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
    """Folder of a pre-trained model, hub:owner/name or hub:owner/name@revision."""
    train: Path = field(metadata=POSITIONAL)
    """Labelled examples: a table, CoNLL's columns, SQuAD's JSON, a folder of classes and others."""
    out: Path
    """Folder of the run, and of the model in it."""
    dev: Path | None = None
    """Labelled examples for evaluation; by default a tenth of TRAIN is held out."""
    task: str | None = None
    """Task, if it cannot be detected from the data: classify, pair, multi-label, regression, tag,
    span, choice or rank."""
    dry_run: bool = False
    """Read and check the examples, show two of them part by part, and stop."""
    tensorboard: bool = False
    """Also write the logs for TensorBoard: tensorboard --logdir OUT."""
    experiment: ExperimentConfig = field(default=ExperimentConfig(), metadata=INLINE)
    """The trainings."""
    settings: FinetuneSettings = field(default=FinetuneSettings(), metadata=INLINE)
    """The settings of each training."""

    def __post_init__(self) -> None:
        if self.dev is not None and self.settings.dev_share != FinetuneSettings.dev_share:
            raise ConfigError(
                f"--dev-share is {self.settings.dev_share}, and --dev names the examples for "
                "evaluation",
                remedy="leave one of them out",
            )


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Config):
    """The options of comparing two runs."""

    first: Path = field(metadata=POSITIONAL)
    """Folder of a run."""
    second: Path = field(metadata=POSITIONAL)
    """Folder of another run."""
    json: bool = False
    """Print the figures as one JSON object to standard output."""


@dataclass(frozen=True, kw_only=True)
class GlueConfig(Config):
    """The options of GLUE."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a pre-trained model, hub:owner/name or hub:owner/name@revision."""
    data: Path
    """Folder with CoLA/, SST-2/ and so on, as GLUE distributes them."""
    out: Path
    """Folder for one run for each task, the table and submission.zip."""
    tasks: tuple[str, ...] = ()
    """Tasks, separated by commas; by default all whose files are in the folder."""
    json: bool = False
    """Print the scores as one JSON object to standard output."""
    experiment: ExperimentConfig = field(default=ExperimentConfig(), metadata=INLINE)
    """The trainings of each task."""
    # those of the paper's table, whatever the number of examples
    settings: FinetuneSettings = field(default=FinetuneSettings(epochs=3), metadata=INLINE)
    """The settings of each training."""
