"""Documents to sentences of ids, many at once: the same as splitting and encoding one by one.

The text is one array of bytes. Blanks cut it into chunks, `ChunkTable` knows the ids of each and
what its letters and marks say about the ends of sentences, and the sentences are counted off.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.chunks import ChunkTable, Encoded
from bertsmith.tokens.encoded import EncodedText
from bertsmith.tokens.encoding import ChunkEncoder
from bertsmith.tokens.seams import CUT, DOCUMENT, Chunks, cut_at_seams
from bertsmith.tokens.sentence_ends import sentence_ends
from bertsmith.tokens.wordpiece import WordPiece


class WordPieceDocuments:
    """Splits documents into sentences and encodes them with WordPiece."""

    def __init__(self, vocabulary: Sequence[str], rules: BasicRules, unknown_id: int) -> None:
        self._unknown = unknown_id
        self._ideographs = rules.space_cjk
        pieces = WordPiece(vocabulary, unknown_id)
        self._table = ChunkTable(ChunkEncoder(rules, pieces))

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        """Encode documents as `DocumentEncoder` does."""
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
        if not documents.all():  # words of documents without a single id do not count
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
