"""TensorFlow's checkpoints: TensorFlow's own bytes, those of another writer, and hostile ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertsmith.core.errors import ModelFolderError
from bertsmith.weights.conversion import tensor_bundle
from bertsmith.weights.conversion.tensor_bundle import (
    TensorBundle,
    crc32c,
    is_checkpoint,
    masked,
    read_table,
    write_bundle,
    written_table,
)
from weights.conversion import bundles

# written by the Saver of TensorFlow 2.21 from the values below
INDEX = bytes.fromhex(
    "00000608011a020801002b13626572742f656e636f6465722f6c617965725f302f6f75747075742f4c617965724e6f72"
    "6d2f67616d6d61081312081202080112020801280235cdc60ba51c0a1164656e73652f62696173080112041202080320"
    "02280c35bff767dc2206156b65726e656c080112081202080212020803200e2818350aeecd83000b0d676c6f62616c5f"
    "7374657008091200202628083537f97139000b0d6f75747075745f6269617308011200202e28043543cc7c0800000000"
    "0100000000403fdffa000000000100000000c0f2a1b00001037000c4010000000001000000004aad7476c90108d6010f"
    "0000000000000000000000000000000000000000000000000000000000000000000057fb808b247547db"
)
DATA = bytes.fromhex(
    "003e0000803f000000c00000003f000000000000003e0000803e0000c03e0000003f0000203f09000000000000000000"
    "e0c0"
)
SCOPE = "bert/encoder/layer_0/output/"
VALUES = {
    f"{SCOPE}LayerNorm/gamma": torch.tensor([[1.5]], dtype=torch.float16),
    f"{SCOPE}dense/bias": torch.tensor([1, -2, 0.5]),
    f"{SCOPE}dense/kernel": torch.arange(6.0).reshape(2, 3) / 8,
    "output_bias": torch.tensor(-7.0),
}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A checkpoint that TensorFlow wrote."""
    (tmp_path / "a.ckpt.index").write_bytes(INDEX)
    (tmp_path / "a.ckpt.data-00000-of-00001").write_bytes(DATA)
    return tmp_path / "a.ckpt"


def rewrite(prefix: Path, *entries: tuple[str, bytes], header: bytes | None = None) -> None:
    rows = [(b"", bundles.header() if header is None else header)]
    rows += [(name.encode(), value) for name, value in entries]
    prefix.with_name(prefix.name + ".index").write_bytes(bundles.table(rows))


@pytest.mark.parametrize(
    ("text", "expected"),
    # RFC 3720, appendix B.4, and the usual check
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_checksums_that_are_published(text: bytes, expected: int) -> None:
    assert crc32c(text) == expected == bundles.bitwise_crc32c(text)


@given(st.integers(0, 3), st.integers(-2, 2), st.integers(0, 2**32), st.sampled_from([1, 32]))
@example(33, 1, 0, 32)
@settings(max_examples=20)
def test_checksums_of_long_texts(lanes: int, more: int, seed: int, least: int) -> None:
    text = np.random.default_rng(seed).bytes(max(lanes * 2048 + more, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_bundle, "_MIN_LANES", least)
        assert crc32c(memoryview(text)) == bundles.bitwise_crc32c(text)
    assert masked(crc32c(text)) == bundles.mask(bundles.bitwise_crc32c(text))


def test_a_checkpoint_of_tensorflow_is_read(prefix: Path) -> None:
    bundle = TensorBundle(prefix)
    assert is_checkpoint(bundle.index)
    assert bundle.entries.keys() == {*VALUES, "global_step"}
    for name, value in VALUES.items():
        assert torch.equal(bundle.read(name), value)
        assert bundle.read(name).dtype == value.dtype
    with pytest.raises(ModelFolderError, match="global_step is of TensorFlow's type 9"):
        bundle.read("global_step")


@pytest.mark.parametrize("shards", [1, 3])
def test_a_checkpoint_of_another_writer_is_read(tmp_path: Path, shards: int) -> None:
    random = np.random.default_rng(0)
    values = {f"v{n}": random.standard_normal((n, 5 + n), np.float32) for n in range(40)}
    bundles.write(tmp_path / "b.ckpt", values, shards)
    bundle = TensorBundle(tmp_path / "b.ckpt")
    assert bundle.entries.keys() == values.keys()
    assert all(torch.equal(bundle.read(n), torch.from_numpy(v)) for n, v in values.items())


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    tensors = {f"scope_{n % 7}/variable_{n}": torch.randn(n % 5, 3) for n in range(500)}
    tensors["turned"] = torch.randn(4, 6).t()
    write_bundle(tmp_path / "c.ckpt", tensors)
    bundle = TensorBundle(tmp_path / "c.ckpt")
    assert list(bundle.entries) == sorted(tensors)
    assert all(torch.equal(bundle.read(name), tensor) for name, tensor in tensors.items())


@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=60), max_size=80))
@example({})
def test_tables_are_read_as_they_were_written(entries: dict[bytes, bytes]) -> None:
    assert read_table(written_table(entries)) == entries


