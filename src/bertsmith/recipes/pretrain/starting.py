"""Initial weights: those of a model whose pre-training continues, or from counts of neighbours.

Continued pre-training on other text is that of Gururangan et al. 2020. A new BERT may start from
counts of neighbouring tokens: from random weights, the first minutes of training go to the
frequencies of tokens, and the next to learning that neighbours matter. Both can be computed over
the corpus, in seconds:

bias of the masked-LM head   the logarithm of each token's frequency
token rows                   a singular value decomposition of the tokens' positive pointwise mutual
                             information with their neighbours (Levy & Goldberg 2014), each distance
                             apart, so that interchangeable tokens are similar
position rows                sinusoids of evenly spread frequencies, in columns that the token rows
                             leave empty
queries and keys of the      rotations of these sinusoids, so that each head looks at the token at
first layer                  one distance: 1 before, 1 after, 2 before, 2 after ...

The architecture is unchanged, and all weights are trained further from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.batches.config import MaskingConfig, SampleConfig, Text
from bertsmith.core.errors import ConfigError, RunFolderError, StoreError
from bertsmith.core.files import file_hash, text_hash
from bertsmith.core.log import say
from bertsmith.core.printable import shell_word
from bertsmith.core.streams import Purpose, stream
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoder import Block, Encoder
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.electra import ELECTRA
from bertsmith.network.heads import MaskedLMHead
from bertsmith.network.model import Model
from bertsmith.recipes.pretrain.config import (
    WIRING,
    NetworkConfig,
    Parent,
    PretrainRun,
    PretrainSettings,
    electra_masking,
)
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import OptimiserConfig, ScheduleConfig
from bertsmith.weights.folder import CONFIG_FILE, load_as, read_config
from bertsmith.weights.sentence_folder import MODULES_FILE
from bertsmith.weights.tensors import weights_hash

_OF_THE_MODEL = ("family", "activation", "max_positions", *WIRING)


def continued(folder: Path) -> PretrainSettings:
    """Return settings for continued pre-training: the model's network, and AdamW at a low rate.

    Samples are pairs if the model has a head for them: of sentence order for an ALBERT, of next
    sentences otherwise; an ELECTRA's generator has its masks. Raises `ModelFolderError`.
    """
    config = read_config(folder)
    pairs: Text = FAMILIES[config.encoder.family].pairs or "within_documents"
    longest = min(SampleConfig().max_length, config.encoder.longest)
    masking = MaskingConfig()
    if config.replaced_tokens:
        masking = electra_masking(large=config.encoder.hidden >= ELECTRA.sizes["large"].hidden)
    return PretrainSettings(
        network=_network(config),
        samples=SampleConfig(
            max_length=longest,
            text=pairs if config.next_sentence else "within_documents",
            left_to_right=config.encoder.causal,
            replaced_tokens=config.replaced_tokens,
            masking=masking,
        ),
        optimiser=OptimiserConfig(learning_rate=1e-4),
        schedule=ScheduleConfig(warmup=0.05),
    )


def identify(folder: Path) -> Parent:
    """Return the path of a model folder and the hash of its contents."""
    read_config(folder)
    parts = [file_hash(folder / CONFIG_FILE), weights_hash(folder)]
    parts.append(Tokenizer.load(folder).fingerprint)
    digest = text_hash(" ".join(parts))
    return Parent(folder=folder.resolve(), files_hash=digest, origin=origin(folder))


def size_of(folder: Path) -> str:
    """Return layers and hidden size of a model: ``6/384``."""
    encoder = read_config(folder).encoder
    return f"{encoder.layers}/{encoder.hidden}"


def check_parent(run: PretrainRun, store: TokenStore) -> None:
    """Check that the parent model of a run is unchanged, and fits the store and the settings.

    Raises `RunFolderError`, `StoreError` or `ConfigError`; does nothing for a run without a parent.
    """
    if run.parent is None:
        return
    folder = run.parent.folder
    if run.parent.origin is not None and not folder.exists():
        model_folder(run.parent.origin)
    if identify(folder) != run.parent:
        raise RunFolderError(
            "is no longer the model that the run was started from",
            where=folder,
            remedy="choose another --out",
        )
    check_store_vocabulary(store, folder)
    network = run.settings.network
    if network.initialisation != "random":
        raise ConfigError(
            f"--initialisation {network.initialisation} is for new models, and --from names one",
            remedy="leave one of them out",
        )
    own_network = _network(read_config(folder))
    for name in (*_OF_THE_MODEL, "position_initialisation"):
        if getattr(network, name) != getattr(own_network, name):
            raise ConfigError(
                f"--{name.replace('_', '-')} is {getattr(network, name)!r}, and the parent has "
                f"{getattr(own_network, name)!r}",
                remedy="leave that setting out",
            )


def check_store_vocabulary(store: TokenStore, folder: Path) -> None:
    """Raise `StoreError` for a store that was prepared with another vocabulary than a model's."""
    if Tokenizer.load(folder).fingerprint != store.index.fingerprint:
        raise StoreError(
            f"was prepared with another vocabulary than that of {folder}",
            where=store.folder,
            remedy="prepare it again: bertsmith prepare CORPUS --vocab "
            f"{shell_word(folder)} --out NEW",
        )


