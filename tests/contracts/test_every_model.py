"""What every family with every head must do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
import torch

from bertsmith.network.batch import pack
from bertsmith.network.config import HEADS as HEAD_OF
from bertsmith.network.config import ModelConfig, Predicts
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights import names
from bertsmith.weights.folder import load_as, load_model, read_config, save_model, start_from
from bounds import close_when_regrouped
from families import (
    ENCODERS,
    HEADS,
    LABELS,
    LENGTHS,
    MODELS,
    TOKENIZERS,
    answers,
    batch,
    varied,
)


def tokenizer_of(model: Model) -> Tokenizer:
    return TOKENIZERS[model.config.encoder.family]


def same_bits(one: Model, other: Model) -> bool:
    state = other.state_dict()
    return one.state_dict().keys() == state.keys() and all(
        torch.equal(value, state[name]) for name, value in one.state_dict().items()
    )


def test_all_families_and_heads_are_here() -> None:
    assert set(ENCODERS) == set(FAMILIES)
    assert all(encoder.family == name for name, encoder in ENCODERS.items())
    predicted = {parts.get("predicts") for parts in HEADS.values()} - {None}
    assert predicted == set(get_args(Predicts)) == set(HEAD_OF)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Model, Path]]:
    """A model of each case and its folder, made once."""

    @cache
    def save(case: str) -> tuple[Model, Path]:
        model, folder = varied(MODELS[case]), tmp_path_factory.mktemp("saved") / "model"
        save_model(folder, model, tokenizer_of(model))
        return model, folder

    return save


@pytest.mark.parametrize("case", MODELS)
@torch.no_grad()
def test_a_folder_gives_back_what_was_saved(
    saved: Callable[[str], tuple[Model, Path]], tmp_path: Path, case: str
) -> None:
    (model, folder), packed = saved(case), batch(*LENGTHS)
    assert read_config(folder) == model.config
    back, tokenizer = load_model(folder)
    assert back.config == model.config
    assert same_bits(back, model)
    save_model(tmp_path / "two", back, tokenizer)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    again = answers(back, packed)
    assert all(torch.equal(answer, again[name]) for name, answer in answers(model, packed).items())


@pytest.mark.parametrize("case", MODELS)
@torch.no_grad()
def test_packing_changes_nothing(saved: Callable[[str], tuple[Model, Path]], case: str) -> None:
    (model, _), packed = saved(case), batch(*LENGTHS)
    whole = answers(model, packed)
    offsets = packed.offsets.tolist()
    for number, (begin, end) in enumerate(pairwise(offsets)):
        alone = pack([packed.ids[begin:end].numpy()], [packed.segments[begin:end].numpy()])
        for name, mine in answers(model, alone).items():
            by_token = len(whole[name]) == packed.tokens
            expected = whole[name][begin:end] if by_token else whole[name][number : number + 1]
            assert mine.shape == expected.shape
            close_when_regrouped(mine, expected)


@pytest.mark.parametrize("case", MODELS)
def test_each_output_has_its_place(case: str) -> None:
    model, packed = build_model(MODELS[case], seed=2), batch(*LENGTHS)
    outputs, head = model.config.outputs, model.config.head or ""
    of_head = {"classify": (6, outputs), "tag": (65, outputs), "span": (65, 2), "choose": (6,)}
    shapes = {
        "hidden": (65, 32),
        "masked_lm": (65, 99),
        "next_sentence": (6, 2),
        "replaced_tokens": (65,),
        "head": of_head.get(head),
    }
    assert all(answer.shape == shapes[name] for name, answer in answers(model, packed).items())


@pytest.mark.parametrize("case", MODELS)
def test_every_weight_is_learned_and_named(case: str) -> None:
    config = MODELS[case]
    model = build_model(config, seed=2)
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros(())
    for answer in answers(model, batch(*LENGTHS)).values():
        total = total + (answer * torch.randn(answer.shape, generator=generator)).sum()
    total.backward()
    # a pooler that no head reads, as a bare encoder has, learns nothing
    unread = {"pooler"} if config.pooler and config.predicts is None else set()
    unread -= {"pooler"} if config.next_sentence else set()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert (gradient is None) == (name.partition(".")[0] in unread), name
        assert gradient is None or bool(gradient.isfinite().all()), name
    assert {row.ours for row in names.rows(config)} == set(model.state_dict())


@pytest.mark.parametrize("case", MODELS)
def test_weights_are_a_pure_function_of_the_seed(case: str) -> None:
    config = MODELS[case]
    model = build_model(config, seed=4)
    assert same_bits(model, build_model(config, seed=4))
    assert not same_bits(model, build_model(config, seed=5))
    assert ModelConfig.from_dict(config.to_dict()) == config


# every family gets each new head in place of one of its two
NEW_HEADS = [
    pytest.param(
        f"{family}-{head}",
        predicts,
        marks=[pytest.mark.faults] if (number + before + after) % 2 else [],
    )
    for number, family in enumerate(ENCODERS)
    for before, head in enumerate(("masked_lm", "tags"))
    for after, predicts in enumerate(get_args(Predicts))
]


@pytest.mark.parametrize(("case", "predicts"), NEW_HEADS)
def test_any_folder_takes_a_new_head(
    saved: Callable[[str], tuple[Model, Path]], tmp_path: Path, case: str, predicts: Predicts
) -> None:
    model, folder = saved(case)
    labels = LABELS[:2] if HEAD_OF[predicts] in ("classify", "tag") else ()
    started = [
        start_from(folder, predicts=predicts, labels=labels, seed=seed)[0] for seed in (1, 1, 2)
    ]
    config = started[0].config
    assert (config.predicts, config.labels, config.masked_lm) == (predicts, labels, False)
    assert config.encoder == model.config.encoder
    assert same_bits(started[0], started[1])
    assert not same_bits(started[0], started[2])
    state = started[0].state_dict()
    for name, value in model.state_dict().items():
        assert not name.startswith("encoder.") or torch.equal(state[name], value)
    save_model(tmp_path / "new", started[0], tokenizer_of(model))
    assert same_bits(load_model(tmp_path / "new")[0], started[0])


@pytest.mark.parametrize("case", MODELS)
def test_a_head_is_lent_to_who_asks_for_the_same(
    saved: Callable[[str], tuple[Model, Path]], case: str
) -> None:
    model, folder = saved(case)
    assert same_bits(load_as(folder, model.config, seed=3)[0], model)
    other = dataclasses.replace(
        model.config,
        pooler=False,
        masked_lm=True,
        next_sentence=False,
        replaced_tokens=False,
        predicts=None,
        labels=(),
    )
    bare = load_as(folder, other, seed=3)[0]
    assert bare.config == other
    assert torch.equal(
        bare.encoder.embeddings.tokens.weight, model.encoder.embeddings.tokens.weight
    )
