"""What is written is whole or not there, and what is read is bounded."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from bertsmith.core.errors import ConfigError, DiskError
from bertsmith.core.files import (
    MAX_DEPTH,
    HashedFile,
    Record,
    check_outputs,
    commit,
    committed,
    created_folder,
    file_hash,
    name_is_taken,
    open_regular,
    other_version,
    parse_json,
    read_json,
    replaced_file,
    write_json,
    write_parts,
    writing,
)
from bertsmith.core.ownership import new_file, new_folder
from flushing import disk_events
from interrupting import Interrupted, interrupt_soon, interruptions

Writer = Callable[[Path], AbstractContextManager[Path]]


def refuse(folder: Path) -> None:
    raise ConfigError("must stay", where=folder)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("writer", [replaced_file, new_file])
def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, writer: Callable[..., Path]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with writer(path) as part:
            part.write_text("half")
            assert path.read_text() == "old"
            raise OSError(28, "No space left on device")

    with pytest.raises(DiskError, match=r"file: cannot be written: No space left.*; make room"):
        fail()
    assert path.read_text() == "old"
    with writer(path) as part:
        part.write_text("new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("ENOSPC", "make room, or write elsewhere with --out"),
        ("EACCES", "get permission, or write elsewhere with --out"),
        ("EROFS", "make the file system writable, or write elsewhere with --out"),
        ("EIO", "check the disk, or write elsewhere with --out"),
        # another place would not help
        ("EMFILE", "allow more open files (ulimit -n)"),
        ("EISDIR", "this is a folder: name a file in it"),
        ("ENOTDIR", "a part of the path is a file: name a folder in its place"),
        ("ENAMETOOLONG", "choose a shorter name"),
        ("EEXIST", "choose another name, or remove the file or folder of that name"),
    ],
)
def test_each_refusal_to_write_has_its_own_remedy(tmp_path: Path, code: str, remedy: str) -> None:
    with pytest.raises(DiskError) as refused, writing(tmp_path / "file"):
        raise OSError(getattr(errno, code), "no")
    assert str(refused.value) == f"{tmp_path / 'file'}: cannot be written: no; {remedy}"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("EACCES", "get permission to read it"),
        ("EMFILE", "allow more open files (ulimit -n)"),
        ("EISDIR", "this is a folder, not a file: check the path"),
        ("ENOTDIR", "a part of the path is a file, not a folder: check the path"),
        ("EIO", "check the disk, or read another copy"),
        ("ENOENT", "usual"),
    ],
)
def test_each_refusal_to_read_has_its_own_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, remedy: str
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(getattr(errno, code), "no", str(path))

    monkeypatch.setattr("bertsmith.core.files.open_regular", refuse)
    with pytest.raises(ConfigError) as refused:
        read_json(tmp_path / "file", ConfigError, largest=9, remedy="usual")
    assert str(refused.value) == f"{tmp_path / 'file'}: cannot be read: no; {remedy}"


def test_files_take_their_names_together_the_first_of_them_last(tmp_path: Path) -> None:
    index, data = tmp_path / "index", tmp_path / "data"
    (tmp_path / "new-data").write_text("data")
    (tmp_path / "new-index").mkdir()
    (tmp_path / "new-index" / "inside").touch()
    index.write_text("in the way of a folder")
    with pytest.raises(OSError, match="directory"):
        commit({tmp_path / "new-index": index, tmp_path / "new-data": data})
    assert data.read_text() == "data"
    assert index.is_file()
    index.unlink()
    commit({tmp_path / "new-index": index})
    assert names(tmp_path) == ["data", "index", "index/inside"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_cannot_wait_for_folders_takes_files_all_the_same(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def without_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr("os.fsync", without_folders)

    def refused() -> AbstractContextManager[object]:
        return nullcontext() if number == errno.EINVAL else pytest.raises(DiskError, match="disk")

    with refused():
        write_json(tmp_path / "a.json", {"one": 1})
    with refused(), new_folder(tmp_path / "folder") as fresh:
        (fresh / "b").write_text("two")
    assert number == errno.EIO or (tmp_path / "folder" / "b").read_text() == "two"


def test_a_folder_that_may_be_written_but_not_listed_takes_files_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were there, whole, and the command said that they could not be written."""
    opened = os.open

    def without_listing(path: Path, flags: int, *others: int) -> int:
        if path in (tmp_path, tmp_path / "a.json.partial"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, flags, *others)

    monkeypatch.setattr("os.open", without_listing)
    write_json(tmp_path / "b.json", {"one": 1})
    with new_folder(tmp_path / "folder") as fresh:
        (fresh / "b").write_text("two")
    assert names(tmp_path) == ["b.json", "folder", "folder/b"]
    with pytest.raises(DiskError, match="get permission"):
        write_json(tmp_path / "a.json", {"one": 1})


