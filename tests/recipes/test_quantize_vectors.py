"""The gate of int8 for models that give vectors: near those of fp32, or as good on pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import bertsmith
from bertsmith.cli.main import main
from bertsmith.core.kernels import instruction_set
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoder import Block
from bertsmith.network.model import Model, build_model
from bertsmith.network.pooling import UnitLength
from bertsmith.recipes import precision_gate
from bertsmith.recipes import quantize as quantizing
from bertsmith.recipes.precision_gate import MeasuredPrecision, cosines
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import QUANTIZED_FILE, save_model
from bertsmith.weights.sentence_folder import SentenceSettings, write_sentence_files
from bounds import close_unit_vectors

needs_kernels = pytest.mark.skipif(instruction_set() is None, reason="no native kernels")
TEXTS = [
    " ".join(f"word{number}" for number in np.random.default_rng(seed).integers(1, 10, size))
    for seed, size in enumerate(np.random.default_rng(1).integers(2, 12, 30))
]
PAIRS = list(zip(TEXTS[::2], TEXTS[1::2], strict=True))


@pytest.fixture
def model() -> Model:
    encoder = EncoderConfig(
        vocabulary=37, hidden=32, layers=2, heads=2, feed_forward=64, longest=24, initial_std=0.4
    )
    return build_model(ModelConfig(encoder=encoder, pooler=False), seed=2)


@pytest.fixture
def command(
    model: Model, tiny_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Saves the model as a sentence-transformers folder and quantises it, in a time that counts."""
    measure = precision_gate.measure_precisions

    def timed(*values: Any) -> list[MeasuredPrecision]:  # noqa: ANN401
        found = measure(*values)
        return [replace(result, seconds=3.0 - place) for place, result in enumerate(found)]

    monkeypatch.setattr(quantizing, "measure_precisions", timed)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")

    def run(*options: str, calibrate: str = "texts.txt") -> int:
        folder = tmp_path / "model"
        if not folder.exists():
            save_model(folder, model, tiny_tokenizer)
            settings = SentenceSettings(network=Path(), after=(UnitLength(),), longest=20)
            write_sentence_files(folder, settings, model.config.encoder)
        given = ["--calibrate", calibrate, *options]
        return main(["quantize", "model", *given, "--out", "out", "--threads", "1"])

    return run


def ruined(model: Model) -> None:
    """Make one feature of a layer so large that int8 rounds the others to nothing.

    Nothing reads it: in fp32 the vectors are what they were.
    """
    block = model.encoder.blocks[1]
    assert isinstance(block, Block)
    with torch.no_grad():
        block.feed_forward.up.bias[0] = 1e4
        block.feed_forward.down.weight[:, 0] = 0.0


def pairs_file(numbers: Any) -> None:  # noqa: ANN401
    rows = [f"{a}\t{b}\t{number:.6f}" for (a, b), number in zip(PAIRS, numbers, strict=True)]
    text = "\n".join(["sentence1\tsentence2\tscore", *rows, ""])
    Path("pairs.tsv").write_text(text, encoding="utf-8")


def near(folder: str, precision: Any) -> Any:  # noqa: ANN401
    loaded = bertsmith.load(folder, precision=precision)
    sides = (loaded.embed([pair[side] for pair in PAIRS]) for side in (0, 1))
    return cosines(*(side.astype(np.float64) for side in sides))


