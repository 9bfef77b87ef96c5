"""Statistics of each attention head over a corpus (Clark et al. 2019, sections 3.1 to 3.3).

Tokens have roles: a special token, punctuation, a word, part of the first or second text of a pair.
What queries of one role give to keys of another is a table of sums by head, and most statistics are
entries of it divided by the number of queries. Means are over the tokens of the corpus, so long
texts count for more than short ones. Memory depends on the model and its vocabulary alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.analysis.heads.attention import Block, LayerAttention
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig
from bertsmith.tokens.basic import is_punctuation
from bertsmith.tokens.tokenizer import Tokenizer

ROLES = ("all", "cls", "sep", "punctuation", "word", "first", "second")
"""Roles of tokens: `word` is any that is not special; `first` and `second` are those of pairs."""
_ROLE = {name: number for number, name in enumerate(ROLES)}

STATISTICS: Mapping[str, str] = {
    "self": "Attention to the token itself",
    "next": "Attention to the next token",
    "previous": "Attention to the previous token",
    "cls": "Attention to [CLS]",
    "sep": "Attention to [SEP]",
    "punctuation": "Attention to punctuation",
    "distance": "Mean distance to what is attended to, in tokens",
    "entropy": "Entropy of the attention, in nats",
    "cls_entropy": "Entropy of the attention from [CLS], in nats",
    "sep_to_sep": "Attention from [SEP] to [SEP]",
    "words_to_sep": "Attention from words and punctuation to [SEP]",
    "first_to_second": "Attention from the first text of a pair to the second",
    "second_to_first": "Attention from the second text of a pair to the first",
}
"""The statistics of a head, and their titles."""
SHARES = frozenset(STATISTICS) - {"distance", "entropy", "cls_entropy"}
"""Statistics that are shares of the attention, from 0 to 1."""

Figures = NDArray[np.float64]


class Sums(NamedTuple):
    """Sums over the tokens of each sequence of a block, for the heads of one layer.

    `table` (sequences, heads, roles, roles) is what queries of a role give to keys of a role;
    `entropy` (sequences, heads, roles) is by role of the query; `self`, `next`, `previous` and
    `distance` are (sequences, heads).
    """

    table: Tensor
    entropy: Tensor
    self: Tensor
    next: Tensor
    previous: Tensor
    distance: Tensor


class TokenRoles:
    """The roles of the tokens of batches, by their ids and places."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        self._special = torch.zeros(tokenizer.size, dtype=torch.bool)
        self._special[sorted(tokenizer.special_ids)] = True
        self._marks = torch.tensor(
            [_is_mark(tokenizer, number) for number in range(tokenizer.size)]
        )
        self._marks &= ~self._special

    def of_block(self, batch: Batch, block: Block) -> Tensor:
        """Return 1 for the roles of each token, (sequences, places, roles)."""
        ids = batch.ids[block.rows]
        device = ids.device
        special, marks = self._special.to(device)[ids], self._marks.to(device)[ids]
        separators = (ids == self._sep) & block.real
        # only the separators around the two texts: the unknown token stays a word
        around = separators | (ids == self._cls)
        before = separators.cumsum(1)
        paired = before[:, -1:] > 1
        inner = ~around
        results = {
            "all": torch.ones_like(special),
            "cls": ids == self._cls,
            "sep": separators,
            "punctuation": marks,
            "word": ~special & ~marks,
            "first": inner & paired & (before == 0),
            "second": inner & paired & (before > 0),
        }
        roles = torch.stack([results[name] for name in ROLES], -1)
        return (roles & block.real[..., None]).float()


def _is_mark(tokenizer: Tokenizer, number: int) -> bool:
    text = tokenizer.shown(number).removeprefix("##")
    return bool(text) and all(is_punctuation(character) for character in text)


def layer_sums(layer: LayerAttention, roles: Tensor) -> Sums:
    """Return the sums of each sequence of a block, for the heads of one layer."""
    weights = layer.weights
    by_key = weights @ roles[:, None]
    table = roles[:, None].transpose(-1, -2) @ by_key
    position = torch.arange(weights.shape[-1], device=weights.device)
    distances = (position[None, :] - position[:, None]).abs().float()
    diagonal, after, before = (
        torch.diagonal(weights, shift, -2, -1).sum(-1) for shift in (0, 1, -1)
    )
    distance = torch.einsum("shqk,qk->sh", weights, distances)
    return Sums(table, layer.entropy @ roles, diagonal, after, before, distance)


