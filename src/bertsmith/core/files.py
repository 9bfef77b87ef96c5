"""Files: reading those of strangers, writing so that nothing half-written stays, SHA-256, JSON.

The commit protocol: what is written lies under a temporary name until all of it is on the disk;
then it takes its own name, and that is flushed too (`commit`). What the disk refuses is told in one
line (`writing`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, FileIO
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from bertsmith.core.errors import ConfigError, DiskError, UserError

_BACKSLASH = "\\"
# a pipe that takes the file's place after it was looked at must not be waited for
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; `OSError` for a device, pipe, socket or folder.

    None of these is opened: reading a device may never end, and opening a pipe may never begin.
    """
    _check_regular(path, os.stat(path).st_mode)
    # closed by the file alone: an interruption may come when there is one already
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAITING))  # noqa: SIM115
    try:
        _check_regular(path, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read_bytes(path: Path, error: type[UserError], *, largest: int, remedy: str = "") -> bytes:
    """Return the content of a regular file of at most `largest` bytes; raises `error`."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            # also a file that grows meanwhile
            raw = b"" if size > largest else file.read(largest + 1)
    except OSError as refusal:
        raise unreadable(error, refusal, path, remedy) from refusal
    if max(size, len(raw)) > largest:
        result = max(size, len(raw))
        raise error(f"is {_size(result)} long; at most {_size(largest)} are read", where=path)
    return raw


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 2**20 else f"{count / 2**20:,.0f} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """The size and modification time of a file, which reveal that it was written to.

    Not its inode, which some file systems of networks number anew.
    """

    size: int
    changed: int
    """Time of the last change, in nanoseconds."""
    regular: bool
    """True for a file, False for, say, a pipe."""

    @classmethod
    def of(cls, file: Path | int) -> FileState:
        """Return the current state of a file, or of an open one. Raises `OSError`."""
        status = os.stat(file)
        regular = stat.S_ISREG(status.st_mode)
        return cls(size=status.st_size, changed=status.st_mtime_ns, regular=regular)


def names_a_file_inside(name: str) -> bool:
    """Return whether a name in a folder's record can only be that of a file in that folder."""
    parts = PurePosixPath(name).parts
    plain = name.isprintable() and _BACKSLASH not in name and ":" not in name
    return plain and bool(parts) and not name.startswith("/") and ".." not in parts


_ELSEWHERE = "write elsewhere with --out"
_PERMISSION = "get permission"
# refusals of a place: another one helps too
_CURES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EROFS: "make the file system writable",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.ESTALE: "mount the file system again",
    errno.EIO: "check the disk",
}
_OPEN_FILES = {
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "close other programs: the machine has too many open files",
}
_ANOTHER_NAME = "choose another name, or remove the file or folder of that name"
# refusals of a name, or of every place
_ONLY_CURES = _OPEN_FILES | {
    errno.EISDIR: "this is a folder: name a file in it",
    errno.ENOTDIR: "a part of the path is a file: name a folder in its place",
    errno.EEXIST: _ANOTHER_NAME,
    errno.ENOTEMPTY: _ANOTHER_NAME,
    errno.ELOOP: "the links in the path form a loop: name another path",
    errno.ENAMETOOLONG: "choose a shorter name",
}
_READING = _OPEN_FILES | {
    errno.EACCES: "get permission to read it",
    errno.EPERM: "get permission to read it",
    errno.EISDIR: "this is a folder, not a file: check the path",
    errno.ENOTDIR: "a part of the path is a file, not a folder: check the path",
    errno.ELOOP: "the links in the path form a loop: check the path",
    errno.ENAMETOOLONG: "the name is too long for a file: check the path",
    errno.ESTALE: "mount the file system again",
    errno.EIO: "check the disk, or read another copy",
}


def user_cache() -> Path | None:
    """Return the folder for what is safe to lose, which may not exist; None without a home.

    The environment variable BERTSMITH_CACHE names another one than the user's own.
    """
    if named := os.environ.get("BERTSMITH_CACHE"):
        return Path(named)
    with suppress(RuntimeError):
        match platform.system():
            case "Darwin":
                folder = Path.home() / "Library" / "Caches"
            case "Windows":
                folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            case _:
                folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
                # what is relative is to be ignored (XDG Base Directory Specification)
                folder = folder if folder.is_absolute() else Path.home() / ".cache"
        return folder / "bertsmith"
    return None


