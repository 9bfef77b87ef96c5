"""Folders whose files were changed by chance: a `UserError` or a model that works, nothing else."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.campaign import KINDS, Tally, in_processes
from hostile.mutations import mutated_bytes, mutated_json, mutated_lines

MAX_MEMORY = 2**30
MAX_SECONDS = 2.0  # of the processor, for one folder
FEW, MANY = 50, {"config": 33_334, "tokenizer": 33_334, "header": 33_334, "sentence": 10_000}


def check(tally: Tally, cases: int) -> None:
    assert tally.crashes == []
    assert tally.cases == cases
    assert tally.grown < MAX_MEMORY
    assert tally.slowest < MAX_SECONDS, tally.slowest_case
    # were all refused at the door, little would have been tried
    assert tally.loaded > 0.01 * cases
    assert sum(tally.refused.values()) > 0.1 * cases


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__).parents[1]
    paths = [str(here.parent / "src"), str(here), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_mutated_folders(kind: str) -> None:
    total = Tally()
    for tally in in_processes(kind, 0, FEW):
        total.add(tally)
    check(total, FEW)


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_very_many_mutated_folders(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    total, cases = Tally(), MANY[kind]
    for tally in in_processes(kind, 0, cases):
        total.add(tally)
    with capsys.disabled():
        sys.stderr.write(f"{kind}: {json.dumps(total.__dict__)}\n")
    check(total, cases)


def test_a_case_is_a_function_of_its_number() -> None:
    data, words = {"a": [1, {"b": "c"}], "d": 2.5}, ["a", "z"]
    made = [
        [mutated_json(random.Random(number), data, words) for number in range(200)]
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert len(set(made[0])) > 100
    assert data == {"a": [1, {"b": "c"}], "d": 2.5}
    lines = b"one\ntwo\nthree\n"
    for change in (mutated_bytes, mutated_lines):
        assert len({change(random.Random(number), lines) for number in range(200)}) > 100


def test_what_crashes_is_counted(tmp_path: Path) -> None:
    """A reader that lets anything out, or runs out of memory, must not pass for a good one."""
    (tmp_path / "sitecustomize.py").write_text(
        "import bertsmith.weights.config_json as hub_config\n"
        "honest = hub_config.HubConfig.__init__\n"
        "def init(self, path):\n"
        "    honest(self, path)\n"
        "    if path.stat().st_size % 3 == 0:\n"
        "        raise KeyError('crash')\n"
        "    if path.stat().st_size % 31 == 0:\n"
        "        bytearray(2**31)\n"
        "hub_config.HubConfig.__init__ = init\n"
    )
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "hostile.campaign", "60", "--within", "--kind", "tokenizer"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    crashes = json.loads(done.stdout.splitlines()[-1])["crashes"]
    assert len([crash for crash in crashes if "KeyError: 'crash'" in crash]) > 3
