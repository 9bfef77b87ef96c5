"""Text to token ids and back, with a WordPiece vocabulary.

Ids are those of the reference Python tokenizer on any string. The compiled tokenizers are not used
here: they differ from the reference on some characters, and remembering the ids of each blank-free
stretch of text makes plain Python several times faster than they are on one thread.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import VocabularyError
from bertsmith.tokens import folder as folders
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.vocabulary import SPECIALS, check_vocabulary, is_placeholder
from bertsmith.tokens.wordpiece import CONTINUES, ChunkIds, WordPiece

_LITERAL_SPECIAL: Final = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")
# str.split takes these for blanks; to the rules they are control characters, which just go
_FALSE_BLANKS: Final = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_BEYOND_PLAIN: Final = re.compile(r"[^\t\n\r -~]")


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
        self._special = {piece: ids[piece] for piece in SPECIALS}
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = (
            self._special.values()
        )
        self.special_ids = frozenset(self._special.values())
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
        self._pieces = WordPiece(self.vocabulary, self.unknown_id)
        self._chunks = ChunkIds(self._chunk_ids)

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
        make = self._with_specials if specials_in_text else self._plain
        return [np.fromiter(chain.from_iterable(make(text)), np.int32) for text in texts]

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

    def _chunk_ids(self, chunk: str) -> list[int]:
        return self._pieces.ids_of(self.rules.words(chunk))

    def _plain(self, text: str) -> Iterator[tuple[int, ...]]:
        if _FALSE_BLANKS.search(text):
            text = _FALSE_BLANKS.sub("", text)
        return map(self._chunks.__getitem__, text.split())

    def _with_specials(self, text: str) -> Iterator[Sequence[int]]:
        if "[" not in text:
            return self._plain(text)
        parts = _LITERAL_SPECIAL.split(text)
        return chain.from_iterable(
            [(self._special[part],)] if place % 2 else self._between_specials(part)
            for place, part in enumerate(parts)
        )

    def _between_specials(self, text: str) -> Iterator[Sequence[int]]:
        # removing a character or an accent may leave a special token, unless lower-cased
        if not self.lowercase and "[" in text and _BEYOND_PLAIN.search(text):
            words = self.rules.words_keeping(text, frozenset(SPECIALS))
            return iter([self._pieces.ids_of(words)])
        return self._plain(text)
