"""Models by name: a folder, or `hub:owner/name@revision`, downloaded into the hub's cache.

The network is used nowhere else, and only for names that begin with `hub:`. Every file is checked
against the hash in the hub's listing. Without a network, the cache is used.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from bertsmith.core.errors import DiskError, HubError, ModelFolderError
from bertsmith.core.files import canonical, read_json, write_json
from bertsmith.core.log import progress, say, short_number
from bertsmith.core.printable import shell_word
from bertsmith.hub.client import HubUnreachable, client_errors, hub_api, is_offline
from bertsmith.hub.transfers import (
    PICKLED_FILE,
    Purpose,
    RemoteFile,
    fetch,
    index_file,
    settings_files,
    weights_files,
)
from bertsmith.tokens.folder.files import VOCABULARY_FILES

PREFIX = "hub:"
_NAME = re.compile(
    r"(?P<repository>(?:\w[\w.-]{0,95}/)?\w[\w.-]{0,95})(?:@(?P<revision>\w[\w./-]{0,200}))?",
    re.ASCII,
)
_LIKELY_MEANT = re.compile(r"\w[\w.-]*/\w[\w.-]*(?:@[\w./-]+)?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MODULES = "modules.json"
_PAUSE = 10.0  # seconds to wait for the hub's first answer
_MAX_SETTINGS_BYTES = 64 * 2**20


class HubName(NamedTuple):
    """A repository of the hub, at a branch, a tag or a commit."""

    repository: str
    revision: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}@{self.revision}"


def hub_name(name: str | Path) -> HubName | None:
    """Parse the name of a hub repository; None for a folder. Raises `HubError` if it is invalid."""
    if not str(name).startswith(PREFIX):
        return None
    match = _NAME.fullmatch(str(name).removeprefix(PREFIX))
    if match is None or ".." in str(name) or "--" in match["repository"]:
        raise HubError(
            "is not a valid name of a hub model",
            where=name,
            remedy="write hub:owner/name or hub:owner/name@revision",
        )
    return HubName(match["repository"], match["revision"] or "main")


def model_folder(name: str | Path, purpose: Purpose = "model") -> Path:
    """Return the folder of a model, downloaded first if the name begins with `hub:`.

    Only the files that the purpose needs are downloaded, never code, and pickled weights only for a
    conversion. Raises `HubError`, `ModelFolderError` or `MissingExtra`.
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
    """Return the hub name and commit of a folder in the hub's cache; None for any other folder."""
    place = canonical(folder)
    commit, repository = place.name, place.parent.parent.name
    if place.parent.name != "snapshots" or not repository.startswith("models--"):
        return None
    return f"{PREFIX}{repository.removeprefix('models--').replace('--', '/')}@{commit}"


@cache
def _from_hub(name: HubName, purpose: Purpose) -> Path:
    """Download a model, once in a process, so that a name always means one commit."""
    api = hub_api()
    cached = _cached(name, purpose)
    if cached and _COMMIT.fullmatch(name.revision) and _is_whole(cached, purpose):
        say(f"{name}: from the cache")
        return cached
    if is_offline():
        if cached is not None:
            _report_gaps(name, cached, purpose)
            return cached
        raise HubError(
            "is not in the cache, and HF_HUB_OFFLINE is set",
            where=str(name),
            remedy="unset it to download the model once, or name a folder",
        )
    try:
        with client_errors(str(name)):
            info = api.model_info(
                name.repository, revision=name.revision, files_metadata=True, timeout=_PAUSE
            )
            commit, listing = str(info.sha), [RemoteFile.of(item) for item in info.siblings or ()]
    except HubUnreachable as unreachable:
        if cached is None:
            raise
        say(f"{name}: {unreachable.problem}; using commit {cached.name} from the cache")
        _report_gaps(name, cached, purpose)
        return cached
    if not _COMMIT.fullmatch(commit):
        raise HubError("the hub's answer names no commit", where=str(name))
    folder = _download(name, commit, {file.name: file for file in listing}, purpose)
    _note_commit(folder, name.revision)
    return folder


def _download(name: HubName, commit: str, listing: dict[str, RemoteFile], purpose: Purpose) -> Path:
    """Download all files, the weights last, and return the snapshot folder."""
    settings, index = settings_files(listing, purpose), index_file(listing, purpose)
    if purpose != "vocabulary" and "config.json" not in listing:
        raise ModelFolderError("holds no config.json", where=str(name))
    for file in settings:
        if listing[file].size > _MAX_SETTINGS_BYTES:
            raise ModelFolderError(f"{file} is larger than 64 MiB", where=str(name))
    folder = _snapshots(name) / commit
    checked = _noted_files(folder, purpose)
    _fetch_all(name, commit, [listing[file] for file in settings], checked)
    weights = weights_files(listing, purpose, folder / index if index else None)
    if not weights and purpose != "vocabulary":
        _refuse_weights(name, listing)
    total = _fetch_all(name, commit, [listing[file] for file in weights], checked)
    _note_files(folder, purpose, [*settings, *weights])
    say(f"{name}: commit {commit}, {short_number(total)}B of weights")
    return folder


