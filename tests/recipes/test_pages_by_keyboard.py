"""The pages of inspect and explain without a pointer, and as a screen reader meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes.config import ExplainConfig, ExplainingConfig, InspectConfig
from bertsmith.recipes.explain import explain
from bertsmith.recipes.inspect import inspect
from bertsmith.reports import annotations as annotated
from bertsmith.reports import inspection
from bertsmith.reports.drawing import Drawing
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model, start_from
from browsing.chromium import Page, Pipes, browser

__all__ = ["browser"]

FOCUS = "document.activeElement"
DRAWINGS = ("grouped_bars", "head_map", "heat_map", "layer_lines", "layer_panels")
SHADES = """(() => {
  const button = document.getElementById("head-0-0"), cell = button.parentElement;
  for (let at = 0; at <= 100; at++) {
    const other = button.cloneNode(true);
    [other.style.background, other.style.color] = shade(at / 100);
    cell.append(other);
  }
})()"""
WORDS = (("word1", 2, "det"), ("word2", 3, "nsubj"), ("good", 0, "root"), ("word3", 3, "obj"))


def opened(browser: Pipes, file: Path, shown: str) -> Page:
    page = Page(browser)
    page.look(width=900, height=800)
    # keys go to the page whatever other tabs there are
    page.ask("Page.bringToFront")
    page.ask("Emulation.setFocusEmulationEnabled", enabled=True)
    page.ask("Page.navigate", url=file.as_uri())
    page.wait(f"document.readyState === 'complete' && document.querySelector({shown!r})")
    return page


def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until what has the focus is as wanted; fail at the end of the page."""
    for _ in range(60):
        page.press("Tab")
        if page.evaluate(f"{FOCUS}.matches({wanted!r})"):
            return
        assert page.evaluate(f"{FOCUS} !== document.body"), wanted
    raise AssertionError(wanted)


def nameless(page: Page) -> list[str]:
    """Return the roles of what a person can use, or is a picture, and has no name."""
    used = ("button", "combobox", "link", "image", "img", "region", "navigation", "table")
    page.ask("Accessibility.enable")
    return [role for role, name in page.accessible() if role in used and not name.strip()]


def test_heads_texts_and_relations_are_reached_by_keys(
    browser: Pipes, base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (annotated, inspection):
        for name in DRAWINGS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *_, **__: Drawing("<svg></svg>", b"png"))
    lines = [f"{n}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_"
             for n, (word, head, relation) in enumerate(WORDS, 1)]  # fmt: skip
    (tmp_path / "made.conllu").write_text("\n".join(3 * [*lines, ""]) + "\n", encoding="utf-8")
    out = tmp_path / "page.html"
    inspect(InspectConfig(model=base_folder, file=str(tmp_path / "made.conllu"), out=out))
    page = opened(browser, out, "#texts button")
    assert nameless(page) == []
    # numbers can be read on every shade that a head may have
    page.evaluate(SHADES)
    assert page.pale() == []
    # the first and the last of the shades are on paper too
    assert {(0.2667, 0.0039, 0.3294), (0.9922, 0.9059, 0.1451)} <= page.printed_colours()
    page.evaluate("choose()")
    page.press("Tab")
    assert page.evaluate(f"{FOCUS}.textContent") == "Skip the contents"
    tab_to(page, "#statistic")
    tab_to(page, "#head-0-0")
    page.press("ArrowDown")
    page.press("ArrowRight")
    assert page.evaluate(f"{FOCUS}.id") == "head-1-1"
    assert page.evaluate("document.getElementById('head-title').textContent").startswith("Head 2-2")
    tab_to(page, "#texts button")
    page.press("Tab")
    page.press("Enter")
    # the focus stays on what was chosen
    assert page.evaluate(f"{FOCUS}.matches('#texts li:nth-child(2) button[aria-pressed=true]')")
    tab_to(page, "#drawing [data-token]")
    page.press("ArrowDown")
    page.press("Enter")
    assert page.evaluate(f"{FOCUS}.getAttribute('aria-pressed')") == "true"
    told = page.evaluate(f"{FOCUS}.getAttribute('aria-label')")
    assert told.startswith("word1 attends to ")
    tab_to(page, "#relation")
    sentences = page.evaluate(
        "[...document.querySelectorAll('.sentence')].map((each) => each.textContent)"
    )
    assert len(sentences) == 3
    assert all("word1 (dependent) word2 (its head)" in sentence for sentence in sentences)
    assert page.complaints() == []


