"""Requests of many texts: what waits, is sent and cancelled are parts of them, not texts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("orjson")

from bertsmith.serving.messages import Batch, Inputs, Outcome
from serving_inline import Rig, facts, lengths, running, texts_of

MODELS = (facts(max_input_length=8000),)
SHORT = ["word1 word2"] * 1000


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks go on until something holds."""
    while not condition():
        await asyncio.sleep(0)


async def figure(rig: Rig, name: str) -> float:
    """A figure of /metrics."""
    lines = (await rig.client.get("/metrics")).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"bertsmith_{name} "))


def test_a_thousand_short_texts_wait_and_are_sent_as_a_few_parts() -> None:
    async def test() -> None:
        async with running(MODELS) as rig:
            link = rig.links[0]
            link.held = True
            asked = asyncio.create_task(rig.post("/answer", {"inputs": SHORT}))
            await until(lambda: len(link.batches) == 2)
            sent = sum(len(texts_of(batch)) for batch in link.batches)
            assert 0 < sent < 1000
            assert 0 < len(rig.gateway.queue) + sum(len(each.entries) for each in link.batches) < 50
            assert await figure(rig, "queue_texts") == 1000 - sent
            link.held = False
            link.release()
            link.release()
            assert (await asked).status_code == 200
            assert await figure(rig, "queue_texts") == 0

    run(test)


def test_answers_of_many_texts_of_any_length_come_in_their_order() -> None:
    draw = random.Random(7)
    texts = [str(number) + "x" * int(draw.paretovariate(0.5)) for number in range(300)]
    texts = [text[:2500] for text in texts]
    assert {len(text) > 1000 for text in texts} == {True, False}

    async def test() -> None:
        async with running(MODELS, workers=2) as rig:
            response = await rig.post("/answer", {"inputs": texts})
            assert [each["label"] for each in response.json()["answers"]] == texts

    run(test)


def test_the_text_that_is_wrong_is_named_by_its_number_in_the_request() -> None:
    def compute(batch: Batch) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(number, problem="too_long", message="it is too long")
            if asked.text == "y"
            else outcome
            for number, (asked, outcome) in enumerate(
                zip(texts_of(batch), lengths(batch), strict=True)
            )
        )

    async def test() -> None:
        async with running(MODELS, compute) as rig:
            response = await rig.post("/answer", {"inputs": ["x"] * 77 + ["y"] + ["x"] * 400})
            assert response.status_code == 400
            assert "input 77: it is too long" in response.text
            assert await figure(rig, "queue_texts") == 0

    run(test)


def test_what_remains_of_a_request_whose_client_hangs_up_is_cancelled() -> None:
    async def test() -> None:
        async with running(MODELS) as rig:
            link = rig.links[0]
            link.held = True
            asked = asyncio.create_task(rig.post("/answer", {"inputs": SHORT}))
            await until(lambda: len(link.batches) == 2)
            sent = {number for batch in link.batches for number, _, _ in batch.entries}
            asked.cancel()
            # at once, and not when the deadline passes
            for _ in range(100):
                await asyncio.sleep(0)
            assert rig.gateway.waiting == 0
            assert link.cancelled == sent
            assert (len(rig.gateway.queue), rig.gateway.queue.tokens) == (0, 0)
            assert await figure(rig, "queue_texts") == 0

    run(test)


def test_an_answer_that_comes_too_late_is_dropped_and_its_worker_goes_on() -> None:
    async def test() -> None:
        async with running(MODELS, deadline=0.5) as rig:
            link = rig.links[0]
            link.held = True
            assert (await rig.post("/answer", {"inputs": ["late"]})).status_code == 504
            assert link.cancelled
            # it was being computed when it was cancelled
            link.release()
            link.held = False
            response = await rig.post("/answer", {"inputs": ["in time"]})
            assert [each["label"] for each in response.json()["answers"]] == ["in time"]
            assert rig.links == [link]

    run(test)


def test_tokens_that_are_shown_say_nothing_of_the_pace_of_a_model() -> None:
    """After them a batch was eight times too large, and small requests waited for it as long."""

    async def most(rig: Rig) -> int:
        """The most tokens that a worker gets at once."""
        link = rig.links[0]
        link.held = True
        asked = asyncio.create_task(rig.post("/answer", {"inputs": ["word " * 10] * 1000}))
        await until(lambda: link.batches)
        found = max(sum(len(each.text) for each in texts_of(batch)) for batch in link.batches)
        link.held = False
        for _ in list(link.batches):
            link.release()
        assert (await asked).status_code == 200
        return found

    async def test() -> None:
        async with running([facts(max_input_length=512)], told_or_tokens) as rig:
            before = await most(rig)
        async with running([facts(max_input_length=512)], told_or_tokens) as rig:
            rig.links[0].seconds = 0.0001
            for _ in range(50):
                tokens = await rig.post("/tokenize", {"inputs": ["word " * 100] * 8})
                assert tokens.status_code == 200
            rig.links[0].seconds = 0.001
            assert await most(rig) == before

    run(test)


def told_or_tokens(batch: Batch) -> tuple[Outcome, ...]:
    """Answer each text, or return as many tokens as it has words."""
    if batch.task != "tokens":
        return lengths(batch)
    return tuple(
        Outcome(number, answer=[], tokens=len(asked.text.split()))
        for number, asked in enumerate(texts_of(batch))
    )


