"""The settings of networks: sizes and wiring of an encoder, heads of a model, reading of texts.

What can be refused without building a network is refused here, without importing torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import counted
from bertsmith.network.families.catalog import FAMILIES, presets
from bertsmith.network.families.family import OTHER_SIZES, FamilyName
from bertsmith.text.config import LabelSeparator, TagColumns

Precision = Literal["bf16", "fp32"]
TrainingPrecision = Literal["auto", "bf16", "fp32"]
Positions = Literal["learned", "sinusoidal", "rotary", "none"]
Activation = Literal["gelu", "gelu_tanh"]
Norm = Literal["after", "before"]
Pooling = Literal["tanh", "relu", "gelu"]
Pooled = Literal["first", "last", "mean"]
VectorPooling = Literal["cls", "max", "mean", "mean-sqrt-length", "weighted-mean", "last-token"]
Fit = Literal["head", "tail", "head+tail", "windows"]

PretrainingHead = Literal["masked_lm", "next_sentence", "replaced_tokens"]
Predicts = Literal["class", "classes", "number", "tags", "span", "choice"]
"""The answer of a head on top of the encoder: one class of a text, any number of classes, a number
or several, a tag of each token, the span of an answer, the right one of several texts."""

HeadName = Literal["classify", "tag", "span", "choose"]

HEADS: dict[Predicts, HeadName] = {
    "class": "classify",
    "classes": "classify",
    "number": "classify",
    "tags": "tag",
    "span": "span",
    "choice": "choose",
}
"""The head for each: a matrix over what is read, whose outputs mean different things."""

READS_SEQUENCE = frozenset({"classify", "choose"})
"""Heads that read one pooled vector a sequence; the others read every token."""

_SIZES = (
    "vocabulary", "hidden", "layers", "heads", "feed_forward", "longest", "embedding", "groups",
    "window", "global_every",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Config):
    """Sizes and wiring of an encoder (Devlin et al. 2018, section 3); any wiring can be trained."""

    family: FamilyName = "bert"
    """The family whose heads it has and, where that can hold its wiring, whose folders."""
    vocabulary: int
    """Entries of the vocabulary (V)."""
    hidden: int
    """Width of the encoder (H)."""
    layers: int
    """Number of blocks (L)."""
    heads: int
    """Attention heads a block (A); divides `hidden`."""
    feed_forward: int
    """Inner width of the feed-forward network; 4 H in BERT."""
    embedding: int | None = None
    """Width of the embedding tables (E), brought to `hidden` by a matrix (ALBERT: Lan et al. 2019,
    section 3.1); None for tables as wide as the encoder, without one."""
    groups: int | None = None
    """Blocks there are weights for; layers / groups layers in a row share each (ALBERT). None for
    every layer its own."""
    longest: int = 512
    """Positions there are embeddings for, the longest sequence in tokens."""
    position_offset: int = 0
    """Row of the position table for the first token; the rows before it are not used. 2 in a
    RoBERTa, one more than its padding id."""
    segments: int = 2
    """Segment embeddings; 0 for none, 1 for one that all tokens share."""
    positions: Positions = "learned"
    """Learned as BERT's, sinusoidal (not trained), rotary, or none, to see what order is worth."""
    theta: float = 10_000.0
    """Base of the wavelengths of rotary positions (Su et al. 2021, section 3.2.2)."""
    local_theta: float = 10_000.0
    """The same in layers whose attention is local."""
    window: int | None = None
    """Tokens, half of them on either side, that a token sees besides itself in a layer whose
    attention is local (Beltagy et al. 2020); None for all."""
    global_every: int = 1
    """One layer in so many sees all, the first of them; in the others attention is local."""
    activation: Activation = "gelu"
    """The exact GELU, or its tanh formula."""
    gated: bool = False
    """Multiply two inner values of the feed-forward network (Shazeer 2020)."""
    norm: Norm = "after"
    """Place of layer norms: after each sum, or before attention and feed-forward, with one after
    the last layer (Xiong et al. 2020)."""
    biases: bool = True
    """Give linear layers and norms biases."""
    pooling: Pooling = "tanh"
    """End of the layer through which heads read the first token: tanh as in BERT, relu as in
    DistilBERT, gelu as in ModernBERT."""
    pooled: Pooled = "first"
    """The token that stands for its sequence in that layer, or the mean of all (ModernBERT). Read
    from left to right, only the last token has seen the others."""
    causal: bool = False
    """Let a token see only itself and those before it, for reading from left to right."""
    dropout: float = 0.1
    """Share of hidden values set to zero in training."""
    attention_dropout: float = 0.1
    """Share of attention weights set to zero in training."""
    norm_epsilon: float = 1e-12
    """Added to the variance in layer norms."""
    initial_std: float = 0.02
    """Standard deviation of the truncated normal that weights start from."""

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", remedy="it must be at least 1")
        if self.hidden % self.heads:
            raise ConfigError(f"hidden ({self.hidden}) is not a multiple of heads ({self.heads})")
        self._check_wiring()
        for name in ("segments", "position_offset"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be 0 or more")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be in [0, 1)")

    def _check_wiring(self) -> None:
        """Refuse what cannot be computed."""
        if self.groups is not None and self.layers % self.groups:
            divisors = [n for n in range(1, self.layers + 1) if not self.layers % n]
            *others, last = map(str, divisors)
            raise ConfigError(
                f"layers ({self.layers}) is not a multiple of groups ({self.groups})",
                remedy=f"groups can be {', '.join(others)} or {last}" if others else "groups is 1",
            )
        if self.pooled == "last" and not self.causal:
            raise ConfigError(
                "pooled is last, and the encoder does not read from left to right",
                remedy="set it to first",
            )
        if self.causal and self.window is not None:
            raise ConfigError(
                "attention from left to right cannot have a window (--window, or a ModernBERT's)",
                remedy="leave --left-to-right out, or the window",
            )
        if self.positions == "rotary" and self.hidden // self.heads % 2:
            raise ConfigError(
                f"heads are {self.hidden // self.heads} wide",
                remedy="rotary positions need an even number",
            )
        for name in ("theta", "local_theta"):
            if not 1 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must exceed 1")


