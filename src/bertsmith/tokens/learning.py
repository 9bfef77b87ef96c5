"""A WordPiece vocabulary learned from a stream of texts.

Deterministic: the trainer of the compiled library numbers characters in the order of a hash table
and breaks ties by those numbers, so it is handed the whole alphabet, in order, beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tokenizers import Tokenizer as CompiledTokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from bertsmith.errors import VocabularyError
from bertsmith.tokens.accents import decide_accents
from bertsmith.tokens.alphabet import alphabet_of, check_coverage, choose_characters, refuse_small
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.counting import WordCounter, characters_of, repeated
from bertsmith.tokens.observing import SILENT, LearningObserver
from bertsmith.tokens.refining import refine
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import MOST_PIECES, SPECIALS
from bertsmith.tokens.wordpiece import CONTINUES


def learn_wordpiece(
    texts: Iterable[str],
    *,
    size: int = 30_000,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    character_coverage: float | None = None,
    min_frequency: int = 2,
    observer: LearningObserver = SILENT,
) -> Tokenizer:
    """Learn at most `size` pieces, special tokens [PAD] [UNK] [CLS] [SEP] [MASK] as ids 0 to 4.

    `texts` is read once, in bounded memory. A pair of pieces is joined when it is met at least
    `min_frequency` times; then the pieces that are missed least are exchanged for those that save
    most (see `refine`). `strip_accents` is decided from the text unless given: see
    `decide_accents`. The most frequent characters that make up a share `character_coverage` of the
    text are kept (see `choose_characters`), and words with others become [UNK]. Raises
    `VocabularyError` when there is no text or `size` cannot hold the alphabet.
    """
    if not len(SPECIALS) < size <= MOST_PIECES:
        raise VocabularyError(
            f"a vocabulary of {size} pieces", remedy=f"choose a size of 100 to {MOST_PIECES}"
        )
    check_coverage(character_coverage)
    counter = WordCounter()
    for text in texts:
        counter.add(text)
    accents = decide_accents(counter.characters(), lowercase=lowercase, asked=strip_accents)
    rules = BasicRules(lowercase=lowercase, strip_accents=accents.strip)
    words = counter.words(rules, observer)
    if not words:
        raise VocabularyError(
            "there is no text to learn a vocabulary from", remedy="give a corpus with some words"
        )
    observer.decided(accents)
    counts = _with_forgotten(characters_of(words), counter.forgotten(), rules)
    kept = choose_characters(counts, character_coverage, size=size)
    words = Counter({word: n for word, n in words.items() if kept.issuperset(word)})
    start = [*sorted(kept), *sorted({CONTINUES + c for word in words for c in word[1:]})]
    if len(SPECIALS) + len(start) > size:
        raise refuse_small(size, len(SPECIALS) + len(start))
    observer.covered(alphabet_of(counts, kept, entries=len(start)))
    joined = _train(words, start, size, min_frequency, observer)
    fixed = frozenset((*SPECIALS, *start))
    pieces = refine(joined, words, fixed=fixed, rarest=min_frequency, observer=observer)
    return Tokenizer(pieces, rules)


def _with_forgotten(
    counts: Counter[str], forgotten: Mapping[str, int], rules: BasicRules
) -> Counter[str]:
    """Add what the rules make of the characters of forgotten stretches."""
    for character, number in forgotten.items():
        for word in rules.words(character):
            for each in word:
                counts[each] += number
    return counts


def _train(
    words: Counter[str],
    start: list[str],
    size: int,
    min_frequency: int,
    observer: LearningObserver,
) -> list[str]:
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
    compiled.train_from_iterator(repeated(words, observer), trainer)
    ids: dict[str, int] = compiled.get_vocab()
    return sorted(ids, key=ids.__getitem__)
