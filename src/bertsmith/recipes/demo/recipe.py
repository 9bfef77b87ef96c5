"""The whole procedure on real text without any download: `bertsmith demo`.

    DEMO/
      store/         the documentation of this machine's Python as token ids
      pretraining/   the run, with the model folder in model/
      report.html    everything printed, with curves
      demo.json      the figures

About 6 minutes on 2 cores, of which `minutes` go to pre-training.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.batches.config import MaskingConfig, SampleConfig
from bertsmith.core.errors import RunFolderError
from bertsmith.core.files import followed, name_is_taken, write_json
from bertsmith.core.log import console, progress, say, short_number, table_of
from bertsmith.core.ownership import claimed_output
from bertsmith.core.pool import process_pool
from bertsmith.core.printable import counted, shell_word
from bertsmith.core.processors import usable_processors
from bertsmith.engine.language_model.fill_mask import fill_mask
from bertsmith.engine.language_model.words import Filling
from bertsmith.network.model import Model
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.recipes.config import DemoConfig, VocabularySettings
from bertsmith.recipes.demo.missing_word import (
    EXAMPLE_HEADER,
    GapOutcome,
    find_missing_words,
    make_gap_task,
    print_missing_words,
)
from bertsmith.recipes.demo.missing_word import HEADER as GAP_HEADER
from bertsmith.recipes.demo.package_task import (
    PRETRAINED,
    TaskOutcome,
    make_task,
    print_task,
    run_task,
)
from bertsmith.recipes.demo.search import HEADER as SEARCH_HEADER
from bertsmith.recipes.demo.search import SearchOutcome, make_search, print_search, search_both_ways
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainConfig, PretrainSettings, Size
from bertsmith.recipes.pretrain.recipe import PretrainOutcome, pretrain, start
from bertsmith.recipes.pretrain.report import add_held_out
from bertsmith.recipes.pretrain.resolving import resolve
from bertsmith.recipes.vocabulary import describe, in_pieces, learn_from
from bertsmith.reports.curves import require_matplotlib
from bertsmith.reports.page import Report
from bertsmith.reports.training import add_training
from bertsmith.store.preparing import held_out_documents, prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documentation import (
    ModuleFile,
    ModuleText,
    documentation_files,
    module_texts,
)
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget, OptimiserConfig, ScheduleConfig
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.threads import quick_choice

SIZE: Size = "tiny"
PIECES, HELD_OUT = 4096, 0.05
MARKER = "demo.json"
# measured for a few minutes of this text and size (docs/experiments/demo.md); a quarter of the
# tokens is masked to learn from more of them, and the held-out figures are at the paper's 15 %
SETTINGS = PretrainSettings(
    network=NetworkConfig(
        position_initialisation="sinusoidal",
        position_scale=0.1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    ),
    samples=SampleConfig(masking=MaskingConfig(probability=0.25)),
    optimiser=OptimiserConfig(
        learning_rate=5e-3, beta_2=0.95, matrices="muon", muon_learning_rate=0.03
    ),
    schedule=ScheduleConfig(warmup=0.02),
)
WORDS = ("tweeting", "documentation", "asynchronously", "tensors", "deserialization", "file")


_MAX_MINUTES, _MIN_MINUTES = 3.0, 2.0
# of all steps: below the six minutes that are promised, as estimates err
_TOTAL_SECONDS = 345.0
# seconds of the tasks for each second of reading and learning the vocabulary (docs/demo.md)
_TASK_SECONDS = 1.8


def demo(config: DemoConfig) -> dict[str, Any]:
    """Train on the Python documentation of this machine, and print how well it works.

    Returns the figures: heldout_loss, heldout_accuracy, next_sentence_accuracy, tokens_per_second,
    seconds, finetune, missing_word, search, model, report. Raises `RunFolderError` if `out` holds
    anything but an earlier demo.
    """
    require_matplotlib()
    with claimed_output(config.out):
        return _run(config.minutes, config.out, config.seed)


def fitting_minutes(seconds: float) -> float:
    """Return the minutes of pre-training, given the seconds that the steps before it took.

    By these the tasks that follow are estimated.
    """
    left = _TOTAL_SECONDS - (1 + _TASK_SECONDS) * seconds
    return round(min(_MAX_MINUTES, max(_MIN_MINUTES, left / 60)), 1)


def _run(minutes: float | None, out: Path, seed: int) -> dict[str, Any]:
    started = time.perf_counter()
    _clear(out)
    modules = read_documentation()
    tokenizer = _prepare(modules, out)
    minutes = minutes or fitting_minutes(time.perf_counter() - started)
    outcome, blanks = _pretrain(out, tokenizer, minutes, seed)
    say("4. fill-mask")
    console.print(table_of(HEADER, blanks))
    learned = _tasks(modules, outcome, tokenizer, seed)
    figures = _figures(outcome, learned, out) | {"seconds": round(time.perf_counter() - started, 1)}
    write_report(out / "report.html", outcome, blanks, learned, figures)
    write_json(out / MARKER, figures)
    say(f"all in {figures['seconds']:.0f} s; report: {figures['report']}")
    question = "echo 'open the [MASK] for reading.'"
    say(f"try: {question} | bertsmith predict {shell_word(figures['model'])}")
    return figures


def _clear(out: Path) -> None:
    """Clear the folder for a new demo, over an earlier one only."""
    if name_is_taken(out):
        if not (out / MARKER).is_file():
            raise RunFolderError(
                "exists and is not an earlier demo", where=out, remedy="choose another --out"
            )
        for name in ("store", "pretraining"):
            shutil.rmtree(out / name, ignore_errors=True)
    followed(out).mkdir(parents=True, exist_ok=True)
    write_json(out / MARKER, {})


def _prepare(modules: list[ModuleText], out: Path) -> Tokenizer:
    documents = as_documents(modules)
    total = sum(sum(map(len, document.paragraphs)) for document in documents)
    learned = learn_from(documents, total=total, settings=VocabularySettings(size=PIECES))
    tokenizer = learned.tokenizer
    with progress("encoding", len(documents), "documents") as bar:

        def watched() -> Any:  # noqa: ANN401
            for document in documents:
                bar.advance()
                yield document

        prepare_store(watched(), tokenizer, out / "store", held_out=HELD_OUT)
    print_corpus(modules, TokenStore(out / "store"))
    say(f"2. {describe(learned)}; {in_pieces(tokenizer, WORDS)}")
    return tokenizer


def _pretrain(
    out: Path, tokenizer: Tokenizer, minutes: float, seed: int
) -> tuple[PretrainOutcome, list[tuple[str, ...]]]:
    settings = replace(SETTINGS, seed=seed)
    run = resolve(out / "store", SIZE, Budget(minutes=minutes), settings)
    fillings_before = fill(start(run, tokenizer), tokenizer)
    say("3. pre-training: masked LM and next sentence, from random weights")
    outcome = pretrain(
        PretrainConfig(
            store=out / "store",
            out=out / "pretraining",
            model=SIZE,
            minutes=minutes,
            settings=settings,
            force=True,
        ),
        say_next=False,
    )
    fillings_after = fill(outcome.network, tokenizer)
    columns = SENTENCES, map(in_words, fillings_before), map(in_words, fillings_after)
    return outcome, list(zip(*columns, strict=True))


def _tasks(
    modules: list[ModuleText], outcome: PretrainOutcome, tokenizer: Tokenizer, seed: int
) -> Learned:
    """Run the labelled task, the word-order task and the search, and print their results."""
    folder = outcome.model
    encoder = outcome.network.config.encoder
    choice = quick_choice(encoder.hidden, encoder.feed_forward, torch.get_num_threads())
    with threads_of_torch(choice.threads):
        topic = run_task(make_task(modules), folder, seed)
    print_task(
        topic,
        f"5. fine-tuning: which of {len(topic.task.labels)} packages is a docstring from, names "
        "blanked out?",
    )
    held_out = held_out_documents(as_documents(modules), HELD_OUT)
    gaps = make_gap_task(modules, held_out, tokenizer)
    missing = find_missing_words(gaps, outcome.network, tokenizer) if gaps else None
    if missing:
        print_missing_words(missing)
    else:
        say("6. the missing word: left out, too few held-out sentences have one of its words")
    search = search_both_ways(make_search(modules), outcome.network, tokenizer)
    print_search(search)
    return Learned(topic=topic, missing=missing, search=search)


def _figures(outcome: PretrainOutcome, learned: Learned, out: Path) -> dict[str, Any]:
    state, held_out = outcome.state, outcome.held_out
    return {
        "heldout_loss": held_out["masked_lm_loss"],
        "heldout_accuracy": held_out["masked_lm_accuracy"],
        "next_sentence_accuracy": held_out["next_sentence_accuracy"],
        "tokens_per_second": round(state.tokens / state.seconds),
        "finetune": learned.topic.to_dict(),
        "missing_word": learned.missing.to_dict() if learned.missing else None,
        "search": learned.search.to_dict(),
        "model": str(outcome.model),
        "report": str(out / "report.html"),
    }


def read_documentation() -> list[ModuleText]:
    """Return the documentation of every module, read by one process per core."""
    files = documentation_files()
    modules: list[ModuleText] = []
    groups = [files[start : start + 32] for start in range(0, len(files), 32)]
    with (
        progress("reading documentation", len(files), "modules") as bar,
        process_pool(usable_processors()) as pool,
    ):
        texts: Iterable[list[ModuleText]] = map(_texts, groups)
        if pool is not None:
            futures = [pool.submit(_texts, group) for group in groups]
            texts = (future.result() for future in futures)
        for group, found in zip(groups, texts, strict=True):
            modules += found
            bar.advance(len(group))
    return modules


def as_documents(modules: list[ModuleText]) -> list[Document]:
    """Return one document per module."""
    return [
        Document(source=module.module, line=1, paragraphs=module.paragraphs) for module in modules
    ]


def print_corpus(modules: list[ModuleText], store: TokenStore) -> None:
    """Print one line about the corpus."""
    held_out = store.held_out()
    parts = [store.index] + ([held_out.index] if held_out else [])
    packages = len({module.package for module in modules})
    say(
        f"1. corpus: the documentation of {packages} packages, "
        f"{counted(sum(part.documents for part in parts), 'document')}, "
        f"{counted(sum(part.sentences for part in parts), 'sentence')}, "
        f"{short_number(sum(part.text.words for part in parts))} words; "
        f"{store.index.duplicates:,} duplicates left out, "
        f"{counted(held_out.index.documents if held_out else 0, 'document')} held out"
    )


def _texts(files: Sequence[ModuleFile]) -> list[ModuleText]:
    return [text for file in files for text in module_texts(file)]


SENTENCES = (
    "open the [MASK] for reading .",
    "return a new [MASK] object .",
    "raises an error if the [MASK] does not exist .",
    "return the [MASK] of the array along the given axis .",
    "convert a string to an [MASK] .",
    "if [MASK] , return the result as a list .",
)
HEADER = ("sentence", "before training", "after training")


def fill(model: Model, tokenizer: Tokenizer) -> list[list[Filling]]:
    """Return the five most probable pieces for each sentence's mask."""
    return [fill_mask(model, tokenizer, sentence)[0] for sentence in SENTENCES]


def in_words(fillings: list[Filling]) -> str:
    """Return pieces with their probabilities, in descending order."""
    return ", ".join(f"{item.piece} {_share(item.probability)}" for item in fillings)


def _share(probability: float) -> str:
    percent = 100 * probability
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.2f} %"


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
    blanks: Sequence[tuple[str, ...]],
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
        blanks,
        note="The five likeliest pieces with their probabilities.",
    )
    report.table(
        "Fine-tuning: which package is a docstring from?",
        ["method", "accuracy %", "by seed"],
        topic.rows(),
        note=f"{topic.verdict()}; {topic.conclusion()}. {len(topic.task.dev)} docstrings of other "
        "modules than those learned from, names blanked out.",
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
        note=f"{len(search.queries)} first lines, {len(search.texts):,} texts; "
        f"{learned.search.conclusion()}.",
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
        f"each without its only one of: {', '.join(task.candidates)}. "
        f"{_sentence(missing.conclusion())} "
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
