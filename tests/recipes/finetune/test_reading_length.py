"""How many tokens of a text are read, where --max-length names none or more than there can be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.inputs import reading_length
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.tag import TAG
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.tokenizer import Tokenizer


def rows(words: list[int]) -> list[Example]:
    return [
        Example(text="and " * count, text_pair=None, label="x", source="memory", line=1)
        for count in words
    ]


def length(tokenizer: Tokenizer, words: list[int], **changes: Any) -> tuple[int, str]:  # noqa: ANN401
    task = changes.pop("task", CLASSIFY)
    trainings = changes.pop("trainings", 1)
    size = changes.pop("size", "tiny")
    encoder = encoder_of("bert", size, tokenizer.size, longest=changes.pop("limit", 512))
    config = ModelConfig(encoder=encoder, predicts="class", labels=("x", "y"), pooler=True)
    settings = replace(FinetuneSettings(epochs=3), **changes)
    found = reading_length(
        task, rows(words), tokenizer, config, settings, trainings, torch.device("cpu")
    )
    return found.longest, found.message


def test_short_texts_need_no_more_than_ever(tiny_tokenizer: Tokenizer) -> None:
    assert length(tiny_tokenizer, [20] * 95 + [500] * 5) == (128, "")


def test_longer_ones_get_what_nearly_all_of_them_have(tiny_tokenizer: Tokenizer) -> None:
    longest, told = length(tiny_tokenizer, [20] * 50 + [180] * 46 + [500] * 4)
    assert longest == 192
    assert told == "up to 192 tokens of a text are read, enough for 96 % of the texts"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 512),
        ({"limit": 160}, 160),
        ({"limit": 64}, 64),
        # windows read everything already
        ({"truncation": "windows"}, 128),
        ({"task": TAG}, 128),
        ({"task": GLUE["RTE"]}, 128),
    ],
)
def test_limits(tiny_tokenizer: Tokenizer, changes: dict[str, Any], expected: int) -> None:
    assert length(tiny_tokenizer, [900] * 30, **changes)[0] == expected


def test_what_would_take_hours_is_not_begun_unasked(tiny_tokenizer: Tokenizer) -> None:
    longest, told = length(tiny_tokenizer, [900] * 100, size="base", epochs=40, trainings=5)
    assert longest == 128
    assert "more would take too much time or memory, --max-length 512 reads more" in told


def test_a_length_above_the_limit_of_the_model_is_reported_and_the_limit_recorded(
    base_folder: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = FinetuneSettings(epochs=1, batch_size=80, max_length=100_000)
    config = FinetuneConfig(
        model=base_folder,
        train=labelled,
        out=tmp_path / "run",
        settings=settings,
        experiment=ExperimentConfig(seeds=1, baselines=False),
    )
    finetune(config)
    said = capsys.readouterr().err
    assert "--max-length 100000 is above the model's limit: 40 tokens are read" in said
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert record["settings"]["settings"]["max_length"] == 40
    # the same command resumes the run
    finetune(config)
    assert "has ended" in capsys.readouterr().err
