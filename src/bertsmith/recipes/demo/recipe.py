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
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.batches.config import MaskingConfig, SampleConfig
from bertsmith.core.errors import RunFolderError
from bertsmith.core.files import is_taken, made_folder
from bertsmith.core.json_files import write_json
from bertsmith.core.log import progress, say
from bertsmith.core.ownership import claimed
from bertsmith.recipes.config import VocabularySettings
from bertsmith.recipes.demo.config import DemoConfig
from bertsmith.recipes.demo.corpus import as_documents, read_documentation, tell_corpus
from bertsmith.recipes.demo.gaps import make_gap_task
from bertsmith.recipes.demo.missing_word import find_missing_words, tell_missing_words
from bertsmith.recipes.demo.package_task import carry_out_task, make_task, tell_task
from bertsmith.recipes.demo.report import (
    SENTENCES,
    TOPIC_MORAL,
    Blank,
    Learned,
    fill,
    tell,
    write_report,
)
from bertsmith.recipes.demo.search import make_search, search_both_ways, tell_search
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainConfig, PretrainSettings, Size
from bertsmith.recipes.pretrain.recipe import PretrainOutcome, pretrain, resolve, start
from bertsmith.recipes.vocabulary import describe, in_pieces, learn_from
from bertsmith.reports.page import require_matplotlib
from bertsmith.store.preparing import held_out_documents, prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documentation import ModuleText
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget, OptimiserConfig, ScheduleConfig

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


def demo(config: DemoConfig) -> dict[str, Any]:
    """Train on the Python documentation of this machine, and print how well it works.

    Returns the figures: heldout_loss, heldout_accuracy, next_sentence_accuracy, tokens_per_second,
    seconds, finetune, missing_word, search, model, report. Raises `RunFolderError` if `out` holds
    anything but an earlier demo.
    """
    require_matplotlib()
    with made_folder(config.out.parent), claimed(config.out):
        return _carried_out(config.minutes, config.out, config.seed)


def _carried_out(minutes: float, out: Path, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    _clear(out)
    modules = read_documentation()
    tokenizer = _prepare(modules, out)
    outcome, blanks = _pretrain(out, tokenizer, minutes, seed)
    say("4. fill-mask")
    tell(blanks)
    learned = _tasks(modules, outcome, tokenizer, seed)
    figures = _figures(outcome, learned, out) | {"seconds": round(time.perf_counter() - began, 1)}
    write_report(out / "report.html", outcome, blanks, learned, figures)
    write_json(out / MARKER, figures)
    say(f"all in {figures['seconds']:.0f} s; report: {figures['report']}")
    say(f"try: echo 'open the [MASK] for reading.' | bertsmith predict {figures['model']}")
    return figures


def _clear(out: Path) -> None:
    """Clear the folder for a new demo, over an earlier one only."""
    if is_taken(out):
        if not (out / MARKER).is_file():
            raise RunFolderError(
                "exists and is not an earlier demo", where=out, remedy="choose another --out"
            )
        for name in ("store", "pretraining"):
            shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
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
    tell_corpus(modules, TokenStore(out / "store"))
    say(f"2. {describe(learned)}; {in_pieces(tokenizer, WORDS)}")
    return tokenizer


def _pretrain(
    out: Path, tokenizer: Tokenizer, minutes: float, seed: int
) -> tuple[PretrainOutcome, list[Blank]]:
    settings = replace(SETTINGS, seed=seed)
    run = resolve(out / "store", SIZE, Budget(minutes=minutes), settings)
    before = fill(start(run, tokenizer), tokenizer)
    say("3. pre-training: masked LM and next sentence, from random weights")
    outcome = pretrain(
        PretrainConfig(
            store=out / "store",
            out=out / "pretraining",
            model=SIZE,
            minutes=minutes,
            settings=settings,
            force=True,
        )
    )
    after = fill(outcome.model, tokenizer)
    return outcome, [Blank(*parts) for parts in zip(SENTENCES, before, after, strict=True)]


def _tasks(
    modules: list[ModuleText], outcome: PretrainOutcome, tokenizer: Tokenizer, seed: int
) -> Learned:
    """Run the labelled task, the word-order task and the search, and print their results."""
    folder = outcome.folder / "model"
    topic = carry_out_task(make_task(modules), folder, seed, title="fine-tuning for packages")
    tell_task(
        topic,
        f"5. fine-tuning: which of {len(topic.task.labels)} packages is a docstring from, names "
        "blanked out?",
        TOPIC_MORAL,
    )
    held_out = held_out_documents(as_documents(modules), HELD_OUT)
    gaps = make_gap_task(modules, held_out, tokenizer)
    missing = find_missing_words(gaps, outcome.model, tokenizer) if gaps else None
    if missing:
        tell_missing_words(missing)
    else:
        say("6. the missing word: left out, too few held-out sentences have one of its words")
    search = search_both_ways(make_search(modules), outcome.model, tokenizer)
    tell_search(search)
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
        "model": str(outcome.folder / "model"),
        "report": str(out / "report.html"),
    }
