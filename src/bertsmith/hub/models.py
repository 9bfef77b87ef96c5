"""A model by name: a folder, or `hub:owner/name@revision`, which is fetched into the hub's cache.

The only place from which the network is reached, and only for what begins with `hub:`. Every file
is checked against the hash that the hub tells of it. Without a network, the cache serves.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from bertsmith.core.errors import DiskError, HubError, ModelFolderError
from bertsmith.core.log import progress, say, short_number
from bertsmith.hub.client import HubUnreachable, hub_api, is_offline, talking
from bertsmith.hub.files import (
    PICKLED_FILE,
    Purpose,
    index_file,
    settings_files,
    weights_files,
)
from bertsmith.hub.transfers import RemoteFile, fetch

PREFIX = "hub:"
_NAME = re.compile(
    r"(?P<repository>(?:\w[\w.-]{0,95}/)?\w[\w.-]{0,95})(?:@(?P<revision>\w[\w./-]{0,200}))?",
    re.ASCII,
)
_LIKELY_MEANT = re.compile(r"\w[\w.-]*/\w[\w.-]*(?:@[\w./-]+)?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PAUSE = 10.0  # seconds to wait for the hub's first answer
_LARGEST_SETTINGS = 64 * 2**20


class HubName(NamedTuple):
    """A repository of the hub, at a branch, a tag or a commit."""

    repository: str
    revision: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}@{self.revision}"


def hub_name(name: str | Path) -> HubName | None:
    """The hub's repository that a name means, None for a folder; `HubError` if it can be none."""
    if not str(name).startswith(PREFIX):
        return None
    found = _NAME.fullmatch(str(name).removeprefix(PREFIX))
    if found is None or ".." in str(name) or "--" in found["repository"]:
        raise HubError(
            "is no name of the hub's", where=name, remedy="write hub:owner/name, or with @revision"
        )
    return HubName(found["repository"], found["revision"] or "main")


def model_folder(name: str | Path, purpose: Purpose = "model") -> Path:
    """The folder of a model, fetched first where the name begins with `hub:`.

    Of a repository only what the purpose needs is fetched, never code, and pickled weights only for
    a conversion. Raises `HubError`, `ModelFolderError` or `MissingExtra`.
    """
    repository = hub_name(name)
    if repository is not None:
        return _from_hub(repository, purpose)
    if _LIKELY_MEANT.fullmatch(str(name)) and not Path(name).parent.exists():
        raise ModelFolderError(
            "no such folder", where=name, remedy=f"for a model of the hub write {PREFIX}{name}"
        )
    return Path(name)


def origin(folder: Path) -> str | None:
    """What a folder of the hub's cache is called, with its commit; None for any other folder."""
    commit, repository = folder.resolve().name, folder.resolve().parent.parent.name
    if folder.resolve().parent.name != "snapshots" or not repository.startswith("models--"):
        return None
    return f"{PREFIX}{repository.removeprefix('models--').replace('--', '/')}@{commit}"


@cache
def _from_hub(name: HubName, purpose: Purpose) -> Path:
    """Once in a process: one commit for all that is done with a name."""
    api = hub_api()
    if _COMMIT.fullmatch(name.revision) and (found := _cached(name, purpose)):
        say(f"{name}: from the cache")
        return found
    if is_offline():
        return _cached(name, purpose) or _missing(name)
    try:
        with talking(str(name)):
            told = api.model_info(
                name.repository, revision=name.revision, files_metadata=True, timeout=_PAUSE
            )
            commit, listing = str(told.sha), [RemoteFile.of(each) for each in told.siblings or ()]
    except HubUnreachable as unreachable:
        found = _cached(name, purpose)
        if found is None:
            raise
        say(f"{name}: {unreachable.what}; going on with commit {found.name} from the cache")
        return found
    if not _COMMIT.fullmatch(commit):
        raise HubError("the hub tells no commit", where=str(name))
    folder = _download(name, commit, {file.name: file for file in listing}, purpose)
    _note_commit(folder, name.revision)
    return folder


