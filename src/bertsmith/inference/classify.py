"""Classes of texts or pairs of texts, with probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import (
    TOKENS_PER_BATCH,
    EncodedExamples,
    encode_examples,
    evaluation_batches,
)
from bertsmith.evaluation.forward_only import Precision, forward_only
from bertsmith.inference.windows import ROWS, windows
from bertsmith.models.model import Model
from bertsmith.text.examples import Example
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """An example with the probability of every class, (labels,), in the order of the labels.

    `cut` tells that the text exceeded the limit and that only its beginning was read.
    """

    example: Example
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]
    cut: bool

    @property
    def label(self) -> str:
        """The likeliest class."""
        return self.labels[int(self.probabilities.argmax())]

    @property
    def probability(self) -> float:
        """The probability of the likeliest class."""
        return float(self.probabilities.max())

    def top(self, count: int) -> list[tuple[str, float]]:
        """The likeliest classes with their probabilities, the likeliest first."""
        order = np.argsort(-self.probabilities, kind="stable")[:count]
        return [(self.labels[index], float(self.probabilities[index])) for index in order]


def classify(
    model: Model,
    tokenizer: Tokenizer,
    examples: Iterable[Example],
    *,
    longest: int | None = None,
    rows: int = ROWS,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> Iterator[Classified]:
    """Classify a stream of examples, in their order and in constant memory.

    Examples are taken `rows` at a time and sorted by length among themselves; what is longer than
    `longest` tokens (the model's limit where none is given) is cut.
    """
    limit = model.config.encoder.longest
    for window in windows(examples, rows):
        encoded = encode_examples(
            tokenizer,
            [example.text for example in window],
            [example.text_pair for example in window],
            longest=min(longest or limit, limit),
        )
        probabilities = class_probabilities(
            model, encoded, tokens_per_batch=tokens_per_batch, precision=precision
        )
        for example, row, cut in zip(window, probabilities, encoded.cut, strict=True):
            yield Classified(
                example=example, labels=model.config.labels, probabilities=row, cut=bool(cut)
            )


def class_probabilities(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> NDArray[np.float32]:
    """The probability of every class for every example, (examples, labels)."""
    found = np.empty((len(examples), len(model.config.labels)), np.float32)
    with forward_only(model, precision):
        for indices, packed in evaluation_batches(examples, tokens_per_batch=tokens_per_batch):
            batch = packed.to(model.device)
            logits = model.classify(model.encoder(batch), batch)
            found[indices] = logits.float().softmax(-1).cpu().numpy()
    return found