def test_names_are_given_to_what_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure they would be those of empty files."""
    events, folder = disk_events(monkeypatch), tmp_path / "new" / "folder"
    with new_folder(folder) as fresh:
        # where the folder above it was made
        assert ("flushed", tmp_path) in events
        (fresh / "in").mkdir()
        (fresh / "in" / "file").write_text("content")
    place = events.index(("named", folder))
    inside = {fresh, fresh / "in", fresh / "in" / "file"}
    assert inside <= {path for _, path in events[:place]}
    assert events[place + 1] == ("flushed", folder.parent)
    write_json(tmp_path / "a.json", {"one": 1})
    assert events[-3:] == [
        ("flushed", tmp_path / "a.json.partial"), ("named", tmp_path / "a.json"),
        ("flushed", tmp_path),
    ]  # fmt: skip
    write_parts(tmp_path / "parts", [b"a"])
    assert events[-1] == ("flushed", tmp_path / "parts")


def test_a_folder_whose_successor_cannot_move_in_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rename = tmp_path / "folder", os.rename
    folder.mkdir()
    (folder / "old").touch()

    def refuse_new(old: Path, new: Path) -> None:
        if ".partial-" in Path(old).name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse_new)
    with (
        pytest.raises(DiskError, match="check the disk"),
        new_folder(folder, replaces=lambda _: None) as fresh,
    ):
        (fresh / "new").touch()
    assert names(tmp_path) == ["folder", "folder/old"]


def test_files_named_while_they_are_written_are_committed_or_removed(tmp_path: Path) -> None:
    found: dict[Path, Path] = {}
    with committed(found):
        for name in "ab":
            found[tmp_path / f"{name}.part"] = tmp_path / name
            (tmp_path / f"{name}.part").touch()
    assert names(tmp_path) == ["a", "b"]
    (tmp_path / "c.part").touch()
    with pytest.raises(KeyboardInterrupt), committed({tmp_path / "c.part": tmp_path / "c"}):
        raise KeyboardInterrupt
    assert names(tmp_path) == ["a", "b"]


def test_a_folder_replaces_another_only_where_nothing_speaks_against_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").touch()
    with pytest.raises(ConfigError, match="must stay"), new_folder(folder, replaces=refuse):
        pass
    assert names(tmp_path) == ["folder", "folder/old"]
    with new_folder(folder, replaces=lambda _: None) as fresh:
        (fresh / "new").touch()
        assert (folder / "old").exists()
    assert names(tmp_path) == ["folder", "folder/new"]


def test_what_is_written_is_hashed(tmp_path: Path) -> None:
    path, parts = tmp_path / "file", [b"abc", b"", bytes(5_000_000), b"d"]
    data = b"".join(parts)
    digest = hashlib.sha256(data).hexdigest()
    assert write_parts(path, parts) == Record(len(data), digest)
    assert path.read_bytes() == data
    seen: list[int] = []
    assert file_hash(path, seen.append) == digest
    assert sum(seen) == len(data)
    # what lies behind the place from which it is gone on with does not count
    again = HashedFile(path, 3)
    again.write(b"xyz")
    assert again.close() == Record(6, hashlib.sha256(b"abcxyz").hexdigest())
    assert path.read_bytes() == b"abcxyz"


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


def test_json_is_bounded() -> None:
    assert parse_json(nested(MAX_DEPTH)) == json.loads(nested(MAX_DEPTH))
    assert parse_json("[" + ",".join(["{}"] * 200) + "]") == [{}] * 200
    for text in (nested(MAX_DEPTH + 1), nested(100_000), '{"a": ' * 100 + "1" + "}" * 100):
        with pytest.raises(ValueError, match="nested deeper than 64 levels"):
            parse_json(text)
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(ValueError, match="the name 'a' occurs twice"):
        parse_json('{"b": {"a": 1, "a": 2}}', unique=True)
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(b'"\xff"')


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    path, content = tmp_path / "x.json", {"é": [1, None, {"b": 0.5}]}
    write_json(path, content)
    assert path.read_bytes().isascii()
    assert read_json(path, ConfigError, largest=1000) == content
    write_json(path, content, in_ascii=False)
    assert "é" in path.read_text(encoding="utf-8")
    assert read_json(path, ConfigError, largest=1000) == content
    assert names(tmp_path) == ["x.json"]
    with pytest.raises(ConfigError, match="at most 10 bytes are read"):
        read_json(path, ConfigError, largest=10)
    with pytest.raises(ConfigError, match="holds no JSON list"):
        read_json(path, ConfigError, largest=1000, kind=list)


def test_which_version_wrote_a_format() -> None:
    assert other_version(2, 2) == ""
    for found in (1, None, "2", True, 2.0):
        assert other_version(found, 2) == "an earlier version of bertsmith"
    assert other_version(3, 2) == "a later version of bertsmith"


def test_the_working_folder_makes_way_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert name_is_taken(Path())
    assert name_is_taken(tmp_path)
    assert not name_is_taken(Path("empty"))
    assert not name_is_taken(Path("new"))


def test_a_folder_is_made_where_a_link_leads(tmp_path: Path) -> None:
    for name in ("kept", "empty"):
        (tmp_path / name).symlink_to(Path("disk") / name)
    with created_folder(tmp_path / "kept"):
        (tmp_path / "kept" / "file").touch()
    with created_folder(tmp_path / "empty"):
        pass
    assert os.listdir(tmp_path / "disk") == ["kept"]
    assert os.listdir(tmp_path / "disk" / "kept") == ["file"]
    assert (tmp_path / "empty").is_symlink()


def test_links_that_form_a_loop_are_no_bug(tmp_path: Path) -> None:
    """Python has an error of its own for them, which was a traceback."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert name_is_taken(loop)
    assert not name_is_taken(tmp_path / "new")
    check_outputs(tmp_path / "new", [tmp_path / "new", loop / "below"], loop)
    for out in (loop, loop / "below"):
        with pytest.raises(DiskError), new_folder(out):
            pass
    with pytest.raises(DiskError, match="the links in the path form a loop"), new_file(loop / "f"):
        pass
    assert names(tmp_path) == ["loop"]


# an interruption leaves what it meets to the collector
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_interruption_while_a_file_is_opened_is_raised(tmp_path: Path) -> None:
    def open_for_long() -> None:
        interrupt_soon()
        while True:
            open_regular(tmp_path / "x").close()

    (tmp_path / "x").write_bytes(b"content")
    # it comes somewhere in there, each time somewhere else
    with interruptions():
        for _ in range(20):
            with pytest.raises(Interrupted):
                open_for_long()