def test_large_tables_have_several_blocks() -> None:
    entries = {b"%07d" % n: b"x" * 100 for n in range(1000)}
    assert list(read_table(written_table(entries)).items()) == list(entries.items())


def test_a_flipped_bit_is_found(prefix: Path) -> None:
    data = prefix.with_name("a.ckpt.data-00000-of-00001")
    data.write_bytes(DATA[:3] + bytes([DATA[3] ^ 1]) + DATA[4:])
    with pytest.raises(ModelFolderError, match="checksum"):
        TensorBundle(prefix).read(f"{SCOPE}dense/bias")
    index = prefix.with_name("a.ckpt.index")
    whole = index.read_bytes()
    # a variable of another name would be left out
    index.write_bytes(whole.replace(b"bias", b"cias", 1))
    with pytest.raises(ModelFolderError, match="a block does not have the checksum"):
        TensorBundle(prefix)
    index.write_bytes(whole)
    data.write_bytes(DATA[:-1])
    with pytest.raises(ModelFolderError, match="output_bias is outside"):
        TensorBundle(prefix)
    data.unlink()
    with pytest.raises(ModelFolderError, match="fetch all files"):
        TensorBundle(prefix)


FOUR = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": 2**62}, "is outside"),
        ({"size": 2**63}, "is outside"),
        ({"shard": 7}, "is outside"),
        ({"size": 12}, "size of its shape"),
        ({"checksum": 5}, "checksum"),
        ({"kind": 7}, "type 7"),
    ],
)
def test_entries_that_lie_are_told(prefix: Path, changes: dict[str, int], message: str) -> None:
    prefix.with_name("a.ckpt.data-00000-of-00001").write_bytes(bytes(16))
    rewrite(prefix, ("v", bundles.entry(FOUR, **changes)))
    with pytest.raises(ModelFolderError, match=message):
        TensorBundle(prefix).read("v")


def test_a_shape_that_is_enormous_allocates_nothing(prefix: Path) -> None:
    axis = bundles.field(2, bundles.field(1, 2**40))
    huge = bundles.field(1, 1) + bundles.field(2, axis * 3) + bundles.field(5, 16)
    rewrite(prefix, ("v", huge))
    with pytest.raises(ModelFolderError, match="size of its shape"):
        TensorBundle(prefix).read("v")
    rewrite(prefix, ("v", bundles.field(2, axis * 99)))
    with pytest.raises(ModelFolderError, match="impossible shape"):
        TensorBundle(prefix)


def test_tensors_may_not_overlap(prefix: Path) -> None:
    prefix.with_name("a.ckpt.data-00000-of-00001").write_bytes(bytes(16))
    rewrite(prefix, ("v", bundles.entry(FOUR)), ("w", bundles.entry(FOUR)))
    with pytest.raises(ModelFolderError, match="overlap"):
        TensorBundle(prefix)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (bundles.header(order=1), "big-endian"),
        (bundles.header(shards=10**9), "impossible number of files"),
        (bundles.field(1, 0), "impossible number of files"),
        (b"\x0b", "unknown kind 3"),
        (b"\xff" * 11, "without an end"),
        (b"\x0a\x7f", "longer than its message"),
    ],
)
def test_headers_that_lie_are_told(prefix: Path, header: bytes, message: str) -> None:
    rewrite(prefix, header=header)
    with pytest.raises(ModelFolderError, match=message):
        TensorBundle(prefix)


