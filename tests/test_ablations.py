"""The experiments of benchmarks/paper.py: what is kept, and that options take effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import sem, t
from torch import Tensor

from ablations import training
from ablations.cells import EXPERIMENTS, Cell
from ablations.position import cls_at, moved
from ablations.showing import Estimate, estimates, table
from ablations.tasks import TASKS, Rows, write_tasks
from ablations.training import QUICK, Laboratory
from bertsmith.batches import DataPosition
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.pretrain.resolving import network_of, run_of_options
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bounds import close_when_regrouped
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

TOKENS = 30_000


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A store of 40 invented documents."""
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(40), tokenizer, folder, held_out=0.1)
    return TokenStore(folder)


class Killed(BaseException):
    """The end of a process, as far as a laboratory can notice."""


class PaperLaboratory(Laboratory):
    """A laboratory that writes down what it is asked to train, and may be killed before a stage."""

    def __init__(self, out: Path, killed_before: str = "") -> None:
        super().__init__(out, QUICK)
        self.stages: list[str] = []
        self._killed_before = killed_before

    def pretrain(self, cell: Cell, seed: int, run: Path) -> dict[str, Any]:
        self._begin("pretraining")
        (run / "model").mkdir(parents=True)
        return {"masked_lm_loss": 4.0}

    def finetune(self, cell: Cell, seed: int, name: str, work: Path) -> dict[str, Any]:
        assert (work / "run" / "model").exists()
        self._begin(name)
        return {TASKS[name].score: 0.5}

    def _begin(self, stage: str) -> None:
        if stage == self._killed_before:
            raise Killed
        self.stages.append(stage)


@pytest.fixture
def out(tmp_path: Path, store: TokenStore) -> Path:
    (tmp_path / "store").symlink_to(store.folder)
    return tmp_path


@pytest.mark.faults
def test_vocabulary_and_store_go_on_where_they_were_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "write_tasks", lambda *_: None)
    corpus, out = tmp_path / "corpus.txt", tmp_path / "out"
    texts = (
        "\n".join(invented_document.paragraphs) for invented_document in invented_documents(30)
    )
    corpus.write_text("\n\n".join(texts))
    # what is left of a vocabulary whose process ended as it was written
    (out / "vocab").mkdir(parents=True)
    laboratory = Laboratory(out, QUICK)
    laboratory.prepare(str(corpus), tmp_path)
    made = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    laboratory.prepare(str(corpus), tmp_path)
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == made
    assert TokenStore(out / "store").tokens


CELL, BOTH = Cell(name="a cell"), ("trec", "ner")


def test_a_cell_goes_on_where_it_was_killed(out: Path) -> None:
    first = PaperLaboratory(out, killed_before="ner")
    with pytest.raises(Killed):
        first.train(CELL, 0, BOTH)
    assert first.stages == ["pretraining", "trec"]
    assert first.results(CELL, 0, BOTH) is None
    second = PaperLaboratory(out)
    results = second.train(CELL, 0, BOTH)
    assert second.stages == ["ner"]
    assert results["tasks"]["trec"]["scores"] == {"accuracy": 0.5}
    assert not any((out / "work").iterdir())


def test_a_kill_in_pretraining_leaves_the_run_to_go_on_with(out: Path) -> None:
    with pytest.raises(Killed):
        PaperLaboratory(out, killed_before="pretraining").train(CELL, 0, BOTH)
    again = PaperLaboratory(out)
    again.train(CELL, 0, BOTH)
    assert again.stages == ["pretraining", "trec", "ner"]


def test_what_has_ended_is_not_trained_again(out: Path) -> None:
    PaperLaboratory(out).train(CELL, 0, BOTH)
    again = PaperLaboratory(out)
    found = again.train(CELL, 0, BOTH)
    # settings that are named though they are the usual ones make no other cell, nor does a name
    options = ("--masking.as-mask", "0.8", "--masking.as-random", "0.1")
    assert again.train(Cell(name="80/10/10", options=options), 0, BOTH) == found
    assert again.stages == []


@pytest.mark.parametrize(
    "change",
    [
        {"options": ("--segments", "0")}, {"size": "1/128"}, {"steps": 2.0}, {"cls": "last"},
    ],
)  # fmt: skip
def test_another_cell_or_seed_is_trained(out: Path, change: dict[str, Any]) -> None:
    PaperLaboratory(out).train(CELL, 0, BOTH)
    other = PaperLaboratory(out)
    other.train(replace(CELL, **change), 0, BOTH)
    other.train(CELL, 1, BOTH)
    assert other.stages == ["pretraining", *BOTH] * 2


def test_another_task_needs_the_model_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PaperLaboratory(out).train(CELL, 0, ("trec",))
    more = PaperLaboratory(out)
    more.train(CELL, 0, BOTH)
    assert more.stages == ["pretraining", "ner"]
    changed = replace(TASKS["ner"], options=("--epochs", "9"))
    monkeypatch.setitem(TASKS, "ner", changed)
    assert more.results(CELL, 0, BOTH) is None


