"""A small pre-trained model's folder, and labelled texts that it can learn to tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from forking import forked_workers

WORDS = tuple(f"word{n}" for n in range(30))


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> Iterator[None]:
    """Leave the curves out of reports: matplotlib takes as long for them as small trainings do.

    The rest of a page, captions with their figures, is what it is. tests/training and test_demo.py
    draw.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.reports.page.curves_svg", lambda series, **_: "<svg></svg>")
        yield


@pytest.fixture(scope="module", autouse=True)
def quick_workers() -> Iterator[None]:
    """Fork workers: they start in no time."""
    with forked_workers():
        yield


@pytest.fixture(scope="module", autouse=True)
def brief_peak() -> Iterator[None]:
    """Measure the peak of the machine in a moment: tests/training measures it as long as usual."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_FIRST_SECONDS", "_LATER_SECONDS"):
            patch.setattr(f"bertsmith.training.peak.{name}", 0.04)
        yield


@pytest.fixture(scope="module", autouse=True)
def brief_trial() -> Iterator[None]:
    """Measure the speed of training with a step, not five: they take longer than most trainings.

    What is measured is said all the same. test_preflight.py and test_threads.py measure as usual.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.recipes.pretrain.speed.TRIAL_STEPS", 1)
        yield


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIALS, *WORDS, "good", "bad"), BasicRules(lowercase=True))


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A model folder with the heads of pre-training; no dropout, as pre-training leaves it."""
    encoder = EncoderConfig(
        vocabulary=37, hidden=24, layers=2, heads=3, feed_forward=48, longest=40,
        dropout=0.0, attention_dropout=0.0, initial_std=0.1,
    )  # fmt: skip
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    folder = tmp_path_factory.mktemp("base") / "model"
    save_model(folder, build_model(config, seed=2), tiny_tokenizer)
    return folder


@pytest.fixture(scope="session")
def labelled_rows() -> list[str]:
    """160 texts below a header, half with the word good (up), half with the word bad (down)."""
    random = np.random.default_rng(4)
    rows = ["label\ttext"]
    for number in range(160):
        words = random.choice(WORDS, random.integers(3, 9)).tolist()
        words.insert(int(random.integers(0, len(words))), "bad" if number % 2 else "good")
        rows.append(f"{'down' if number % 2 else 'up'}\t{' '.join(words)}")
    return rows


@pytest.fixture
def labelled(tmp_path: Path, labelled_rows: list[str]) -> Path:
    """The same rows as a file."""
    path = tmp_path / "labelled.tsv"
    path.write_text("\n".join(labelled_rows) + "\n", encoding="utf-8")
    return path
