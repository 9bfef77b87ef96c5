"""The objectives of pre-training: masked, left-to-right and replaced tokens, pairs of texts.

Replaced-token detection is ELECTRA's (Clark et al. 2020, section 2). A generator, a small masked
language model that shares the model's token table, is trained beside it. What it samples takes the
place of the masked tokens, and the model, the discriminator, predicts of every token whether it is
the original. Sampling passes no gradient on.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertsmith.core.errors import ConfigError
from bertsmith.core.shapes import AtTargets, SelectedTokens
from bertsmith.core.streams import Purpose, stream
from bertsmith.network import shape_buckets
from bertsmith.network.batch import Batch, Target
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.encoder import Embeddings, Encoder
from bertsmith.network.heads import MaskedLMHead
from bertsmith.network.model import Model, empty_modules, initialise, scale_residual_outputs
from bertsmith.network.shape_buckets import pad_targets
from bertsmith.objectives.cross_entropy import cross_entropy, linear_cross_entropy
from bertsmith.objectives.objective import Loss, Objective, SequenceTerm, Term, TokenTerm

WEIGHT = 50.0
"""Weight of the discriminator's loss; that of the generator's is 1 (section 3.1)."""
SHARE = 4
"""By what the generator's widths are divided (section 3.2, figure 3)."""
# probabilities made at once
_PROBABILITIES = 2**20


