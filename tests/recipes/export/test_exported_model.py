"""The answers of a task through an exported file, and the gate of int8 that measures them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.cli.main import main
from bertsmith.core.errors import ModelFolderError
from bertsmith.engine.predictor import Predictor
from bertsmith.network.model import Model, build_model
from bertsmith.network.pooling import Dense, UnitLength
from bertsmith.recipes import precision_gate
from bertsmith.recipes.export import recipe as exporting
from bertsmith.recipes.export.config import ExportConfig
from bertsmith.recipes.export.graph import PaddedModel
from bertsmith.recipes.export.recipe import read_int8_gate
from bertsmith.recipes.export.runtimes import Arrays, ExportedModel, compare, open_onnx
from bertsmith.recipes.precision_gate import MeasuredPrecision
from bertsmith.recipes.predict.recipe import answer_rows, open_rows
from bertsmith.tasks.answering import TaskAnswering, answering_of
from bertsmith.tasks.config import AnsweringConfig, Reading
from bertsmith.weights.folder import save_model
from bertsmith.weights.sentence_folder import SentenceSettings, write_sentence_files
from bounds import close_to_transformers
from families import MODELS, TOKENIZERS

WORDS = [f"word{number}" for number in range(20)]
TEXTS = [{"text": text} for text in ("word1 word2", "word3", " ".join(WORDS))]
ASKED: dict[str, list[Any]] = {
    "bert-class": TEXTS,
    "modernbert-classes": TEXTS,
    "roberta-number": TEXTS,
    "albert-tags": [{"tokens": WORDS}, {"tokens": WORDS[:3]}],
    "electra-span": [{"question": "word1", "context": " ".join(WORDS)}],
    "bert-choice": [
        {"text": "word3", "choices": WORDS[:3]},
        {"text": "word4", "choices": ["a", "b"]},
    ],
}


def in_torch(model: Model, sentence: SentenceSettings | None = None) -> Any:  # noqa: ANN401
    """What a runtime does, by the padded model itself."""
    graph = PaddedModel(model, sentence)

    def run(inputs: Any) -> Arrays:  # noqa: ANN401
        with torch.no_grad():
            found = graph(**{name: torch.from_numpy(item) for name, item in inputs.items()})
        return {name: result.numpy() for name, result in zip(graph.outputs, found, strict=True)}

    return run


def rounded(value: Any) -> Any:  # noqa: ANN401
    """A record with numbers that rounding leaves equal."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("output", ["logits", "seq_relationship_logits"])
@pytest.mark.parametrize(("batch", "wrong"), [(0, 1e-3), (1, np.nan), (4, 1e-3)])
def test_a_file_that_differs_in_one_output_of_one_batch_is_refused(
    output: str, batch: int, wrong: float
) -> None:
    model = build_model(MODELS["bert-pretraining"], seed=7).eval()
    tokenizer, run = TOKENIZERS["bert"], in_torch(model)
    assert compare(run, model, tokenizer).batches == 5
    count = 0

    def wrong_once(inputs: Any) -> Arrays:  # noqa: ANN401
        nonlocal count
        found: Arrays = run(inputs)
        if count == batch:
            found[output].reshape(-1)[-1] += wrong * max(1, np.abs(found[output]).max())
        count += 1
        return found

    with pytest.raises(ModelFolderError, match=f"the exported {output} differ from the engine's"):
        compare(wrong_once, model, tokenizer)


@pytest.mark.parametrize("case", ASKED)
def test_a_task_is_answered_through_a_file(tmp_path: Path, case: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ASKED[case]), encoding="utf-8")
    model = build_model(MODELS[case], seed=7).eval()
    tokenizer = TOKENIZERS[model.config.encoder.family]
    answering = answering_of(model, tokenizer, AnsweringConfig(), where="model")
    assert isinstance(answering, TaskAnswering)
    stand_in = ExportedModel(model.config, in_torch(model), pad_id=tokenizer.pad_id)
    mine, other = (
        [
            record
            for _, record in answer_rows(
                Predictor(model=item, answering=answering),
                answering,
                open_rows(model.config, answering, str(file), Reading())[1],
            )
        ]
        for item in (stand_in, model)
    )
    assert len(mine) == len(ASKED[case])
    assert mine == rounded(other)


@pytest.mark.parametrize("sentence", [True, False])
def test_vectors_are_judged_through_a_file(tmp_path: Path, sentence: bool) -> None:
    model, tokenizer = build_model(MODELS["bert-none"], seed=7).eval(), TOKENIZERS["bert"]
    save_model(tmp_path / "model", model, tokenizer)
    settings = None
    if sentence:
        after = (Dense(torch.randn(13, 64), torch.randn(13), "Tanh"), UnitLength())
        settings = SentenceSettings(network=Path(), pool=("cls", "max"), after=after, longest=9)
        write_sentence_files(tmp_path / "model", settings, model.config.encoder)
    texts = [item["text"] for item in TEXTS]
    (tmp_path / "texts.txt").write_text("\n".join([*texts, ""]), encoding="utf-8")
    config = ExportConfig(
        model=tmp_path / "model", to="onnx", out=tmp_path / "out", precision="int8",
        calibrate=tmp_path / "texts.txt",
    )  # fmt: skip
    judged = read_int8_gate(config, model.config, tokenizer, settings)
    assert isinstance(judged, precision_gate.VectorGate)
    stand_in = ExportedModel(model.config, in_torch(model, settings), pad_id=tokenizer.pad_id)
    predictor = Predictor(model=stand_in, answering=judged.answering)
    mine = [item.vectors for item in predictor.answer([*judged.timed, *judged.compared])]
    # those timed, and those between them
    other = bertsmith.load(tmp_path / "model", precision="fp32").embed(
        [texts[i] for i in (0, 2, 1)]
    )
    close_to_transformers(np.stack(mine), other)


