"""Encoding of documents into sentences of ids, by the fastest method for a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.corpus.sentences import sentence_starts
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bulk.chunks import ChunkTable, Encoded, Integers
from bertsmith.tokens.bulk.encoding import (
    CUT,
    DOCUMENT,
    ChunkEncoder,
    Chunks,
    cut_at_seams,
    sentence_ends,
)
from bertsmith.tokens.kinds import TextEncoder, kind_of
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.wordpiece import WordPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """The token ids of some documents, without empty ones.

    `ids` (tokens,) are concatenated; `sentences` (sentences,) are lengths in tokens, all above 0;
    `documents` (documents,) are numbers of sentences, all above 0; `words` is the number of words
    separated by blanks and sentence ends, `unknown` that of unknown tokens.
    """

    ids: NDArray[np.int32]
    sentences: Integers
    documents: Integers
    words: int
    unknown: int


class WordPieceDocuments:
    """Splits documents into sentences and encodes them with WordPiece."""

    def __init__(self, vocabulary: Sequence[str], rules: BasicRules, unknown_id: int) -> None:
        self._unknown = unknown_id
        self._ideographs = rules.space_cjk
        pieces = WordPiece(vocabulary, unknown_id)
        self._table = ChunkTable(ChunkEncoder(rules, pieces))

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        """Encode documents; see `DocumentEncoder.encode`."""
        data = b"\0".join(documents)
        if data.count(b"\0") >= max(1, len(documents)):
            data = b"\0".join(document.replace(b"\0", b"") for document in documents)
        chunks = cut_at_seams(data, ideographs=self._ideographs)
        encoded = self._table.encode(data, chunks.starts, chunks.ends)
        return self._counted(chunks, encoded, sentence_ends(data, chunks, encoded.traits))

    def _counted(self, chunks: Chunks, encoded: Encoded, last: NDArray[np.bool_]) -> EncodedText:
        ends = np.flatnonzero(last)
        sentences = np.diff(np.cumsum(encoded.counts)[ends], prepend=0)
        document_ends = np.flatnonzero(chunks.after == DOCUMENT)
        whole = np.cumsum(sentences > 0)[np.searchsorted(ends, document_ends)]
        documents = np.diff(whole, prepend=0)
        words = chunks.ends > chunks.starts
        words[1:] &= (chunks.after[:-1] != CUT) | last[:-1]
        if not documents.all():  # words of documents without ids do not count
            every = np.diff(np.cumsum(words)[document_ends], prepend=0)
            number = int(every[documents > 0].sum())
        else:
            number = int(np.count_nonzero(words))
        return EncodedText(
            ids=encoded.ids,
            sentences=sentences[sentences > 0],
            documents=documents[documents > 0],
            words=number,
            unknown=int(np.count_nonzero(encoded.ids == self._unknown)),
        )


class DocumentEncoder:
    """Splits documents into sentences (`split_sentences`) and encodes them (`Tokenizer.encode`).

    Literal special tokens are text. A sentence inside a paragraph is encoded in its context, with
    the blank before it: for kinds that encode blanks, it is not the beginning of a text. The cache
    of words is kept between calls, and bounded.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary, rules, unknown = tokenizer.vocabulary, tokenizer.rules, tokenizer.unknown_id
        self._encoder = (
            WordPieceDocuments(vocabulary, rules, unknown)
            if isinstance(rules, BasicRules)
            else _BySentence(kind_of(rules).encoder(vocabulary, rules, unknown), unknown)
        )

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        """Encode documents, each of them paragraphs in UTF-8 separated by line feeds.

        Paragraphs are those of `bertsmith.text.corpus.documents.Document`: single spaces between
        words and no other white space.
        """
        return self._encoder.encode(documents)


class _BySentence:
    """Encodes sentence by sentence, with the word cache of a text encoder."""

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
