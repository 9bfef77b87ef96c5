"""Answers as workers write them: in the form of each dialect, part by part."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("starlette")
pytest.importorskip("orjson")

from bertsmith.serving.messages import Batch, Done, Inputs, Kind, Outcome, Outcomes
from bertsmith.serving.models.rendering import messages_of, outcomes_of
from serving_inline import Rig, facts, running, texts_of

Floats = NDArray[np.float32]
WIDTH = 5
MODELS = (facts(kind="vectors", can=("vectors",), width=WIDTH, token_width=WIDTH),)
TEXTS = [f"word{number}" for number in range(100)]
TRUNCATED = (3, 64)


def vector(number: int, rows: int = 1) -> Floats:
    """The vector of a text, or of each of its tokens; those of the last two have no length."""
    if number == 98:
        return np.zeros((rows, WIDTH), np.float32)
    if number == 99:
        return np.array([[np.nan, np.inf, 1e-30, 0, -0.0]] * rows, np.float32)
    return np.random.default_rng(number).normal(size=(rows, WIDTH)).astype(np.float32)


def vectors(batch: Batch) -> tuple[Outcome, ...]:
    """Answer each text with its vector, or those of its three tokens."""
    rows = 3 if batch.task == "token-vectors" else 1
    numbers = [TEXTS.index(asked.text) for asked in texts_of(batch)]
    return tuple(
        Outcome(
            place, answer=vector(number, rows).tobytes(), tokens=3, truncated=number in TRUNCATED
        )
        for place, number in enumerate(numbers)
    )


def read(number: float | None) -> float:
    return np.nan if number is None else number


def same(found: list[float | None], expected: Floats) -> bool:
    """Whether numbers are equal; what is no number is null."""
    numbers = np.array([read(number) for number in found], np.float32)
    return np.array_equal(
        numbers, np.where(np.isfinite(expected), expected, np.nan), equal_nan=True
    )


def unit(numbers: Floats) -> Floats:
    length = np.linalg.norm(numbers, axis=-1, keepdims=True)
    result: Floats = numbers / np.maximum(length, np.float32(1e-12))
    return result


async def ask(rig: Rig, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401
    response = await rig.post(path, body)
    assert response.status_code == 200, response.text
    if path != "/embed_all" or len(body["inputs"]) > TRUNCATED[1]:
        assert response.headers["x-truncated"] == "3,64"
    assert b" " not in response.content
    return response.json()


def test_vectors_have_the_form_of_each_dialect() -> None:
    async def test() -> None:
        async with running(MODELS, vectors) as rig:
            answer = (await ask(rig, "/answer", {"inputs": TEXTS}))["answers"]
            plain = await ask(rig, "/embed", {"inputs": TEXTS, "normalize": False})
            units = await ask(rig, "/embed", {"inputs": TEXTS})
            tokens = await ask(rig, "/embed_all", {"inputs": TEXTS})
            shown = await ask(rig, "/v1/embeddings", {"input": TEXTS})
            coded = await ask(rig, "/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"})
            assert shown["usage"] == {"prompt_tokens": 300, "total_tokens": 300}
            for number in range(100):
                cut, expected = number in TRUNCATED, vector(number)[0]
                mark = {"truncated": True} if cut else {}
                item = {"object": "embedding", "index": number, **mark}
                assert answer[number].keys() == {"vector", "truncated"}
                assert answer[number]["truncated"] is cut
                assert same(answer[number]["vector"], expected)
                assert same(plain[number], expected)
                assert same(units[number], unit(expected))
                assert all(
                    same(row, each)
                    for row, each in zip(tokens[number], vector(number, 3), strict=True)
                )
                assert same(shown["data"][number].pop("embedding"), unit(expected))
                data = base64.b64decode(coded["data"][number].pop("embedding"))
                assert np.array_equal(
                    np.frombuffer(data, np.float32), unit(expected), equal_nan=True
                )
                assert shown["data"][number] == coded["data"][number] == item

    asyncio.run(test())


def batch_of(*parts: Inputs, task: Kind = "vectors") -> Batch:
    return Batch(0, task, tuple((number, inputs, 0.0) for number, inputs in enumerate(parts)), 7)


def test_each_part_is_written_as_its_request_wants_it() -> None:
    inputs = Inputs(TEXTS[:4], rendering="embeddings")
    parts = (inputs.part(0, 1), inputs.part(1, 4).part(1, 2), Inputs(TEXTS[1:3]))
    batch = batch_of(*parts)
    first, second, third = outcomes_of(batch, vectors(batch))
    for number, each in enumerate((first, second)):
        assert isinstance(each.answers, bytes)
        head = b'{"object":"embedding","index":%d,"embedding":[' % (2 * number)
        assert each.answers.startswith(head)
    # a value for those who look into it
    assert third == Outcomes([vector(1).tobytes(), vector(2).tobytes()], [3, 3])


def test_a_part_without_all_answers_has_none() -> None:
    batch = batch_of(Inputs(["a", "b"], rendering="answers"), Inputs(["c"], rendering="answers"))
    found = outcomes_of(
        batch,
        [
            Outcome(0, answer={"score": 1}, tokens=5, truncated=True),
            Outcome(1, problem="too_long", message="it is long", tokens=900),
            Outcome(2, answer={"score": 1}, tokens=4),
        ],
    )
    assert found == [
        Outcomes(b"", [5, 0], (0,), ((1, "too_long", "it is long"),)),
        Outcomes(b'{"score":1,"truncated":false}', [4]),
    ]


def test_an_answer_that_cannot_be_written_fails_its_request_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def odd(batch: Batch) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(place, answer={"label": "\ud800" if asked.text == "odd" else "fine"})
            for place, asked in enumerate(texts_of(batch))
        )

    async def test() -> None:
        async with running(compute=odd) as rig:
            link = rig.links[0]
            link.held = True
            asked = [
                asyncio.create_task(rig.post("/answer", {"inputs": [text]}))
                for text in ("first", "odd", "fine", "fine")
            ]
            while rig.gateway.waiting < 4:
                await asyncio.sleep(0)
            while not all(each.done() for each in asked):
                link.release()
                await asyncio.sleep(0)
            assert [each.result().status_code for each in asked] == [200, 500, 200, 200]

    asyncio.run(test())
    assert "answers cannot be written as JSON: " in capfd.readouterr().err


def test_outcomes_are_sent_in_messages_of_a_size() -> None:
    sizes = [10, 200_000, 50_000, 50_000, 600_000, 1, 2]
    outcomes = [Outcomes(b"x" * size, [size]) for size in sizes]
    found = list(messages_of(7, outcomes, 0.5))
    assert [tuple(map(len, (each.answers for each in message.outcomes))) for message in found] == [
        (10, 200_000, 50_000), (50_000,), (600_000,), (1, 2),
    ]  # fmt: skip
    assert [(message.seconds, message.more, message.number) for message in found] == [
        (0, True, 7), (0, True, 7), (0, True, 7), (0.5, False, 7),
    ]  # fmt: skip
    assert [message.outcomes for message in messages_of(7, [], 0.5)] == [()]


def test_of_a_batch_that_comes_in_parts_those_that_came_are_answered() -> None:
    """Of the request whose answer had come all is well when the worker dies; others are refused."""

    async def test() -> None:
        async with running() as rig:
            link = rig.links[0]
            link.held = True
            blocking = [asyncio.create_task(rig.post("/answer", {"inputs": ["x"]})) for _ in "ab"]
            while len(link.batches) < 2:
                await asyncio.sleep(0)
            asked = [asyncio.create_task(rig.post("/answer", {"inputs": [x]})) for x in "cd"]
            while rig.gateway.waiting < 4:
                await asyncio.sleep(0)
            link.release()
            await blocking[0]
            link.release()
            await blocking[1]
            (batch,) = link.batches
            assert len(batch.entries) == 2
            written = Outcomes(b'"what the worker has written"', [1])
            rig.gateway.on_message(link, Done((written,), 0.0, batch.number, more=True))
            assert (await asked[0]).json()["answers"] == ["what the worker has written"]
            assert not asked[1].done()
            link.kill()
            assert (await asked[1]).status_code == 503

    asyncio.run(test())
