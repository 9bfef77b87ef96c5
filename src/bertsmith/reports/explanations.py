"""The page of explanations: the words of each text, shaded by their shares in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bertsmith.core.printable import html
from bertsmith.reports.page import Report

_LONGEST = 10_000
_TOLD = 5
# Okabe and Ito's blue and vermilion, which the colour-blind can tell apart
_FOR, _AGAINST = "0, 114, 178", "213, 94, 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWord:
    """A word, whether it is of the second text of a pair, and whether the answer consists of it."""

    text: str
    second: bool
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """An answer with the shares of the words by each method, and a note on them."""

    answer: str
    words: Sequence[ShownWord]
    shares: Mapping[str, Sequence[float]]
    note: str


LEGEND = (
    "Blue words speak for the answer, orange and underlined ones against it; the stronger the "
    "colour, the larger the share, compared with the largest of the text by the same method. A "
    "frame marks the words that the answer consists of. Below each text the largest shares stand "
    "in figures, and all of them in a list that can be opened; a word tells its own when pointed "
    "at."
)


def add_explanations(report: Report, answers: Sequence[ShownAnswer]) -> None:
    """Add the legend and the shaded texts to a page."""
    report.text("How to read this page", [LEGEND])
    body = ""
    for number, each in enumerate(answers, 1):
        body += f"<h3>{number}: {_safe(each.answer)}</h3>"
        body += "".join(_shaded(each, method, shares) for method, shares in each.shares.items())
        body += f'<p class="note">{_safe(each.note)}</p>' if each.note else ""
        body += _all_shares(number, each)
    report.section("Answers", body)


def _shaded(answer: ShownAnswer, method: str, shares: Sequence[float]) -> str:
    """Return a text with its words shaded, and the largest shares in words."""
    largest = max(map(abs, shares), default=0.0) or 1.0
    marks, before = [], False
    for word, share in zip(answer.words, shares, strict=True):
        # of a pair, the second text begins a line of its own
        marks.append("<br>" if word.second and not before else "")
        before = word.second
        marks.append(_word(word, share, share / largest))
    top = sorted(zip(shares, answer.words, strict=True), key=lambda pair: -abs(pair[0]))[:_TOLD]
    told = ", ".join(f"{word.text} {share:+.3g}" for share, word in top if share)
    return (
        f'<p class="note">{_safe(method)}</p><p>{" ".join(marks)}</p>'
        f'<p class="note">largest shares: {_safe(told) or "none"}</p>'
    )


def _all_shares(number: int, answer: ShownAnswer) -> str:
    """Return every share of an answer as a table, to be opened: for those who see no colours."""
    header = "".join(f'<th scope="col">{_safe(method)}</th>' for method in answer.shares)
    rows = ""
    for word, *shares in zip(answer.words, *answer.shares.values(), strict=True):
        own = " (of the answer)" if word.own else ""
        cells = "".join(f'<td class="number">{share:+.4g}</td>' for share in shares)
        rows += f'<tr><th scope="row">{_safe(word.text)}{own}</th>{cells}</tr>'
    name = f"all shares of answer {number}"
    return (
        f'<details><summary>All shares</summary><div class="wide" role="region" tabindex="0" '
        f'aria-label="{name}"><table aria-label="{name}"><thead><tr><th scope="col">word</th>'
        f"{header}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _word(word: ShownWord, share: float, strength: float) -> str:
    colour = _FOR if strength >= 0 else _AGAINST
    # light enough for dark text at full strength, and on a dark page dark enough for light text
    style = f"background: rgba({colour}, {0.55 * abs(strength):.2f}); border-radius: 3px"
    if strength < -0.1:
        style += "; text-decoration: underline"
    if word.own:
        style += "; outline: 1px solid var(--ink)"
    return f'<span style="{style}" title="{share:+.4g}">{_safe(word.text)}</span>'


def _safe(text: str) -> str:
    return html(text, _LONGEST)
