"""A run's folder: its settings, log, checkpoints and results, owned by one process at a time.

Its log can be exported to TensorBoard while it grows (`tensorboard_events`).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bertsmith.core.config import Config
from bertsmith.core.errors import DiskError, MissingExtra, RunFolderError
from bertsmith.core.files import (
    created_folder,
    disk_error,
    flush_to_disk,
    has_utf8_name,
    open_regular,
    other_version,
    parse_json,
    partial_file,
    read_json,
    refusal_of,
    text_hash,
    write_json,
    writing,
)
from bertsmith.core.ownership import owned
from bertsmith.core.signals import Terminated
from bertsmith.training.config import Parallelism

RUN_FORMAT = 6
"""The format version of a run's saved state, in run.json and in each checkpoint.

A resumed run must reach the result that it would have had without the interruption. If a later
version would draw other random numbers, or interpret the same files differently, the number is
raised, and runs that were begun before are refused. In version 1, not recorded, streams of
different purposes could coincide; in version 2 settings had other names; in version 3 the
search space of fine-tuning was among those of a training; in version 5 a change of a model's config
was not noticed.
"""

_HASH = "sha256"
# the largest is what was said of each row of a large dev set
_MAX_BYTES = 2**30


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its hash so that it is whole or not there; raises `DiskError`."""
    write_json(path, {_HASH: _hash(content), **content})


def read_record(path: Path) -> dict[str, Any]:
    """Return the record that `write_record` wrote; `RunFolderError` if it has changed since."""
    remedy = "delete it, and give the command of the run again"
    content = _read_json(path, remedy, largest=_MAX_BYTES)
    if content.pop(_HASH, None) != _hash(content):
        raise RunFolderError("is damaged: it is not what was written", where=path, remedy=remedy)
    return content


def _hash(content: Mapping[str, Any]) -> str:
    # as it will be read: numbers that are keys are strings by then
    return text_hash(json.dumps(content))


_LOCK = ".lock"
HELD_OUT_PLAN = "held-out.json"
PREFLIGHT = "preflight.json"
PARALLELISM = "parallelism.json"
_PREPARATIONS = frozenset((_LOCK, "run.json", "verified.json", HELD_OUT_PLAN, PREFLIGHT))
"""Files that are written before anything is trained."""
_RESULTS = ("result.json", "results.json", "dev.json", "baselines.json")
_RECORDS = frozenset((*_PREPARATIONS - {_LOCK}, PARALLELISM, *_RESULTS))
_MAX_RECORD_BYTES = 64 * 2**20
_MAX_LINE_LENGTH = 2**20
_MAX_NUMBER = 2**62


