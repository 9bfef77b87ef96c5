"""Scores of texts: how well a pre-trained model predicts their tokens, and which text of a pair is
the better one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.output import print_json
from bertsmith.core.printable import counted, to_millionths
from bertsmith.engine.config import Masking
from bertsmith.engine.devices import device_named
from bertsmith.engine.language_model.likelihood import TextScore, TextScoring
from bertsmith.engine.prepared import prepare_model
from bertsmith.evaluation.metrics import percent
from bertsmith.evaluation.significance import mean_interval, share_interval
from bertsmith.hub.models import model_folder
from bertsmith.network.model import Model
from bertsmith.recipes.predict.config import ScoreConfig
from bertsmith.recipes.predict.recipe import AnswerWriter, answer_rows, check_of, terminal_preview
from bertsmith.recipes.predict.rows import refuse_choice, text_rows
from bertsmith.tasks.task import Brief, Record
from bertsmith.text.examples.example import Example
from bertsmith.text.growing import as_first_opened
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model


class ScoreAnswering(TextScoring):
    """The answering by which texts are scored, and the scores shown."""

    keys = ("score", "tokens", "token_scores")

    def record(self, answer: tuple[TextScore, ...]) -> Record:
        """Return the score of a text, or which text of a pair has the higher one."""
        first, *rest = (to_millionths(score.total) for score in answer)
        tokens = [len(score.pieces) for score in answer]
        if not rest:
            (score,) = answer
            return {
                "score": first,
                "tokens": tokens[0],
                "token_scores": [
                    [piece, to_millionths(value)]
                    for piece, value in zip(
                        score.pieces, score.log_probabilities.tolist(), strict=True
                    )
                ],
            }
        (second,) = rest
        better = "neither" if first == second else "first" if first > second else "second"
        return {
            "better": better,
            "difference": to_millionths(first - second),
            "scores": [first, second],
            "tokens": tokens,
        }

    def lines(self, row: Example, record: Record, brief: Brief) -> Iterator[str]:
        """Yield the score before a text, or both scores and the better one of a pair."""
        if "better" not in record:
            yield f"{record['score']:>z9.2f}  {brief(row.text)}"
            return
        texts = (row.text, row.text_pair or "")
        for name, score, text in zip(("first", "second"), record["scores"], texts, strict=True):
            mark = ">" if record["better"] == name else " "
            yield f"{mark}{score:>z8.2f}  {brief(text)}"
        yield ""


def score_answering(
    model: Model, tokenizer: Tokenizer, masking: Masking, *, where: str | Path
) -> ScoreAnswering:
    """Return how the model of a folder, `where`, scores texts; raises `ModelFolderError`."""
    if not model.config.masked_lm:
        raise ModelFolderError(
            "has no head that predicts tokens", where=where, remedy="name a pre-trained model"
        )
    return ScoreAnswering(model, tokenizer, masking)


class Summary:
    """The figures of all texts: their mean score, or how often the first of a pair is better."""

    def __init__(self) -> None:
        self._scores: list[float] = []
        self._tokens = 0
        self._right: list[bool] = []

    def add(self, record: Record) -> None:
        """Count the record of a text, or of a pair."""
        if "better" in record:
            self._right.append(record["better"] == "first")
        else:
            self._scores.append(record["score"])
            self._tokens += record["tokens"]

    def figures(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        result: dict[str, Any] = {}
        if self._scores:
            total = math.fsum(self._scores)
            result |= {
                "texts": len(self._scores),
                "tokens": self._tokens,
                "mean_score": total / len(self._scores),
                "perplexity": _perplexity(total, self._tokens),
            }
        if self._right:
            right: NDArray[np.float64] = np.array(self._right, np.float64)
            interval = share_interval(mean_interval(right), len(right))
            result |= {
                "pairs": len(right),
                "accuracy": {
                    "value": float(right.mean()),
                    "low": interval.low,
                    "high": interval.high,
                },
            }
        return result


def _perplexity(total: float, tokens: int) -> float | None:
    """Return the perplexity of a total score; None without tokens, and where no float holds it."""
    try:
        return math.exp(-total / tokens) if tokens else None
    except OverflowError:
        return None


def _print_summary(figures: dict[str, Any], *, causal: bool) -> None:
    """Print a summary of the figures."""
    pseudo = "" if causal else "pseudo-"
    if "texts" in figures:
        perplexity = figures["perplexity"]
        perplexity_note = (
            "" if perplexity is None else f", {pseudo}perplexity {perplexity:.2f} a token"
        )
        texts = counted(figures["texts"], "text")
        tokens = counted(figures["tokens"], "token")
        say(
            f"{texts}, {tokens}: mean {pseudo}log-likelihood {figures['mean_score']:z.2f}"
            f"{perplexity_note}"
        )
    if "pairs" in figures:
        value, low, high = (percent(figures["accuracy"][name]) for name in ("value", "low", "high"))
        pairs = counted(figures["pairs"], "pair")
        say(f"{pairs}: the first text scores higher in {value} % (95 %: {low} to {high})")


def score(config: ScoreConfig) -> dict[str, Any]:
    """Write the score of each text, or which of two scores higher, and return figures of all.

    The score is the pseudo-log-likelihood of a masked model, or the log-likelihood of one that
    reads from left to right. Raises `ConfigError`, `ExampleError` and `ModelFolderError`.
    """
    device = device_named(config.device)
    refuse_choice(config.file, config.reading.columns)
    loaded, tokenizer = load_model(model_folder(config.model))
    answering = score_answering(loaded, tokenizer, config.scoring.masking, where=config.model)
    prepared = prepare_model(loaded.to(device), config.engine, automatic="fp32")
    check = check_of(answering, config.reading)
    rows = text_rows(config.file, config.reading, pairs=True, check=check)
    written, summary = AnswerWriter(config.format, keys=answering.keys), Summary()
    bad_count = 0
    with as_first_opened(Path(config.file)):
        for row, record in answer_rows(prepared.predictor(answering), answering, rows):
            if row.example is None or record is None:
                if not config.json:
                    written.blank(row.columns)
                    bad_count += row.bad
                continue
            summary.add(record)
            if not config.json:
                lines = partial(answering.lines, row.example, record, terminal_preview)
                written.add(row.columns, record, lines)
    figures = summary.figures() | {"engine": prepared.to_dict()}
    if config.json:
        print_json(figures)
    else:
        written.end()
        _print_summary(figures, causal=loaded.config.encoder.causal)
    config.reading.bad_rows.print(answered=bad_count)
    say(f"engine: {prepared}")
    return figures