@pytest.mark.faults
def test_int8_vectors_are_written_where_they_are_faster_and_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    config = MODELS["bert-none"]
    encoder = replace(config.encoder, layers=1, hidden=64, feed_forward=128)
    save_model(
        tmp_path / "model",
        build_model(replace(config, encoder=encoder), seed=2),
        TOKENIZERS["bert"],
    )
    settings = SentenceSettings(network=Path(), after=(UnitLength(),), longest=9)
    write_sentence_files(tmp_path / "model", settings, encoder)
    texts = "".join(f"{' '.join(WORDS[first : first + 5])}\n" for first in range(15))
    (tmp_path / "texts.txt").write_text(texts, encoding="utf-8")
    options = ["--precision", "int8", "--calibrate", str(tmp_path / "texts.txt"), "--threads", "1"]
    command = ["export", str(tmp_path / "model"), "--to", "onnx", *options, "--out"]
    measure, shift = precision_gate.measure_precisions, 0.0

    def timed(*values: Any) -> list[MeasuredPrecision]:  # noqa: ANN401
        exact, small = measure(*values)
        assert 0.99 < small.scores["worst_cosine"] < small.scores["cosine"] < 1
        cosine = small.scores["cosine"] - shift
        scores = {**small.scores, "cosine": cosine}
        return [replace(exact, seconds=3.0), replace(small, seconds=1.0, scores=scores)]

    monkeypatch.setattr(exporting, "measure_precisions", timed)
    assert main([*command, str(tmp_path / "out"), "--json"]) == 0
    said = capsys.readouterr()
    scores = json.loads(said.out)["int8"]["precisions"]["int8"]["scores"]
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "outputs for a text differ a little with the texts beside it" in readme
    assert "tokenizer.enable_truncation(9)" in readme
    assert f"| int8 | 1000 | {scores['cosine']:.5f} | {scores['worst_cosine']:.5f} |" in readme
    shift = 0.01
    assert main([*command, str(tmp_path / "far")]) == 2
    assert "mean cosine of int8 vectors with those of fp32" in capsys.readouterr().err
    assert not (tmp_path / "far").exists()


@pytest.mark.faults
def test_int8_is_written_where_it_is_faster_and_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    tokenizer, config = TOKENIZERS["bert"], MODELS["bert-class"]
    encoder = replace(config.encoder, layers=1, hidden=64, feed_forward=128, initial_std=0.3)
    config = replace(config, encoder=encoder)
    save_model(tmp_path / "model", build_model(config, seed=2), tokenizer)
    texts = [" ".join(WORDS[first : first + 5]) for first in range(15)]
    given = bertsmith.load(tmp_path / "model", precision="fp32").predict(texts)
    rows = [f"{text},{item['label']}" for text, item in zip(texts, given, strict=True)]
    (tmp_path / "dev.csv").write_text("\n".join(["text,label", *rows, ""]), encoding="utf-8")
    (tmp_path / "texts.txt").write_text("\n".join([*texts, ""]), encoding="utf-8")
    options = ["--precision", "int8", "--calibrate", str(tmp_path / "texts.txt")]
    options += ["--dev", str(tmp_path / "dev.csv"), "--threads", "1"]
    command = ["export", str(tmp_path / "model"), "--to", "transformers.js", *options, "--out"]
    measure = precision_gate.measure_precisions

    def timed(*values: Any) -> list[MeasuredPrecision]:  # noqa: ANN401
        exact, small = measure(*values)
        # of labels that this model barely tells apart some change
        return [replace(exact, seconds=3.0), replace(small, seconds=seconds, scores=exact.scores)]

    monkeypatch.setattr(exporting, "measure_precisions", timed)
    seconds = 4.0
    assert main([*command, str(tmp_path / "slow")]) == 2
    assert "int8 is not faster here: 1.33" in capsys.readouterr().err
    assert not (tmp_path / "slow").exists()
    seconds = 1.0
    assert main([*command, str(tmp_path / "out")]) == 0
    # its products are of int8, and its answers near
    runtime = open_onnx(tmp_path / "out" / "onnx" / "model_quantized.onnx")
    assert b"MatMulInteger" in (tmp_path / "out/onnx/model_quantized.onnx").read_bytes()
    ids = torch.randint(5, 99, (3, 9), generator=torch.Generator().manual_seed(1)).numpy()
    inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids % 2}
    exact = open_onnx(tmp_path / "out" / "onnx" / "model.onnx")(inputs)["logits"]
    assert abs(runtime(inputs)["logits"] - exact).max() < 0.1 * abs(exact).max()


def test_onnx_runtime_is_imported_without_its_telemetry(tmp_path: Path) -> None:
    """It reports to Microsoft, and leaves a file of its session where temporary files are."""
    program = (
        "from bertsmith.recipes.export.program import import_onnxruntime; "
        "print(import_onnxruntime().__name__)"
    )
    environment = {key: value for key, value in os.environ.items() if "TELEMETRY" not in key}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"TMPDIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "onnxruntime\n"
    assert not (tmp_path / ".ses").exists()