HEBREW = (("דוד", 2, "nsubj"), ("קרא", 0, "root"), ("ספר", 2, "obj"), (".", 2, "punct"))
# the left edges of the first and the last letter of an element's text
EDGES = """(selector => {
  const walker = document.createTreeWalker(document.querySelector(selector), NodeFilter.SHOW_TEXT);
  const letters = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.parentElement.matches('.unseen')) {
      [...node.data].forEach((letter, at) => letter.trim() && letters.push([node, at]));
    }
  }
  return [letters[0], letters.at(-1)].map(([node, at]) => {
    const range = document.createRange();
    range.setStart(node, at); range.setEnd(node, at + 1);
    return range.getBoundingClientRect().left;
  });
})"""


def test_texts_from_right_to_left_end_on_the_left(
    browser: Pipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (annotated, inspection):
        for name in DRAWINGS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *_, **__: Drawing("<svg></svg>", b"png"))
    tokenizer = Tokenizer((*SPECIALS, *(word for word, _, _ in HEBREW)), BasicRules(lowercase=True))
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=48, longest=40
    )
    config = ModelConfig(encoder=encoder, masked_lm=True)
    save_model(tmp_path / "model", build_model(config, seed=2), tokenizer)
    lines = [f"{n}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_"
             for n, (word, head, relation) in enumerate(HEBREW, 1)]  # fmt: skip
    (tmp_path / "made.conllu").write_text("\n".join(3 * [*lines, ""]) + "\n", encoding="utf-8")
    out, file = tmp_path / "page.html", str(tmp_path / "made.conllu")
    inspect(InspectConfig(model=tmp_path / "model", file=file, out=out, control=False))
    page = opened(browser, out, "#texts button")
    for selector in ("#texts bdi", ".sentence"):
        first, last = page.evaluate(f"{EDGES}({selector!r})")
        assert last < first, selector
    # the figure of a token stands between it and the next token
    tab_to(page, "#drawing [data-token]")
    page.press("ArrowDown")
    isolated = "[...document.querySelectorAll('#in-words bdi')].map((each) => each.textContent)"
    assert page.evaluate(isolated)[0] == HEBREW[0][0]
    assert page.complaints() == []


def test_all_shares_are_opened_by_keys(
    browser: Pipes, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, labels=("ham", "<spam>"), seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    (tmp_path / "asked.txt").write_text("word1 good <b> word2\n", encoding="utf-8")
    how = ExplainingConfig(methods=("gradient-x-input", "rollout"))
    config: dict[str, Any] = {"model": tmp_path / "model", "file": str(tmp_path / "asked.txt")}
    found = explain(ExplainConfig(**config, out=tmp_path / "why.html", explaining=how))
    page = opened(browser, tmp_path / "why.html", "details")
    tab_to(page, "summary")
    page.press("Enter")
    assert page.evaluate("document.querySelector('details').open")
    assert nameless(page) == []
    rows = page.evaluate(
        "[...document.querySelectorAll('details tbody tr')].map("
        "(row) => [...row.children].map((cell) => cell.textContent))"
    )
    (told,) = found["explanations"]
    assert [row[0] for row in rows] == told["words"]
    for column, method in enumerate(how.methods, 1):
        shares = [float(row[column]) for row in rows]
        assert shares == pytest.approx(told["methods"][method]["shares"], rel=1e-3, abs=1e-6)
    assert page.pale() == []
    # the shades of words, which are the answer, are on paper too: blue for, or orange against
    blue, orange = ((0, 114, 178), (213, 94, 0))
    shades = [tuple(round(part / 255, 4) for part in colour) for colour in (blue, orange)]
    assert not page.printed_colours().isdisjoint(shades)
    page.look(width=900, height=800, dark=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert page.pale() == []
    assert page.complaints() == []
