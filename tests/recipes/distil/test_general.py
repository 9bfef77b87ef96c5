"""Distillation from a token store: runs, going on, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError, RunFolderError, UserError
from bertsmith.core.files import read_json, write_json
from bertsmith.core.signals import Interrupted
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil import general
from bertsmith.recipes.distil.config import (
    DistilConfig,
    GeneralRecipe,
    GeneralSettings,
    StudentConfig,
    TeachingConfig,
)
from bertsmith.recipes.distil.recipe import distil
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.pretrain import published as recipes
from bertsmith.recipes.pretrain.config import PretrainSettings
from bertsmith.recipes.pretrain.recipe import PretrainOutcome
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tasks.config import Reading
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import OptimiserConfig
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.threads import ThreadChoice
from bertsmith.weights.folder import load_model, save_model
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

SMALL = GeneralSettings(
    max_length=25, tokens_per_batch=120, learning_rate=3e-3, precision="fp32", measurements=1
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(12), tokenizer, folder, held_out=0.1)
    return folder


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, Path]:
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=3, heads=3, feed_forward=40, longest=33,
        initial_std=0.1,
    )  # fmt: skip
    folder, models = (
        tmp_path_factory.mktemp("teachers"),
        {
            "whole": ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True),
            "bare": ModelConfig(encoder=encoder, pooler=False),
        },
    )
    for name, config in models.items():
        save_model(folder / name, build_model(config, seed=1), tokenizer)
    return {name: folder / name for name in models}


@pytest.fixture
def options(store: Path, teachers: dict[str, Path], tmp_path: Path) -> dict[str, Any]:
    return {
        "teacher": teachers["whole"], "data": store, "out": tmp_path / "out", "general": SMALL,
        "student": StudentConfig(student="2/24"), "steps": 4, "method": ("distilbert",),
    }  # fmt: skip


def test_a_student_of_a_store_is_a_distilbert(options: dict[str, Any]) -> None:
    outcome = distil(DistilConfig(**options))
    assert isinstance(outcome, PretrainOutcome)
    assert set(outcome.held_out) >= {"soft_targets_loss", "cosine_loss", "masked_lm_accuracy"}
    # a cosine predicts nothing that could be right
    log = (options["out"] / "log.jsonl").read_text()
    assert "soft_targets_accuracy" in log
    assert "cosine_accuracy" not in {*outcome.held_out, *json.loads(log.splitlines()[0])}
    page = (options["out"] / "report.html").read_text()
    assert "<h1>Distillation</h1>" in page
    assert "DISTILBERT 2/24 on store, taught by distilbert, teacher whole</p>" in page
    # every setting, not only those of the training
    assert {"teacher.files_hash", "method", "teaching.temperature"} <= set(
        re.findall("<dt>([^<]+)</dt>", page)
    )
    assert "cosine of hidden states" in page
    # which is no cross-entropy
    assert "loss (nats)" not in page
    saved, _ = load_model(options["out"] / "model")
    encoder = saved.config.encoder
    assert (encoder.family, encoder.segments, encoder.layers) == ("distilbert", 0, 2)
    assert saved.config.masked_lm
    assert not saved.config.pooler
    card = (options["out"] / "model" / "README.md").read_text()
    assert "Taught by distilbert" in card
    assert "\nDistilled from whole with bertsmith. " in card
    assert "| objective | soft targets of masked words, cosine " in card


@pytest.mark.parametrize(
    ("earlier", "width", "longest"), [(29, 24, 29), (20, 24, 25), (29, 21, 25)]
)
def test_a_student_of_its_layers_has_seen_the_lengths_of_its_teacher(
    options: dict[str, Any], tmp_path: Path, earlier: int, width: int, longest: int
) -> None:
    """It has the positions of these layers, and `finetune` tells which nothing was learned of."""
    model, vocabulary = load_model(options["teacher"])
    model.config = model.config.pretrained_on(earlier)
    save_model(tmp_path / "teacher", model, vocabulary)
    still = replace(SMALL, measurements=0)
    options |= {"teacher": tmp_path / "teacher", "general": still, "method": ("minilm",)}
    student = StudentConfig(student=f"2/{width}")
    assert _run(options | {"student": student, "steps": 1}).network.config.pretrained_length == (
        longest
    )


def _run(options: Mapping[str, Any], **changes: Any) -> PretrainOutcome:  # noqa: ANN401
    outcome = distil(DistilConfig(**options, **changes))
    assert isinstance(outcome, PretrainOutcome)
    return outcome


def _update_spectrum(options: dict[str, Any], recipe: GeneralRecipe, rate: float) -> Tensor:
    """Return the singular values, in units of the rate, of what one step adds to a matrix."""
    general = replace(
        SMALL, recipe=recipe, warmup=0.0, learning_rate=rate, measurements=0,
        muon_learning_rate=rate if recipe == "quick" else None,
    )  # fmt: skip
    out = options["out"] / recipe
    student = _run(options | {"general": general, "steps": 1, "out": out}).network
    name = "encoder.blocks.0.attention.query.weight"
    before = load_model(options["teacher"])[0].get_parameter(name)
    decayed = before * (1 - rate * OptimiserConfig().weight_decay)
    found: Tensor = torch.linalg.svdvals((decayed - student.get_parameter(name)).detach() / rate)
    return found


def test_quick_orthogonalises_the_updates_of_matrices(options: dict[str, Any]) -> None:
    quick, paper = (_update_spectrum(options, recipe, 0.01) for recipe in get_args(GeneralRecipe))
    # Newton-Schulz leaves singular values near 1, and the smallest below
    assert quick.max() < 1.3
    assert quick.median() > 0.6
    # Adam's first step is the gradient's signs: few directions have nearly all of it
    assert paper.max() > 4
    assert paper.max() > 5 * paper.median()


def test_rates_of_the_options_reach_the_run(options: dict[str, Any]) -> None:
    def resolved(**changes: Any) -> PretrainSettings:  # noqa: ANN401
        config = DistilConfig(**options | {"general": GeneralSettings(**changes)})
        place = torch.device("cpu")
        return general._resolve_run(config, TokenStore(options["data"]), place).training.settings

    quick, published = resolved(), resolved(recipe="paper")
    of_pretraining = recipes.quick("tiny")
    assert (quick.optimiser, quick.schedule) == (of_pretraining.optimiser, of_pretraining.schedule)
    assert published.optimiser == OptimiserConfig(learning_rate=5e-4)
    changed = resolved(learning_rate=2e-3, muon_learning_rate=0.01, warmup=0.5)
    assert changed.optimiser == replace(
        quick.optimiser, learning_rate=2e-3, muon_learning_rate=0.01
    )
    assert changed.schedule == replace(quick.schedule, warmup=0.5)
    with pytest.raises(ConfigError, match="is for Muon, and paper trains without it"):
        GeneralSettings(recipe="paper", muon_learning_rate=0.01)


def test_a_narrow_student_starts_from_the_token_table_of_its_teacher(
    options: dict[str, Any],
) -> None:
    still = replace(SMALL, learning_rate=1e-6, muon_learning_rate=1e-6)
    options |= {"method": ("minilm",), "general": still, "steps": 1}

    def likeness(**student: Any) -> float:  # noqa: ANN401
        """Return the correlation of the cosines of tokens in both tables."""
        out = options["out"] / str(student.get("start"))
        config = StudentConfig(student="2/21", **student)
        model = _run(options | {"student": config, "out": out}).network
        both = torch.stack([_cosines(item) for item in (load_model(options["teacher"])[0], model)])
        return float(torch.corrcoef(both)[0, 1])

    assert likeness() > 0.7
    assert abs(likeness(start="new")) < 0.2
    begun = options | {"out": options["out"] / "new", "student": StudentConfig(student="2/21")}
    said = "another --start: its students began from random weights, now from the teacher's token"
    with pytest.raises(RunFolderError, match=said):
        distil(DistilConfig(**begun))


def _cosines(model: Model) -> Tensor:
    rows = model.encoder.embeddings.tokens.weight.detach()[10:]
    rows = torch.nn.functional.normalize(rows - rows.mean(0), dim=1)
    upper = torch.ones(len(rows), len(rows)).triu(1).bool()
    return (rows @ rows.T)[upper]


def test_a_new_run_takes_the_threads_that_are_fastest_now(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: list[int] = []

    def busy(hidden: int, feed_forward: int, max_threads: int) -> ThreadChoice:
        chosen.append(hidden)
        return ThreadChoice(threads=1, reason="1 thread of 2: as when others are busy")

    monkeypatch.setattr(general, "quick_choice", busy)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        outcome = _run(options)
        run = read_json(outcome.folder / "run.json", RunFolderError, largest=1 << 20)
        assert run["settings"]["training"]["threads"] == 1
        assert "1 thread of 2: as when others are busy" in capsys.readouterr().err
        # a run that goes on keeps them, as others would round otherwise
        _run(options)
    finally:
        torch.set_num_threads(before)
    assert chosen == [24]


def test_a_run_of_before_goes_on_with_its_own_recipe_alone(options: dict[str, Any]) -> None:
    published = options | {"general": replace(SMALL, recipe="paper")}
    ended = _run(published)
    # as it was written before there were recipes
    file = options["out"] / "run.json"
    written = read_json(file, UserError, largest=2**20)
    del written["settings"]["token_table"]
    write_json(file, written)
    with pytest.raises(RunFolderError) as refused:
        distil(DistilConfig(**options))
    assert "belongs to a run with --general.recipe paper, now quick" in str(refused.value)
    assert "\n" not in str(refused.value)
    again = _run(published)
    assert again.held_out == ended.held_out


@pytest.mark.parametrize("recipe", get_args(GeneralRecipe))
def test_a_narrow_student_goes_on_to_the_same_end(
    recipe: GeneralRecipe,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options |= {"method": ("tinybert",), "student": StudentConfig(student="2/18")}
    options["general"] = replace(SMALL, recipe=recipe)
    steps = 0

    def stop(encoder: Model, _: Any) -> None:  # noqa: ANN401
        nonlocal steps
        steps += encoder.training
        if steps == 2:
            signal.raise_signal(signal.SIGINT)

    def hooked(config: ModelConfig, *, seed: int) -> Model:
        model = build_model(config, seed=seed)
        model.encoder.register_forward_pre_hook(stop)
        return model

    with monkeypatch.context() as patch:
        patch.setattr(general, "build_model", hooked)
        with pytest.raises(Interrupted, match="the same command resumes it"):
            distil(DistilConfig(**options))
    resumed = distil(DistilConfig(**options))
    whole = distil(DistilConfig(**options | {"out": tmp_path / "whole"}))
    assert isinstance(resumed, PretrainOutcome)
    assert isinstance(whole, PretrainOutcome)
    assert resumed.state.step == whole.state.step == 4
    assert resumed.held_out == whole.held_out
    assert not resumed.network.config.masked_lm
    for mine, other in zip(resumed.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(mine, other)
    # the projection is trained and saved, and no part of the student
    (*_, newest) = sorted(RunFolder(options["out"]).checkpoints.glob("step-*"))
    kept = {name.rpartition("/")[::2] for name in load_file(newest / "optimiser.safetensors")}
    of_projection = {quantity for name, quantity in kept if name.endswith("hidden_states.weight")}
    assert of_projection == {"step", "exp_avg", "exp_avg_sq"}
    assert any(quantity == "momentum_buffer" for _, quantity in kept) == (recipe == "quick")
    names = {name for name, _ in load_model(options["out"] / "model")[0].named_parameters()}
    assert all(name.startswith("encoder.") for name in names)


def test_a_run_stopped_after_its_last_step_says_so_and_makes_the_student_later(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(general, "save_model", stop)
        with pytest.raises(Interrupted, match=r"step 4, the last, .*; the same command makes the"):
            distil(DistilConfig(**options))
    distil(DistilConfig(**options))
    assert f"resuming the run in {options['out']}" in capsys.readouterr().err
    assert (options["out"] / "model").exists()


def test_the_time_left_for_steps_is_said_and_none_is_refused(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options |= {"steps": None, "minutes": 1.0}
    late = Clock(0.0, now=itertools.count(57.0, 0.5).__next__)
    message = r"--minutes 1 leaves no time for steps: .* take \d+ s; give --minutes [\d.]+ or more"
    with pytest.raises(ConfigError, match=message):
        distil(DistilConfig(**options), clock=late)
    assert not options["out"].exists()
    capsys.readouterr()
    distil(DistilConfig(**options), clock=Clock(0.0, now=itertools.count(0.0, 0.5).__next__))
    assert re.search(r"^\d+ of 60 s are left for steps; checks", capsys.readouterr().err, re.M)


def _other_words(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    model, known = load_model(options["teacher"])
    words = known.vocabulary
    save_model(path / "other", model, Tokenizer((*words[:5], *reversed(words[5:])), known.rules))
    return {"teacher": path / "other"}


REFUSED: dict[str, tuple[Callable[[Path, dict[str, Any]], dict[str, Any]], str]] = {
    "vocabulary": (_other_words, "was prepared with another vocabulary than that of"),
    "two methods": (
        lambda path, options: {"method": ("minilm", "tinybert")}, "names 2, and a store is for one",
    ),
    "no budget": (lambda path, options: {"steps": None}, "either steps or minutes"),
    "dev": (lambda path, options: {"dev": path}, "--dev is for labelled examples"),
    "no size": (
        lambda path, options: {"student": StudentConfig(student="auto")}, "for labelled examples",
    ),
    "other width": (
        lambda path, options: {"student": StudentConfig(student="2/12")},
        "the student is 12 wide, the teacher 24",
    ),
    "rate of labelled examples": (
        lambda path, options: {"settings": FinetuneSettings(learning_rate=1e-4)},
        "--learning-rate is for labelled examples, and ",
    ),
    "length of labelled examples": (
        lambda path, options: {"settings": FinetuneSettings(max_length=16)},
        "store is a store; give --general.max-length",
    ),
    "epochs": (
        lambda path, options: {"settings": FinetuneSettings(epochs=2)},
        "--epochs is for labelled examples, and ",
    ),
    "columns": (
        lambda path, options: {"settings": FinetuneSettings(reading=Reading(on_bad="skip"))},
        "--on-bad is for labelled examples, and ",
    ),
    "seeds": (lambda path, options: {"seeds": 2}, "--seeds is for labelled examples, and "),
    "no plain student": (lambda path, options: {"plain": False}, "--no-plain is for labelled"),
    "size of the cache": (
        lambda path, options: {"teaching": TeachingConfig(cache_gigabytes=1.0)},
        "--cache-gigabytes is for labelled examples, and ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_is_refused_in_a_line(
    case: str, options: dict[str, Any], tmp_path: Path
) -> None:
    change, said = REFUSED[case]
    with pytest.raises(UserError) as refused:
        distil(DistilConfig(**options | change(tmp_path, options)))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_soft_targets_need_a_head(options: dict[str, Any], teachers: dict[str, Path]) -> None:
    config = DistilConfig(**options | {"teacher": teachers["bare"]})
    with pytest.raises(UserError, match="has no masked-LM head, whose answers distilbert teaches"):
        distil(config)
    # the others read what is inside
    assert general._resolve_run(
        replace(config, method=("minilm",)),
        TokenStore(options["data"]),
        torch.device("cpu"),
    )
