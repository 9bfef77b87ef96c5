"""The text of training sequences: windows of a store in an epoch's order, as one segment or two.

next_sentence      two segments, the second from another document in half of the sequences
                   (Devlin et al. 2018, section 3.1, task 2)
sentence_order     two consecutive segments, exchanged in half of the sequences
                   (ALBERT: Lan et al. 2019, section 3.1)
within_documents   one segment of one document (RoBERTa's DOC-SENTENCES: Liu et al. 2019,
                   section 4.2)
across_documents   text that goes on into the next document, [SEP] between any two
                   (RoBERTa's FULL-SENTENCES)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import Purpose, below, bits, permuted, stream, uniform
from bertsmith.batches.store import TokenStore
from bertsmith.batches.windows import Cuts, Numbers, Windows

Text = Literal["next_sentence", "sentence_order", "within_documents", "across_documents"]

PAIRED: tuple[Text, ...] = ("next_sentence", "sentence_order")
"""The texts of two segments, with a label."""
IS_NEXT, IS_RANDOM = 0, 1
IN_ORDER, EXCHANGED = 0, 1


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids of the parts that separators divide; two segments with a label, or one without."""

    parts: tuple[NDArray[np.integer], ...]
    label: int | None = None


class Segments:
    """The sequences of a store, a pure function of (seed, epoch, index).

    Next sentence: a window is cut at a beginning of a sentence into A and B; for half of the
    windows B is exchanged for text of the same length from another document, mostly by swapping
    with the neighbour in the epoch's order, so that little text is seen twice and lengths tell
    nothing of the label. A window without a beginning of a sentence inside stays one segment and
    carries no label. Sentence order: the same, B before A in half of the windows; as the torn end
    of a sentence would tell A from B, only windows of whole sentences are cut, and windows are
    shorter, so that most are. A share `short` of the windows ends earlier than it could.
    """

    def __init__(
        self,
        store: TokenStore,
        text: Text,
        longest: int,
        continues: NDArray[np.bool_],
        seed: int,
        short: float = 0.0,
        separators: int = 1,
    ) -> None:
        """Sequences of at most `longest` tokens, special ones included.

        `separators` of them stand between two texts.
        """
        self._store = store
        self._short = short
        self._text = text
        self._seed = seed
        self.specials = 2 + separators * (text in PAIRED)
        self._windows = Windows(
            store,
            longest - self.specials,
            continues,
            seed,
            across=text == "across_documents",
            fill=3 / 4 if text == "sentence_order" else 15 / 16,
        )

    @property
    def count(self) -> int:
        """Sequences an epoch."""
        return self._windows.count

    def cut(self, index: Numbers, epoch: int) -> Cuts:
        """The windows of the sequences with these numbers of an epoch."""
        numbers = permuted(index, self.count, stream(Purpose.SEQUENCE_ORDER, self._seed, epoch))
        cuts = self._windows.cut(numbers, epoch)
        if not self._short:
            return cuts
        key = stream(Purpose.SHORT_SEQUENCES, self._seed, epoch)
        ends = self._splits(cuts, uniform(key, 2 * index + 1))
        chosen = (uniform(key, 2 * index) < self._short) & (ends > 0)
        return self._windows.ending(cuts, np.where(chosen, ends, cuts.ends))

    def read(self, index: Numbers, epoch: int, own: Cuts) -> list[Sample]:
        """The sequences with these numbers of an epoch, `own` being their windows."""
        if self._text == "next_sentence":
            return self._next_sentence(index, epoch, own)
        if self._text == "sentence_order":
            return self._sentence_order(index, epoch, own)
        read = self._store.read
        ranges = zip(own.starts.tolist(), own.ends.tolist(), own.joints.tolist(), strict=True)
        return [
            Sample(tuple(read(*part) for part in self._windows.by_document(start, end)))
            if joints
            else Sample((read(start, end),))
            for start, end, joints in ranges
        ]

    def _next_sentence(self, index: Numbers, epoch: int, own: Cuts) -> list[Sample]:
        partner = np.where((index ^ 1) < self.count, index ^ 1, index)
        other = self.cut(partner, epoch)
        key = stream(Purpose.PAIRS, self._seed, epoch)
        share = 0.1 + 0.8 * uniform(key, index // 2)
        random = bits(key, index // 2) & np.uint64(1) == 1
        own_split = self._splits(own, share)
        other_split = self._splits(other, share)
        samples = []
        for i, split in enumerate(own_split.tolist()):
            start, end = int(own.starts[i]), int(own.ends[i])
            if split < 0:
                samples.append(Sample((self._store.read(start, end),)))
                continue
            first = self._store.read(start, split)
            if not random[i]:
                samples.append(Sample((first, self._store.read(split, end)), IS_NEXT))
                continue
            document = int(other.documents[i])
            begin = int(other_split[i])
            if document == own.documents[i] or begin < 0:
                document, begin = self._elsewhere(int(index[i]), int(own.documents[i]), epoch)
            stop = min(begin + end - split, self._windows.document_end(document))
            samples.append(Sample((first, self._store.read(begin, stop)), IS_RANDOM))
        return samples

    def _sentence_order(self, index: Numbers, epoch: int, own: Cuts) -> list[Sample]:
        key = stream(Purpose.PAIRS, self._seed, epoch)
        exchanged = bits(key, index) & np.uint64(1) == 1
        splits = self._splits(own, 0.1 + 0.8 * uniform(key, index))
        splits[~(self._begins_sentence(own.starts) & self._begins_sentence(own.ends))] = -1
        read, samples = self._store.read, []
        ranges = zip(own.starts.tolist(), splits.tolist(), own.ends.tolist(), strict=True)
        for i, (start, split, end) in enumerate(ranges):
            if split < 0:
                samples.append(Sample((read(start, end),)))
            elif exchanged[i]:
                samples.append(Sample((read(split, end), read(start, split)), EXCHANGED))
            else:
                samples.append(Sample((read(start, split), read(split, end)), IN_ORDER))
        return samples

    def _begins_sentence(self, positions: Numbers) -> NDArray[np.bool_]:
        """Whether a sentence, or nothing more, begins at token positions."""
        sentences = self._store.sentences
        return np.asarray(sentences[np.searchsorted(sentences, positions)] == positions)

    def _splits(self, cuts: Cuts, share: NDArray[np.float64]) -> Numbers:
        """The beginning of a sentence inside each window nearest to a share of it; -1 if none."""
        sentences, starts, ends = self._store.sentences, cuts.starts, cuts.ends
        wanted = starts + (ends - starts) * share
        after = np.minimum(np.searchsorted(sentences, wanted), len(sentences) - 1)
        up, down = np.asarray(sentences[after]), np.asarray(sentences[np.maximum(after - 1, 0)])
        up_inside, down_inside = (starts < up) & (up < ends), (starts < down) & (down < ends)
        nearer_up = up_inside & (~down_inside | (up - wanted <= wanted - down))
        return np.where(nearer_up, up, np.where(down_inside, down, -1))

    def _elsewhere(self, index: int, document: int, epoch: int) -> tuple[int, int]:
        """A random document other than the given one, and a beginning of a sentence in it."""
        key = stream(Purpose.RANDOM_DOCUMENT, self._seed, epoch, index)
        drawn = int(below(self._store.index.documents - 1, key, 0))
        drawn += drawn >= document
        first, last = self._store.documents[drawn : drawn + 2].tolist()
        sentence = first + int(below(last - first, key, 1))
        return drawn, int(self._store.sentences[sentence])
