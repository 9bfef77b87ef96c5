"""Look inside a model: its attention over a corpus, as a page, figures and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from bertsmith.analysis.heads.coreference import Passage, coreference_figures, passages
from bertsmith.analysis.heads.relations import parsed_trees
from bertsmith.analysis.heads.tag_pairs import TaggedWords
from bertsmith.analysis.heads.words import fitting_words, split_words
from bertsmith.analysis.inspection import (
    NOTHING,
    Annotated,
    Inspection,
    Item,
    annotation_figures,
    inspect_attention,
)
from bertsmith.analysis.layers.context import (
    LEAST_USES,
    WordFigures,
    WordUseCollector,
    anisotropy,
    describe_uses,
)
from bertsmith.analysis.layers.similarity import compare_layers
from bertsmith.batches.examples import encode_rows
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.files import check_outputs, followed
from bertsmith.core.log import progress, say, table_of
from bertsmith.core.output import print_table
from bertsmith.core.ownership import claimed_output, new_file
from bertsmith.core.printable import counted, json_text, model_name, printable
from bertsmith.engine.devices import device_named
from bertsmith.engine.features import word_spans
from bertsmith.engine.predictor import text_length, windows
from bertsmith.hub.models import model_folder
from bertsmith.network.config import EncoderConfig
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.config import InspectConfig
from bertsmith.recipes.predict.texts import Texts
from bertsmith.reports.annotations import pair_name
from bertsmith.reports.curves import require_matplotlib
from bertsmith.reports.inspection import InspectionPage, as_json
from bertsmith.text.config import USUAL_TAGS, Columns
from bertsmith.text.coreference import (
    Layout,
    MarkedDocument,
    MarkedSentence,
    coreference_layout,
    read_coreference,
)
from bertsmith.text.examples.detection import columns_of_tags
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.conll import joining_sign, read_tagged
from bertsmith.text.opening import kind_of, refuse_pipe
from bertsmith.text.treebank import Tree, read_trees
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from bertsmith.weights.sentence_folder import read_sentence_folder

_ROWS = 512
_TAGGED = (".conll", ".bio", ".iob", ".iob2", ".bioes")
_SHOWN = 12
# names of columns, so that a terminal of 80 columns has room for all
_NARROW = {"previous": "prev.", "punctuation": "punct.", "entropy": "entr.", "distance": "dist."}


def inspect(config: InspectConfig) -> Mapping[str, Any]:
    """Inspect a model's attention over a corpus and return every number.

    Raises `ModelFolderError`, `ExampleError`, `ConfigError`, `MissingExtra` without matplotlib.
    """
    require_matplotlib()
    if config.probes and not is_treebank(config.file):
        remedy = "give a .conllu, or leave it out"
        raise ConfigError("--probes needs a treebank", remedy=remedy)
    if is_treebank(config.file):
        Columns(**config.columns.to_dict()).check_read(config.file, "a dependency treebank")
        if config.tags != USUAL_TAGS:
            problem = "the options --tags.* do not apply to a dependency treebank"
            raise ConfigError(problem, where=config.file, remedy="omit them; UPOS is read")
    check_outputs(config.out, [config.out, config.out.with_suffix(".json")], config.file)
    with claimed_output(followed(config.out)):
        return _inspected(config)


def _inspected(config: InspectConfig) -> Mapping[str, Any]:
    """Inspect, and write the page."""
    model, tokenizer = _opened(config.model, config.device)
    other_model = None if config.against is None else _opened(config.against, config.device)
    corpus = Corpus(config, tokenizer, model.config.encoder)
    passing = WordUseCollector(config.words, config.sample)
    inspection = inspect_attention(
        model,
        tokenizer,
        _watched(corpus.items(), passing),
        sample=config.sample,
        frequent=config.frequent,
        probed=config.probes,
    )
    notes = _notes(inspection, corpus)
    inspection = _with_annotations(inspection, model, corpus, control=config.control)
    if other_model is not None:
        similarity = compare_layers((model, tokenizer), other_model, passing.texts)
        if similarity is None:
            say("--against compares nothing: no single text has three words that both models read")
        inspection = replace(inspection, similarity=similarity)
    if config.words:
        inspection = replace(
            inspection,
            uses=list(_uses(model, tokenizer, config.words, passing)),
            anisotropy=anisotropy(model, tokenizer, passing.texts),
        )
    with progress("drawing", None, "figures") as bar:
        page = InspectionPage(
            inspection,
            model=model_name(config.model),
            file=_name(config.file),
            notes=notes,
            bar=bar,
        )
    content = {"model": str(config.model), "file": config.file, **as_json(inspection)}
    if config.against is not None:
        content["against"] = str(config.against)
    _write(config.out, page, content)
    if not config.json:
        _show(inspection)
    for name, drawing in page.drawings.items():
        if drawing.missing:
            file = f"{config.out.stem}-{name}.png"
            say(f"{file}: letters that no installed font has are boxes: {_some(drawing.missing)}")
    say(f"{config.out}: the page; its numbers are in {config.out.with_suffix('.json')}")
    return content


def _with_annotations(
    inspection: Inspection, model: Model, corpus: Corpus, *, control: bool
) -> Inspection:
    """Return an inspection with coreference, and with what random weights find."""
    inspection = replace(
        inspection, annotated=_with_coreference(inspection.annotated, model, corpus)
    )
    if not control or inspection.annotated == NOTHING:
        return inspection
    random = build_model(model.config, seed=0).eval().to(model.device)
    with progress("random weights", inspection.texts, "texts") as bar:
        annotated = annotation_figures(random, corpus.items(), bar)
    return replace(inspection, control=_with_coreference(annotated, random, corpus))


def _with_coreference(annotated: Annotated, model: Model, corpus: Corpus) -> Annotated:
    if corpus.layout is None:
        return annotated
    with progress("coreference", None, "passages") as bar:
        figures = coreference_figures(model, corpus.passages(), bar)
    return annotated._replace(coreference=figures)


def _opened(folder: Path, device: str) -> tuple[Model, Tokenizer]:
    """Return the model of a folder, of a sentence-transformers one too, on a device."""
    path = model_folder(folder)
    settings = read_sentence_folder(path)
    model, tokenizer = load_model(path if settings is None else settings.network)
    return model.to(device_named(device)), tokenizer


def _watched(items: Iterable[Item], passing: WordUseCollector) -> Iterator[Item]:
    """Yield items, and show the words of each to a collector."""
    for item in items:
        if item.words:
            passing.add(item.words, item.line)
        yield item


def _uses(
    model: Model, tokenizer: Tokenizer, words: Sequence[str], passing: WordUseCollector
) -> Iterator[WordFigures]:
    """Yield the figures of each word; say which have too few uses that can be read."""
    with progress("words in context", len(words), "words") as bar:
        for word in words:
            uses = passing.uses(word)
            figures = describe_uses(model, tokenizer, word, uses)
            bar.advance()
            if figures is None:
                uses_found = counted(len(uses), "use") + " in the texts"
                read = "" if len(uses) < LEAST_USES else ", most of which the model does not read"
                say(f"{word!r} has {uses_found}{read}: too few to compare")
            else:
                yield figures


def _some(letters: str) -> str:
    """Return the first letters, and how many more there are."""
    more = f" and {len(letters) - _SHOWN} more" if len(letters) > _SHOWN else ""
    return printable(" ".join(letters[:_SHOWN])) + more


def _name(file: str) -> str:
    return "standard input" if file == "-" else Path(file).name


def _notes(inspection: Inspection, corpus: Corpus) -> list[str]:
    """Return notes on the method of the figures."""
    notes = [
        f"{counted(inspection.texts, 'text')} with {counted(inspection.tokens, 'token')} were read "
        "once. The figures of heads are means over these tokens, special ones included, of the "
        "attention weights after the softmax, in evaluation mode.",
        "The map of heads, the gradients, and the texts that can be chosen use "
        f"{counted(len(inspection.sample), 'text')} drawn from all of them (the same each time).",
    ]
    if corpus.treebank:
        notes.append(
            "The words are those of the treebank. Attention to a word is the sum over its pieces, "
            "attention from a word the mean over them. Relations are without subtypes."
        )
    if corpus.tagged:
        notes.append(
            "The words are those of the file. Attention to a word is the sum over its pieces, "
            "attention from a word the mean over them."
        )
    if corpus.cut:
        verb = "was" if corpus.cut == 1 else "were"
        texts = counted(corpus.cut, "text")
        notes.append(f"{texts} {verb} longer than the model reads, and cut.")
    if corpus.left_out:
        verb = "was" if corpus.left_out == 1 else "were"
        notes.append(f"{counted(corpus.left_out, 'sentence')} {verb} too long, and left out.")
    return notes


def _write(out: Path, page: InspectionPage, content: Mapping[str, Any]) -> None:
    """Write all files or none; the page takes its name last: where it is, the rest is too."""
    with ExitStack() as files:

        def part_of(path: Path) -> Path:
            return files.enter_context(new_file(followed(path)))

        html, figures = part_of(out), part_of(out.with_suffix(".json"))
        for name, drawing in page.drawings.items():
            part_of(out.with_name(f"{out.stem}-{name}.png")).write_bytes(drawing.png)
        figures.write_text(json_text(content), encoding="utf-8")
        html.write_text(page.html(), encoding="utf-8", errors="xmlcharrefreplace")


def _show(inspection: Inspection) -> None:
    """Print the relations of a treebank, or else what each layer attends to."""
    annotated = inspection.annotated
    if annotated.coreference:
        _print_rows(
            ("mentions", "asked", "best head", "held out", "nearest", "same word"),
            (
                (
                    figures.name,
                    figures.count,
                    figures.best,
                    figures.held_out,
                    figures.nearest,
                    figures.same_word,
                )
                for figures in annotated.coreference
            ),
        )
    if annotated.relations:
        _print_rows(
            ("relation", "words", "best head", "held out", "best offset", "finds"),
            (
                (
                    relation.name,
                    relation.count,
                    relation.best[1:],
                    relation.held_out,
                    f"{relation.offset:+d}",
                    relation.offset_accuracy,
                )
                for relation in annotated.relations[: _SHOWN + 1]
            ),
        )
        return
    for title, pairs in (("entities", annotated.tags.entities), ("tags", annotated.tags.pairs)):
        if pairs:
            _print_rows(
                (title, "words", "best head", "held out", "chance", "best offset"),
                (
                    (pair_name(pair), pair.count, pair.best, pair.held_out, pair.chance,
                     pair.offset_accuracy)
                    for pair in pairs[:_SHOWN]
                ),
            )  # fmt: skip
    if annotated.tags.pairs:
        return
    shares = ("self", "previous", "next", "cls", "sep", "punctuation")
    names = (*shares, "entropy", "distance")
    means = {name: inspection.statistics[name].mean(1) for name in names}
    table = table_of(
        ("layer", *(_NARROW.get(name, name) for name in names)),
        (
            (str(layer + 1), *(_shown(means[name][layer], share=name in shares) for name in names))
            for layer in range(inspection.layers)
        ),
        numbers=True,
    )
    table.columns[0].justify = "right"
    print_table(table)


def _shown(value: float, *, share: bool) -> str:
    if math.isnan(value):
        return "-"
    return f"{100 * value:z.1f} %" if share else f"{value:z.2f}"


def _print_rows(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Print rows of a name, a count, a head, and shares or texts.

    A head is chosen as the best on one half of the sentences, and has a share of what is "held out"
    in the other: of those it was chosen on, chance alone gives the best of many heads a high one.
    """
    cells = (
        (
            printable(name), f"{count:,}", f"{layer}-{head}",
            *(other if isinstance(other, str) else _shown(other, share=True) for other in others),
        )
        for name, count, (layer, head), *others in rows
    )  # fmt: skip
    print_table(table_of(names, cells, numbers=True))