def model_of(cell: Cell, out: Path, tokenizer: Tokenizer) -> Model:
    """The network that a cell trains."""
    config = Laboratory(out, QUICK).pretrain_config(cell, 0, out / "run")
    return build_model(network_of(run_of_options(config, torch.device("cpu")), tokenizer), seed=0)


def test_sizes_are_layers_and_width(out: Path, tokenizer: Tokenizer) -> None:
    for cell in EXPERIMENTS["size"].cells:
        encoder = model_of(cell, out, tokenizer).encoder
        layers, width = map(int, cell.size.split("/"))
        assert (len(encoder.blocks), encoder.embeddings.tokens.weight.shape[1]) == (layers, width)


def test_cells_differ_from_the_one_they_are_compared_with(out: Path) -> None:
    laboratory = Laboratory(out, QUICK)
    for experiment in EXPERIMENTS.values():
        first, *others = experiment.cells
        assert not any(laboratory.same(first, cell) for cell in others)


def first_batches(
    cell: Cell, out: Path, store: TokenStore, tokenizer: Tokenizer
) -> Iterator[Batch]:
    settings = Laboratory(out, QUICK).pretrain_config(cell, 0, out / "run").settings
    assert settings is not None
    samples = replace(settings.samples, tokens_per_batch=4096)
    batches, place, seen = PretrainingBatches(store, tokenizer, samples, 0), DataPosition(), 0
    while seen < TOKENS:
        batch, place = batches.next_batch(place)
        seen += batch.tokens
        yield batch


@pytest.mark.parametrize("cell", EXPERIMENTS["masking"].cells, ids=lambda cell: cell.name)
def test_masks_have_the_shares_that_the_cell_is_named_for(
    cell: Cell, out: Path, store: TokenStore, tokenizer: Tokenizer
) -> None:
    mask, same, random = (int(share) / 100 for share in cell.name.split("/"))
    hidden = kept = count = tokens = 0
    for batch in first_batches(cell, out, store, tokenizer):
        target = batch.targets["masked_lm"]
        shown = batch.ids[target.positions]
        hidden += int((shown == tokenizer.mask_id).sum())
        kept += int((shown == target.labels).sum())
        count += len(target)
        tokens += batch.tokens - 3 * batch.sequences
    assert count / tokens == pytest.approx(0.15, abs=0.01)
    assert hidden / count == pytest.approx(mask, abs=0.02)
    # a random token is the original one now and then
    chance = random / len(tokenizer.ordinary_ids)
    assert kept / count == pytest.approx(same + chance, abs=0.02)


def cell_named(experiment: str, name: str) -> Cell:
    return next(cell for cell in EXPERIMENTS[experiment].cells if cell.name == name)


def test_objectives_are_those_of_their_cells(
    out: Path, store: TokenStore, tokenizer: Tokenizer
) -> None:
    targets = {
        cell.name: set(next(first_batches(cell, out, store, tokenizer)).targets)
        for cell in EXPERIMENTS["objectives"].cells
    }
    assert targets == {
        "masked LM + NSP": {"masked_lm", "next_sentence"},
        "no NSP": {"masked_lm"},
        "left to right, no NSP": {"left_to_right"},
    }


def test_left_to_right_no_token_sees_a_later_one(out: Path, tokenizer: Tokenizer) -> None:
    model = model_of(cell_named("objectives", "left to right, no NSP"), out, tokenizer).eval()
    for at, alike in ((2, True), (3, False)):
        one, other = last_states(model, [2, 7, 8, 9, 3], [2, 7, 8, 11, 3], at=at)
        assert torch.allclose(one, other) == alike


def last_states(model: Model, *sequences: list[int], at: int) -> list[Tensor]:
    """The last layer's states of one token of each sequence."""
    return [model.encoder(packed([ids])).last[at] for ids in sequences]


def packed(sequences: list[list[int]], segments: list[list[int]] | None = None) -> Batch:
    rows = [np.array(ids, np.int64) for ids in sequences]
    own = segments or [[0] * len(ids) for ids in sequences]
    return pack(rows, [np.array(item, np.int64) for item in own])


def test_without_segments_both_texts_of_a_pair_are_read_alike(
    out: Path, tokenizer: Tokenizer
) -> None:
    ids = [2, 7, 8, 3, 9, 3]
    for name, alike in (("none", True), ("2 segments", False)):
        encoder = model_of(cell_named("segments", name), out, tokenizer).eval().encoder
        one, other = (encoder(packed([ids], [own])).last for own in ([0] * 6, [0] * 4 + [1] * 2))
        assert torch.equal(one, other) == alike


