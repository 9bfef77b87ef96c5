"""The tokenizer: text to token ids and back, with a vocabulary of any kind.

wordpiece  words by BERT's rules, split into pieces, longest match first BERT, DistilBERT
byte-bpe   words with the preceding blank, merges of bytes               RoBERTa, ModernBERT
unigram    most probable segmentation of text (SentencePiece)            ALBERT, XLM-RoBERTa

Ids are those of the reference Python tokenizers on any string, or of the compiled ones where a
folder follows them (`bertsmith.tokens.folder.files`). The compiled tokenizers are not used here:
with a cache of the ids of each word, plain Python is several times faster than they are on one
thread. The files of a folder are validated and parsed by Python too: compiled parsers can panic on
a hostile file. A setting that would change ids and is not supported is refused by name."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.core.files import text_hash
from bertsmith.tokens import KindName
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe import BLANK, ByteRules, byte_text, read, written
from bertsmith.tokens.folder.compiled import lowered_before
from bertsmith.tokens.folder.files import (
    BPE_FILE,
    COMPILED_FILE,
    SETTINGS_FILE,
    UNIGRAM_FILE,
    WORDPIECE_FILE,
    XLM_FILE,
    FolderFiles,
    is_generic,
    stated_longest,
    tokenizer_class,
    write_files,
)
from bertsmith.tokens.modern import ModernRules, modern_text
from bertsmith.tokens.normalisation import SPACE, PlainRules, UnigramRules
from bertsmith.tokens.vocabulary import (
    BYTE_SPECIALS,
    SPECIALS,
    UNIGRAM_SPECIALS,
    Encoding,
    Pieces,
    TextEncoder,
    TokenInventory,
    check_vocabulary,
    join_runs,
    placeholders,
)
from bertsmith.tokens.wordpiece import CONTINUES, wordpiece_text

# XLM-RoBERTa's PlainRules are UnigramRules too
Rules = BasicRules | ByteRules | ModernRules | UnigramRules


Layout = Literal["wordpiece", "byte-bpe", "modernbert", "unigram", "xlm-roberta"]
"""The layouts of tokenizer files in a folder, each of which has a module in `folder`."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The properties that all vocabularies of a kind share."""

    name: KindName
    layout: Layout
    specials: tuple[str, ...]
    """Special tokens for padding, unknown, beginning, end and mask."""
    separators: int
    """Number of separators between the two texts of a pair."""
    segments: bool
    """True if the second text of a pair has segment id 1."""
    encoder: Callable[[Pieces, Any, int], TextEncoder]
    """Makes an encoder from a vocabulary, rules of this kind, and the id of the unknown token."""
    continues_word: Callable[[str], bool]
    """Returns whether a piece continues a word."""
    joined: Callable[[Sequence[str]], str]
    """Returns the text of some pieces."""
    lowercase: Callable[[Any], bool]
    """Returns whether rules lower-case text."""
    identity: Callable[[Any], list[object]]
    """Returns the parts of the rules that affect ids."""


_JOINERS = "\u200c\u200d"


def kind_of(rules: Rules) -> Kind:
    """Return the kind that rules belong to."""
    return _KINDS[type(rules)]


_CJK = "\u3001-\u303f\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0002fa1f"
_CJK_BLANKS = re.compile(f"(?<=[{_CJK}]) (?=[{_CJK}])")


def _words(pieces: Sequence[str]) -> str:
    joined = " ".join(pieces).replace(" " + CONTINUES, "").strip()
    # each ideograph is a word to the rules, though nobody writes blanks there
    return joined if joined.isascii() else _CJK_BLANKS.sub("", joined)


def _bytes(pieces: Sequence[str]) -> str:
    return read("".join(pieces)).decode("utf-8", "replace")


def _continues_word_bytes(piece: str) -> bool:
    """Return whether a piece has no blank before it and is no punctuation, a word in itself.

    Letters after punctuation count as continuing a word: the piece does not show the difference.
    """
    if piece.startswith(BLANK):
        return False
    first = _bytes([piece])[:1]
    return _is_of_word(first) or first == "\ufffd"


def _is_of_word(character: str) -> bool:
    """Return whether a character can stand in a word: letter, digit, combining mark or joiner."""
    if character == "" or character.isalnum():
        return character != ""
    return unicodedata.category(character).startswith("M") or character in _JOINERS


