from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from bertsmith.core.errors import ConfigError, ExampleError, ModelFolderError, RunFolderError
from bertsmith.network.model import build_model
from bertsmith.recipes.finetune import inputs
from bertsmith.recipes.finetune.baselines import TFIDF
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.inputs import hash_of
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.recipe import dry_run, finetune
from bertsmith.recipes.finetune.trial import DEV
from bertsmith.training.run_folder import read_record, write_record
from bertsmith.weights.folder import load_model, save_model

QUICK = FinetuneSettings(
    epochs=4, batch_size=16, learning_rate=3e-3, precision="fp32", dropout=0.05
)


@pytest.fixture(scope="module")
def outcome(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path
) -> tuple[Path, FinetuneOutcome]:
    """A run of three seeds, and its training file."""
    folder = tmp_path_factory.mktemp("finetune")
    random = np.random.default_rng(4)
    rows = ["label\ttext"]
    for number in range(160):
        words = [f"word{n}" for n in random.integers(0, 30, random.integers(3, 9))]
        words.insert(int(random.integers(0, len(words))), "bad" if number % 2 else "good")
        rows.append(f"{'down' if number % 2 else 'up'}\t{' '.join(words)}")
    train = folder / "train.tsv"
    train.write_text("\n".join(rows), encoding="utf-8")
    return train, finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=folder / "run",
            settings=QUICK,
            experiment=ExperimentConfig(seeds=3),
        )
    )


def test_it_learns_and_every_seed_is_told(outcome: tuple[Path, FinetuneOutcome]) -> None:
    _, found = outcome
    assert len(found.seeds) == 3
    assert found.best.score >= 0.9
    assert [rival.name for rival in found.baselines] == [TFIDF]
    assert found.baselines[0].mean >= 0.9
    assert found.majority_baseline == ("always predicting the most frequent class", 0.5)
    assert found.interval.low <= found.best.score <= found.interval.high
    results = json.loads((found.folder / "results.json").read_text(encoding="utf-8"))
    scores = [seed["scores"]["accuracy"] for seed in results["seeds"]]
    told = results["scores"]["accuracy"]
    assert told["mean"] == pytest.approx(np.mean(scores))
    assert told["median"] == pytest.approx(np.median(scores))
    assert told["spread"] == pytest.approx(np.std(scores, ddof=1))
    assert results["best_seed"] == found.best.seed
    assert (results["train"], results["dev"]) == (144, 16)
    assert "Confusion" in (found.folder / "report.html").read_text(encoding="utf-8")


def test_the_model_kept_is_that_of_the_best_seed_and_loads_elsewhere(
    outcome: tuple[Path, FinetuneOutcome],
) -> None:
    _, found = outcome
    model, _ = load_model(found.model)
    assert model.config.labels == ("down", "up")
    assert model.config.encoder.dropout == model.config.classifier_dropout == 0.05
    # transformers' classifier gives the predictions that were measured
    reference = AutoModelForSequenceClassification.from_pretrained(found.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(found.model)
    with torch.no_grad():
        inputs = tokenizer([e.text for e in found.data.dev], return_tensors="pt", padding=True)
        predictions = reference(**inputs).logits.argmax(-1)
    dev = read_record(found.folder / "seeds" / f"seed-{found.best.seed}" / DEV)
    assert predictions.tolist() == [said for _, said, _ in dev["evidence"]]
    labels = [answer["label"] for answer in dev["answers"]]
    assert labels == [model.config.labels[said] for said in predictions.tolist()]
    card = (found.model / "README.md").read_text(encoding="utf-8")
    assert "best of them on these very examples" in card
    assert "(mean and spread over the seeds)" in card


def test_nothing_but_the_best_model_stays_on_the_disk(
    outcome: tuple[Path, FinetuneOutcome],
) -> None:
    weights = list(outcome[1].folder.rglob("*.safetensors"))
    assert weights == [outcome[1].model / "model.safetensors"]


def test_a_run_goes_on_with_the_seeds_that_have_no_result(
    outcome: tuple[Path, FinetuneOutcome], base_folder: Path, tmp_path: Path
) -> None:
    train, found = outcome
    folder = tmp_path / "run"
    shutil.copytree(found.folder, folder)
    shutil.rmtree(folder / "seeds" / "seed-1")
    marked = folder / "seeds" / "seed-0" / "result.json"
    write_record(marked, read_record(marked) | {"seconds": 12345.0})
    again = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=folder,
            settings=QUICK,
            experiment=ExperimentConfig(seeds=3),
        )
    )
    assert again.seeds[0].seconds == 12345.0
    assert again.seeds[1].scores == found.seeds[1].scores
    assert again.seeds[1].losses == found.seeds[1].losses


