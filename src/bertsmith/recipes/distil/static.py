"""A static student: a vector for each piece of the vocabulary, and nothing else.

The vector of a piece is what the teacher makes of it alone, between its special tokens, pooled as
its folder says, after its Dense layers. Principal components leave the directions in which these
differ most, and frequent pieces count less: a/(a + p) for a piece of the share p (Arora et al.
2017, section 3; so does Model2Vec).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.core.files import name_is_taken
from bertsmith.core.log import progress, say
from bertsmith.core.ownership import claimed_output
from bertsmith.core.printable import shell_word
from bertsmith.engine.config import EngineConfig, FeatureConfig
from bertsmith.engine.features import width as width_of
from bertsmith.engine.prepared import Prepared, prepare_model
from bertsmith.network.config import VectorPooling
from bertsmith.network.pooling import AfterPooling, UnitLength, pooled
from bertsmith.recipes.distil.config import DistilConfig
from bertsmith.recipes.pretrain.starting import check_store_vocabulary
from bertsmith.store.store import TokenStore
from bertsmith.tasks.opening import folder_features
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from bertsmith.weights.sentence_folder import read_sentence_folder, save_static
from bertsmith.weights.tensors import weights_hash

SMOOTHING = 1e-4
"""a: pieces of this share count half."""


@dataclass(frozen=True, kw_only=True)
class StaticOutcome:
    """A static model, and the share of the variance that its components have."""

    folder: Path
    vectors: Tensor
    kept: float

    @property
    def model(self) -> Path:
        """The folder of the model."""
        return self.folder

    def __repr__(self) -> str:
        size, width = self.vectors.shape
        return f"<StaticOutcome {str(self.folder)!r}: {size:,} vectors of {width}>"


def distil_static(config: DistilConfig) -> StaticOutcome:
    """Make a static model of a teacher, by the frequencies of a store, and save it in `out`.

    Raises `UserError` children before anything is written.
    """
    width = config.student.width
    if width is None:
        raise ConfigError(
            f"--student is {config.student.student!r}", remedy="give a width for static, as 256"
        )
    for name, value in (("--minutes", config.minutes), ("--steps", config.steps)):
        if value is not None:
            raise ConfigError(f"{name} is not for static, which trains nothing")
    with claimed_output(config.out):
        if name_is_taken(config.out):
            raise ModelFolderError(
                "exists already", where=config.out, remedy="choose another --out"
            )
        return _distilled(config, width)


def _distilled(config: DistilConfig, width: int) -> StaticOutcome:
    """Make the vectors and save them."""
    sentences = read_sentence_folder(config.teacher)
    folder = config.teacher if sentences is None else sentences.network
    model, tokenizer = load_model(folder)
    store = TokenStore(config.data)
    check_store_vocabulary(store, folder)
    features, layers = folder_features(
        FeatureConfig(), model, tokenizer, sentences, where=config.teacher
    )
    # a longer vector weighs more in the mean over a text
    after = [layer.double() for layer in layers if not isinstance(layer, UnitLength)]
    if width > (widest := width_of(model, features, after)):
        raise ConfigError(
            f"--student is {width}, and the teacher's vectors are {widest} wide",
            remedy=f"give at most {widest}",
        )
    engine = prepare_model(model, EngineConfig(precision="fp32"))
    result = piece_vectors(engine, tokenizer, features, after)
    vectors, components = principal_components(
        result, width, store.counts(tokenizer.size), tokenizer
    )
    card = _card(folder, width, store)
    save_static(config.out, vectors, tokenizer, card=card)
    say(
        f"{config.out}: {tokenizer.size:,} vectors of {width}, with {100 * components:.1f} % of "
        "the variance of the teacher's"
    )
    say(f"next: bertsmith embed {shell_word(config.out)} TEXTS --out vectors.npy")
    return StaticOutcome(folder=config.out, vectors=vectors, kept=components)


@torch.no_grad()
def piece_vectors(
    engine: Prepared, tokenizer: Tokenizer, features: FeatureConfig, after: Sequence[AfterPooling]
) -> NDArray[np.float64]:
    """Return a teacher's vector of each piece alone, (pieces, width); 0 of special tokens.

    It is pooled over the piece and the special tokens around it, as `features` say, before the
    layers `after`.
    """
    ordinary = np.asarray(tokenizer.ordinary_ids)
    around = [np.array([*tokenizer.begin, item, *tokenizer.end], np.int32) for item in ordinary]
    examples = EncodedExamples.of(around)
    pooling = cast("tuple[VectorPooling, ...]", features.kinds)
    vectors = np.zeros((tokenizer.size, width_of(engine.model, features, after)))
    with progress("the teacher", len(ordinary), "pieces") as bar:
        for units, batch in engine.forward.batches(engine.model, examples):
            last = engine.model.encoder(batch).last.double()
            result = pooled(pooling, last, batch.offsets)
            for layer in after:
                result = layer(result)
            vectors[ordinary[units]] = result.numpy()
            bar.advance(len(units))
    return vectors


def principal_components(
    result: NDArray[np.float64], width: int, counts: NDArray[np.int64], tokenizer: Tokenizer
) -> tuple[Tensor, float]:
    """Return principal components of vectors, weighted by frequency, and their variance's share."""
    ordinary = np.asarray(tokenizer.ordinary_ids)
    rows = result[ordinary]
    centred = rows - rows.mean(0)
    values, directions = np.linalg.eigh(centred.T @ centred)
    # the largest last; a direction's sign is that of its largest entry
    chosen = directions[:, ::-1][:, :width]
    largest = np.abs(chosen).argmax(0)
    chosen = chosen * np.sign(chosen[largest, np.arange(width)])
    shares = (counts[ordinary] + 1) / (counts[ordinary].sum() + len(ordinary))
    weights = SMOOTHING / (SMOOTHING + shares)
    vectors = np.zeros((len(result), width))
    vectors[ordinary] = (centred @ chosen) * weights[:, None]
    explained = float(values[::-1][:width].sum() / values.sum())
    return torch.from_numpy(vectors).float(), explained


def _card(folder: Path, width: int, store: TokenStore) -> str:
    return f"""---
library_name: sentence-transformers
tags:
- static-embeddings
---

# Static vectors, {width} wide

The vector of a text is the mean of those of its pieces. Made by bertsmith from a teacher with \
weights of SHA-256 `{weights_hash(folder)}`, with the frequencies of a store of {store.tokens:,} \
tokens. Open it with `SentenceTransformer` or `bertsmith embed`.
"""
