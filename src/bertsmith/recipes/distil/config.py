"""The options of distillation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import ModelConfig, TrainingPrecision
from bertsmith.recipes.finetune.config import AtOnce, FinetuneSettings

Method = Literal["distilbert", "tinybert", "minilm", "static"]
GeneralRecipe = Literal["quick", "paper"]
StartLayers = Literal["alternate", "uniform", "bottom", "new"]

_SIZE = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,5})")
_TIMES = re.compile(r"(\d+(\.\d+)?)x")


@dataclass(frozen=True, kw_only=True)
class StudentConfig(Config):
    """The student's size, and what it starts from."""

    student: str
    """Layers and width, as 4/312; or the folder of a student that was distilled from a store; or
    auto, the largest one that is as fast as --target asks. Of static vectors the width alone."""
    target: str = "5x"
    """For auto: how many times as fast as the teacher the student shall answer many texts, measured
    in the engine on this machine."""
    heads: int | None = None
    """Attention heads; as many as the teacher's where the width allows, else of their width."""
    feed_forward: int | None = None
    """Inner width of the feed-forward networks; 4 times the width, or the teacher's where the
    student is as wide as it."""
    start: StartLayers = "alternate"
    """The teacher's layers that the student starts from, where it is as wide: alternate is every
    other one, the first and the last among them; uniform the last of every few; bottom the lowest.
    Another student starts from the teacher's token table, made narrower. new is random weights."""

    def __post_init__(self) -> None:
        check_least(self, {"heads": 1, "feed_forward": 1})
        if self.student != "auto" and "/" in self.student and not Path(self.student).exists():
            layers, _, width = self.student.partition("/")
            if (layers + width).isdigit() and not _SIZE.fullmatch(self.student):
                raise ConfigError(
                    f"--student is {self.student!r}", remedy="give layers and width, as 4/312"
                )
        if self.speedup <= 1:
            raise ConfigError(f"--target is {self.target!r}", remedy="give more than 1, as 5x")

    @property
    def size(self) -> tuple[int, int] | None:
        """The layers and the width, None where a folder is named or they are to be chosen."""
        match = _SIZE.fullmatch(self.student)
        return None if match is None else (int(match[1]), int(match[2]))

    @property
    def width(self) -> int | None:
        """The width alone, as of static vectors; None where it is not all that is given."""
        return int(self.student) if self.student.isdigit() and int(self.student) else None

    @property
    def speedup(self) -> float:
        """The speed of the student in times of the teacher's; `ConfigError`."""
        match = _TIMES.fullmatch(self.target)
        if match is None:
            raise ConfigError(f"--target is {self.target!r}", remedy="give a number and x, as 5x")
        return float(match[1])


@dataclass(frozen=True, kw_only=True)
class TeachingConfig(Config):
    """The objectives of the student, and the cache of the teacher's outputs."""

    temperature: float = 2.0
    """Temperature of distilbert's soft targets; those of the other methods are at 1."""
    intermediate: float = 0.5
    """Share of the steps in which tinybert and minilm teach what is inside, before predictions."""
    teacher_layer: int | None = None
    """The layer whose relations minilm teaches, from 1; the last if not given."""
    relation_heads: int | None = None
    """Relation heads of minilm; if not given 48, or the most below that divide both widths."""
    augment: int = 0
    """Copies of each text in which some words are replaced, to teach with beside it; TinyBERT has
    20. The plain student learns from the texts as they are."""
    augment_with: Path | None = None
    """Folder of a pre-trained model, or hub:owner/name, whose masked LM replaces words of one
    piece; other words, and all without it, by those with the nearest vectors."""
    unlabelled: Path | None = None
    """Texts or pairs without labels, sentences without tags, or questions without answers, in a
    file or folder that predict reads, for the student to learn the teacher's answers to, beside the
    labelled ones. The plain student has labels alone."""
    cache: Path | None = None
    """Folder for the teacher's outputs, which runs with the same teacher and data may share; if not
    given they are in OUT until the run has ended."""
    cache_gigabytes: float = 4.0
    """Disk that they may take; what has no room is computed anew for every batch. 0 keeps none."""

    def __post_init__(self) -> None:
        check_least(self, {"teacher_layer": 1, "relation_heads": 1, "augment": 0})
        if self.augment_with is not None and not self.augment:
            raise ConfigError("--augment-with is for --augment", remedy="give it too, as 10")
        check_range(self, ["temperature"], "(0, 100]")
        check_range(self, ["intermediate"], "(0, 1)")
        check_range(self, ["cache_gigabytes"], "[0, inf)")


