"""Files of vocabularies that grow when they are read, or keep whoever reads them busy."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.tokens.folder.files import MAX_FILE_BYTES, MAX_VALUES, read_json, read_lined_text
from bertsmith.tokens.normalisation import CharsMap
from hostile.worker import peak

MAX_MEMORY = 2**30


def circle(units: int) -> bytes:
    """Rules of normalisation whose trie leads on and on, and never ends."""
    trie = [0] * units
    trie[0] = 0x80 << 10
    for unit in range(0x80, units):
        after = unit + 1 if unit + 1 < units else 0x80
        offset = unit ^ ord("A") ^ after
        trie[unit] = ord("A") | (offset << 10 if offset < 1 << 21 else 0)
    return struct.pack(f"<I{units}I", 4 * units, *trie) + b"x\0"


def test_rules_that_lead_in_a_circle_end() -> None:
    began = time.process_time()
    assert CharsMap(circle(200_000)).crosses_blanks
    assert time.process_time() - began < 2.0
    with pytest.raises(ValueError, match="longer than 1 MiB"):
        CharsMap(circle(300_000))


@pytest.mark.parametrize("line", [b"\n", b"a\n", b"a b\r\n"])
def test_more_lines_than_pieces_can_be_are_not_parted(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(line * (MAX_FILE_BYTES // len(line)))
    before = peak()
    with pytest.raises(VocabularyError, match="more than 1,000,000 pieces"):
        read_lined_text(path, VocabularyError)
    assert peak() - before < MAX_MEMORY / 4
    path.write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    with pytest.raises(VocabularyError, match="64 MiB"):
        read_lined_text(path, VocabularyError)


def test_json_of_many_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    # as large as those of vocabularies for a hundred languages
    path.write_text('{"a": "' + "x" * (25 * 2**20) + '"}')
    assert len(read_json(path)["a"]) == 25 * 2**20
    path.write_text('{"a":[' + "[]," * (MAX_VALUES // 2) + "0]}")
    with pytest.raises(ModelFolderError, match="more than 3,100,000 values"):
        read_json(path)


@pytest.mark.faults
def test_the_worst_json_of_the_largest_size_keeps_below_a_gigabyte(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    # letters of four bytes each, if one of them needs as many
    filling = "\U0001f3a9" + "x" * (MAX_FILE_BYTES // MAX_VALUES - 15)
    with path.open("w", encoding="utf-8") as file:
        file.write('{"":0')
        file.writelines(f',"{number:06x}{filling}":0' for number in range(MAX_VALUES - 1))
        file.write("}")
    assert MAX_FILE_BYTES * 0.9 < path.stat().st_size <= MAX_FILE_BYTES
    before = peak()
    assert len(read_json(path)) == MAX_VALUES
    assert peak() - before < MAX_MEMORY
    path.write_text('{"a":[' + "[]," * (MAX_VALUES // 2 - 2) + "[]]}")
    assert len(read_json(path)["a"]) > 10**6
    assert peak() - before < MAX_MEMORY
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(ModelFolderError):
        read_json(path)