def _marked(pieces: Sequence[str]) -> str:
    return "".join(pieces).replace(SPACE, " ").strip()


def _continues_word_marked(piece: str) -> bool:
    return piece[0] != SPACE and _is_of_word(piece[0])


def _unigram_identity(rules: UnigramRules) -> list[object]:
    charsmap = hashlib.sha256(rules.charsmap).hexdigest()
    switches = [rules.prefix_space, rules.lowercase, rules.keep_accents, rules.remove_space]
    numbers = [rules.scores, sorted(rules.control), sorted(rules.wanted)]
    identity = [charsmap, *switches, rules.number_commas, rules.mask_takes_blank, *numbers]
    if (compiled := rules.compiled) is None:
        return identity
    return [*identity, "compiled", compiled.gaps, compiled.strips_end, compiled.late_mask]


def _unigram_text(vocabulary: Pieces, rules: UnigramRules, unknown: int) -> TextEncoder:
    if rules.compiled is not None:
        from bertsmith.tokens.compiled_unigram import compiled_unigram_text

        return compiled_unigram_text(vocabulary, rules, unknown)
    from bertsmith.tokens.unigram import UnigramText

    return UnigramText(vocabulary, rules, unknown)


_UNIGRAM = Kind(
    name="unigram",
    layout="unigram",
    specials=UNIGRAM_SPECIALS,
    separators=1,
    segments=True,
    encoder=_unigram_text,
    continues_word=_continues_word_marked,
    joined=_marked,
    lowercase=lambda rules: bool(rules.lowercase),
    identity=_unigram_identity,
)
_KINDS: dict[type, Kind] = {
    BasicRules: Kind(
        name="wordpiece",
        layout="wordpiece",
        specials=SPECIALS,
        separators=1,
        segments=True,
        encoder=wordpiece_text,
        continues_word=lambda piece: piece.startswith(CONTINUES),
        joined=_words,
        lowercase=lambda rules: bool(rules.lowercase),
        identity=lambda rules: [
            *(rules.lowercase, rules.strips, rules.space_cjk),
            *([] if rules.slow else ["as given"]),
        ],
    ),
    ByteRules: Kind(
        name="byte-bpe",
        layout="byte-bpe",
        specials=BYTE_SPECIALS,
        separators=2,
        segments=False,
        encoder=byte_text,
        continues_word=_continues_word_bytes,
        joined=_bytes,
        lowercase=lambda rules: False,
        identity=lambda rules: [
            *(rules.merges, rules.prefix_blank, rules.mask_takes_blank),
            *(["each part"] if rules.prefix_parts else []),
        ],
    ),
    ModernRules: Kind(
        name="byte-bpe",
        layout="modernbert",
        specials=SPECIALS,
        separators=1,
        segments=True,
        encoder=modern_text,
        continues_word=_continues_word_bytes,
        joined=_bytes,
        lowercase=lambda rules: False,
        identity=lambda rules: [rules.merges],
    ),
    UnigramRules: _UNIGRAM,
    PlainRules: replace(
        _UNIGRAM,
        layout="xlm-roberta",
        specials=PlainRules.specials,
        separators=PlainRules.separators,
        segments=False,
        identity=lambda rules: ["plain", *_unigram_identity(rules)],
    ),
}


