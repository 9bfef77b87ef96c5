"""Learning a vocabulary from a corpus."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from unicodedata import category

import numpy as np

from bertsmith.core.errors import VocabularyError
from bertsmith.core.files import name_is_taken
from bertsmith.core.log import Bar, progress, say
from bertsmith.core.normal_forms import normalize
from bertsmith.core.options import typed_options
from bertsmith.core.ownership import new_folder
from bertsmith.core.printable import shell_word
from bertsmith.core.streams import Purpose, stream
from bertsmith.recipes.config import StripAccents, VocabularyConfig, VocabularySettings
from bertsmith.recipes.prepare import open_corpus
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens import KindName
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.counting import (
    AccentDecision,
    Alphabet,
    LearningObserver,
    VocabularyFit,
    measure_fit,
)
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer


class WatchedLearning(LearningObserver):
    """A progress bar for each phase, one after the other, which keeps the decisions."""

    def __init__(self, shown: ExitStack) -> None:
        self.accents: AccentDecision | None = None
        self.alphabet: Alphabet | None = None
        self.forgotten_share = 0.0
        self._shown = shown
        self._bar: Bar | None = None

    def phase(self, name: str, total: float | None, unit: str = "") -> None:
        """Show a bar for a phase, in place of the previous one."""
        self._shown.close()
        self._bar = self._shown.enter_context(progress(name, total, unit))

    def advance(self, amount: float = 1) -> None:
        """Advance the bar."""
        if self._bar is not None:
            self._bar.advance(amount)

    def move_to(self, done: float) -> None:
        """Move the bar to an absolute number of units."""
        if self._bar is not None:
            self._bar.move_to(done)

    def decided(self, accents: AccentDecision) -> None:
        """Keep the decision on accents."""
        self.accents = accents

    def forgotten(self, share: float) -> None:
        """Keep the share of the text that was not counted."""
        self.forgotten_share = share

    def covered(self, alphabet: Alphabet) -> None:
        """Keep the set of known characters."""
        self.alphabet = alphabet


@contextmanager
def watched_learning() -> Iterator[WatchedLearning]:
    """Show the phases of learning until the block ends."""
    with ExitStack() as shown:
        yield WatchedLearning(shown)


_FIT_PARAGRAPHS = 2000
_FIT_CHARACTERS = 2000
_MANY_DECOMPOSED = 0.01
_DECOMPOSED = 50  # paragraphs that are compared with their composed form
_ZERO_WIDTH = "\N{ZERO WIDTH SPACE}"
_MANY_ZERO_WIDTH = 0.05  # web pages have a few, where a line may be broken
_MANY_MARKS = 0.05
_SHOWN_WORDS = 5
_ALPHABET_SHARE = 0.5  # an alphabet that takes more leaves too little for pieces
_STRIP: dict[StripAccents, bool | None] = {"auto": None, "yes": True, "no": False}


@dataclass(frozen=True, kw_only=True)
class LearnedVocabulary:
    """A vocabulary, its fit to a sample of the text, and the decisions in learning it."""

    tokenizer: Tokenizer
    fit: VocabularyFit
    sampled: bool
    """True if the fit is that of a part of the text."""
    notes: tuple[str, ...]
    """Decisions, line by line."""
    alphabet: Alphabet | None


def learn_vocabulary(config: VocabularyConfig) -> Tokenizer:
    """Learn a vocabulary from a corpus and save it in a new folder."""
    out, settings = config.out, config.settings
    if name_is_taken(out):
        raise VocabularyError("exists already", where=out, remedy="choose another --out")
    with new_folder(out) as partial:
        opened = open_corpus(config.text)
        learned = learn_from(
            opened, total=opened.total_bytes, read=lambda: opened.bytes_read, settings=settings
        )
        learned.tokenizer.save(partial)
    for line in (*learned.notes, describe(learned), *_warn_of_size(learned, settings.size)):
        say(line)
    vocabulary = f"--vocab {shell_word(out)}"
    say(f"next: bertsmith prepare CORPUS{typed_options(config.text)} {vocabulary} --out store")
    return learned.tokenizer


def learn_from(
    documents: Iterable[Document],
    *,
    total: float,
    read: Callable[[], float] | None = None,
    settings: VocabularySettings,
) -> LearnedVocabulary:
    """Learn a vocabulary, and measure its fit to a sample of the text.

    `read` returns the bytes read so far, of `total`; without it, characters are counted instead.
    """
    sample = _Sample()
    with watched_learning() as watched:
        texts = _watched(documents, watched, sample, total=total, read=read)
        tokenizer = _LEARN[settings.kind](texts, settings, watched)
    accents = watched.accents if not settings.cased or settings.strip_accents != "auto" else None
    unknown = tokenizer.vocabulary[tokenizer.unknown_id]
    notes = [] if accents is None else [accents.describe(), accents.warning()]
    if watched.alphabet is not None:
        # unigram segmentation loses a character alone
        words = " with the words they are in" if tokenizer.kind == "wordpiece" else ""
        notes.append(watched.alphabet.describe(f"{unknown}{words}"))
        notes.append(watched.alphabet.warning(unknown))
    notes.append(left_out_note(watched.forgotten_share))
    notes.append(_warn_of_decomposed(tokenizer, sample.texts))
    notes.append(_warn_of_zero_width(tokenizer, sample.texts))
    notes.append(_warn_of_marks(tokenizer, sample.texts))
    return LearnedVocabulary(
        tokenizer=tokenizer,
        fit=measure_fit(tokenizer, sample.texts),
        sampled=sample.seen > len(sample.texts),
        notes=tuple(filter(None, notes)),
        alphabet=watched.alphabet,
    )


def left_out_note(share: float) -> str:
    """Return a note on the share of the text in words that were not counted, "" for none."""
    if not share:
        return ""
    return (
        "the text has more distinct words than are counted at once: the rarest, "
        f"{100 * share:.1f} % of the text, were left out"
    )


def _watched(
    documents: Iterable[Document],
    watched: WatchedLearning,
    sample: _Sample,
    *,
    total: float,
    read: Callable[[], float] | None,
) -> Iterator[str]:
    """Yield the paragraphs of documents, showing the progress of reading."""
    watched.phase("reading", total, "B")
    for document in documents:
        for paragraph in document.paragraphs:
            sample.add(paragraph)
            yield paragraph
        if read is None:
            watched.advance(sum(map(len, document.paragraphs)))
        else:
            watched.move_to(read())


@dataclass(slots=True)
class _Sample:
    """A uniform sample of at most 2,000 parts of paragraphs (Vitter 1985, algorithm R)."""

    texts: list[str] = field(default_factory=list)
    seen: int = 0
    """The number of parts of which it is a sample."""
    _random: random.Random = field(
        default_factory=lambda: random.Random(int(stream(Purpose.VOCABULARY_SAMPLE)))
    )

    def add(self, paragraph: str) -> None:
        """Add each part of a paragraph to the sample, or skip it."""
        for part in _parts(paragraph):
            self.seen += 1
            if len(self.texts) < _FIT_PARAGRAPHS:
                self.texts.append(part)
            elif (index := self._random.randrange(self.seen)) < _FIT_PARAGRAPHS:
                self.texts[index] = part


def _parts(paragraph: str) -> Iterator[str]:
    """Yield a paragraph whole, or cut at spaces into parts if it is long."""
    begin = 0
    while len(paragraph) - begin > _FIT_CHARACTERS:
        end = paragraph.rfind(" ", begin, begin + _FIT_CHARACTERS)
        end = end if end > begin else begin + _FIT_CHARACTERS
        yield paragraph[begin:end]
        begin = end
    yield paragraph[begin:]


Learn = Callable[[Iterable[str], VocabularySettings, WatchedLearning], Tokenizer]


def _of_words(learn: Callable[..., Tokenizer]) -> Learn:
    """Return a learner of words with the settings that byte-bpe has no use for."""
    return lambda texts, settings, watched: learn(
        texts,
        size=settings.size,
        lowercase=not settings.cased,
        strip_accents=_STRIP[settings.strip_accents],
        character_coverage=settings.character_coverage,
        observer=watched,
    )


_LEARN: dict[KindName, Learn] = {
    "wordpiece": _of_words(learn_wordpiece),
    "byte-bpe": lambda texts, settings, watched: learn_byte_bpe(
        texts, size=settings.size, observer=watched
    ),
    "unigram": lambda texts, settings, watched: _of_words(
        partial(learn_unigram, plain=settings.specials == "xlm-roberta")
    )(texts, settings, watched),
}


def describe(learned: LearnedVocabulary) -> str:
    """Return one line on a vocabulary."""
    tokenizer, fit = learned.tokenizer, learned.fit
    unknown = tokenizer.vocabulary[tokenizer.unknown_id]
    return (
        f"vocabulary: {tokenizer.size:,} pieces, {'uncased' if tokenizer.lowercase else 'cased'}; "
        f"{fit.describe()}, {100 * fit.unknown_share:.2f} % of the pieces {unknown}"
        + (f", in a sample of {_FIT_PARAGRAPHS:,} paragraphs" if learned.sampled else "")
    )


def _warn_of_decomposed(tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    """Return a warning if letters are written in parts (NFD), and composed they would be others."""
    decomposed = [text for text in texts if normalize("NFC", text) != text]
    share = len(decomposed) / max(1, len(texts))
    if share < _MANY_DECOMPOSED:
        return ""
    if isinstance(tokenizer.rules, BasicRules):
        same = tokenizer.rules.strips
        reads = "transformers' fast tokenizer"
    else:
        given = tokenizer.encode(decomposed[:_DECOMPOSED])
        composed = tokenizer.encode([normalize("NFC", text) for text in decomposed[:_DECOMPOSED]])
        same = all(map(np.array_equal, given, composed))
        reads = "this kind of vocabulary"
    if same:
        return ""
    return (
        f"warning: {100 * share:.1f} % of the paragraphs are not in Unicode's composed form (NFC): "
        f"letters in parts, as from Macs and PDFs, or marks in another order, which {reads} reads "
        "as others; compose all texts: uconv -x nfc"
    )


def _warn_of_zero_width(tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    """Return a warning if zero-width spaces divide words, as in Khmer, which no kind reads so."""
    spaces = sum(text.count(_ZERO_WIDTH) for text in texts)
    words = spaces + sum(len(text.split()) for text in texts)
    share = spaces / max(1, words)
    if share < _MANY_ZERO_WIDTH:
        return ""
    if isinstance(tokenizer.rules, BasicRules):
        effect = "WordPiece drops, as BERT does, so that it joins these words"
    else:
        effect = "this kind of vocabulary reads as characters of their own"
    return (
        f"warning: {100 * share:.1f} % of the words end at a zero-width space (U+200B), which "
        f"{effect}; write blanks in their place: sed 's/\\xe2\\x80\\x8b/ /g'"
    )


def _warn_of_marks(tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    """Return a warning if words fall apart at their vowel signs, as byte-level BPE reads Hindi."""
    if tokenizer.kind != "byte-bpe":
        return ""
    kinds = Counter(category(sign)[0] for text in texts for sign in normalize("NFC", text))
    share = kinds["M"] / max(1, kinds["L"] + kinds["M"])
    if share < _MANY_MARKS:
        return ""
    return (
        f"warning: {100 * share:.1f} % of the letters are combining marks, such as vowel signs, "
        "before and after which the rules of RoBERTa end a word, so that words fall into many "
        "pieces; --kind unigram and --kind wordpiece keep them whole"
    )


def _warn_of_size(learned: LearnedVocabulary, requested: int) -> list[str]:
    """Return a warning if fewer pieces were found than requested, or the alphabet leaves few."""
    size, alphabet = learned.tokenizer.size, learned.alphabet
    if size < requested:
        qualifier = "" if alphabet is None or not alphabet.left_out else " of known characters"
        return [f"no other piece{qualifier} is frequent enough; {requested:,} were requested"]
    if alphabet is not None and alphabet.entries > _ALPHABET_SHARE * requested:
        better = math.ceil(2 * alphabet.entries / 100) * 100
        return [
            f"warning: the alphabet takes {alphabet.entries:,} of {size:,} entries and leaves few "
            f"for longer pieces: --size {better} would do, or a smaller --character-coverage"
        ]
    return []


def in_pieces(tokenizer: Tokenizer, words: Iterable[str]) -> str:
    """Return a few words with their pieces, split ones first: ``tweeting -> tweet ##ing``."""
    shown = sorted((tokenizer.pieces(word) for word in words), key=len, reverse=True)
    return ", ".join(
        f"{''.join(pieces).replace('##', '')} -> {' '.join(pieces)}"
        for pieces in shown[:_SHOWN_WORDS]
    )
