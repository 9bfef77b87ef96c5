"""Pre-training that goes on from a model: what it takes over, what is new, what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, RunFolderError, StoreError
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes.pretrain import speed
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.recipe import PretrainOutcome, pretrain, start
from bertsmith.recipes.pretrain.resolving import resolve
from bertsmith.recipes.pretrain.starting import continued
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget
from bertsmith.weights.folder import load_model, read_config, save_model
from bertsmith.weights.sentence_folder import SentenceSettings, save_sentence_folder
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

SMALL = SampleConfig(max_length=25, tokens_per_batch=190)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(30), tokenizer, folder, held_out=0.1)
    return folder


def encoder(tokenizer: Tokenizer, **changes: object) -> EncoderConfig:
    sizes = {
        "vocabulary": tokenizer.size, "hidden": 24, "layers": 2, "heads": 3, "feed_forward": 40,
        "longest": 33, "dropout": 0.2, "attention_dropout": 0.15, "activation": "gelu_tanh",
    }  # fmt: skip
    return EncoderConfig(**sizes | changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, Path]:
    """Models with the heads of pre-training, with none, and with a classifier."""
    base = encoder(tokenizer)
    configs = {
        "whole": ModelConfig(encoder=base, masked_lm=True, next_sentence=True),
        "bare": ModelConfig(encoder=base, pooler=False),
        "classifier": ModelConfig(encoder=base, predicts="class", labels=("up", "down", "none")),
        "sinusoidal": ModelConfig(encoder=encoder(tokenizer, positions="sinusoidal")),
    }
    folder = tmp_path_factory.mktemp("parents")
    for number, (name, config) in enumerate(configs.items()):
        save_model(folder / name, build_model(config, seed=number), tokenizer)
    return {name: folder / name for name in configs}


def quick(parent: Path, *, pairs: bool = True) -> PretrainSettings:
    samples = replace(SMALL, text="next_sentence" if pairs else "within_documents")
    return replace(continued(parent), samples=samples, log_every=3)


def test_defaults_are_the_models_own(parents: dict[str, Path]) -> None:
    settings = continued(parents["whole"])
    network = settings.network
    assert (network.hidden_dropout, network.attention_dropout) == (0.2, 0.15)
    assert (network.max_positions, network.activation) == (33, "gelu_tanh")
    assert (settings.samples.max_length, settings.samples.pairs) == (33, True)
    assert (settings.optimiser.matrices, settings.optimiser.learning_rate) == ("same", 1e-4)
    assert not continued(parents["bare"]).samples.pairs
    assert continued(parents["sinusoidal"]).network.positions == "sinusoidal"


def test_the_weights_are_the_parents_and_the_heads_it_lacks_are_new(
    parents: dict[str, Path],
    store: Path,
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = {
        "whole": "",
        "bare": "has no masked-LM head, no pooler, no next-sentence head: new",
        "classifier": "left out, as it is not trained here: classifier",
    }
    for name, said in told.items():
        folder = parents[name]
        run = resolve(store, "none", Budget(steps=3), quick(folder), folder)
        model = start(run, tokenizer)
        assert set(model.heads) == {"masked_lm", "next_sentence"}
        assert model.encoder.config.dropout == 0.2
        theirs, ours = load_model(folder)[0].state_dict(), model.state_dict()
        for key in theirs.keys() & ours.keys():
            assert torch.equal(theirs[key], ours[key]), key
        assert (said in capsys.readouterr().err) if said else not capsys.readouterr().err
        again = start(run, tokenizer).state_dict()
        assert all(torch.equal(ours[key], again[key]) for key in ours)
        assert ours["heads.masked_lm.bias"].shape == (tokenizer.size,)
    other = replace(run, settings=replace(run.settings, seed=1))
    changed = start(other, tokenizer).state_dict()["heads.masked_lm.dense.weight"]
    assert not torch.equal(changed, ours["heads.masked_lm.dense.weight"])


def test_the_pooling_of_a_sentence_folder_is_said_to_be_left_out(
    parents: dict[str, Path], store: Path, tokenizer: Tokenizer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """sentence-transformers gave vectors of other lengths than the parent's, in silence."""
    folder, settings = tmp_path / "sentences", SentenceSettings(network=tmp_path, pool=("cls",))
    save_sentence_folder(folder, *load_model(parents["whole"]), settings)
    start(resolve(store, "none", Budget(steps=3), quick(folder), folder), tokenizer)
    assert (
        "the pooling and the other steps of its vectors (modules.json)" in capsys.readouterr().err
    )


