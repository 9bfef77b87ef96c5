from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import DiskError, RunFolderError, TrainingDiverged
from bertsmith.core.log import shown_on
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig, Precision, encoder_of
from bertsmith.network.model import Model, build_model, start_positions_as_sinusoids
from bertsmith.objectives.objective import Losses, Objective
from bertsmith.objectives.pretraining import MaskedLM, NextSentence
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training import checkpoints
from bertsmith.training.checkpoints import Checkpoints
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig, ScheduleConfig
from bertsmith.training.loop import fit
from bertsmith.training.optimisers import Optimiser
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.state import Measurement
from bounds import close_after_training
from invented import SYLLABLES
from native_precision import NATIVE

Method = Literal["adamw", "lamb", "muon"]

OBJECTIVE = Objective({"masked_lm": MaskedLM(), "next_sentence": NextSentence()})


def small_model(vocabulary: int, seed: int = 5, dropout: float = 0.1) -> Model:
    encoder = EncoderConfig(
        vocabulary=vocabulary,
        hidden=28,
        layers=3,
        heads=7,
        feed_forward=37,
        longest=41,
        dropout=dropout,
        attention_dropout=dropout,
    )
    return build_model(ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True), seed=seed)


def small_batches(store: TokenStore, tokenizer: Tokenizer, tokens: int = 300) -> PretrainingBatches:
    config = SampleConfig(max_length=41, tokens_per_batch=tokens)
    return PretrainingBatches(store, tokenizer, config, seed=3)


def config_of(steps: int, method: Method = "muon", **changes: Any) -> FitConfig:  # noqa: ANN401
    optimiser = OptimiserConfig(
        learning_rate=2e-3,
        algorithm="lamb" if method == "lamb" else "adamw",
        matrices="muon" if method == "muon" else "same",
    )
    config = FitConfig(
        budget=Budget(steps=steps), optimiser=optimiser, log_every=1, precision=NATIVE, seed=9
    )
    return replace(config, **changes)


def to_losses(folder: RunFolder) -> list[tuple[float, float]]:
    return [(line["masked_lm_loss"], line["next_sentence_loss"]) for line in folder.log()]


class Stopping:
    """Batches that ask for a stop, as Ctrl-C does, when they are drawn the n-th time."""

    def __init__(self, batches: PretrainingBatches, after: int, number: int) -> None:
        self._batches, self._left, self._number = batches, after, number

    def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._number)
        return self._batches.next_batch(place)


@pytest.mark.parametrize(
    ("method", "precision"),
    [
        ("adamw", "fp32"),
        ("lamb", "bf16"),
        ("muon", "fp32"),
        ("muon", "bf16"),
        pytest.param("adamw", "bf16", marks=pytest.mark.faults),
        pytest.param("lamb", "fp32", marks=pytest.mark.faults),
    ],
)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    store: TokenStore,
    tokenizer: Tokenizer,
    tmp_path: Path,
    precision: Precision,
    method: Method,
) -> None:
    batches = small_batches(store, tokenizer)
    config = config_of(8, method, precision=precision)
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    for folder in (whole, parts):
        folder.path.mkdir()
    straight = small_model(tokenizer.size)
    fit(config, straight, OBJECTIVE, batches, folder=whole)
    for after, number in ((4, signal.SIGINT), (3, signal.SIGTERM)):
        stopping = Stopping(batches, after, number)
        with pytest.raises(Interrupted, match="stopped after step"):
            fit(config, small_model(tokenizer.size), OBJECTIVE, stopping, folder=parts)
    torch.rand(7)  # whatever else the process drew must not matter
    resumed = small_model(tokenizer.size, seed=77)
    assert fit(config, resumed, OBJECTIVE, batches, folder=parts).step == 8
    assert to_losses(parts) == to_losses(whole)
    assert len(to_losses(parts)) == 8
    for name, tensor in straight.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_a_stop_in_the_very_last_step_is_one(store: TokenStore, tokenizer: Tokenizer) -> None:
    """What follows training may take long."""
    stopping = Stopping(small_batches(store, tokenizer), 2, signal.SIGINT)
    with pytest.raises(Interrupted, match="stopped after step 2"):
        fit(config_of(2), small_model(tokenizer.size), OBJECTIVE, stopping)


