"""A process that opens folders nobody should trust, each in a child, and tells what came of it.

A line of JSON comes in, {"folder": ..., "how": ...}, and one goes out: the error, the seconds of
the processor, the memory that was needed at most, and all that an honest reader has no business
with: sockets, other programs, pickles, code, files outside the folder.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import bertsmith
from bertsmith.core.errors import UserError
from bertsmith.core.kernels import instruction_set
from bertsmith.recipes.predict.config import PredictConfig
from bertsmith.recipes.predict.recipe import predict
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.conversion.fairseq import find_fairseq
from bertsmith.weights.conversion.google import find_checkpoint
from bertsmith.weights.conversion.pickled import find_pickled
from bertsmith.weights.folder import load_model, read_config, start_from

MAX_LENGTH = 30  # seconds until a child that hangs is ended
ROOM = 2**30  # bytes that a child may ask for besides what it has
_STRANGE = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.",
    "ctypes.", "urllib.", "http.", "ftplib.", "webbrowser.", "pty.", "os.remove",
    "os.rename", "os.mkdir", "os.rmdir", "shutil.",
)  # fmt: skip
_LIBRARIES = (
    sys.prefix, sys.base_prefix, str(Path(bertsmith.__file__).parent), os.devnull,
    "/proc/self/statm",
)  # fmt: skip


def reach_out(folder: Path) -> None:
    """What no reader may do, to see that it would be seen."""
    del folder
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", 9))
    subprocess.run(["true"], check=True)
    pickle.loads(pickle.dumps(Path()))
    with suppress(OSError):
        Path("/etc/hostname").read_bytes()


def waste(folder: Path) -> None:
    """A second and a half, and 100 MB."""
    del folder
    kept, began = bytearray(b"x") * 10**8, time.process_time()
    while time.process_time() < began + 1.5:
        kept[0] ^= 1


def use(tokenizer: Tokenizer) -> None:
    """What is loaded must also work."""
    for ids in tokenizer.encode(["ba [MASK] ä\u0301 \ud800 中 \x00 " + "ba" * 300, ""]):
        tokenizer.decode(ids.tolist())


HOW: dict[str, Callable[[Path], object]] = {
    "load": load_model,
    "start": lambda folder: start_from(folder, labels=("a", "b")),
    "config": read_config,
    "tokenizer": lambda folder: use(Tokenizer.load(folder)),
    "predict": lambda folder: predict(PredictConfig(model=folder, file=os.devnull)),
    "find": lambda folder: [find(folder) for find in (find_checkpoint, find_fairseq, find_pickled)],
    "reach out": reach_out,
    "waste": waste,
    "ask for everything": lambda folder: bytearray(2 * ROOM),
}


class Watch:
    """What an honest reader would not do; a hook of the interpreter's own audit."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_STRANGE):
            self.seen.append(f"{event} {arguments!r}"[:200])
            if event.startswith("socket."):
                raise ConnectionRefusedError("no network in these tests")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith((self.folder + os.sep, *_LIBRARIES)):
                self.seen.append(f"open {path}")
        elif event == "import" and str(arguments[1] or "").startswith(self.folder):
            self.seen.append(f"import {arguments[1]}")


def peak() -> int:
    """Bytes of memory that this process has needed at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory(room: int = ROOM) -> None:
    """Let this process have so much more address space than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def outcome(folder: str, how: str) -> dict[str, Any]:
    """What opening a folder comes to, in this process."""
    # the library of the package itself is loaded once, and no folder names it
    instruction_set()
    limit_memory()
    watch, before, began = Watch(folder), peak(), time.process_time()
    error: BaseException | None = None
    try:
        HOW[how](Path(folder))
    except BaseException as raised:
        error = raised
    seconds, grown = time.process_time() - began, peak() - before
    # some versions of Python look for files as they write a trace
    seen = watch.seen[:]
    return {
        "error": type(error).__name__ if error else None,
        "told": isinstance(error, UserError),
        "message": str(error) if error else "",
        "trace": "".join(traceback.format_exception(error)[-8:]) if error else "",
        "seconds": seconds,
        "grown": grown,
        "seen": seen,
    }


def main() -> None:
    """Answer one line after the other."""
    torch.set_num_threads(1)
    # what is imported and made at the first use is no folder's doing
    for how in ("load", "start", "tokenizer"):
        HOW[how](Path(sys.argv[1]))
    # nor is it that a family, imported when a folder is of it, may be compiled for the first time
    sys.dont_write_bytecode = True
    # else each child would look through it for garbage, and copy it by that
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        case = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(MAX_LENGTH)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            told = json.dumps(outcome(case["folder"], case["how"])).encode()
            os.write(writing, told[:60_000])
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read().decode()
        _, status = os.waitpid(child, 0)
        sys.stdout.write((answer or json.dumps({"error": f"died: {status}"})) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
