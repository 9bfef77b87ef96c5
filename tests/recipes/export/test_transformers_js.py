"""Folders for transformers.js, asked in node with local files only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes.export.config import ExportConfig
from bertsmith.recipes.export.recipe import export
from bertsmith.tasks.opening import open_embedder, vectors
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bounds import close_unit_vectors
from families import TOKENIZERS

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
        input=json.dumps([{"dtype": "fp32", "options": {}} | each for each in questions]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


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
    theirs = {each["label"]: each["score"] for each in answers["text-classification"]}
    assert theirs == pytest.approx(ours, abs=1e-5)

    words = loaded["token-classification"].predict([{"tokens": TEXT.split()}])[0]["words"]
    tags = [each["tag"] for each in words]
    assert [each["entity"] for each in answers["token-classification"]] == tags

    pieces = loaded["fill-mask"].fill_mask(masked)[0]
    assert [each["token_str"] for each in answers["fill-mask"]] == [
        each["piece"] for each in pieces
    ]
    shares = [each["probability"] for each in pieces]
    assert [each["score"] for each in answers["fill-mask"]] == pytest.approx(shares, abs=1e-5)

    question = {"question": "word4 word5", "context": TEXT}
    answer = loaded["question-answering"].predict([question])[0]["answer"]
    assert answers["question-answering"]["answer"] == answer

    embedder = open_embedder(models["feature-extraction"])
    (vector,) = vectors(embedder, [TEXT])
    theirs_vector = np.array(answers["feature-extraction"][0])
    close_unit_vectors(theirs_vector, vector / np.linalg.norm(vector))
