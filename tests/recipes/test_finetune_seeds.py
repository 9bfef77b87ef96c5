from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from bertsmith.batches.examples import EncodedExamples, encode_examples
from bertsmith.layers.attention import SelfAttention
from bertsmith.models.model import Model
from bertsmith.recipes.seeds import FinetuneConfig, SeedResult, run_seed, set_dropout
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.interruption import Interrupted
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import start_from

CONFIG = FinetuneConfig(epochs=2, batch=8, rate=1e-3, precision="fp32", dropout=0.1)


@pytest.fixture
def examples(tiny_tokenizer: Tokenizer) -> EncodedExamples:
    texts = [f"word{n % 30} " * (1 + n % 5) + ("good" if n % 3 else "bad") for n in range(61)]
    labels = np.array([int(n % 3 > 0) for n in range(61)], np.int64)
    return encode_examples(tiny_tokenizer, texts, labels=labels, longest=32)


@pytest.fixture
def make_model(base_folder: Path) -> Callable[[int], Model]:
    return lambda seed: start_from(base_folder, labels=("no", "yes"), seed=seed)[0]


def test_a_seed_decides_everything(
    examples: EncodedExamples, make_model: Callable[[int], Model]
) -> None:
    first, again, other = (
        run_seed(make_model, examples, examples, CONFIG, seed)[0] for seed in (1, 1, 2)
    )
    assert first.losses == again.losses != other.losses
    assert np.array_equal(first.predictions, again.predictions)
    assert [step for step, _ in first.losses] == list(range(1, 17))


def test_a_stopped_training_goes_on_to_the_same_end(
    examples: EncodedExamples, make_model: Callable[[int], Model], tmp_path: Path
) -> None:
    steps = 0

    def stop(*_: Any) -> None:  # noqa: ANN401
        nonlocal steps
        steps += 1
        if steps == 6:
            signal.raise_signal(signal.SIGINT)

    def stopping(seed: int) -> Model:
        model = make_model(seed)
        model.encoder.register_forward_pre_hook(stop)
        return model

    folder = RunFolder(tmp_path / "seeds" / "seed-1")
    with pytest.raises(Interrupted):
        run_seed(stopping, examples, examples, CONFIG, 1, folder)
    assert steps == 6
    trained = 0

    def count(encoder: nn.Module, _: Any) -> None:  # noqa: ANN401
        nonlocal trained
        trained += encoder.training

    def counting(seed: int) -> Model:
        model = make_model(seed)
        model.encoder.register_forward_pre_hook(count)
        return model

    resumed, model = run_seed(counting, examples, examples, CONFIG, 1, folder)
    assert trained == 16 - 6
    whole, expected = run_seed(make_model, examples, examples, CONFIG, 1, RunFolder(tmp_path / "x"))
    assert resumed.losses == whole.losses
    assert resumed.accuracy == whole.accuracy
    assert all(
        np.array_equal(a.detach(), b.detach())
        for a, b in zip(model.parameters(), expected.parameters(), strict=True)
    )


def test_dropout_is_that_of_fine_tuning(
    examples: EncodedExamples, make_model: Callable[[int], Model]
) -> None:
    model = make_model(1)
    assert model.config.encoder.dropout == 0.0
    set_dropout(model, 0.25)
    assert model.config.encoder.dropout == model.config.encoder.attention_dropout == 0.25
    assert model.encoder.config == model.config.encoder
    assert all(part.p == 0.25 for part in model.modules() if isinstance(part, nn.Dropout))
    attention = [part for part in model.modules() if isinstance(part, SelfAttention)]
    assert [part.dropout for part in attention] == [0.25, 0.25]
    with_dropout = run_seed(make_model, examples, examples, CONFIG, 1)[0]
    without = FinetuneConfig.from_dict(CONFIG.to_dict() | {"dropout": 0.0})
    assert with_dropout.losses != run_seed(make_model, examples, examples, without, 1)[0].losses


def test_a_result_survives_its_file_and_knows_failure() -> None:
    result = SeedResult(
        seed=3,
        accuracy=0.5,
        macro_f1=1 / 3,
        predictions=np.array([1, 1, 1], np.int64),
        losses=[(2, 0.75), (4, 0.5)],
        seconds=1.5,
        tokens=77,
    )
    again = SeedResult.from_dict(result.to_dict())
    assert again.to_dict() == result.to_dict()
    assert result.degenerate
    assert not SeedResult.from_dict(result.to_dict() | {"predictions": [1, 0, 1]}).degenerate
