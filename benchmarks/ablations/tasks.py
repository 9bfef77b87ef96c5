"""What every cell is fine-tuned on: subsets of real data sets, written once as files."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from bertsmith.core.files import replaced_file

NER = ("ner-train.txt", "ner-dev.txt")


@dataclass(frozen=True, kw_only=True)
class FinetuneTask:
    """A data set, and options of `bertsmith finetune`."""

    train: str
    dev: str
    score: str
    """The score to show, by its name in results.json."""
    options: tuple[str, ...]


TASKS = {
    "qnli": FinetuneTask(
        train="qnli-train.tsv", dev="qnli-dev.tsv", score="accuracy",
        options=("--epochs", "3", "--learning-rate", "5e-4", "--max-length", "64"),
    ),
    "trec": FinetuneTask(
        train="trec-train.label", dev="trec-dev.label", score="accuracy",
        options=("--epochs", "3", "--learning-rate", "5e-4", "--encoding", "cp1252",
                 "--label-until", ":"),
    ),
    "ner": FinetuneTask(
        train=NER[0], dev=NER[1], score="f1",
        options=("--epochs", "3", "--learning-rate", "5e-4"),
    ),
    "ner-frozen": FinetuneTask(
        train=NER[0], dev=NER[1], score="f1",
        # the encoder as it was pre-trained: one linear layer on its last hidden states
        options=("--epochs", "3", "--learning-rate", "1e-2", "--freeze-layers", "{layers}"),
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows to train on and to measure with, at most."""

    train: int
    dev: int


def write_tasks(data: Path, out: Path, rows: Rows) -> None:
    """Write the subsets out of the folder of data sets into `out`, unless they are there.

    Rows are drawn once, for all seeds. Only the dev set of QNLI is labelled among ours; a quarter
    of it is kept to measure with.
    """
    out.mkdir(parents=True, exist_ok=True)
    head, *pairs = _shuffled(_lines(data / "glue/QNLI/dev.tsv"), keep=1)
    quarter = len(pairs) // 4
    trec = [
        _shuffled(_lines(data / "trec" / name, "cp1252"))
        for name in ("train_5500.label", "TREC_10.label")
    ]
    ner = [_shuffled(_sentences(data / "conll2003" / name)) for name in ("train.txt", "dev.txt")]
    _write(out / "qnli-train.tsv", [head, *pairs[quarter:][: rows.train]])
    _write(out / "qnli-dev.tsv", [head, *pairs[:quarter][: rows.dev]])
    _write(out / "trec-train.label", trec[0][: rows.train], encoding="cp1252")
    _write(out / "trec-dev.label", trec[1][: rows.dev], encoding="cp1252")
    _write(out / NER[0], ner[0][: rows.train])
    _write(out / NER[1], ner[1][: rows.dev])


def _lines(file: Path, encoding: str = "utf-8") -> list[str]:
    return [line for line in file.read_text(encoding=encoding).split("\n") if line]


def _sentences(file: Path) -> list[str]:
    blocks = file.read_text(encoding="utf-8").split("\n\n")
    return [
        f"{block.strip()}\n"
        for block in blocks
        if block.strip() and not block.lstrip().startswith("-DOCSTART-")
    ]


def _shuffled(lines: list[str], keep: int = 0) -> list[str]:
    rest = lines[keep:]
    random.Random(0).shuffle(rest)
    return lines[:keep] + rest


def _write(file: Path, lines: list[str], encoding: str = "utf-8") -> None:
    if not file.exists():
        with replaced_file(file) as temporary:
            temporary.write_text("\n".join(lines) + "\n", encoding=encoding)
