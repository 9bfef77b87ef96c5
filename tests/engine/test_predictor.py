"""One way to answer: requests, their sizes, and streams in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertsmith.engine import predictor as predictors
from bertsmith.engine.answers import Forward
from bertsmith.engine.language_model.fill_mask import MaskFilling
from bertsmith.engine.predictor import Predictor, windows
from bertsmith.network.model import Model
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer


def example(text: str) -> Example:
    return Example(text=text, text_pair=None, label=None, source="m", line=1)


@pytest.fixture
def predictor(model: Model, tokenizer: Tokenizer) -> Predictor[Example, object]:
    return Predictor(model=model, answering=MaskFilling(model, tokenizer, top=2), threads=1)


def test_a_request_knows_its_tokens(predictor: Predictor[Example, object]) -> None:
    _, request = predictor.encode([example("[MASK]"), example("word1 [MASK] word2")], 6)
    # with [CLS] and [SEP]
    assert request.tokens == 5
    assert request.number == 7
    assert not request.long
    held = [*request.encoded.ids, *request.encoded.segments, request.encoded.starts]
    assert not any(isinstance(item, torch.Tensor) for item in held)


def test_requests_are_answered_as_a_stream_is(predictor: Predictor[Example, object]) -> None:
    asked = [example(f"word{n} " * (1 + n % 5) + "[MASK]") for n in range(11)]
    requests = predictor.encode(asked)
    outputs = predictor.run(requests)
    decoded = list(map(predictor.answering.decode, requests, outputs))
    assert decoded == list(predictor.answer(requests)) == list(predictor(asked))
    assert list(predictor.answer([])) == list(predictor([])) == []


def test_a_stream_is_read_no_further_than_needed(predictor: Predictor[Example, object]) -> None:
    read: list[int] = []

    def asked() -> Iterator[Example]:
        for number in range(50):
            read.append(number)
            yield example("word1 [MASK]")

    answers = predictor(asked(), rows=4)
    for _ in range(5):
        next(answers)
    assert len(read) == 8


def test_a_request_has_its_number_in_the_whole_stream(model: Model, tokenizer: Tokenizer) -> None:
    class Numbered(MaskFilling):
        def decode(self, request: Any, output: Any) -> Any:  # noqa: ANN401
            return request.number

    answering: Any = Numbered(model, tokenizer, top=2)
    asked = [example(f"word{n} [MASK]") for n in range(7)]
    assert list(Predictor(model=model, answering=answering)(asked, rows=3)) == list(range(7))


def test_threads_are_those_asked_for_while_it_runs_alone(
    model: Model, tokenizer: Tokenizer
) -> None:
    seen: list[int] = []

    class Watched(MaskFilling):
        def outputs(self, *values: Any, **named: Any) -> Any:  # noqa: ANN401
            seen.append(torch.get_num_threads())
            return super().outputs(*values, **named)

    before = torch.get_num_threads()
    answering: Any = Watched(model, tokenizer, top=2)
    for threads in (before + 1, None):
        list(Predictor(model=model, answering=answering, threads=threads)([example("[MASK]")]))
    assert seen == [before + 1, before]
    assert torch.get_num_threads() == before


def test_a_pass_that_fails_leaves_the_model_as_it_was(model: Model, tokenizer: Tokenizer) -> None:
    encoded = MaskFilling(model, tokenizer, top=1).encode([example("[MASK]")] * 3)
    model.train()
    kept: list[BaseException] = []
    try:
        for _ in Forward(tokens_per_batch=3).batches(model, encoded):
            assert not model.training
            assert not torch.is_grad_enabled()
            raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        # its traceback holds the frame for as long as it is handled
        kept.append(error)
        assert model.training
        assert torch.is_grad_enabled()
    model.eval()


def test_rows_that_never_pause_are_kept_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log of 30 lines a second, the first answer came after 68 seconds."""
    now = 0.0
    monkeypatch.setattr(predictors, "time", SimpleNamespace(monotonic=lambda: now))

    def rows() -> Iterator[str]:
        nonlocal now
        for number in range(7):
            now += 0.4
            yield str(number)

    assert list(map(len, windows(rows(), 99, len, lambda: False))) == [4, 3]
    # of a file they are not waited for
    assert list(map(len, windows(rows(), 99, len))) == [7]