def start_from_parent(parent: Parent, settings: PretrainSettings) -> Model:
    """Return the parent with the heads that the settings train, a pure function of both."""
    model, _ = load_as(parent.folder, continued_config(parent, settings), seed=settings.seed)
    if new := new_parts(parent, settings):
        say(f"{parent.folder}: has no {', no '.join(new)}: new, from random weights")
    if left_out := _left_out(parent, settings):
        say(f"{parent.folder}: left out, as it is not trained here: {', '.join(left_out)}")
    if (parent.folder / MODULES_FILE).is_file():
        what = f"the pooling and the other steps of its vectors ({MODULES_FILE})"
        say(f"{parent.folder}: left out: {what}; training on words changes what it says of texts")
    if model.pooler is not None and not settings.samples.pairs:
        # unused by the objectives; kept unchanged for fine-tuning
        model.pooler.requires_grad_(False)
    return model


def new_parts(parent: Parent, settings: PretrainSettings) -> list[str]:
    """Return a description of the heads that the settings train and the parent lacks."""
    needed, present = _parts(continued_config(parent, settings)), _parts(read_config(parent.folder))
    return [name for name in needed if needed[name] and not present[name]]


def _left_out(parent: Parent, settings: PretrainSettings) -> list[str]:
    needed, present = _parts(continued_config(parent, settings)), _parts(read_config(parent.folder))
    return [name for name in present if present[name] and not needed[name]]


def _parts(config: ModelConfig) -> dict[str, bool]:
    return {
        "masked-LM head": config.masked_lm,
        "pooler": config.pooler,
        "next-sentence head": config.next_sentence,
        "head for replaced tokens": config.replaced_tokens,
        "classifier": config.predicts is not None,
    }


def continued_config(parent: Parent, settings: PretrainSettings) -> ModelConfig:
    """Return the config of the parent with the heads that the settings train."""
    parent_config = read_config(parent.folder)
    network, pairs = settings.network, settings.samples.pairs
    encoder = replace(
        parent_config.encoder,
        dropout=network.hidden_dropout,
        attention_dropout=network.attention_dropout,
        causal=settings.samples.left_to_right,
        # the pooling of a classifier is not continued
        pooled="first" if parent_config.encoder.pooled == "last" else parent_config.encoder.pooled,
    )
    return ModelConfig(
        encoder=encoder,
        # in the other families the pooler belongs to a classifier
        pooler=pairs
        or (parent_config.pooler and FAMILIES[parent_config.encoder.family].pairs is not None),
        masked_lm=not settings.samples.replaced_tokens,
        next_sentence=pairs,
        replaced_tokens=settings.samples.replaced_tokens,
        classifier_dropout=parent_config.classifier_dropout,
    )


def _network(config: ModelConfig) -> NetworkConfig:
    encoder = config.encoder
    return NetworkConfig(
        family=encoder.family,
        position_initialisation="parent",
        activation=encoder.activation,
        max_positions=encoder.longest,
        hidden_dropout=encoder.dropout,
        attention_dropout=encoder.attention_dropout,
        **{name: getattr(encoder, name) for name in WIRING},
    )