class Tokenizer(TokenInventory):
    """A vocabulary with the rules that encode text; the type of the rules determines its kind.

    `vocabulary[id]` is the piece of an id; `fingerprint` covers the vocabulary and the rules.
    """

    vocabulary: Pieces
    rules: Rules
    kind: KindName
    lowercase: bool
    cls_id: int
    sep_id: int
    mask_id: int
    longest: int | None

    def __init__(self, vocabulary: Sequence[str], rules: Rules, longest: int | None = None) -> None:
        """`longest` tokens of a text are read if a folder says so (its `model_max_length`).

        Raises `VocabularyError` for missing special tokens or duplicate pieces.
        """
        kind = kind_of(rules)
        by_line = kind.name == "wordpiece"
        pieces = Pieces.of(vocabulary)
        added = rules.added.tokens if rules.added is not None else ()
        check_vocabulary(pieces, specials=kind.specials, lines=by_line and not added)
        self._added = {pieces.ids[token.piece]: token for token in added}
        pad, unknown, cls, sep, mask = (pieces.ids[piece] for piece in kind.specials)
        # the base is frozen, and its other fields take a pass over all pieces: see below
        vars(self).update(
            size=len(pieces),
            pad_id=pad,
            unknown_id=unknown,
            cls_id=cls,
            sep_id=sep,
            mask_id=mask,
            special_ids=frozenset(
                (
                    *(pad, unknown, cls, sep, mask),
                    *(number for number, token in self._added.items() if token.special),
                )
            ),
            separators=kind.separators,
            segments=kind.segments and getattr(rules, "segments", True),
        )
        self.vocabulary, self.rules, self.kind = pieces, rules, kind.name
        self.longest = longest
        self.lowercase = kind.lowercase(rules)
        self._joined = kind.joined
        self._text = kind.encoder(pieces, rules, unknown)

    @cached_property
    def ordinary_ids(self) -> NDArray[np.int64]:
        """Candidate ids of random replacement (ordinary,): no special tokens, no placeholders."""
        ordinary = np.ones(self.size, np.bool_)
        ordinary[[*self.special_ids, *placeholders(self.vocabulary)]] = False
        return np.flatnonzero(ordinary)

    @cached_property
    def continues(self) -> NDArray[np.bool_]:
        """True for pieces that continue the word of the previous piece (size,)."""
        continues_word = kind_of(self.rules).continues_word
        continues = np.fromiter(map(continues_word, self.vocabulary), np.bool_, self.size)
        continues[[*self.special_ids, *self._added]] = False
        return continues

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary and of the rules."""
        identity = kind_of(self.rules).identity(self.rules)
        if self.rules.added is not None:
            identity.append(self.rules.added.identity())
        return text_hash(json.dumps([self.vocabulary, *identity]))

    def __repr__(self) -> str:
        case = ", lower case" if self.lowercase else ""
        return f"<Tokenizer: {self.kind}, {self.size:,} pieces{case}>"

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Pieces, Rules, int | None]]:
        return Tokenizer, (self.vocabulary, self.rules, self.longest)

    def encode(
        self, texts: Sequence[str], *, specials_in_text: bool = True
    ) -> list[NDArray[np.int32]]:
        """Return the ids of each text, (pieces,), without special tokens around them.

        With `specials_in_text` a literal "[MASK]" (of WordPiece) becomes the mask's id, as in the
        reference; without it, as for corpora, text yields no special id other than the unknown's.
        """
        assert not isinstance(texts, str), "encode takes a list of texts"
        return [
            np.fromiter(
                chain.from_iterable(self._text.ids(text, specials_in_text=specials_in_text)),
                np.int32,
            )
            for text in texts
        ]

    def encode_spans(self, text: str, *, specials_in_text: bool = True) -> Encoding:
        """Return the ids of a text, as `encode` does, with the characters each represents.

        Positions are those of `transformers`' offset mapping, in the original text: an accent that
        the rules strip belongs to no piece, [UNK] to its whole word.
        """
        return join_runs(self._text.spans(text, specials_in_text=specials_in_text))

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text, including special tokens in it."""
        return [self.vocabulary[number] for number in self.encode([text])[0]]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, joined by the rules of the kind.

        WordPiece has one blank between words; bytes that are not valid UTF-8 become U+FFFD.
        """
        for number in ids:
            if not 0 <= number < self.size:
                raise VocabularyError(f"id {number} is outside a vocabulary of {self.size}")
        return self._joined([self._joinable(number) for number in ids])

    def shown(self, number: int) -> str:
        """Return a readable piece: its text, with "##" if it continues a word, for every kind."""
        piece = self.vocabulary[number]
        if self.kind == "wordpiece" or number in self.special_ids:
            return piece
        text = self._joined([self._joinable(number)]).strip() or piece
        return CONTINUES + text if self.continues[number] else text

    def _joinable(self, number: int) -> str:
        """Return a piece as the kind joins pieces: added tokens are not written as bytes."""
        piece = self.vocabulary[number]
        return written(piece) if self.kind == "byte-bpe" and number in self._added else piece

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a model folder or a vocabulary file, written by this program or `transformers`.

        Raises `ModelFolderError` if it has no tokenizer that can be reproduced exactly, and
        `VocabularyError` if its vocabulary is damaged.
        """
        return cls(*read_folder(folder))

    def save(self, folder: Path, *, longest: int | None = None, segments: bool = True) -> None:
        """Write the vocabulary, tokenizer.json, tokenizer_config.json and special_tokens_map.json.

        `transformers` reads them (BertTokenizer and the like, fast ones included, AutoTokenizer);
        `longest` is the model's maximum length in tokens; without `segments` it takes no ids of
        them. Raises `DiskError`.
        """
        layout = _layout_module(kind_of(self.rules).layout)
        contents = layout.files_of(self.vocabulary, self.rules, longest=longest, segments=segments)
        write_files(folder, contents)