def test_a_pooler_that_nothing_trains_is_kept_as_it_is(
    parents: dict[str, Path], store: Path, tmp_path: Path
) -> None:
    folder = parents["whole"]
    made = pretrain(
        PretrainConfig(
            store=store,
            out=tmp_path / "run",
            from_=folder,
            steps=3,
            settings=quick(folder, pairs=False),
        )
    )
    before = load_model(folder)[0].state_dict()
    saved, _ = load_model(made.folder / "model")
    after = saved.state_dict()
    assert torch.equal(before["pooler.dense.weight"], after["pooler.dense.weight"])
    name = "encoder.blocks.1.attention.query.weight"
    moved = (before[name] - after[name]).abs().max()
    assert 0 < moved < 1e-3
    assert not saved.config.next_sentence
    # the dropout in the folder is its parent's, whatever it was trained with
    assert saved.config.encoder == load_model(folder)[0].config.encoder
    # that of the parent is not known
    assert saved.config.pretrained_length is None


def test_the_longest_sequence_of_pretraining_is_that_of_all_its_runs(
    parents: dict[str, Path], store: Path, tmp_path: Path
) -> None:
    model, tokenizer = load_model(parents["whole"])
    for earlier, longest in ((20, 25), (29, 29)):
        model.config = model.config.pretrained_on(earlier)
        save_model(tmp_path / "parent", model, tokenizer)
        settings = quick(tmp_path / "parent", pairs=False)
        config = PretrainConfig(
            store=store, out=tmp_path / str(earlier), from_=tmp_path / "parent", steps=1,
            settings=settings,
        )  # fmt: skip
        made = pretrain(config)
        assert read_config(made.model).pretrained_length == longest


