"""The hub with the client of today: these tests' neighbours once more, in a process that has it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forking import run

HERE = Path(__file__).parent
# the type checker of the tests, for what the process it is forked from has imported without
CODE = """
import importlib, sys
import checked, huggingface_hub, pytest
assert int(huggingface_hub.__version__.partition(".")[0]) >= 2, huggingface_hub.__version__
checked.install()
for name in ("client", "transfers", "models"):
    module = sys.modules.get(f"bertsmith.hub.{name}")
    if module is None:  # a process of its own, in which it is imported with the checker
        continue
    for item in [item for item in vars(module) if not item.startswith("__")]:
        delattr(module, item)
    importlib.reload(module)
sys.exit(pytest.main(sys.argv[1:]))
"""
# what does not reach the client
OURS = "not card and not names and not revisions and not wrote and not dry_run"
# what is decided before the client is asked for a file, or after it has brought it; files that are
# asked for as others are; and what is sent, or answered by the server, as others are
DECIDED = "not index_that and not terabyte and not no_room and not no_model and not not_load"
ALIKE = (
    "not settings_that and not vocabulary_alone and not preferred and not pickled "
    "and not another_program and not quantized and not lead_out and not only_the_models "
    "and not sentence_transformers and not weights_of_an_earlier and not nothing_can_be_noted"
)


@pytest.mark.parametrize(
    "chosen",
    [f"{OURS} and {DECIDED} and {ALIKE}", pytest.param(OURS, marks=pytest.mark.faults)],
)
def test_fetching_and_sending_with_huggingface_hub_2(
    transformers5_folder: Path, chosen: str
) -> None:
    pytest.importorskip("huggingface_hub")
    paths = [str(path) for path in (transformers5_folder, HERE.parents[1] / "src", HERE.parent)]
    tests = [str(HERE / name) for name in ("test_hub_fetching.py", "test_hub_push.py")]
    done = run(
        [
            *(sys.executable, "-c", CODE, "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"),
            *(*tests, "-k", chosen),
        ],
        cwd=HERE.parents[1],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