class HeadSums:
    """Sums over a corpus, or over each of some texts, for all heads: NumPy arrays of float64."""

    def __init__(self, layers: int, heads: int, texts: tuple[int, ...] = ()) -> None:
        """With `texts` (a number,) the sums of each text are kept apart."""
        size, shape = len(ROLES), (*texts, layers, heads)
        self.table = np.zeros((*shape, size, size))
        self.entropy = np.zeros((*shape, size))
        self.self, self.next, self.previous, self.distance = (np.zeros(shape) for _ in range(4))
        self.tokens = np.zeros((*texts, size))

    def statistics(self) -> dict[str, Figures]:
        """Return each statistic (layers, heads), or (texts, layers, heads); NaN without queries."""
        counts = {name: self.tokens[..., number] for name, number in _ROLE.items()}

        def per(sums: Figures, role: str) -> Figures:
            with np.errstate(invalid="ignore", divide="ignore"):
                shares: Figures = sums / counts[role][..., None, None]
            return shares

        def between(query: str, key: str) -> Figures:
            return self.table[..., _ROLE[query], _ROLE[key]]

        both = between("word", "sep") + between("punctuation", "sep")
        with np.errstate(invalid="ignore", divide="ignore"):
            words = both / (counts["word"] + counts["punctuation"])[..., None, None]
        return {
            "self": per(self.self, "all"),
            "next": per(self.next, "all"),
            "previous": per(self.previous, "all"),
            "cls": per(between("all", "cls"), "all"),
            "sep": per(between("all", "sep"), "all"),
            "punctuation": per(between("all", "punctuation"), "all"),
            "distance": per(self.distance, "all"),
            "entropy": per(self.entropy[..., _ROLE["all"]], "all"),
            "cls_entropy": per(self.entropy[..., _ROLE["cls"]], "cls"),
            "sep_to_sep": per(between("sep", "sep"), "sep"),
            "words_to_sep": words,
            "first_to_second": per(between("first", "second"), "first"),
            "second_to_first": per(between("second", "first"), "second"),
        }


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """A frequent token: its text, how often it occurs, and the share of all attention that each
    head gives to it, (layers, heads).
    """

    token: str
    count: int
    attention: Figures


class HeadStatistics:
    """Statistics of a corpus, block by block and layer by layer."""

    def __init__(self, config: EncoderConfig, tokenizer: Tokenizer) -> None:
        self.sums = HeadSums(config.layers, config.heads)
        self._tokenizer = tokenizer
        self._roles = TokenRoles(tokenizer)
        self._counts = np.zeros(config.vocabulary, np.int64)
        shape = (config.vocabulary, config.layers, config.heads)
        self._received = torch.zeros(shape, dtype=torch.float64)
        self.texts = 0

    def block(self, batch: Batch, block: Block) -> Tensor:
        """Count the tokens of a block and return their roles for `add`."""
        roles = self._roles.of_block(batch, block)
        self.sums.tokens += roles.sum((0, 1)).double().cpu().numpy()
        ids = batch.ids[block.rows][block.real].cpu().numpy()
        self._counts += np.bincount(ids, minlength=len(self._counts))
        self.texts += block.sequences
        return roles

    def add(self, layer: LayerAttention, batch: Batch, block: Block, roles: Tensor) -> None:
        """Count a layer of a block."""
        sums, number = layer_sums(layer, roles), layer.layer - 1
        for name in Sums._fields:
            result = getattr(sums, name).double().sum(0).cpu().numpy()
            getattr(self.sums, name)[number] += result
        received = layer.weights.sum(2).transpose(1, 2)[block.real]
        ids = batch.ids[block.rows][block.real]
        self._received[:, number].index_add_(0, ids.cpu(), received.double().cpu())

    def frequent_tokens(self, count: int) -> list[TokenFigures]:
        """Return the most frequent tokens, the commonest first; special ones are among them."""
        total = self.sums.tokens[_ROLE["all"]]
        order = np.argsort(-self._counts, kind="stable")[:count]
        return [
            TokenFigures(
                self._shown(int(number)),
                int(self._counts[number]),
                self._received[number].numpy() / total,
            )
            for number in order
            if self._counts[number]
        ]

    def _shown(self, number: int) -> str:
        known = number < self._tokenizer.size
        return self._tokenizer.shown(number) if known else f"[{number}]"
