"""Learning a vocabulary from a corpus."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from bertsmith.disk import new_folder
from bertsmith.errors import VocabularyError
from bertsmith.log import progress, say
from bertsmith.recipes.corpora import CorpusReading
from bertsmith.text.documents import Document
from bertsmith.tokens.byte_learning import learn_byte_bpe
from bertsmith.tokens.learning import learn_wordpiece
from bertsmith.tokens.statistics import VocabularyFit, measure_fit
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.unigram_learning import learn_unigram
from bertsmith.tokens.vocabulary import KindName

_FIT_PARAGRAPHS = 2000


def learn_vocabulary(
    corpus: list[str],
    *,
    out: Path,
    size: int = 30_000,
    kind: KindName = "wordpiece",
    cased: bool = False,
    reading: CorpusReading = CorpusReading(),  # noqa: B008 (frozen)
) -> Tokenizer:
    """Learn a vocabulary of `size` pieces from a corpus and save it in a new folder.

    One of the kind byte-bpe is always `cased`.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise VocabularyError("exists already", where=out, remedy="choose another --out")
    tokenizer, fit = learn_from(
        opened := reading.open(corpus),
        total=opened.total_bytes,
        size=size,
        cased=cased,
        kind=kind,
    )
    with new_folder(out) as partial:
        tokenizer.save(partial)
    say(describe(tokenizer, fit))
    if tokenizer.size < size:
        say(f"the text has no more than these; {size:,} were asked for")
    say(f"next: bertsmith prepare CORPUS --vocab {out} --out store")
    return tokenizer


def learn_from(
    documents: Iterable[Document],
    *,
    total: int,
    size: int,
    cased: bool,
    kind: KindName = "wordpiece",
) -> tuple[Tokenizer, VocabularyFit]:
    """A vocabulary, and how it fits the end of the text; `total` is about the text's bytes."""
    tail: deque[str] = deque(maxlen=_FIT_PARAGRAPHS)
    with progress("reading", total, "B") as bar:

        def texts() -> Iterator[str]:
            for document in documents:
                bar.advance(sum(map(len, document.paragraphs)))
                tail.extend(document.paragraphs)
                yield from document.paragraphs
            bar.move_to(total)
            bar.note("joining pieces")

        tokenizer = _LEARN[kind](texts(), size, cased)
    return tokenizer, measure_fit(tokenizer, tail)


_LEARN: dict[KindName, Callable[[Iterable[str], int, bool], Tokenizer]] = {
    "wordpiece": lambda texts, size, cased: learn_wordpiece(texts, size=size, lowercase=not cased),
    "byte-bpe": lambda texts, size, cased: learn_byte_bpe(texts, size=size),
    "unigram": lambda texts, size, cased: learn_unigram(
        texts, size=size, lowercase=not cased, keep_accents=cased
    ),
}


def describe(tokenizer: Tokenizer, fit: VocabularyFit) -> str:
    """One line about a vocabulary."""
    unknown = tokenizer.vocabulary[tokenizer.unknown_id]
    return (
        f"vocabulary: {tokenizer.size:,} pieces, {'uncased' if tokenizer.lowercase else 'cased'}; "
        f"{fit.pieces_per_word:.2f} pieces a word, {100 * fit.unknown_share:.2f} % of words "
        f"{unknown}"
    )


def in_pieces(tokenizer: Tokenizer, words: Iterable[str], count: int = 5) -> str:
    """A few words with their pieces, those of several pieces first: ``tweeting -> tweet ##ing``."""
    shown = sorted((tokenizer.pieces(word) for word in words), key=len, reverse=True)
    return ", ".join(
        f"{''.join(pieces).replace('##', '')} -> {' '.join(pieces)}"
        for pieces in islice(shown, count)
    )