class RunFolder:
    """The folder of one run: run.json, log.jsonl, checkpoints/, model/, report.html."""

    def __init__(self, path: Path, *, part_of: RunFolder | None = None) -> None:
        """A folder inside that of a larger run is `part_of` it: it has no run.json of its own."""
        self.path = path
        self._whole = part_of
        self.followers: list[Callable[[Mapping[str, object]], None]] = []
        """Called with every line that is recorded."""
        self._begun_here = False

    @property
    def identity(self) -> str:
        """The identity of this run among all others, "" before it is begun; raises
        `RunFolderError`.
        """
        if self._whole is not None:
            return f"{self._whole.identity}/{self.path.relative_to(self._whole.path).as_posix()}"
        return str(self._stored()["id"]) if self._run.exists() else ""

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The folder of the finished model."""
        return self.path / "model"

    @property
    def report(self) -> Path:
        """The report page of the run."""
        return self.path / "report.html"

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Own the folder for a while, created if needed; removed if no run was begun in it.

        A `KeyboardInterrupt` that leaves a run says how to go on. Raises `RunFolderError` when
        another process owns it, or when it holds other things than a run, or one that another
        version began; `DiskError`, which says how to go on, for what cannot be written meanwhile.
        """
        self.check_place()
        with created_folder(self.path), owned(self.path / _LOCK, of=self.path):
            self._sweep()
            try:
                yield
            except (OSError, DiskError) as error:
                self._discard_empty_run()
                if (refusal := refusal_of(error, self.path)) is None:
                    raise
                where = getattr(error, "where", None) or self.path
                raise disk_error(refusal, where, then=self._resume_hint()) from refusal
            except KeyboardInterrupt as interruption:
                self._discard_empty_run()
                # others say themselves how to go on
                bare = not interruption.args or isinstance(interruption, Terminated)
                if not (bare and self._run.exists()):
                    raise
                ended = str(interruption) or "interrupted"
                raise KeyboardInterrupt(f"{ended}; {self._resume_hint()}") from None
            except BaseException:
                self._discard_empty_run()
                raise

    def check_place(self) -> None:
        """Raise `RunFolderError` unless a run can be in the folder; writes nothing."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError("is a file", where=self.path, remedy="choose another --out")
        self._check_contents()
        self.check_version()

    def check_claim(self, kind: str, settings: Config, *, extensible: str = "") -> None:
        """Raise `RunFolderError` where `claim` would for another run's settings; writes nothing."""
        self.check_place()
        stored = self.settings(kind)
        if stored is not None:
            self._check_same(stored, settings, extensible)

    def claim(self, kind: str, settings: Config, *, extensible: str = "") -> bool:
        """Write the run's settings, or check that they are the ones written; True to resume.

        The number that is called `extensible` may be larger than it was, and what changes no result
        may be another; both are written anew.
        """
        stored = self.settings(kind)
        self.check_version()
        # a copy of the folder is the same run, the same command given for another folder is not
        identity = uuid.uuid4().hex if stored is None else self.identity
        described = {
            "format": RUN_FORMAT,
            "kind": kind,
            "id": identity,
            "settings": settings.to_dict(),
        }
        if stored is None:
            self._check_contents()
            write_json(self._run, described)
            self._begun_here = True
            return False
        if self._check_same(stored, settings, extensible):
            write_json(self._run, described)
        return True

    def _check_same(self, stored: dict[str, Any], settings: Config, extensible: str) -> bool:
        """Check that settings may follow those stored; return whether any is another."""
        # settings that came with a later version have their defaults in older runs
        earlier = type(settings).from_dict(stored, where=self._run)
        known = earlier.with_changeable(settings).to_dict()
        if extensible and known[extensible] < getattr(settings, extensible):
            known[extensible] = getattr(settings, extensible)
        different = _first_difference(known, settings.to_dict())
        if different:
            raise RunFolderError(
                f"belongs to a run with other settings ({different})",
                where=self.path,
                remedy="choose another --out, or give the settings that run was begun with",
            )
        return earlier.to_dict() != settings.to_dict()

    def check_version(self) -> None:
        """Raise `RunFolderError` for a run of another version, which cannot be resumed.

        Its results can be read all the same.
        """
        if not self._run.exists():
            return
        if version := other_version(self._stored().get("format"), RUN_FORMAT):
            raise RunFolderError(
                f"belongs to a run that {version} began, with other names or random numbers",
                where=self._run,
                remedy="choose another --out, or end the run with that version",
            )

    def settings(self, kind: str) -> dict[str, Any] | None:
        """Return the settings of the run that the folder holds, or None if it holds none."""
        if not self._run.exists():
            return None
        stored = self._stored()
        if stored["kind"] != kind:
            raise RunFolderError(
                f"belongs to a run of `bertsmith {stored['kind']}`",
                where=self.path,
                remedy="choose another --out",
            )
        return dict(stored["settings"])

    def _stored(self) -> dict[str, Any]:
        """Return the content of run.json; raises `RunFolderError`."""
        remedy = "choose another --out"
        stored = _read_json(self._run, remedy)
        kinds = {"kind": str, "id": str, "settings": dict}
        if not all(isinstance(stored.get(key), kind) for key, kind in kinds.items()):
            raise RunFolderError("is damaged", where=self._run, remedy=remedy)
        return stored

    def record(self, line: Mapping[str, object]) -> None:
        """Append a line to log.jsonl."""
        path, size = self._log, self.log_bytes
        with writing(path):
            try:
                with path.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
            except OSError:
                with suppress(OSError):
                    os.truncate(path, size)  # half a line would spoil the next one
                raise
        for follow in self.followers:
            follow(line)

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of log.jsonl; a line cut short by a crash is passed over."""
        if not self._log.exists():
            return []
        lines = []
        try:
            with open_regular(self._log) as log:
                # blocks, as a damaged file may be one line of gigabytes
                while line := log.readline(_MAX_LINE_LENGTH):
                    if (entry := _parse_log_line(line)) is not None:
                        lines.append(entry)
        except OSError as error:
            raise RunFolderError(
                f"cannot be read: {error.strerror}", where=self._log, remedy="delete it"
            ) from error
        return lines

    def verified(self) -> dict[str, list[int]]:
        """Return size and time of change of files that the run reads and has found to be whole."""
        try:
            return _read_json(self._verified, "delete it")
        except RunFolderError:
            return {}

    def record_verified(self, files: Mapping[str, list[int]]) -> None:
        """Remember files that were found to be whole; raises `DiskError`."""
        if files != self.verified():
            write_json(self._verified, files)

    @property
    def _verified(self) -> Path:
        return self.path / "verified.json"

    def parallelism_changes(self) -> list[tuple[int, Parallelism]]:
        """Return the steps from which another parallelism was adopted; raises `RunFolderError`."""
        if not self._parallelism.exists():
            return []
        record = read_record(self._parallelism)
        try:
            entries = [(int(step), adopted) for step, adopted in record["changes"]]
            return [(step, Parallelism.from_dict(adopted)) for step, adopted in entries]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                "is not the record of another parallelism's steps",
                where=self._parallelism,
                remedy="put the run's own there again",
            ) from error

    def record_parallelism_changes(self, changes: Sequence[tuple[int, Parallelism]]) -> None:
        """Write the steps from which another parallelism was adopted; raises `DiskError`."""
        entries = [(step, adopted.to_dict()) for step, adopted in changes]
        write_record(self._parallelism, {"changes": entries})

    @property
    def _parallelism(self) -> Path:
        return self.path / PARALLELISM

    @property
    def log_bytes(self) -> int:
        """Size of log.jsonl."""
        return self._log.stat().st_size if self._log.exists() else 0

    def flush_log(self) -> None:
        """Wait until log.jsonl is on the disk; raises `DiskError`."""
        if self._log.exists():
            with writing(self._log):
                flush_to_disk(self._log)

    def truncate_log(self, size: int) -> None:
        """Leave only the first `size` bytes of log.jsonl; raises `DiskError`."""
        if self.log_bytes > size:
            with writing(self._log):
                os.truncate(self._log, size)

    @property
    def _log(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def _run(self) -> Path:
        return self.path / "run.json"

    def _check_contents(self) -> None:
        """Check that the folder holds a run, or nothing."""
        if self._run.exists() or not self.path.exists():
            return
        # a process that was killed at its very beginning leaves no more than these
        ours = {_LOCK, partial_file(self._run).name}
        others = [entry for entry in self.path.iterdir() if entry.name not in ours]
        if others:
            raise RunFolderError(
                f"holds {others[0].name} and is not a run folder",
                where=self.path,
                remedy="choose an empty or new folder for --out",
            )

    def _discard_empty_run(self) -> None:
        """Leave nothing of a run that was begun just now and came to nothing worth keeping."""
        if not self.path.is_dir():
            return
        files = {path for path in self.path.rglob("*") if path.is_file() and path.stat().st_size}
        if not self._begun_here or files - {self.path / name for name in _PREPARATIONS}:
            return
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _LOCK:
                entry.unlink()

    def _sweep(self) -> None:
        """Delete what a process that was killed has left half-written."""
        for leftover in self.path.rglob("*.json.partial"):
            if leftover.name.removesuffix(".partial") in _RECORDS:
                with suppress(OSError):
                    leftover.unlink()

    def _resume_hint(self) -> str:
        if not self._run.exists():
            return "give the same command again"
        # by number: names have eight digits or more
        names = self.checkpoints.glob("step-*")
        newest = max(names, key=lambda path: (len(path.name), path.name), default=None)
        start = "with what is saved" if newest is None else f"from {newest.name}"
        return f"give the same command again: it resumes {start}"


def _read_json(path: Path, remedy: str, *, largest: int = _MAX_RECORD_BYTES) -> dict[str, Any]:
    """Return the object that `write_json` wrote; `RunFolderError` if the file is damaged."""
    try:
        content: dict[str, Any] = read_json(path, RunFolderError, largest=largest)
    except RunFolderError as error:
        raise RunFolderError(f"is damaged: {error.problem}", where=path, remedy=remedy) from error
    return content


def _parse_log_line(line: bytes) -> dict[str, Any] | None:
    """Return a line of the log, None for one that was cut short or damaged."""
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not all(map(_is_number, entry.values())):
        return None
    placed = all(math.isfinite(entry.get(key, math.nan)) for key in ("step", "seconds"))
    return entry if placed else None


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _MAX_NUMBER)


def _first_difference(stored: object, wanted: object, path: str = "") -> str:
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in sorted(stored.keys() | wanted.keys()):
            difference = _first_difference(
                stored.get(key), wanted.get(key), f"{path}.{key}".strip(".")
            )
            if difference:
                return difference
        return ""
    if stored == wanted:
        return ""
    if path.endswith("_hash") and stored and wanted:
        return f"{path}: the contents have changed"
    return f"{path} was {stored}, now {wanted}"


_HELD_OUT = "held_out_"
_FIGURES = ("loss", "accuracy")


def require_tensorboard(out: Path) -> None:
    """Raise `MissingExtra` or `RunFolderError` unless tensorboard is there, and can write to `out`.

    To be checked before a long run.
    """
    if find_spec("tensorboard") is None:
        raise MissingExtra("tensorboard", "tensorboard", "--tensorboard")
    if not has_utf8_name(out):
        raise RunFolderError(
            "--tensorboard cannot write to a folder whose name is not UTF-8",
            where=out,
            remedy="choose another --out, or leave --tensorboard out",
        )


@contextmanager
def tensorboard_events(folder: RunFolder, event_folder: Path) -> Iterator[None]:
    """Write every record of `folder`'s log to event files in `event_folder` as well.

    At the first record the files are rewritten from log.jsonl, so that a resumed run shows each
    step once. Raises `MissingExtra` and `RunFolderError`.
    """
    require_tensorboard(event_folder)
    from torch.utils.tensorboard import SummaryWriter

    writers: list[SummaryWriter] = []
    started = 0.0

    def follow(line: Mapping[str, object]) -> None:
        nonlocal started
        lines = [line]
        if not writers:
            shutil.rmtree(event_folder, ignore_errors=True)
            writers.append(SummaryWriter(str(event_folder)))
            lines = list(folder.log())
            started = time.time() - _number(line, "seconds")
        for record in lines:
            step, at = int(_number(record, "step")), started + _number(record, "seconds")
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    writers[0].add_scalar(tag(name), value, step, walltime=at)
        writers[0].flush()

    folder.followers.append(follow)
    try:
        yield
    finally:
        folder.followers.remove(follow)
        for writer in writers:
            writer.close()


def tag(name: str) -> str:
    """Return the TensorBoard tag of a metric: ``loss/masked_lm`` for ``masked_lm_loss``."""
    held_out, bare = name.startswith(_HELD_OUT), name.removeprefix(_HELD_OUT)
    for figure in _FIGURES:
        if bare.endswith(f"_{figure}"):
            group = f"held_out_{figure}" if held_out else figure
            return f"{group}/{bare.removesuffix(f'_{figure}')}"
    return f"held_out/{bare}" if held_out else f"training/{name}"


def _number(line: Mapping[str, object], name: str) -> float:
    value = line[name]
    assert isinstance(value, int | float)
    return value
