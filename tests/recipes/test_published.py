"""The recipes: what the papers say, what the command line makes of them, and that each runs."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel, AutoModelForPreTraining

from bertsmith.batches.config import Phase
from bertsmith.cli.main import main
from bertsmith.cli.verbs import pretrain as verb
from bertsmith.cli.verbs import recipe_settings
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import encoder_of
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainSettings, RecipeName
from bertsmith.recipes.pretrain.published import (
    RECIPES,
    albert,
    default_settings,
    modern,
    paper,
    roberta,
)
from bertsmith.recipes.pretrain.recipe import pretrain
from bertsmith.recipes.pretrain.resolving import network_of, resolve
from bertsmith.recipes.pretrain.starting import check_neighbour_start, continued
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget
from bertsmith.weights.folder import load_model
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

BUDGET = Budget(minutes=5.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(40), tokenizer, folder, held_out=0.1)
    return folder


def test_bert_is_the_papers() -> None:
    """Devlin et al. 2018, section 3.1 and appendix A.2."""
    run = paper("base")
    samples, network, optimiser = run.samples, run.network, run.optimiser
    assert (samples.masking.probability, samples.masking.as_mask, samples.masking.as_random) == (
        0.15, 0.8, 0.1,
    )  # fmt: skip
    assert (samples.masking.unit, samples.text, samples.copies) == ("token", "next_sentence", 10)
    assert run.phases == (Phase(share=0.9, max_length=128, tokens_per_batch=4096),)
    assert samples.max_length == 512
    # 256 sequences a step in both phases
    assert run.gradient_accumulation * 4096 == 256 * 128
    assert run.gradient_accumulation * samples.tokens_per_batch == 256 * 512
    assert (network.position_initialisation, network.hidden_dropout, network.attention_dropout) == (
        "random", 0.1, 0.1,
    )  # fmt: skip
    assert (optimiser.algorithm, optimiser.matrices, optimiser.learning_rate) == (
        "adamw",
        "same",
        1e-4,
    )
    assert (optimiser.beta_1, optimiser.beta_2, optimiser.weight_decay) == (0.9, 0.999, 0.01)
    assert (run.schedule.warmup, run.schedule.decay) == (10_000 / 1_000_000, "linear")


def test_roberta_is_the_papers() -> None:
    """Liu et al. 2019, sections 4 and 5 and table 9."""
    for size, rate, warm_up in (("base", 6e-4, 24_000), ("large", 4e-4, 30_000)):
        run = roberta(size)
        assert run.network.family == "roberta"
        assert (run.optimiser.learning_rate, run.schedule.warmup) == (rate, warm_up / 500_000)
        assert (run.samples.copies, run.samples.text) == (0, "across_documents")
        assert not run.samples.pairs
        assert (run.phases, run.samples.max_length) == ((), 512)
        assert run.gradient_accumulation * run.samples.tokens_per_batch == 8192 * 512
        optimiser = run.optimiser
        assert (optimiser.algorithm, optimiser.beta_1, optimiser.beta_2) == ("adamw", 0.9, 0.98)
        assert (optimiser.epsilon, optimiser.weight_decay, run.max_gradient_norm) == (
            1e-6,
            0.01,
            0.0,
        )
        assert (run.network.hidden_dropout, run.network.attention_dropout) == (0.1, 0.1)


def test_albert_is_the_papers() -> None:
    """Lan et al. 2019, section 4.1."""
    run = albert("base")
    assert (run.network.family, run.network.activation) == ("albert", "gelu_tanh")
    assert (run.network.hidden_dropout, run.network.attention_dropout) == (0.0, 0.0)
    assert (run.optimiser.algorithm, run.optimiser.learning_rate) == ("lamb", 0.00176)
    assert (run.samples.text, run.samples.masking.unit) == ("sentence_order", "ngram")
    assert (run.samples.max_length, run.samples.short_sequences) == (512, 0.1)
    assert run.gradient_accumulation * run.samples.tokens_per_batch == 4096 * 512
    assert run.schedule.warmup == 3125 / 125_000


def test_modernbert_is_the_papers() -> None:
    """Warner et al. 2024, section 3 and table 3, and the configuration published with it."""
    for size, rate in (("base", 8e-4), ("large", 5e-4)):
        run = modern(size)
        network, optimiser = run.network, run.optimiser
        assert (network.family, network.positions, network.max_positions) == (
            "modernbert",
            None,
            8192,
        )
        assert encoder_of(network.family, size, 99).positions == "rotary"
        assert (run.samples.text, run.samples.masking.probability) == ("within_documents", 0.3)
        assert run.gradient_accumulation * run.samples.tokens_per_batch == 4608 * 1024
        assert (optimiser.learning_rate, optimiser.beta_1, optimiser.beta_2) == (rate, 0.9, 0.98)
        assert optimiser.learning_rate * optimiser.weight_decay == pytest.approx(1e-5)
        # 3 of 1,719 billion tokens up, 50 of 2,000 down
        assert run.schedule.warmup == pytest.approx(3 / 1719, rel=0.03)
        assert 1 - run.schedule.warmup - run.schedule.hold == pytest.approx(50 / 2000)


def test_phases_that_cannot_be_are_refused_with_the_settings() -> None:
    """Nothing is read before: neither store nor model."""
    settings = paper("base")
    with pytest.raises(ConfigError, match=r"128 tokens, more than --max-length \(64\); give other"):
        settings.override(**{"samples.max_length": 64, "samples.tokens_per_batch": 4096})
    with pytest.raises(ConfigError, match="leave nothing for the rest"):
        replace(settings, phases=(Phase(share=0.5, max_length=128),) * 2)


def test_a_recipe_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no recipe 'slow'; recipes are quick, paper"):
        default_settings("slow", "tiny")


@pytest.mark.parametrize("name", RECIPES)
def test_help_tells_each_recipe_in_a_line(name: str) -> None:
    first, *rest = (inspect.getdoc(RECIPES[name]) or "").splitlines()
    told = next(
        line.split(maxsplit=1)[1]
        for line in (inspect.getdoc(verb) or "").splitlines()
        if line.strip().startswith(f"{name} ")
    )
    assert told == first.removesuffix(".")
    assert any("bertsmith pretrain store" in line for line in rest)


def test_help_shows_the_settings_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for name in RECIPES:
        with pytest.raises(SystemExit):
            main(["pretrain", "--recipe", name, "--help"])
        said[name] = " ".join(capsys.readouterr().out.split())
    rate = "Peak learning rate of AdamW or LAMB. (default: "
    for name, page in said.items():
        assert f"{rate}{RECIPES[name]('small').optimiser.learning_rate}" in page
    with pytest.raises(SystemExit):
        main(["pretrain", "--help"])
    assert " ".join(capsys.readouterr().out.split()) == said["quick"]
    # settings that cannot be had do not keep from the help
    with pytest.raises(SystemExit):
        main(["pretrain", "--from", "nowhere", "--help"])
    assert "(default: " in capsys.readouterr().out


def test_defaults_follow_recipe_and_size() -> None:
    quick = RECIPES["quick"]("small")
    assert recipe_settings({}) == {"settings": quick.to_dict()}
    given = {"recipe": "roberta", "model": "large", "steps": 9}
    assert recipe_settings(given) == {"settings": roberta("large").to_dict()}


LEARNED_AND_WIDE = {"bert", "roberta", "distilbert", "xlm-roberta"}
"""Families with learned positions, and embeddings as wide as the layers."""


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_recipe_suits_every_family(
    store: Path, tokenizer: Tokenizer, recipe: RecipeName, family: FamilyName
) -> None:
    """`--family` alone is refused by no default, and pairs are those of the family's head."""
    given = {"recipe": recipe, "model": "tiny", "settings": {"network": {"family": family}}}
    settings = PretrainSettings.from_dict(recipe_settings(given)["settings"])
    config = network_of(resolve(store, "tiny", BUDGET, settings), tokenizer)
    assert config.encoder.family == family
    if settings.network.initialisation == "neighbours":
        check_neighbour_start(config.encoder)
    assert config.replaced_tokens == (family == recipe == "electra")
    pairs = {"bert": "next_sentence", "albert": "sentence_order"}.get(family)
    # a recipe without pairs needs none
    assert settings.samples.text in {pairs, "within_documents", "across_documents"}
    if recipe in ("quick", "paper"):
        assert settings.samples.text == (pairs or "within_documents")
    assert (recipe == "quick" and family in LEARNED_AND_WIDE) == (
        settings.network.initialisation == "neighbours"
    )
    objective_of(config, seed=0)