def test_a_run_goes_on_where_its_model_and_data_were_moved(
    outcome: tuple[Path, FinetuneOutcome], base_folder: Path, tmp_path: Path
) -> None:
    train, found = outcome
    folder, moved, model = tmp_path / "run", tmp_path / "moved.tsv", tmp_path / "model"
    shutil.copytree(found.folder, folder)
    shutil.rmtree(folder / "seeds" / "seed-1")
    shutil.copytree(base_folder, model)
    shutil.copy(train, moved)
    config = FinetuneConfig(
        model=model, train=moved, out=folder, settings=QUICK, experiment=ExperimentConfig(seeds=3)
    )
    again = finetune(config)
    assert again.seeds[1].losses == found.seeds[1].losses
    kept = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (kept["model"], kept["train"]) == (str(model), str(moved))
    # of another kind it would be read in another way
    with pytest.raises(RunFolderError, match=r"train was .*moved\.tsv, now .*other\.txt"):
        dry_run(replace(config, train=moved.rename(tmp_path / "other.txt")))


def test_a_model_whose_config_was_changed_since_is_refused(
    outcome: tuple[Path, FinetuneOutcome], base_folder: Path, tmp_path: Path
) -> None:
    train, found = outcome
    folder, model = tmp_path / "run", base_folder / "config.json"
    shutil.copytree(found.folder, folder)
    config = FinetuneConfig(
        model=base_folder,
        train=train,
        out=folder,
        settings=QUICK,
        experiment=ExperimentConfig(seeds=4),
    )
    dry_run(config)
    before = model.read_text(encoding="utf-8")
    changed = json.loads(before) | {"hidden_dropout_prob": 0.31}
    try:
        model.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(RunFolderError, match="model_reading_hash: the contents have"):
            dry_run(config)
    finally:
        model.write_text(before, encoding="utf-8")


def test_a_run_that_has_ended_gets_more_seeds(
    outcome: tuple[Path, FinetuneOutcome], base_folder: Path, tmp_path: Path
) -> None:
    train, _ = outcome
    settings = replace(QUICK, epochs=1, baseline=False)
    ways = {"at once": (3,), "grown": (1, 3)}
    found = {}
    for way, counts in ways.items():
        for seeds in counts:
            found[way] = finetune(
                FinetuneConfig(
                    model=base_folder,
                    train=train,
                    out=tmp_path / way,
                    settings=settings,
                    experiment=ExperimentConfig(seeds=seeds, side_by_side=1),
                )
            )
    whole, grown = found["at once"], found["grown"]
    assert [seed.losses for seed in grown.seeds] == [seed.losses for seed in whole.seeds]
    weights = [item.model / "model.safetensors" for item in (whole, grown)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    told = json.loads((grown.folder / "results.json").read_text(encoding="utf-8"))
    assert len(told["seeds"]) == 3
    # what a kill leaves of a model that was moved does no harm
    half = grown.folder / "seeds" / f"seed-{grown.best.seed}" / "model.moved"
    half.mkdir()
    (half / "config.json").write_text("{", encoding="utf-8")
    finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=grown.folder,
            settings=settings,
            experiment=ExperimentConfig(seeds=3, side_by_side=1),
        )
    )
    assert not half.exists()
    with pytest.raises(RunFolderError, match="seeds was 3, now 2"):
        finetune(
            FinetuneConfig(
                model=base_folder,
                train=train,
                out=grown.folder,
                settings=settings,
                experiment=ExperimentConfig(seeds=2),
            )
        )


def test_the_folder_of_another_run_is_refused(
    outcome: tuple[Path, FinetuneOutcome], base_folder: Path
) -> None:
    train, found = outcome
    with pytest.raises(RunFolderError, match=r"settings\.epochs was 4, now 5"):
        finetune(
            FinetuneConfig(
                model=base_folder,
                train=train,
                out=found.folder,
                settings=replace(QUICK, epochs=5),
                experiment=ExperimentConfig(seeds=3),
            )
        )
    before = train.read_text(encoding="utf-8")
    train.write_text(before + "\nup\tword1 good", encoding="utf-8")
    try:
        with pytest.raises(RunFolderError, match="train_hash"):
            finetune(
                FinetuneConfig(
                    model=base_folder,
                    train=train,
                    out=found.folder,
                    settings=QUICK,
                    experiment=ExperimentConfig(seeds=3),
                )
            )
    finally:
        train.write_text(before, encoding="utf-8")


