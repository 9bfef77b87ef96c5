"""Folders whose files were changed by chance: a `UserError` or a model that works, nothing else."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import campaigns
from hostile.campaign import KINDS, Asked, Tally
from hostile.mutations import mutated_bytes, mutated_json, mutated_lines

MAX_MEMORY = 2**30
MAX_SECONDS = 2.0  # of the processor, for one folder
FEW, MANY = 50, {"config": 8000, "tokenizer": 8000, "header": 8000, "sentence": 2500}


def check(tally: Tally, cases: int) -> None:
    assert tally.crashes == []
    assert tally.cases == cases
    assert tally.grown < MAX_MEMORY
    assert tally.slowest < MAX_SECONDS, tally.slowest_case
    # were all refused at the door, little would have been tried
    assert tally.loaded > 0.01 * cases
    assert sum(tally.refused.values()) > 0.1 * cases


@pytest.fixture(scope="module")
def campaign() -> Iterator[Asked]:
    """The process that runs the cases."""
    here = Path(__file__).parents[1]
    paths = [str(here.parent / "src"), str(here), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        with Asked() as process:
            yield process


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_mutated_folders(campaign: Asked, kind: str) -> None:
    check(campaign.run(kind, 0, FEW), FEW)


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_very_many_mutated_folders(
    campaign: Asked, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first 26,500 cases, or as many of other numbers; parts 0-3 are 106,000 (campaigns.py)."""
    cases = campaigns.numbers(MANY[kind])
    total = campaign.run(kind, cases.start, len(cases))
    with capsys.disabled():
        sys.stderr.write(f"{kind}: {json.dumps(total.__dict__)}\n")
    check(total, len(cases))


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


SPOILT = """
import bertsmith.weights.config_json as hub_config
honest = hub_config.HubConfig.__init__
def init(self, path):
    honest(self, path)
    if path.stat().st_size % 3 == 0:
        raise KeyError('crash')
    if path.stat().st_size % 31 == 0:
        bytearray(2**31)
hub_config.HubConfig.__init__ = init
"""


def test_what_crashes_is_counted(campaign: Asked) -> None:
    """A reader that lets anything out, or runs out of memory, must not pass for a good one."""
    crashes = campaign.run("tokenizer", 0, 40, before=SPOILT).crashes
    assert len([crash for crash in crashes if "KeyError: 'crash'" in crash]) > 3


def test_a_process_that_dies_is_counted(campaign: Asked) -> None:
    (crash,) = campaign.run("tokenizer", 0, 1, before="import os; os.kill(os.getpid(), 9)").crashes
    assert "died -9" in crash
