from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.core.errors import HubError, ModelFolderError
from bertsmith.hub.models import HubName, hub_name, model_folder, origin


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hub:owner/name", HubName("owner/name", "main")),
        (Path("hub:owner/name"), HubName("owner/name", "main")),
        ("hub:owner/name@v1.0", HubName("owner/name", "v1.0")),
        ("hub:o_1/n.a-me@refs/pr/1", HubName("o_1/n.a-me", "refs/pr/1")),
        ("hub:name", HubName("name", "main")),
        ("owner/name", None),
        ("./hub:owner/name", None),
    ],
)
def test_what_begins_with_hub_is_a_name_of_the_hub(name: str | Path, found: HubName | None) -> None:
    assert hub_name(name) == found


@pytest.mark.parametrize(
    "name",
    [
        "hub:", "hub:/", "hub:a/b/c", "hub:../x", "hub:a/..", "hub:a/b@", "hub:a/b@../x",
        "hub:a b/c", "hub:a--b/c", "hub:a/b@x@y", "hub:http://a/b", "hub:a/b\n", "hub:ä/b",
        "hub:" + 200 * "a",
    ],
)  # fmt: skip
def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(HubError, match="is not a valid name of a hub model"):
        model_folder(name)


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert model_folder(tmp_path) == tmp_path
    assert model_folder(str(tmp_path / "nowhere")) == tmp_path / "nowhere"
    assert origin(tmp_path) is None


def test_what_looks_like_a_name_of_the_hub_gets_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFolderError, match=r"no such folder; .* write hub:owner/name"):
        model_folder("owner/name")
    # in a run's folder it is the folder that is misspelled
    Path("run").mkdir()
    assert model_folder("run/modle") == Path("run/modle")
