"""The options of the engine, and of answers that need no task: vectors, and texts continued."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from bertsmith.core.config import NO_OPTION, Config, check_least, check_range
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import VectorPooling

Number = Literal["fp32", "bf16", "int8"]
"""A number format of the products."""
Words = Literal["blanks", "marks"]
Merging = Literal["mean", "first", "sum"]
Unit = Literal["text", "token", "word"]
Long = Literal["cut", "windows"]
Writing = Literal["left-to-right", "mask-predict", "gibbs"]
Masking = Literal["token", "word-l2r"]
"""Mask of a token to be scored: it alone, or the rest of its word too."""

POOLINGS: tuple[VectorPooling, ...] = get_args(VectorPooling)
MERGING: dict[str, Merging] = {"word-mean": "mean", "word-first": "first", "word-sum": "sum"}


MAX_THREADS = 1024
"""Beyond these the libraries below end the process instead of refusing."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig(Config):
    """The computation of answers."""

    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Number format of the matrix products. auto is bf16 where the processor or GPU multiplies it
    natively; fp32 elsewhere and for evaluation; int8 for folders made by quantize."""
    threads: int | None = None
    """Number of processor threads; as many as torch uses by default."""
    reproducible: bool = False
    """Make each answer independent of the other texts bit for bit; slower."""

    def __post_init__(self) -> None:
        check_range(self, ["threads"], f"[1, {MAX_THREADS}]")


FULL_PRECISION = EngineConfig(precision="fp32")


@dataclass(frozen=True, kw_only=True)
class FeatureConfig(Config):
    """The unit and the layers of vectors."""

    layer: str = "last"
    """Hidden states from which vectors are made: a layer number from 0 (embeddings), a name, or a
    mix."""
    pool: str = "auto"
    """Pooling of tokens into a vector for each text, token or word; auto is the folder's own, or
    else the mean, or the last token if the model reads from left to right."""
    words: Words = "blanks"
    """blanks: words are separated by white space; marks: punctuation marks are words too."""
    normalize: bool = False
    """Scale every vector to length 1."""
    max_length: int | None = None
    """Maximum number of tokens read from a text, if less than the limit of the model."""
    truncation: Long = "cut"
    """cut longer texts, or read them in windows and average the vectors of the windows."""
    lowercase: bool = field(default=False, metadata=NO_OPTION)
    """Lower-case texts before they are encoded, whatever the vocabulary."""
    prompt: str = field(default="", metadata=NO_OPTION)
    """Written before every text."""

    def __post_init__(self) -> None:
        known = ("auto", *POOLINGS, "pooler", "token", *MERGING)
        parts = self.pool.split("+")
        if any(part not in known or (len(parts) > 1 and part not in POOLINGS) for part in parts):
            raise ConfigError(
                f"there is no pooling {self.pool!r}",
                remedy=f"it can be {', '.join(known)}, or several with + between them "
                "from cls to last-token",
            )
        if self.pool == "pooler" and self.layer != "last":
            raise ConfigError("the pooler reads the last layer", remedy="leave the layer out")
        check_least(self, {"max_length": 5})

    @property
    def kinds(self) -> tuple[str, ...]:
        """The poolings whose results stand end to end."""
        assert self.pool != "auto", "what auto is depends on the model: see `resolve_pooling`"
        return tuple(self.pool.split("+"))

    @property
    def unit(self) -> Unit:
        """The unit that has a vector: a text, a token or a word."""
        return "token" if self.pool == "token" else "word" if self.pool in MERGING else "text"


@dataclass(frozen=True, kw_only=True)
class FillingConfig(Config):
    """Words for masks, by a model pre-trained to fill them."""

    choices: tuple[str, ...] = ()
    """Words to choose among, of any number of pieces, separated by commas; they are compared by the
    mean log-probability of their pieces."""
    most_pieces: int = 1
    """Also look for words of up to this many pieces."""
    joint: bool = False
    """Also fill several masks of a text together: the most confident one first, then the others
    given it."""

    def __post_init__(self) -> None:
        check_range(self, ["most_pieces"], "[1, 8]")
        if any(not choice.strip() for choice in self.choices):
            raise ConfigError("--choices has a blank word", remedy="leave it out")
        if self.choices and self.most_pieces > 1:
            raise ConfigError(
                "--choices and --most-pieces are both given", remedy="choices have their own length"
            )


@dataclass(frozen=True, kw_only=True)
class ContinuationConfig(Config):
    """Continuation of texts by a left-to-right model."""

    max_new_tokens: int = 20
    """Number of tokens that continue each text; fewer where the model's positions end."""
    temperature: float = 0.0
    """0 takes the most probable token each time; above 0, tokens are sampled, and rarer ones become
    more frequent with higher values."""
    seed: int = 0
    """Seed of the samples."""

    def __post_init__(self) -> None:
        check_least(self, {"max_new_tokens": 1, "seed": 0})
        check_range(self, ["temperature"], "[0, 100]")


@dataclass(frozen=True, kw_only=True)
class WritingConfig(Config):
    """Generation of text by a pre-trained model."""

    length: int = 40
    """Number of tokens to write after the prompt."""
    how: Writing = "left-to-right"
    """Order in which masks are filled: left-to-right; mask-predict, all at once and then the least
    probable ones again (Ghazvininejad et al. 2019); gibbs, repeatedly one after another in random
    order (Wang & Cho 2019)."""
    passes: int | None = None
    """Number of passes over the text; by default 10 for mask-predict and four for each token for
    gibbs; left-to-right always takes one for each token."""
    temperature: float = 1.0
    """0 takes the most probable token each time; higher values choose rarer ones more often."""
    top_k: int | None = None
    """Draw among this many of the most probable tokens; among all by default."""
    seed: int = 0
    """Seed of the samples."""

    def __post_init__(self) -> None:
        check_least(self, {"length": 1, "passes": 1, "top_k": 1, "seed": 0})
        check_range(self, ["temperature"], "[0, 100]")
        if self.how == "left-to-right" and self.passes is not None:
            raise ConfigError(
                "--passes is for mask-predict and gibbs", remedy="left-to-right takes one a token"
            )
        if self.how == "gibbs" and self.passes is not None and self.passes < self.length:
            raise ConfigError(
                f"--passes is {self.passes}", remedy="gibbs needs at least one a token, --length"
            )

    @property
    def all_passes(self) -> int:
        """The passes of the model over each text, as asked for."""
        usual = {"left-to-right": self.length, "mask-predict": 10, "gibbs": 4 * self.length}
        return self.passes or usual[self.how]

    @property
    def masked_again(self) -> Iterator[int]:
        """The tokens that each pass of mask-predict fills; passes that would fill none are none."""
        passes = self.all_passes
        return (self.length * (passes - done) // passes for done in range(self.passes_made))

    @property
    def passes_made(self) -> int:
        """The passes that are made over each text."""
        passes = self.all_passes
        # the last ones of many would fill less than a token
        empty = -(-passes // self.length) - 1 if self.how == "mask-predict" else 0
        return passes - empty
