"""Prediction targets of a pre-training run, and evaluation on held-out documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol

from torch import Tensor

from bertsmith.batches import DataPosition
from bertsmith.batches.config import MaskingConfig, SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.config import Config
from bertsmith.core.log import progress
from bertsmith.core.printable import counted
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.model import Model, forward_only
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.state import Measure


class Part(Protocol):
    """The loss of one objective over a batch: sum, and number of correct predictions of `count`."""

    @property
    def sum(self) -> Tensor:
        """Loss summed over the targets."""
        ...

    @property
    def count(self) -> int:
        """Number of targets."""
        ...

    @property
    def correct(self) -> Tensor:
        """Number of correct predictions."""
        ...


class Parts(Protocol):
    """The result of an objective: a `Part` by the name of its target."""

    @property
    def parts(self) -> Mapping[str, Part]:
        """Parts by name."""
        ...


Objective = Callable[[Model, Batch], Parts]
"""A function of a model and a batch that returns the parts of a loss."""


def evaluate_objective(
    model: Model,
    objective: Objective,
    batches: Iterable[Batch],
    *,
    precision: Precision = "fp32",
) -> dict[str, float]:
    """Return means over all targets: ``NAME_loss``, ``NAME_accuracy``, ``NAME_count``.

    Names are those of the log of training. A part without any target is left out.
    """
    sums: dict[str, float] = {}
    correct: dict[str, int] = {}
    counts: dict[str, int] = {}
    with forward_only(model, precision):
        for batch in batches:
            for name, part in objective(model, batch.to(model.device)).parts.items():
                sums[name] = sums.get(name, 0.0) + part.sum.item()
                correct[name] = correct.get(name, 0) + int(part.correct.item())
                counts[name] = counts.get(name, 0) + part.count
    figures: dict[str, float] = {}
    for name, count in counts.items():
        if count:
            figures[f"{name}_loss"] = sums[name] / count
            figures[f"{name}_accuracy"] = correct[name] / count
            figures[f"{name}_count"] = count
    return figures


@dataclass(frozen=True, kw_only=True)
class HeldOutPlan(Config):
    """The number and size of measurements on held-out text."""

    measurements: int
    """Number of measurements during training."""
    measured_tokens: int = 64_000
    """Tokens per measurement."""
    evaluated_tokens: int = 400_000
    """Tokens for the evaluation of the finished model."""


def evaluate_held_out(
    model: Model,
    objective: Objective,
    tokenizer: Tokenizer,
    store: TokenStore,
    samples: SampleConfig,
    tokens: int = HeldOutPlan.evaluated_tokens,
) -> dict[str, float]:
    """Return loss and accuracy of each objective on the held-out documents, in float32.

    Empty without held-out documents. The masks and pairs are fixed, the masks being the paper's (15
    %, single tokens) whatever the training uses, so that runs can be compared; at most about
    `tokens` tokens are read.
    """
    batches = held_out_batches(tokenizer, store, samples)
    if batches is None:
        return {}
    total = min(tokens, batches.store.tokens)
    with progress("evaluating on held-out text", total, "tokens") as bar:

        def watched() -> Iterator[Batch]:
            for batch in first_batches(batches, tokens):
                yield batch
                bar.advance(batch.tokens)

        return evaluate_objective(model, objective, watched())


def measure_held_out(
    objective: Objective,
    tokenizer: Tokenizer,
    store: TokenStore,
    samples: SampleConfig,
    precision: Precision,
    tokens: int = HeldOutPlan.measured_tokens,
) -> Measure | None:
    """Return a function that measures on the same held-out text each time, None without any."""
    batches = held_out_batches(tokenizer, store, samples)
    if batches is None:
        return None

    def measure(model: Model, stopping: Callable[[], bool]) -> dict[str, float] | None:
        chosen = takewhile(lambda _: not stopping(), first_batches(batches, tokens))
        figures = evaluate_objective(model, objective, chosen, precision=precision)
        return None if stopping() else figures

    return measure


def held_out_batches(
    tokenizer: Tokenizer, store: TokenStore, samples: SampleConfig
) -> PretrainingBatches | None:
    """Return the batches of the held-out documents with the paper's masks, None without any."""
    held_out = store.held_out()
    if held_out is None:
        return None
    alone = samples.text == "next_sentence" and held_out.index.documents < 2
    text = "within_documents" if alone else samples.text
    tokens = max(8192, samples.max_length)
    config = replace(
        samples,
        tokens_per_batch=tokens,
        text=text,
        masking=MaskingConfig(),
        short_sequences=0.0,
        copies=0,
    )
    return PretrainingBatches(held_out, tokenizer, config, seed=1)


def describe(state: State, held_out: dict[str, float]) -> str:
    """Return one line with the results."""
    line = (
        f"pre-training: {counted(state.step, 'step')}, {state.tokens / 1e6:.1f} M tokens, "
        f"{state.tokens / max(state.seconds, 1e-9):,.0f} tokens/s"
    )
    for name, words in (("masked_lm", "masked LM"), ("left_to_right", "left-to-right LM")):
        if f"{name}_loss" in held_out:
            line += (
                f"; held out: {words} loss {held_out[f'{name}_loss']:.3f}, "
                f"accuracy {held_out[f'{name}_accuracy']:.3f}"
            )
    for name in ("replaced_tokens", "next_sentence", "sentence_order"):
        if f"{name}_accuracy" in held_out:
            line += f", {name.replace('_', ' ')} {held_out[f'{name}_accuracy']:.3f}"
    return line


def first_batches(batches: PretrainingBatches, most: int) -> Iterator[Batch]:
    """Yield the batches of the first epoch until so many tokens are reached."""
    place, tokens = DataPosition(), 0
    while place.epoch == 0 and tokens < most:
        batch, place = batches.next_batch(place)
        tokens += batch.tokens
        yield batch
