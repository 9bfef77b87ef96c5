"""A tagging model reads words and tags as in training, where a file can be read like that."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.predict.config import EvaluateConfig, PredictConfig
from bertsmith.recipes.predict.evaluate import evaluate
from bertsmith.recipes.predict.recipe import predict
from bertsmith.tasks.config import Reading
from bertsmith.text.config import TagColumns

QUICK = FinetuneSettings(epochs=1, batch_size=16, precision="fp32", dropout=0.0, baseline=False)
COLUMNS = "\n".join(f"{{n}} {word} {tag} {other}" for word, tag, other in
    [("word1", "DET", "O"), ("good", "NOUN", "B-X"), ("bad", "VERB", "I-X")]) + "\n\n"  # fmt: skip
JOINED = "word1|DET good|NOUN bad_x|VERB\n"
TABLE = "".join(f"a{word},{word},{tag},{other}\n" for word, tag, other in
    [("word1", "DET", "O"), ("good", "NOUN", "B-X"), ("bad", "VERB", "I-X")]) + "\n"  # fmt: skip
# I-X alone is another way to write entities, beside NP it is a tag like any other
PLAIN = "word1 O\ngood I-X\nbad I-X\n\n"
CASES = {
    "columns": ("conll", COLUMNS, COLUMNS, TagColumns(word=1, tag=2)),
    "columns, stated": ("txt", COLUMNS, COLUMNS, TagColumns(word=1, tag=-2, layout="columns")),
    "joined": ("txt", JOINED, JOINED, TagColumns(sign="|")),
    "table": ("csv", TABLE, TABLE, TagColumns(word=1, tag=2)),
    "plain, stated": ("conll", COLUMNS, COLUMNS, TagColumns(word=1, scheme="plain")),
    "plain, found": ("conll", f"{PLAIN}word2 NP\nbad O\n\n", PLAIN, TagColumns()),
}  # fmt: skip


def learned(folder: Path, model: Path, name: str) -> tuple[FinetuneOutcome, Path]:
    kind, train, dev, tags = CASES[name]
    files = [folder / f"{part}.{kind}" for part in ("train", "dev")]
    for file, text, times in zip(files, (train, dev), (20, 4), strict=True):
        file.write_text(text.replace("{n}", "7") * times, encoding="utf-8")
    settings = replace(QUICK, reading=Reading(tags=tags))
    run = folder / "run"
    return finetune(
        FinetuneConfig(
            model=model,
            train=files[0],
            task="tag",
            out=run,
            dev=files[1],
            settings=settings,
            experiment=ExperimentConfig(seeds=1),
        )
    ), files[1]


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_asked_as_it_was_trained(
    name: str, base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, dev = learned(tmp_path, base_folder, name)
    scores = evaluate(EvaluateConfig(model=outcome.model, file=dev))["scores"]
    assert {key: score["value"] for key, score in scores.items()} == outcome.best.scores
    capsys.readouterr()
    predict(PredictConfig(model=outcome.model, file=str(dev), format="jsonl"))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(said) == 4
    assert said[0]["text"] == ("word1 good bad_x" if name == "joined" else "word1 good bad")
    # texts without tags are texts
    raw = tmp_path / "raw.txt"
    raw.write_text("word1 word2 good bad\nbad word1\n", encoding="utf-8")
    predict(PredictConfig(model=outcome.model, file=str(raw), format="jsonl"))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["text"] for item in said] == raw.read_text(encoding="utf-8").splitlines()
    nameless = raw.rename(tmp_path / "raw")
    with pytest.raises(ExampleError, match=r"if each line is a text, name the file \.txt or give"):
        predict(PredictConfig(model=outcome.model, file=str(nameless)))


def test_texts_that_look_like_columns_are_said_to_be_read_as_words(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, _ = learned(tmp_path, base_folder, "columns, stated")
    texts, one, several = (tmp_path / f"{name}.txt" for name in ("texts", "one", "several"))
    texts.write_text("word1 good bad\ngood word2 word1\n", encoding="utf-8")
    one.write_text("7 word1 DET O\n7 good NOUN O\n\n", encoding="utf-8")
    several.write_text("7 word1 DET O\n7 good NOUN O\n\n" * 2, encoding="utf-8")
    for file, noted in ((texts, True), (one, False), (several, False)):
        capsys.readouterr()
        predict(PredictConfig(model=outcome.model, file=str(file), format="jsonl"))
        note = " ".join(capsys.readouterr().err.split())
        assert noted == (
            f"{file.name} has no empty line: each of its lines is read as a word" in note
        )


@pytest.mark.parametrize("name", ["columns", "columns, stated"])
def test_a_pipe_that_finding_out_its_layout_would_use_up_is_refused(
    name: str, base_folder: Path, tmp_path: Path
) -> None:
    outcome, _ = learned(tmp_path, base_folder, name)
    reader, writer = os.pipe()
    try:
        os.write(writer, (COLUMNS.replace("{n}", "7") * 9).encode())
        os.close(writer)
        pipe = f"/dev/fd/{reader}"
        with pytest.raises(
            ExampleError, match=r"is a pipe.*; write its rows to a file, or give a text"
        ):
            predict(PredictConfig(model=outcome.model, file=pipe, format="jsonl"))
    finally:
        os.close(reader)


def test_columns_that_are_named_count_and_other_files_are_read_as_usual(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, dev = learned(tmp_path, base_folder, "columns")
    with pytest.raises(ExampleError, match="'O' is none of the model's"):
        evaluate(
            EvaluateConfig(model=outcome.model, file=dev, reading=Reading(tags=TagColumns(word=1)))
        )
    narrow = tmp_path / "narrow.conll"
    narrow.write_text("word1 DET\ngood NOUN\n\n" * 3, encoding="utf-8")
    assert evaluate(EvaluateConfig(model=outcome.model, file=narrow))["rows"] == 3
    assert "is not laid out as the file on which the model was trained" in capsys.readouterr().err
    tokens = tmp_path / "tokens.jsonl"
    row = {"tokens": ["word1", "good"], "tags": ["DET", "NOUN"]}
    tokens.write_text(f"{json.dumps(row)}\n" * 3, encoding="utf-8")
    assert evaluate(EvaluateConfig(model=outcome.model, file=tokens))["rows"] == 3