def encoder_of(family: FamilyName, size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """Return the encoder of a family's size, a name or layers and width, some settings changed.

    Raises `ConfigError` for a size that the family does not have.
    """
    record = FAMILIES[family]
    result = record.size(size)
    if result is None:
        raise ConfigError(
            f"no {record.title} of the size {size!r}",
            remedy=f"sizes are {', '.join(record.sizes)}, and {OTHER_SIZES}",
        )
    sizes = result._asdict() | {"vocabulary": vocabulary}
    return EncoderConfig(**{"family": family, **sizes, **record.wiring, **changes})


def reads_pooler(head: HeadName | None, encoder: EncoderConfig) -> bool:
    """Return whether a head reads the pooler's output: for tokens, too, in a ModernBERT."""
    of_tokens = head is not None and FAMILIES[encoder.family].pooler == "heads"
    return head in READS_SEQUENCE or of_tokens


@dataclass(frozen=True, kw_only=True)
class Preprocessing(Config):
    """The text limits and columns of the examples that a model was fine-tuned on."""

    longest: int
    """Tokens a sequence at most."""
    long: Fit = "head"
    """The part of longer texts that was read."""
    stride: int | None = None
    """Tokens that two windows shared; None for a third of `longest`."""
    pairs: bool | None = None
    """True for pairs of texts, False for single ones, None for examples that are neither."""
    text_column: str | None = None
    """The column of the text, where it was named."""
    text_pair_column: str | None = None
    """The column of the second text, where it was named."""
    label_column: str | None = None
    """The column of the label, where it was named."""
    label_columns: tuple[str, ...] = ()
    """The columns of 0 and 1 of several labels, where they were named."""
    label_until: str | None = None
    """The sign up to which the label was kept, where there was one."""
    label_separator: LabelSeparator = "auto"
    """The separator of several labels in a cell; auto where none was stated, or | detected."""
    group_column: str | None = None
    """The column of a passage's query or a word's sentence, where it was named."""
    tags: TagColumns | None = None
    """Layout of words and tags, of a tagging model that was not trained with the defaults."""
    tags_kind: str = ""
    """Suffix of the file whose layout that is."""

    def __post_init__(self) -> None:
        if self.longest < 8:
            raise ConfigError(f"longest is {self.longest}", remedy="it must be at least 8 tokens")
        if self.stride is not None and self.stride < 0:
            raise ConfigError(f"stride is {self.stride}", remedy="it must be at least 0")


@dataclass(frozen=True, kw_only=True)
class Conformal(Config):
    """The calibration of prediction sets on dev (tasks/confidence.py)."""

    examples: int
    """Examples it was made on."""
    coverages: tuple[float, ...]
    """Shares of examples whose set shall hold the right answer, rising."""
    thresholds: tuple[float, ...]
    """For each the least probability of an answer in the set."""

    def __post_init__(self) -> None:
        names = ("coverages", "thresholds")
        if self.examples < 1:
            raise ConfigError(f"examples is {self.examples}", remedy="it must be at least 1")
        if not 0 < len(self.coverages) == len(self.thresholds):
            raise ConfigError("coverages and thresholds differ in number", remedy="leave both out")
        for name in names:
            if not all(0 <= value <= 1 for value in getattr(self, name)):
                raise ConfigError(f"{name} are not all in [0, 1]", remedy="leave them out")
        if any(after <= before for before, after in pairwise(self.coverages)):
            raise ConfigError("coverages do not rise", remedy="leave them out")


NO_ACTIVATION = "torch.nn.modules.linear.Identity"
"""The `cross_encoder_activation` of a head whose outputs are the answers."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """An encoder and the heads that stand on it."""

    encoder: EncoderConfig
    """Sizes and wiring of the encoder."""
    pooler: bool = True
    """True with a pooler; next sentence and classification read it."""
    masked_lm: bool = False
    """True with a masked-LM head."""
    next_sentence: bool = False
    """True with a next-sentence head."""
    replaced_tokens: bool = False
    """True with a head that tells replaced tokens (ELECTRA)."""
    predicts: Predicts | None = None
    """The answer of a task's head: class or classes of a text, a number, tags of its tokens, the
    span of an answer, a choice among several texts; None for no such head."""
    labels: tuple[str, ...] = ()
    """Names of what the head tells (classes, numbers, tags) in the order of its outputs."""
    classifier_dropout: float = 0.1
    """Share of what that head reads set to zero in training."""
    no_answer: float | None = None
    """For spans: by how much the score of no answer has to exceed that of the best one for none to
    be given, tuned when the model was trained; None where it always answers."""
    min_confidence: float | None = None
    """For classes and choices: the probability below which no answer is given, chosen on dev when
    the model was trained; None where it always answers."""
    conformal: Conformal | None = None
    """For classes and choices: the calibration of prediction sets; None where there is none."""
    preprocessing: Preprocessing | None = None
    """The reading of texts when the model was fine-tuned; None where that is not known."""
    pretrained_length: int | None = None
    """The longest sequence of pre-training in tokens, where the encoder can read longer ones; None
    where that is not known."""
    cross_encoder_activation: str | None = None
    """The function that a CrossEncoder of sentence-transformers applies to the outputs, a dotted
    name; bertsmith does not apply it. None for the library's default, a sigmoid for one output."""

    def __post_init__(self) -> None:
        if not self.pooler and (self.next_sentence or self.head in READS_SEQUENCE):
            raise ConfigError(
                "next sentence, class, classes, number and choice need the pooler",
                remedy="set pooler to true",
            )
        self._check_family()
        if not 0 <= self.classifier_dropout < 1:
            raise ConfigError(
                f"classifier_dropout is {self.classifier_dropout}", remedy="it must be in [0, 1)"
            )
        if (self.head in ("classify", "tag")) != bool(self.labels):
            raise ConfigError(
                f"{counted(len(self.labels), 'label')} for a model that predicts {self.predicts}",
                remedy="class, classes, number and tags want labels, one for each output",
            )
        if self.no_answer is not None and self.predicts != "span":
            raise ConfigError("no_answer is for a model that predicts spans")
        if self.min_confidence is not None and self.predicts not in ("class", "choice"):
            raise ConfigError("min_confidence is for a model that predicts a class or a choice")
        if self.min_confidence is not None and not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence is {self.min_confidence}, no probability")
        if self.conformal is not None and self.predicts not in ("class", "choice"):
            raise ConfigError("conformal is for a model that predicts a class or a choice")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"a label occurs twice in {', '.join(self.labels)}")

    def _check_family(self) -> None:
        """Check that the family has such heads."""
        family = FAMILIES[self.encoder.family]
        if self.next_sentence and family.pairs is None:
            those = [value.title for value in FAMILIES.values() if value.pairs is not None]
            raise ConfigError(
                f"{family.title} has no next-sentence head",
                remedy=f"take a {' or '.join(those)}, or train with --sequences within_documents",
            )
        if self.replaced_tokens and not family.replaced_tokens:
            raise ConfigError(
                f"{family.title} has no head for replaced tokens",
                remedy="take an ELECTRA: --family electra",
            )
        read = reads_pooler(self.head, self.encoder)
        if family.pooler != "encoder" and self.pooler != read:
            raise ConfigError(
                f"{family.title} has a pooler below heads that read it, and only there",
                remedy=f"set pooler to {'true' if read else 'false'}",
            )
        if family.pooler == "heads" and self.masked_lm and self.head is not None:
            raise ConfigError(f"{family.title} has one head", remedy="set masked_lm to false")

    def pretrained_on(self, longest: int) -> ModelConfig:
        """Return the config of a model whose pre-training had sequences of `longest` tokens."""
        shorter = longest < self.encoder.longest
        return replace(self, pretrained_length=longest if shorter else None)

    def with_head(self, predicts: Predicts, labels: tuple[str, ...] = ()) -> ModelConfig:
        """Return the config of the encoder with a new head for a task, and no other heads.

        There is a pooler if the head reads one. An encoder that reads from left to right is then
        pooled at its last token: the first one sees only itself.
        """
        encoder = self.encoder
        pooler = reads_pooler(HEADS[predicts], encoder)
        if encoder.causal:
            encoder = replace(encoder, pooled="last" if pooler else "first")
        return ModelConfig(
            encoder=encoder,
            pooler=pooler,
            predicts=predicts,
            labels=labels,
            classifier_dropout=self.classifier_dropout,
            cross_encoder_activation=NO_ACTIVATION if predicts == "number" else None,
        )

    @property
    def head(self) -> HeadName | None:
        """The head that predicts."""
        return None if self.predicts is None else HEADS[self.predicts]

    @property
    def windowed(self) -> bool:
        """Return whether a long text was read whole in fine-tuning, in windows."""
        in_windows = self.preprocessing is not None and self.preprocessing.long == "windows"
        return in_windows or self.predicts in ("tags", "span")

    @property
    def truncated_to(self) -> int | None:
        """Tokens to which texts were cut in fine-tuning; None if they were not, or not known."""
        return None if self.preprocessing is None or self.windowed else self.preprocessing.longest

    @property
    def pretraining_heads(self) -> list[PretrainingHead]:
        """The heads of pre-training that there are."""
        return [name for name in get_args(PretrainingHead) if getattr(self, name)]

    @property
    def outputs(self) -> int:
        """Values that the head gives for each thing it reads; 0 without one."""
        return {None: 0, "span": 2, "choose": 1}.get(self.head, len(self.labels))


def preset_config(name: str) -> ModelConfig:
    """Return the parts that the published count of a preset is of: some have a head in it."""
    family, preset = presets()[name]
    encoder = encoder_of(family, preset.size, preset.vocabulary)
    pooler = FAMILIES[family].pooler == "encoder"
    return ModelConfig(encoder=encoder, pooler=pooler, masked_lm=preset.masked_lm)
