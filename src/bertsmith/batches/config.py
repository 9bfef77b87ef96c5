"""The options of training samples."""

from __future__ import annotations

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
    """Share of these replaced by [MASK]."""
    as_random: float = 0.1
    """Share of these replaced by a random token; the rest stay as they are."""
    unit: Literal["token", "word", "ngram", "span"] = "token"
    """Unit that is chosen: tokens, whole words, one to three words as ALBERT's (n of them with a
    probability in proportion to 1/n), or spans of words as SpanBERT's."""
    span: float = 5.0
    """Mean of the geometric lengths of spans, in words; lengths above ten are not drawn, so that
    SpanBERT's 5 comes to spans of 3.8."""
    smoothing: float = 0.0
    """Choose rare tokens more often: by their count in the store to the power of minus this;
    DistilBERT has 0.7, after XLM. 0 chooses all alike."""

    def __post_init__(self) -> None:
        check_range(self, ["probability"], "(0, 1)", group="masking.")
        check_range(self, ["smoothing"], "[0, 2]", group="masking.")
        if min(self.as_mask, self.as_random) < 0 or self.as_mask + self.as_random > 1:
            raise ConfigError(
                f"--masking.as-mask {self.as_mask} and --masking.as-random {self.as_random} are "
                "not shares of one whole"
            )
        check_least(self, {"span": 1}, group="masking.")


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Config):
    """The composition of training sequences and batches."""

    max_length: int = 128
    """Tokens a sequence at most, [CLS] and [SEP] included."""
    tokens_per_batch: int = 8192
    """Tokens a batch at most."""
    text: Text = field(default="next_sentence", metadata=named("sequences"))
    """Two segments with next_sentence or sentence_order as an objective; or one segment, from one
    document (within_documents) or going on into the next (across_documents)."""
    left_to_right: bool = False
    """Predict every token from those before it, instead of masked ones from both sides."""
    replaced_tokens: bool = False
    """Predict of every token whether a small generator, trained beside the model, replaced it
    (ELECTRA: Clark et al. 2020); the masked tokens are the generator's."""
    short_sequences: float = 0.0
    """Share of the sequences that end at a random earlier sentence, so that the model meets short
    ones too; the rest of their text is left out of the epoch. ALBERT has 0.1."""
    copies: int = 0
    """Copies of the text, each cut, paired and masked in its own way, that epochs take in turn;
    0 makes a new one each epoch. The paper has 10."""
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
