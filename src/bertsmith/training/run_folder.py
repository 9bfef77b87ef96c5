"""A run's folder: its settings, log, checkpoints and results, owned by one process at a time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bertsmith.config import Config
from bertsmith.disk import disk_error, flush_to_disk, made_folder, refused_by_disk, writing
from bertsmith.errors import DiskError, RunFolderError
from bertsmith.training.ownership import owned

_LOCK = ".lock"


class RunFolder:
    """The folder of one run: run.json, log.jsonl, checkpoints/, model/, report.html."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.followers: list[Callable[[Mapping[str, object]], None]] = []
        """Called with every line that is recorded."""
        self._begun_here = False

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The folder of the finished model."""
        return self.path / "model"

    @property
    def report(self) -> Path:
        """The page that tells of the run."""
        return self.path / "report.html"

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Own the folder for a while, made if need be; without a run begun in it, it goes again.

        Raises `RunFolderError` when another process owns it, or when it holds other things than a
        run; `DiskError`, which says how to go on, for what cannot be written meanwhile.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError("is a file", where=self.path, remedy="choose another --out")
        self._check_contents()
        with made_folder(self.path), owned(self.path / _LOCK):
            try:
                yield
            except (OSError, DiskError) as error:
                self._forget_beginning()
                refusal = error.__cause__ if isinstance(error, DiskError) else error
                if not isinstance(refusal, OSError) or not refused_by_disk(refusal):
                    raise
                where = getattr(error, "where", None) or self.path
                raise disk_error(refusal, where, then=self._how_to_go_on()) from refusal
            except BaseException:
                self._forget_beginning()
                raise

    def claim(self, kind: str, settings: Config, *, growing: str = "") -> bool:
        """Write the run's settings, or check that they are the ones written; True to resume.

        The number that is called `growing` may be larger than it was, and is written anew.
        """
        described = {"kind": kind, "settings": settings.to_dict()}
        stored = self.settings(kind)
        if stored is None:
            self._check_contents()
            write_json(self._run, described)
            self._begun_here = True
            return False
        # settings that came with a later version have their defaults in older runs
        known = type(settings).from_dict(stored, where=self._run).to_dict()
        grown = bool(growing) and known[growing] < getattr(settings, growing)
        if grown:
            known[growing] = getattr(settings, growing)
        different = _first_difference(known, settings.to_dict())
        if different:
            raise RunFolderError(
                f"belongs to a run with other settings ({different})",
                where=self.path,
                remedy="choose another --out, or give the settings that run was begun with",
            )
        if grown:
            write_json(self._run, described)
        return True

    def settings(self, kind: str) -> dict[str, Any] | None:
        """The settings of the run that the folder holds, or None if it holds none."""
        path = self._run
        if not path.exists():
            return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            found, settings = stored["kind"], dict(stored["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError("is damaged", where=path, remedy="choose another --out") from error
        if found != kind:
            raise RunFolderError(
                f"belongs to a run of `bertsmith {found}`",
                where=self.path,
                remedy="choose another --out",
            )
        return settings

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
        """The lines of log.jsonl; a line cut short by a crash is passed over."""
        lines = []
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        for line in text.splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return lines

    def verified(self) -> dict[str, list[int]]:
        """Size and time of change of files that the run reads and has found to be whole."""
        try:
            found = json.loads(self._verified.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def note_verified(self, files: Mapping[str, list[int]]) -> None:
        """Remember files that were found to be whole; raises `DiskError`."""
        if files != self.verified():
            write_json(self._verified, files)

    @property
    def _verified(self) -> Path:
        return self.path / "verified.json"

    @property
    def log_bytes(self) -> int:
        """Size of log.jsonl."""
        return self._log.stat().st_size if self._log.exists() else 0

    def flush_log(self) -> None:
        """Wait until log.jsonl is on the disk; raises `DiskError`."""
        if self._log.exists():
            with writing(self._log):
                flush_to_disk(self._log)

    def cut_log(self, size: int) -> None:
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
        """Whether the folder holds a run, or nothing."""
        if self._run.exists() or not self.path.exists():
            return
        # a process that was killed at its very beginning leaves no more than these
        ours = {_LOCK, _partial(self._run).name}
        others = [entry for entry in self.path.iterdir() if entry.name not in ours]
        if others:
            raise RunFolderError(
                f"holds {others[0].name} and is no run folder",
                where=self.path,
                remedy="choose an empty or new folder for --out",
            )

    def _forget_beginning(self) -> None:
        """Leave nothing of a run that was begun just now and came to nothing worth keeping."""
        files = [path for path in self.path.rglob("*") if path.is_file() and path.stat().st_size]
        if not self._begun_here or set(files) - {self.path / _LOCK, self._run, self._verified}:
            return
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _LOCK:
                entry.unlink()

    def _how_to_go_on(self) -> str:
        if not self._run.exists():
            return "give the same command again"
        newest = max(self.checkpoints.glob("step-*"), default=None)
        place = "with what is saved" if newest is None else f"from {newest.name}"
        return f"give the same command again: it goes on {place}"


def write_json(path: Path, content: object) -> None:
    """Write JSON so that the file is whole or not there; raises `DiskError`."""
    temporary = _partial(path)
    try:
        with writing(path), temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with writing(path):
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _first_difference(stored: object, wanted: object, path: str = "") -> str:
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in sorted(stored.keys() | wanted.keys()):
            found = _first_difference(stored.get(key), wanted.get(key), f"{path}.{key}".strip("."))
            if found:
                return found
        return ""
    if stored == wanted:
        return ""
    if path.endswith("_hash") and stored and wanted:
        return f"{path}: the contents have changed"
    return f"{path} was {stored}, now {wanted}"
