"""Nothing changed that should not: goldens equal what is committed in values/.

`python -m goldens.write` rewrites them (`make goldens`) and shows the differences; `make same`
compares losses with an earlier commit bit for bit.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goldens.losses import Laboratory, cells, quiet_laboratory
from goldens.making import MAKERS, VALUES, written
from goldens.same import LIBRARY, compile_kernels, differences, kernel_variables

QUICK = (
    "fp32/bert/next_sentence", "fp32/albert/sentence_order", "fp32/modernbert/within_documents",
    "fp32/bert/classify", "fp32/distilbert/tag", "fp32/roberta/span", "fp32/modernbert/classify",
    "fp32/electra/replaced_tokens",
)  # fmt: skip
"""The cells that are trained whenever tests run; `make faults` trains the others."""


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    with quiet_laboratory() as made, pytest.MonkeyPatch.context() as patch:
        # what the speed is measured with beforehand, on a copy of the model, changes no value
        patch.setattr("bertsmith.recipes.pretrain.speed.TRIAL_STEPS", 1)
        yield made


def committed(name: str) -> Any:  # noqa: ANN401
    file = VALUES / f"{name}.json"
    if not file.exists():
        pytest.skip(f"values/{name}.json is not there: make goldens writes it")
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", list(MAKERS))
def test_goldens_are_as_committed(name: str, laboratory: Laboratory) -> None:
    expected = committed(name)
    assert json.loads(written(MAKERS[name](laboratory))) == expected


def test_ids_do_not_depend_on_vector_code() -> None:
    """Without the instructions that younger chips have, whatever this one has."""
    multiarray = importlib.import_module("numpy._core._multiarray_umath")
    found = [name for name in multiarray.__cpu_dispatch__ if multiarray.__cpu_features__[name]]
    older = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(found),
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    code = (
        "import json, sys\n"
        "from goldens.losses import quiet_laboratory\n"
        "from goldens.making import MAKERS\n"
        "with quiet_laboratory() as made:\n"
        "    json.dump({name: MAKERS[name](made) for name in sys.argv[1:]}, sys.stdout)"
    )
    names = ("token_ids", "store", "batches")
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(command, env=os.environ | older, capture_output=True, check=True)
    assert json.loads(done.stdout) == {name: committed(name) for name in names}


def check_losses(name: str, laboratory: Laboratory) -> None:
    """Losses and norms of the gradient, to 1e-4: their last bits differ by chip."""
    expected = committed("losses")[name]
    rows = laboratory.cell(name)
    assert [sorted(row) for row in rows] == [sorted(row) for row in expected]
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("name", QUICK)
def test_losses_are_as_committed(name: str, laboratory: Laboratory) -> None:
    check_losses(name, laboratory)


@pytest.mark.faults
@pytest.mark.parametrize("name", [c for c in cells() if c[:4] == "fp32" and c not in QUICK])
def test_all_losses_are_as_committed(name: str, laboratory: Laboratory) -> None:
    check_losses(name, laboratory)


def test_a_single_bit_is_told_as_a_difference() -> None:
    before = {"a": [{"loss": 1.0}, {"loss": 2.0}], "b": [], "same": [{"loss": 3.0}]}
    after = {"a": [{"loss": 1.0}, {"loss": 2.0000000000000004}], "c": [], "same": [{"loss": 3.0}]}
    told = ["a: differs from step 2", "b: only before", "c: only after"]
    assert differences(before, after) == told


def test_both_revisions_use_their_own_kernels_or_neither_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, tree = tmp_path / "here", tmp_path / "tree"
    for folder in (here, tree):
        (folder / LIBRARY).parent.mkdir(parents=True)
    assert compile_kernels(tree) == "the revision has none"
    script = tree / "hatch_build.py"
    script.write_text("import sys\nsys.exit('there is no C++ compiler')\n")
    reason = compile_kernels(tree)
    assert kernel_variables(reason, here) == {"BERTSMITH_KERNELS": "none"}
    assert "neither side uses native kernels: there is no C++ compiler" in capsys.readouterr().out
    script.write_text(f"open({LIBRARY!r}, 'w').close()\n")
    reason = compile_kernels(tree)
    assert (reason, (tree / LIBRARY).is_file()) == ("", True)
    assert kernel_variables(reason, here) == {"BERTSMITH_KERNELS": "none"}
    assert "are not compiled: python hatch_build.py" in capsys.readouterr().out
    (here / LIBRARY).touch()
    assert kernel_variables(reason, here) == {}