def _layout_module(layout: Layout) -> ModuleType:
    """Return the module that reads and writes the files of a layout, imported for one of it."""
    match layout:
        case "wordpiece":
            from bertsmith.tokens.folder import wordpiece

            return wordpiece
        case "byte-bpe":
            from bertsmith.tokens.folder import bpe

            return bpe
        case "modernbert":
            from bertsmith.tokens.folder import modern

            return modern
        case "unigram":
            from bertsmith.tokens.folder import unigram

            return unigram
        case "xlm-roberta":
            from bertsmith.tokens.folder import xlm

            return xlm


_BY_CLASS: dict[str, Layout] = {
    "Bert|DistilBert|Electra|MobileBert|ConvBert": "wordpiece",
    "Roberta": "byte-bpe",
    "Albert": "unigram",
    "XLMRoberta": "xlm-roberta",
}
_BY_FILE: dict[str, Layout] = {
    WORDPIECE_FILE: "wordpiece",
    BPE_FILE: "byte-bpe",
    UNIGRAM_FILE: "unigram",
    XLM_FILE: "xlm-roberta",
}


def read_folder(place: Path) -> tuple[Pieces, Rules, int | None]:
    """Return the vocabulary and the rules of a model folder, or of a single vocabulary file.

    The last is how many tokens of a text are read, None where the folder does not say.
    """
    if place.is_file() and place.suffix != ".json":
        usual: Layout = "unigram" if place.suffix == ".model" else "wordpiece"
        layout: Layout = "xlm-roberta" if place.name == XLM_FILE else usual
        return *_layout_module(layout).read_file(place), None
    if not place.is_dir():
        raise ModelFolderError(
            "no such folder", where=place, remedy="name a model folder, or a vocab.txt"
        )
    files = FolderFiles(place)
    layout = _layout_by_class(files) or _layout_by_files(files)
    return *_layout_module(layout).read_folder(files), stated_longest(files)


def _layout_by_class(files: FolderFiles) -> Layout | None:
    """Return the layout of the class that a folder states, None if that does not determine it."""
    name, where = tokenizer_class(files)
    if name is None or is_generic(name):
        return None
    for classes, layout in _BY_CLASS.items():
        if isinstance(name, str) and re.fullmatch(f"(?:{classes})Tokenizer(?:Fast)?", name):
            return layout
    raise ModelFolderError(
        f"the tokenizer's class is {str(name)[:50]!r}",
        where=where,
        remedy=f"tokenizers of {', '.join(_BY_CLASS).replace('|', ', ')} can be read",
    )


def _layout_by_files(files: FolderFiles) -> Layout:
    """Return the layout of a vocabulary's own file, or else of the model in tokenizer.json."""
    for name, layout in _BY_FILE.items():
        if (files.path / name).is_file():
            return layout
    data = files.json(COMPILED_FILE)
    model, normalizer = data.get("model"), data.get("normalizer")
    if not isinstance(model, dict):
        return "wordpiece"
    # old files do not state the type
    usual = "BPE" if "merges" in model else "Unigram" if "unk_id" in model else "WordPiece"
    match str(model.get("type", usual)):
        case "BPE":
            last = (lowered_before(normalizer) or [normalizer])[-1]
            composes = isinstance(last, dict) and last.get("type") == "NFC"
            return "modernbert" if composes else "byte-bpe"
        case "Unigram":
            # XLM-RoBERTa begins a text with <s>, ALBERT with [CLS]
            begins = str(files.json(SETTINGS_FILE).get("cls_token"))
            return "xlm-roberta" if "<s>" in begins else "unigram"
        case _:
            return "wordpiece"
