"""Text to token ids and back, with a WordPiece vocabulary.

Ids are those of the reference Python tokenizer on any string. The compiled tokenizers are not used
here: they differ from the reference on some characters, and remembering the ids of each blank-free
stretch of text makes plain Python several times faster than they are on one thread.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import VocabularyError
from bertsmith.tokens import folder as folders
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.spans import Encoding, joined
from bertsmith.tokens.vocabulary import SPECIALS, check_vocabulary, is_placeholder
from bertsmith.tokens.wordpiece import CONTINUES
from bertsmith.tokens.wordpiece_text import WordPieceText


class Tokenizer:
    """A WordPiece vocabulary with the rules that cut text into words.

    `vocabulary[id]` is the piece of an id; `continues` (size,) marks the pieces that go on a word;
    `ordinary_ids` are those a random replacement may draw (no specials, no placeholders);
    `fingerprint` is the SHA-256 of the vocabulary and the rules, which a token store keeps.
    """

    vocabulary: tuple[str, ...]
    rules: BasicRules
    size: int
    lowercase: bool
    pad_id: int
    unknown_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    special_ids: frozenset[int]
    continues: NDArray[np.bool_]
    ordinary_ids: NDArray[np.int64]
    fingerprint: str

    def __init__(self, vocabulary: Sequence[str], rules: BasicRules) -> None:
        """Raises `VocabularyError` for a vocabulary without the special tokens, or with doubles."""
        check_vocabulary(vocabulary)
        self.vocabulary = tuple(vocabulary)
        self.rules = rules
        self.size = len(self.vocabulary)
        self.lowercase = rules.lowercase
        ids = {piece: number for number, piece in enumerate(self.vocabulary)}
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = (
            ids[piece] for piece in SPECIALS
        )
        self.special_ids = frozenset(ids[piece] for piece in SPECIALS)
        self.continues = np.array([piece.startswith(CONTINUES) for piece in self.vocabulary])
        self.ordinary_ids = np.array(
            [
                number
                for number, piece in enumerate(self.vocabulary)
                if number not in self.special_ids and not is_placeholder(piece)
            ],
            np.int64,
        )
        parts = [list(self.vocabulary), rules.lowercase, rules.strips, rules.space_cjk]
        self.fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        self._text = WordPieceText(self.vocabulary, rules, self.unknown_id)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tuple[str, ...], BasicRules]]:
        return Tokenizer, (self.vocabulary, self.rules)

    def encode(
        self, texts: Sequence[str], *, specials_in_text: bool = True
    ) -> list[NDArray[np.int32]]:
        """The ids of each text, (pieces,), without [CLS] and [SEP] around them.

        With `specials_in_text` a literal "[MASK]" becomes the mask's id, as in the reference;
        without it, text never yields a special id but [UNK]: what corpora want.
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
        """The text of some ids: pieces joined, "##" undone, one blank between words."""
        for number in ids:
            if not 0 <= number < self.size:
                raise VocabularyError(f"id {number} is none of a vocabulary of {self.size}")
        words = " ".join(self.vocabulary[number] for number in ids)
        return words.replace(" " + CONTINUES, "").strip()

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a model folder, or a vocabulary file, of ours or as `transformers` wrote it.

        Raises `ModelFolderError` when there is no tokenizer that we can follow exactly, and
        `VocabularyError` when its vocabulary is damaged.
        """
        return cls(*folders.read_folder(folder))

    def save(self, folder: Path, *, longest: int | None = None) -> None:
        """Write vocab.txt, tokenizer.json, tokenizer_config.json and special_tokens_map.json.

        `transformers` reads them (BertTokenizer, BertTokenizerFast, AutoTokenizer); `longest` is
        the model's limit in tokens. Raises `DiskError`.
        """
        folders.write_folder(folder, self.vocabulary, self.rules, longest=longest)