def test_slices_are_refused_by_name(prefix: Path) -> None:
    sliced = bundles.entry(np.zeros(0, np.float32)) + bundles.field(7, b"")
    rewrite(prefix, ("\0part", b""), ("part", sliced))
    bundle = TensorBundle(prefix)
    assert list(bundle.entries) == ["part"]
    with pytest.raises(ModelFolderError, match="part was saved in slices"):
        bundle.read("part")


def with_checksum(body: bytes) -> bytes:
    return body + struct.pack("<I", bundles.mask(bundles.bitwise_crc32c(body)))


def one_block(body: bytes) -> bytes:
    """A table whose only block is what is given."""
    data = with_checksum(body)
    bounds = bundles.block([(b"\xff", bundles.number(0) + bundles.number(len(body) - 1))])
    nothing = bundles.block([])
    places = (len(data), len(nothing) - 5, len(data) + len(nothing), len(bounds) - 5)
    footer = b"".join(map(bundles.number, places)).ljust(40, b"\0")
    return data + nothing + bounds + footer + struct.pack("<Q", 0xDB4775248B80FB57)


PLACES = struct.pack("<II", 0, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (PLACES + b"\1", "compressed"),
        (struct.pack("<I", 2**31) + b"\0", "list of places"),
        # an index of megabytes could lead to it again and again
        (PLACES + b"\0", "holds nothing"),
        (b"\0\1\5ab" + PLACES + b"\0", "does not fit"),
        (b"\1\1\0a" + PLACES + b"\0", "does not fit"),
        (b"\0\1\0b\0\1\0a" + PLACES + b"\0", "out of order"),
        (b"\0\x81\x10\0" + b"k" * 2049 + PLACES + b"\0", "does not fit"),
    ],
)
def test_blocks_that_lie_are_told(prefix: Path, body: bytes, message: str) -> None:
    prefix.with_name("a.ckpt.index").write_bytes(one_block(body))
    with pytest.raises(ModelFolderError, match=message):
        TensorBundle(prefix)


def test_keys_that_grow_stay_within_bounds(prefix: Path) -> None:
    """Each entry takes five bytes of the file, and a key of five hundred in memory."""
    body = b"\0\xf4\x03\0" + b"a" * 500
    body += b"".join(b"\xf4\x03\2\0%c%c" % (n >> 8, n & 255) for n in range(2**15))
    prefix.with_name("a.ckpt.index").write_bytes(one_block(body + PLACES + b"\0"))
    with pytest.raises(ModelFolderError, match="more than 16384 entries"):
        TensorBundle(prefix)


@given(st.integers(0, len(INDEX) - 1), st.integers(0, 255), st.integers(0, len(INDEX)))
@settings(max_examples=200)
def test_damaged_indices_never_do_more_than_be_refused(place: int, byte: int, end: int) -> None:
    damaged = (INDEX[:place] + bytes([byte]) + INDEX[place + 1 :])[:end]
    try:
        read = read_table(damaged)
    except ValueError:
        return
    assert read == read_table(INDEX)


def test_a_folder_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "d.ckpt.index").mkdir()
    assert not is_checkpoint(tmp_path / "d.ckpt.index")
    with pytest.raises(ModelFolderError, match="Is a directory"):
        TensorBundle(tmp_path / "d.ckpt")
    with (tmp_path / "e.ckpt.index").open("wb") as file:
        file.truncate(2**25)
    with pytest.raises(ModelFolderError, match="is 32 MiB long; at most 16 MiB"):
        TensorBundle(tmp_path / "e.ckpt")
