"""The main job on real text without any download: `bertsmith demo`.

    DEMO/
      store/         the documentation of this machine's Python as token ids
      pretraining/   the run, with the model folder in model/
      report.html    all that is printed, with curves
      demo.json      the figures

About 6 minutes on 2 cores, of which `minutes` go to pre-training.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from bertsmith.batches.preparing import prepare_store
from bertsmith.batches.store import TokenStore
from bertsmith.errors import RunFolderError
from bertsmith.inference.fill_mask import Filling, fill_mask
from bertsmith.log import console, progress, say
from bertsmith.models.model import Model
from bertsmith.recipes.demo_corpus import as_documents, read_documentation, tell_corpus
from bertsmith.recipes.demo_report import write_report
from bertsmith.recipes.demo_task import TaskOutcome, carry_out_task, make_task
from bertsmith.recipes.pretrain import PretrainOutcome, pretrain, resolve, start
from bertsmith.recipes.pretrain_settings import PretrainConfig
from bertsmith.recipes.vocabulary import describe, in_pieces, learn_from
from bertsmith.text.documentation import ModuleText
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.report_curves import require_matplotlib
from bertsmith.training.run_folder import write_json
from bertsmith.training.schedule import Budget

SIZE, PIECES, HELD_OUT = "tiny", 4096, 0.05
MARKER = "demo.json"
SENTENCES = (
    "open the [MASK] for reading .",
    "return a new [MASK] object .",
    "raises an error if the [MASK] does not exist .",
    "if true , return the [MASK] of the array along the given axis .",
    "convert a string to an [MASK] .",
    "the default [MASK] is none .",
)
WORDS = ("tweeting", "documentation", "asynchronously", "tensors", "deserialization", "file")

Fillings = list[tuple[str, list[Filling], list[Filling]]]
"""A sentence with the likeliest pieces before and after training."""


def demo(*, minutes: float = 3.0, out: Path = Path("demo"), seed: int = 0) -> dict[str, Any]:
    """Learn from the Python documentation lying on this machine, and tell how well.

    Returns the figures: heldout_loss, heldout_accuracy, next_sentence_accuracy,
    tokens_per_second, seconds, finetune, model, report. Raises `RunFolderError` when `out` holds
    something else than an earlier demo.
    """
    began = time.perf_counter()
    require_matplotlib()
    _clear(out)
    modules = read_documentation()
    tokenizer = _prepare(modules, out)
    outcome, fillings = _pretrain(out, tokenizer, minutes, seed)
    tell_fillings(fillings)
    task = carry_out_task(make_task(modules), outcome.folder / "model", seed)
    figures = _figures(outcome, task, out) | {"seconds": round(time.perf_counter() - began, 1)}
    write_report(out / "report.html", outcome, fillings, task, figures)
    write_json(out / MARKER, figures)
    say(f"all in {figures['seconds']:.0f} s; report: {figures['report']}")
    say(f"try: echo 'open the [MASK] for reading.' | bertsmith predict {figures['model']}")
    return figures


def tell_fillings(fillings: Fillings) -> None:
    """Print what the model puts into blanks, before and after training."""
    table = Table("fill-mask", "before training", "after training", title_justify="left")
    for sentence, before, after in fillings:
        table.add_row(sentence.replace("[", r"\["), in_words(before), in_words(after))
    console.print(table)


def in_words(fillings: list[Filling]) -> str:
    """Pieces with their probabilities, the likeliest first."""
    return ", ".join(f"{each.piece} {100 * each.probability:.0f} %" for each in fillings)


def _clear(out: Path) -> None:
    """Make way for a new demo, over an earlier one only."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not (out / MARKER).is_file():
            raise RunFolderError(
                "exists and is no earlier demo", where=out, remedy="choose another --out"
            )
        for name in ("store", "pretraining"):
            shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / MARKER, {})


def _prepare(modules: list[ModuleText], out: Path) -> Tokenizer:
    documents = as_documents(modules)
    total = sum(sum(map(len, document.paragraphs)) for document in documents)
    tokenizer, fit = learn_from(documents, total=total, size=PIECES, cased=False)
    with progress("encoding", len(documents), "documents") as bar:

        def watched() -> Any:  # noqa: ANN401
            for document in documents:
                bar.advance()
                yield document

        prepare_store(watched(), tokenizer, out / "store", held_out=HELD_OUT)
    tell_corpus(modules, TokenStore(out / "store"))
    say(f"2. {describe(tokenizer, fit)}; {in_pieces(tokenizer, WORDS)}")
    return tokenizer


def _pretrain(
    out: Path, tokenizer: Tokenizer, minutes: float, seed: int
) -> tuple[PretrainOutcome, Fillings]:
    settings = PretrainConfig(seed=seed)
    run = resolve(out / "store", SIZE, Budget(minutes=minutes), settings)
    before = _fill(start(run, tokenizer), tokenizer)
    outcome = pretrain(
        out / "store", out=out / "pretraining", model=SIZE, minutes=minutes, settings=settings
    )
    after = _fill(outcome.model, tokenizer)
    return outcome, list(zip(SENTENCES, before, after, strict=True))


def _fill(model: Model, tokenizer: Tokenizer) -> list[list[Filling]]:
    return [fill_mask(model, tokenizer, sentence)[0] for sentence in SENTENCES]


def _figures(outcome: PretrainOutcome, task: TaskOutcome, out: Path) -> dict[str, Any]:
    state, held_out = outcome.state, outcome.held_out
    return {
        "heldout_loss": held_out["masked_lm_loss"],
        "heldout_accuracy": held_out["masked_lm_accuracy"],
        "next_sentence_accuracy": held_out["next_sentence_accuracy"],
        "tokens_per_second": round(state.tokens / state.seconds),
        "finetune": task.to_dict(),
        "model": str(outcome.folder / "model"),
        "report": str(out / "report.html"),
    }
