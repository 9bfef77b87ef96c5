"""The largest real files of labelled data have their published sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.text.examples.formats.conll import read_tagged
from bertsmith.text.examples.glue import TASKS, read_glue

pytestmark = pytest.mark.faults


def test_sst_2(data_folder: Path) -> None:
    task = TASKS["SST-2"]
    path = data_folder / "glue" / "SST-2" / "train.tsv"
    assert sum(1 for _ in read_glue(path, task, "train")) == task.sizes["train"]


def test_conll_2003(data_folder: Path) -> None:
    found = list(read_tagged(data_folder / "conll2003" / "train.txt", need_tags=True))
    assert (len(found), sum(len(result.words) for result in found)) == (14_041, 203_621)
    assert sum(len(result.entities or ()) for result in found) == 23_499
    assert len({result.document for result in found}) == 946
