"""One contestant in a process of its own: it reads questions and writes answers, a JSON line each.

{"do": "convert", ...}        converts the folder
{"do": "open", ...}           opens it and makes one vector: seconds with and without imports
{"do": "tune", "texts": F}    chooses its batch size
{"do": "bulk", "texts": F}    seconds for all texts of a JSON file; "out" keeps their vectors
{"do": "single", "texts": F}  the median of the seconds for each of its texts
{"do": "memory"}              the largest resident set so far, in bytes
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BEGAN = time.perf_counter()


class Worker:
    """The contestant, once it is opened."""

    def __init__(self, name: str, folder: Path, work: Path, threads: int) -> None:
        from answering.contestants import CONTESTANTS

        self._contestant = CONTESTANTS[name]
        self._place = (folder, work, self._contestant.precision)
        self._threads = threads
        self._opened: Any = None

    def convert(self, texts: list[str]) -> dict[str, Any]:
        """Convert the folder."""
        if self._contestant.convert is not None:
            self._contestant.convert(*self._place, texts)
        return {}

    def open(self, texts: list[str]) -> dict[str, Any]:
        """Open the folder and make a vector."""
        for module in self._contestant.needs:
            __import__(module)
        before = time.perf_counter()
        self._opened = self._contestant.open(*self._place, self._threads)
        self._opened.single(texts[0])
        after = time.perf_counter()
        return {"seconds": after - before, "with_imports": after - BEGAN}

    def tune(self, texts: list[str]) -> dict[str, Any]:
        """Choose what is fastest for such texts."""
        return {"tuned": str(self._opened.tune(texts))}

    def bulk(self, texts: list[str], out: str | None = None) -> dict[str, Any]:
        """Time all texts together."""
        before = time.perf_counter()
        vectors = self._opened.bulk(texts)
        seconds = time.perf_counter() - before
        if out is not None:
            np.save(out, vectors)
        return {"seconds": seconds}

    def single(self, texts: list[str]) -> dict[str, Any]:
        """Time one text after another."""
        seconds = []
        for text in texts:
            before = time.perf_counter()
            self._opened.single(text)
            seconds.append(time.perf_counter() - before)
        return {"seconds": statistics.median(seconds)}

    def memory(self, texts: list[str]) -> dict[str, Any]:
        """Return the largest resident set so far."""
        del texts
        line = next(
            item
            for item in Path("/proc/self/status").read_text("utf-8").splitlines()
            if item.startswith("VmHWM")
        )
        return {"bytes": int(line.split()[1]) * 1024}


def switch_off_telemetry() -> None:
    """Keep OpenVINO, NNCF and ONNX Runtime from reporting that they are used."""
    modules: dict[str, Any] = sys.modules
    # as if it was not installed: the first two have a stub for that
    modules["openvino_telemetry"] = None
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def main() -> None:
    """Serve until standard input ends."""
    name, folder, work, threads = sys.argv[1:5]
    switch_off_telemetry()
    # what libraries print must not come between the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(name, Path(folder), Path(work), int(threads))
    for line in sys.stdin:
        asked = json.loads(line)
        what: Callable[..., dict[str, Any]] = getattr(worker, asked.pop("do"))
        file = asked.pop("texts", None)
        texts = [] if file is None else json.loads(Path(file).read_text("utf-8"))
        try:
            answer = what(texts, **asked)
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
