"""Files that were in the cache before bertsmith looked at them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.core.errors import HubError
from bertsmith.hub import models as names
from bertsmith.hub.models import model_folder
from hub.fake_hub import FakeHub, Files

NAME, WEIGHTS = "hub:owner/name", "model.safetensors"


@pytest.fixture
def commit(hub: FakeHub, model_files: Files) -> str:
    """A commit in the cache whose weights were damaged on the way, as nobody has noticed.

    Another program has fetched them, or this one was killed before it had looked.
    """
    from huggingface_hub import hf_hub_download

    commit = hub.add("owner/name", model_files)
    hub.garbled = True
    for name in model_files:
        hf_hub_download("owner/name", name)
    hub.garbled = False
    return commit


@pytest.mark.parametrize("by_commit", [False, True])
def test_what_was_in_the_cache_is_checked_against_the_hub(
    hub: FakeHub, commit: str, model_files: Files, by_commit: bool
) -> None:
    name = f"{NAME}@{commit}" if by_commit else NAME
    with pytest.raises(HubError, match=f"{WEIGHTS} does not match the hub's hash"):
        model_folder(name)
    names._from_hub.cache_clear()
    assert (model_folder(name) / WEIGHTS).read_bytes() == model_files[WEIGHTS]


def test_what_was_checked_is_not_read_again(
    hub: FakeHub, model_files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("owner/name", model_files)
    folder = model_folder(NAME)
    names._from_hub.cache_clear()
    damaged = Path(folder / WEIGHTS).resolve()
    damaged.write_bytes(b"no longer what it was")
    # whoever opens it will find out; here every use would take seconds
    assert model_folder(NAME) == folder
