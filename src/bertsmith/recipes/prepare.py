"""Encoding a corpus into a token store, and how the corpus is read: files, layout, a preview."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from bertsmith.core.files import followed
from bertsmith.core.log import progress, say, short_number
from bertsmith.core.printable import counted, fitted, printable, shell_word
from bertsmith.core.processors import usable_processors
from bertsmith.hub.models import model_folder
from bertsmith.recipes.cluster import Cluster, Job, Pending, join_cluster, require_ray
from bertsmith.recipes.config import CorpusConfig, PrepareConfig
from bertsmith.store.preparing import (
    EncodedGroup,
    Group,
    GroupEncoder,
    check_preparing,
    prepare_corpus,
)
from bertsmith.store.store import HELD_OUT, StoreIndex, TokenStore
from bertsmith.text.corpus.documents import Document, TextSize
from bertsmith.text.corpus.files import Corpus, shown_kinds
from bertsmith.text.opening import kind_of
from bertsmith.tokens.tokenizer import Tokenizer

_REMEDIES = 3


def open_corpus(config: CorpusConfig) -> Corpus:
    """Return the corpus of files, folders and globs, and print what is skipped in folders.

    Raises `CorpusError`.
    """
    corpus = Corpus(
        config.corpus,
        text_column=config.text_column,
        header=config.header,
        layout=config.layout,
        encoding=config.encoding,
        text_files=config.text_files,
        markup_files=config.markup_files,
    )
    if corpus.skipped.total():
        read = counted(len(corpus.files), "file")
        say(f"corpus: {read}; skipped: {shown_kinds(corpus.skipped)}")
        for kind, remedy in islice(corpus.remedies(), _REMEDIES):
            say(f"skipped {kind}: {remedy}")
    return corpus


_FILES_EXAMINED = 500
_DOCUMENTS = 2
_PARAGRAPHS = 2
_TOKENS = 12


def dry_run(config: PrepareConfig) -> Corpus:
    """Show what `prepare` would read and how the vocabulary tokenizes it, and write nothing.

    Raises what `prepare` raises before it reads the whole corpus.
    """
    if config.ray is not None:
        require_ray()
    tokenizer = Tokenizer.load(model_folder(config.vocab, "vocabulary"))
    corpus = open_corpus(config.text)
    out = followed(config.out)
    check_preparing(corpus, tokenizer, out, held_out=config.held_out, fresh=config.fresh)
    print_corpus(corpus, tokenizer)
    say("dry run: nothing was written")
    return corpus


def print_corpus(corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Print which files a corpus has and how they are read, and its first documents."""
    width = max(40, shutil.get_terminal_size().columns)
    say(_files(corpus))
    if corpus.lasting:
        corpus.examine(_FILES_EXAMINED)
    for path in _one_of_each_kind(corpus.files):
        say(f"{printable(path.name)}: {printable(corpus.layout_of(path), 600)}")
    if corpus.lasting:
        print_layouts(corpus)
    for number, document in enumerate(islice(corpus, _DOCUMENTS), 1):
        for line in _document(number, document, tokenizer):
            say(fitted(line, width))


def _files(corpus: Corpus) -> str:
    kinds = Counter(kind_of(path) or "without extension" for path in corpus.files)
    count = len(corpus.files)
    shown = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common())
    size = corpus.total_bytes / 1e6
    return f"corpus: {counted(count, 'file')} ({shown}), {size:,.1f} MB on the disk"


def print_layouts(corpus: Corpus) -> None:
    """Print the number of plain-text files of each layout, where auto found several."""
    counts = Counter(corpus.layouts.values())
    if corpus.layout != "auto" or len(counts) < 2:
        return
    shown = ", ".join(
        f"{layout} in {counted(number, 'file')}{_DOCUMENT_END.get(layout, '')}"
        for layout, number in counts.most_common()
    )
    say(f"layouts found: {shown}; if all files have the same layout, state it with --layout")


_DOCUMENT_END = {"documents": " (each blank line ends a document)"}


def _one_of_each_kind(files: tuple[Path, ...]) -> list[Path]:
    """Return the first file of each kind."""
    first: dict[str, Path] = {}
    for path in files:
        first.setdefault(kind_of(path), path)
    return list(first.values())


