"""One training: what a seed decides, stopping and going on, and every option."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pickle import PicklingError
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.core.signals import Interrupted
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, check_layers, prepare
from bertsmith.recipes.finetune.trial import (
    Trial,
    TrialResult,
    prepare_model,
    run_trial,
    trimmed_embeddings,
)
from bertsmith.recipes.finetune.trials import ParallelPlan, Trials, open_trials
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import start_from
from bounds import close_after_training, close_losses

CONFIG = FinetuneSettings(epochs=2, batch_size=8, learning_rate=1e-3, precision="fp32", dropout=0.1)
MakeModel = Callable[[int], Model]


@pytest.fixture
def prepared(tiny_tokenizer: Tokenizer) -> Prepared:
    rows = [
        Example(
            text=f"word{n % 30} " * (1 + n % 5) + ("good" if n % 3 else "bad"),
            text_pair=None,
            label="yes" if n % 3 else "no",
            source="memory",
            line=n,
        )
        for n in range(61)
    ]
    data = LabelledData(task=CLASSIFY, labels=("no", "yes"), train=rows, dev=rows, dev_is_cut=False)
    return prepare(data, tiny_tokenizer, ReadingLimits(longest=32))


@pytest.fixture
def make_model(base_folder: Path) -> MakeModel:
    return lambda seed: start_from(base_folder, labels=("no", "yes"), seed=seed)[0]


def test_a_seed_decides_everything(
    prepared: Prepared, make_model: MakeModel, tmp_path: Path
) -> None:
    (first, one, _), (again, two, _), (other, _, _) = (
        run_trial(make_model, prepared, CONFIG, seed, RunFolder(tmp_path / name))
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert first.losses == again.losses != other.losses
    assert np.array_equal(one.evidence, two.evidence)
    assert [step for step, _ in first.losses] == list(range(1, 17))


def test_one_row_of_dev_is_no_failure(
    prepared: Prepared, make_model: MakeModel, tiny_tokenizer: Tokenizer
) -> None:
    data = replace(prepared.data, train=prepared.data.train[:4], dev=prepared.data.dev[:1])
    one = prepare(data, tiny_tokenizer, ReadingLimits(longest=32))
    result = run_trial(make_model, one, replace(CONFIG, epochs=1), 1)[0]
    assert not result.constant


def test_a_stopped_training_goes_on_to_the_same_end(
    prepared: Prepared, make_model: MakeModel, tmp_path: Path
) -> None:
    steps = 0

    def stop(*_: Any) -> None:  # noqa: ANN401
        nonlocal steps
        steps += 1
        if steps == 6:
            signal.raise_signal(signal.SIGINT)

    def stopping(seed: int) -> Model:
        model = make_model(seed)
        model.encoder.register_forward_pre_hook(stop)
        return model

    folder = RunFolder(tmp_path / "seeds" / "seed-1")
    with pytest.raises(Interrupted):
        run_trial(stopping, prepared, CONFIG, 1, folder)
    assert steps == 6
    trained = 0

    def count(encoder: nn.Module, _: Any) -> None:  # noqa: ANN401
        nonlocal trained
        trained += encoder.training

    def counting(seed: int) -> Model:
        model = make_model(seed)
        model.encoder.register_forward_pre_hook(count)
        return model

    resumed, _, model = run_trial(counting, prepared, CONFIG, 1, folder)
    assert trained == 16 - 6
    whole, _, expected = run_trial(make_model, prepared, CONFIG, 1, RunFolder(tmp_path / "x"))
    assert resumed.losses == whole.losses
    assert resumed.scores == whole.scores
    assert all(
        np.array_equal(a.detach(), b.detach())
        for a, b in zip(model.parameters(), expected.parameters(), strict=True)
    )


def test_dropout_is_that_of_fine_tuning(
    prepared: Prepared, make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model(1)
    assert model.config.encoder.dropout == 0.0
    prepare_model(model, replace(CONFIG, dropout=0.25), 1)
    assert model.config.encoder.dropout == model.config.encoder.attention_dropout == 0.25
    assert model.config.classifier_dropout == 0.25
    assert model.encoder.config == model.config.encoder
    with_dropout, without = (
        run_trial(make_model, prepared, config, 1, RunFolder(tmp_path / f"{config.dropout}"))[0]
        for config in (CONFIG, replace(CONFIG, dropout=0.0))
    )
    assert with_dropout.losses != without.losses


@pytest.mark.parametrize(
    ("freeze", "kept"),
    [(-1, ("encoder.embeddings.",)), (1, ("encoder.embeddings.", "encoder.blocks.0."))],
)
def test_what_is_frozen_keeps_its_weights_and_all_else_moves(
    prepared: Prepared, make_model: MakeModel, freeze: int, kept: tuple[str, ...]
) -> None:
    before = dict(make_model(1).named_parameters())
    config = replace(CONFIG, freeze_layers=freeze)
    after = dict(run_trial(make_model, prepared, config, 1)[2].named_parameters())
    for name, parameter in after.items():
        same = torch.equal(parameter.detach(), before[name].detach())
        if name.startswith(kept):
            assert same, name
        elif parameter.dim() > 1:
            assert not same, name


def test_rows_of_the_table_that_no_text_has_are_left_as_they_are(
    prepared: Prepared, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [row for row in prepared.data.train if row.line % 4 == 0]
    few = prepare(replace(prepared.data, train=rows), prepared.tokenizer, prepared.limits)
    met = np.unique(np.concatenate(few.train.ids))
    model = make_model(1)
    table = model.encoder.embeddings.tokens
    before = table.weight.detach().clone()
    with trimmed_embeddings(model, few.train) as examples:
        part = model.encoder.embeddings.tokens
        assert part.weight.shape == (len(met), 24)
        for ids, known in zip(examples.ids, few.train.ids, strict=True):
            assert torch.equal(part.weight[ids], before[known])
    assert model.encoder.embeddings.tokens is table
    assert torch.equal(table.weight, before)
    # without decay the others would not move anyway: it is the same training
    config = replace(CONFIG, weight_decay=0.0)
    found = run_trial(make_model, few, config, 1, RunFolder(tmp_path / "found"))
    monkeypatch.setattr("bertsmith.recipes.finetune.trial._MAX_USED_SHARE", 0.0)
    whole = run_trial(make_model, few, config, 1, RunFolder(tmp_path / "whole"))
    losses = [[loss for _, loss in item[0].losses] for item in (found, whole)]
    assert len(losses[0]) == len(losses[1])
    for mine, other in zip(*losses, strict=True):
        close_losses(mine, other)
    for name, parameter in whole[2].named_parameters():
        close_after_training(found[2].get_parameter(name), parameter, name)
    other = np.setdiff1d(np.arange(37), met)
    assert torch.equal(found[2].encoder.embeddings.tokens.weight.detach()[other], before[other])


def test_top_layers_and_pooler_start_anew(make_model: MakeModel) -> None:
    before, model, again = make_model(1), make_model(1), make_model(1)
    config = replace(CONFIG, reinitialise_layers=1)
    prepare_model(model, config, 7)
    prepare_model(again, config, 7)
    for (name, old), new, same in zip(
        before.named_parameters(), model.parameters(), again.parameters(), strict=True
    ):
        fresh = name.startswith(("encoder.blocks.1.", "pooler."))
        if old.dim() > 1:
            assert torch.equal(old.detach(), new.detach()) != fresh, name
        assert torch.equal(new.detach(), same.detach())


def test_new_top_layers_are_as_large_as_those_of_a_new_model() -> None:
    """With norms before, what layers add to the stream starts smaller than other weights."""
    encoder = encoder_of("modernbert", "tiny", 99)
    config = ModelConfig(encoder=encoder, pooler=False).with_head("class", ("no", "yes"))
    new, model = build_model(config, seed=1), build_model(config, seed=1)
    prepare_model(model, replace(CONFIG, reinitialise_layers=2), 7)
    for name, parameter in new.encoder.blocks.named_parameters():
        if parameter.dim() > 1:
            found, expected = (m.encoder.blocks.get_parameter(name).std() for m in (model, new))
            assert float(found.detach() / expected.detach()) == pytest.approx(1, rel=0.05), name


def test_more_layers_than_there_are_is_refused(make_model: MakeModel) -> None:
    model = make_model(1)
    for config, message in (
        (replace(CONFIG, freeze_layers=3), "--freeze-layers is 3; the model has 2 layers"),
        (replace(CONFIG, reinitialise_layers=3), "--reinitialise-layers is 3"),
        (replace(CONFIG, reinitialise_layers=1, freeze_layers=2), "overlap"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_layers(model.config.encoder, config)


def test_a_training_that_may_end_early_trains_as_any_other(
    prepared: Prepared, make_model: MakeModel, tmp_path: Path
) -> None:
    """Its evaluations on dev, whose texts have other tokens, leave no trace."""
    rows = [row for row in prepared.data.train if row.line % 4 == 0]
    few = prepare(replace(prepared.data, train=rows), prepared.tokenizer, prepared.limits)
    config = replace(CONFIG, epochs=3, learning_rate=1e-3, weight_decay=0.1)
    plain = run_trial(make_model, few, config, 1, RunFolder(tmp_path / "plain"))
    patient = replace(config, patience=9)
    early = run_trial(make_model, few, patient, 1, RunFolder(tmp_path / "early"))
    assert early[0].losses == plain[0].losses
    other = np.setdiff1d(np.arange(37), np.unique(np.concatenate(few.train.ids)))
    tables = [model.encoder.embeddings.tokens.weight for _, _, model in (early, plain)]
    assert torch.equal(tables[0][other], tables[1][other])
    (best,) = run_trial(
        make_model, few, replace(patient, epochs=1), 1, RunFolder(tmp_path / "one")
    )[2:]
    (whole,) = run_trial(
        make_model, few, replace(config, epochs=1), 1, RunFolder(tmp_path / "whole")
    )[2:]
    for name, parameter in whole.named_parameters():
        assert torch.equal(best.get_parameter(name), parameter), name


def test_training_ends_early_with_the_weights_that_were_best(
    prepared: Prepared, make_model: MakeModel, tmp_path: Path
) -> None:
    config = replace(CONFIG, epochs=40, learning_rate=2e-2, patience=2)
    folder = RunFolder(tmp_path / "early")
    result, _, _ = run_trial(make_model, prepared, config, 1, folder)
    measured = [line for line in folder.log() if "held_out_accuracy" in line]
    scores = [line["held_out_accuracy"] for line in measured]
    assert len(scores) < 40
    best = max(scores)
    assert scores.index(best) == len(scores) - 3
    assert result.scores["accuracy"] == best


def test_a_result_survives_its_file_and_the_earlier_of_equal_seeds_is_better() -> None:
    result = TrialResult(
        seed=3,
        scores={"accuracy": 0.5, "macro_f1": 1 / 3},
        constant=True,
        losses=[(2, 0.75), (4, 0.5)],
        seconds=1.5,
        tokens=77,
    )
    assert TrialResult.from_dict(result.to_dict()) == result
    assert result.score == 0.5
    assert result.rank > replace(result, seed=4).rank
    assert result.rank < replace(result, scores={"accuracy": 0.5, "macro_f1": 0.4}).rank


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("linear", (0.0, 1.0, 0.5, 0.0)),
        ("slanted", (1 / 32, 1.0, 1 / 32 + 31 / 64, 1 / 32)),
        ("triangular", (0.0, 0.2, 0.9, 0.0)),
        ("constant", (0.0, 1.0, 1.0, 1.0)),
    ],
)
def test_schedules_have_their_shapes(schedule: Any, factors: tuple[float, ...]) -> None:  # noqa: ANN401
    """At the start, after the warm-up, at 55 %, and in the end."""
    rates = replace(CONFIG, schedule=schedule).fit(100, 0).schedule
    assert [rates.factor(at) for at in (0.0, 0.1, 0.55, 1.0)] == pytest.approx(factors)


def test_a_model_that_was_deleted_from_a_run_that_has_ended_is_named(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    with pytest.raises(RunFolderError) as missing:
        Trials(run).move_model("seeds/seed-3", "card")
    assert str(missing.value) == (
        f"{run.model}: the model of seeds/seed-3 is no longer here; restore it, or delete "
        f"{run.path} to train again"
    )
    run.model.mkdir(parents=True)
    Trials(run).move_model("seeds/seed-3", "card")


def test_the_card_of_a_model_that_stays_the_best_is_renewed_with_the_seeds(tmp_path: Path) -> None:
    """It kept the mean of the seeds before others were added."""
    run = RunFolder(tmp_path / "run")
    run.model.mkdir(parents=True)
    card = run.model / "README.md"
    card.write_text("mean of 2 seeds", encoding="utf-8")
    Trials(run).move_model("seeds/seed-0", "mean of 5 seeds")
    assert card.read_text(encoding="utf-8") == "mean of 5 seeds"
    # one that was edited after the run is left as it is when the command is given again
    (run.path / "results.json").touch()
    Trials(run).move_model("seeds/seed-0", "mean of 5 seeds, again")
    assert card.read_text(encoding="utf-8") == "mean of 5 seeds"
    assert [path.name for path in run.model.iterdir()] == ["README.md"]


def test_what_cannot_be_sent_to_a_process_ends_the_trainings(
    prepared: Prepared, make_model: MakeModel, tmp_path: Path
) -> None:
    one = Trial(
        subfolder="one", title="one", settings=CONFIG, seed=0, make_model=make_model,
        prepared=prepared,
    )  # fmt: skip
    plan = ParallelPlan(at_once=2, threads=1, reason="")
    with (
        open_trials(RunFolder(tmp_path), plan) as trials,
        pytest.raises((AttributeError, PicklingError), match="lambda"),
    ):
        trials.train([one])
