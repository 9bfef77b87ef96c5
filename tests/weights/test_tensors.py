"""Safetensors files: what is damaged is told, what is whole is read to the bit."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from bertsmith.core import kernels
from bertsmith.core.errors import DiskError, ModelFolderError
from bertsmith.weights.tensors import TensorFile, all_finite, write_tensors

F32 = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write_raw(path: Path, header: object, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_what_is_written_is_read_by_us_and_by_the_library(tmp_path: Path) -> None:
    tensors = {"b": torch.randn(7, 3), "a": torch.randn(13)[::2], "c": torch.randn(2, 5).T}
    write_tensors(tmp_path / "x", tensors)
    ours, theirs = TensorFile(tmp_path / "x"), load_file(tmp_path / "x")
    for name, tensor in tensors.items():
        assert torch.equal(ours.read(name), tensor)
        assert torch.equal(theirs[name], tensor)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_float32(tmp_path: Path, kind: torch.dtype) -> None:
    tensor = torch.randn(7, 13).to(kind)
    save_file({"a": tensor, "odd": torch.zeros(3, dtype=torch.uint8)}, tmp_path / "x")
    read = TensorFile(tmp_path / "x").read("a")
    assert read.dtype == torch.float32
    assert torch.equal(read, tensor.float())


@pytest.mark.parametrize(
    ("header", "data", "told"),
    [
        (b"{ ", b"", "not JSON"),
        (b"[]", b"", "incomplete"),
        (b'{"a": 1, "a": 2}', b"", "not JSON"),
        (b"[" * 200_000, b"", "not JSON"),
        ({"a": 5}, b"", "'a' cannot be understood"),
        ({"a": F32 | {"dtype": "F31"}}, bytes(24), "cannot be understood"),
        ({"a": F32 | {"dtype": ["F32"]}}, bytes(24), "cannot be understood"),
        ({"a": F32 | {"shape": [2, -3]}}, bytes(24), "cannot be understood"),
        ({"a": F32 | {"shape": [2, True]}}, bytes(24), "cannot be understood"),
        ({"a": F32 | {"shape": [2**60, 2**60]}}, bytes(24), "cannot be understood"),
        ({"a": F32 | {"shape": [1] * 9}}, bytes(24), "cannot be understood"),
        ({"a": F32 | {"shape": [2, 4]}}, bytes(24), "not have the size"),
        ({"a": F32 | {"data_offsets": [24, 0]}}, bytes(24), "not have the size"),
        ({"a": F32 | {"data_offsets": [4, 28]}}, bytes(28), "hole"),
        ({"a": F32, "b": F32}, bytes(24), "overlaps"),
        ({"a": F32}, bytes(23), "23 bytes of data where its header states 24"),
        ({"a": F32}, bytes(25), "25 bytes"),
    ],
)
def test_a_damaged_file_is_told(tmp_path: Path, header: object, data: bytes, told: str) -> None:
    path = write_raw(tmp_path / "x.safetensors", header, data)
    with pytest.raises(ModelFolderError, match=told) as caught:
        TensorFile(path)
    assert caught.value.where == path
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"1234567", bytes(8), b"\xff" * 80, b"\x40" + bytes(7)])
def test_what_is_no_safetensors_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"not a safetensors file|damaged"):
        TensorFile(tmp_path / "x")


def test_a_pointer_of_git_lfs_is_told(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    with pytest.raises(ModelFolderError, match="git lfs pull"):
        TensorFile(tmp_path / "x")


def test_types_and_values_that_are_no_weights_are_told(tmp_path: Path) -> None:
    save_file({"i": torch.arange(5), "n": torch.tensor([1.0, float("nan")])}, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    with pytest.raises(ModelFolderError, match="type I64"):
        file.read("i")
    with pytest.raises(ModelFolderError, match="not finite"):
        file.read("n")


def test_all_tensors_are_read_whatever_lies_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.int64)
    tensors = {f"{n:04}": torch.arange(n % 7 + n % 3).to(kinds[n % 5]) for n in range(1300)}
    save_file(tensors | {"bool": torch.ones(3, dtype=torch.bool)}, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    wanted = [name for name, tensor in tensors.items() if tensor.dtype != torch.int64]
    for _ in range(2):
        found = dict(file.read_many(wanted))
        assert list(found) == sorted(found, key=lambda name: file.entries[name].begin)
        assert sorted(found) == wanted
        assert all(torch.equal(result, tensors[name].float()) for name, result in found.items())
        # as where the system has no such call
        monkeypatch.delattr(os, "preadv", raising=False)


def test_many_bytes_are_read_in_two_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {f"{n}": torch.randn(2**20 + 31 * n) for n in range(5)}
    save_file(tensors, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    offsets = []
    whole = os.preadv

    def noted(handle: int, buffers: list[memoryview], begin: int) -> int:
        offsets.append(begin)
        return whole(handle, buffers, begin)

    monkeypatch.setattr(os, "preadv", noted)
    assert all(torch.equal(found, tensors[name]) for name, found in file.read_many(tensors))
    later = max(offsets)
    assert later > 2 * 2**20
    monkeypatch.setattr(os, "preadv", lambda *call: 0 if call[2] == later else whole(*call))
    with pytest.raises(ModelFolderError, match="became shorter"):
        dict(file.read_many(tensors))


def test_a_read_that_stops_early_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {"a": torch.randn(7, 3), "b": torch.randn(0), "c": torch.randn(13)}
    save_file(tensors, tmp_path / "x")
    whole = os.preadv

    def some(handle: int, buffers: list[memoryview], begin: int) -> int:
        return whole(handle, [buffers[0][:10]], begin)

    monkeypatch.setattr(os, "preadv", some)
    found = dict(TensorFile(tmp_path / "x").read_many(tensors))
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_file_that_becomes_shorter_as_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"a": torch.randn(7), "b": torch.randn(13)}, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    whole = os.preadv

    def shortened(handle: int, buffers: list[memoryview], begin: int) -> int:
        os.truncate(tmp_path / "x", (tmp_path / "x").stat().st_size - 4)
        return whole(handle, buffers, begin)

    monkeypatch.setattr(os, "preadv", shortened)
    with pytest.raises(ModelFolderError, match="became shorter"):
        dict(file.read_many(["a", "b"]))


def test_a_file_that_is_written_or_replaced_before_it_is_read_is_refused(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(7), "b": torch.randn(13)}
    save_file(tensors, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    assert torch.equal(file.read("a"), tensors["a"])
    save_file(tensors, tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "x")
    with pytest.raises(ModelFolderError, match="was changed while it was read"):
        file.read("a")
    file = TensorFile(tmp_path / "x")
    with (tmp_path / "x").open("r+b") as written:
        written.truncate(written.seek(0, 2) - 4)
    with pytest.raises(ModelFolderError, match="was changed while it was read"):
        dict(file.read_many(["a", "b"]))


@pytest.mark.parametrize("instead", ["nothing", "a folder", "a disk that fails"])
def test_a_file_that_cannot_be_read_any_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    save_file({"a": torch.randn(7)}, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    if instead == "a disk that fails":
        monkeypatch.setattr(os, "preadv", fail)
    else:
        (tmp_path / "x").unlink()
    if instead == "a folder":
        (tmp_path / "x").mkdir()
    with pytest.raises(ModelFolderError, match="x: cannot be read: "):
        file.read("a")


def test_the_tensor_that_is_not_finite_is_named_and_the_largest_numbers_are_read(
    tmp_path: Path,
) -> None:
    largest = torch.full((3,), torch.finfo(torch.float32).max)
    wrong = torch.tensor([1.0, -torch.inf])
    save_file({"a": largest, "b": largest.clone(), "c": wrong}, tmp_path / "x")
    file = TensorFile(tmp_path / "x")
    assert all(torch.equal(item, largest) for _, item in file.read_many(["a", "b"]))
    with pytest.raises(ModelFolderError, match="tensor c contains values that are not finite"):
        dict(file.read_many("abc"))


def test_what_the_disk_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="cannot be written"):
        write_tensors(tmp_path / "file" / "x", {"a": torch.zeros(3)})


@given(at=st.integers(0, 200), value=st.integers(0, 255))
def test_no_changed_byte_does_worse_than_a_told_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    save_file({"a": torch.ones(2, 3), "b": torch.ones(7)}, path)
    content = bytearray(path.read_bytes())
    content[at % len(content)] = value
    path.write_bytes(content)
    try:
        file = TensorFile(path)
        for name in file.entries:
            file.read(name)
    except ModelFolderError:
        pass


@pytest.mark.parametrize("native", [True, False])
def test_one_value_that_is_not_finite_is_seen_wherever_it_is(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "library", lambda: None)
    for size in (0, 1, 15, 4095, 4096, 4097, 20_001):
        values = torch.full((size,), torch.finfo(torch.float32).max)
        assert all_finite(values)
        for place in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
            for wrong in (math.nan, math.inf, -math.inf):
                spoiled = values.clone()
                spoiled[place] = wrong
                assert not all_finite(spoiled)
    whole = torch.ones(8, 8)
    whole[5, 5] = math.inf
    assert all_finite(whole[:5]), "numbers behind a view are not looked at"
    assert all_finite(whole.T[:, :5])
    assert not all_finite(whole.T[:, 5:])
