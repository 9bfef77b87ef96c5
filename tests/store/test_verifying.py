from __future__ import annotations

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