def test_without_positions_order_is_not_seen(out: Path, tokenizer: Tokenizer) -> None:
    states = {}
    for name in ("learned", "none"):
        model = model_of(cell_named("order", name), out, tokenizer).eval()
        states[name] = last_states(model, [2, 7, 8, 9, 3], [2, 9, 8, 7, 3], at=0)
    close_when_regrouped(*states["none"])
    first, second = states["learned"]
    assert not torch.allclose(first, second)


def test_cls_with_the_last_position_is_cls_at_the_end() -> None:
    config = EncoderConfig(
        vocabulary=20, hidden=24, layers=2, heads=3, feed_forward=40, longest=16, dropout=0.0,
        attention_dropout=0.0, initial_std=0.3,
    )  # fmt: skip
    encoder = build_model(ModelConfig(encoder=config), seed=3).eval().encoder
    texts = [[5, 6, 7, 3], [8, 9, 10, 11, 12, 3], [3]]
    usual = packed([[2, *text] for text in texts])
    # what is tested: the same tokens, really in that order
    at_the_end = encoder(packed([[*text, 2] for text in texts])).last
    with cls_at("last"):
        read = encoder(usual).last
        assert torch.equal(encoder(moved(usual, "first")).last, read)
    expected = torch.cat([part.roll(1, 0) for part in at_the_end.split([5, 7, 2])])
    torch.testing.assert_close(read, expected)
    assert not torch.allclose(encoder(usual).last, read, atol=1e-3)


def test_tasks_are_subsets_without_a_row_in_train_and_dev(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "tasks"
    rows = [f"{number}\ta question {number}\ta sentence\tentailment" for number in range(40)]
    trec = "\n".join(f"NUM:date caf\xe9 {number}" for number in range(9)) + "\n"
    blocks = ["-DOCSTART- -X- -X- O", *(f"w{number} NN B-NP O\nof IN O O" for number in range(9))]
    for name, text in {
        "glue/QNLI/dev.tsv": "\n".join(["index\tquestion\tsentence\tlabel", *rows]),
        "trec/train_5500.label": trec, "trec/TREC_10.label": trec,
        "conll2003/train.txt": "\n\n".join(blocks), "conll2003/dev.txt": "\n\n".join(blocks),
    }.items():  # fmt: skip
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text, encoding="cp1252")
    write_tasks(data, out, Rows(train=7, dev=5))
    read = {file.name: file.read_text(encoding="cp1252") for file in out.iterdir()}
    train, dev = (read[f"qnli-{part}.tsv"].splitlines()[1:] for part in ("train", "dev"))
    assert (len(train), len(dev), set(train) & set(dev)) == (7, 5, set())
    assert len(read["trec-train.label"].splitlines()) == 7
    assert read["ner-train.txt"].count("of IN O O") == 7
    assert "DOCSTART" not in read["ner-train.txt"]
    assert all("\n\n" in read[name] for name in ("ner-train.txt", "ner-dev.txt"))
    before = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    write_tasks(data, out, Rows(train=7, dev=5))
    assert {file.name: file.stat().st_mtime_ns for file in out.iterdir()} == before


def test_intervals_are_those_of_scipy_and_differences_are_paired() -> None:
    values = [4.0, 6.0, 5.0]
    low, high = t.interval(0.95, 2, loc=5.0, scale=sem(values))
    estimate = Estimate.of(values)
    assert (estimate.mean - estimate.half, estimate.mean + estimate.half) == pytest.approx(
        (low, high)
    )
    assert np.isnan(Estimate.of([1.0]).half)
    experiment = EXPERIMENTS["objectives"]
    results = {
        "masked LM + NSP": [result(loss) for loss in values],
        "no NSP": [
            result(loss - 1 + tiny) for loss, tiny in zip(values, (0, 0.1, -0.1), strict=True)
        ],
    }
    difference = estimates(experiment, results)["no NSP"]["masked LM loss"]["difference"]
    assert difference.mean == pytest.approx(-1)
    assert difference.differs
    rows = table(experiment, results)
    assert [row[0] for row in rows] == ["", *results]
    assert {"masked LM loss", "qnli %", "paper: QNLI"} <= set(rows[0])
    assert rows[1][2] == "5.000 ± 2.484"
    assert rows[2][2].endswith("(-1.000 ± 0.248) *")


def result(loss: float) -> dict[str, Any]:
    scores = {task: {"scores": {TASKS[task].score: 0.5}} for task in TASKS}
    return {"pretraining": {"masked_lm_loss": loss}, "tasks": scores}


@pytest.mark.faults
def test_a_whole_experiment_at_the_quick_scale(out: Path, data_folder: Path) -> None:
    laboratory = Laboratory(out, QUICK)
    write_tasks(data_folder, out / "tasks", QUICK.rows)
    cell = cell_named("cls", "last")
    results = laboratory.train(cell, 0, ("trec", "ner-frozen"))
    assert results["tasks"]["ner-frozen"]["scores"]["f1"] >= 0
    kept = next((out / "cells").iterdir())
    assert json.loads(kept.read_text()) == results
