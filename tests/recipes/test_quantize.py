"""int8 behind a gate: what is measured decides whether a folder is opened in int8."""

from __future__ import annotations

import filecmp
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import bertsmith
from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.core.kernels import instruction_set
from bertsmith.engine.prepared import multiplies_packed_bf16
from bertsmith.network.config import EncoderConfig, ModelConfig, Preprocessing
from bertsmith.network.model import build_model
from bertsmith.recipes import precision_gate
from bertsmith.recipes import quantize as quantizing
from bertsmith.recipes.precision_gate import (
    MeasuredPrecision,
    by_precision,
    difference_of_precisions,
    loss_note,
    refuse_slow_or_worse,
)
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.config import Reading, TextLength
from bertsmith.tasks.task import score_answers
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import QUANTIZED_FILE, load_model, save_model
from limits import files_of

needs_kernels = pytest.mark.skipif(instruction_set() is None, reason="no native kernels")


@pytest.fixture
def inputs(tiny_tokenizer: Tokenizer, tmp_path: Path) -> list[str]:
    """The command's arguments: a classifier, texts, and labels of which it knows most."""
    encoder = EncoderConfig(
        vocabulary=tiny_tokenizer.size, hidden=32, layers=2, heads=2, feed_forward=64, longest=24,
        initial_std=0.4,
    )  # fmt: skip
    config = ModelConfig(encoder=encoder, predicts="class", labels=("ham", "spam"))
    # with this seed both classes are given
    save_model(tmp_path / "model", build_model(config, seed=2), tiny_tokenizer)
    random = np.random.default_rng(1)
    texts = [
        " ".join(f"word{n}" for n in random.integers(1, 10, size))
        for size in random.integers(1, 12, 30)
    ]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    answers = bertsmith.load(tmp_path / "model", precision="fp32").predict(texts)
    rows = [f"{text},{answer['label']}" for text, answer in zip(texts, answers, strict=True)]
    assert len({answer["label"] for answer in answers}) == 2
    (tmp_path / "dev.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    paths = {"--calibrate": "texts.txt", "--dev": "dev.csv", "--out": "out"}
    options = [part for name, path in paths.items() for part in (name, str(tmp_path / path))]
    return ["quantize", str(tmp_path / "model"), *options, "--threads", "1"]


def timed(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], lost: float = 0.0) -> None:
    """Let the precisions take these times, and int8 lose so many points more."""
    measured = precision_gate.measure_precisions

    def instead(*values: Any) -> list[MeasuredPrecision]:  # noqa: ANN401
        return [
            MeasuredPrecision(
                precision=measurement.precision,
                seconds=seconds[measurement.precision],
                scores={
                    name: score - (lost / 100 if measurement.precision == "int8" else 0)
                    for name, score in measurement.scores.items()
                },
            )
            for measurement in measured(*values)
        ]

    monkeypatch.setattr(quantizing, "measure_precisions", instead)