def refused_by_disk(error: OSError) -> bool:
    """Return whether an error says that the disk or its owner refuses."""
    return error.errno in _CURES or error.errno in _ONLY_CURES


def unreadable(
    error: type[UserError], refusal: OSError, where: str | Path, remedy: str = ""
) -> UserError:
    """Return the error for a file that cannot be read; `remedy` where nothing more is known."""
    problem = f"cannot be read: {refusal.strerror or refusal}"
    return error(problem, where=where, remedy=_READING.get(refusal.errno or 0, remedy))


def refusal_of(error: OSError | DiskError, where: str | Path) -> OSError | None:
    """Return the refusal of the disk or of its owner; None for a mistake of ours.

    A file that is missing is one, unless it was made for `where`: it should have been looked for.
    """
    refusal = error.__cause__ if isinstance(error, DiskError) else error
    if not isinstance(refusal, OSError):
        return None
    missing = refusal.errno == errno.ENOENT and refusal.filename is not None
    if refused_by_disk(refusal) or (missing and not _is_elsewhere(refusal, where)):
        return refusal
    return None


def _is_elsewhere(error: OSError, where: str | Path) -> bool:
    """Return whether an error names what is neither `where`, nor in it, above it or beside it.

    Beside it lies what is made for it, under a hidden name or as a part.
    """
    if not isinstance(error.filename, str | bytes):
        return False
    place = Path(os.path.realpath(where))
    named = Path(os.path.realpath(os.fsdecode(error.filename)))
    if place.is_relative_to(named):
        return False
    if not named.is_relative_to(place.parent):
        return True
    beside = named.relative_to(place.parent).parts[0]
    own_names = (place.name, partial_file(place).name)
    return beside not in own_names and not beside.startswith(f".{place.name}.")


_TEMPORARY = re.compile(r"\..+\.(partial|staging)-\d+")


def disk_error(error: OSError, where: str | Path | None, *, then: str = "") -> DiskError:
    """Return the disk's refusal as an error; `then` says what to do once it is resolved.

    Where it is about another file than `where`, nobody knows whether that was to be written.
    """
    if error.errno == errno.ENOENT:
        problem, missing = "was deleted while it was in use", error.filename
        parts = () if missing is None else Path(os.fsdecode(missing)).parts
        if where is not None and any(map(_TEMPORARY.fullmatch, parts)):
            # a user knows the output, and not the hidden name under which it is made
            problem, missing = "was deleted while it was being written", None
        remedy = then or "give the same command again"
        return DiskError(problem, where=missing or where, remedy=remedy)
    number, problem = error.errno or 0, str(error.strerror or error)
    cure, only = _CURES.get(number, ""), _ONLY_CURES.get(number, "")
    otherwise = _ELSEWHERE
    # what is full or too large was to be written, also where the error names what was copied
    if where is not None and (number not in _READING or not _is_elsewhere(error, where)):
        problem = f"cannot be written: {problem}"
    else:
        where = error.filename
        otherwise = "" if number in _READING else otherwise
    if then:
        remedy = f"{cure or only or 'correct that'}, then {then}"
    else:
        remedy = only or ", or ".join(filter(None, (cure, otherwise)))
    return DiskError(problem, where=where, remedy=remedy)


