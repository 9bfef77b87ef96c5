"""A run's folder: its settings, log, checkpoints and results, owned by one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertsmith.config import Config
from bertsmith.errors import RunFolderError


class RunFolder:
    """The folder of one run: run.json, log.jsonl, checkpoints/, model/, report.html."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
        """Own the folder for a while; `RunFolderError` when another process does."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError("is a file", where=self.path, remedy="choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunFolderError(
                    "is in use by another process",
                    where=self.path,
                    remedy="wait for it, or choose another --out",
                ) from error
            yield
        finally:
            os.close(lock)

    def claim(self, kind: str, settings: Config) -> bool:
        """Write the run's settings, or check that they are the ones written; True to resume."""
        described = {"kind": kind, "settings": settings.to_dict()}
        stored = self.settings(kind)
        if stored is None:
            others = [entry for entry in self.path.iterdir() if entry.name != ".lock"]
            if others:
                raise RunFolderError(
                    f"holds {others[0].name} and is no run folder",
                    where=self.path,
                    remedy="choose an empty or new folder for --out",
                )
            write_json(self.path / "run.json", described)
            return False
        different = _first_difference(stored, json.loads(json.dumps(described["settings"])))
        if different:
            raise RunFolderError(
                f"belongs to a run with other settings ({different})",
                where=self.path,
                remedy="choose another --out, or leave the settings out to go on with that run",
            )
        return True

    def settings(self, kind: str) -> dict[str, Any] | None:
        """The settings of the run that the folder holds, or None if it holds none."""
        path = self.path / "run.json"
        if not path.exists():
            return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            found, settings = stored["kind"], stored["settings"]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise RunFolderError("is damaged", where=path, remedy="choose another --out") from error
        if found != kind:
            raise RunFolderError(
                f"belongs to a run of `bertsmith {found}`",
                where=self.path,
                remedy="choose another --out",
            )
        assert isinstance(settings, dict)
        return settings

    def record(self, line: Mapping[str, object]) -> None:
        """Append a line to log.jsonl."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

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


def write_json(path: Path, content: object) -> None:
    """Write JSON so that the file is whole or not there."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _first_difference(stored: object, wanted: object, path: str = "") -> str:
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in sorted(stored.keys() | wanted.keys()):
            found = _first_difference(stored.get(key), wanted.get(key), f"{path}.{key}".strip("."))
            if found:
                return found
        return ""
    return "" if stored == wanted else f"{path} was {stored}, now {wanted}"