def test_labels_keep_the_order_of_the_model_trained_on(
    outcome: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    train, found = outcome
    shuffled = tmp_path / "model"
    shutil.copytree(found.model, shuffled)
    config = json.loads((shuffled / "config.json").read_text(encoding="utf-8"))
    config |= {"id2label": {"0": "up", "1": "down"}, "label2id": {"up": 0, "down": 1}}
    (shuffled / "config.json").write_text(json.dumps(config), encoding="utf-8")
    quickest = replace(QUICK, epochs=1, baseline=False)
    again = finetune(
        FinetuneConfig(
            model=shuffled,
            train=train,
            out=tmp_path / "run",
            settings=quickest,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    assert again.data.labels == ("up", "down")
    assert load_model(again.model)[0].config.labels == ("up", "down")


def test_pairs_with_a_dev_file_and_a_text_of_100_000_words(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"text": f"word{n % 30} good", "text_pair": "good" if n % 2 else "bad", "label": n % 2}
        for n in range(40)
    ]
    rows[5]["text"] = "word3 " * 100_000
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    train.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    # one of them an uncased model reads as the same
    copies = [rows[0] | {"text": "WORD0 Good"}, *rows[1:8]]
    dev.write_text("\n".join(map(json.dumps, copies)), encoding="utf-8")
    settings = replace(QUICK, epochs=1, max_length=20)
    found = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=tmp_path / "run",
            dev=dev,
            settings=settings,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    told = capsys.readouterr().err
    assert "8 of the dev examples have a text that is also in train (ignoring case)" in told
    assert "2 of 48 texts (4.2 %) were longer than 20 tokens: only the beginning was read" in told
    assert found.data.labels == ("0", "1")
    assert (len(found.data.train), len(found.data.dev), found.cut) == (40, 8, 2)


@pytest.mark.parametrize(
    ("content", "dev", "message"),
    [
        ("label\ttext\nup\tone\nup\ttwo\n", None, "train.tsv: has one class only, 'up'"),
        ("label\ttext\na\tone\nb\ttwo\nc\tthree\n", None, "every example a label of its own"),
        ("label\ttext\nup\tone\ndown\ttwo\n", None, "too few examples"),
        ("kind\twords\nup\tone two\nx\ty\n", None, "train.tsv:1: no column"),
        (
            "label\ttext\nup\tone\ndown\ttwo\nup\tsix\n",
            "label\ttext\nup\tone\nsideways\ttwo\n",
            "dev.tsv:3: unknown label 'sideways'",
        ),
        (
            "label\ttext\nup\tone\ndown\ttwo\nup\tsix\n",
            "label\ttext\ttext_pair\nup\tone\ttwo\n",
            "dev.tsv:2: is a pair of texts",
        ),
    ],
)
def test_bad_examples_are_named_and_nothing_is_written(
    base_folder: Path, tmp_path: Path, content: str, dev: str | None, message: str
) -> None:
    train, dev_file = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text(content, encoding="utf-8")
    if dev is not None:
        dev_file.write_text(dev, encoding="utf-8")
    with pytest.raises(ExampleError) as raised:
        finetune(
            FinetuneConfig(
                model=base_folder,
                train=train,
                out=tmp_path / "run",
                dev=None if dev is None else dev_file,
                settings=QUICK,
            )
        )
    assert message in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_model_is_refused(labelled: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError):
        finetune(
            FinetuneConfig(model=tmp_path, train=labelled, out=tmp_path / "run", settings=QUICK)
        )
    assert not (tmp_path / "run").exists()


def test_impossible_settings_are_refused(base_folder: Path, labelled: Path, tmp_path: Path) -> None:
    impossible: tuple[dict[str, object], ...] = (
        {"epochs": 0}, {"batch": 0}, {"dev_share": 1.0}, {"rate": 0.0}, {"freeze": -2},
        {"layer_decay": 0.0}, {"smoothing": 1.0}, {"search": {"rates": []}},
    )  # fmt: skip
    for settings in impossible:
        with pytest.raises(ConfigError):
            FinetuneSettings.from_dict(settings)
    with pytest.raises(ConfigError, match="seeds is 0"):
        finetune(
            FinetuneConfig(
                model=base_folder,
                train=labelled,
                out=tmp_path / "run",
                experiment=ExperimentConfig(seeds=0),
            )
        )


def test_seeds_begin_from_one_model_though_its_folder_is_replaced(
    base_folder: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = shutil.copytree(base_folder, tmp_path / "base")

    def replaced(path: Path) -> str:
        """Return the hash of the training file, and let another model take the folder."""
        save_model(base, build_model(load_model(base)[0].config, seed=9), load_model(base)[1])
        return hash_of(path)

    monkeypatch.setattr(inputs, "hash_of", replaced)
    config = FinetuneConfig(model=base, train=labelled, out=tmp_path / "run", settings=QUICK)
    with pytest.raises(ModelFolderError, match="base: was changed while it was in use"):
        finetune(config)


def test_a_file_that_grows_while_it_is_read_is_refused(
    base_folder: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would name the hash of rows that it never read, and be resumed with them."""

    def later(path: Path) -> str:
        with path.open("a", encoding="utf-8") as file:
            file.write("up\tword1 good\n")
        return hash_of(path)

    monkeypatch.setattr(inputs, "hash_of", later)
    config = FinetuneConfig(model=base_folder, train=labelled, out=tmp_path / "run", settings=QUICK)
    with pytest.raises(ExampleError, match=r"labelled.tsv: changed while it was read"):
        finetune(config)
    assert not (tmp_path / "run").exists()
