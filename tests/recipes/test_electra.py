"""ELECTRA from a store to a classifier: its generator is trained beside it and not saved."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import ConfigError
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch, pack
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Losses
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.pretrain import speed
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.published import electra
from bertsmith.recipes.pretrain.recipe import PretrainOutcome, pretrain
from bertsmith.recipes.pretrain.report import (
    evaluate_held_out,
    held_out_batches,
    measure_held_out,
)
from bertsmith.recipes.pretrain.starting import continued
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.config import ScheduleConfig
from bertsmith.training.state import Evaluator
from bertsmith.weights.folder import load_model
from bounds import close_to_transformers
from invented import SYLLABLES, tokenizer
from launching import ran

__all__ = ["tokenizer"]
STEPS = 24


def cycles(count: int) -> list[Document]:
    """Documents of syllables in their order, from anywhere on: each follows from those beside."""
    random = np.random.default_rng(3)
    documents = []
    for number in range(count):
        starts = random.integers(0, len(SYLLABLES), 12)
        sentences = [
            " ".join(SYLLABLES[(start + n) % len(SYLLABLES)] for n in range(9)) + "."
            for start in starts
        ]
        documents.append(Document(source="cycles", line=number + 1, paragraphs=tuple(sentences)))
    return documents


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(cycles(60), tokenizer, folder, held_out=0.1)
    return folder


def settings() -> PretrainSettings:
    published = electra("tiny")
    return replace(
        published,
        network=replace(published.network, max_positions=61),
        samples=replace(published.samples, max_length=61, tokens_per_batch=600),
        optimiser=replace(published.optimiser, learning_rate=2e-3),
        schedule=ScheduleConfig(warmup=0.1),
        precision="fp32",
        log_every=1,
        measurements=1,
    )


def run(store: Path, out: Path) -> PretrainOutcome:
    return pretrain(
        PretrainConfig(store=store, out=out, model="tiny", steps=STEPS, settings=settings())
    )


@pytest.fixture(scope="module")
def whole(store: Path, tmp_path_factory: pytest.TempPathFactory) -> PretrainOutcome:
    return run(store, tmp_path_factory.mktemp("electra") / "run")


def log(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if "gradient_norm" in row]


def test_both_learn(whole: PretrainOutcome) -> None:
    rows = log(whole.folder)
    first, last = rows[:5], rows[-5:]
    for name in ("masked_lm_loss", "replaced_tokens_loss"):
        before, after = (np.mean([row[name] for row in part]) for part in (first, last))
        assert after < 0.9 * before, name
    assert whole.held_out["replaced_tokens_count"] > whole.held_out["masked_lm_count"]


def test_accuracy_is_shown_beside_that_of_the_majority_class(whole: PretrainOutcome) -> None:
    held_out = whole.held_out
    masked = held_out["masked_lm_count"] / held_out["replaced_tokens_count"]
    majority = held_out["replaced_tokens_majority"]
    # of what was masked some samples may be the original
    assert 1 - masked <= majority < 1
    card = (whole.folder / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| replaced tokens majority, held out | {majority:.4g} |" in card
    report = (whole.folder / "report.html").read_text(encoding="utf-8")
    assert f"(majority class: {100 * majority:.1f} %)" in report


@torch.no_grad()
def test_the_folder_holds_the_discriminator_alone(whole: PretrainOutcome) -> None:
    folder = whole.folder / "model"
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (said["model_type"], said["architectures"]) == ("electra", ["ElectraForPreTraining"])
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "# An ELECTRA encoder" in card
    assert "| objective | replaced tokens, those of a generator" in card
    parts = {name.partition(".")[0] for name in load_file(folder / "model.safetensors")}
    assert parts == {"electra", "discriminator_predictions"}
    theirs, told = AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    model, _ = load_model(folder)
    ids = torch.arange(4, 44)
    encoded = model.encoder(pack([ids.numpy()], [(ids * 0).numpy()]))
    close_to_transformers(model.replaced_tokens(encoded.last), theirs.eval()(ids[None]).logits[0])


def test_a_stopped_run_goes_on_to_the_very_same_model(
    whole: PretrainOutcome, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_batch, left = PretrainingBatches.next_batch, [speed.TRIAL_STEPS + 9]

    def stopping(self: PretrainingBatches, place: DataPosition) -> tuple[Batch, DataPosition]:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return next_batch(self, place)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(PretrainingBatches, "next_batch", stopping)
        with pytest.raises(Interrupted, match="stopped after step"):
            run(store, folder)
    (checkpoint,) = (folder / "checkpoints").glob("step-*")
    kept = {
        name for path in checkpoint.glob("*.safetensors") for name in load_file(path)
    }  # its weights and their moments
    assert any("objective.masked_lm.encoder.blocks.0" in name for name in kept)
    resumed = run(store, folder)
    assert resumed.held_out == whole.held_out
    losses = [
        [(row["masked_lm_loss"], row["replaced_tokens_loss"], row["gradient_norm"]) for row in rows]
        for rows in map(log, (folder, whole.folder))
    ]
    assert len(losses[0]) == STEPS
    assert losses[0] == losses[1]
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[name], tensor), name


def test_held_out_text_is_measured_without_dropout_in_the_generator(
    whole: PretrainOutcome, store: Path
) -> None:
    objective = objective_of(whole.network.config, seed=3)
    generator = objective.own["masked_lm"]
    assert whole.network.config.encoder.dropout > 0
    held_out = held_out_batches(whole.tokenizer, TokenStore(store), settings().samples)
    generator.eval()
    expected = evaluate_held_out(whole.network, objective, held_out)
    generator.train()
    for seed in (1, 2):
        torch.manual_seed(seed)
        assert evaluate_held_out(whole.network, objective, held_out) == expected
    assert all(part.training for part in generator.modules())


def test_draws_are_a_pure_function_of_epoch_and_index(store: Path, tokenizer: Tokenizer) -> None:
    def drawn(seed: int, index: list[int], epoch: int) -> torch.Tensor:
        config = SampleConfig(
            max_length=61, tokens_per_batch=600, text="within_documents", replaced_tokens=True
        )
        batches = PretrainingBatches(TokenStore(store), tokenizer, config, seed=seed)
        return batches.samples(np.array(index), epoch).given["draws"]

    together = drawn(3, [5, 2, 7], 1)
    alone = [drawn(3, [number], 1) for number in (5, 2, 7)]
    assert torch.equal(together, torch.cat(alone))
    assert torch.equal(together, drawn(3, [5, 2, 7], 1))
    assert bool(((together >= 0) & (together < 1)).all())
    for seed, epoch in ((4, 1), (3, 2)):
        assert not torch.isin(drawn(seed, [5, 2, 7], epoch), together).any()


def test_a_discriminator_goes_on_beside_a_new_generator(
    whole: PretrainOutcome, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = whole.folder / "model"
    own = continued(parent)
    # of the released code: 15 % of the chosen are unchanged, none are random
    assert own.samples.masking == settings().samples.masking
    assert (own.samples.masking.as_mask, own.samples.masking.as_random) == (0.85, 0.0)
    own = replace(own, samples=replace(own.samples, tokens_per_batch=600), measurements=1)
    again = pretrain(
        PretrainConfig(store=store, out=tmp_path / "more", from_=parent, steps=2, settings=own)
    )
    assert again.network.config == whole.network.config
    assert "replaced_tokens_loss" in again.held_out
    told = " ".join(capsys.readouterr().err.split())
    assert "masking: 15 % of the tokens, of these 85 % by [MASK], 0 % by random tokens" in told


def test_other_families_are_refused(store: Path, tmp_path: Path) -> None:
    wanted = replace(settings(), network=replace(settings().network, family="bert"))
    with pytest.raises(ConfigError, match="BERT has no head for replaced tokens; take an ELECTRA"):
        pretrain(
            PretrainConfig(
                store=store, out=tmp_path / "run", model="tiny", steps=2, settings=wanted
            )
        )


@pytest.mark.faults
def test_two_ranks_with_shards_learn_the_same(store: Path, tmp_path: Path) -> None:
    """Model and generator are sharded alike, and whole again when they are evaluated."""
    given = (
        "-m", "bertsmith", "pretrain", str(store), "--recipe", "electra", "--model", "tiny",
        "--steps", "3", "--gradient-accumulation", "2", "--precision", "fp32", "--max-length",
        "61", "--tokens-per-batch", "300", "--max-positions", "61",
    )  # fmt: skip
    found = []
    for name, more in (("copies", ()), ("shards", ("--shard",))):
        ran(*given, "--out", str(tmp_path / name), *more, folder=tmp_path)
        result = json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8"))
        found.append(result["held_out"])
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert found[1][name] == pytest.approx(value, rel=1e-4), name


def test_what_excludes_each_other_is_named(tmp_path: Path) -> None:
    """What is wrong inside a group of settings is the message, not the whole group."""
    settings = {"samples": {"left_to_right": True, "replaced_tokens": True}}
    with pytest.raises(ConfigError, match=r"^a generator of replaced tokens reads from both sides"):
        PretrainConfig.from_dict({"out": str(tmp_path), "settings": settings})


def test_the_best_measurement_has_the_least_loss_as_training_weighs_it(
    whole: PretrainOutcome, store: Path
) -> None:
    """The discriminator's counts 50 times: what it loses was called better with the generator."""
    objective = objective_of(whole.network.config, seed=3)
    held_out = held_out_batches(whole.tokenizer, TokenStore(store), settings().samples)
    changes = {"masked_lm": 0.0, "replaced_tokens": 0.0}

    def changed(model: Model, batch: Batch) -> Losses:
        parts = objective(model, batch).parts
        return Losses(
            parts={
                name: replace(part, sum=part.sum + changes[name] * part.count)
                for name, part in parts.items()
            }
        )

    evaluator = Evaluator(measure_held_out(changed, held_out, "fp32", 1000), 2)
    state, lines = State(), []
    for step in (1, 2):
        found = evaluator.measure(whole.network, replace(state, step=step), step / 2, lambda: False)
        assert found is not None
        state, line = found
        lines.append([line[f"held_out_{name}_loss"] for name in changes])
        changes.update(masked_lm=-2.0, replaced_tokens=0.1)
    assert state.best_step == 1
    assert sum(lines[1]) < sum(lines[0])
    assert state.best_loss == pytest.approx(lines[0][0] + 50 * lines[0][1])
