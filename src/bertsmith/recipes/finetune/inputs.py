"""Inputs of a fine-tuning run: the model, the examples split and encoded, hashes of both."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.files import FileState, canonical, file_hash, text_hash, unreadable
from bertsmith.core.log import progress, say
from bertsmith.core.printable import counted
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.flops import Work, training_flops
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.splitting import split
from bertsmith.recipes.resources import free_memory, layer_activations
from bertsmith.reports.model_card import note_on_format
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.tasks.labels import value_of
from bertsmith.tasks.rows import pick_classes, print_rows, task_for
from bertsmith.tasks.task import ReadingLimits, Row, Task, check_windows
from bertsmith.text.config import LabelSeparator
from bertsmith.text.examples.example import Example, folded
from bertsmith.text.examples.formats.class_files import data_files
from bertsmith.text.examples.formats.mctest import answers_beside
from bertsmith.text.headers import is_position
from bertsmith.text.opening import refuse_pipe
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import CONFIG_FILE, load_model

R = TypeVar("R", bound=Row)


@dataclass(frozen=True, kw_only=True)
class LabelledData(Generic[R]):
    """Training and dev rows, and the names of the outputs in the model's order."""

    task: Task[R]
    labels: tuple[str, ...]
    train: Sequence[R]
    dev: Sequence[R]
    dev_is_cut: bool
    """True if dev was split off the training file."""
    label_separator: LabelSeparator = "auto"
    """The separator of several labels in a cell, stated or detected."""

    def __repr__(self) -> str:
        labels = f", {counted(len(self.labels), 'label')}" if self.labels else ""
        rows = f"{len(self.train):,} and {len(self.dev):,} {self.task.unit}"
        return f"<LabelledData: {self.task.name}, {rows} to train and measure{labels}>"


def read_labelled(
    task: Task[Any],
    train: Path,
    dev: Path | None,
    reading: Reading,
    *,
    known_labels: Sequence[str],
    dev_share: float,
    seed: int,
) -> LabelledData[Any]:
    """Read and check the rows; without a dev file, hold out a share of the training file.

    Raises `ExampleError`, with file and line, for rows that cannot be learned from.
    """
    reading = task.reader.resolve(train, reading)
    rows = list(task.reader.labelled(train, reading))
    measured = [] if dev is None else list(task.reader.to_measure(dev, reading))
    of_train, of_dev = (_labels_of(task, part) for part in (rows, measured))
    rows = list(pick_classes(task, rows, reading.columns, known=of_dev))
    print_rows(task, rows, train, reading)
    if note := task.reader.unread_columns(train, reading):
        say(note)
    labels = task.labels.names(rows, known_labels)
    columns = [name for name in reading.columns.labels if not is_position(name)]
    if absent := [name for name in columns if name not in labels]:
        say(f"no example has the label {', '.join(map(repr, absent))}, which the model will lack")
    if dev is None:
        train_rows, held_out = split(task, rows, dev_share, seed)
        task.labels.check(train_rows, held_out, labels)
        return LabelledData(
            task=task, labels=labels, train=train_rows, dev=held_out, dev_is_cut=True,
            label_separator=reading.columns.label_separator,
        )  # fmt: skip
    measured = list(pick_classes(task, measured, reading.columns, known=of_train))
    task.labels.check(rows, measured, labels)
    return LabelledData(
        task=task, labels=labels, train=rows, dev=measured, dev_is_cut=False,
        label_separator=reading.columns.label_separator,
    )  # fmt: skip


def _labels_of(task: Task[R], rows: Sequence[R]) -> tuple[str, ...]:
    """Return the labels that any of the rows has."""
    return tuple(dict.fromkeys(label for row in rows for label in task.labels.of_row(row)))


def contradictions(data: LabelledData[Any]) -> int:
    """Return the number of texts in train that have copies with another label."""
    if not data.task.labels.has_classes or not isinstance(data.train[0], Example):
        return 0
    truths: dict[Hashable, set[str]] = {}
    for row in data.train:
        # a pair the other way round is the same but for its label
        key = data.task.identity(row), folded(row.text)
        truths.setdefault(key, set()).add(data.task.present.truth(row))
    return sum(len(truth) > 1 for truth in truths.values())


