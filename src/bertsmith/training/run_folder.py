"""A run's folder: its settings, log, checkpoints and results, owned by one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bertsmith.config import Config
from bertsmith.disk import disk_error, made_folder, refused_by_disk, writing
from bertsmith.errors import DiskError, RunFolderError

_LOCK = ".lock"


class RunFolder:
    """The folder of one run: run.json, log.jsonl, checkpoints/, model/, report.html."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        with made_folder(self.path), self._locked():
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

    def claim(self, kind: str, settings: Config) -> bool:
        """Write the run's settings, or check that they are the ones written; True to resume."""
        described = {"kind": kind, "settings": settings.to_dict()}
        stored = self.settings(kind)
        if stored is None:
            self._check_contents()
            write_json(self._run, described)
            self._begun_here = True
            return False
        # settings that came with a later version have their defaults in older runs
        known = type(settings).from_dict(stored, where=self._run).to_dict()
        different = _first_difference(known, settings.to_dict())
        if different:
            raise RunFolderError(
                f"belongs to a run with other settings ({different})",
                where=self.path,
                remedy="choose another --out, or give the settings that run was begun with",
            )
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
        path = self.path / "log.jsonl"
        size = path.stat().st_size if path.exists() else 0
        with writing(path):
            try:
                with path.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
            except OSError:
                with suppress(OSError):
                    os.truncate(path, size)  # half a line would spoil the next one
                raise

    def log(self) -> list[dict[str, Any]]:
        """The lines of log.jsonl; a line cut short by a crash is passed over."""
        path = self.path / "log.jsonl"
        lines = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return lines

    @property
    def _run(self) -> Path:
        return self.path / "run.json"

    def _check_contents(self) -> None:
        """Whether the folder holds a run, or nothing."""
        if self._run.exists() or not self.path.exists():
            return
        others = [entry for entry in self.path.iterdir() if entry.name != _LOCK]
        if others:
            raise RunFolderError(
                f"holds {others[0].name} and is no run folder",
                where=self.path,
                remedy="choose an empty or new folder for --out",
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.path / _LOCK
        with writing(path):
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # an owner that has just gone took the file with it, and another may have a new one
                mine = path.exists() and os.path.samestat(path.stat(), os.fstat(lock))
            except BlockingIOError:
                mine = False
            if not mine:
                raise RunFolderError(
                    "is in use by another process",
                    where=self.path,
                    remedy="wait for it, or choose another --out",
                )
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
        finally:
            os.close(lock)

    def _forget_beginning(self) -> None:
        """Leave nothing of a run that was begun just now and came to nothing worth keeping."""
        files = [path for path in self.path.rglob("*") if path.is_file() and path.stat().st_size]
        if not self._begun_here or files != [self._run]:
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
    temporary = path.with_name(path.name + ".partial")
    try:
        with writing(path), temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with writing(path):
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