def _fetch_all(
    name: HubName, commit: str, files: list[RemoteFile], checked: Collection[str]
) -> int:
    """Download files that are not in the cache yet, and check those that are there unchecked.

    Returns the bytes of all of them. Other programs fill the cache too, and this one may have been
    killed before it had checked a file.
    """
    folder = _snapshots(name) / commit
    missing = [file for file in files if not (folder / file.name).exists()]
    unchecked = [file for file in files if file in missing or file.name not in checked]
    needed = sum(file.size for file in missing)
    existing = next(path for path in _snapshots(name).parents if path.exists())
    if needed > shutil.disk_usage(existing).free:
        raise DiskError(
            f"has too little free space for the {short_number(needed)}B of {name}",
            where=existing,
            remedy="free some space, or set HF_HOME to another folder",
        )
    if unchecked:
        what = f"{'downloading' if missing else 'checking'} {name.repository}"
        with progress(what, sum(file.size for file in unchecked), "B") as bar:
            fetch(str(name), name.repository, commit, unchecked, bar)
    return sum(file.size for file in files)


def _cached(name: HubName, purpose: Purpose) -> Path | None:
    """Return the cached folder of a revision, None unless it holds all that the purpose needs."""
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
    tokenizer = listing & set(VOCABULARY_FILES)
    complete = bool(tokenizer) and (purpose == "vocabulary" or bool(weights))
    return folder if complete else None


def _record_of(folder: Path, purpose: Purpose) -> Path:
    """Return the path of the record of what a commit in the cache has for a purpose."""
    return folder.parent.parent / "bertsmith" / f"{folder.name}-{purpose}.json"


def _note_files(folder: Path, purpose: Purpose, files: Collection[str]) -> None:
    """Record what was downloaded and checked: other programs fill the cache with what they need."""
    record = _record_of(folder, purpose)
    # a cache that many share may be one to read only
    with suppress(OSError, DiskError):
        record.parent.mkdir(exist_ok=True)
        write_json(record, {"files": sorted(files)})


def _noted_files(folder: Path, purpose: Purpose) -> frozenset[str]:
    """Return the files that were downloaded and checked, as far as that is known."""
    try:
        record = read_json(_record_of(folder, purpose), ModelFolderError, largest=2**20)
    except ModelFolderError:
        return frozenset()
    files = record.get("files")
    known = isinstance(files, list) and all(isinstance(file, str) for file in files)
    return frozenset(files) if known else frozenset()


def _is_whole(folder: Path, purpose: Purpose) -> bool:
    """Return whether all that the hub has for a purpose is known to be in the cache."""
    files = _noted_files(folder, purpose)
    return bool(files) and all((folder / file).is_file() for file in files)


def _report_gaps(name: HubName, folder: Path, purpose: Purpose) -> None:
    """Warn that a model may be one of sentence-transformers, whose files others do not download."""
    noted_absent = folder.parent.parent / ".no_exist" / folder.name / _MODULES
    known = (folder / _MODULES).exists() or noted_absent.exists() or _is_whole(folder, purpose)
    if purpose == "model" and not known:
        say(
            f"{name}: another program filled the cache, without looking for {_MODULES}: if the "
            "model has one, its vectors are not pooled as it says"
        )


def _snapshots(name: HubName) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    repository = repo_folder_name(repo_id=name.repository, repo_type="model")
    return Path(constants.HF_HUB_CACHE) / repository / "snapshots"


def _note_commit(folder: Path, revision: str) -> None:
    """Record the commit of a branch or tag in the cache, as the client does, for use offline."""
    if revision != folder.name:
        path = folder.parent.parent / "refs" / revision
        # a cache that many share may be one to read only
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(folder.name, encoding="utf-8")


def _refuse_weights(name: HubName, listing: Collection[str]) -> NoReturn:
    pickled = [file for file in listing if file.startswith(PICKLED_FILE)]
    if pickled:
        raise ModelFolderError(
            "holds only pickled weights, which can run code when they are opened",
            where=str(name),
            remedy=f"convert them to safetensors with: bertsmith convert {shell_word(name)} OUT",
        )
    raise ModelFolderError("holds no weights that can be read", where=str(name))