def generator_config(encoder: EncoderConfig) -> EncoderConfig:
    """Return the config of the generator of an encoder: as deep, and a quarter as wide."""
    hidden = max(encoder.hidden // SHARE, 1)
    heads = next(n for n in range(max(encoder.heads // SHARE, 1), 0, -1) if hidden % n == 0)
    return replace(
        encoder,
        embedding=encoder.embedding or encoder.hidden,
        hidden=hidden,
        heads=heads,
        feed_forward=max(encoder.feed_forward // SHARE, 1),
    )


def generator_model(encoder: EncoderConfig) -> ModelConfig:
    """Return the config of a model that computes what the generator of an encoder does."""
    return ModelConfig(encoder=generator_config(encoder), pooler=False, masked_lm=True)


class Generator(nn.Module):
    """A small encoder with a masked-LM head, both above the tables of another encoder."""

    def __init__(self, encoder: EncoderConfig) -> None:
        super().__init__()
        config = generator_config(encoder)
        self.widen = nn.Linear(encoder.embedding or encoder.hidden, config.hidden)
        self.encoder = Encoder(config)
        del self.encoder.embeddings
        self.head = MaskedLMHead(config)

    def forward(
        self,
        tables: Embeddings,
        batch: Batch,
        *,
        selected: SelectedTokens | None = None,
        taps: Taps = NO_TAPS,
    ) -> Encoded:
        """Return the last layer's output for a batch, given the other encoder's embeddings."""
        hidden = self.widen(tables.summed(batch.ids, batch.segments, batch.positions))
        return self.encoder.transform(hidden, batch, selected=selected, taps=taps)


def build_generator(encoder: EncoderConfig, *, seed: int) -> Generator:
    """Return a new generator, whose weights are a pure function of the config and the seed."""
    with empty_modules():
        generator = Generator(encoder)
    generator.to_empty(device="cpu")
    random = torch.Generator().manual_seed(int(stream(Purpose.GENERATOR_WEIGHTS, seed)))
    initialise(generator, random, encoder.initial_std)
    scale_residual_outputs(generator.encoder.blocks, encoder)
    return generator


class GeneratorLM(Term):
    """Cross-entropy of the original tokens under a generator, at the masked positions."""

    own: Generator

    def __init__(self, encoder: EncoderConfig, *, seed: int) -> None:
        self.own = build_generator(encoder, seed=seed)

    def prepare(self, model: Model, batch: Batch) -> Batch:
        """Put samples of the generator in the masked positions, and label the tokens changed.

        `given["draws"]` (targets,) are uniform random numbers in [0, 1), one for each position.
        """
        target, embeddings = batch.targets["masked_lm"], model.encoder.embeddings
        generator = functools.partial(self.own, embeddings)
        encoded = shape_buckets.encode(generator, batch, selected=target.positions)
        features = self.own.head.features(encoded.rows(shape_buckets.pad_targets(target.positions)))
        table, bias = embeddings.tokens.weight, self.own.head.bias
        samples = sample(features[: len(target)], table, bias, batch.given["draws"])
        ids, labels = batch.ids.clone(), torch.zeros_like(batch.ids)
        ids[target.positions] = samples
        labels[target.positions] = (samples != target.labels).long()
        every = Target(positions=batch.targets["replaced_tokens"].positions, labels=labels)
        return replace(
            batch,
            ids=ids,
            targets={**batch.targets, "replaced_tokens": every},
            given={**batch.given, "features": features},
        )

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the generator's loss."""
        table = model.encoder.embeddings.tokens.weight
        features = batch.given["features"]
        return linear_cross_entropy(features, table, self.own.head.bias, target.labels)


class ReplacedTokens(TokenTerm):
    """Cross-entropy of "original" (0) against "replaced" (1), at every token."""

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the discriminator's loss."""
        logits, labels = (
            model.replaced_tokens(encoded.rows(target.positions)).float(),
            target.labels,
        )
        with torch.autocast(logits.device.type, enabled=False):
            loss = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
        correct = ((logits > 0) == (labels > 0)).sum()
        originals = (labels == 0).sum()
        return Loss(sum=loss, count=len(target), correct=correct, weight=WEIGHT, majority=originals)


@torch.no_grad()
def sample(features: Tensor, table: Tensor, bias: Tensor, draws: Tensor) -> Tensor:
    """Return tokens (targets,) drawn from the softmax of `features` (targets, width) by a table.

    The token is where the cumulated probabilities pass the draw, so each draw gives one token.
    """
    rows = max(1, _PROBABILITIES // len(table))
    tokens = []
    for part, drawn in zip(features.split(rows), draws.split(rows), strict=True):
        shares = F.linear(part, table, bias).double().softmax(-1).cumsum(-1)
        tokens.append(torch.searchsorted(shares, drawn[:, None] * shares[:, -1:], right=True)[:, 0])
    return torch.cat([features.new_zeros(0, dtype=torch.long), *tokens]).clamp(max=len(table) - 1)


class MaskedLM(TokenTerm):
    """Cross-entropy of the original tokens, at the masked positions only."""

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the masked positions."""
        head = model.heads["masked_lm"]
        assert isinstance(head, MaskedLMHead)
        table = model.encoder.embeddings.tokens.weight
        features = head.features(encoded.rows(pad_targets(target.positions)))
        return linear_cross_entropy(features, table, head.bias, target.labels)


class NextSentence(SequenceTerm):
    """Cross-entropy of "is the next" (0) against "is a random one" (1), for sequences with both.

    With other targets of "in order" (0) against "exchanged" (1): both predict whether B follows A.
    """

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the sequences of two segments."""
        return cross_entropy(model.next_sentence(encoded, batch)[target.positions], target.labels)


# logits made at once; nearly every token is a target here, and all their logits fill the memory
_LOGITS = 2**25


class LeftToRight(TokenTerm):
    """Cross-entropy of the tokens that follow, read from the tokens before them.

    The head and its tied table are those of masked LM. The logits are made in slices, and made
    again in the backward pass.
    """

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss; `ConfigError` for an encoder that sees what follows."""
        config = model.encoder.config
        if not config.causal:
            raise ConfigError("an encoder that reads from left to right must be causal")
        at = encoded.rows(target.positions)
        rows = max(1, _LOGITS // config.vocabulary)
        if len(at) <= rows:
            return cross_entropy(model.masked_lm(at), target.labels)

        def part(hidden: AtTargets, labels: Tensor) -> tuple[Tensor, Tensor]:
            loss = cross_entropy(model.masked_lm(hidden), labels)
            return loss.sum, loss.correct

        losses = [
            checkpoint(part, *piece, use_reentrant=False, preserve_rng_state=False)
            for piece in zip(at.split(rows), target.labels.split(rows), strict=True)
        ]
        sums, correct = (torch.stack(item).sum() for item in zip(*losses, strict=True))
        return Loss(sum=sums, count=len(target), correct=correct)


PRETRAINING = Objective(
    {
        "masked_lm": MaskedLM(),
        "left_to_right": LeftToRight(),
        "next_sentence": NextSentence(),
        "sentence_order": NextSentence(),
    }
)
"""A batch's targets choose among these, so it serves whatever the sequences are made of."""


def objective_of(config: ModelConfig, *, seed: int) -> Objective:
    """Return the objective that trains the heads of a model, with new parameters of its terms."""
    if config.replaced_tokens:
        generator = GeneratorLM(config.encoder, seed=seed)
        return Objective({"masked_lm": generator, "replaced_tokens": ReplacedTokens()})
    return PRETRAINING
