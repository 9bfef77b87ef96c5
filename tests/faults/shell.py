"""The command line as a user meets it, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.cli.main import main


class Shell:
    """The command line, in this process, with the shared paths by their names in braces."""

    def __init__(self, paths: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        self._paths = paths
        self._capsys = capsys

    def run(self, command: str) -> tuple[int, str]:
        """Exit status and standard error."""
        arguments = [word.format(**self._paths) for word in command.split()]
        self._capsys.readouterr()
        status = main(arguments)
        return status, self._capsys.readouterr().err

    def refused(self, command: str) -> str:
        """The one line with which a command ends that must leave nothing behind.

        What `finetune` has read it may show before.
        """
        before = everything()
        line = self.failed(command, lines=None if command.startswith("finetune") else 1)
        assert everything() == before
        return line

    def failed(self, command: str, *, lines: int | None = None) -> str:
        """The last line of a command that ends with status 2 and says what to do."""
        status, told = self.run(command)
        assert status == 2, told
        *others, last = told.splitlines()
        assert lines is None or len(others) + 1 == lines, told
        assert not any(line.startswith("bertsmith: ") for line in others), told
        assert "Traceback" not in told
        assert last.startswith("bertsmith: ")
        what, _, remedy = last.partition("; ")
        assert what
        assert remedy
        return last


def everything() -> dict[str, int]:
    """All there is in the current folder, with sizes."""
    return {str(path): path.stat().st_size for path in Path().rglob("*")}
