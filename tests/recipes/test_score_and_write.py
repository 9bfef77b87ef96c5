"""The verbs `score` and `write`, and their like in Python."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from scipy.stats import binomtest

import bertsmith
from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, ExampleError, ModelFolderError
from bertsmith.engine.config import WritingConfig
from bertsmith.recipes.predict.config import ScoreConfig, WriteConfig
from bertsmith.recipes.predict.rows import text_rows
from bertsmith.recipes.predict.score import score
from bertsmith.recipes.predict.write import write
from bertsmith.tasks.config import Reading
from bertsmith.text.config import Columns
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model, start_from

TEXTS = ["word1 good word2", "bad", "word3 word4"]
PAIRS = [("word1 good", "good word1"), ("bad word2 word3", "word4"), ("word5", "word6 word7")]


@pytest.fixture(scope="module")
def loaded(base_folder: Path) -> bertsmith.LoadedModel:
    return bertsmith.load(base_folder)


def test_texts_and_pairs_of_a_file_are_scored_and_summed_up(
    loaded: bertsmith.LoadedModel,
    base_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = loaded.score([*TEXTS, "", *PAIRS])
    assert expected[3] == dict.fromkeys(expected[0])
    totals = [item["score"] for item in expected[:3]]
    for text, item in zip(TEXTS, expected, strict=False):
        assert [piece for piece, _ in item["token_scores"]] == text.split()
        assert sum(value for _, value in item["token_scores"]) == pytest.approx(item["score"])
    alone = [loaded.score(list(pair)) for pair in PAIRS]
    for item, (one, other) in zip(expected[4:], alone, strict=True):
        assert item["scores"] == pytest.approx([one["score"], other["score"]], abs=1e-5)
        assert item["better"] == ("first" if one["score"] > other["score"] else "second")
    file = tmp_path / "texts.txt"
    lines = [*TEXTS, "", *("\t".join(pair) for pair in PAIRS)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    figures = score(ScoreConfig(model=base_folder, file=str(file), json=True))
    printed = capsys.readouterr()
    assert json.loads(printed.out) == figures
    assert figures["texts"] == 3
    assert figures["mean_score"] == pytest.approx(sum(totals) / 3, abs=1e-5)
    assert figures["perplexity"] == pytest.approx(math.exp(-sum(totals) / 6), rel=1e-5)
    right = sum(item["better"] == "first" for item in expected[4:])
    assert figures["accuracy"]["value"] == right / 3
    assert figures["accuracy"]["low"] <= right / 3 <= figures["accuracy"]["high"]
    score(ScoreConfig(model=base_folder, file=str(file)))
    printed = capsys.readouterr()
    assert f"{totals[0]:>9.2f}  {TEXTS[0]}" in printed.out.splitlines()
    marked = [line for line in printed.out.splitlines() if line.startswith(">")]
    better = [("first", "second").index(item["better"]) for item in expected[4:]]
    assert marked == [
        f">{item['scores'][number]:>8.2f}  {pair[number]}"
        for item, pair, number in zip(expected[4:], PAIRS, better, strict=True)
    ]
    assert "3 pairs: the first text scores higher in" in printed.err
    assert "fp32" in printed.err
    table = tmp_path / "pairs.csv"
    rows = [f"{one},{other}" for one, other in PAIRS]
    table.write_text("\n".join(["text,text_pair", *rows]) + "\n", encoding="utf-8")
    score(ScoreConfig(model=base_folder, file=str(table), format="csv"))
    header, *found = capsys.readouterr().out.splitlines()
    assert header.startswith("text,text_pair,better,difference,scores")
    assert [line.split(",")[2] for line in found] == [item["better"] for item in expected[4:]]


def test_figures_of_all_texts_have_no_other_format(
    base_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(base_folder), "texts.txt", "--json", "--format", "csv"]) == 2
    assert "--format csv is for the score of each text" in capsys.readouterr().err


def test_pairs_that_are_all_right_or_alike_are_counted_as_such(
    loaded: bertsmith.LoadedModel, base_folder: Path, tmp_path: Path
) -> None:
    file, lines = tmp_path / "pairs.txt", []
    for pair, item in zip(PAIRS, loaded.score(PAIRS), strict=True):
        ordered = pair if item["better"] == "first" else pair[::-1]
        lines.append("\t".join(ordered))
    file.write_text("\n".join(lines), encoding="utf-8")
    found = score(ScoreConfig(model=base_folder, file=str(file), json=True))["accuracy"]
    exact = binomtest(3, 3).proportion_ci(0.95, method="exact")
    assert [found["value"], found["low"], found["high"]] == pytest.approx([1, exact.low, 1])
    # of two texts that score the same, the first is not the better one
    file.write_text("\n".join([*lines, "word1 good\tword1 good"]), encoding="utf-8")
    found = score(ScoreConfig(model=base_folder, file=str(file), json=True))["accuracy"]
    assert found["value"] == 3 / 4


def test_scores_are_those_of_fp32_where_a_model_answers_in_bf16(
    base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = "bertsmith.engine.prepared"
    monkeypatch.setattr(f"{prepared}.unsupported_reason", lambda *_: "there are none here")
    monkeypatch.setattr(f"{prepared}._multiplies_bf16", lambda _: True)
    automatic, exact, half = (
        bertsmith.load(base_folder, precision=precision, device="cpu")
        for precision in ("auto", "fp32", "bf16")
    )
    assert automatic.engine.precision == "bf16"
    expected, rounded = exact.score(TEXTS), half.score(TEXTS)
    assert automatic.score(TEXTS) == expected != rounded


def test_a_perplexity_beyond_all_floats_is_left_out(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = load_model(base_folder)
    with torch.no_grad():
        model.get_parameter("heads.masked_lm.norm.weight").mul_(1e6)
    save_model(tmp_path / "sure", model, tokenizer)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    figures = score(ScoreConfig(model=tmp_path / "sure", file=str(tmp_path / "texts.txt")))
    assert figures["mean_score"] < -10_000
    assert figures["perplexity"] is None
    assert "3 texts, 6 tokens: mean pseudo-log-likelihood -" in capsys.readouterr().err


def test_text_is_written_and_passes_are_counted(
    loaded: bertsmith.LoadedModel, base_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = WritingConfig(length=5, how="gibbs", passes=7, seed=3)
    config = {"model": base_folder, "prompt": "word1  good", "samples": 2, "writing": how}
    figures = write(WriteConfig(**config, json=True))  # type: ignore[arg-type]
    assert json.loads(capsys.readouterr().out)["texts"] == figures["texts"]
    assert (figures["passes"], figures["tokens"]) == (14, 10)
    assert all(text.startswith("word1 good ") for text in figures["texts"])
    assert (
        loaded.write("word1  good", samples=2, length=5, how="gibbs", passes=7, seed=3)
        == (figures["texts"])
    )
    write(WriteConfig(**config))  # type: ignore[arg-type]
    printed = capsys.readouterr()
    assert printed.out.splitlines() == figures["texts"]
    assert "14 passes for 5 tokens of 2 texts" in printed.err


def test_models_without_a_head_for_tokens_are_refused(
    loaded: bertsmith.LoadedModel, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, labels=("a", "b"), seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    with pytest.raises(ModelFolderError, match="no head that predicts tokens"):
        score(ScoreConfig(model=tmp_path / "model"))
    with pytest.raises(ModelFolderError, match="no head that predicts tokens"):
        write(WriteConfig(model=tmp_path / "model"))
    for samples in (0, 10**17):
        with pytest.raises(
            ConfigError, match=rf"samples is {samples}; it must be in \[1, 100000\]"
        ):
            loaded.write(samples=samples)
    with pytest.raises(ConfigError, match=r"samples is too large; it must be below 10\^18"):
        loaded.write(samples=10**30)
    with pytest.raises(ConfigError, match="masking is 'words'"):
        loaded.score(["word1"], masking="words")


@pytest.mark.parametrize(
    ("name", "start", "columns"),
    [
        ("texts.label", "good ", Columns()),
        ("texts.txt", "good ", Columns(layout="label-first")),
        ("texts.txt", "__label__good ", Columns()),
    ],
)
def test_labels_before_texts_are_not_scored(
    name: str, start: str, columns: Columns, base_folder: Path, tmp_path: Path
) -> None:
    """They were read as the first words of the texts, by `predict` of a pre-trained model too."""
    file = tmp_path / name
    file.write_text("".join(f"{start}{text}\n" for text in TEXTS), encoding="utf-8")
    rows = text_rows(str(file), Reading(columns=columns), pairs=True)
    assert [row.columns for row in rows] == [{"text": text} for text in TEXTS]
    figures = score(
        ScoreConfig(model=base_folder, file=str(file), reading=Reading(columns=columns))
    )
    assert (figures["texts"], figures["tokens"]) == (3, 6)


@pytest.mark.parametrize("columns", [Columns(classes=("a",)), Columns(exclude=("a",))])
def test_rows_are_not_chosen_by_labels_that_are_not_read(
    columns: Columns, base_folder: Path, tmp_path: Path
) -> None:
    """All were scored, and counted in the figures."""
    file = tmp_path / "texts.csv"
    file.write_text("text,label\nword1,a\nword2,b\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="--classes and --exclude choose rows by their labels"):
        score(ScoreConfig(model=base_folder, file=str(file), reading=Reading(columns=columns)))


def test_a_tab_with_nothing_behind_it_is_named(base_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("word1\nword2\t\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=r"texts\.txt:2: has a tab, but no text on one side"):
        score(ScoreConfig(model=base_folder, file=str(file)))


def test_a_text_without_tokens_does_not_win_over_any_other(
    loaded: bertsmith.LoadedModel, base_folder: Path, tmp_path: Path
) -> None:
    pairs = [("word1 good", "word2"), ("\u200b", "word1"), ("word1", "\u200b")]
    with pytest.raises(ExampleError, match=r"^example 1: one text of the pair has no tokens"):
        loaded.score(pairs)
    assert loaded.score(["\u200b"])[0]["score"] == 0
    file = tmp_path / "pairs.txt"
    file.write_text("\n".join("\t".join(pair) for pair in pairs), encoding="utf-8")
    skipping = Reading(on_bad="skip")
    assert score(ScoreConfig(model=base_folder, file=str(file), reading=skipping))["pairs"] == 1
