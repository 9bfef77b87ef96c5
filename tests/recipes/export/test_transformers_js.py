"""Folders for transformers.js, asked in node with local files only."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import bertsmith
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import build_model
from bertsmith.network.pooling import UnitLength
from bertsmith.recipes.export.config import ExportConfig
from bertsmith.recipes.export.recipe import export
from bertsmith.recipes.export.runtimes import BOUND, Arrays, Runtime, compare
from bertsmith.tasks.opening import open_embedder, vectors
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model
from bertsmith.weights.sentence_folder import SentenceSettings, write_sentence_files
from bounds import close_to_transformers, close_unit_vectors
from families import ENCODERS, MODELS, TOKENIZERS

PACKAGES = "BERTSMITH_TRANSFORMERS_JS"
LABELS = ("ham", "spam", "news")
TAGS = ("noun", "verb", "other")
TEXT = "word1 word2 word3 word7 word9"
pytestmark = pytest.mark.faults


@pytest.fixture
def packages() -> str:
    """The folder whose node_modules hold transformers.js."""
    pytest.importorskip("onnxscript")
    named = os.environ.get(PACKAGES)
    if not named or shutil.which("node") is None:
        pytest.skip(f"{PACKAGES}, a folder with @huggingface/transformers of npm, is not set")
    return named


def exported(folder: Path, **heads: Any) -> Path:  # noqa: ANN401
    """A model folder with a head, and beside it what is exported of it."""
    tokenizer: Tokenizer = TOKENIZERS["bert"]
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=32, layers=1, heads=2, feed_forward=37, longest=24,
        initial_std=0.4,
    )  # fmt: skip
    model = folder.with_name(f"{folder.name}-model")
    save_model(model, build_model(ModelConfig(encoder=encoder, **heads), seed=5), tokenizer)
    export(ExportConfig(model=model, to="transformers.js", out=folder))
    return model


def asked(packages: str, folders: Path, questions: list[dict[str, Any]]) -> list[Any]:
    script = Path(__file__).with_name("ask.mjs")
    done = subprocess.run(
        ["node", script, packages, folders],
        input=json.dumps([{"dtype": "fp32", "options": {}} | question for question in questions]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


class Node:
    """transformers.js in a process of node, which is asked again and again."""

    def __init__(self, packages: str, folders: Path) -> None:
        script = Path(__file__).with_name("tensors.mjs")
        self._process = subprocess.Popen(
            ["node", script, packages, folders],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def runtime(self, folder: str) -> Runtime:
        """A model of transformers.js, with tensors in and out."""

        def run(inputs: Mapping[str, NDArray[np.int64]]) -> Arrays:
            asked = {
                name: {"dims": item.shape, "data": item.ravel().tolist()}
                for name, item in inputs.items()
            }
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps({"folder": folder, "inputs": asked}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            assert line, self._process.wait()
            return {
                name: np.array(load["data"], np.float32).reshape(load["dims"])
                for name, load in json.loads(line).items()
            }

        return run

    def end(self) -> None:
        """Wait until it has ended."""
        self._process.communicate()


def example_runs(packages: str, folder: Path) -> str:
    """What the code of a folder's README.md prints, run as that says."""
    (code,) = re.findall(r"```js\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.S)
    (folder / "ask.mjs").write_text(code, encoding="utf-8")
    (folder / "node_modules").symlink_to(Path(packages).absolute() / "node_modules")
    done = subprocess.run(
        ["node", "ask.mjs"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("family", ENCODERS)
def test_every_family_and_head_in_node(packages: str, tmp_path: Path, family: FamilyName) -> None:
    tokenizer, node = TOKENIZERS[family], Node(packages, tmp_path)
    compared = 0
    for name, config in MODELS.items():
        if config.encoder.family == family:
            model = tmp_path / f"{name}-model"
            save_model(model, build_model(config, seed=7), tokenizer)
            export(ExportConfig(model=model, to="transformers.js", out=tmp_path / name))
            found = compare(node.runtime(name), load_model(model)[0].eval(), tokenizer)
            assert found.difference <= BOUND
            example_runs(packages, tmp_path / name)
            compared += 1
    assert compared >= 8
    node.end()


def test_node_gives_the_engines_answers(packages: str, tmp_path: Path) -> None:
    heads: dict[str, dict[str, Any]] = {
        "text-classification": {"predicts": "class", "labels": LABELS},
        "token-classification": {
            "predicts": "tags",
            "labels": TAGS,
            "pooler": False,
        },
        "fill-mask": {"masked_lm": True, "pooler": False},
        "question-answering": {"predicts": "span", "pooler": False},
        "feature-extraction": {},
    }
    models = {task: exported(tmp_path / task, **parts) for task, parts in heads.items()}
    masked = TEXT.replace("word3", "[MASK]")
    inputs: dict[str, list[Any]] = {task: [TEXT] for task in heads}
    inputs |= {"fill-mask": [masked], "question-answering": ["word4 word5", TEXT]}
    options: dict[str, dict[str, Any]] = {
        "feature-extraction": {"pooling": "mean", "normalize": True},
        "text-classification": {"top_k": 3},
        "token-classification": {"ignore_labels": []},
    }
    questions = [
        {"folder": task, "task": task, "inputs": inputs[task], "options": options.get(task, {})}
        for task in heads
    ]
    answers = dict(zip(heads, asked(packages, tmp_path, questions), strict=True))

    loaded = {task: bertsmith.load(model, precision="fp32") for task, model in models.items()}
    ours = loaded["text-classification"].predict([TEXT], top=3)[0]["probabilities"]
    theirs = {item["label"]: item["score"] for item in answers["text-classification"]}
    assert theirs == pytest.approx(ours, abs=1e-5)

    words = loaded["token-classification"].predict([{"tokens": TEXT.split()}])[0]["words"]
    tags = [word["tag"] for word in words]
    assert [item["entity"] for item in answers["token-classification"]] == tags

    pieces = loaded["fill-mask"].fill_mask(masked)[0]
    assert [item["token_str"] for item in answers["fill-mask"]] == [
        piece["piece"] for piece in pieces
    ]
    shares = [piece["probability"] for piece in pieces]
    assert [item["score"] for item in answers["fill-mask"]] == pytest.approx(shares, abs=1e-5)

    question = {"question": "word4 word5", "context": TEXT}
    answer = loaded["question-answering"].predict([question])[0]["answer"]
    assert answers["question-answering"]["answer"] == answer

    embedder = open_embedder(models["feature-extraction"])
    (vector,) = vectors(embedder, [TEXT])
    theirs_vector = np.array(answers["feature-extraction"][0])
    close_unit_vectors(theirs_vector, vector / np.linalg.norm(vector))


def test_the_readme_of_a_sentence_folder_gives_its_vectors(packages: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", build_model(MODELS["bert-none"], seed=7), TOKENIZERS["bert"])
    settings = SentenceSettings(
        network=Path(), pool=("mean",), after=(UnitLength(),), longest=9,
        prompts={"query": "word3 word4 "}, default_prompt="query",
    )  # fmt: skip
    write_sentence_files(tmp_path / "model", settings, MODELS["bert-none"].encoder)
    export(ExportConfig(model=tmp_path / "model", to="transformers.js", out=tmp_path / "web"))
    said = example_runs(packages, tmp_path / "web")
    texts = ["A text.", "Another, longer one."]
    expected = bertsmith.load(tmp_path / "model", precision="fp32").embed(texts)
    close_to_transformers(json.loads(said), expected)
