"""A model of the hub wherever a model is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bertsmith.cli.main import main
from bertsmith.core.printable import markdown
from bertsmith.hub import models as names
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainRun
from bertsmith.recipes.pretrain.recipe import pretrain
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from hub.fake_hub import FakeHub, Files
from hub.test_hub_push import head_of
from invented import SYLLABLES, invented_documents

NAME = "hub:owner/name"


@pytest.fixture
def commit(hub: FakeHub, model_files: Files) -> str:
    return hub.add("owner/name", model_files)


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    path = tmp_path / "train.csv"
    rows = [f"{SYLLABLES[number]} {['do', 'du'][number % 2]},{number % 2}" for number in range(40)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


@pytest.mark.usefixtures("commit")
def test_predict_takes_a_model_of_the_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("ba [MASK] bi\n")
    assert main(["predict", NAME, str(tmp_path / "texts.txt")]) == 0
    assert "ba [MASK] bi" in capsys.readouterr().out


@pytest.mark.usefixtures("hub")
def test_a_name_that_is_not_there_ends_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("ba [MASK] bi\n")
    assert main(["predict", NAME, str(tmp_path / "texts.txt")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"bertsmith: {NAME}@main: the hub has no such model")


def test_fine_tuning_keeps_the_commit(commit: str, examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = FinetuneSettings(epochs=1, max_length=16, baseline=False)
    finetune(
        FinetuneConfig(
            model=Path(f"{NAME}@main"),
            train=examples,
            out=out,
            settings=settings,
            experiment=ExperimentConfig(seeds=1, device="cpu"),
        )
    )
    origin = f"{NAME}@{commit}"
    assert json.loads((out / "run.json").read_text())["settings"]["origin"] == origin
    card = (out / "model" / "README.md").read_bytes()
    assert origin in card.decode()
    assert head_of(card) == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["bert", "bertsmith"],
        "base_model": "owner/name",
    }


def test_pre_training_keeps_the_commit_and_goes_on_without_the_cache(
    hub: FakeHub, commit: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    store, out = tmp_path / "store", tmp_path / "run"
    prepare_store(invented_documents(20), tokenizer, store, held_out=0.1)
    pretrain(
        PretrainConfig(store=store, out=out, from_=Path(NAME), steps=2, device="cpu", force=True)
    )
    stored = json.loads((out / "run.json").read_text())["settings"]
    parent = PretrainRun.from_dict(stored).parent
    assert parent is not None
    assert parent.origin == f"{NAME}@{commit}"
    card = (out / "model" / "README.md").read_bytes()
    assert f"Trained further, from {markdown(f'{NAME}@{commit}')}," in card.decode()
    assert head_of(card)["base_model"] == "owner/name"
    # another machine's cache; and the branch has moved on
    (tmp_path / "cache").rename(tmp_path / "gone")
    hub.repositories["owner/name"].commit({"config.json": b"{}"})
    names._from_hub.cache_clear()
    assert pretrain(PretrainConfig(store=None, out=out, device="cpu")).state.step == 2


def test_a_vocabulary_of_the_hub_prepares_and_extends(
    hub: FakeHub, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n\n".join(p for d in invented_documents(40) for p in d.paragraphs)
    (tmp_path / "text.txt").write_text(text)
    corpus, out = str(tmp_path / "text.txt"), str(tmp_path / "out")
    assert main(["prepare", corpus, "--vocab", NAME, "--out", out, "--workers", "1"]) == 0
    assert not [path for _, path, _ in hub.asked if path.endswith(".safetensors")]
    extended = tmp_path / "extended"
    arguments = ["vocab", "extend", NAME, corpus, "--add", "5", "--out", str(extended)]
    assert main(arguments) == 0, capsys.readouterr().err
    card = (extended / "README.md").read_bytes()
    assert f"# {NAME}@{commit} with more vocabulary" in card.decode()
    assert head_of(card)["base_model"] == "owner/name"


def test_nothing_else_reaches_the_network(hub: FakeHub, model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("ba [MASK] bi\n")
    assert main(["predict", str(model), str(tmp_path / "texts.txt")]) == 0
    assert main(["predict", "owner/name", str(tmp_path / "texts.txt")]) == 2
    assert hub.asked == []


def test_push_is_a_verb(
    hub: FakeHub, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "writer")
    options = ["--license", "mit", "--language", "de,en", "--message", "ours", "--private"]
    status = main(["push", str(model), "owner/name", *options])
    printed = capsys.readouterr().err
    assert status == 0, printed
    # sizes have a space before their unit, as everywhere
    sizes = re.findall(r"^  \S+\.(?:json|safetensors|md) +(.*)$", printed, re.MULTILINE)
    assert sizes
    assert all(re.fullmatch(r"[\d.]+ [kM]?B", size) for size in sizes)
    repository = hub.repositories["owner/name"]
    assert repository.private
    assert repository.messages[-1] == "ours"
    head = head_of(repository.commits[repository.refs["main"]]["README.md"])
    assert (head["license"], head["language"]) == ("mit", ["de", "en"])
