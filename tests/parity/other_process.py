"""One version of transformers in a process of its own, which is asked over pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from forking import Forked

WORKER = Path(__file__).with_name("transformers_worker.py")


class TheirError(Exception):
    """What transformers raised; `kind` is the name of its class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Transformers:
    """A process that answers until it is closed.

    `folder` is where its packages are looked for first.
    """

    def __init__(self, folder: Path | None, log: Path) -> None:
        path = [str(folder)] if folder else []
        offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._log = log
        with log.open("w") as errors:
            self._process = Forked[str](
                [sys.executable, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                env=os.environ | offline | {"PYTHONPATH": os.pathsep.join(path)},
            )
        self.version = str(self.ask("version"))
        # forked from a process that had imported them, it would have those of another version
        for place in self.ask("places").values():
            assert folder is None or Path(place).is_relative_to(folder), place

    def ask(self, question: str, **given: Any) -> Any:  # noqa: ANN401
        """Return the answer of a function of the worker; raises `TheirError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": question} | given) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        answer = json.loads(line)
        if "error" in answer:
            raise TheirError(answer["error"], answer["text"])
        return answer["answer"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # it has nothing to lose, and torch takes seconds to go
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class Outputs(dict[str, Tensor]):
    """What a model gave, by names; `hidden_states` are those of all layers."""

    hidden_states: list[Tensor]

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class RemoteModel:
    """A model that is opened and run in another process.

    Its last hidden states have gone through the norm that comes last.
    """

    def __init__(
        self, asked: Transformers, folder: Path, kind: str, attention: str = "eager"
    ) -> None:
        self._asked = asked
        self._where = {"folder": str(folder), "kind": kind, "attention": attention}
        told = asked.ask("open_model", **self._where)
        self.loading: dict[str, list[str]] = told["loading"]
        self.labels: list[str] = told["labels"]
        self.problem_type: str | None = told["problem_type"]
        self.taken: list[str] = told["taken"]
        self._given, self._results = (folder / f"{item}.tensors" for item in ("given", "results"))

    def __call__(self, *, output_hidden_states: bool, **given: Tensor) -> Outputs:
        """Return the outputs for some inputs."""
        assert output_hidden_states
        save_file({name: value.contiguous() for name, value in given.items()}, self._given)
        files = {"given": str(self._given), "results": str(self._results)}
        layers = self._asked.ask("run_model", **self._where, **files)
        found = Outputs(load_file(self._results))
        found.hidden_states = [found.pop(f"hidden_states.{place}") for place in range(layers)]
        return found