@needs_kernels
def test_a_faster_model_that_is_as_good_is_opened_in_int8(
    inputs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    timed(monkeypatch, {"fp32": 3.0, "bf16": 2.0, "int8": 1.0})
    assert main([*inputs, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["measured"]["precisions"]["int8"]["seconds"] == 1.0
    out, model = tmp_path / "out", tmp_path / "model"
    names = [path.name for path in model.iterdir()]
    assert filecmp.cmpfiles(model, out, names, shallow=False)[0] == names
    assert "int8" in repr(bertsmith.load(out))
    assert "fp32" in repr(bertsmith.load(out, precision="fp32"))
    assert bertsmith.load(out).predict(["word1 word2"])[0]["label"] in ("ham", "spam")
    assert main(["predict", str(out), str(tmp_path / "texts.txt")]) == 0
    assert "engine: int8, native" in capsys.readouterr().err
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(out)
    assert loaded.config.id2label == {0: "ham", 1: "spam"}


@needs_kernels
def test_what_is_no_part_of_a_model_is_not_copied_nor_are_permissions(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, {"fp32": 3.0, "bf16": 2.0, "int8": 1.0})
    model = tmp_path / "model"
    out = model / "int8"
    names = {path.name for path in model.iterdir()} | {"1_Pooling", QUANTIZED_FILE}
    for name in (".git", "1_Pooling"):
        (model / name).mkdir()
        (model / name / "config.json").write_text("{}")
    (model / "config.json").chmod(0o444)
    (model / "1_Pooling").chmod(0o555)
    assert main([*inputs[: inputs.index("--out")], "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == names
    assert [path.name for path in (out / "1_Pooling").iterdir()] == ["config.json"]
    assert (out / "1_Pooling").stat().st_mode & (out / "config.json").stat().st_mode & 0o200


@needs_kernels
def test_another_model_than_the_one_that_was_measured_is_not_copied(
    inputs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse_nothing(measured: Sequence[MeasuredPrecision]) -> None:
        model, tokenizer = load_model(tmp_path / "model")
        save_model(tmp_path / "model", build_model(model.config, seed=3), tokenizer)

    monkeypatch.setattr(quantizing, "refuse_slow_or_worse", refuse_nothing)
    assert main(inputs) == 2
    assert f"{tmp_path / 'model'}: was changed while it was in use" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@needs_kernels
def test_a_full_disk_ends_the_copy_in_one_line(
    inputs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    timed(monkeypatch, {"fp32": 3.0, "bf16": 2.0, "int8": 1.0})
    with files_of(1000):
        assert main(inputs) == 2
    assert f"{tmp_path / 'out'}: cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@needs_kernels
def test_a_slower_or_worse_one_is_refused_with_the_table(
    inputs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:
        # slower than both, since many processors measure no bf16
        timed(patched, {"fp32": 1.25, "bf16": 1.0, "int8": 1.5})
        assert main(inputs) == 2
        said = capsys.readouterr().err
        fastest = (
            "1.50 times the time of bf16"
            if multiplies_packed_bf16()
            else "1.20 times the time of fp32"
        )
        assert f"int8 is not faster here: {fastest}" in said
        assert "1500" in said
    with monkeypatch.context() as patched:
        timed(patched, {"fp32": 3.0, "bf16": 2.0, "int8": 1.0}, lost=51.0)
        assert main(inputs) == 2
        assert "points of accuracy, more than 0.5" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def of(precision: Any, seconds: float, score: float) -> MeasuredPrecision:  # noqa: ANN401
    return MeasuredPrecision(precision=precision, seconds=seconds, scores={"accuracy": score})


@pytest.mark.parametrize(
    ("bf16", "int8", "score", "message"),
    [
        (2.0, 1.9, 0.898, None),
        (2.0, 2.0, 0.9, "int8 is not faster here: 1.00 times the time of bf16"),
        (5.0, 3.5, 0.9, "1.17 times the time of fp32"),
        (2.0, 1.0, 0.894, "int8 costs 0.60 points of accuracy"),
        (2.0, 1.0, 0.99, None),
        (2.0, 1.0, float("nan"), "these labelled rows give no accuracy"),
    ],
)
def test_the_gate(bf16: float, int8: float, score: float, message: str | None) -> None:
    measured = [of("fp32", 3.0, 0.9), of("bf16", bf16, 0.9), of("int8", int8, score)]
    if message is None:
        refuse_slow_or_worse(measured)
        return
    with pytest.raises(ConfigError, match=message):
        refuse_slow_or_worse(measured)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"cosine": 0.9971, "worst_cosine": 0.9}, None),
        ({"cosine": 0.9969, "worst_cosine": 0.9}, "is 0.9969, below 0.997 .worst 0.9000."),
        ({"spearman": 0.8951, "cosine": 0.99}, None),
        ({"spearman": 0.8949, "cosine": 0.999}, "int8 costs 0.51 points of Spearman"),
        ({"spearman": float("nan"), "cosine": 0.999}, "these labelled rows give no Spearman"),
    ],
)
def test_the_gate_of_vectors(scores: dict[str, float], message: str | None) -> None:
    exact = {"spearman": 0.9, "cosine": 1.0, "worst_cosine": 1.0}
    measured = [
        MeasuredPrecision(
            precision="fp32", seconds=2.0, scores={name: exact[name] for name in scores}
        ),
        MeasuredPrecision(precision="int8", seconds=1.0, scores=scores),
    ]
    if message is None:
        refuse_slow_or_worse(measured)
        return
    with pytest.raises(ConfigError, match=message):
        refuse_slow_or_worse(measured)


@needs_kernels
def test_a_task_is_judged_by_labelled_examples(
    inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = inputs.index("--dev")
    assert main([*inputs[:place], *inputs[place + 2 :]]) == 2
    assert "is judged by labelled examples; give --dev" in capsys.readouterr().err


def test_a_file_that_says_something_else_is_refused(inputs: list[str]) -> None:
    path = Path(inputs[1]) / QUANTIZED_FILE
    path.write_text('{"precision": "int3"}', encoding="utf-8")
    with pytest.raises(ModelFolderError, match="does not say precision int8"):
        bertsmith.load(inputs[1])


@needs_kernels
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
def test_texts_are_read_with_the_columns_of_the_user_or_of_training(
    inputs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    trained: bool,
) -> None:
    """`text` would be taken where nothing says otherwise."""
    (tmp_path / "texts.txt").write_text("word1 word2\nword3\n", encoding="utf-8")
    (tmp_path / "texts.csv").write_text("text,body\nno,word1 word2\nno,word3\n", encoding="utf-8")
    rows = [{"text": "no", "body": text} for text in ("word1 word2", "word3")]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    dev = (tmp_path / "dev.csv").read_text(encoding="utf-8").splitlines()
    lines = ["text,body,label", *(f"no,{line}" for line in dev[1:])]
    (tmp_path / "dev.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if trained:
        model, tokenizer = load_model(tmp_path / "model")
        read = Preprocessing(longest=24, text_column="body", label_column="label")
        model.config = replace(model.config, preprocessing=read)
        save_model(tmp_path / "model", model, tokenizer)
    asked: list[str] = []

    def measured(*values: Any) -> list[MeasuredPrecision]:  # noqa: ANN401
        asked.extend(request.example.text for request in values[1].timed)
        return [of("fp32", 1.0, 0.9), of("int8", 2.0, 0.9)]

    monkeypatch.setattr(quantizing, "measure_precisions", measured)
    inputs[inputs.index("--calibrate") + 1] = str(tmp_path / f"texts.{kind}")
    columns = [] if trained else ["--text-column", "body", "--label-column", "label"]
    assert main([*inputs, *columns]) == 2
    assert asked == ["word1 word2", "word3"]


def test_few_of_very_long_texts_are_read(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_gate, "_CHARACTERS", 3000)
    texts, folder = tmp_path / "long.txt", Path(inputs[1])
    texts.write_text(("word1 " * 200 + "\n") * 20, encoding="utf-8")
    task, _ = load_model(folder)
    bare = build_model(ModelConfig(encoder=task.config.encoder, pooler=False), seed=1)
    for model, dev in ((task, tmp_path / "dev.csv"), (bare, None)):
        length = TextLength(max_length=12)
        answering = precision_gate.judged_answering(
            model, Tokenizer.load(folder), None, length, where=folder
        )
        gate = precision_gate.read_gate(answering, model.config, texts, dev, Reading())
        compared = 0 if dev else gate.counts["compared"]
        assert gate.counts["texts"] + compared == 3


def test_texts_are_timed_from_all_of_the_file(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file in the order of lengths, the first ones are the short ones."""
    monkeypatch.setattr(precision_gate, "_TEXTS", 8)
    texts, folder = tmp_path / "sorted.txt", Path(inputs[1])
    texts.write_text("word1\n" * 8 + "\n \n" + "word1 word2 word3\n" * 7, encoding="utf-8")
    model, _ = load_model(folder)
    answering = precision_gate.judged_answering(
        model, Tokenizer.load(folder), None, TextLength(max_length=12), where=folder
    )
    gate = precision_gate.read_gate(answering, model.config, texts, tmp_path / "dev.csv", Reading())
    assert [request.tokens for request in gate.timed] == [3] * 5 + [5] * 3


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        # no loss on 30 rows leaves room for 1 - 0.025 ** (1 / 30)
        (0, "int8 less fp32: +0.00 points of accuracy (95 % over rows like these: -11.57 to"),
        (3, "int8 less fp32: -10.00 points of accuracy (95 % over rows like these: -2"),
    ],
)
def test_a_loss_is_told_with_what_other_rows_might_have_shown(wrong: int, told: str) -> None:
    """Thirty rows let int8 pass as if it lost nothing, and nothing said how little they prove."""
    labels = ("ham", "spam")
    rows = [
        Example(text=f"text {n}", text_pair=None, label=labels[n % 2], source="dev", line=n)
        for n in range(30)
    ]
    shares = np.eye(2)[[n % 2 for n in range(30)]]
    exact = score_answers(CLASSIFY, rows, list(shares), labels)
    small = score_answers(CLASSIFY, rows, [*(1 - shares[:wrong]), *shares[wrong:]], labels)
    measured = [
        MeasuredPrecision(precision="fp32", seconds=2.0, scores=exact.scores),
        MeasuredPrecision(
            precision="int8", seconds=1.0, scores=small.scores,
            difference=difference_of_precisions(CLASSIFY, labels, small, exact),
        ),
    ]  # fmt: skip
    note = loss_note(measured)
    assert note.startswith(told)
    assert note.endswith("these rows are too few to exclude a loss of more than 0.5")
    assert by_precision(measured)["int8"]["difference"]["points"] == pytest.approx(-wrong / 30)
    assert "difference" not in by_precision(measured)["fp32"]
