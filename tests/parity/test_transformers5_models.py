"""Every family with every head gives what transformers 5 gives, whoever saved it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bertsmith.core.errors import ModelFolderError
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import build_model
from bertsmith.weights.folder import load_model, save_model
from families import ENCODERS, HEADS, MODELS, TOKENIZERS
from parity.comparing import compare, varied
from parity.other_process import RemoteModel, Transformers
from parity.test_transformers_families import (
    BACKENDS,
    PREFIXES,
    PROBLEMS,
    SUFFIXES,
    their_config,
)

CAUSAL = dataclasses.replace(
    MODELS["bert-masked_lm"],
    encoder=dataclasses.replace(MODELS["bert-masked_lm"].encoder, causal=True),
)


def their_class(case: str) -> str:
    kind, _, head = case.rpartition("-")
    return PREFIXES[kind] + SUFFIXES[head]


def settings_of(config: ModelConfig) -> dict[str, Any]:
    """What makes their config, without what 4.57 alone writes into it."""
    data: dict[str, Any] = their_config(config).to_dict()
    for key in ("transformers_version", "reference_compile", "_attn_implementation"):
        data.pop(key, None)
    return data


def opened(asked: Transformers, folder: Path, name: str, kind: str) -> RemoteModel:
    return RemoteModel(asked, folder, name, BACKENDS.get(kind, "eager"))


# every other head in each family, in the next family the others; BERT has all of them
SAVED_THERE = [
    pytest.param(f"{family}-{head}", marks=pytest.mark.faults if left else ())
    for number, family in enumerate(ENCODERS)
    for place, head in enumerate(HEADS)
    for left in (number > 0 and (number + place) % 2 == 1,)
    if f"{family}-{head}" in MODELS
]


@pytest.mark.parametrize("case", SAVED_THERE)
def test_what_transformers_5_saved_gives_its_results_here(
    transformers5: Transformers, tmp_path: Path, case: str
) -> None:
    expected = MODELS[case]
    kind, name, theirs = expected.encoder.family, their_class(case), tmp_path / "theirs"
    transformers5.ask(
        "make_model",
        kind=name,
        config_kind=f"{PREFIXES[kind]}Config",
        settings=settings_of(expected),
        to=str(theirs),
    )
    tokenizer = TOKENIZERS[kind]
    tokenizer.save(theirs)
    ours, _ = load_model(theirs)
    assert ours.config == expected
    compare(ours, opened(transformers5, theirs, name, kind))
    save_model(tmp_path / "ours", ours, tokenizer)
    folders = {"one": str(theirs), "other": str(tmp_path / "ours")}
    assert transformers5.ask("same_weights", kind=name, **folders) == []


@pytest.mark.parametrize("case", MODELS)
def test_what_we_saved_gives_our_results_in_transformers_5(
    transformers5: Transformers, tmp_path: Path, case: str
) -> None:
    config = MODELS[case]
    ours, kind = varied(build_model(config, seed=11)), config.encoder.family
    save_model(tmp_path / "model", ours, TOKENIZERS[kind])
    theirs = opened(transformers5, tmp_path / "model", their_class(case), kind)
    assert not any(theirs.loading.values()), theirs.loading
    if config.labels:
        assert tuple(theirs.labels) == config.labels
    assert theirs.problem_type == PROBLEMS.get(config.predicts or "")
    compare(ours, theirs)


@pytest.mark.parametrize("version", [4, 5])
def test_a_causal_model_loads_in_both_versions_and_comes_from_both(
    transformers4: Transformers, transformers5: Transformers, tmp_path: Path, version: int
) -> None:
    """Heads beside `bert.` and none below it: 4.57 opens nothing else."""
    asked = transformers4 if version == 4 else transformers5
    ours = varied(build_model(CAUSAL, seed=11))
    save_model(tmp_path / "model", ours, TOKENIZERS["bert"])
    theirs = RemoteModel(asked, tmp_path / "model", "BertLMHeadModel")
    assert not any(theirs.loading.values()), theirs.loading
    compare(ours, theirs)
    settings = settings_of(CAUSAL) | {"is_decoder": True}
    folder = tmp_path / "theirs"
    asked.ask(
        "make_model",
        kind="BertLMHeadModel",
        config_kind="BertConfig",
        settings=settings,
        to=str(folder),
    )
    TOKENIZERS["bert"].save(folder)
    back, _ = load_model(folder)
    assert back.config == CAUSAL
    compare(back, RemoteModel(asked, folder, "BertLMHeadModel"))


@pytest.mark.parametrize(
    ("layers", "every"),
    [("GLLGL", 3), ("GLGLG", 2), ("GGGGG", 1), ("GLLLL", 5), ("LGLGL", 0), ("GGLLG", 0)],
)
def test_layer_types_and_rotations_of_a_modernbert(
    transformers5: Transformers, tmp_path: Path, layers: str, every: int
) -> None:
    config = MODELS["modernbert-masked_lm"]
    settings = settings_of(config)
    for key in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
        settings.pop(key, None)
    kinds = {"G": "full_attention", "L": "sliding_attention"}
    settings["layer_types"] = [kinds[letter] for letter in layers]
    settings["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    }
    transformers5.ask(
        "make_model",
        kind="ModernBertForMaskedLM",
        config_kind="ModernBertConfig",
        settings=settings,
        to=str(tmp_path / "model"),
    )
    TOKENIZERS["modernbert"].save(tmp_path / "model")
    if not every:
        with pytest.raises(ModelFolderError, match="layer_types has no full_attention in every"):
            load_model(tmp_path / "model")
        return
    ours, _ = load_model(tmp_path / "model")
    encoder = ours.config.encoder
    assert (encoder.global_every, encoder.theta, encoder.local_theta) == (every, 5000.0, 300.0)
    compare(ours, RemoteModel(transformers5, tmp_path / "model", "ModernBertForMaskedLM", "sdpa"))
