"""Learning of a WordPiece vocabulary from a stream of texts.

Deterministic: the trainer of the compiled library numbers characters in the order of a hash table
and breaks ties by those numbers, so it receives the whole alphabet, in order, beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest

from tokenizers import Tokenizer as CompiledTokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.counting import (
    SILENT,
    LearningObserver,
    WordCounter,
    alphabet_of,
    characters_of,
    check_coverage,
    check_size,
    choose_characters,
    decide_accents,
    dropped_characters,
    refuse_empty,
    refuse_small,
    repeated,
)
from bertsmith.tokens.learning.mining import PieceMiner, PieceTable, rarest_worth_adding
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.tokens.wordpiece import CONTINUES

_SHARE = 0.5
# the most common words, which are nearly all of any text; bounds the work on large corpora
_MAX_WORDS = 250_000


def refine(
    pieces: Sequence[str],
    words: Mapping[str, int],
    *,
    fixed: Collection[str],
    rarest: int,
    observer: LearningObserver = SILENT,
) -> list[str]:
    """Replace up to half of the pieces that are not `fixed`, for fewer pieces in the words.

    The half with the smallest individual losses is replaced by the pieces that save most, if they
    occur `rarest` times. Pieces without a useful replacement are kept.
    """
    if len(words) > _MAX_WORDS:
        words = dict(nlargest(_MAX_WORDS, words.items(), key=lambda item: (item[1], item[0])))
    losses = _losses(pieces, words, fixed, observer)
    ranked = sorted(losses, key=lambda piece: (losses[piece], piece))
    dropped = ranked[: int(_SHARE * len(ranked))]
    removed = frozenset(dropped)
    remaining = [piece for piece in pieces if piece not in removed]
    if not dropped:
        return remaining
    least = rarest_worth_adding(words, remaining, count=len(dropped), rarest=rarest)
    miner = PieceMiner(words, remaining, rarest=least, observer=observer)
    observer.phase("exchanging pieces", len(dropped), "pieces")
    new: list[str] = []
    for mined in miner.mine(len(dropped)):
        new.append(mined.piece)
        observer.advance()
    added = frozenset(new)
    back = [piece for piece in reversed(dropped) if piece not in added]
    return [*remaining, *new, *back[: len(dropped) - len(new)]]


def _losses(
    pieces: Sequence[str],
    words: Mapping[str, int],
    fixed: Collection[str],
    observer: LearningObserver,
) -> dict[str, int]:
    """Return, for each piece, by how many pieces the words would grow without it."""
    table = PieceTable(pieces)
    losses = dict.fromkeys((piece for piece in pieces if piece not in fixed), 0)
    observer.phase("weighing pieces", len(words), "words")
    for word, count in observer.each(words.items()):
        cut = table.cut(word) or []
        start, seen = 0, set[str]()
        for before, piece in enumerate(cut):
            if piece in losses and piece not in seen:
                seen.add(piece)
                table.remove(piece)
                rest = table.cut(word, start)
                table.add(piece)
                other = len(word) if rest is None else before + len(rest)
                losses[piece] += count * (other - len(cut))
            start += len(piece) - (len(CONTINUES) if start else 0)
    return losses


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

    `texts` is read once, in bounded memory. A pair of pieces is merged if it occurs at least
    `min_frequency` times; then the pieces with the smallest losses are replaced by those that save
    most (see `refine`). `strip_accents` is decided from the text unless given: see
    `decide_accents`. The most frequent characters that make up a share `character_coverage` of the
    text are kept (see `choose_characters`), and words with others become [UNK]. Raises
    `VocabularyError` if there is no text or `size` cannot hold the alphabet.
    """
    check_size(size, len(SPECIALS))
    check_coverage(character_coverage)
    counter = WordCounter()
    for text in texts:
        counter.add(text)
    characters = counter.characters()
    dropped = dropped_characters(characters)
    accents = decide_accents(characters, lowercase=lowercase, requested=strip_accents)
    rules = BasicRules(lowercase=lowercase, strip_accents=accents.strip)
    words = counter.words(rules, observer)
    if not words:
        raise refuse_empty(too_long=counter.too_long, dropped=dropped)
    observer.decided(accents)
    observer.forgotten(counter.forgotten_share())
    counts = _with_forgotten(characters_of(words), counter.forgotten(), rules)
    kept = choose_characters(counts, character_coverage, size=size)
    words = Counter({word: n for word, n in words.items() if kept.issuperset(word)})
    start = [*sorted(kept), *sorted({CONTINUES + c for word in words for c in word[1:]})]
    if len(SPECIALS) + len(start) > size:
        raise refuse_small(size, len(SPECIALS) + len(start))
    left = {"too_long": counter.too_long, "dropped": dropped}
    observer.covered(alphabet_of(counts, kept, entries=len(start), **left))
    joined = _train(words, start, size, min_frequency, observer)
    fixed = frozenset((*SPECIALS, *start))
    pieces = refine(joined, words, fixed=fixed, rarest=min_frequency, observer=observer)
    return Tokenizer(pieces, rules)


def _with_forgotten(
    counts: Counter[str], forgotten: Mapping[str, int], rules: BasicRules
) -> Counter[str]:
    """Add the counts of the characters of dropped chunks, after the rules."""
    for character, number in forgotten.items():
        for word in rules.words(character):
            for letter in word:
                counts[letter] += number
    return counts


def _train(
    words: Counter[str], start: list[str], size: int, min_frequency: int, observer: LearningObserver
) -> list[str]:
    """Return the pieces in order of id, learned by the compiled trainer."""
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