@pytest.mark.parametrize("given", [{"settings": {"network": {"family": 7}}}, {"settings": 3}])
def test_values_that_are_refused_later_have_the_recipes_settings(given: dict[str, Any]) -> None:
    assert recipe_settings(given) == recipe_settings({})


def test_a_stated_option_is_not_changed_for_a_family(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["pretrain", str(store), "--family", "roberta", "--out", str(tmp_path / "run")]
    assert main([*given, "--steps", "2", "--sequences", "next_sentence"]) != 0
    assert "RoBERTa has no next-sentence head" in capsys.readouterr().err


SMALL = ["--gradient-accumulation", "2", "--tokens-per-batch", "190", "--max-length", "61",
         "--measurements", "2"]  # fmt: skip


def settings_of(folder: Path) -> PretrainSettings:
    content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return PretrainSettings.from_dict(content["settings"]["settings"])


@pytest.mark.parametrize("name", RECIPES)
def test_each_runs_and_options_win(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["pretrain", str(store), "--recipe", name, "--out", "run", "--model", "tiny"]
    phases = '[{"share": 0.5, "max_length": 31, "tokens_per_batch": 90}]'
    changes = [*SMALL, *(["--phases", phases] if name == "paper" else [])]
    assert main([*given, "--steps", "4", *changes]) == 0
    found = settings_of(Path("run"))
    recipe = RECIPES[name]("tiny")
    samples = replace(recipe.samples, max_length=61, tokens_per_batch=190)
    expected = replace(
        recipe, gradient_accumulation=2, samples=samples, phases=found.phases, measurements=2
    )
    assert found == expected
    assert [phase.max_length for phase in found.phases] == [31] * (name == "paper")
    result = json.loads(Path("run/result.json").read_text(encoding="utf-8"))
    assert result["state"]["step"] == 4
    # the last steps have sequences of the full length
    assert result["state"]["place"]["phase"] == len(found.phases)
    assert {item.rsplit("_", 1)[0] for item in result["held_out"]} == {
        "quick": {"masked_lm", "next_sentence"},
        "paper": {"masked_lm", "next_sentence"},
        "roberta": {"masked_lm"},
        "albert": {"masked_lm", "sentence_order"},
        "modern": {"masked_lm"},
        "electra": {"masked_lm", "replaced_tokens"},
    }[name]
    theirs = AutoModel.from_pretrained("run/model")
    families = {
        "albert": "albert", "modern": "modernbert", "roberta": "roberta", "electra": "electra",
    }  # fmt: skip
    assert theirs.config.model_type == families.get(name, "bert")


def test_an_albert_run_is_an_albert_folder_that_can_be_continued(
    store: Path, tmp_path: Path
) -> None:
    settings = albert("tiny")
    samples = replace(settings.samples, max_length=61, tokens_per_batch=250)
    settings = replace(settings, samples=samples, gradient_accumulation=1, measurements=0)
    first = pretrain(
        PretrainConfig(
            store=store, out=tmp_path / "first", model="mini", steps=3, settings=settings
        )
    )
    _, told = AutoModelForPreTraining.from_pretrained(
        tmp_path / "first" / "model", output_loading_info=True
    )
    assert not any(told.values())
    model, _ = load_model(tmp_path / "first" / "model")
    assert len(model.encoder.blocks) == 1
    config = model.config.encoder
    assert (config.layers, config.embedding, config.groups) == (4, 128, 1)
    assert (config.dropout, config.attention_dropout) == (0.0, 0.0)
    parent = tmp_path / "first" / "model"
    own = continued(parent)
    own = replace(own, samples=replace(own.samples, tokens_per_batch=250), measurements=0)
    again = pretrain(
        PretrainConfig(store=store, out=tmp_path / "second", from_=parent, steps=2, settings=own)
    )
    assert again.network.config.encoder == config
    assert "sentence_order_loss" in again.held_out
    assert first.state.step == 3
