from __future__ import annotations

import os
from pathlib import Path

import pytest

from bertsmith.core.errors import StoreError
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore, verify_store
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer


def test_what_there_is_no_time_for_is_said_and_checked_later(
    some_documents: list[Document],
    tokenizer: Tokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare_store(some_documents, tokenizer, tmp_path / "store", held_out=0.1)
    store = TokenStore(tmp_path / "store")
    everything = verify_store(store, {})
    assert capsys.readouterr().err == ""
    file = tmp_path / "store" / store.index.files[0].name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    seen = verify_store(store, {}, seconds=-1.0)
    assert seen == {}
    count = len(everything)
    told = " ".join(capsys.readouterr().err.split())
    assert f"{count} of {count} files of the store were not checked byte by byte" in told
    with pytest.raises(StoreError, match="is damaged"):
        verify_store(store, seen, seconds=60.0)


def test_every_file_is_hashed_unless_it_is_as_it_was_found_before(
    some_documents: list[Document], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    prepare_store(some_documents[:12], tokenizer, folder, held_out=0.5)
    files = {path for path in folder.rglob("*") if path.is_file()} - {folder / "store.json"}
    store = TokenStore(folder)
    known = verify_store(store, {})
    assert {Path(path) for path in known} == files
    assert verify_store(store, known) == known
    for path in sorted(files):
        content, state = path.read_bytes(), path.stat()
        inside = len(content) // 2
        path.write_bytes(content[:inside] + bytes([content[inside] ^ 1]) + content[inside + 1 :])
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
        with pytest.raises(StoreError, match=r": ") as caught:
            verify_store(store, known)
        assert caught.value.where == path
        path.write_bytes(content)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    (folder / "documents.bin").write_bytes(b"")
    with pytest.raises(StoreError, match="another size"):
        verify_store(store, {}, seconds=-1.0)