def overlap(data: LabelledData[Any]) -> int:
    """Return the number of dev rows with a text, or a query, that is also in train."""
    train_texts = {_text_of(data.task, row) for row in data.train}
    return sum(_text_of(data.task, row) in train_texts for row in data.dev)


def _text_of(task: Task[R], row: R) -> Hashable:
    """Return what copies of a row's text share: queries may be numbered anew in each file."""
    if isinstance(row, Example) and task.name == "rank":
        return folded(row.text)
    return task.identity(row)


def shared_groups(data: LabelledData[Any]) -> int:
    """Return the number of dev rows of a stated group that is also in train."""
    if not isinstance(data.train[0], Example) or data.task.name == "rank":
        return 0
    in_train = {row.group for row in data.train} - {None}
    return sum(row.group in in_train for row in data.dev)


@dataclass(frozen=True)
class FilesRead:
    """Files and folders of examples, as they were before they were read."""

    states: Mapping[Path, Mapping[Path, FileState]]

    @classmethod
    def of(cls, *paths: Path | None) -> FilesRead:
        """Return the present state of files and folders, None for those not given."""
        return cls({path: _states_of(path) for path in paths if path is not None})

    def check(self) -> None:
        """Raise `ExampleError` for a change: the hash of a run would be that of other examples."""
        for path, before in self.states.items():
            now = _states_of(path)
            # what is new in a folder may be the run itself
            if any(now.get(file) != state for file, state in before.items()):
                raise ExampleError(
                    "changed while it was read",
                    where=path,
                    remedy="give the command again when nothing writes to it, or read a copy",
                )


