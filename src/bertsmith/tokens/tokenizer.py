"""The tokenizer: text to token ids and back, with a vocabulary of any kind.

Ids are those of the reference Python tokenizers on any string, or of the compiled ones where a
folder follows them (`bertsmith.tokens.folder.files`). The compiled tokenizers are not used here:
with a cache of the ids of each word, plain Python is several times faster than they are on one
thread.
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
from bertsmith.tokens.inventory import TokenInventory
from bertsmith.tokens.kinds import Rules, kind_of
from bertsmith.tokens.spans import Encoding, joined
from bertsmith.tokens.vocabulary import KindName, check_vocabulary, is_placeholder
from bertsmith.tokens.wordpiece import CONTINUES


class Tokenizer(TokenInventory):
    """A vocabulary with the rules that encode text; the type of the rules determines its kind.

    `vocabulary[id]` is the piece of an id; `fingerprint` covers the vocabulary and the rules.
    """

    vocabulary: tuple[str, ...]
    rules: Rules
    kind: KindName
    lowercase: bool
    cls_id: int
    sep_id: int
    mask_id: int

    def __init__(self, vocabulary: Sequence[str], rules: Rules) -> None:
        """Raises `VocabularyError` for missing special tokens or duplicate pieces."""
        kind = kind_of(rules)
        by_line = kind.name == "wordpiece"
        check_vocabulary(vocabulary, specials=kind.specials, lines=by_line)
        pieces = tuple(vocabulary)
        ids = {piece: number for number, piece in enumerate(pieces)}
        pad, unknown, cls, sep, mask = (ids[piece] for piece in kind.specials)
        special_ids = frozenset((pad, unknown, cls, sep, mask))
        continues = np.fromiter(map(kind.goes_on, pieces), np.bool_, len(pieces))
        continues[sorted(special_ids)] = False
        ordinary = [
            number
            for number, piece in enumerate(pieces)
            if number not in special_ids and not is_placeholder(piece)
        ]
        identity = json.dumps([list(pieces), *kind.identity(rules)])
        super().__init__(
            size=len(pieces),
            pad_id=pad,
            unknown_id=unknown,
            cls_id=cls,
            sep_id=sep,
            mask_id=mask,
            special_ids=special_ids,
            ordinary_ids=np.array(ordinary, np.int64),
            continues=continues,
            separators=kind.separators,
            segments=kind.segments,
            fingerprint=text_hash(identity),
        )
        self.vocabulary, self.rules, self.kind = pieces, rules, kind.name
        self.lowercase = kind.lowercase(rules)
        self._joined = kind.joined
        self._text = kind.encoder(pieces, rules, unknown)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tuple[str, ...], Rules]]:
        return Tokenizer, (self.vocabulary, self.rules)

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
        return joined(self._text.spans(text, specials_in_text=specials_in_text))

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
        return self._joined([self.vocabulary[number] for number in ids])

    def shown(self, number: int) -> str:
        """Return a readable piece: its text, with "##" if it continues a word, for every kind."""
        piece = self.vocabulary[number]
        if self.kind == "wordpiece" or number in self.special_ids:
            return piece
        text = self._joined([piece]).strip() or piece
        return CONTINUES + text if self.continues[number] else text

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a model folder or a vocabulary file, written by this program or `transformers`.

        Raises `ModelFolderError` if it has no tokenizer that can be reproduced exactly, and
        `VocabularyError` if its vocabulary is damaged.
        """
        return cls(*folders.read_folder(folder))

    def save(self, folder: Path, *, longest: int | None = None) -> None:
        """Write the vocabulary, tokenizer.json, tokenizer_config.json and special_tokens_map.json.

        `transformers` reads them (BertTokenizer and the like, fast ones included, AutoTokenizer);
        `longest` is the model's maximum length in tokens. Raises `DiskError`.
        """
        folders.write_folder(folder, self.vocabulary, self.rules, longest=longest)