def words_and_marks(text: str) -> tuple[str, ...]:
    """Return the words and punctuation marks of a text."""
    return tuple(text[begin:end] for begin, end in word_spans(text, "marks").tolist())


def is_treebank(file: str) -> bool:
    """Return whether a file is a treebank, by its name."""
    return file != "-" and kind_of(Path(file)) == ".conllu"


class Corpus:
    """The texts or sentences to inspect; `cut` were shortened, `left_out` are too long.

    `layout` says how mentions of coreference are written, where there are some.
    """

    def __init__(self, config: InspectConfig, tokenizer: Tokenizer, encoder: EncoderConfig) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._longest = min(config.max_length or encoder.longest, encoder.longest)
        self._columns = Columns(**config.columns.to_dict())
        self._path = Path(config.file)
        if config.file != "-":
            refuse_pipe(self._path)
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
            items = self._trees()
        else:
            items = self._sentences() if self.tagged else self._texts()
        empty = True
        for item in islice(items, self._config.limit):
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
        max_words = self._config.max_words
        too_long = max_words is not None and len(sentence.words) > max_words
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
        for item in read_tagged(self._path, self._config.tags, need_tags=True, table=self._columns):
            words = tuple(item.text[begin:end] for begin, end in item.words)
            yield MarkedSentence(words=words, tags=item.tags or (), line=item.line)

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
            encoded = encode_rows(self._tokenizer, window, longest=self._longest)
            self.cut += encoded.cut_texts
            for example, ids, segments in zip(window, encoded.ids, encoded.segments, strict=True):
                words = () if example.text_pair is not None else words_and_marks(example.text)
                if len(ids) == self._longest:
                    words = fitting_words(self._tokenizer, words, self._longest)
                yield Item(ids=ids, segments=segments, line=example.line, words=words)
