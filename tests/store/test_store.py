from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
from concurrent.futures.process import BrokenProcessPool
from itertools import islice, pairwise, product
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest

from bertsmith.core.errors import StoreError
from bertsmith.store import writing
from bertsmith.store.preparing import encoders, prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.store.writing import EncodedDocuments, StoreWriter, WriterState
from bertsmith.text.corpus.documents import Document, TextSize
from bertsmith.text.corpus.sentences import split_sentences
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def texts_of(store: TokenStore, tokenizer: Tokenizer) -> list[str]:
    """Every document decoded."""
    starts = store.document_starts().tolist()
    ranges = pairwise(starts)
    return [tokenizer.decode(store.read(a, b).tolist()) for a, b in ranges]


def test_every_document_is_in_one_of_the_two_stores(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    index = prepare_store(some_documents, tokenizer, folder, held_out=0.3)
    store = TokenStore(folder, verify=True)
    held_out = store.held_out()
    assert held_out is not None
    assert 0 < held_out.index.documents < 40
    wanted = [
        tokenizer.decode(tokenizer.encode([" ".join(d.paragraphs)])[0].tolist())
        for d in some_documents
    ]
    found = texts_of(store, tokenizer) + texts_of(held_out, tokenizer)
    assert sorted(found) == sorted(wanted)
    assert [text for text in wanted if text in set(texts_of(store, tokenizer))] == texts_of(
        store, tokenizer
    )
    sentences = sum(len(split_sentences(p)) for d in some_documents for p in d.paragraphs)
    assert index.sentences + held_out.index.sentences == sentences
    assert store.tokenizer().fingerprint == tokenizer.fingerprint


def test_sentences_begin_where_sentences_begin(store: TokenStore, tokenizer: Tokenizer) -> None:
    full_stop = tokenizer.vocabulary.index(".")
    starts = store.document_starts()
    for start, end in zip(starts[:20].tolist(), starts[1:21].tolist(), strict=True):
        inner = store.sentences[(store.sentences > start) & (store.sentences < end)]
        ids = store.read(start, end)
        assert (ids[inner - start - 1] == full_stop).all()


def test_documents_without_a_token_change_nothing(
    some_documents: list[Document], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    # zero-width characters, of which tokenizers leave nothing
    empty = [Document(source="e", line=1, paragraphs=("\u200b" * count,)) for count in range(1, 8)]
    assert all(len(ids) == 0 for ids in tokenizer.encode([e.paragraphs[0] for e in empty]))
    mixed = [*empty[:3], *some_documents[:9], empty[3], *some_documents[9:20], *empty[4:]]
    for name, documents in (("without", some_documents[:20]), ("with", mixed)):
        prepare_store(documents, tokenizer, tmp_path / name, held_out=0.4)
    assert contents(tmp_path / "with") == contents(tmp_path / "without")


def test_duplicates_are_left_out_and_counted(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    index = prepare_store(some_documents + some_documents[:7], tokenizer, folder, held_out=0.0)
    assert (index.documents, index.duplicates) == (60, 7)


def test_each_of_the_two_stores_counts_its_own_unknown_pieces_and_words(
    tokenizer: Tokenizer, folder: Path
) -> None:
    snow = [" ".join("\u2603" * count) for count in range(1, 20)]
    odd = [Document(source="o", line=1, paragraphs=(text,)) for text in snow]
    prepare_store(odd, tokenizer, folder, held_out=0.5)
    store = TokenStore(folder)
    held_out = store.held_out()
    assert held_out is not None
    for each in (store, held_out):
        unknown = each.read(0, each.tokens) == tokenizer.unknown_id
        assert each.index.unknown == np.count_nonzero(unknown) > 0
        assert each.index.text.words == each.index.unknown
    assert store.index.unknown + held_out.index.unknown == sum(range(1, 20))


@pytest.mark.parametrize(("pieces", "kind"), [(2**16, "uint16"), (2**16 + 1, "uint32")])
def test_ids_of_large_vocabularies_are_kept(folder: Path, pieces: int, kind: str) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(word) for word in islice(product(letters, repeat=4), pieces - len(SPECIALS))]
    wide = Tokenizer([*SPECIALS, *words], BasicRules(lowercase=True))
    text = " ".join([words[0], *words[-4:], words[1]])
    document = Document(source="", line=1, paragraphs=(text,))
    assert prepare_store([document], wide, folder, held_out=0.0).type == kind
    first = len(SPECIALS)
    ids = [first, *range(pieces - 4, pieces), first + 1]
    assert TokenStore(folder).read(0, len(ids)).tolist() == ids


def test_bytes_do_not_depend_on_the_number_of_workers(
    some_documents: list[Document],
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = [*some_documents, *some_documents[:9]]
    prepare_store(many, tokenizer, tmp_path / "whole")
    monkeypatch.setattr("bertsmith.store.preparing.GROUP_BYTES", 5_000)
    for workers in (1, 3):
        prepare_store(many, tokenizer, tmp_path / str(workers), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "3") == contents(tmp_path / "whole")
    # as where /dev/shm is full
    refuse = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr("_multiprocessing.SemLock", refuse)
    prepare_store(many, tokenizer, tmp_path / "alone", workers=3)
    assert contents(tmp_path / "alone") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("file", "spec", "told"),
    [
        ("mine.py", None, "below if __name__ == '__main__' in your script"),
        ("bin/bertsmith", None, "--workers"),
        ("package/__main__.py", object(), "--workers"),
        (None, None, "--workers"),
    ],
)
def test_a_script_is_told_how_to_call_what_starts_processes(
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    file: str | None,
    spec: object,
    told: str,
) -> None:
    main = ModuleType("__main__")
    main.__dict__.update({"__spec__": spec} | ({} if file is None else {"__file__": file}))
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(StoreError, match="has ended") as caught, encoders(tokenizer, 2):
        raise BrokenProcessPool
    assert caught.value.remedy.endswith(told)


def test_shards_are_bounded_and_read_as_one(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "sharded", vocabulary=70_000, shard_bytes=4 * 25)
    random = np.random.default_rng(3)
    written = random.integers(0, 70_000, 97)
    encoded = EncodedDocuments(
        ids=written,
        sentences=np.array([5, 6, 13, 7, 11, 3, 2, 30, 19, 1]),
        documents=np.array([2, 1, 2, 1, 1, 1, 2]),
        text=TextSize(words=50, characters=70),
        unknown=0,
    )
    writer.append(encoded)
    writer.finish(fingerprint="", duplicates=0)
    store = TokenStore(tmp_path / "sharded", verify=True)
    assert store.index.shards == (24, 23, 30, 20)  # a document of 30 fills a shard by itself
    starts = store.document_starts().tolist()
    read = [store.read(a, b) for a, b in pairwise(starts)]
    assert np.concatenate(read).tolist() == written.tolist()
    assert writing.SHARD_BYTES == 1 << 30


def random_documents(count: int) -> list[EncodedDocuments]:
    random = np.random.default_rng(5)
    found = []
    for _ in range(count):
        documents = random.integers(1, 4, random.integers(0, 6))
        sentences = random.integers(1, 9, documents.sum())
        ids = random.integers(0, 300, sentences.sum()).astype(np.uint16)
        found.append(
            EncodedDocuments(
                ids=ids,
                sentences=sentences,
                documents=documents,
                text=TextSize(words=3, characters=5),
                unknown=1,
            )
        )
    return found


@pytest.mark.parametrize("torn", [b"", b"half a"])
def test_a_writer_goes_on_from_any_state(tmp_path: Path, torn: bytes) -> None:
    parts = random_documents(12)

    def write(folder: Path, parts: list[EncodedDocuments], state: WriterState) -> StoreWriter:
        writer = StoreWriter(folder, vocabulary=300, shard_bytes=2 * 50, state=state)
        for part in parts:
            writer.append(part)
        return writer

    whole = write(tmp_path / "whole", parts, WriterState()).finish(fingerprint="", duplicates=0)
    written = [part for part in parts if len(part.documents)]
    assert (whole.unknown, whole.text.words) == (len(written), 3 * len(written))
    wanted = contents(tmp_path / "whole")
    assert len([name for name in wanted if name.startswith("tokens")]) > 4
    for number in range(len(parts) + 1):
        folder = tmp_path / str(number)
        writer = write(folder, parts[:number], WriterState())
        state = WriterState.from_dict(json.loads(json.dumps(writer.state.to_dict())))
        # written, but nobody was told of it any more
        for part in parts[number : number + 2]:
            writer.append(part)
        files = writer.open_files
        writer.abandon()
        for path in files:
            path.write_bytes(path.read_bytes() + torn)
        # the next one, which is not needed if nothing follows
        (folder / f"tokens-{len(state.shards):05}.bin").write_bytes(torn)
        write(folder, parts[number:], state).finish(fingerprint="", duplicates=0)
        assert contents(folder) == wanted


def test_a_writer_does_not_go_on_with_less_than_there_was(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "s", vocabulary=300)
    writer.append(random_documents(3)[1])
    writer.abandon()
    for name in ("tokens-00000.bin", "sentences.bin", "documents.bin"):
        path = tmp_path / "s" / name
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        with pytest.raises(StoreError, match=rf"{name}: is shorter than it was; .*--fresh"):
            StoreWriter(tmp_path / "s", vocabulary=300, state=writer.state)
        path.write_bytes(data)


def sealed(data: bytes, old: bytes, new: bytes) -> bytes:
    """An index with a change, and the hash of its own content that fits."""
    text = data.rstrip().replace(old, new)
    plain = re.sub(rb'\n "sha256": "\w+",', b"", text, count=1)
    return text.replace(text.split(b'"')[3], hashlib.sha256(plain).hexdigest().encode(), 1) + b"\n"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tokens-00000.bin", lambda data: data[:-2], "size"),
        ("sentences.bin", lambda data: data + b"1234567890123456", "size"),
        ("tokens-00000.bin", lambda data: bytes([data[0] ^ 1]) + data[1:], "altered"),
        ("store.json", lambda data: data[:100], "JSON"),
        ("store.json", lambda data: data.replace(b'"format": 2', b'"format": 9'), "a later"),
        ("store.json", lambda data: data.replace(b'"format": 2', b'"format": 1'), "an earlier"),
        ("store.json", lambda data: data.replace(b'"format": 2', b'"kind": 3'), "an earlier"),
        ("store.json", lambda data: data.replace(b"documents.bin", b"../../../etc/p"), "altered"),
        ("store.json", lambda data: sealed(data, b"documents.bin", b"../../../etc/p"), "outside"),
        ("store.json", lambda data: data.replace(b'"tokens":', b'"extra": 1, "tokens":'), "extra"),
        ("store.json", lambda data: sealed(data, b'"uint16"', b'"uint64"'), "altered"),
        ("store.json", lambda data: sealed(data, b'"documents": ', b'"documents": 1'), "numbers"),
    ],
)
def test_damage_is_told(
    store: TokenStore, folder: Path, name: str, change: object, message: str
) -> None:
    for path, data in contents(store.folder).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    assert callable(change)
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    with pytest.raises(StoreError, match=message):
        TokenStore(folder, verify=True)


