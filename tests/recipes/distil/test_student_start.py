"""What a student starts from: sizes, the teacher's layers, and every tensor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import build_model
from bertsmith.recipes.distil.config import StartLayers, StudentConfig
from bertsmith.recipes.distil.student import (
    NewStudent,
    chosen_layers,
    followed_layers,
    student_encoder,
    take_layers,
    take_token_table,
)
from bertsmith.weights.folder import load_model, save_model
from bertsmith.weights.versions import FolderVersion
from families import ENCODERS, MODELS
from parity.comparing import varied

BASE = EncoderConfig(vocabulary=99, hidden=768, layers=12, heads=12, feed_forward=3072)


@pytest.mark.parametrize(
    ("teacher", "student", "start", "layers"),
    [
        # transformers' DistilBERT takes 0, 2, 4, 7, 9 and 11, counted from 0
        (12, 6, "alternate", (1, 3, 5, 8, 10, 12)),
        (6, 3, "uniform", (2, 4, 6)),
        # TinyBERT's layer m follows layer 3 m
        (12, 4, "uniform", (3, 6, 9, 12)),
        (12, 5, "bottom", (1, 2, 3, 4, 5)),
        (6, 1, "alternate", (1,)),
        (3, 4, "alternate", ()),
        (6, 3, "new", ()),
    ],
)
def test_layers_are_those_of_the_papers(
    teacher: int, student: int, start: StartLayers, layers: tuple[int, ...]
) -> None:
    assert chosen_layers(teacher, student, start) == layers


@torch.no_grad()
def test_tokens_of_a_narrow_student_are_as_alike_as_its_teachers(
    base_folder: Path, tmp_path: Path
) -> None:
    teacher, tokenizer = load_model(base_folder)
    random = torch.Generator().manual_seed(1)
    table = teacher.encoder.embeddings.tokens.weight
    # as of trained models, a few directions have most of the variance
    factors = [
        torch.randn(*shape, generator=random) for shape in ((len(table), 6), (6, table.shape[1]))
    ]
    table.copy_(factors[0] @ factors[1])
    save_model(tmp_path / "teacher", teacher, tokenizer)
    encoder = student_encoder(
        teacher.config.encoder, 1, 16, StudentConfig(student="1/16", heads=2, feed_forward=20)
    )
    config = ModelConfig(encoder=encoder, predicts="class", labels=("a", "b"))
    found = {
        start: NewStudent(
            teacher=tmp_path / "teacher", config=config, layers=(), device=torch.device("cpu"),
            token_table=start,
        )(3)
        for start in (True, False)
    }  # fmt: skip
    ordinary = torch.from_numpy(tokenizer.ordinary_ids)
    of_teacher = torch.nn.functional.normalize((table - table.mean(0))[ordinary], dim=1)
    likeness = {}
    for start, student in found.items():
        rows = student.encoder.embeddings.tokens.weight[ordinary]
        own = torch.nn.functional.normalize(rows, dim=1)
        both = torch.stack([(of_teacher @ of_teacher.T).flatten(), (own @ own.T).flatten()])
        likeness[start] = float(torch.corrcoef(both)[0, 1])
    assert likeness[True] > 0.9
    assert likeness[False] < 0.6


def test_no_student_starts_from_another_teacher_than_the_first(
    base_folder: Path, tmp_path: Path
) -> None:
    teacher, tokenizer = load_model(base_folder)
    folder = tmp_path / "teacher"
    save_model(folder, teacher, tokenizer)
    config = ModelConfig(encoder=teacher.config.encoder, predicts="class", labels=("a", "b"))
    new = NewStudent(
        teacher=folder, config=config, layers=(1, 2), device=torch.device("cpu"),
        versions=(FolderVersion.of(folder),),
    )  # fmt: skip
    new(1)
    save_model(folder, build_model(teacher.config, seed=9), tokenizer)
    with pytest.raises(ModelFolderError, match="was changed while it was in use"):
        new(2)


@pytest.mark.parametrize(("teacher", "student"), [(12, 5), (7, 3), (5, 5), (24, 6)])
def test_every_layer_follows_one_and_the_last_the_last(teacher: int, student: int) -> None:
    layers = followed_layers(teacher, student)
    assert layers[-1] == teacher
    assert sorted(set(layers)) == list(layers)
    assert len(layers) == student


def test_published_students_have_their_published_sizes() -> None:
    tiny = student_encoder(BASE, 4, 312, StudentConfig(student="4/312", feed_forward=1200))
    assert (tiny.layers, tiny.hidden, tiny.heads, tiny.feed_forward) == (4, 312, 12, 1200)
    mini = student_encoder(BASE, 6, 384, StudentConfig(student="6/384"))
    assert (mini.heads, mini.feed_forward) == (12, 1536)
    half = student_encoder(BASE, 6, 768, StudentConfig(student="6/768"))
    assert replace(half, layers=12) == BASE
    # 12 heads do not divide 128, which heads of 64 do
    assert student_encoder(BASE, 2, 128, StudentConfig(student="2/128")).heads == 2


def encoder_of(student: str, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    config = StudentConfig(student=student, **changes)
    return student_encoder(BASE, *(config.size or (1, 1)), config)


@pytest.mark.parametrize(
    ("student", "changes", "said"),
    [
        ("2/100", {}, "100 wide cannot have 12 heads"),
        ("2/100", {"heads": 7}, "7 heads"),
        ("0/96", {}, "'0/96'; give layers and width"),
        ("auto", {"target": "1x"}, "'1x'; give more than 1"),
        ("auto", {"target": "fast"}, "a number and x"),
    ],
)
def test_impossible_sizes_are_refused(student: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        encoder_of(student, **changes)


@pytest.mark.parametrize("family", list(ENCODERS))
def test_every_tensor_is_that_of_its_layer(family: FamilyName) -> None:
    teacher = varied(build_model(MODELS[f"{family}-class"], seed=1))
    depth = teacher.config.encoder.layers
    config = replace(
        teacher.config,
        encoder=student_encoder(
            teacher.config.encoder, depth - 1 if depth < 6 else 4, 32, StudentConfig(student="auto")
        ),
    )
    student = build_model(config, seed=2)
    layers = chosen_layers(depth, config.encoder.layers, "alternate")
    take_layers(student, teacher, layers)
    found, theirs = student.state_dict(), teacher.state_dict()
    shared = depth // len(teacher.encoder.blocks)
    for name, value in found.items():
        source = name
        if name.startswith("encoder.blocks."):
            number, rest = name.removeprefix("encoder.blocks.").split(".", 1)
            own = config.encoder.layers // len(student.encoder.blocks)
            layer = layers[int(number) * own]
            source = f"encoder.blocks.{(layer - 1) // shared}.{rest}"
        if source not in theirs:
            # a ModernBERT's first layer has no norm before it
            assert FAMILIES[family].pooler == "heads"
            continue
        assert torch.equal(value, theirs[source]), name
    assert "heads.classify.weight" in found


def test_a_distilbert_has_the_first_segment_in_its_positions() -> None:
    teacher = varied(build_model(ModelConfig(encoder=ENCODERS["bert"], masked_lm=True), seed=1))
    wiring = replace(ENCODERS["bert"], family="distilbert", segments=0, pooling="relu", layers=2)
    student = build_model(ModelConfig(encoder=wiring, masked_lm=True, pooler=False), seed=2)
    take_layers(student, teacher, (1, 3))
    segments, positions = teacher.encoder.embeddings.segments, teacher.encoder.embeddings.positions
    assert segments is not None
    assert positions is not None
    mine = student.get_parameter("encoder.embeddings.positions.weight")
    assert torch.equal(mine, positions.weight + segments.weight[0])
    for name in ("dense.weight", "norm.weight", "bias"):
        full = f"heads.masked_lm.{name}"
        assert torch.equal(student.get_parameter(full), teacher.get_parameter(full))


@pytest.mark.parametrize("sizes", ["1/6", "1/16"])
def test_a_student_without_columns_for_positions_stays_as_it_is(
    base_folder: Path, sizes: str
) -> None:
    teacher, tokenizer = load_model(base_folder)
    layers, width = map(int, sizes.split("/"))
    # too narrow, or with heads one wide
    heads = 2 if width == 6 else width
    config = StudentConfig(student=sizes, heads=heads)
    encoder = student_encoder(teacher.config.encoder, layers, width, config)
    student = build_model(ModelConfig(encoder=encoder), seed=1)
    before = {name: value.clone() for name, value in student.state_dict().items()}
    take_token_table(student, teacher, mask_id=tokenizer.mask_id, seed=1)
    assert all(torch.equal(value, before[name]) for name, value in student.state_dict().items())