def test_training_learns_what_follows_what(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """In text where each word tells the next one, masked words become certain."""
    texts = [" ".join(SYLLABLES[(n + i) % 10] for i in range(180 + n)) + "." for n in range(40)]
    documents = [Document(source="cycle", line=1, paragraphs=(text,)) for text in texts]
    prepare_store(documents, tokenizer, tmp_path / "store", held_out=0.0)
    config = SampleConfig(max_length=41, tokens_per_batch=1000, text="within_documents")
    batches = PretrainingBatches(TokenStore(tmp_path / "store"), tokenizer, config, seed=3)
    narrow = {"hidden": 64, "heads": 2, "feed_forward": 256, "dropout": 0.0}
    encoder = encoder_of("bert", "tiny", tokenizer.size, longest=41, **narrow)
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=5)
    start_positions_as_sinusoids(model, 0.1)
    folder = RunFolder(tmp_path)
    optimiser = OptimiserConfig(
        learning_rate=5e-3, beta_2=0.95, matrices="muon", muon_learning_rate=0.06
    )
    fit(config_of(90, optimiser=optimiser), model, OBJECTIVE, batches, folder=folder)
    lines = folder.log()
    assert lines[0]["masked_lm_loss"] == pytest.approx(math.log(tokenizer.size), abs=0.2)
    assert lines[-1]["masked_lm_accuracy"] > 0.6
    assert lines[-1]["masked_lm_loss"] < 2.0


@pytest.mark.parametrize(
    ("steps", "warmup", "learns"), [(1, 0.1, False), (2, 1.0, True), (1, 0.0, True)]
)
def test_a_run_whose_only_rate_is_zero_says_so(
    store: TokenStore,
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
    steps: int,
    warmup: float,
    learns: bool,
) -> None:
    """As in transformers, a warm-up begins at 0; a single step saved an untrained model."""
    model = small_model(tokenizer.size)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = replace(config_of(steps), schedule=ScheduleConfig(warmup=warmup))
    fit(config, model, OBJECTIVE, small_batches(store, tokenizer))
    same = all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert same != learns
    said = "the learning rate of the only step is 0, so nothing is learned"
    assert (said in " ".join(capsys.readouterr().err.split())) != learns


def test_accumulated_batches_make_one_step(store: TokenStore, tokenizer: Tokenizer) -> None:
    """Four small batches in one step equal one batch of all their sequences."""

    class Joined:
        def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
            batches = small_batches(store, tokenizer)
            after = place
            for _ in range(4):
                _, after = batches.next_batch(after)
            index = torch.arange(place.index, after.index).numpy()
            return batches.samples(index, place.epoch), after

    models = []
    for source, accumulate in ((small_batches(store, tokenizer), 4), (Joined(), 1)):
        model = small_model(tokenizer.size, dropout=0.0)
        config = config_of(2, "adamw", gradient_accumulation=accumulate, precision="fp32")
        fit(config, model, OBJECTIVE, source)
        models.append(model.state_dict())
    for name, tensor in models[0].items():
        close_after_training(tensor, models[1][name], name)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_before_any_weight_changes(
    store: TokenStore, tokenizer: Tokenizer, value: float
) -> None:
    calls = []
    weights: list[dict[str, torch.Tensor]] = []

    def breaking(model: Model, batch: Batch) -> Losses:
        calls.append(1)
        losses = OBJECTIVE(model, batch)
        if len(calls) < 3:
            return losses
        weights.append({name: t.clone() for name, t in model.state_dict().items()})
        broken = replace(losses.parts["masked_lm"], sum=losses.parts["masked_lm"].sum * value)
        return Losses(parts={"masked_lm": broken})

    model = small_model(tokenizer.size)
    with pytest.raises(TrainingDiverged, match=r"at step 3.*learning rate"):
        fit(config_of(9, patience=1), model, breaking, small_batches(store, tokenizer))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[0][name]), name


