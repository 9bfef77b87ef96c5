"""The options of training samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from bertsmith.core.config import Config, check_least, check_range, named
from bertsmith.core.errors import ConfigError

Text = Literal["next_sentence", "sentence_order", "within_documents", "across_documents"]

PAIRED: tuple[Text, ...] = ("next_sentence", "sentence_order")
"""The kinds of text with two segments and a label."""

_MIN_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class MaskingConfig(Config):
    """The share of the tokens to predict, and their replacements."""

    probability: float = 0.15
    """Share of the tokens to predict."""
    as_mask: float = 0.8
    """Share of these that is replaced by [MASK]."""
    as_random: float = 0.1
    """Share of these that is replaced by random tokens; the rest stays unchanged."""
    unit: Literal["token", "word", "ngram", "span"] = "token"
    """Unit of masking: token; word, whole words; ngram, one to three words as in ALBERT (n words
    with a probability in proportion to 1/n); span, spans of words as in SpanBERT."""
    span: float = 5.0
    """Mean of the geometric distribution of span lengths, in words; lengths above ten are not
    drawn, so SpanBERT's 5 gives spans of 3.8 words on average."""
    smoothing: float = 0.0
    """Choose rare tokens more often, in proportion to their count in the store to the power of
    minus this; DistilBERT has 0.7, after XLM; 0 chooses all alike."""

    def __post_init__(self) -> None:
        check_range(self, ["probability"], "(0, 1)", group="masking.")
        check_range(self, ["smoothing"], "[0, 2]", group="masking.")
        check_range(self, ["as_mask", "as_random"], "[0, 1]", group="masking.")
        if self.as_mask + self.as_random > 1:
            raise ConfigError(
                f"--masking.as-mask {self.as_mask} and --masking.as-random {self.as_random} are "
                "not shares of one whole"
            )
        check_least(self, {"span": 1}, group="masking.")


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Config):
    """The composition of training sequences and batches."""

    max_length: int = 128
    """Maximum number of tokens in a sequence, [CLS] and [SEP] included."""
    tokens_per_batch: int = 8192
    """Maximum number of tokens in a batch."""
    text: Text = field(default="next_sentence", metadata=named("sequences"))
    """Two segments, with next_sentence or sentence_order as an objective; or one segment, from one
    document (within_documents) or continuing into the next (across_documents)."""
    left_to_right: bool = False
    """Predict every token from those before it, instead of masked tokens from both sides."""
    replaced_tokens: bool = False
    """Predict for every token whether a small generator, trained beside the model, replaced it
    (ELECTRA: Clark et al. 2020); the masks are for the generator."""
    short_sequences: float = 0.0
    """Share of the sequences that end at a random earlier sentence, so that the model also reads
    short ones; the rest of their text is left out of the epoch. ALBERT has 0.1."""
    copies: int = 0
    """Number of copies of the text, each cut, paired and masked in its own way, which epochs use in
    turn; 0 makes a new one for each epoch. The paper has 10."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    """The choice of the tokens that are masked."""

    def __post_init__(self) -> None:
        check_least(self, {"max_length": _MIN_LENGTH, "copies": 0})
        check_range(self, ["short_sequences"], "[0, 1)")
        if self.tokens_per_batch < self.max_length:
            raise ConfigError(
                f"--tokens-per-batch ({self.tokens_per_batch}) holds no sequence of "
                f"{self.max_length} tokens"
            )
        if self.left_to_right and self.replaced_tokens:
            raise ConfigError(
                "a generator of replaced tokens reads from both sides",
                remedy="leave --left-to-right or --replaced-tokens out",
            )
        if self.left_to_right and self.pairs:
            raise ConfigError(
                f"left to right, [CLS] sees no text to tell {self.text} from",
                remedy="give --sequences within_documents or across_documents",
            )

    @property
    def pairs(self) -> bool:
        """Return whether sequences have two segments and an objective that relates them."""
        return self.text in PAIRED


@dataclass(frozen=True, kw_only=True)
class Phase(Config):
    """A share of the budget in which sequences have another length."""

    share: float
    """Share of the steps or minutes."""
    max_length: int
    """Tokens a sequence at most."""
    tokens_per_batch: int | None = None
    """Tokens a batch at most; None for as many as in the rest of the run."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(f"a phase's share is {self.share}", remedy="it must be in (0, 1)")
        if self.max_length < _MIN_LENGTH:
            raise ConfigError(
                f"a phase has sequences of {self.max_length} tokens",
                remedy=f"give it at least {_MIN_LENGTH}",
            )
        if self.tokens_per_batch is not None and self.tokens_per_batch < self.max_length:
            raise ConfigError(
                f"a phase's batch of {self.tokens_per_batch} tokens holds no sequence of "
                f"{self.max_length}",
                remedy="give it more tokens_per_batch, or none",
            )


# of the sum of a few shares
_ROUNDING = 1e-9


def check_phases(config: SampleConfig, phases: Sequence[Phase]) -> None:
    """Raise `ConfigError` for phases that leave nothing to the rest of the run, or are longer."""
    remedy = "give other --phases, or none: --phases '[]'"
    if sum(phase.share for phase in phases) > 1 - _ROUNDING:
        raise ConfigError("the phases' shares leave nothing for the rest of the run", remedy=remedy)
    for phase in phases:
        if phase.max_length > config.max_length:
            raise ConfigError(
                f"a phase has sequences of {phase.max_length} tokens, more than --max-length "
                f"({config.max_length})",
                remedy=remedy,
            )
