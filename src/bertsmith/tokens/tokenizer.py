"""Text to token ids and back, with a vocabulary of any kind.

Ids are those of the reference Python tokenizers on any string, or of the compiled ones where a
folder follows them (`bertsmith.tokens.folder.files`). The compiled tokenizers are not used here:
remembering the ids of each stretch of text makes plain Python several times faster than they are on
one thread.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import VocabularyError
from bertsmith.core.hashing import text_hash
from bertsmith.tokens.folder import folder as folders
from bertsmith.tokens.kinds import Rules, kind_of
from bertsmith.tokens.spans import Encoding, joined
from bertsmith.tokens.vocabulary import KindName, check_vocabulary, is_placeholder
from bertsmith.tokens.wordpiece import CONTINUES


class Tokenizer:
    """A vocabulary with the rules that turn text into its ids; the rules say of what kind it is.

    `vocabulary[id]` is the piece of an id; `continues` (size,) marks the pieces that go on a word;
    `ordinary_ids` are those a random replacement may draw (no specials, no placeholders);
    `fingerprint` is the SHA-256 of the vocabulary and the rules, which a token store keeps.
    A text is to stand as ``cls text sep``, a pair as ``cls text sep text sep``, with `separators`
    of these in its middle; `segments` tells whether the second text is of segment 1.
    """

    vocabulary: tuple[str, ...]
    rules: Rules
    kind: KindName
    size: int
    lowercase: bool
    pad_id: int
    unknown_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    special_ids: frozenset[int]
    separators: int
    segments: bool
    continues: NDArray[np.bool_]
    ordinary_ids: NDArray[np.int64]
    fingerprint: str

    def __init__(self, vocabulary: Sequence[str], rules: Rules) -> None:
        """Raises `VocabularyError` for a vocabulary without the special tokens, or with doubles."""
        kind = kind_of(rules)
        by_line = kind.name == "wordpiece"
        check_vocabulary(vocabulary, specials=kind.specials, lines=by_line)
        self.vocabulary = tuple(vocabulary)
        self.rules = rules
        self.kind, self.separators, self.segments = kind.name, kind.separators, kind.segments
        self.size = len(self.vocabulary)
        self.lowercase = kind.lowercase(rules)
        ids = {piece: number for number, piece in enumerate(self.vocabulary)}
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = (
            ids[piece] for piece in kind.specials
        )
        self.special_ids = frozenset(ids[piece] for piece in kind.specials)
        self.continues = np.fromiter(map(kind.goes_on, self.vocabulary), np.bool_, self.size)
        self.continues[sorted(self.special_ids)] = False
        self.ordinary_ids = np.array(
            [
                number
                for number, piece in enumerate(self.vocabulary)
                if number not in self.special_ids and not is_placeholder(piece)
            ],
            np.int64,
        )
        parts = [list(self.vocabulary), *kind.identity(rules)]
        self.fingerprint = text_hash(json.dumps(parts))
        self._joined = kind.joined
        self._text = kind.encoder(self.vocabulary, rules, self.unknown_id)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tuple[str, ...], Rules]]:
        return Tokenizer, (self.vocabulary, self.rules)

    def encode(
        self, texts: Sequence[str], *, specials_in_text: bool = True
    ) -> list[NDArray[np.int32]]:
        """The ids of each text, (pieces,), without special tokens around them.

        With `specials_in_text` a literal "[MASK]" (of WordPiece) becomes the mask's id, as in the
        reference; without it, text never yields a special id but the unknown's: what corpora want.
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
        """The ids of a text, as `encode` gives them, with the characters each stands for.

        Places are those of `transformers`' offset mapping, in the text as it was given: an accent
        that the rules take away belongs to no piece, [UNK] to its whole word.
        """
        return joined(self._text.spans(text, specials_in_text=specials_in_text))

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, special tokens in it included."""
        return [self.vocabulary[number] for number in self.encode([text])[0]]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids: pieces joined as their kind has it.

        Of WordPiece there is one blank between words; bytes that are no UTF-8 are U+FFFD.
        """
        for number in ids:
            if not 0 <= number < self.size:
                raise VocabularyError(f"id {number} is none of a vocabulary of {self.size}")
        return self._joined([self.vocabulary[number] for number in ids])

    def shown(self, number: int) -> str:
        """A piece for readers: as text, with "##" before what goes on a word, in every kind."""
        piece = self.vocabulary[number]
        if self.kind == "wordpiece" or number in self.special_ids:
            return piece
        text = self._joined([piece]).strip() or piece
        return CONTINUES + text if self.continues[number] else text

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a model folder, or a vocabulary file, of ours or as `transformers` wrote it.

        Raises `ModelFolderError` when there is no tokenizer that we can follow exactly, and
        `VocabularyError` when its vocabulary is damaged.
        """
        return cls(*folders.read_folder(folder))

    def save(self, folder: Path, *, longest: int | None = None) -> None:
        """Write the vocabulary, tokenizer.json, tokenizer_config.json and special_tokens_map.json.

        `transformers` reads them (BertTokenizer and the like, fast ones too, AutoTokenizer);
        `longest` is the model's limit in tokens. Raises `DiskError`.
        """
        folders.write_folder(folder, self.vocabulary, self.rules, longest=longest)