# maximum number of tokens counted, in stretches from all over the store; takes seconds
_TOKENS = 16_000_000
_STRETCH = 250_000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Counts over a corpus: of `tokens` (vocabulary,), and of tokens by a neighbour.

    `contexts` (contexts,) are the most frequent tokens; `near[d]` (vocabulary, contexts) counts how
    often each of them is d places after a token, or before it for negative d.
    """

    tokens: NDArray[np.int64]
    contexts: NDArray[np.int64]
    near: dict[int, NDArray[np.float32]]


def count_neighbours(
    store: TokenStore, vocabulary: int, contexts: int, distances: Sequence[int]
) -> Neighbours:
    """Count, at some distances, the neighbours among the most frequent tokens of a store.

    Of a large store, stretches all over it are read, 16 million tokens in all. Neighbours across
    the end of a document are counted too, as they are few. Pure.
    """
    ids = _sample(store)
    tokens = np.bincount(ids, minlength=vocabulary)
    common = np.argsort(-tokens, kind="stable")[:contexts]
    number = np.full(vocabulary, -1, np.int64)
    number[common] = np.arange(len(common))
    counts_by_distance = {}
    for distance in distances:
        later, earlier = ids[abs(distance) :], ids[: -abs(distance)]
        token, context = (earlier, later) if distance > 0 else (later, earlier)
        column = number[context]
        is_context = column >= 0
        cell = token[is_context] * len(common) + column[is_context]
        counts = np.bincount(cell, minlength=vocabulary * len(common))
        counts_by_distance[distance] = counts.reshape(vocabulary, len(common)).astype(np.float32)
    return Neighbours(tokens, common, counts_by_distance)


def _sample(store: TokenStore) -> NDArray[np.int64]:
    """Return the ids of the whole store, or of evenly spaced stretches that begin at sentences."""
    starts = store.document_starts()
    if store.tokens <= _TOKENS:
        ranges = list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
    else:
        begins = np.linspace(0, store.tokens - _STRETCH, _TOKENS // _STRETCH).astype(np.int64)
        ranges = [part for begin in begins.tolist() for part in _token_ranges(starts, begin)]
    return np.concatenate([store.read(start, end) for start, end in ranges]).astype(np.int64)


def _token_ranges(starts: NDArray[np.int64], begin: int) -> list[tuple[int, int]]:
    """Return the parts of documents in a stretch, as a store reads one document at a time."""
    end = begin + _STRETCH
    inside = starts[(starts > begin) & (starts < end)].tolist()
    return list(zip([begin, *inside], [*inside, end], strict=True))


CONTEXTS = 1000
"""Number of most frequent tokens that count as neighbours."""
DISTANCES = (-2, -1, 1, 2)
"""Distances at which they are counted."""
_MAX_PAIRS = 24  # of a sine and a cosine
_SMOOTHING = 0.75  # of the neighbours' frequencies (Levy, Goldberg & Dagan 2015, section 3.2)
_FREQUENCY_WEIGHT = 0.15
_EXTRA, _TURNS = 16, 1  # of the randomised decomposition (Halko, Martinsson & Tropp 2011)
# measured at 4/256 (docs/experiments/optimisers-and-starts.md): token rows' root mean square,
# position rows' amplitude, factor of queries and keys alike
_TOKEN_SCALE, _POSITION_SCALE, _SHARPNESS = 0.1, 0.3, 2.0


@torch.no_grad()
def start_from_neighbours(model: Model, neighbours: Neighbours, *, mask_id: int, seed: int) -> None:
    """Set the weights listed above; the others, and rows of tokens never counted, are unchanged.

    A pure function of its arguments. Raises `ConfigError` if the token rows are narrower than the
    hidden states, as in ALBERT, positions are not learned, or there are no columns for them.
    """
    check_neighbour_start(model.config.encoder)
    counted = torch.from_numpy(neighbours.tokens) > 0
    generator = torch.Generator().manual_seed(int(stream(Purpose.NEIGHBOUR_ROWS, seed)))
    rows = token_rows(neighbours, token_columns(model.encoder), generator)
    start_from_rows(model.encoder, rows, counted, mask_id=mask_id)
    if "masked_lm" in model.heads:
        counts = torch.from_numpy(neighbours.tokens).double() + 1
        head = model.heads["masked_lm"]
        assert isinstance(head, MaskedLMHead)
        head.bias.copy_((counts / counts.sum()).log())


def check_neighbour_start(encoder: EncoderConfig) -> None:
    """Raise `ConfigError` for an encoder that cannot start from counts of neighbours."""
    if not has_position_columns(encoder):
        raise ConfigError(
            "--initialisation neighbours needs learned positions, and embeddings as wide as layers",
            remedy="give --initialisation random",
        )


def has_position_columns(encoder: EncoderConfig) -> bool:
    """Return whether positions are learned, with columns for them in rows that are the states."""
    states = encoder.embedding is None
    return encoder.positions == "learned" and states and _position_pairs(encoder) > 0


def token_columns(encoder: Encoder) -> int:
    """Return the number of columns of token rows; positions have the others."""
    return encoder.config.hidden - 2 * _position_pairs(encoder.config)


def _position_pairs(encoder: EncoderConfig) -> int:
    hidden = encoder.hidden
    return min(_MAX_PAIRS, hidden // encoder.heads // 2, hidden // 8)


@torch.no_grad()
def start_from_rows(encoder: Encoder, rows: Tensor, known_tokens: Tensor, *, mask_id: int) -> None:
    """Set rows (tokens, `token_columns`), root mean square 1, and positions in other columns.

    `known_tokens` (vocabulary,) marks those that have one. Queries and keys of the first layer
    are set to go with the positions. The encoder must have place for them.
    """
    embeddings, width = encoder.embeddings, rows.shape[1]
    table, positions = embeddings.tokens.weight, embeddings.positions
    assert isinstance(positions, nn.Embedding)
    table[known_tokens, :width] = _TOKEN_SCALE * rows
    # a mask carries no information on the token it hides
    table[mask_id] = 0
    table[:, width:] = 0
    if embeddings.segments is not None:
        embeddings.segments.weight[:, width:] = 0
    _start_positions(encoder, positions.weight, _position_pairs(encoder.config))


def token_rows(neighbours: Neighbours, width: int, generator: torch.Generator) -> Tensor:
    """Return a row (tokens, width), root mean square 1, for each token that occurs, in order."""
    tokens = torch.from_numpy(neighbours.tokens)
    occurs = tokens > 0
    parts = [_information(torch.from_numpy(value)[occurs]) for value in neighbours.near.values()]
    matrix = torch.cat(parts, 1).mul_(tokens[occurs, None] ** _FREQUENCY_WEIGHT)
    directions = min(width, *matrix.shape)
    rank = min(width + _EXTRA, *matrix.shape)
    basis = torch.randn(matrix.shape[1], rank, generator=generator)
    for _ in range(_TURNS):
        basis = torch.linalg.qr(matrix.T @ (matrix @ basis))[0]
    left, values, _ = torch.linalg.svd(matrix @ basis, full_matrices=False)
    rows: Tensor = left[:, :directions] * values[:directions].sqrt()
    # Adam treats every column alike, so the large directions are spread over all of them
    rotation = torch.linalg.qr(torch.randn(width, width, generator=generator))[0][:directions]
    spread: Tensor = torch.nn.functional.normalize(rows, dim=1) * width**0.5 @ rotation
    return spread


def _information(table: Tensor) -> Tensor:
    """Return the positive pointwise mutual information (tokens, contexts)."""
    context = table.sum(0) ** _SMOOTHING
    # a text of one or two tokens has no neighbours at some distances
    expected = table.sum(1, keepdim=True) * (context / context.sum().clamp(min=1e-9))
    return (table / expected.clamp(min=1e-9)).clamp(min=1).log()


def _start_positions(encoder: Encoder, table: Tensor, pairs: int) -> None:
    """Set sinusoids in the last columns, and first-layer heads that rotate them by a distance."""
    columns = 2 * pairs
    generator = torch.Generator().manual_seed(int(stream(Purpose.POSITION_FREQUENCIES)))
    # not quite even, so that no distance within reach resembles another
    frequency = torch.pi * (torch.arange(pairs) + torch.rand(pairs, generator=generator)) / pairs
    angle = torch.arange(len(table))[:, None] * frequency
    table.zero_()
    table[:, -columns:] = _POSITION_SCALE * torch.cat([angle.cos(), angle.sin()], 1)
    block = encoder.blocks[0]
    assert isinstance(block, Block)
    attention = block.attention
    size = len(table[0]) // attention.heads
    for head, distance in enumerate(_head_distances(attention.heads, encoder.config.causal)):
        rows = slice(head * size, (head + 1) * size)
        query, key = attention.query.weight[rows], attention.key.weight[rows]
        query.zero_()
        key.zero_()
        cos, sin = (distance * frequency).cos().diag(), (distance * frequency).sin().diag()
        rotation = torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)])
        query[:columns, -columns:] = _SHARPNESS * rotation
        key[:columns, -columns:] = _SHARPNESS * torch.eye(columns)


def _head_distances(heads: int, causal: bool) -> list[int]:
    """Return the distance of each head: -1, 1, -2, 2, ...; only negative ones if causal."""
    if causal:
        return [-head for head in range(heads)]
    return [(head // 2 + 1) * (1 if head % 2 else -1) for head in range(heads)]
