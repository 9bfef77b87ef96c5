"""The page at /, in headless Chromium, before a server whose answers are laid down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from starlette.applications import Starlette
from starlette.testclient import TestClient

from bertsmith.serving.http.page import FILES, POLICY, page_routes
from browsing.chromium import Page, Pipes, browser
from browsing.fake_server import HANG_UP, KINDS, Fake, Laid, models, serving

__all__ = ["browser"]

DONE = "['answered', 'problem'].includes(document.body.dataset.state)"
# as a screen reader would find them: what lies below the heading Answer
SUMMARY = "document.getElementById('summary').textContent"
PROBLEM = "document.getElementById('problem').textContent"
# where each character of an element is drawn
LEFT_OF_EACH = """((element) => {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), range = new Range();
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (let at = 0; at < node.data.length; at += 1) {
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      found.push(range.getBoundingClientRect().left);
    }
  }
  return found;
})"""
MARKS = "[...document.querySelectorAll('#answer mark')].map((each) => each.textContent)"
BARS = """[...document.querySelectorAll('#answer .bars li')].map((each) => [
  each.querySelector('.what').textContent, each.querySelector('.figure').textContent,
  each.className])"""
PASSAGE = "In 1843 the 🎩 of Ada Lovelace was in London."
ENTITIES = [
    {
        "start": PASSAGE.index(text), "end": PASSAGE.index(text) + len(text),
        "label": label, "score": 0.9, "text": text,
    }
    for text, label in (("Ada Lovelace", "PER"), ("London", "LOC"))
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Fake]:
    with serving(Fake(models())) as fake:
        yield fake


@pytest.fixture
def fake(server: Fake) -> Fake:
    server.asked.clear()
    server.keys.clear()
    server.info = None
    return server


@pytest.fixture(scope="module")
def tab(browser: Pipes) -> Page:
    return Page(browser)


@pytest.fixture
def page(tab: Page, fake: Fake) -> Iterator[Page]:
    """The page, opened anew; nothing may be wrong at the end."""
    tab.forget()
    tab.look(width=1100, height=800)
    tab.open(fake.address)
    yield tab
    wrong = [
        complaint for complaint in tab.complaints() if "the server responded with" not in complaint
    ]
    assert wrong == []
    assert all(item.startswith(fake.address) for item in tab.requested())


def pick(page: Page, model: str, task: str | None = None) -> None:
    for name, value in (("model", model), ("task", task)):
        if value is not None:
            page.evaluate(
                f"(() => {{ const own = document.getElementById({name!r}); own.value = {value!r};"
                "own.dispatchEvent(new Event('change')); })()"
            )


def write(page: Page, name: str, text: str) -> None:
    page.evaluate(f"document.getElementById('field-{name}').select()")
    page.type(text)


def ask(page: Page) -> None:
    page.evaluate("document.getElementById('send').click()")
    page.wait(DONE)


def listed(*rows: tuple[str, str, str]) -> list[list[str]]:
    return [list(row) for row in rows]


SHOWN: dict[str, tuple[str, dict[str, str], list[Any], Any, str, str, Any]] = {
    # model, what is typed, answers, inputs that are sent, summary, what is looked at, what is there
    "classes": (
        "reviews",
        {"text": "Fine."},
        [{"label": "good", "score": 0.75, "truncated": True, "scores": [
            {"label": "bad", "score": 0.25}, {"label": "good", "score": 0.75}]}],
        ["Fine."],
        "good, 75.0 % (the text was cut off)",
        BARS,
        listed(("good", "75.0 %", "best"), ("bad", "25.0 %", "")),
    ),
    "multi-label": (
        "topics",
        {"text": "Notes."},
        [{"labels": ["film"], "scores": [
            {"label": "music", "score": 0.004}, {"label": "film", "score": 0.7}]}],
        ["Notes."],
        "film",
        BARS,
        listed(("film (chosen)", "70.0 %", "best"), ("music", "0.40 %", "")),
    ),
    "regression": (
        "stars",
        {"text": "One.", "text_pair": "Two."},
        [{"value": -2.7182}],
        [{"text": "One.", "text_pair": "Two."}],
        "Value -2.718",
        MARKS,
        [],
    ),
    "tags": (
        "names",
        {"text": PASSAGE},
        [{"entities": ENTITIES}],
        [PASSAGE],
        "2 found: Ada Lovelace: PER; London: LOC",
        MARKS,
        ["Ada Lovelace PER", "London LOC"],
    ),
    "spans": (
        "reader",
        {"question": "Where?", "context": PASSAGE},
        [{"answer": "London", "start": 37, "end": 43, "score": 0.5}],
        [{"question": "Where?", "context": PASSAGE}],
        "London, 50.0 %",
        MARKS,
        ["London"],
    ),
    "no answer": (
        "reader",
        {"question": "Who?", "context": PASSAGE},
        [{"answer": None, "start": None, "end": None, "score": None}],
        [{"question": "Who?", "context": PASSAGE}],
        "The passage contains no answer",
        MARKS,
        [],
    ),
    "choices": (
        "choosing",
        {"text": "So", "choices": "one\n\n two \nthree"},
        [{"choice": 1, "scores": [0.2, 0.5, 0.3]}],
        [{"text": "So", "choices": ["one", "two", "three"]}],
        "two",
        BARS,
        listed(("one", "20.0 %", ""), ("two", "50.0 %", "best"), ("three", "30.0 %", "")),
    ),
    "choices about a passage": (
        "choosing",
        {"text": "Where?", "choices": "one\ntwo", "context": PASSAGE},
        [{"choice": 0, "scores": [0.75, 0.25]}],
        [{"question": "Where?", "context": PASSAGE, "choices": ["one", "two"]}],
        "one",
        BARS,
        listed(("one", "75.0 %", "best"), ("two", "25.0 %", "")),
    ),
    "ranking": (
        "search",
        {"query": "Q", "texts": "one\ntwo\nthree"},
        [{"scores": [-1.5, 7.25, 0.0]}],
        [{"query": "Q", "texts": ["one", "two", "three"]}],
        "First: two",
        BARS,
        listed(("two", "7.250", "best"), ("three", "0.000", ""), ("one", "-1.500", "")),
    ),
    "fill-mask": (
        "pretrained",
        {"text": "A [MASK]."},
        [{"masks": [{"start": 2, "end": 8, "candidates": [
            {"token": "cat", "score": 0.5, "text": "cat"},
            {"token": "dog", "score": 0.125, "text": "dog"}]}]}],
        ["A [MASK]."],
        "cat",
        BARS,
        listed(("cat", "50.0 %", "best"), ("dog", "12.5 %", "")),
    ),
    "next-sentence": (
        "pretrained",
        {"text": "One.", "text_pair": "Two."},
        [{"score": 0.25}],
        [{"text": "One.", "text_pair": "Two."}],
        "The second text does not follow, 75.0 %",
        BARS,
        listed(("follows", "25.0 %", ""), ("does not follow", "75.0 %", "best")),
    ),
    "vectors": (
        "pretrained",
        {"query": "Q", "texts": "far\nnear"},
        [{"vector": [3.0, 4.0]}, {"vector": [4.0, -3.0]}, {"vector": [6.0, 8.0]}],
        ["Q", "far", "near"],
        "Nearest: near",
        BARS,
        listed(("near", "1.000", "best"), ("far", "0.000", "")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHOWN)
def test_an_answer_is_shown(case: str, page: Page, fake: Fake) -> None:
    model, typed, answers, inputs, summary, looked, there = SHOWN[case]
    task = case if case in KINDS[model] else KINDS[model][0]
    fake.answers(*answers)
    pick(page, model, task)
    for name, text in typed.items():
        write(page, name, text)
    ask(page)
    assert page.evaluate(PROBLEM) == ""
    assert fake.asked == [{"model": model, "task": task, "inputs": inputs, "truncate": False}]
    assert page.evaluate(SUMMARY) == summary
    assert page.evaluate(looked) == there
    cost = page.evaluate("document.getElementById('cost').textContent")
    assert cost.startswith("12.3 ms in the server · ")
    assert cost.endswith(" · 9 tokens")


def test_small_numbers_and_negative_scores_are_told_apart(page: Page, fake: Fake) -> None:
    fake.answers({"value": 0.000217})
    pick(page, "stars")
    write(page, "text", "One.")
    write(page, "text_pair", "Two.")
    ask(page)
    assert page.evaluate(SUMMARY) == "Value 0.000217"
    fake.answers({"scores": [-9.5, -1.5, -5.5]})
    pick(page, "search")
    write(page, "query", "Q")
    write(page, "texts", "one\ntwo\nthree")
    ask(page)
    widths = "[...document.querySelectorAll('#answer .bar span')].map((each) => each.style.width)"
    assert page.evaluate(widths) == ["100%", "50%", "0%"]


def test_classes_that_are_left_out_are_counted(page: Page, fake: Fake) -> None:
    hint = "document.querySelector('#answer .hint')?.textContent"
    own = {"label": "bad", "score": 0.75}
    for scores, told in (([own], "The most probable of 2 classes."), ([own, own], None)):
        fake.answers(own | {"scores": scores})
        write(page, "text", "Fine.")
        ask(page)
        assert page.evaluate(hint) == told


def test_marks_stand_where_the_server_counted(page: Page, fake: Fake) -> None:
    """The server counts characters, a browser counts halves of some of them."""
    fake.answers({"entities": ENTITIES})
    pick(page, "names")
    write(page, "text", PASSAGE)
    ask(page)
    shown = page.evaluate("document.querySelector('#answer .text').textContent")
    assert shown == PASSAGE.replace("Lovelace", "Lovelace PER").replace("London", "London LOC")
    legend = page.evaluate("document.querySelector('#answer .legend').textContent")
    assert legend == "LOC 1PER 1"


def test_arabic_does_not_turn_round_what_is_beside_it(page: Page, fake: Fake) -> None:
    """A tag stands beside its word, not behind the next number; a share stands behind its label."""
    text, place = (
        "\u0645\u0646 \u062f\u0645\u0634\u0642 2024 \u0625\u0644\u0649",
        "\u062f\u0645\u0634\u0642",
    )
    start = text.index(place)
    entity = {"start": start, "end": start + len(place), "text": place, "label": "LOC", "score": 1}
    fake.answers({"entities": [entity]})
    pick(page, "names")
    write(page, "text", text)
    ask(page)
    assert page.evaluate("document.querySelector('#answer mark').getClientRects().length") == 1
    assert page.evaluate(SUMMARY) == f"1 found: {place}: LOC"
    fake.answers({"label": place, "score": 0.295, "scores": [{"label": place, "score": 0.295}]})
    pick(page, "reviews")
    write(page, "text", text)
    ask(page)
    assert page.evaluate(SUMMARY) == f"{place}, 29.5 %"
    lefts = page.evaluate(f"{LEFT_OF_EACH}(document.getElementById('summary'))")[len(place) :]
    assert len(lefts) == len(", 29.5 %")
    assert lefts == sorted(lefts)


@pytest.mark.parametrize("model", KINDS)
def test_every_example_can_be_sent(model: str, page: Page, fake: Fake) -> None:
    fake.refuses(400, "not today")
    for task in KINDS[model]:
        pick(page, model, task)
        count = page.evaluate("document.querySelectorAll('#examples button').length")
        assert count > 0
        for number in range(count):
            page.evaluate(f"document.querySelectorAll('#examples button')[{number}].click()")
            page.wait(DONE)
            assert page.evaluate(PROBLEM) == "Not today."
        assert len(fake.asked) == count
        fake.asked.clear()


def test_strings_of_others_are_only_text(page: Page, fake: Fake) -> None:
    evil = "<img src=x onerror=document.title='got'><b>\u202e"
    fake.models[0]["name"], usual = evil, fake.models[0]["name"]
    try:
        page.open(fake.address)
        fake.answers({"label": evil, "score": 1.0, "scores": [{"label": evil, "score": 1.0}]})
        write(page, "text", evil)
        ask(page)
        assert page.evaluate(SUMMARY) == f"{evil}, 100.0 %"
        fake.refuses(400, evil)
        ask(page)
        assert page.evaluate(PROBLEM) == f"{evil}."
    finally:
        fake.models[0]["name"] = usual
    assert page.evaluate("document.querySelectorAll('img, b').length") == 0
    assert page.evaluate("document.title") == "bertsmith: try a model"
    # the policy stops a page that forgets itself
    refused = "(() => { try { document.body.innerHTML = '<b>'; } catch { return 'refused'; } })()"
    assert page.evaluate(refused) == "refused"
    assert page.complaints()
    page.forget()


@pytest.mark.parametrize(
    ("status", "message", "headers", "words"),
    [
        (
            429, "", {"Retry_After": "3"},
            "The server is busy: its queue is full. Try again in 3 seconds.",
        ),
        (
            413, 'the input has 612 tokens, and the model reads 512; "truncate": true reads '
            "its beginning", {},
            "The input has 612 tokens, and the model reads 512. Shorten the text, or tick "
            "“Cut off texts that are too long”.",
        ),
        (
            503, "draining", {},
            "The server cannot answer now: it is starting, stopping, or a worker was replaced. "
            "Try again soon. (Draining.)",
        ),
        (504, "30 s", {}, "The answer took too long. (30 s.)"),
        (500, "a fault", {}, "The server failed (500). A fault."),
        (422, "no [MASK] in the text", {}, "No [MASK] in the text."),
    ],
)  # fmt: skip
def test_an_error_is_said_in_words(
    status: int, message: str, headers: dict[str, str], words: str, page: Page, fake: Fake
) -> None:
    fake.answers({"label": "good", "score": 1.0, "scores": []})
    write(page, "text", "before")
    ask(page)
    fake.refuses(status, message, **headers)
    ask(page)
    assert page.evaluate(PROBLEM) == words
    assert page.evaluate(SUMMARY) == ""
    # and everything goes on
    fake.answers({"label": "good", "score": 1.0, "scores": []})
    ask(page)
    assert page.evaluate(f"[{PROBLEM}, {SUMMARY}]") == ["", "good, 100.0 %"]


def test_truncation_is_asked_for(page: Page, fake: Fake) -> None:
    fake.refuses(413, "the input has 612 tokens, and the model reads 512")
    page.evaluate("document.getElementById('truncate').click()")
    write(page, "text", "long")
    ask(page)
    assert fake.asked[0]["truncate"] is True
    assert page.evaluate(PROBLEM) == "The input has 612 tokens, and the model reads 512."


def test_a_server_that_hangs_up_is_noticed(page: Page, fake: Fake) -> None:
    fake.answer = HANG_UP
    write(page, "text", "hello")
    ask(page)
    said = page.evaluate(PROBLEM)
    assert said == "The server cannot be reached. Is it still running?"
    page.forget()


def test_a_key_is_asked_for_and_sent(page: Page, fake: Fake) -> None:
    fake.info = Laid(401, {"error": {"message": "no key"}})
    page.open(fake.address)
    page.wait("document.activeElement.id === 'key'")
    said = "document.getElementById('problem').textContent"
    assert page.evaluate(said) == "The server requires a key."
    page.type("another")
    page.press("Enter")
    page.wait(f"{said} === 'The server does not know this key.'")
    page.evaluate("document.getElementById('key').value = ''")
    page.type("a secret")
    fake.info = None
    page.press("Enter")
    page.wait("document.body.dataset.state === 'ready'")
    fake.answers({"label": "good", "score": 1.0, "scores": []})
    write(page, "text", "hello")
    ask(page)
    assert fake.keys == ["Bearer a secret"]
    page.open(fake.address)
    assert page.evaluate("document.getElementById('key').value") == ""


def test_it_needs_no_mouse(page: Page, fake: Fake) -> None:
    fake.answers({"label": "good", "score": 1.0, "scores": []})
    order = []
    for _ in range(10):
        page.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert order == [
        "skip", "model", "task", "field-text", *3 * ["quiet"], "truncate", "live", "send",
    ]  # fmt: skip
    for _ in range(6):
        page.press("Tab", shift=True)
    page.type("hello")
    page.press("Enter", control=True)
    page.wait(DONE)
    assert page.evaluate(SUMMARY) == "good, 100.0 %"
    assert page.evaluate("document.activeElement.id") == "field-text"


def test_an_empty_field_is_named_and_gets_the_focus(page: Page, fake: Fake) -> None:
    pick(page, "reader")
    write(page, "question", "Who?")
    ask(page)
    assert page.evaluate(PROBLEM) == "The field “Passage” is empty."
    assert page.evaluate("document.activeElement.id") == "field-context"
    assert fake.asked == []


def test_it_answers_while_one_types(page: Page, fake: Fake) -> None:
    fake.answers({"label": "good", "score": 1.0, "scores": []})
    page.evaluate("document.getElementById('live').click()")
    write(page, "text", "hello")
    page.wait(DONE)
    assert page.evaluate(SUMMARY) == "good, 100.0 %"


@pytest.mark.parametrize("live", [True, False])
def test_a_text_that_is_removed_is_waited_for_no_longer(live: bool, page: Page, fake: Fake) -> None:
    fake.open.clear()
    write(page, "text", "first")
    if live:
        page.evaluate("document.getElementById('live').click()")
    page.evaluate("document.getElementById('send').click()")
    busy = "document.getElementById('answer').getAttribute('aria-busy')"
    assert page.evaluate(busy) == "true"
    page.evaluate(
        "(() => { const own = document.getElementById('field-text'); own.value = '';"
        "own.dispatchEvent(new Event('input')); })()"
    )
    if not live:
        page.evaluate("document.getElementById('send').click()")
    page.evaluate(
        "new Promise((done) => { const look = () => document.body.dataset.state === 'asking'"
        " ? setTimeout(look, 10) : done(); look(); setTimeout(done, 5000); })"
    )
    fake.open.set()
    assert page.evaluate(busy) is None
    assert page.evaluate(PROBLEM) == ("" if live else "The field “Text” is empty.")


def test_a_late_answer_does_not_replace_a_later_one(page: Page, fake: Fake) -> None:
    fake.open.clear()
    write(page, "text", "first")
    fake.answers({"label": "bad", "score": 1.0, "scores": []})
    page.evaluate("document.getElementById('send').click()")
    assert page.evaluate("document.getElementById('answer').getAttribute('aria-busy')") == "true"
    fake.answers({"label": "good", "score": 1.0, "scores": []})
    page.evaluate("document.getElementById('send').click()")
    fake.open.set()
    page.wait(DONE)
    assert page.evaluate(SUMMARY) == "good, 100.0 %"


def test_a_screen_reader_finds_its_way(page: Page, fake: Fake) -> None:
    fake.answers({"masks": [{"start": 0, "end": 6, "candidates": [
        {"token": "cat", "score": 0.5, "text": "cat"}]}]})  # fmt: skip
    # what will speak is there before it does
    assert {("status", ""), ("alert", "")} <= set(page.accessible())
    pick(page, "pretrained", "fill-mask")
    write(page, "text", "[MASK]")
    ask(page)
    found = page.accessible()
    for item in (
        ("combobox", "Model"), ("combobox", "Task"),
        ("checkbox", "Cut off texts that are too long"),
        ("textbox", "Text with [MASK] for each missing word"), ("group", "Examples"),
        ("button", "Answer"), ("heading", "Answer"), ("form", "Question"), ("main", ""),
        ("region", "Answer"), ("link", "Skip to the text"), ("status", ""), ("list", ""),
    ):  # fmt: skip
        assert item in found, item
    controls = {"combobox", "textbox", "checkbox", "button", "link"}
    assert [result for result in found if result[0] in controls and not result[1]] == []


@pytest.mark.parametrize("dark", [False, True])
def test_everything_can_be_read(dark: bool, page: Page, fake: Fake) -> None:
    """Contrast in both colours, of every hue of tags, and no sideways scrolling on a telephone."""
    page.look(width=320, height=640, dark=dark)
    words = [f"word{number}" for number in range(8)]
    entities = [
        {"start": 6 * at, "end": 6 * at + 5, "label": f"T{at}", "score": 1.0, "text": word}
        for at, word in enumerate(words)
    ]
    fake.answers({"entities": entities})
    pick(page, "names")
    write(page, "text", " ".join(words) + " " + 60 * "long")
    ask(page)
    assert page.pale() == []
    fake.refuses(429, "")
    ask(page)
    assert page.pale() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_it_works_below_a_path(page: Page, fake: Fake) -> None:
    """As behind a reverse proxy that gives the server a folder."""
    page.open(f"{fake.address}some/where/")
    fake.answers({"label": "good", "score": 1.0, "scores": []})
    write(page, "text", "hello")
    ask(page)
    assert page.evaluate(SUMMARY) == "good, 100.0 %"


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=page_routes()))


@pytest.mark.parametrize("path", FILES)
def test_a_file_comes_with_its_policy(path: str, client: TestClient) -> None:
    found = client.get(f"/{path}")
    assert found.status_code == 200
    assert found.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["content-type"] == FILES[path][1]
    # nothing inline, nothing from elsewhere
    inline = r"https?://|<style|<[^>]+\s(style|on\w+)=|innerHTML|eval\("
    assert re.search(inline, found.text) is None
    again = client.get(f"/{path}", headers={"if-none-match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = client.head(f"/{path}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(found.content))
    assert client.post(f"/{path}").status_code == 405


def test_the_page_needs_no_more_than_it_brings(client: TestClient) -> None:
    """Every file that a file names is among those served, and every one is named."""
    named = {
        name
        for path in FILES
        for name in re.findall(
            r'(?:href="page/|src="page/|from "\./)(\w+\.\w+)"', client.get(f"/{path}").text
        )
    }
    assert {f"page/{name}" for name in named} == set(FILES) - {""}
