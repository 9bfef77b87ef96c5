"""Many mutated folders, one after the other in processes with little memory: what came of them.

    python -m hostile.campaign 100000        over all kinds
    python -m hostile.campaign 1 --first 4711 --kind config    one case again

A case is named by its kind and its number. Anything but a `UserError` is a crash; so is a process
that dies, of memory say.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from bertsmith.core.errors import UserError
from bertsmith.core.printable import printable
from bertsmith.tasks.opening import open_embedder, vectors
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from forking import Forked
from hostile.mutations import mutated_bytes, mutated_json, mutated_lines, mutated_tensors
from hostile.specimens import specimens
from hostile.worker import limit_memory, peak, use

KINDS = ("config", "tokenizer", "header", "sentence")
CASES_A_PROCESS = 5000
_OTHERS = ("vocab.txt", "vocab.json", "merges.txt", "spiece.model")


@dataclass
class Tally:
    """What some cases came to."""

    cases: int = 0
    loaded: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    grown: int = 0
    """Bytes of memory needed at most, beyond those before the first case."""
    slowest: float = 0.0
    """Seconds of the processor, of the slowest case."""
    slowest_case: str = ""

    def add(self, other: Tally) -> None:
        """Count more cases."""
        self.cases += other.cases
        self.loaded += other.loaded
        self.refused.update(other.refused)
        self.crashes += other.crashes
        self.grown = max(self.grown, other.grown)
        if other.slowest > self.slowest:
            self.slowest, self.slowest_case = other.slowest, other.slowest_case


class Campaign:
    """Specimens of honest folders, and one place where mutated ones are written."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._specimens = specimens(place / "honest")
        self._files = {
            name: {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in folder.rglob("*")
                if path.is_file()
            }
            for name, folder in self._specimens.items()
        }
        self._names = sorted(self._files)
        self._folder = place / "mutated"
        self._folder.mkdir()
        self._words = sorted(
            {
                key
                for files in self._files.values()
                for name, content in files.items()
                if name.endswith(".json")
                for key in _keys(json.loads(content))
            }
        )

    def case(self, kind: str, number: int) -> tuple[Path, dict[str, bytes]]:
        """Write the folder of one case; the folder, and the files that are not as they were."""
        chance = random.Random(f"{kind} {number}")
        honest = self._files["sentence" if kind == "sentence" else chance.choice(self._names)]
        files = dict(honest)
        if kind == "sentence":
            name = chance.choice([file for file in files if _is_of_sentences(file)])
            files[name] = self._mutated(chance, name, files[name])
        elif kind == "header":
            name = chance.choice([file for file in files if ".safetensors" in file])
            files[name] = self._mutated(chance, name, files[name])
        elif kind == "config":
            data = json.loads(files["config.json"])
            files["config.json"] = mutated_json(chance, data, self._words)
        else:
            names = [
                file
                for file in files
                if "token" in file or "merges" in file or file.startswith(("vocab", "spiece"))
            ]
            # the compiled file is read where there is no other
            if chance.random() < 0.3 and "tokenizer.json" in names:
                for name in [item for item in names if item in _OTHERS]:
                    del files[name]
                    names.remove(name)
            name = chance.choice(names)
            files[name] = self._mutated(chance, name, files[name])
        shutil.rmtree(self._folder)
        for name, content in files.items():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_bytes(content)
        return self._folder, {k: v for k, v in files.items() if honest[k] != v}

    def _mutated(self, chance: random.Random, name: str, content: bytes) -> bytes:
        if name.endswith(".json"):
            return mutated_json(chance, json.loads(content), self._words)
        if name.endswith(".safetensors"):
            return mutated_tensors(chance, content, self._words)
        if name.endswith(".txt"):
            return mutated_lines(chance, content)
        return mutated_bytes(chance, content)

    def run(self, kind: str, first: int, count: int) -> Tally:
        """Open the folders of some cases, in this process."""
        tally = Tally()
        before = peak()
        for number in range(first, first + count):
            folder, _ = self.case(kind, number)
            began = time.process_time()
            tally.cases += 1
            error = _opened(folder)
            if error is None:
                tally.loaded += 1
            elif isinstance(error, UserError):
                tally.refused[type(error).__name__] += 1
                message = str(error)
                # joiners stay where they have a meaning, as in emoji
                if message != printable(message, len(message)):
                    tally.crashes.append(f"{kind} {number}: no line: {message[:200]!r}")
            else:
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__}: {str(error)[:200]}"
                tally.crashes.append(f"{kind} {number}: {what} ({where.filename}:{where.lineno})")
            seconds = time.process_time() - began
            if seconds > tally.slowest:
                tally.slowest, tally.slowest_case = seconds, f"{kind} {number}"
        tally.grown = peak() - before
        return tally


