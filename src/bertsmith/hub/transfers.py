"""Resumable, verified downloads of a commit's files into the hub's cache, and uploads.

Only the files that make up a model are transferred: code and pickles never are, except that a
conversion may download pickled weights if there are no others. Recent clients resume by themselves
while they run, and keep nothing of an unfinished file. Older ones leave a partial file, from which
the next attempt resumes."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertsmith.core.errors import HubError, ModelFolderError
from bertsmith.core.files import file_hash, open_regular, read_json
from bertsmith.core.log import Bar, progress, say
from bertsmith.hub.client import HubUnreachable, client_errors, hub_api
from bertsmith.tokens.folder.files import TOKENIZER_FILES

Purpose = Literal["model", "vocabulary", "conversion"]

PICKLED_FILE = "pytorch_model.bin"
_WEIGHTS = {
    "model": ("model.safetensors",),
    "vocabulary": (),
    "conversion": (
        "model.safetensors",
        PICKLED_FILE,
        "model.fp16.safetensors",
        "model.bf16.safetensors",
        "pytorch_model.fp16.bin",
    ),
}
# literals, as the modules that read these files import torch
_SETTINGS = (
    "config.json", "bertsmith_quantized.json", "modules.json", "sentence_bert_config.json",
    "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
    "config_sentence_transformers.json", *TOKENIZER_FILES,
)  # fmt: skip
# the modules of sentence-transformers after the encoder: 1_Pooling, 2_Dense, 2_Dense_1024
_MODULE = r"\d{1,2}_\w{1,60}/"
_BEHIND = re.compile(rf"{_MODULE}(config\.json|model\.safetensors)", re.ASCII)
_PICKLED_BEHIND = re.compile(rf"({_MODULE}){re.escape(PICKLED_FILE)}", re.ASCII)
_SHARD = r"(-\d{5}-of-\d{5})?"
_PART_OF_WEIGHTS = re.compile(rf"model{_SHARD}\.safetensors(\.index\.json)?")
# the weights of a model for other programs, and adapters, which transformers adds to it
_OTHER_WEIGHTS = re.compile(
    rf"(pytorch_model(\.\w+)?{_SHARD}\.bin|model\.\w+{_SHARD}\.safetensors"
    rf"|tf_model{_SHARD}\.h5|flax_model{_SHARD}\.msgpack)(\.index(\.\w+)?\.json)?"
    r"|model\.safetensors\.index\.\w+\.json|rust_model\.ot|[\w.-]+\.(gguf|tflite)"
    r"|adapter_(config\.json|model\.(bin|safetensors))"
    r"|(onnx/)?[\w.-]+\.onnx([._]data)?|(openvino/)?openvino_model\w*\.(bin|xml)"
    rf"|{_MODULE}{re.escape(PICKLED_FILE)}",
    re.ASCII,
)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
_MAX_INDEX_BYTES = 8 * 2**20


def settings_files(listing: Collection[str], purpose: Purpose) -> list[str]:
    """Return the files needed before the weights: config, tokenizer, index of the weights."""
    wanted = [name for name in _SETTINGS if name in listing]
    index = index_file(listing, purpose)
    return [*wanted, index] if index else wanted


def index_file(listing: Collection[str], purpose: Purpose) -> str | None:
    """Return the index of sharded weights, None if they are in one file."""
    for file_name in _WEIGHTS[purpose]:
        if file_name in listing:
            return None
        if f"{file_name}.index.json" in listing:
            return f"{file_name}.index.json"
    return None


def weights_files(listing: Collection[str], purpose: Purpose, index: Path | None) -> list[str]:
    """Return the files of weights, none if none may be read.

    `index` is the local path of the file named by `index_file`. Raises `ModelFolderError` if it is
    not an index or names missing files.
    """
    single_file = next((name for name in _WEIGHTS[purpose] if name in listing), None)
    names = _named_in(index, listing) if index else [single_file] if single_file else []
    if not names or "modules.json" not in listing:
        return names
    names += sorted(name for name in listing if _BEHIND.fullmatch(name))
    if purpose != "conversion":
        return names
    pickled = filter(None, map(_PICKLED_BEHIND.fullmatch, sorted(listing)))
    return names + [item[0] for item in pickled if f"{item[1]}model.safetensors" not in listing]


def of_a_model(name: str) -> bool:
    """Return whether a file is part of a model that is read here."""
    patterns = (_PART_OF_WEIGHTS, _BEHIND)
    return name in _SETTINGS or any(pattern.fullmatch(name) for pattern in patterns)


def of_another_program(name: str) -> bool:
    """Return whether a file is the weights of a model for another program."""
    return _OTHER_WEIGHTS.fullmatch(name) is not None


def _named_in(index: Path, listing: Collection[str]) -> list[str]:
    try:
        table = read_json(index, ModelFolderError, largest=_MAX_INDEX_BYTES)["weight_map"]
        names = sorted(set(table.values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError("is not an index of weights", where=index) from error
    kind = Path(index.name.removesuffix(".index.json")).suffix
    for name in names:
        plain = isinstance(name, str) and _PLAIN.fullmatch(name) and name.endswith(kind)
        if not plain or name not in listing:
            raise ModelFolderError(f"names {str(name)[:80]!r}, which is missing", where=index)
    return names


_POLL_SECONDS = 0.2


class RemoteFile(NamedTuple):
    """A file in the hub's listing: its hash is SHA-256 if it is `large`, else git's blob hash."""

    name: str
    size: int
    hash: str
    large: bool

    @classmethod
    def of(cls, entry: Any) -> RemoteFile:  # noqa: ANN401
        """Convert an entry of the client's listing."""
        if entry.lfs is not None:
            return cls(str(entry.rfilename), int(entry.lfs.size), str(entry.lfs.sha256), True)
        return cls(str(entry.rfilename), int(entry.size), str(entry.blob_id), False)