def _download(name: HubName, commit: str, listing: dict[str, RemoteFile], purpose: Purpose) -> Path:
    """The snapshot folder with all files there, the weights last."""
    settings, index = settings_files(listing, purpose), index_file(listing, purpose)
    if purpose != "vocabulary" and "config.json" not in listing:
        raise ModelFolderError("holds no config.json", where=str(name))
    for each in settings:
        if listing[each].size > _LARGEST_SETTINGS:
            raise ModelFolderError(f"{each} is larger than 64 MiB", where=str(name))
    folder = _snapshots(name) / commit
    _fetch_all(name, commit, [listing[each] for each in settings])
    weights = weights_files(listing, purpose, folder / index if index else None)
    if not weights and purpose != "vocabulary":
        _refuse_weights(name, listing)
    total = _fetch_all(name, commit, [listing[each] for each in weights])
    say(f"{name}: commit {commit}, {short_number(total)}B of weights")
    return folder


def _fetch_all(name: HubName, commit: str, files: list[RemoteFile]) -> int:
    """Fetch files that are not in the cache yet; the bytes of all of them."""
    total = sum(file.size for file in files)
    missing = [file for file in files if not (_snapshots(name) / commit / file.name).exists()]
    needed = sum(file.size for file in missing)
    there = next(path for path in _snapshots(name).parents if path.exists())
    if needed > shutil.disk_usage(there).free:
        raise DiskError(
            f"has no room for the {short_number(needed)}B of {name}",
            where=there,
            remedy="make room, or name another place by HF_HOME",
        )
    if missing:
        with progress(f"downloading {name.repository}", needed, "B") as bar:
            fetch(str(name), name.repository, commit, missing, bar)
    return total


def _cached(name: HubName, purpose: Purpose) -> Path | None:
    """The folder of a revision in the cache, if all that the purpose needs is there."""
    commit = name.revision
    if not _COMMIT.fullmatch(commit):
        try:
            commit = (_snapshots(name).parent / "refs" / name.revision).read_text("utf-8").strip()
        except (OSError, ValueError):
            return None
    folder = _snapshots(name) / commit
    if not _COMMIT.fullmatch(commit) or not folder.is_dir():
        return None
    listing = {path.relative_to(folder).as_posix() for path in folder.glob("**/*")}
    index = index_file(listing, purpose)
    try:
        weights = weights_files(listing, purpose, folder / index if index else None)
    except ModelFolderError:
        return None
    tokenizer = {"vocab.txt", "tokenizer.json", "vocab.json", "spiece.model"} & listing
    whole = bool(tokenizer) and (purpose == "vocabulary" or bool(weights))
    return folder if whole else None


def _snapshots(name: HubName) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    repository = repo_folder_name(repo_id=name.repository, repo_type="model")
    return Path(constants.HF_HUB_CACHE) / repository / "snapshots"


def _note_commit(folder: Path, revision: str) -> None:
    """Let the cache know what a branch or tag was, as the client does, for when there is no net."""
    if revision != folder.name:
        path = folder.parent.parent / "refs" / revision
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(folder.name, encoding="utf-8")


def _missing(name: HubName) -> NoReturn:
    raise HubError(
        "is not in the cache, and HF_HUB_OFFLINE is set",
        where=str(name),
        remedy="unset it to download the model once, or name a folder",
    )


def _refuse_weights(name: HubName, listing: Collection[str]) -> NoReturn:
    pickled = [each for each in listing if each.startswith(PICKLED_FILE)]
    if pickled:
        raise ModelFolderError(
            "holds pickled weights only, which can run code when they are opened",
            where=str(name),
            remedy=f"make safetensors of them with: bertsmith convert {name} OUT",
        )
    raise ModelFolderError("holds no weights that can be read", where=str(name))
