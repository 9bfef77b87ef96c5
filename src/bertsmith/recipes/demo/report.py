"""The report page of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.core.log import Table, console
from bertsmith.engine.fill_mask import Filling, fill_mask
from bertsmith.network.model import Model
from bertsmith.recipes.demo.missing_word import EXAMPLE_HEADER, GapOutcome
from bertsmith.recipes.demo.missing_word import HEADER as GAP_HEADER
from bertsmith.recipes.demo.package_task import PRETRAINED, TaskOutcome
from bertsmith.recipes.demo.search import HEADER as SEARCH_HEADER
from bertsmith.recipes.demo.search import MORAL as SEARCH_MORAL
from bertsmith.recipes.demo.search import SearchOutcome
from bertsmith.recipes.pretrain.recipe import PretrainOutcome
from bertsmith.recipes.pretrain.report import add_held_out
from bertsmith.reports.page import Report
from bertsmith.reports.training import add_training
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import RunFolder

SENTENCES = (
    "open the [MASK] for reading .",
    "return a new [MASK] object .",
    "raises an error if the [MASK] does not exist .",
    "return the [MASK] of the array along the given axis .",
    "convert a string to an [MASK] .",
    "if [MASK] , return the result as a list .",
)
HEADER = ("sentence", "before training", "after training")


@dataclass(frozen=True, slots=True)
class Blank:
    """A sentence with a mask, and the most probable pieces for it before and after training."""

    sentence: str
    before: list[Filling]
    after: list[Filling]

    def row(self) -> tuple[str, str, str]:
        """Return sentence, before and after, as text."""
        return self.sentence, in_words(self.before), in_words(self.after)


def fill(model: Model, tokenizer: Tokenizer) -> list[list[Filling]]:
    """Return the five most probable pieces for each sentence's mask."""
    return [fill_mask(model, tokenizer, sentence)[0] for sentence in SENTENCES]


def in_words(fillings: list[Filling]) -> str:
    """Return pieces with their probabilities, in descending order."""
    return ", ".join(f"{item.piece} {_share(item.probability)}" for item in fillings)


def tell(blanks: list[Blank]) -> None:
    """Print the table."""
    table = Table(*HEADER)
    for blank in blanks:
        table.add_row(*blank.row())
    console.print(table)


def _share(probability: float) -> str:
    percent = 100 * probability
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.2f} %"


TOPIC_MORAL = "a package has words of its own, and words are what TF-IDF counts"


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The tasks of the model after pre-training."""

    topic: TaskOutcome
    missing: GapOutcome | None
    """Outcome of the missing-word task, None if there was too little text for it."""
    search: SearchOutcome


def write_report(
    path: Path,
    outcome: PretrainOutcome,
    blanks: list[Blank],
    learned: Learned,
    figures: Mapping[str, Any],
) -> None:
    """Write everything that the demo printed, with curves and settings."""
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
        ["method", "accuracy %", "by seed"],
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
        ["method", *GAP_HEADER[1:]],
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
