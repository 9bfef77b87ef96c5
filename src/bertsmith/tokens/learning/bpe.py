"""Learning of a byte-level BPE vocabulary from a stream of texts.

Deterministic: the words are counted here, in bounded memory, and the compiled trainer receives all
256 bytes beforehand, so that no ids depend on the order of a hash table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer as CompiledTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import BpeTrainer

from bertsmith.tokens.bpe import ByteRules, byte_letters, words, written
from bertsmith.tokens.learning.counting import (
    SILENT,
    BoundedCounter,
    LearningObserver,
    check_size,
    refuse_empty,
    repeated,
)
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import BYTE_SPECIALS

_MAX_WORD_LENGTH = 100
# RoBERTa's order, except for the mask, which RoBERTa has last
_ORDER = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def learn_byte_bpe(
    texts: Iterable[str],
    *,
    size: int = 30_000,
    min_frequency: int = 2,
    observer: LearningObserver = SILENT,
) -> Tokenizer:
    """Learn at most `size` pieces, including 5 special tokens and the 256 bytes.

    `texts` is read once, in bounded memory; words of over 100 characters, such as sentences without
    blanks, are split. A pair of pieces is merged if it occurs at least `min_frequency` times.
    Raises `VocabularyError` if there is no text or `size` cannot hold the bytes.
    """
    start = len(BYTE_SPECIALS) + len(byte_letters())
    check_size(size, start, advised=start + 1)
    counter = BoundedCounter(size=lambda part: len(part.encode("utf-8", "surrogatepass")))
    for text in texts:
        counter.add(part for word in words(text) for part in _parts(word))
    counts = {written(word): number for word, number in counter.counts.items()}
    if not any(map(str.strip, counter.counts)):
        raise refuse_empty()
    observer.forgotten(counter.forgotten_share())
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(_ORDER),
        initial_alphabet=list(byte_letters()),
        show_progress=False,
    )
    compiled = CompiledTokenizer(BPE())
    compiled.pre_tokenizer = WhitespaceSplit()
    compiled.train_from_iterator(repeated(counts, observer), trainer)
    model = json.loads(compiled.to_str())["model"]
    ids: dict[str, int] = model["vocab"]
    merges = tuple((first, second) for first, second in model["merges"])
    return Tokenizer(sorted(ids, key=ids.__getitem__), ByteRules(merges=merges))


def _parts(word: str) -> Iterator[str]:
    for start in range(0, len(word), _MAX_WORD_LENGTH):
        yield word[start : start + _MAX_WORD_LENGTH]