@needs_kernels
def test_a_head_of_pre_training_does_not_answer_for_a_sentence_folder(
    command: Callable[..., int], model: Model, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Libraries that train sentence encoders keep the head that they do not use."""
    pretrained = build_model(replace(model.config, masked_lm=True), seed=2)
    save_model(tmp_path / "model", pretrained, tiny_tokenizer)
    settings = SentenceSettings(network=Path(), after=(UnitLength(),), longest=20)
    write_sentence_files(tmp_path / "model", settings, model.config.encoder)
    assert command() == 0
    exact, small = bertsmith.load("model", precision="fp32"), bertsmith.load("out")
    assert "int8" in repr(small)
    close_unit_vectors(small.embed(TEXTS), bertsmith.load("model", precision="int8").embed(TEXTS))
    assert (exact.embed(TEXTS) * small.embed(TEXTS)).sum(1).min() > 0.98


@needs_kernels
def test_vectors_near_those_of_fp32_are_given_in_int8(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--json") == 0
    said = capsys.readouterr()
    measured = json.loads(Path("out", QUANTIZED_FILE).read_text(encoding="utf-8"))["measured"]
    assert json.loads(said.out)["measured"] == measured
    assert (measured["texts"], measured["compared"]) == (15, 15)
    assert "worst cosine" in said.err
    assert "cosine with the vectors of fp32, 15 texts" in said.err
    # of the texts that were not timed
    exact, small = (
        bertsmith.load("model", precision=item).embed(TEXTS[1::2]) for item in ("fp32", "int8")
    )
    expected = (exact.astype(np.float64) * small).sum(1)
    scores = measured["precisions"]["int8"]["scores"]
    assert scores["cosine"] == pytest.approx(expected.mean(), abs=1e-5)
    assert scores["worst_cosine"] == pytest.approx(expected.min(), abs=1e-5)
    assert scores["worst_cosine"] < scores["cosine"] < 1
    opened = bertsmith.load("out")
    assert "int8" in repr(opened)
    close_unit_vectors(opened.embed(TEXTS[1::2]), small)


@needs_kernels
def test_pairs_with_a_number_judge_by_their_order(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command() == 0
    Path("out").rename("opened")
    exact = near("model", "fp32")
    # two numbers, with the widest gap between them: no rounding takes a pair to the other side
    ordered = np.sort(exact)
    gap = 5 + int(np.diff(ordered[5:10]).argmax())
    numbers = (exact > ordered[gap]).astype(float)
    pairs_file(numbers)
    capsys.readouterr()
    assert command("--dev", "pairs.tsv", "--json") == 0
    said = capsys.readouterr()
    assert "Spearman of cosine and number, 15 pairs" in said.err
    assert "second text is 'sentence2'" in said.err
    precisions = json.loads(said.out)["measured"]["precisions"]
    for name, near_here in (("fp32", exact), ("int8", near("opened", "auto"))):
        found = precisions[name]["scores"]["spearman"]
        assert found == pytest.approx(spearmanr(numbers, near_here).statistic, abs=1e-9)


@needs_kernels
@pytest.mark.parametrize("judged", ["by vectors", "by pairs"])
def test_vectors_that_int8_ruins_are_refused_with_the_table(
    command: Callable[..., int], model: Model, judged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ruined(model)
    if judged == "by vectors":
        assert command() == 2
        said = capsys.readouterr().err
        assert "the mean cosine of int8 vectors with those of fp32 is 0." in said
        assert "below 0.997 (worst 0." in said
    else:
        assert command() == 2
        pairs_file(near("model", "fp32"))
        capsys.readouterr()
        assert command("--dev", "pairs.tsv") == 2
        said = capsys.readouterr().err
        assert "100.00 %" in said
        assert "points of Spearman, more than 0.5" in said
    assert "\n fp32 " in said
    assert "\n int8 " in said
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text\tscore\nword1\t1\nword2\t2\n", "pairs.tsv:2: is a single text, and vectors are"),
        ("sentence1\tsentence2\tscore\nword1\tword2\tnear\n", "pairs.tsv:2: "),
        ("sentence1\tsentence2\tscore\nword1\tword2\t1\nword2\tword3\t1\n", "one number only"),
        ("sentence1\tsentence2\nword1\tword2\n", "pairs.tsv"),
        ("", "pairs.tsv"),
        (None, "pairs.tsv"),
    ],
)
@needs_kernels
def test_pairs_that_do_not_fit_are_refused_in_one_line(
    command: Callable[..., int],
    content: str | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        Path("pairs.tsv").write_text(content, encoding="utf-8")
    assert command("--dev", "pairs.tsv") == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@needs_kernels
def test_options_of_tasks_are_refused(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--truncation", "tail") == 2
    assert "--truncation and --stride are for a model fine-tuned" in capsys.readouterr().err


@needs_kernels
def test_texts_of_pairs_are_read_one_by_one(command: Callable[..., int]) -> None:
    pairs_file(range(len(PAIRS)))
    assert command(calibrate="pairs.tsv") == 0
    measured = json.loads(Path("out", QUANTIZED_FILE).read_text(encoding="utf-8"))["measured"]
    assert measured["texts"] + measured["compared"] == 2 * len(PAIRS)


def test_vectors_that_are_no_numbers_are_near_nothing() -> None:
    first = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, np.nan], [np.inf, 1.0]])
    np.testing.assert_allclose(cosines(first, np.ones((4, 2))), [3 / np.sqrt(10), 0, 0, 0])
    vectors = np.random.default_rng(0).normal(size=(100, 7))
    assert cosines(vectors, vectors).max() <= 1 <= cosines(vectors, vectors).min() + 1e-12


@needs_kernels
def test_texts_are_those_of_the_named_column(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """`text` would be taken where nothing says otherwise."""
    rows = [f"word1,{text}" for text in TEXTS]
    Path("named.csv").write_text("\n".join(["text,body", *rows, ""]), encoding="utf-8")
    figures = []
    for out, options in (
        ("lines", {"calibrate": "texts.txt"}),
        ("named", {"calibrate": "named.csv", "column": "body"}),
        ("usual", {"calibrate": "named.csv"}),
    ):
        named = ["--text-column", options["column"]] if "column" in options else []
        assert command(*named, "--json", calibrate=options["calibrate"]) == 0
        Path("out").rename(out)
        scores = json.loads(capsys.readouterr().out)["measured"]["precisions"]
        figures.append(scores["int8"]["scores"])
    assert figures[0] == figures[1] != figures[2]
    assert command("--text-column", "nobody", calibrate="named.csv") == 2
    assert "no column 'nobody'" in capsys.readouterr().err