def fetch(
    subject: str, repository: str, commit: str, files: Sequence[RemoteFile], bar: Bar
) -> None:
    """Download all files that are not in the cache, and check every one.

    Raises `HubError` about `subject`, or `DiskError`.
    """
    done = 0
    for file in files:
        path = _download(subject, repository, commit, file, bar, done)
        if _hash_of(path, file) != file.hash:
            # a cache that many share may be one to read only
            with suppress(OSError):
                path.resolve().unlink()
                # no link, but the file itself, where the disk has no links
                path.unlink(missing_ok=True)
            raise HubError(
                f"{file.name} does not match the hub's hash: it was damaged in transfer",
                where=subject,
                remedy="give the same command again",
            )
        done += file.size
        bar.move_to(done)


def _download(
    subject: str, repository: str, commit: str, file: RemoteFile, bar: Bar, done: int
) -> Path:
    """Download one file, retrying for as long as attempts make progress."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = repo_folder_name(repo_id=repository, repo_type="model")
    blobs = Path(constants.HF_HUB_CACHE, folder, "blobs")
    part = blobs / f"{file.hash}.incomplete"
    if _unfinished(blobs, file) > file.size:
        part.unlink(missing_ok=True)
    while True:
        before = _unfinished(blobs, file)
        try:
            with client_errors(subject), _watched(blobs, file, bar, done):
                return Path(hub_api().hf_hub_download(repository, file.name, revision=commit))
        except HubUnreachable as broken:
            if _unfinished(blobs, file) > before:
                continue
            if before:
                raise HubError(
                    f"the download of {file.name} was interrupted",
                    where=subject,
                    remedy="give the same command again",
                ) from broken
            raise


@contextmanager
def _watched(blobs: Path, file: RemoteFile, bar: Bar, done: int) -> Iterator[None]:
    """Advance a bar as an unfinished file grows: no hook of the client is in all its versions."""
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            bar.move_to(done + _unfinished(blobs, file))

    watcher = threading.Thread(target=poll, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _unfinished(blobs: Path, file: RemoteFile) -> int:
    """Return the bytes of an unfinished download; recent clients add random letters to its name."""
    sizes = [0]
    with suppress(OSError):
        for part in blobs.glob(f"{file.hash}*.incomplete"):
            with suppress(OSError):
                sizes.append(part.stat().st_size)
    return max(sizes)


def _hash_of(path: Path, file: RemoteFile) -> str:
    if file.large:
        return file_hash(path)
    git = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with open_regular(path) as blob:
        return hashlib.file_digest(blob, lambda: git).hexdigest()


def send(
    folder: Path,
    files: Sequence[str],
    repository: str,
    *,
    private: bool,
    revision: str | None,
    message: str,
) -> str:
    """Upload the files as one commit, creating the repository and the branch if needed.

    Files of an earlier model that this one lacks are deleted: they would be loaded with it, or in
    its place. Returns the commit's URL. Raises `HubError`, before anything is uploaded if `private`
    is set and the repository is public, and `ModelFolderError` for a link that leads out of the
    folder.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    from bertsmith.weights.folder import check_file

    # opening the folder has checked those that it read
    for name in files:
        check_file(folder / name, folder.resolve())
    api, total = hub_api(), sum((folder / name).stat().st_size for name in files)
    with (
        client_errors(repository),
        progress(f"uploading to {repository}", total, "B") as bar,
        ExitStack() as opened,
    ):
        api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise HubError(
                "already exists and is public",
                where=repository,
                remedy="make it private on its page, choose another name, or omit --private",
            )
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        info = api.model_info(repository, revision=revision, files_metadata=True)
        stale = _stale(folder, files, [RemoteFile.of(item) for item in info.siblings or ()])
        # hashed here, uploaded below
        files_open = [opened.enter_context(_CountedFile(folder / name)) for name in files]
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(name, file) for name, file in zip(files, files_open, strict=True)
        ]
        operations += [CommitOperationDelete(name) for name in stale]
        for file in files_open:
            file.moved = bar.advance
        made = api.create_commit(repository, operations, commit_message=message, revision=revision)
    if stale:
        say(f"deleted there, as of the model that was there before: {', '.join(stale)[:200]}")
    return str(made.commit_url)


def _stale(folder: Path, files: Collection[str], existing: Collection[RemoteFile]) -> list[str]:
    """Return those of the files that exist on the hub that are of another model than a folder's.

    Weights for other programs may have been made of the same model, if its own are there already.
    """
    known = {file.name: file for file in existing}
    same = all(
        name in known and _hash_of(folder / name, known[name]) == known[name].hash
        for name in files
        if name.endswith(".safetensors")
    )
    return sorted(
        name
        for name in known
        if name not in files and (of_a_model(name) or (of_another_program(name) and not same))
    )


class _CountedFile(io.BufferedReader):
    """A file that reports how much of it has been read."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.moved: Callable[[float], None] | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        """Read and count bytes."""
        block = super().read(size)
        if self.moved is not None:
            self.moved(len(block))
        return block