def test_texts_that_wait_until_their_deadline_are_counted_though_no_worker_is_free() -> None:
    async def test() -> None:
        async with running(MODELS, deadline=0.2) as rig:
            link = rig.links[0]
            link.held = True
            asked = [rig.post("/answer", {"inputs": SHORT}) for _ in range(2)]
            assert [(await each).status_code for each in asked] == [504, 504]
            sent = sum(len(texts_of(batch)) for batch in link.batches)
            assert 0 < sent < 2 * len(SHORT)
            assert await figure(rig, "expired_texts_total") == 2 * len(SHORT) - sent
            assert await figure(rig, "queue_texts") == 0

    run(test)


def test_texts_are_counted_where_parts_of_them_expire_or_are_lost() -> None:
    async def test() -> None:
        async with running(MODELS, deadline=0.5) as rig:
            link = rig.links[0]
            link.held = True
            assert (await rig.post("/answer", {"inputs": SHORT})).status_code == 504
            lost = sum(len(texts_of(batch)) for batch in link.batches)
            link.kill()
            await until(lambda: rig.gateway.ready and len(rig.links) == 2)
            assert await figure(rig, "lost_texts_total") == lost
            assert await figure(rig, "queue_texts") == 0
            assert (await rig.post("/answer", {"inputs": SHORT})).status_code == 200

    run(test)


def test_inputs_of_every_form_have_the_sizes_of_their_texts() -> None:
    choices = [("a", "bc"), (), ("ä", "d", "e" * 9)]
    with_choices = Inputs(["xyz", "ü", "x"], choices=choices, top=3)
    # each option is read with the text
    assert with_choices.sizes() == [3 * 2 + 3, 0, 3 + 2 + 1 + 9]
    assert with_choices.longest() == [3, 1, 9]
    pairs = Inputs(["xyz", "ü", "x"], ["four", None, "ßs"], truncate=True)
    assert pairs.sizes() == [7, 2, 4]
    assert pairs.longest() == [4, 1, 2]
    questions = Inputs(["xyz", "ü", "x"], ["four", None, "ß"], choices)
    assert questions.sizes() == [7 * 2 + 3, 0, 3 * 3 + 2 + 1 + 9]
    assert questions.longest() == [4, 1, 9]
    for inputs in (with_choices, pairs, questions, Inputs(["a", "b", "c"])):
        assert len(inputs) == 3
        assert [*inputs.part(0, 2), *inputs.part(2, 3)] == list(inputs)
    assert [(each.text, each.second, each.truncate) for each in pairs][1:] == [
        ("ü", None, True), ("x", "ßs", True),
    ]  # fmt: skip
    assert [(each.choices, each.top) for each in with_choices] == [(each, 3) for each in choices]


def test_a_query_that_stands_before_many_texts_is_measured_once() -> None:
    measured = []

    class Query(str):
        def isascii(self) -> bool:
            measured.append(self)
            return super().isascii()

    query, other = Query("é" * 9), Query("o")
    inputs = Inputs([query] * 1000 + [other], ["a"] * 1001)
    assert inputs.sizes() == [19] * 1000 + [2]
    assert measured == [query, other]


FORMS: dict[str, tuple[str, list[Any], list[tuple[str, str | None, tuple[str, ...] | None]]]] = {
    "texts": ("classes", ["a", "b"], [("a", None, None), ("b", None, None)]),
    "texts and pairs": (
        "classes", ["a", {"text": "b", "text_pair": "c"}, {"text": "d"}],
        [("a", None, None), ("b", "c", None), ("d", None, None)],
    ),
    "questions": ("spans", [{"question": "a", "context": "b"}], [("a", "b", None)]),
    "choices": ("choices", [{"text": "a", "choices": ["b", "c"]}], [("a", None, ("b", "c"))]),
    "questions with choices": (
        "choices",
        [
            {"question": "a", "context": "b", "choices": ["c"]},
            {"text": "a", "choices": ["b"]},
        ],
        [("a", "b", ("c",)), ("a", None, ("b",))],
    ),
    "rankings": (
        "ranking", [{"query": "a", "texts": ["b", "c"]}, {"query": "d", "texts": ["e"]}],
        [("a", "b", None), ("a", "c", None), ("d", "e", None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_inputs_of_every_form_reach_the_worker_as_they_were_asked(name: str) -> None:
    kind, inputs, expected = FORMS[name]
    found: list[tuple[str, str | None, tuple[str, ...] | None]] = []

    def compute(batch: Batch) -> tuple[Outcome, ...]:
        found.extend((each.text, each.second, each.choices) for each in texts_of(batch))
        return tuple(
            Outcome(number, answer={"score": number}) for number in range(len(texts_of(batch)))
        )

    async def test() -> None:
        async with running((facts(kind=kind, can=(kind,)),), compute) as rig:
            response = await rig.post("/answer", {"inputs": inputs})
            assert response.status_code == 200, response.text
            answers = response.json()["answers"]
            if kind == "ranking":
                assert [each["scores"] for each in answers] == [[0, 1], [2]]
            else:
                assert [each["score"] for each in answers] == list(range(len(inputs)))
            wrong = [*inputs, {"query": "a", "texts": ["b"]}]
            if kind != "ranking":
                refused = await rig.post("/answer", {"inputs": wrong})
                assert f"input {len(inputs)} is not of the form" in refused.text

    run(test)
    assert found == expected