def _states_of(path: Path) -> dict[Path, FileState]:
    """Return the states of a file, or of the files of examples in a folder."""
    states = {}
    for file in data_files(path) if path.is_dir() else [path, *answers_beside(path)]:
        # what is missing is for the reader to refuse
        with suppress(OSError):
            states[file] = FileState.of(file)
    return {file: state for file, state in states.items() if state.regular}


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and hashes of a folder's files of examples.

    That of a file of stories counts the file of their answers.
    """
    try:
        if path.is_dir():
            files = data_files(path)
            listed = "".join(f"{file_hash(file)}  {file.relative_to(path)}\n" for file in files)
            return text_hash(listed)
        hashes = [file_hash(path), *map(file_hash, answers_beside(path))]
    except OSError as error:
        raise unreadable(ExampleError, error, error.filename or path) from error
    return hashes[0] if len(hashes) == 1 else text_hash("\n".join(hashes))


def labelled_files(train: Path, dev: Path | None) -> dict[str, Any]:
    """Return the fields of `LabelledFiles`; raises `ExampleError`."""
    return {
        "train": canonical(train),
        "train_hash": hash_of(train),
        "dev": None if dev is None else canonical(dev),
        "dev_hash": None if dev is None else hash_of(dev),
    }


def reading_hash(model: Path) -> str:
    """Return the SHA-256 of all in a model folder but its weights that decides what it learns."""
    return text_hash(f"{file_hash(model / CONFIG_FILE)} {Tokenizer.load(model).fingerprint}")


MAX_READ_LENGTH = 512
# share of the texts to read in full, and the multiple that lengths are rounded up to
_COVERED, _MULTIPLE = 0.95, 64
_SAMPLE = 2000
# operations of all trainings: about an hour on two cores with bfloat16 products
_OPERATIONS, _OPERATIONS_OF_A_GPU = 1e15, 1e17
_SHARE_OF_MEMORY = 0.5


@dataclass(frozen=True, kw_only=True)
class ReadingLength:
    """Maximum number of tokens read of a text, and a message about it ("" for none)."""

    longest: int
    message: str = ""


def reading_length(
    task: Task[Any],
    rows: Sequence[Any],
    tokenizer: Tokenizer,
    config: ModelConfig,
    settings: FinetuneSettings,
    trainings: int,
    device: torch.device,
) -> ReadingLength:
    """Choose the maximum length for a number of trainings on some rows.

    It is the task's default if windows read all of a text, for a benchmark's task, and if 95 % of
    the rows are no longer.
    """
    usual, limit = task.learning.longest, min(config.encoder.longest, MAX_READ_LENGTH)
    if not task.learning.lengthens or settings.truncation == "windows" or limit <= usual:
        return ReadingLength(longest=min(usual, config.encoder.longest))
    step = -(-len(rows) // _SAMPLE)
    encoded = task.answers.encode(tokenizer, rows[::step], ReadingLimits(longest=limit))
    lengths = np.array([len(ids) for ids in encoded.ids], np.int64)
    wanted = int(np.quantile(lengths, _COVERED, method="inverted_cdf"))
    wanted = min(limit, -(-wanted // _MULTIPLE) * _MULTIPLE)
    if wanted <= usual:
        return ReadingLength(longest=usual)
    most_operations = _OPERATIONS if device.type == "cpu" else _OPERATIONS_OF_A_GPU
    memory = free_memory(device)
    times = len(rows) / len(rows[::step]) * settings.chosen_epochs * trainings
    chosen = usual
    for longest in (*range(usual, wanted, _MULTIPLE), wanted):
        operations = times * _operations(config, np.minimum(lengths, longest))
        half = settings.precision == "bf16"
        memory_needed = (
            settings.batch_size * longest * layer_activations(config.encoder, longest, half=half)
        )
        fits = memory is None or memory_needed <= _SHARE_OF_MEMORY * memory
        if longest > usual and (operations > most_operations or not fits):
            break
        chosen = longest
    whole_share = 100 * float(np.mean((lengths <= chosen) & (lengths < limit)))
    message = (
        f"up to {chosen} tokens of a text are read, enough for {whole_share:.0f} % of the texts"
    )
    if chosen < wanted:
        message += f"; more would take too much time or memory, --max-length {wanted} reads more"
    return ReadingLength(longest=chosen, message=message)


def _operations(config: ModelConfig, lengths: NDArray[np.int64]) -> float:
    """Return the operations of training once on sequences of these lengths."""
    work = Work(tokens=int(lengths.sum()), pairs=int((lengths**2).sum()), sequences=len(lengths))
    return training_flops(config, work)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """An initial model, and the rows read and checked for it."""

    task: Task[Any]
    base: Model
    tokenizer: Tokenizer
    data: LabelledData[Any]

    def length(
        self, settings: FinetuneSettings, trainings: int, device: torch.device
    ) -> ReadingLength:
        """Return the maximum length of a text: that of the settings, or one that fits the texts.

        It is never more than the model's limit.
        """
        config, asked = self.base.config, settings.max_length
        if asked is not None:
            limit = config.encoder.longest
            if asked <= limit:
                return ReadingLength(longest=asked)
            above = f"--max-length {asked} is above the model's limit: {limit} tokens are read"
            return ReadingLength(longest=limit, message=above)
        return reading_length(
            self.task, self.data.train, self.tokenizer, config, settings, trainings, device
        )

    def prepared(self, settings: FinetuneSettings) -> Prepared:
        """Return the rows, encoded by the settings."""
        limits = limits_of(self.task, settings, self.base.config.encoder.longest)
        return prepare(self.data, self.tokenizer, limits)


def read_inputs(
    model: Path, train: Path, dev: Path | None, task: str | None, settings: FinetuneSettings
) -> Inputs:
    """Read the inputs of a fine-tuning run, and print the task and how the rows were read.

    Writes nothing. Raises `ExampleError`, `ConfigError` or `ModelFolderError`.
    """
    for path in filter(None, (train, dev)):
        refuse_pipe(path)
    chosen, reason = task_for(train, task, settings.reading)
    base, tokenizer = load_model(model)
    check_task(chosen, settings)
    check_layers(base.config.encoder, settings)
    if reason:
        say(reason)
    data = read_labelled(
        chosen,
        train,
        dev,
        settings.reading,
        known_labels=base.config.labels,
        dev_share=settings.dev_share,
        seed=settings.seed,
    )
    if reason and chosen is CLASSIFY:
        _check_no_numbers(train, data)
        _check_not_several(train, data)
    if note := note_on_format(base.config.with_head(chosen.head, data.labels)):
        say(note)
    return Inputs(task=chosen, base=base, tokenizer=tokenizer, data=data)


def _check_no_numbers(train: Path, data: LabelledData[Any]) -> None:
    """Raise `ExampleError` for labels taken for classes by the first rows that are all numbers."""
    values = list(map(value_of, data.labels))
    if all(map(math.isfinite, values)) and not all(map(float.is_integer, values)):
        odd = next(label for label in data.labels if not value_of(label).is_integer())
        raise ExampleError(
            f"its first labels are whole numbers, but a later one is {odd}: classes or values",
            where=train,
            remedy="pass --task regression or --task classify",
        )


def _check_not_several(train: Path, data: LabelledData[Any]) -> None:
    """Raise `ExampleError` where a label, taken for one class by the first rows, may be several."""
    known = set(data.labels)
    for sign, label in product("|,;", data.labels):
        parts = [part.strip() for part in label.split(sign)]
        if len(parts) > 1 and known.issuperset(parts):
            raise ExampleError(
                f"the label {label!r} combines labels that also occur alone: one label or several",
                where=train,
                remedy=f"pass --task multi-label --label-separator '{sign}', or --task classify",
            )


def limits_of(task: Task[Any], settings: FinetuneSettings, limit: int) -> ReadingLimits:
    """Return the limits of reading, by the settings and the model's limit."""
    longest = min(settings.max_length or task.learning.longest, limit)
    return ReadingLimits(longest=longest, long=settings.chosen_truncation, stride=settings.stride)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Rows read and encoded, ready for training and evaluation."""

    data: LabelledData[Any]
    train: EncodedExamples
    dev: EncodedExamples
    tokenizer: Tokenizer
    limits: ReadingLimits

    def __repr__(self) -> str:
        return f"<Prepared: {self.data}, up to {counted(self.limits.longest, 'token')} at once>"

    @property
    def task(self) -> Task[Any]:
        """Return the task."""
        return self.data.task

    def fewer(self, rows: NDArray[np.int64]) -> Prepared:
        """Return a copy with some of the training rows only."""
        train = [self.data.train[row] for row in rows.tolist()]
        data = replace(self.data, train=train)
        return replace(self, data=data, train=_encoded(data, train, self.tokenizer, self.limits))


def prepare(data: LabelledData[Any], tokenizer: Tokenizer, limits: ReadingLimits) -> Prepared:
    """Encode rows."""
    with progress("tokenising the examples", None):
        train, dev = (_encoded(data, rows, tokenizer, limits) for rows in (data.train, data.dev))
    return Prepared(data=data, train=train, dev=dev, tokenizer=tokenizer, limits=limits)


def _encoded(
    data: LabelledData[Any], rows: Sequence[Any], tokenizer: Tokenizer, limits: ReadingLimits
) -> EncodedExamples:
    encoded = data.task.answers.encode(tokenizer, rows, limits)
    return data.task.learning.targets(rows, data.labels, encoded)


def check_layers(encoder: EncoderConfig, config: FinetuneSettings) -> None:
    """Raise `ConfigError` for more layers than there are."""
    layers = encoder.groups or encoder.layers
    for name in ("reinitialise_layers", "freeze_layers"):
        if getattr(config, name) > layers:
            raise ConfigError(
                f"--{name.replace('_', '-')} is {getattr(config, name)}",
                remedy=f"the model has {counted(layers, 'layer')} of its own",
            )
    new, frozen = config.reinitialise_layers, max(config.freeze_layers, 0)
    if new + frozen > layers:
        raise ConfigError(
            f"--reinitialise-layers {new} and --freeze-layers {frozen} overlap",
            remedy=f"new layers must be trained: {counted(layers, 'layer')} in all",
        )


def check_task(task: Task[Any], config: FinetuneSettings) -> None:
    """Raise `ConfigError` for settings that do not apply to a task."""
    for name, value in config.label_loss.to_dict().items():
        if value != getattr(LabelLoss(), name) and not task.learning.weighs:
            raise ConfigError(
                f"--{name.replace('_', '-')} is {value}, and {task.name} has no classes",
                remedy="leave it out",
            )
    check_windows(task, config.truncation, config.stride)
    if config.target_accuracy is not None and "min_confidence" not in task.answers.thresholds:
        raise ConfigError(
            f"--target-accuracy is {config.target_accuracy}, and {task.name} has neither classes "
            "nor choices",
            remedy="leave it out",
        )
