"""What is learned: the rows of each data set, the same for both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.engine.devices import best_device, training_precision
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData
from bertsmith.recipes.finetune.splitting import split
from bertsmith.tasks.config import Reading
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.table import TASKS
from bertsmith.tasks.task import Task
from bertsmith.text.config import Columns

SETTINGS = FinetuneSettings(
    epochs=3,
    batch_size=32,
    learning_rate=5e-5,
    precision=training_precision("auto", best_device()),
    baseline=False,
)
# so few rows learn nothing in three epochs of 32
_SMALL = replace(SETTINGS, epochs=10, batch_size=16)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A data set and how it is trained on; rows to `test` with too, if labelled ones are known."""

    data: LabelledData[Any]
    settings: FinetuneSettings
    test: Sequence[Any] = ()

    @property
    def tested(self) -> Learned:
        """The same with the rows to test with as dev."""
        return replace(self, data=replace(self.data, dev=self.test), test=())


def names() -> list[str]:
    """All data sets."""
    return list(_MAKERS)


def learned(name: str, folder: Path, rows: int | None) -> Learned:
    """A data set out of the folder of all of them, at most so many rows to train on."""
    made = _MAKERS[name](folder)
    data = made.data if rows is None else replace(made.data, train=made.data.train[:rows])
    return replace(made, data=data)


def _made(
    task: Task[Any],
    train: Path,
    dev: Path | None,
    settings: FinetuneSettings = SETTINGS,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
) -> Learned:
    rows = list(task.reader.labelled(train, reading))
    labels = task.labels.names(rows, ())
    if dev is None:
        kept, held_out = split(task, rows, 0.1, 0)
    else:
        kept, held_out = rows, list(task.reader.labelled(dev, reading))
    data = LabelledData(task=task, labels=labels, train=kept, dev=held_out, dev_is_cut=dev is None)
    return Learned(data=data, settings=settings)


def _glue(name: str, settings: FinetuneSettings = SETTINGS) -> Callable[[Path], Learned]:
    def make(folder: Path) -> Learned:
        place = folder / "glue" / name
        return _made(GLUE[name], place / "train.tsv", place / "dev.tsv", settings)

    return make


def _conll(folder: Path) -> Learned:
    place = folder / "conll2003"
    made = _made(TASKS["tag"], place / "train.txt", place / "dev.txt")
    test = made.data.task.reader.labelled(place / "test.txt", Reading())
    return replace(made, test=list(test))


def _squad(folder: Path) -> Learned:
    place = folder / "squad"
    train, dev = "train-v1.1-subset4330.json", "dev-v1.1-firstanswer.json"
    made = _made(TASKS["span"], place / train, place / dev, replace(SETTINGS, batch_size=16))
    # the whole dev set would take longer than training
    return replace(made, data=replace(made.data, dev=made.data.dev[:2000]))


def _copa(folder: Path) -> Learned:
    place = folder / "copa"
    return _made(TASKS["choice"], place / "copa-dev.xml", place / "copa-test.xml", _SMALL)


def _trec(folder: Path) -> Learned:
    place = folder / "trec"
    columns = Columns(layout="label-first", label_until=":", encoding="iso-8859-1")
    train, dev = place / "train_5500.label", place / "TREC_10.label"
    return _made(TASKS["classify"], train, dev, SETTINGS, Reading(columns=columns))


def _reviews(folder: Path) -> Learned:
    reading = Reading(columns=Columns(encoding="windows-1252"))
    return _made(TASKS["classify"], folder / "rt-polarity", None, SETTINGS, reading)


def _messages(folder: Path) -> Learned:
    return _made(TASKS["classify"], folder / "sms-spam" / "SMSSpamCollection", None)


_MAKERS: dict[str, Callable[[Path], Learned]] = {
    "CoLA": _glue("CoLA"),
    "SST-2": _glue("SST-2"),
    "MRPC": _glue("MRPC"),
    "STS-B": _glue("STS-B"),
    "RTE": _glue("RTE"),
    "WNLI": _glue("WNLI"),
    "CoNLL": _conll,
    "SQuAD": _squad,
    "COPA": _copa,
    "TREC": _trec,
    "rt-polarity": _reviews,
    "sms-spam": _messages,
}
