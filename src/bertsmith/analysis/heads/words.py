"""Words and the pieces they are made of, and attention from word to word.

Attention to a word is the sum over its pieces, attention from a word the mean over them (Clark et
al. 2019, section 4.1): what leaves a word then adds up to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.analysis.heads.attention import Block
from bertsmith.batches.truncation import Ids, Segments, encode_pair
from bertsmith.text.examples.tagged import joined
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class SplitWords:
    """A sentence as token ids (tokens,), and the word of each token: -1 for special ones.

    `words` is the number of words; one that the tokenizer drops has no token.
    """

    ids: Ids
    segments: Segments
    owner: NDArray[np.int64]
    words: int


def split_words(tokenizer: Tokenizer, words: Sequence[str], longest: int) -> SplitWords | None:
    """Encode a sentence given as words; None if it has more than `longest` tokens."""
    text, spans = joined(words)
    encoded = tokenizer.encode_spans(text, specials_in_text=False)
    if len(encoded) + tokenizer.specials_around(pair=False) > longest:
        return None
    ends = np.array([end for _, end in spans], np.int64)
    # a piece may begin with the blank before its word
    inner = np.searchsorted(ends, encoded.ends - 1, side="right")
    ids, segments = encode_pair(tokenizer, encoded.ids, None, longest=longest)
    before = len(tokenizer.begin)
    owner = np.full(len(ids), -1, np.int64)
    owner[before : before + len(inner)] = np.minimum(inner, len(words) - 1)
    return SplitWords(ids=ids, segments=segments, owner=owner, words=len(words))


def fitting_words(tokenizer: Tokenizer, words: Sequence[str], longest: int) -> tuple[str, ...]:
    """Return the first words, as many as have at most `longest` tokens with the special ones."""
    text, spans = joined(words)
    encoded = tokenizer.encode_spans(text, specials_in_text=False)
    room = longest - tokenizer.specials_around(pair=False)
    if len(encoded) <= room:
        return tuple(words)
    ends = np.array([end for _, end in spans], np.int64)
    # the word that the last piece with room belongs to, unless the next piece does, too
    last, after = np.searchsorted(ends, encoded.ends[room - 1 : room + 1] - 1, side="right")
    return tuple(words[: last + (after > last)])


class WordSums(NamedTuple):
    """The tokens of each word: `member` (sequences, places, words) is 1 for its tokens.

    `share` divides them by the number of tokens; `there` (sequences, words) marks words with any.
    """

    member: Tensor
    share: Tensor
    there: Tensor


def word_sums(block: Block, sentences: Sequence[SplitWords], device: torch.device) -> WordSums:
    """Return the words of the sentences of a block."""
    widest = max(sentence.words for sentence in sentences)
    owner = np.full((len(sentences), block.places), -1, np.int64)
    for row, sentence in enumerate(sentences):
        owner[row, : len(sentence.owner)] = sentence.owner
    words = torch.arange(widest, device=device)
    member = (torch.from_numpy(owner).to(device)[..., None] == words).float()
    counts = member.sum(1, keepdim=True)
    return WordSums(member, member / counts.clamp(min=1), counts[:, 0] > 0)


def word_attention(weights: Tensor, sums: WordSums) -> Tensor:
    """Return attention from word to word (sequences, heads, words, words) of (…, queries, keys)."""
    to_words = weights @ sums.member[:, None]
    return sums.share[:, None].transpose(-1, -2) @ to_words


def best_words(weights: Tensor, sums: WordSums) -> NDArray[np.int64]:
    """Return the word each word attends to most, itself left out: (sequences, heads, words)."""
    words = word_attention(weights, sums)
    attended = words.masked_fill(~sums.there[:, None, None], -1.0)
    itself = torch.eye(words.shape[-1], dtype=torch.bool, device=words.device)
    best: NDArray[np.int64] = attended.masked_fill(itself, -1.0).argmax(-1).cpu().numpy()
    return best
