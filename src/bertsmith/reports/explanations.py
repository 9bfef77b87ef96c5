"""The page of explanations: the words of each text, shaded by their shares in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertsmith.analysis.attributions.attribution import Attribution, Method
from bertsmith.analysis.attributions.subjects import Subject, Word
from bertsmith.reports.page import Report, safe, wide

_TOLD = 5
# Okabe and Ito's blue and vermilion, which the colour-blind can tell apart
_FOR, _AGAINST = "0, 114, 178", "213, 94, 0"


Attributions = Mapping[Method, Attribution]

LEGEND = (
    "Blue words support the answer; orange, underlined words oppose it. The stronger the colour, "
    "the larger the share, relative to the largest one in the text by the same method. A frame "
    "marks the words of which the answer consists. Below each text are the largest shares as "
    "figures, and a list of all shares that you can open. Point at a word to see its share."
)


def add_explanations(report: Report, answers: Sequence[tuple[Subject, Attributions]]) -> None:
    """Add the legend and the shaded texts to a page."""
    report.text("How to read this page", [LEGEND])
    body = ""
    for number, (answer, attributions) in enumerate(answers, 1):
        body += f"<h3>{number}: <bdi>{safe(answer.answer)}</bdi>"
        body += " (withheld: predict gives no answer)</h3>" if answer.withheld else "</h3>"
        for method, result in attributions.items():
            body += _shaded(answer, method, result.shares.tolist())
        note = _note(attributions)
        body += f'<p class="note">{safe(note)}</p>' if note else ""
        body += _all_shares(number, answer, attributions)
    report.section("Answers", body)


def _note(result: Attributions) -> str:
    """Return a note on how exactly the integrated gradients of an answer add up."""
    own = result.get("integrated-gradients")
    if own is None or own.difference is None or own.gap is None:
        return ""
    side = "above" if own.difference >= 0 else "below"
    return (
        f"The logit of the answer is {abs(own.difference):.3f} {side} that of a text of masks; "
        f"the shares of integrated gradients add up to this difference within {own.gap:.1e}, after "
        f"{own.steps} steps."
    )


def _shaded(answer: Subject, method: str, shares: Sequence[float]) -> str:
    """Return a text with its words shaded, and the largest shares in words."""
    largest = max(map(abs, shares), default=0.0) or 1.0
    marks, before = [], False
    for word, share in zip(answer.words, shares, strict=True):
        # of a pair, the second text begins a new line
        marks.append("<br>" if word.second and not before else "" if word.glued else " ")
        before = word.second
        marks.append(_word(word, share, share / largest))
    top = sorted(zip(shares, answer.words, strict=True), key=lambda pair: -abs(pair[0]))[:_TOLD]
    # words from right to left would take the figures after them along
    description = ", ".join(
        f"<bdi>{safe(word.text)}</bdi> {share:+.3g}" for share, word in top if share
    )
    return (
        f'<p class="note">{safe(method)}</p><p dir="auto">{"".join(marks)}</p>'
        f'<p class="note">largest shares: {description or "none"}</p>'
    )


def _all_shares(number: int, answer: Subject, found: Attributions) -> str:
    """Return every share of an answer as a foldable table, for readers who see no colours."""
    header = "".join(f'<th scope="col">{safe(method)}</th>' for method in found)
    rows = ""
    columns = (result.shares.tolist() for result in found.values())
    for word, *shares in zip(answer.words, *columns, strict=True):
        own = " (of the answer)" if word.in_answer else ""
        cells = "".join(f'<td class="number">{share:+.4g}</td>' for share in shares)
        rows += f'<tr><th scope="row" dir="auto">{safe(word.text)}{own}</th>{cells}</tr>'
    name = f"all shares of answer {number}"
    return (
        "<details><summary>All shares</summary>"
        + wide(
            name,
            f'<table aria-label="{name}"><thead><tr><th scope="col">word</th>{header}</tr></thead>'
            f"<tbody>{rows}</tbody></table>",
        )
        + "</details>"
    )


def _word(word: Word, share: float, strength: float) -> str:
    colour = _FOR if strength >= 0 else _AGAINST
    # light enough for dark text at full strength, and on a dark page dark enough for light text
    style = f"background: rgba({colour}, {0.55 * abs(strength):.2f}); border-radius: 3px"
    if strength < -0.1:
        style += "; text-decoration: underline"
    if word.in_answer:
        style += "; outline: 1px solid var(--ink)"
    return f'<span style="{style}" title="{share:+.4g}">{safe(word.text)}</span>'