def test_a_file_that_is_missing_is_told(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    prepare_store(some_documents[:5], tokenizer, folder, held_out=0.0)
    (folder / "sentences.bin").unlink()
    with pytest.raises(StoreError, match=r"sentences\.bin: is missing"):
        TokenStore(folder)


@pytest.mark.parametrize("name", ["sentences.bin", "documents.bin"])
@pytest.mark.parametrize("place", [0, -1])
def test_offsets_that_do_not_cover_the_text_are_told_without_hashes(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path, name: str, place: int
) -> None:
    prepare_store(some_documents[:5], tokenizer, folder, held_out=0.0)
    offsets = np.fromfile(folder / name, "<i8")
    offsets[place] += 1
    offsets.tofile(folder / name)
    with pytest.raises(StoreError, match="disagree"):
        TokenStore(folder)


def test_pieces_are_counted_whatever_is_counted_at_once(
    store: TokenStore, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.fromfile(store.folder / "tokens-00000.bin", "<u2")
    monkeypatch.setattr("bertsmith.store.store._COUNTED", 7)
    expected = [int((ids == number).sum()) for number in range(tokenizer.size)]
    assert store.counts(tokenizer.size).tolist() == expected


def test_another_vocabulary_is_refused(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    prepare_store(some_documents, tokenizer, folder)
    other = Tokenizer([*tokenizer.vocabulary, "##xyz"], tokenizer.rules)
    other.save(folder / "vocabulary")
    with pytest.raises(StoreError, match=r"not the one the store was made with.*prepare"):
        TokenStore(folder).tokenizer()


def test_nothing_is_left_of_a_store_that_failed(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    def failing() -> list[Document]:
        return [*some_documents, 1 / 0]  # type: ignore[list-item]

    def stream_that_fails() -> object:
        yield from some_documents
        yield from failing()

    with pytest.raises(ZeroDivisionError):
        prepare_store(stream_that_fails(), tokenizer, folder)  # type: ignore[arg-type]
    assert list(folder.parent.iterdir()) == []


def test_what_is_no_store_or_exists(tokenizer: Tokenizer, folder: Path) -> None:
    with pytest.raises(StoreError, match="not a token store"):
        TokenStore(folder)
    folder.mkdir()
    (folder / "mine.txt").write_text("keep me")
    with pytest.raises(StoreError, match="exists already"):
        prepare_store([], tokenizer, folder)
    assert (folder / "mine.txt").read_text() == "keep me"


def test_index_is_readable_json(store: TokenStore) -> None:
    index = json.loads((store.folder / "store.json").read_text())
    assert index["documents"] == len(store.documents) - 1
    assert index["type"] == "uint16"
    assert {record["name"] for record in index["files"]} == {
        "tokens-00000.bin",
        "sentences.bin",
        "documents.bin",
    }
