"""What the demo's model puts into blanks, before and after training."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.inference.fill_mask import Filling, fill_mask
from bertsmith.log import Table, console
from bertsmith.models.model import Model
from bertsmith.tokens.tokenizer import Tokenizer

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
    """A sentence with a mask, and the likeliest pieces for it before and after training."""

    sentence: str
    before: list[Filling]
    after: list[Filling]

    def row(self) -> tuple[str, str, str]:
        """Sentence, before and after, in words."""
        return self.sentence, in_words(self.before), in_words(self.after)


def fill(model: Model, tokenizer: Tokenizer) -> list[list[Filling]]:
    """The five likeliest pieces for each sentence's mask."""
    return [fill_mask(model, tokenizer, sentence)[0] for sentence in SENTENCES]


def in_words(fillings: list[Filling]) -> str:
    """Pieces with their probabilities, the likeliest first."""
    return ", ".join(f"{each.piece} {_share(each.probability)}" for each in fillings)


def tell(blanks: list[Blank]) -> None:
    """Print the table."""
    table = Table(*HEADER)
    for blank in blanks:
        table.add_row(*blank.row())
    console.print(table)


def _share(probability: float) -> str:
    percent = 100 * probability
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.2f} %"
