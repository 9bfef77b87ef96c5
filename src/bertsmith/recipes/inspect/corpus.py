"""Texts, pairs of texts and trees as what the model reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from bertsmith.analysis.inspection import Item
from bertsmith.analysis.relations import parsed_trees
from bertsmith.batches.examples import encode_examples
from bertsmith.core.errors import ExampleError
from bertsmith.core.log import Bar
from bertsmith.engine.features import word_spans
from bertsmith.engine.predictor import text_length, windows
from bertsmith.network.config import EncoderConfig
from bertsmith.recipes.inspect.config import InspectConfig
from bertsmith.recipes.predict.rows import Texts
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import Example
from bertsmith.text.opening import kind_of
from bertsmith.text.treebank import Tree, read_trees
from bertsmith.tokens.tokenizer import Tokenizer

_ROWS = 512


def is_treebank(file: str) -> bool:
    """Return whether a file is a treebank, by its name."""
    return file != "-" and kind_of(Path(file)) == ".conllu"


def words_in(text: str) -> Iterator[str]:
    """Yield the words and punctuation marks of a text."""
    for begin, end in word_spans(text, "marks").tolist():
        yield text[begin:end]


class Corpus:
    """The texts or sentences to inspect; `cut` were shortened, `left_out` are too long."""

    def __init__(self, config: InspectConfig, tokenizer: Tokenizer, encoder: EncoderConfig) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._longest = min(config.max_length or encoder.longest, encoder.longest)
        self.treebank = is_treebank(config.file)
        self.cut = self.left_out = 0

    def items(self, bar: Bar | None = None) -> Iterator[Item]:
        """Read the file; raises `ExampleError` for what cannot be read or holds nothing."""
        self.cut = self.left_out = 0
        found = self._trees() if self.treebank else self._texts()
        number = 0
        for number, item in enumerate(islice(found, self._config.limit), 1):
            if bar is not None:
                bar.move_to(number)
            yield item
        if not number:
            raise ExampleError(
                "holds nothing that can be read", where=self._config.file,
                remedy="give sentences of at least two words, and raise --max-words",
            )  # fmt: skip

    def _trees(self) -> Iterator[Item]:
        trees = filter(self._fits, read_trees(Path(self._config.file)))
        for parsed in parsed_trees(trees, self._tokenizer, self._longest):
            if parsed is None:
                self.left_out += 1
                continue
            split = parsed.split
            yield Item(ids=split.ids, segments=split.segments, line=parsed.tree.line,
                       words=parsed.tree.words, parsed=parsed)  # fmt: skip

    def _fits(self, tree: Tree) -> bool:
        """Return whether a tree has two words or more, and not too many; long ones are counted."""
        most = self._config.max_words
        too_long = most is not None and len(tree.words) > most
        self.left_out += too_long
        return len(tree.words) > 1 and not too_long

    def _texts(self) -> Iterator[Item]:
        columns = Columns(**self._config.columns.to_dict())
        texts: Iterable[Example] = Texts(self._config.file, columns)
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
