"""A worker computes what somebody waits for, and each text gets its own answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("starlette")
pytest.importorskip("orjson")

from bertsmith import load
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.predictor import Predictor, Request
from bertsmith.network.model import build_model
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.messages import Batch, Cancel, Done, Inputs, Outcomes
from bertsmith.serving.models.served import ServedModel, open_models
from bertsmith.serving.models.worker import Computing
from bertsmith.weights.folder import save_model
from bounds import check
from families import MODELS, TOKENIZERS

TEXTS = ("word1", "word9 word2", "word3 word4 word5")
NEVER = math.inf


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    save_model(folder, build_model(MODELS["bert-class"], seed=7), TOKENIZERS["bert"])
    return folder


@pytest.fixture
def served(folder: Path) -> ServedModel:
    engine = EngineConfig(precision="fp32")
    (model,) = open_models(ServeConfig(models=(str(folder),), engine=engine, device="cpu"), 1)
    return model


class Watched(Predictor[Any, Any]):
    """A predictor that tells what it is about to compute."""

    watch: Callable[[list[str]], None]

    def answer(self, requests: Sequence[Request[Any]]) -> Iterator[Any]:
        self.watch([request.example.text for request in requests])
        return super().answer(requests)


def watched(model: ServedModel, watch: Callable[[list[str]], None]) -> ServedModel:
    """The model, which calls a function with the texts of each batch before it computes them."""
    handler = model.handlers["classes"]
    predictor = Watched(
        model=handler.predictor.model, answering=handler.predictor.answering, threads=1
    )
    object.__setattr__(predictor, "watch", watch)
    return replace(model, handlers={"classes": replace(handler, predictor=predictor)})


def batch_of(*texts: str, deadline: float = NEVER, number: int = 1) -> Batch:
    """A batch of parts of a text each, numbered from 0."""
    return Batch(
        0, "classes", tuple((n, Inputs([text]), deadline) for n, text in enumerate(texts)), number
    )


def unsent(message: object) -> None:
    raise AssertionError(message)


def test_where_a_batch_fails_each_text_gets_its_own_answer_or_none(
    folder: Path, served: ServedModel, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(texts: list[str]) -> None:
        if TEXTS[1] in texts:
            raise ValueError(f"cannot compute {texts}")

    found = Computing([watched(served, fail)], unsent).answer(batch_of(*TEXTS))
    assert [outcome.problem for outcome in found] == [None, "failed", None]
    expected = load(folder, precision="fp32", threads=1, device="cpu").predict(list(TEXTS))
    for number in (0, 2):
        answer, probabilities = found[number].answer, expected[number]["probabilities"]
        assert answer["label"] == expected[number]["label"]
        shares = {item["label"]: item["score"] for item in answer["scores"]}
        check(list(shares.values()), [probabilities[label] for label in shares], 2e-6)
    # the message of an error may quote a text
    said = capfd.readouterr().err
    assert "ValueError at " in said
    assert "word9" not in said


def test_a_worker_whose_gpu_fails_gives_up_as_no_later_answer_could_be_computed(
    served: ServedModel,
) -> None:
    def fail(texts: list[str]) -> None:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    computing = Computing([watched(served, fail)], unsent)
    with pytest.raises(torch.AcceleratorError):
        computing.answer(batch_of(*TEXTS))


def test_a_worker_whose_gpu_is_full_goes_on(served: ServedModel) -> None:
    """Another program may have filled it for a while; the error has the class of a failure."""

    def fail(texts: list[str]) -> None:
        if "word9" in texts[0]:
            raise torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be")

    computing = Computing([watched(served, fail)], unsent)
    full, other = (computing.answer(batch_of(text))[0] for text in ("word9", "word1"))
    assert (full.problem, full.message) == ("failed", "not enough GPU memory")
    assert other.problem is None


def test_what_was_cancelled_or_is_late_is_not_computed(served: ServedModel) -> None:
    computed: list[str] = []
    done: list[Outcomes] = []

    def send(message: object) -> None:
        assert isinstance(message, Done)
        done.append(message.outcomes[1])

    computing = Computing([watched(served, computed.extend)], send)
    for number, (before, after) in enumerate([(False, False), (True, False), (False, True)]):
        computing.receive(batch_of(*TEXTS, number=number))
        if before:
            computing.receive(Cancel((1,)))
        computing.encode_next()
        if after:
            computing.receive(Cancel((1,)))
        computing.compute_next()
    assert computed == [*TEXTS, TEXTS[0], TEXTS[2], TEXTS[0], TEXTS[2]]
    expired = (0, "expired", "no client is waiting for it")
    assert [outcomes.problems for outcomes in done] == [(), (expired,), (expired,)]
    computed.clear()
    late = computing.answer(batch_of(*TEXTS, deadline=0.0))
    assert [outcome.problem for outcome in late] == ["expired"] * 3
    assert computed == []


def test_an_answer_that_is_no_number_is_the_fault_of_the_model(served: ServedModel) -> None:
    with torch.no_grad():
        served.handlers["classes"].predictor.model.get_parameter("heads.classify.bias")[0] = NEVER
    found = Computing([served], unsent).answer(batch_of(*TEXTS))
    assert [outcome.problem for outcome in found] == ["failed"] * 3
    assert all("not finite" in outcome.message for outcome in found)