def _opened(folder: Path) -> BaseException | None:
    """Load a folder, and its tokenizer alone, and use it; what went wrong."""
    errors: list[BaseException] = []
    for how in (load_model, Tokenizer.load, _embed):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                loaded = how(folder)
            if loaded is not None:
                use(loaded if isinstance(loaded, Tokenizer) else loaded[1])
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            errors.append(error)
    crashes = [item for item in errors if not isinstance(item, UserError)]
    return next(iter(crashes + errors), None)


def _embed(folder: Path) -> None:
    """What a sentence-transformers folder is for."""
    if (folder / "modules.json").exists():
        assert len(list(vectors(open_embedder(folder), ["ba be", "do"]))) == 2


def _is_of_sentences(name: str) -> bool:
    return "/" in name or name.endswith(("modules.json", "transformers.json", "bert_config.json"))


def _keys(data: object) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in list(data.items())[:60]:
            yield str(key)
            yield from _keys(value)
    elif isinstance(data, list):
        for value in data[:20]:
            yield from _keys(value)


class Asked:
    """A process with the specimens, which runs cases in forks of itself."""

    def __init__(self) -> None:
        self._process = Forked[str](
            [sys.executable, "-m", "hostile.campaign", "--asked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, kind: str, first: int, count: int, *, before: str = "") -> Tally:
        """Run cases in a fork after the other, each with a gigabyte of memory to itself.

        `before` is a program that each of them runs first.
        """
        total = Tally()
        while count > 0:
            part = min(count, CASES_A_PROCESS)
            total.add(self._run(kind, first, part, before))
            first, count = first + part, count - part
        return total

    def _run(self, kind: str, first: int, count: int, before: str) -> Tally:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"kind": kind, "first": first, "count": count, "before": before}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        return Tally(**told | {"refused": Counter(told.get("refused", {}))})


def _answer() -> None:
    """Be the process that is asked."""
    with tempfile.TemporaryDirectory() as place:
        campaign = Campaign(Path(place))
        for line in sys.stdin:
            print(_in_fork(campaign, **json.loads(line)), flush=True)


def _in_fork(campaign: Campaign, kind: str, first: int, count: int, before: str) -> str:
    """Run some cases in a fork of this process; returns the tally as JSON."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            try:
                exec(before, {})
                limit_memory()
                tally = campaign.run(kind, first, count)
                os.write(answer.fileno(), json.dumps(tally.__dict__).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        if status == 0:
            return answer.read().decode()
        errors.seek(0)
        end = errors.read()[-500:].decode(errors="replace")
        ended = os.waitstatus_to_exitcode(status)
        crash = f"{kind} {first}-{first + count}: died {ended}: {end}"
        return json.dumps(Tally(crashes=[crash]).__dict__)


def main() -> None:
    """Run the cases that the command line asks for, and tell what came of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the files that were changed")
    parser.add_argument("--asked", action="store_true", help="answer lines of JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.asked:
        _answer()
        return
    if given.show:
        with tempfile.TemporaryDirectory() as place:
            for name, content in Campaign(Path(place)).case(given.kind, given.first)[1].items():
                print(name, content)
        return
    kinds = [given.kind] if given.kind else list(KINDS)
    with Asked() as asked:
        for kind in kinds:
            total = asked.run(kind, given.first, given.count // len(kinds))
            print(json.dumps({"kind": kind} | total.__dict__), flush=True)


if __name__ == "__main__":
    main()