@pytest.fixture(scope="module")
def whole(
    parents: dict[str, Path], store: Path, tmp_path_factory: pytest.TempPathFactory
) -> PretrainOutcome:
    return pretrain(
        PretrainConfig(
            store=store,
            out=tmp_path_factory.mktemp("whole") / "run",
            from_=parents["bare"],
            steps=7,
            settings=quick(parents["bare"]),
        )
    )


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Ctrl-C when batches are drawn the fourth time."""
    next_batch, left = PretrainingBatches.next_batch, [speed.TRIAL_STEPS + 4]

    def stop(self: PretrainingBatches, place: DataPosition) -> tuple[Batch, DataPosition]:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return next_batch(self, place)

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingBatches, "next_batch", stop)
        yield patch


def test_a_stopped_run_goes_on_to_the_very_same_model(
    whole: PretrainOutcome,
    parents: dict[str, Path],
    store: Path,
    tmp_path: Path,
    stopping: pytest.MonkeyPatch,
) -> None:
    folder = parents["bare"]
    with pytest.raises(Interrupted):
        pretrain(
            PretrainConfig(
                store=store, out=tmp_path / "run", from_=folder, steps=7, settings=quick(folder)
            )
        )
    stopping.undo()
    resumed = pretrain(PretrainConfig(store=None, out=tmp_path / "run"))
    assert resumed.held_out == whole.held_out
    weights = [item.folder / "model" / "model.safetensors" for item in (whole, resumed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_card_and_run_tell_the_parent(whole: PretrainOutcome, parents: dict[str, Path]) -> None:
    content = json.loads((whole.folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert content["parent"]["folder"] == str(parents["bare"].resolve())
    assert content["model"] == "2/24"
    card = (whole.folder / "model" / "README.md").read_text(encoding="utf-8")
    for said in (
        "Trained further, from bare, with bertsmith",
        f"| parent | bare, SHA-256 {content['parent']['files_hash']} |",
        "| not in the parent | masked-LM head, pooler, next-sentence head |",
    ):
        assert said in card


def test_a_parent_that_has_changed_is_another_run(
    parents: dict[str, Path], store: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder = tmp_path / "parent"
    shutil.copytree(parents["whole"], folder)
    pretrain(
        PretrainConfig(
            store=store, out=tmp_path / "run", from_=folder, steps=2, settings=quick(folder)
        )
    )
    config = load_model(folder)[0].config
    save_model(folder, build_model(config, seed=77), tokenizer)
    with pytest.raises(RunFolderError, match="no longer the model"):
        pretrain(PretrainConfig(store=None, out=tmp_path / "run"))
    with pytest.raises(RunFolderError, match=r"parent\.files_hash: the contents have changed"):
        pretrain(
            PretrainConfig(
                store=store, out=tmp_path / "run", from_=folder, steps=2, settings=quick(folder)
            )
        )
    with pytest.raises(RunFolderError, match="other settings"):
        pretrain(PretrainConfig(store=store, out=tmp_path / "run", model="tiny", steps=2))


def test_a_store_of_another_vocabulary_is_refused(
    parents: dict[str, Path], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    more = Tokenizer((*tokenizer.vocabulary, "more"), tokenizer.rules)
    prepare_store(invented_documents(4), more, tmp_path / "store", held_out=0)
    with pytest.raises(StoreError) as refused:
        pretrain(
            PretrainConfig(
                store=tmp_path / "store", out=tmp_path / "run", from_=parents["whole"], steps=2
            )
        )
    assert "was prepared with another vocabulary" in refused.value.problem
    assert f"bertsmith prepare CORPUS --vocab {parents['whole']}" in refused.value.remedy
    assert not (tmp_path / "run").exists()


def test_settings_that_contradict_the_model(
    parents: dict[str, Path], store: Path, tmp_path: Path
) -> None:
    folder = parents["whole"]
    settings = quick(folder)
    changes = {"activation": "gelu", "max_positions": 64, "position_initialisation": "random"}
    for name, value in changes.items():
        wrong = settings.override(**{f"network.{name}": value})
        with pytest.raises(ConfigError, match=rf"--{name.replace('_', '-')} is "):
            pretrain(
                PretrainConfig(
                    store=store, out=tmp_path / "run", from_=folder, steps=2, settings=wrong
                )
            )
    with pytest.raises(ConfigError, match="name a model with --from"):
        pretrain(
            PretrainConfig(
                store=store, out=tmp_path / "run", model="tiny", steps=2, settings=settings
            )
        )
    # its positions cannot be more: no remedy says so
    longest = settings.network.max_positions
    wrong = settings.override(**{"samples.max_length": longest + 1})
    with pytest.raises(ConfigError, match=r"--from decides; lower --max-length$"):
        pretrain(
            PretrainConfig(store=store, out=tmp_path / "run", from_=folder, steps=2, settings=wrong)
        )


def test_the_verb(
    parents: dict[str, Path], store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["pretrain", str(store), "--from", str(parents["whole"]), "--out", str(tmp_path / "r")]
    changes = ["--tokens-per-batch", "99", "--hidden-dropout", "0"]
    assert main([*given, "--steps", "2", *changes]) == 0
    settings = json.loads((tmp_path / "r" / "run.json").read_text(encoding="utf-8"))["settings"]
    assert settings["settings"]["optimiser"]["matrices"] == "same"
    assert settings["settings"]["network"]["hidden_dropout"] == 0.0
    assert settings["settings"]["network"]["attention_dropout"] == 0.15
    capsys.readouterr()
    assert main([*given, "--model", "tiny", "--steps", "2"]) == 2
    assert "--model and --from exclude each other" in capsys.readouterr().err
