"""A WordPiece vocabulary learned from a stream of texts.

Deterministic: the trainer of the compiled library numbers characters in the order of a hash table
and breaks ties by those numbers, so it is handed the whole alphabet, in order, beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from tokenizers import Tokenizer as CompiledTokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from bertsmith.errors import VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.counting import BoundedCounter, repeated
from bertsmith.tokens.refining import refine
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import MOST_PIECES, SPECIALS
from bertsmith.tokens.wordpiece import CONTINUES, LONGEST_WORD

_LARGEST_ALPHABET = 1000


def learn_wordpiece(
    texts: Iterable[str],
    *,
    size: int = 30_000,
    lowercase: bool = True,
    min_frequency: int = 2,
    alphabet: int | None = None,
) -> Tokenizer:
    """Learn at most `size` pieces, special tokens [PAD] [UNK] [CLS] [SEP] [MASK] as ids 0 to 4.

    `texts` is read once, in bounded memory. A pair of pieces is joined when it is met at least
    `min_frequency` times; then the pieces that are missed least are exchanged for those that save
    most (see `refine`). `alphabet` is the number of characters kept, the most frequent; words
    with others become [UNK]; None: a sixteenth of `size`, 256 to 1,000.
    Raises `VocabularyError` when there is no text or `size` cannot hold the alphabet.
    """
    if not len(SPECIALS) < size <= MOST_PIECES:
        raise VocabularyError(
            f"a vocabulary of {size} pieces", remedy=f"choose a size of 100 to {MOST_PIECES}"
        )
    if alphabet is None:
        alphabet = min(max(size // 16, 256), _LARGEST_ALPHABET)
    rules = BasicRules(lowercase=lowercase)
    words = count_words(texts, rules)
    if not words:
        raise VocabularyError(
            "there is no text to learn a vocabulary from", remedy="give a corpus with some words"
        )
    kept = _most_frequent_characters(words, alphabet)
    words = Counter({word: n for word, n in words.items() if kept.issuperset(word)})
    start = [*sorted(kept), *sorted({CONTINUES + c for word in words for c in word[1:]})]
    if len(SPECIALS) + len(start) > size:
        raise VocabularyError(
            f"{size} pieces cannot hold the special tokens and the text's alphabet",
            remedy=f"choose a size of at least {2 * (len(SPECIALS) + len(start))}",
        )
    joined = _train(words, start, size, min_frequency)
    fixed = frozenset((*SPECIALS, *start))
    return Tokenizer(refine(joined, words, fixed=fixed, rarest=min_frequency), rules)


def count_words(texts: Iterable[str], rules: BasicRules) -> Counter[str]:
    """How often each word occurs, in order of first occurrence; see `WordCounter`."""
    counter = WordCounter(rules)
    for text in texts:
        counter.add(text)
    return counter.words()


class WordCounter:
    """Counts the words of texts as they come, in bounded memory.

    Counts stretches between blanks first, so the rules run once for each different one.
    """

    def __init__(self, rules: BasicRules) -> None:
        self._rules = rules
        self._chunks = BoundedCounter()

    def add(self, text: str) -> None:
        """Count the words of a text."""
        self._chunks.add(text.split())

    def words(self) -> Counter[str]:
        """How often each word occurs, in order of first occurrence; none of over 100 characters."""
        words: Counter[str] = Counter()
        for chunk, number in self._chunks.counts.items():
            for word in self._rules.words(chunk):
                if len(word) <= LONGEST_WORD:
                    words[word] += number
        return words


def _most_frequent_characters(words: Counter[str], limit: int) -> set[str]:
    characters: Counter[str] = Counter()
    for word, number in words.items():
        for character in word:
            characters[character] += number
    ranked = sorted(characters.items(), key=lambda item: (-item[1], item[0]))
    return {character for character, _ in islice(ranked, limit)}


def _train(words: Counter[str], start: list[str], size: int, min_frequency: int) -> list[str]:
    """The pieces in order of id, joined by the compiled trainer."""
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIALS, *start],
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    compiled = CompiledTokenizer(WordPiece(unk_token="[UNK]"))
    compiled.pre_tokenizer = WhitespaceSplit()
    compiled.train_from_iterator(repeated(words), trainer)
    ids: dict[str, int] = compiled.get_vocab()
    return sorted(ids, key=ids.__getitem__)
