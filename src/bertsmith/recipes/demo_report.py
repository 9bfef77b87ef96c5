"""The page that the demo leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.recipes.demo_fillings import HEADER, Blank
from bertsmith.recipes.demo_missing_word import EXAMPLE_HEADER, GapOutcome
from bertsmith.recipes.demo_missing_word import HEADER as GAP_HEADER
from bertsmith.recipes.demo_search import HEADER as SEARCH_HEADER
from bertsmith.recipes.demo_search import MORAL as SEARCH_MORAL
from bertsmith.recipes.demo_search import SearchOutcome
from bertsmith.recipes.demo_task import PRETRAINED, TaskOutcome
from bertsmith.recipes.pretrain import PretrainOutcome
from bertsmith.recipes.pretrain_report import add_held_out
from bertsmith.training.report import Report
from bertsmith.training.report_training import add_training
from bertsmith.training.run_folder import RunFolder

TOPIC_MORAL = "a package has words of its own, and words are what TF-IDF counts"


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What the model was tried on after pre-training."""

    topic: TaskOutcome
    missing: GapOutcome | None
    """None where there was too little text for it."""
    search: SearchOutcome


def write_report(
    path: Path,
    outcome: PretrainOutcome,
    blanks: list[Blank],
    learned: Learned,
    figures: Mapping[str, Any],
) -> None:
    """Write all that the demo printed, with its curves and settings."""
    folder = RunFolder(outcome.folder)
    state, topic = outcome.state, learned.topic
    search = learned.search.search
    report = Report("A BERT from this machine's documentation", "bertsmith demo")
    report.text(
        "In short",
        [
            f"{state.tokens / 1e6:.1f} million tokens in {state.seconds / 60:.1f} minutes of "
            f"pre-training, {figures['tokens_per_second']:,} tokens a second; "
            f"{figures['seconds']:.0f} seconds in all.",
            f"Fine-tuned on {len(topic.task.train)} labels: {topic.verdict()}.",
        ],
    )
    add_held_out(report, outcome.held_out)
    report.table(
        "Fill-mask, before and after",
        HEADER,
        [blank.row() for blank in blanks],
        note="The five likeliest pieces with their probabilities.",
    )
    report.table(
        "Fine-tuning: which package is a docstring from?",
        ["contestant", "accuracy %", "by seed"],
        topic.rows(),
        note=f"{topic.verdict()}; {TOPIC_MORAL}. {len(topic.task.dev)} docstrings of other modules "
        "than those learned from, names blanked out.",
    )
    report.confusion(
        f"Confusion of the best seed, {PRETRAINED}", topic.confusion, topic.task.labels
    )
    if learned.missing:
        _add_missing_words(report, learned.missing)
    report.table(
        "Search: which docstring has this first line?",
        ["searcher", *SEARCH_HEADER],
        learned.search.rows(),
        note=f"{len(search.queries)} first lines, {len(search.texts):,} texts; {SEARCH_MORAL}.",
    )
    add_training(report, {"": folder.log()})
    settings = folder.settings("pretrain")
    assert settings is not None
    report.settings("Settings of pre-training", settings)
    report.write(path)


def _add_missing_words(report: Report, missing: GapOutcome) -> None:
    task = missing.task
    report.table(
        "The missing word: which one, and where?",
        ["contestant", *GAP_HEADER[1:]],
        missing.rows(),
        note=f"Accuracy, with 95 % intervals, on {len(task.dev)} sentences of held-out documents, "
        f"each without its only one of: {', '.join(task.candidates)}. {_sentence(missing.moral())} "
        f"{_sentence('; '.join(missing.verdicts()))}",
    )
    report.table(
        "Some sentences without their word",
        EXAMPLE_HEADER,
        missing.examples(),
        note="The first sentence of each outcome; probabilities are those among all pieces of the "
        "vocabulary.",
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
