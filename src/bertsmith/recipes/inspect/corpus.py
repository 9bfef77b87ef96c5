"""Texts, pairs of texts, trees, tagged sentences and documents as what the model reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from bertsmith.analysis.heads.coreference import Passage, passages
from bertsmith.analysis.heads.relations import parsed_trees
from bertsmith.analysis.heads.tag_pairs import TaggedWords
from bertsmith.analysis.heads.words import split_words
from bertsmith.analysis.inspection import Item
from bertsmith.batches.examples import encode_examples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.features import word_spans
from bertsmith.engine.predictor import text_length, windows
from bertsmith.network.config import EncoderConfig
from bertsmith.recipes.inspect.config import InspectConfig
from bertsmith.recipes.predict.rows import Texts
from bertsmith.text.config import USUAL_TAGS, Columns
from bertsmith.text.coreference import (
    Layout,
    MarkedDocument,
    MarkedSentence,
    coreference_layout,
    read_coreference,
)
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.conll import joining_sign, read_tagged
from bertsmith.text.examples.recognising import columns_of_tags
from bertsmith.text.opening import kind_of
from bertsmith.text.treebank import Tree, read_trees
from bertsmith.tokens.tokenizer import Tokenizer

_ROWS = 512
_TAGGED = (".conll", ".bio", ".iob", ".iob2", ".bioes")


def is_treebank(file: str) -> bool:
    """Return whether a file is a treebank, by its name."""
    return file != "-" and kind_of(Path(file)) == ".conllu"


def words_in(text: str) -> Iterator[str]:
    """Yield the words and punctuation marks of a text."""
    for begin, end in word_spans(text, "marks").tolist():
        yield text[begin:end]


class Corpus:
    """The texts or sentences to inspect; `cut` were shortened, `left_out` are too long.

    `layout` says how mentions of coreference are written, where there are some.
    """

    def __init__(self, config: InspectConfig, tokenizer: Tokenizer, encoder: EncoderConfig) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._longest = min(config.max_length or encoder.longest, encoder.longest)
        self._columns = Columns(**config.columns.to_dict())
        self._path = Path(config.file)
        self.treebank = is_treebank(config.file)
        self.layout = (
            None if config.file == "-" else coreference_layout(self._path, self._columns.encoding)
        )
        self.tagged = self.layout == "conll-2012" or (not self.treebank and self._has_tags())
        self.cut = self.left_out = 0

    def _has_tags(self) -> bool:
        """Return whether a file has a word and its tags a line, by its name or its beginning."""
        tags, kind = self._config.tags, kind_of(self._path)
        if self._config.file == "-":
            return False
        if tags != USUAL_TAGS or kind in _TAGGED:
            return True
        if kind != ".txt":
            return False
        joined = joining_sign(self._path, tags, self._columns.encoding) is not None
        return joined or columns_of_tags(self._path, self._columns) is not None

    def items(self) -> Iterator[Item]:
        """Read the file; raises `ExampleError` for what cannot be read or holds nothing."""
        self.cut = self.left_out = 0
        if self.treebank:
            found = self._trees()
        else:
            found = self._sentences() if self.tagged else self._texts()
        empty = True
        for item in islice(found, self._config.limit):
            empty = False
            yield item
        if empty:
            raise ExampleError(
                "holds nothing that can be read", where=self._config.file,
                remedy="give sentences of at least two words, and raise --max-words",
            )  # fmt: skip

    def _trees(self) -> Iterator[Item]:
        trees = filter(self._fits, read_trees(self._path, self._columns.encoding))
        for parsed in parsed_trees(trees, self._tokenizer, self._longest):
            if parsed is None:
                self.left_out += 1
                continue
            split = parsed.split
            tagged = TaggedWords(split, parsed.tree.tags, parsed.number)
            yield Item(ids=split.ids, segments=split.segments, line=parsed.tree.line,
                       words=parsed.tree.words, parsed=parsed, tagged=tagged)  # fmt: skip

    def _fits(self, sentence: Tree | MarkedSentence) -> bool:
        """Return whether there are two words or more, and not too many; long ones are counted."""
        most = self._config.max_words
        too_long = most is not None and len(sentence.words) > most
        self.left_out += too_long
        return len(sentence.words) > 1 and not too_long

    def _sentences(self) -> Iterator[Item]:
        """Yield sentences whose words have tags."""
        number = 0
        for sentence in filter(self._fits, self._marked()):
            split = split_words(self._tokenizer, sentence.words, self._longest)
            if split is None:
                self.left_out += 1
                continue
            tagged = TaggedWords(split, sentence.tags, number)
            number += 1
            yield Item(ids=split.ids, segments=split.segments, line=sentence.line,
                       words=sentence.words, tagged=tagged)  # fmt: skip

    def _marked(self) -> Iterator[MarkedSentence]:
        """Yield the sentences of a file with tags, those of documents too."""
        if self.layout is not None:
            for document in self._read(self.layout):
                yield from document.sentences
            return
        for each in read_tagged(self._path, self._config.tags, need_tags=True, table=self._columns):
            words = tuple(each.text[begin:end] for begin, end in each.words)
            yield MarkedSentence(words=words, tags=each.tags or (), line=each.line)

    def _read(self, layout: Layout) -> Iterator[MarkedDocument]:
        return read_coreference(self._path, layout, self._columns.encoding)

    def passages(self) -> Iterator[Passage]:
        """Yield documents in passages that the model can read, where there are mentions."""
        if self.layout is None:
            return
        documents = self._documents(self.layout)
        for passage in passages(documents, self._tokenizer, self._longest):
            if passage is not None:
                yield passage

    def _documents(self, layout: Layout) -> Iterator[MarkedDocument]:
        """Yield documents of as many sentences as are wanted."""
        rest = self._config.limit
        for document in self._read(layout):
            sentences = document.sentences[:rest]
            yield MarkedDocument(sentences=sentences, mentions=document.mentions)
            rest = None if rest is None else rest - len(sentences)
            if rest == 0:
                return

    def _texts(self) -> Iterator[Item]:
        texts: Iterable[Example] = Texts(self._config.file, self._columns)
        # no more is read than is wanted
        texts = islice(texts, self._config.limit)
        for window in windows(texts, _ROWS, text_length):
            encoded = encode_examples(
                self._tokenizer,
                [each.text for each in window],
                [each.text_pair for each in window],
                longest=self._longest,
            )
            self.cut += encoded.cut_texts
            for example, ids, segments in zip(window, encoded.ids, encoded.segments, strict=True):
                words = () if example.text_pair is not None else tuple(words_in(example.text))
                yield Item(ids=ids, segments=segments, line=example.line, words=words)
