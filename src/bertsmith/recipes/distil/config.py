"""The options of distillation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import (
    CHANGEABLE,
    INLINE,
    POSITIONAL,
    Config,
    check_least,
    check_range,
    path_of,
)
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import ModelConfig, TrainingPrecision
from bertsmith.recipes.finetune.config import AtOnce, FinetuneSettings, LabelledFiles

Method = Literal["distilbert", "tinybert", "minilm", "static"]
GeneralRecipe = Literal["quick", "paper"]
StartLayers = Literal["alternate", "uniform", "bottom", "new"]

_SIZE = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,5})")
_WIDTH = re.compile(r"0*[1-9][0-9]{0,17}")
_TIMES = re.compile(r"(\d+(\.\d+)?)x")


@dataclass(frozen=True, kw_only=True)
class StudentConfig(Config):
    """The student's size, and its initial weights."""

    student: str
    """Layers and width, such as 4/312; or the folder of a student that was distilled from a store;
    or auto, the largest student that is as fast as --target. For static vectors, the width
    alone."""
    target: str = "5x"
    """For --student auto: how many times as fast as the teacher the student answers many texts,
    measured in the engine on this machine."""
    heads: int | None = None
    """Number of attention heads; by default as many as the teacher's if the width allows it,
    otherwise heads of the same width."""
    feed_forward: int | None = None
    """Inner width of the feed-forward networks; by default 4 times the width, or the teacher's if
    the student is as wide."""
    start: StartLayers = "alternate"
    """Layers of the teacher from which a student of the same width starts: alternate, every other
    one, including the first and the last; uniform, the last of every few; bottom, the lowest. Other
    students start from the teacher's token table, reduced to their width. new is for random
    weights."""

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
        return int(self.student) if _WIDTH.fullmatch(self.student) else None

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
    """Temperature of distilbert's soft targets; the other methods use 1."""
    intermediate: float = 0.5
    """Share of the steps in which tinybert and minilm teach hidden values, before predictions."""
    teacher_layer: int | None = None
    """Layer whose relations minilm teaches, counted from 1; the last by default."""
    relation_heads: int | None = None
    """Number of relation heads of minilm; by default 48, or the largest number below that divides
    both widths."""
    augment: int = 0
    """Number of copies of each text, with some words replaced, from which the student also learns;
    TinyBERT has 20. The plain student learns from the texts as they are."""
    augment_with: Path | None = None
    """Folder of a pre-trained model, or hub:owner/name, whose masked LM replaces words of one
    piece; other words, and all words without this option, are replaced by those with the nearest
    vectors."""
    unlabelled: Path | None = None
    """File or folder of texts or pairs without labels, sentences without tags, or questions without
    answers, as predict reads them. The student also learns the teacher's answers to these; the
    plain student does not."""
    cache: Path | None = None
    """Folder for the teacher's outputs, which runs with the same teacher and data can share; by
    default they are in OUT until the run has ended."""
    cache_gigabytes: float = field(default=4.0, metadata=CHANGEABLE)
    """Maximum disk space for the teacher's outputs; those beyond it are computed again for every
    batch. 0 keeps none."""

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
    """Maximum number of tokens in a sequence."""
    tokens_per_batch: int = 4096
    """Maximum number of tokens in a batch."""
    recipe: GeneralRecipe = "quick"
    """quick trains as in pretrain: Muon for the matrices of the layers and no dropout; a student
    that cannot take the teacher's layers starts from its token table, with positions as sinusoids.
    paper is AdamW alone with dropout, and random weights for such a student."""
    learning_rate: float | None = None
    """Peak learning rate of AdamW; by default 1e-3 for quick and 5e-4 for paper."""
    muon_learning_rate: float | None = None
    """Peak learning rate of Muon, which quick uses; by default 0.03."""
    warmup: float | None = None
    """Share of the budget during which the learning rate rises; by default 0.02 for quick and 0.05
    for paper."""
    smoothing: float = 0.7
    """Choose rare tokens more often for distilbert's masks, in proportion to their count to the
    power of minus this."""
    precision: TrainingPrecision = "auto"
    """Number format: bf16 (autocast, float32 weights) or fp32; auto is bf16 where the device
    multiplies it natively, and the format of a run that is resumed."""
    checkpoint_minutes: float = 10.0
    """Minutes of training between two checkpoints."""
    measurements: int = 5
    """Number of evaluations on held-out text during the run."""

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
        check_range(self, ["checkpoint_minutes"], "[0, inf)", group="general.")


@dataclass(frozen=True, kw_only=True)
class DistilConfig(Config):
    """The options of distillation."""

    teacher: Path = field(metadata=POSITIONAL)
    """Folder of the teacher, or hub:owner/name; fine-tuned for the task if DATA is labelled."""
    data: Path = field(metadata=POSITIONAL)
    """Labelled examples of the teacher's task, or a token store made with its vocabulary."""
    out: Path
    """Folder of the run, and of the student in it."""
    method: tuple[Method, ...] = ("distilbert",)
    """Methods of distillation, separated by commas; on labelled data they are compared."""
    minutes: float | None = None
    """For a store: wall-clock minutes from this command to the saved student; a resumed run has
    those that were left."""
    steps: int | None = None
    """For a store: number of updates, in place of --minutes."""
    dev: Path | None = None
    """Labelled examples for evaluation; by default a tenth of DATA is held out."""
    task: str | None = None
    """Task, if it cannot be detected from the data; as in finetune."""
    plain: bool = True
    """Also fine-tune the same student plainly, on the labels alone, with as many steps, which are
    more epochs with --augment or --unlabelled."""
    seeds: int = 3
    """Number of trainings of each method; the same command with a larger number adds seeds to a
    finished run."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    side_by_side: AtOnce = "auto"
    """Number of simultaneous trainings, as in finetune."""
    student: StudentConfig = field(metadata=INLINE)
    """The student."""
    teaching: TeachingConfig = field(default=TeachingConfig(), metadata=INLINE)
    """The teaching."""
    general: GeneralSettings = GeneralSettings()
    """Distillation from a store."""
    settings: FinetuneSettings = field(default=FinetuneSettings(), metadata=INLINE)
    """The settings of each training on labelled examples."""

    def __post_init__(self) -> None:
        check_least(self, {"seeds": 1, "steps": 1})
        if not self.method:
            raise ConfigError("--method is empty", remedy="name one or more, with commas between")
        if len(set(self.method)) < len(self.method):
            raise ConfigError("a method is named twice", remedy="name each once")


@dataclass(frozen=True, kw_only=True)
class DistilRun(LabelledFiles):
    """A resolved run on labelled examples."""

    task: str
    """Name of the task."""
    teacher: Path = field(metadata=path_of("teacher_hash", "teacher_reading_hash"))
    """Folder of the teacher."""
    teacher_hash: str
    """SHA-256 of its weights."""
    teacher_reading_hash: str
    """SHA-256 of its config and vocabulary."""
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