@dataclass(frozen=True, kw_only=True)
class GeneralSettings(Config):
    """The settings of distillation from a store."""

    max_length: int = 128
    """Tokens a sequence at most."""
    tokens_per_batch: int = 4096
    """Tokens a batch at most."""
    recipe: GeneralRecipe = "quick"
    """quick is that of pretrain: Muon for the matrices of the layers, no dropout, and for a student
    that cannot take the teacher's layers, its token table and positions as sinusoids; paper is
    AdamW alone with dropout, and random weights for such a student."""
    learning_rate: float | None = None
    """Peak learning rate of AdamW, by default the recipe's: 1e-3 for quick, 5e-4 for paper."""
    muon_learning_rate: float | None = None
    """Peak learning rate of Muon, which is for quick; by default 0.03."""
    warmup: float | None = None
    """Share of the budget in which the rate rises, by default 0.02 for quick, 0.05 for paper."""
    smoothing: float = 0.7
    """Distilbert's masks favour rare tokens: by their count to the power of minus this."""
    precision: TrainingPrecision = "auto"
    """bf16 (autocast, float32 weights) or fp32; auto is bf16 where the device multiplies it
    natively, and that of a run that is resumed."""
    checkpoint_minutes: float = 10.0
    """Minutes of training between two checkpoints."""
    measurements: int = 5
    """Measurements on held-out text during the run."""

    def __post_init__(self) -> None:
        check_least(
            self, {"max_length": 8, "tokens_per_batch": 8, "measurements": 0}, group="general."
        )
        for name, allowed in (
            ("learning_rate", "(0, 1)"), ("muon_learning_rate", "(0, 1)"), ("warmup", "[0, 1]"),
        ):  # fmt: skip
            if getattr(self, name) is not None:
                check_range(self, [name], allowed, group="general.")
        if self.muon_learning_rate is not None and self.recipe != "quick":
            raise ConfigError(
                f"--general.muon-learning-rate is for Muon, and {self.recipe} trains without it",
                remedy="leave it out, or give --general.recipe quick",
            )
        check_range(self, ["smoothing"], "[0, 2]", group="general.")


@dataclass(frozen=True, kw_only=True)
class DistilConfig(Config):
    """The options of distillation."""

    teacher: Path = field(metadata=POSITIONAL)
    """Folder of the teacher, fine-tuned where DATA are labelled; or hub:owner/name."""
    data: Path = field(metadata=POSITIONAL)
    """Labelled examples of the teacher's task, or a token store, made with its vocabulary."""
    out: Path
    """Folder of the run, and of the student in it."""
    method: tuple[Method, ...] = ("distilbert",)
    """Method of distillation; several, with commas between, are compared on labelled data."""
    minutes: float | None = None
    """For a store: time on the clock from this command, or its resumption, to the saved student."""
    steps: int | None = None
    """For a store: updates, in place of minutes."""
    dev: Path | None = None
    """Labelled examples to measure with; a tenth of the others if not given."""
    task: str | None = None
    """The task, where the data do not tell; as for finetune."""
    plain: bool = True
    """Also fine-tune the same student plainly, on the labels alone, with as many steps; with
    --augment or --unlabelled these are more epochs."""
    seeds: int = 3
    """Number of trainings of each method; a run that is given again with more adds them."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto is a GPU if there is one."""
    side_by_side: AtOnce = "auto"
    """Number of trainings at once, as for finetune."""
    student: StudentConfig = field(metadata=INLINE)
    """The student."""
    teaching: TeachingConfig = field(default=TeachingConfig(), metadata=INLINE)
    """The teaching."""
    general: GeneralSettings = GeneralSettings()
    """Distillation from a store."""
    settings: FinetuneSettings = field(default=FinetuneSettings(epochs=6), metadata=INLINE)
    """The settings of each training on labelled examples."""

    def __post_init__(self) -> None:
        check_least(self, {"seeds": 1, "steps": 1})
        if not self.method:
            raise ConfigError("--method is empty", remedy="name one or more, with commas between")
        if len(set(self.method)) < len(self.method):
            raise ConfigError("a method is named twice", remedy="name each once")


@dataclass(frozen=True, kw_only=True)
class DistilRun(Config):
    """A resolved run on labelled examples."""

    task: str
    """Name of the task."""
    teacher: Path
    """Folder of the teacher."""
    teacher_hash: str
    """SHA-256 of its weights."""
    train: Path
    """File of the training examples."""
    train_hash: str
    """SHA-256 of their file."""
    dev: Path | None
    """File of the dev examples, None for a share of the training file."""
    dev_hash: str | None
    """SHA-256 of their file."""
    student: ModelConfig
    """The student."""
    student_hash: str | None
    """SHA-256 of the weights that it starts from, where a folder was named."""
    unlabelled_hash: str | None = None
    """SHA-256 of the texts without labels, None for none."""
    augment_hash: str | None = None
    """SHA-256 of the weights of the masked LM that replaces words."""
    layers: tuple[int, ...]
    """The teacher's layers that it starts from, from 1."""
    token_table: bool = False
    """True if it starts from the teacher's token table, made narrower."""
    method: tuple[Method, ...]
    """The methods."""
    plain: bool
    """True if the student is fine-tuned plainly too."""
    seeds: int
    """Number of seeds."""
    threads: int
    """Threads of torch; part of what makes a run reproducible bit for bit."""
    device: str
    """Type of the device."""
    teaching: TeachingConfig
    """The teaching."""
    settings: FinetuneSettings
    """Settings of each training."""
    origin: str | None = None
    """Name and commit of the teacher on the hub, if it came from there."""