def _document(number: int, document: Document, tokenizer: Tokenizer) -> list[str]:
    """Return the lines that show a document: where it begins, its paragraphs, its first tokens."""
    count = len(document.paragraphs)
    location = f"{Path(document.source).name}, line {document.line}"
    lines = [f"document {number} ({location}), {counted(count, 'paragraph')}:"]
    lines += [f"  {paragraph}" for paragraph in document.paragraphs[:_PARAGRAPHS]]
    text = document.paragraphs[0][:1000]
    # as in the store, where the name of a special token is text like any other
    ids = tokenizer.encode([text], specials_in_text=False)[0][:_TOKENS].tolist()
    lines.append(f"  pieces: {' '.join(tokenizer.shown(piece) for piece in ids)}")
    lines.append(f"  ids:    {' '.join(map(str, ids))}")
    return lines


def prepare(config: PrepareConfig) -> TokenStore:
    """Encode a corpus with a vocabulary into a new store, with some of its documents held out.

    An interrupted call leaves `out`.partial, from which the same call resumes; with `fresh` it
    starts again.
    """
    out = followed(config.out)
    folder = model_folder(config.vocab, "vocabulary")
    tokenizer = Tokenizer.load(folder)
    opened = open_corpus(config.text)
    with (
        _on_cluster(config.ray, tokenizer) as (encoder, processes),
        progress("encoding", opened.total_bytes, "B") as bar,
    ):
        index = prepare_corpus(
            opened,
            tokenizer,
            out,
            held_out=config.held_out,
            workers=config.workers or processes,
            encoder=encoder,
            fresh=config.fresh,
            moved=lambda position: bar.move_to(position.read),
        )
    store = TokenStore(out)
    say(describe(store, tokenizer.vocabulary[tokenizer.unknown_id]))
    print_layouts(opened)
    single = index.documents == 1
    if config.held_out and not store.held_out():
        few, remedy = "so few documents", "give shorter documents, or a larger --held-out"
        if single:
            few = "one document"
            remedy = "divide it into files: split -l 1000 --additional-suffix=.txt FILE part-"
        say(
            f"of {few} none fell into the {100 * config.held_out:g} % held out, so that "
            f"pre-training will not be evaluated: {remedy}"
        )
    if single:
        remedy = "; if blank lines separate documents in it, give --layout documents"
        asked = config.text.layout != "auto"
        said = "the corpus is one document: next-sentence prediction needs at least two"
        say(said if asked else f"{said}{remedy}")
    pairs = " --sequences within_documents" if single else ""
    # the vocabulary of a model is given in order to train that model further
    further = f" --from {shell_word(config.vocab)}" if (folder / "config.json").is_file() else ""
    say(f"next: bertsmith pretrain {shell_word(config.out)}{further} --out run --minutes 30{pairs}")
    return store


@contextmanager
def _on_cluster(
    address: str | None, tokenizer: Tokenizer
) -> Iterator[tuple[_ClusterEncoder | None, int]]:
    """Yield the encoder of a cluster and its number of processes; else None and the cores."""
    if address is None:
        yield None, usable_processors()
        return
    with join_cluster(address) as cluster:
        processes = cluster.processes()
        say(f"cluster: {counted(processes, 'process', 'processes')}")
        yield _ClusterEncoder(cluster, tokenizer), processes


class _ClusterEncoder:
    """Encodes on a cluster."""

    def __init__(self, cluster: Cluster, tokenizer: Tokenizer) -> None:
        self._submit = cluster.submit(Job(open=GroupEncoder, argument=tokenizer, work=encode_group))

    def submit(self, group: Group) -> Pending[EncodedGroup]:
        """Have a group encoded."""
        return self._submit(group)


def encode_group(encoder: GroupEncoder, group: Group) -> EncodedGroup:
    """Return a group encoded, in a process of a cluster."""
    return encoder(group)


def describe(store: TokenStore, unknown_name: str) -> str:
    """Return one line on a store, including the share of unknown tokens."""
    index = store.index
    held_out = TokenStore(store.folder / HELD_OUT).index if store.held_out() else None
    every: list[StoreIndex] = [index, *([held_out] if held_out else [])]
    documents = sum(part.documents for part in every)
    tokens = sum(part.tokens for part in every)
    unknown = sum(part.unknown for part in every)
    text = sum((part.text for part in every), TextSize())
    return (
        f"corpus: {counted(documents, 'document')}, "
        f"{counted(sum(part.sentences for part in every), 'sentence')}, "
        f"{_short_counted(text.units, text.unit)}, "
        f"{_short_counted(tokens, 'token')} ({100 * unknown / tokens:.2f} % {unknown_name}); "
        f"{counted(index.duplicates, 'duplicate')} left out; "
        f"{counted(held_out.documents if held_out else 0, 'document')} held out"
    )


def _short_counted(count: int, noun: str) -> str:
    return f"{short_number(count)} {noun if count == 1 else f'{noun}s'}"
