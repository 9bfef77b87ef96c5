"""The pages of the repository as tests read them: fenced blocks, commands, servers that run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
# where pages say that a server is
ADDRESS = "localhost:8080"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the output that the next block promises, if it does."""

    language: str
    line: int
    text: str
    promised: str | None


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    matches = list(fence.finditer(text))
    for match, after in zip(matches, [*matches[1:], None], strict=True):
        follows = after is not None and match.end() + 1 == after.start() and after[1] == "text"
        promised = after[2] if after is not None and follows else None
        line = text.count("\n", 0, match.start(2)) + 1
        found.append(Block(language=match[1], line=line, text=match[2], promised=promised))
    return found


def commands(block: Block) -> list[str]:
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line]


class RunningServer:
    """A server that a page starts in the background, on a port of its own."""

    def __init__(self, command: str, folder: Path) -> None:
        program, verb, *words = shlex.split(command.partition(" >")[0].removesuffix(" &"))
        assert (program, verb) == ("bertsmith", "serve"), command
        self._process = subprocess.Popen(
            [sys.executable, "-m", program, verb, *words, "--port", "0"],
            cwd=folder,
            env=os.environ | {"COLUMNS": "200"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        self.address = self._line(self._process.stderr, r"listening at http://([\w.:]+)")
        self._line(self._process.stderr, "ready: ")
        # whoever is not heard stops when the pipe is full
        self._listener = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._listener.start()

    @staticmethod
    def _line(stream: IO[str], pattern: str) -> str:
        said = ""
        for line in stream:
            said += line
            if found := re.search(pattern, line):
                return found[found.re.groups]
        raise AssertionError(said)

    def here(self, text: str) -> str:
        """Return a text of the page with this server's address."""
        return text.replace(ADDRESS, self.address)

    def stop(self) -> int:
        """Ask it to end, and return its status."""
        self._process.terminate()
        status = self._process.wait()
        self._listener.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        return status