@contextmanager
def writing(where: str | Path, *, then: str = "") -> Iterator[None]:
    """Turn what the disk refuses into a `DiskError` that names `where`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, DiskError) as error:
        if (refusal := refusal_of(error, where)) is None:
            raise
        raise disk_error(refusal, where, then=then) from refusal


@contextmanager
def created_folder(folder: Path) -> Iterator[None]:
    """Yield a folder to write in, made with all above it; of those made, empty ones are removed.

    Where its name is a link, that is the folder that the link leads to.
    """
    folder = followed(folder)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path in missing:
                flush_to_disk(path.parent)
        yield
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def name_is_taken(out: Path) -> bool:
    """Return whether a new folder's name is taken; an empty folder is replaced.

    The working folder does not: a shell in it would be left in a deleted folder.
    """
    if not out.exists():
        # links that form a loop lead nowhere
        return canonical(out).is_symlink()
    return not out.is_dir() or any(out.iterdir()) or out.samefile(os.curdir)


def followed(out: Path) -> Path:
    """Return the file that an output names: that which a link leads to, even if it is not there.

    Only for names that the user gave: a link in a folder of somebody else could lead anywhere.
    """
    return canonical(out) if out.is_symlink() else out


def has_utf8_name(path: Path) -> bool:
    """Return whether a path is UTF-8; libraries in other languages cannot open other ones."""
    # bytes that are not are halves of surrogate pairs in Python
    return not any("\ud800" <= character <= "\udfff" for character in str(path))


def canonical(path: str | Path) -> Path:
    """Return an absolute path without links; of links that form a loop, which open nothing, as is.

    `Path.resolve` has an error of its own for these before Python 3.13, which is no `OSError`.
    """
    return Path(os.path.realpath(path))


def check_outputs(out: Path, outputs: Iterable[Path], read: str | Path) -> None:
    """Raise `ConfigError` if one of the `outputs` of `out` is no file, or a file that is read.

    A folder would be noticed only when everything is computed. A pipe or a device would be replaced
    by a file, and so would what is read. ``-``, standard input, is no file.
    """
    for path in outputs:
        if path.exists() and not path.is_file():
            kind = "folder" if path.is_dir() else "pipe or device"
            raise ConfigError(
                f"--out is {str(out)!r}, and {path.name} is a {kind}", remedy="name another file"
            )
        if str(read) != "-" and canonical(path) == canonical(read):
            raise ConfigError(
                f"--out is {str(out)!r}, which would replace {path.name}, the file that is read",
                remedy="name another",
            )


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all of some bytes to an unbuffered file, which may take them bit by bit."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]


# some file systems of networks and of virtual machines cannot wait, most of them for folders
_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def sync(handle: int) -> None:
    """Wait until an open file or folder is on the disk, where its file system can wait for it."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk; not for a folder that may not be listed."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        # what may be written there has its name by now, and that is no failure
        if path.is_dir():
            return
        raise
    try:
        sync(handle)
    finally:
        os.close(handle)


