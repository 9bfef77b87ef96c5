"""Attacks on the order of labels: the same score, or a clear refusal."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bertsmith.core.errors import ExampleError, ModelFolderError
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.predict.config import EvaluateConfig
from bertsmith.recipes.predict.evaluate import evaluate
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.task import score_answers
from bertsmith.text.examples.reading import Example
from bertsmith.weights.folder import load_model

QUICK = FinetuneSettings(
    epochs=5, batch_size=16, learning_rate=3e-3, dropout=0.0, precision="fp32", baseline=False
)


@pytest.fixture(scope="module")
def learned(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path, labelled_rows: list[str]
) -> tuple[Path, FinetuneOutcome]:
    """A dev file and a model with the labels down and up, in this order."""
    folder = tmp_path_factory.mktemp("order")
    train, dev = folder / "train.tsv", folder / "dev.tsv"
    train.write_text("\n".join(labelled_rows[:121]) + "\n", encoding="utf-8")
    dev.write_text("\n".join([labelled_rows[0], *labelled_rows[121:]]) + "\n", encoding="utf-8")
    return dev, finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=folder / "run",
            dev=dev,
            settings=QUICK,
            experiment=ExperimentConfig(seeds=1),
        )
    )


def score(model: Path, dev: Path) -> float:
    value: float = evaluate(EvaluateConfig(model=model, file=dev))["scores"]["accuracy"]["value"]
    return value


def changed(model: Path, folder: Path, config: dict[str, Any]) -> Path:
    """A copy of a model folder with another config."""
    shutil.copytree(model, folder)
    path = folder / "config.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(known | config), encoding="utf-8")
    return folder


def test_the_order_of_the_dev_rows_and_of_its_labels_is_nothing(
    learned: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    dev, outcome = learned
    header, *rows = dev.read_text(encoding="utf-8").splitlines()
    best = outcome.best.score
    assert best >= 0.9
    for name, order in (("up", sorted(rows)), ("down", sorted(rows, reverse=True))):
        # another label comes first each time
        turned = tmp_path / f"{name}.tsv"
        turned.write_text("\n".join([header, *order]) + "\n", encoding="utf-8")
        assert order[0].startswith("down" if name == "up" else "up")
        assert score(outcome.model, turned) == best


def test_a_folder_whose_outputs_are_in_another_order_scores_the_same(
    learned: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    dev, outcome = learned
    names = {"id2label": {"1": "down", "0": "up"}, "label2id": {"down": 1, "up": 0}}
    turned = changed(outcome.model, tmp_path / "turned", names)
    weights = load_file(turned / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name].flip(0).contiguous()
    save_file(weights, turned / "model.safetensors", {"format": "pt"})
    assert load_model(turned)[0].config.labels == ("up", "down")
    assert score(turned, dev) == outcome.best.score


def test_names_that_contradict_each_other_are_refused(
    learned: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    dev, outcome = learned
    torn = {"id2label": {"0": "up", "1": "down"}, "label2id": {"down": 0, "up": 1}}
    with pytest.raises(ModelFolderError):
        score(changed(outcome.model, tmp_path / "torn", torn), dev)


def test_integers_for_names_are_refused_and_integers_for_integers_are_not(
    learned: tuple[Path, FinetuneOutcome], base_folder: Path, tmp_path: Path
) -> None:
    dev, outcome = learned
    header, *rows = dev.read_text(encoding="utf-8").splitlines()
    numbered = [row.replace("down\t", "0\t").replace("up\t", "1\t") for row in rows]
    integers = tmp_path / "integers.tsv"
    integers.write_text("\n".join([header, *numbered]) + "\n", encoding="utf-8")
    with pytest.raises(ExampleError, match="none of the model's; it knows down, up"):
        score(outcome.model, integers)
    trained = finetune(
        FinetuneConfig(
            model=base_folder,
            train=integers,
            out=tmp_path / "run",
            dev=integers,
            settings=QUICK,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    assert trained.data.labels == ("0", "1")
    texts = [dict(zip(("label", "text"), row.split("\t"), strict=True)) for row in numbered]
    scores = set()
    # the same numbers as JSON's own, and written with a fraction of nothing
    for kind in (str, int, float):
        as_json = tmp_path / f"{kind.__name__}.jsonl"
        written = [{"text": text["text"], "label": kind(text["label"])} for text in texts]
        as_json.write_text("\n".join(map(json.dumps, written)) + "\n", encoding="utf-8")
        scores.add(score(trained.model, as_json))
    assert scores == {trained.best.score}


def test_going_on_from_a_model_keeps_its_order(
    learned: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    dev, outcome = learned
    names = {"id2label": {"0": "up", "1": "down"}, "label2id": {"up": 0, "down": 1}}
    turned = changed(outcome.model, tmp_path / "turned", names)
    quickest = replace(QUICK, epochs=1)
    first = finetune(
        FinetuneConfig(
            model=outcome.model,
            train=dev,
            out=tmp_path / "a",
            dev=dev,
            settings=quickest,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    again = finetune(
        FinetuneConfig(
            model=turned,
            train=dev,
            out=tmp_path / "b",
            dev=dev,
            settings=quickest,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    assert first.data.labels == ("down", "up")
    assert again.data.labels == ("up", "down")
    assert score(first.model, dev) == first.best.score
    assert score(again.model, dev) == again.best.score


@pytest.mark.parametrize("known", [("0", "1"), ("1", "0"), ()])
def test_f1_of_glue_is_that_of_the_same_class_whatever_model_training_starts_from(
    known: tuple[str, ...],
) -> None:
    rows = [
        Example(text=text, text_pair="b", label=label, source="m", line=1)
        for text, label in (("a", "1"), ("c", "0"), ("d", "1"))
    ]
    task = GLUE["MRPC"]
    labels = task.labels.names(rows, known)
    # says of all that they are paraphrases
    answers = [np.eye(2)[labels.index("1")]] * 3
    scores = score_answers(task, rows, answers, labels).scores
    assert scores == {"f1": pytest.approx(4 / 5), "accuracy": pytest.approx(2 / 3)}
