"""An encoder with the heads that a task needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bertsmith.core.shapes import (
    AtTargets,
    ClassLogits,
    Hidden,
    Logits,
    Pooled,
    PooledTokens,
    Scores,
    SpanLogits,
    TagLogits,
)
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig, Precision, reads_pooler
from bertsmith.network.dropout import Dropout
from bertsmith.network.encoded import Encoded
from bertsmith.network.encoder import Encoder, sinusoidal_table
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.heads import PRETRAINING_HEADS, Pooler, pooled_tokens


class Model(nn.Module):
    """An encoder, a pooler and heads by name: masked_lm, next_sentence, and that of a task."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        encoder, family = config.encoder, FAMILIES[config.encoder.family]
        self.encoder = Encoder(encoder)
        self.pooler = None
        if config.pooler:
            before = family.pooler_dropout and config.head == "classify"
            self.pooler = Pooler(encoder, config.classifier_dropout if before else None)
        self.heads = nn.ModuleDict()
        for name in config.pretraining_heads:
            self.heads[name] = PRETRAINING_HEADS[name](encoder)
        if config.head is not None:
            self.heads[config.head] = nn.Linear(encoder.hidden, config.outputs)
        self.classifier_dropout = Dropout(config.classifier_dropout)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.encoder.embeddings.tokens.weight.device

    def set_dropout(self, share: float) -> None:
        """Set every dropout, and what the config says of them, to one share."""
        encoder = replace(self.config.encoder, dropout=share, attention_dropout=share)
        self.config = replace(self.config, encoder=encoder, classifier_dropout=share)
        self.encoder.config = encoder
        for part in self.modules():
            if isinstance(part, Dropout):
                part.share = share

    def pooled(self, encoded: Encoded, batch: Batch) -> Pooled:
        """Return one vector a sequence, (sequences, hidden)."""
        assert self.pooler is not None
        return self.pooler(encoded, batch.offsets)  # type: ignore[no-any-return]

    def pooled_tokens(self, batch: Batch) -> PooledTokens | None:
        """Return the tokens that `pooled` reads, (sequences,), in order; None for all."""
        pooled = self.config.encoder.pooled
        return None if pooled == "mean" else pooled_tokens(pooled, batch.offsets)

    def masked_lm(self, hidden: AtTargets) -> Logits:
        """Return logits (targets, vocabulary) for the positions gathered, (targets, hidden)."""
        table = self.encoder.embeddings.tokens.weight
        return self.heads["masked_lm"](hidden, table)  # type: ignore[no-any-return]

    def replaced_tokens(self, hidden: Hidden) -> Scores:
        """Return logits (tokens,), above 0 for tokens that were replaced."""
        return self.heads["replaced_tokens"](hidden)  # type: ignore[no-any-return]

    def next_sentence(self, encoded: Encoded, batch: Batch) -> ClassLogits:
        """Return logits (sequences, 2): is the next sentence, is a random one."""
        return self.heads["next_sentence"](self.pooled(encoded, batch))  # type: ignore[no-any-return]

    def classify(self, encoded: Encoded, batch: Batch) -> ClassLogits:
        """Return logits or numbers (sequences, labels), in the order of the config's labels."""
        pooled = self.classifier_dropout(self.pooled(encoded, batch))
        return self.heads["classify"](pooled)  # type: ignore[no-any-return]

    def tag(self, hidden: Hidden) -> TagLogits:
        """Return logits (tokens, labels), in the order of the config's labels."""
        return self.heads["tag"](self.classifier_dropout(self._by_token(hidden)))  # type: ignore[no-any-return]

    def span(self, hidden: Hidden) -> SpanLogits:
        """Return logits (tokens, 2) of the answer's beginning and end (Devlin et al. 2018, 4.2)."""
        return self.heads["span"](self._by_token(hidden))  # type: ignore[no-any-return]

    def _by_token(self, hidden: Hidden) -> Hidden:
        """Return the input of a head that reads every token."""
        if not reads_pooler(self.config.head, self.config.encoder):
            return hidden
        assert self.pooler is not None
        return self.pooler.features(hidden)

    def choose(self, encoded: Encoded, batch: Batch) -> Scores:
        """Return scores (sequences,), one an option; those of a question stand in a row."""
        pooled = self.classifier_dropout(self.pooled(encoded, batch))
        return self.heads["choose"](pooled)[:, 0]  # type: ignore[no-any-return]


class _NotDrawn(TorchFunctionMode):
    """Leaves the tensors of new modules as they are."""

    _FILLING = frozenset(("kaiming_uniform_", "uniform_", "normal_", "fill_", "zero_"))

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call a function of torch, unless it fills a tensor."""
        if getattr(func, "__name__", "") in self._FILLING:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def empty_modules() -> Iterator[None]:
    """Make modules whose tensors have shapes alone, on the meta device, and draw no weights.

    On that device torch draws in Python, which takes longer than all else.
    """
    with torch.device("meta"), _NotDrawn():
        yield


def build_model(config: ModelConfig, *, seed: int) -> Model:
    """Return a model with BERT's initial weights: truncated normal (two deviations), biases zero.

    The weights are a pure function of the config and the seed.
    """
    with empty_modules():
        model = Model(config)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(int(stream(Purpose.WEIGHTS, seed)))
    initialise(model, generator, config.encoder.initial_std)
    scale_residual_outputs(model.encoder.blocks, config.encoder)
    return model


@torch.no_grad()
def scale_residual_outputs(blocks: nn.Module, encoder: EncoderConfig) -> None:
    """Scale down what new blocks of an encoder add to the stream, so that its sum stays bounded.

    Shoeybi et al. 2019, section 4: by the root of two sums a layer. Norms after each sum need none.
    """
    if encoder.norm != "before":
        return
    for name, parameter in blocks.named_parameters():
        if name.endswith(("attention.output.weight", "feed_forward.down.weight")):
            parameter.mul_((2 * encoder.layers) ** -0.5)


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator, std: float = 0.02) -> None:
    """Initialise every parameter below a module, drawn in the order of their names."""
    for name, parameter in module.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        elif parameter.dim() == 1 or not std:
            parameter.zero_()
        else:
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)
    for name, buffer in module.named_buffers():
        if name.endswith("positions.weight"):
            buffer.copy_(sinusoidal_table(*buffer.shape))


@torch.no_grad()
def start_positions_as_sinusoids(model: Model, scale: float) -> None:
    """Initialise learned positions as sinusoids times `scale`; they train on from there."""
    positions = model.encoder.embeddings.positions
    if isinstance(positions, nn.Embedding):
        positions.weight.copy_(sinusoidal_table(*positions.weight.shape) * scale)


@contextmanager
def forward_only(model: Model, precision: Precision) -> Iterator[None]:
    """Evaluation mode without gradients, in bf16 autocast or float32; the mode is put back."""
    # a mode is set module by module, which takes longer than a short text
    training = model.training
    half: AbstractContextManager[object] = nullcontext()
    if training:
        model.eval()
    if precision == "bf16":
        half = torch.autocast(model.device.type, torch.bfloat16)
    try:
        with torch.no_grad(), half:
            yield
    finally:
        if training:
            model.train()