def flush_all(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    for inside in path.rglob("*") if path.is_dir() else ():
        flush_to_disk(inside)
    flush_to_disk(path)


def commit(names: dict[Path, Path]) -> None:
    """Rename files and folders, by their temporary names, once all that is in them is on the disk.

    The first takes its name last.
    """
    for temporary in names:
        flush_all(temporary)
    for temporary, final in reversed(names.items()):
        temporary.replace(final)
        flush_to_disk(final.parent)


@contextmanager
def committed(names: dict[Path, Path]) -> Iterator[None]:
    """Commit files by their temporary names at the end of the block; none stays if it fails."""
    try:
        yield
        commit(names)
    finally:
        for temporary in names:
            with suppress(OSError):
                temporary.unlink()


@contextmanager
def replaced_file(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yield a name to write a file under, which then replaces `path`; raises `DiskError`."""
    temporary = temporary or partial_file(path)
    with writing(path), committed({temporary: path}):
        yield temporary


def partial_file(path: Path) -> Path:
    """Return the usual name of a file that is being written."""
    return path.with_name(path.name + ".partial")


_READ = 1 << 20
_BLOCK = 4 << 20


class Record(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8 as hexadecimal."""
    # bytes of a file's name that are not UTF-8 are halves of surrogate pairs in Python
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_hash(path: Path, seen: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a regular file as hexadecimal.

    `seen` is called with the size of each block that is read.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_READ):
            digest.update(block)
            if seen is not None:
                seen(len(block))
    return digest.hexdigest()


class HashedFile:
    """A file that is hashed while it is written, new or after the first `size` bytes of its own."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self.size = size
        self._digest = hashlib.sha256()
        self._file: FileIO = path.open("r+b" if size else "wb", buffering=0)
        remaining = size
        while remaining and (block := self._file.read(min(remaining, _READ))):
            self._digest.update(block)
            remaining -= len(block)
        self._file.truncate()

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        view = memoryview(data)
        for begin in range(0, len(view), _BLOCK):
            block = view[begin : begin + _BLOCK]
            write_all(self._file, block)
            self._digest.update(block)
        self.size += len(view)

    def close(self) -> Record:
        """Close the file when all of it is on the disk."""
        sync(self._file.fileno())
        self._file.close()
        return Record(self.size, self._digest.hexdigest())

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()


def write_parts(path: Path, parts: Iterable[bytes | memoryview]) -> Record:
    """Write a file of these parts, one after the other; raises `DiskError`."""
    with writing(path):
        file = HashedFile(path)
        try:
            for part in parts:
                file.write(part)
            return file.close()
        finally:
            file.abandon()


_CONTAINERS = frozenset((dict, list))
# what follows a value may recurse through it, down to Python's own limit
MAX_DEPTH = 64


class RepeatedName(ValueError):
    """An object of JSON in which a name occurs twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the name {name!r} occurs twice")
        self.name = name


class NestedTooDeep(ValueError):
    """JSON that is nested deeper than `MAX_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")


def json_problem(error: ValueError | RecursionError) -> str:
    """Return what an error of Python's reader of JSON, YAML or TOML says, without Python's hints.

    It advises to raise limits of the interpreter for numbers of thousands of digits.
    """
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if type(error) is ValueError and "set_int_max_str_digits" in str(error):
        return f"a number of over {sys.get_int_max_str_digits():,} digits"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def parse_json(text: bytes | str, *, unique: bool = False) -> Any:  # noqa: ANN401
    """Return the value of JSON, in UTF-8 where it is bytes; `ValueError` for anything else.

    The same for values that are nested deeper than `MAX_DEPTH`, and with `unique` for an object in
    which a name occurs twice (`RepeatedName`).
    """
    try:
        written = text if isinstance(text, str) else text.decode("utf-8")
        value = json.loads(written, object_pairs_hook=_no_duplicates if unique else None)
    except RecursionError as error:
        raise NestedTooDeep from error
    if written.count("[") + written.count("{") > MAX_DEPTH and _too_deep(value):
        raise NestedTooDeep
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, value in pairs:
        if name in results:
            raise RepeatedName(name)
        results[name] = value
    return results


def _too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        # of a vocabulary's many pieces, this sees fastest that none is a container
        if _CONTAINERS.isdisjoint(map(type, _children(level))):
            return False
        level = [child for child in _children(level) if type(child) in _CONTAINERS]
    return True


def _children(nodes: list[Any]) -> Iterator[Any]:
    rows = [node.values() if type(node) is dict else node for node in nodes]
    return chain.from_iterable(rows)


def same_value(value: object, expected: object) -> bool:
    """Return whether two values of JSON are the same: 1, 1.0 and true are three."""
    return type(value) is type(expected) and value == expected


def read_json(
    path: Path,
    error: type[UserError],
    *,
    largest: int,
    values: int | None = None,
    kind: type[dict[str, Any]] | type[list[Any]] = dict,
    remedy: str = "",
) -> Any:  # noqa: ANN401
    """Return the JSON object, or list, in a regular file of at most `largest` bytes.

    Raises `error`, with the line where there is one, for anything that `parse_json` refuses, and
    for more than about `values`, each of which takes up to fifty times its bytes.
    """
    raw = read_bytes(path, error, largest=largest, remedy=remedy)
    if values is not None and sum(map(raw.count, (b",", b"[", b"{"))) > values:
        raise error(f"holds more than {values:,} values", where=path, remedy=remedy)
    try:
        written = raw.decode("utf-8")
        # the largest files would not fit beside their values
        del raw
        data = parse_json(written)
    except json.JSONDecodeError as damage:
        raise error(
            f"not JSON: {damage.msg}", where=path, line=damage.lineno, remedy=remedy
        ) from damage
    except NestedTooDeep as damage:
        raise error(f"is {damage}", where=path, remedy=remedy) from damage
    except ValueError as damage:
        # bytes that are no UTF-8, numbers of thousands of digits
        raise error(f"not JSON: {json_problem(damage)}", where=path, remedy=remedy) from damage
    if not isinstance(data, kind):
        problem = "object" if kind is dict else "list"
        raise error(f"holds no JSON {problem}", where=path, remedy=remedy)
    return data


def write_json(path: Path, content: object, *, in_ascii: bool = True) -> None:
    """Write JSON so that the file is whole or not there; raises `DiskError`."""
    text = json.dumps(content, indent=2, ensure_ascii=in_ascii)
    with replaced_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def other_version(version: object, current: int) -> str:
    """Return which version of the program wrote a format, or "" for the current format."""
    if type(version) is int and version == current:
        return ""
    later = type(version) is int and version > current
    return "a later version of bertsmith" if later else "an earlier version of bertsmith"