def test_a_gradient_that_is_no_number_stops_too(store: TokenStore, tokenizer: Tokenizer) -> None:
    model = small_model(tokenizer.size)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.encoder.embeddings.norm.weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(TrainingDiverged, match="gradient is nan at step 1"):
        fit(config_of(3, patience=1), model, OBJECTIVE, small_batches(store, tokenizer))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_gradients_are_clipped(
    store: TokenStore, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped: list[float] = []

    def watch(optimiser: Optimiser, factor: float) -> None:
        gradients = [parameter.grad for parameter in optimiser.names]
        stepped.append(torch.stack([g.norm() for g in gradients if g is not None]).norm().item())

    monkeypatch.setattr(Optimiser, "step", watch)
    for clip in (0.37, 100.0, 0.0):
        folder = RunFolder(tmp_path / str(clip))
        folder.path.mkdir()
        config = config_of(1, max_gradient_norm=clip, precision="fp32")
        fit(
            config,
            small_model(tokenizer.size),
            OBJECTIVE,
            small_batches(store, tokenizer),
            folder=folder,
        )
        whole = folder.log()[0]["gradient_norm"]
        assert whole > 0.5
        assert stepped.pop() == pytest.approx(min(clip or whole, whole), rel=1e-4)


def test_a_last_checkpoint_that_does_not_fit_is_told(
    store: TokenStore, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints, "_write", refuse)
    model, batches = small_model(tokenizer.size), small_batches(store, tokenizer)
    with pytest.raises(DiskError, match=r"checkpoints: cannot be written: No space left"):
        fit(config_of(1), model, OBJECTIVE, batches, folder=RunFolder(tmp_path))


def test_the_best_weights_are_saved_when_they_are_measured(
    store: TokenStore, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    losses, weights = iter([5.0, 6.0, 3.0, 3.0]), list[torch.Tensor]()

    def measure(model: Model, stopping: object) -> Measurement:
        weights.append(model.encoder.embeddings.tokens.weight.clone())
        loss = next(losses)
        return Measurement(loss=loss, metrics={"masked_lm_loss": loss})

    state = fit(
        config_of(8, measurements=4), small_model(tokenizer.size), OBJECTIVE,
        small_batches(store, tokenizer), measure=measure, folder=RunFolder(tmp_path),
    )  # fmt: skip
    assert (state.best_step, state.best_loss, state.worse) == (6, 3.0, 1)
    best = Checkpoints(tmp_path / "checkpoints").best(state).weights
    assert torch.equal(best["encoder.embeddings.tokens.weight"], weights[2])


class Shown:
    """A display that keeps the notes beside the bar, one for each move of it."""

    def __init__(self) -> None:
        self.notes = [""]
        self.by_step: list[str] = []

    def say(self, line: str) -> None:
        pass

    def bar(self, description: str, total: float | None, unit: str) -> Shown:
        return self

    def advance(self, amount: float = 1) -> None:
        raise AssertionError(amount)

    def move_to(self, done: float) -> None:
        self.by_step.append(self.notes[-1])

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_the_bar_tells_of_a_measurement_while_it_is_made(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    """It did so until the next line of the log, for hours where steps are long."""
    shown, measuring = Shown(), "measuring on held-out text"

    def measure(model: Model, stopping: object) -> Measurement:
        assert shown.notes[-1] == measuring
        return Measurement(loss=1.0, metrics={"masked_lm_loss": 1.0})

    with shown_on(shown):
        fit(
            config_of(5, measurements=3, log_every=2), small_model(tokenizer.size), OBJECTIVE,
            small_batches(store, tokenizer), measure=measure,
        )  # fmt: skip
    assert shown.notes.count(measuring) == 3
    assert measuring not in shown.by_step
    # of the last line, made after the second step
    assert [note.partition(" · ")[0] for note in shown.by_step[-3:]] == [
        "step 2",
        "step 2",
        "step 4",
    ]


def test_damaged_checkpoints_are_passed_over(
    store: TokenStore, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, batches = RunFolder(tmp_path), small_batches(store, tokenizer)
    config = config_of(9, checkpoint_minutes=1e-9)
    fit(config, small_model(tokenizer.size), OBJECTIVE, batches, folder=folder)
    kept = sorted(folder.checkpoints.iterdir())
    assert [path.name for path in kept] == ["step-00000008", "step-00000009"]
    before = to_losses(folder)
    weights = kept[1] / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    resumed = small_model(tokenizer.size, seed=0)
    state = fit(config, resumed, OBJECTIVE, batches, folder=folder)
    assert state.step == 9
    assert [line["step"] for line in folder.log()] == [*range(1, 10)]
    assert to_losses(folder) == before
    assert "weights.safetensors: is damaged; skipped" in " ".join(capsys.readouterr().err.split())
    for path in folder.checkpoints.glob("*/manifest.json"):
        # as versions wrote it whose random numbers were others: sound, but without a format
        content = json.loads(path.read_text(encoding="utf-8"))
        del content["sha256"], content["format"]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps({"sha256": digest, **content}, indent=1) + "\n")
    with pytest.raises(RunFolderError, match="no checkpoint is complete"):
        fit(config, resumed, OBJECTIVE, batches, folder=folder)
    assert "manifest.json: was written by an earlier version of bertsmith; skipped" in " ".join(
        capsys.readouterr().err.split()
    )
    for path in folder.checkpoints.glob("*/manifest.json"):
        path.write_text(json.dumps({"../../escape": {}}))
    with pytest.raises(RunFolderError, match="no checkpoint is complete"):
        fit(config, resumed, OBJECTIVE, batches, folder=folder)
