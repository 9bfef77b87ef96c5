"""Documents to sentences of ids, by whatever is fastest for the kind of vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertsmith.text.sentences import sentence_starts
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.encoded import EncodedText
from bertsmith.tokens.kinds import TextEncoder, kind_of
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.wordpiece_documents import WordPieceDocuments


class DocumentEncoder:
    """Splits documents into sentences (`split_sentences`) and encodes them (`Tokenizer.encode`).

    Literal special tokens are text. A sentence inside a paragraph is encoded as what it is there,
    with the blank before it: to kinds that know blanks, it is not the beginning of a text. What is
    learned about words is kept, and bounded.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary, rules, unknown = tokenizer.vocabulary, tokenizer.rules, tokenizer.unknown_id
        self._encoder = (
            WordPieceDocuments(vocabulary, rules, unknown)
            if isinstance(rules, BasicRules)
            else _BySentence(kind_of(rules).encoder(vocabulary, rules, unknown), unknown)
        )

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        """Encode documents, each its paragraphs in UTF-8, parted by line feeds.

        Paragraphs are as `bertsmith.text.documents.Document` has them: single spaces between their
        words and no other white space.
        """
        return self._encoder.encode(documents)


class _BySentence:
    """Encodes one sentence after the other, whose words the encoder of texts remembers."""

    def __init__(self, encoder: TextEncoder, unknown_id: int) -> None:
        self._encoder = encoder
        self._unknown = unknown_id

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        ids: list[int] = []
        lengths: list[int] = []
        sentences: list[int] = []
        words = 0
        for document in documents:
            text = document.replace(b"\0", b"").decode("utf-8", "surrogatepass")
            before = len(lengths)
            for paragraph in text.split("\n"):
                self._add(paragraph, ids, lengths)
            if len(lengths) > before:
                sentences.append(len(lengths) - before)
                words += len(text.split())
        array = np.array(ids, np.int32)
        return EncodedText(
            ids=array,
            sentences=np.array(lengths, np.int64),
            documents=np.array(sentences, np.int64),
            words=words,
            unknown=int(np.count_nonzero(array == self._unknown)),
        )

    def _add(self, paragraph: str, ids: list[int], lengths: list[int]) -> None:
        starts = [0]
        for start in sentence_starts(paragraph):
            starts.append(start - (paragraph[start - 1] == " "))
        for start, end in zip(starts, [*starts[1:], len(paragraph)], strict=True):
            done = len(ids)
            for part in self._encoder.ids(
                paragraph[start:end], specials_in_text=False, inside=start > 0
            ):
                ids.extend(part)
            if len(ids) > done:
                lengths.append(len(ids) - done)
