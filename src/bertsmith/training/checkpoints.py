"""Checkpoints: written whole or not at all, and read back past a damaged one.

    step-00001200/
      manifest.json        run, step, size and SHA-256 of every other file, and SHA-256 of all that
      weights.safetensors  the model's parameters
      optimiser.safetensors
      state.json           step, place in the data, seconds
      memory.json          what else the loop remembers

Where several ranks hold tensors in shares, the first two are several files each:

    weights-00001-of-00002.safetensors     rank 0's rows of every tensor, and what is not in shares
    weights-00002-of-00002.safetensors     rank 1's rows

whose headers also say at which row each share begins, in the words of torch's
`HuggingFaceStorageReader`, so that `torch.distributed.checkpoint` reads them too. Its own format
has an index that is a pickle, and knows neither hashes nor a commit.

Written under a temporary name, every file hashed on its way to the disk and flushed, then renamed,
and the folder's own entry flushed. Before a checkpoint is pruned it loses its name, so that what
has one is whole.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from bertsmith.batches import DataPosition
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, RankLost, RunFolderError
from bertsmith.core.files import (
    Record,
    commit,
    file_hash,
    flush_to_disk,
    other_version,
    parse_json,
    read_bytes,
    read_json,
    text_hash,
    write_parts,
    writing,
)
from bertsmith.core.log import say
from bertsmith.training.distribution import ALONE, World, wait_for
from bertsmith.training.run_folder import RUN_FORMAT, RunFolder
from bertsmith.weights.tensors import write_tensors

# names of torch.distributed.checkpoint
_SHARDING, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"


class RankMessages:
    """The synchronisation of a world's ranks to write a checkpoint, each in a separate thread.

    They speak through the launcher's store: operations between ranks belong to the training.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._name = world.new_name("saving")
        self._store = world.store.clone()

    def send(self, key: str, value: object) -> None:
        """Send a JSON value to the other ranks."""
        self._store.set(f"{self._name}/{key}", json.dumps(value))

    def receive(self, key: str) -> Any:  # noqa: ANN401
        """Return another rank's message; raises `RankLost` if one is lost."""
        assert self.world.watch is not None
        value = wait_for(self._store, f"{self._name}/{key}", self.world.watch)
        if not value:
            raise RankLost(self.world.watch.cause)
        return json.loads(value)


class ShardedTensors(Mapping[str, Tensor]):
    """The tensors of several files of shards, each assembled on access."""

    def __init__(self, files: Collection[Path]) -> None:
        self._shares: dict[str, list[tuple[int, Path]]] = {}
        for path in files:
            with safe_open(path, "pt") as file:
                rows = json.loads((file.metadata() or {}).get(_SHARDING, "{}"))
                for name in file.keys():  # noqa: SIM118
                    offsets = rows.get(name, {}).get(_OFFSETS) or [0]
                    self._shares.setdefault(name, []).append((offsets[0], path))

    def __getitem__(self, name: str) -> Tensor:
        shares = []
        for _, path in sorted(self._shares[name]):
            with safe_open(path, "pt") as file:
                shares.append(file.get_tensor(name))
        return torch.cat(shares) if len(shares) > 1 else shares[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shares)

    def __len__(self) -> int:
        return len(self._shares)


def shard_files(kind: str, names: Collection[str]) -> list[str]:
    """Return the files with shares of a kind among these names, [] unless they are all there."""
    pattern = re.compile(rf"{kind}-(\d{{5}})-of-(\d{{5}})\.safetensors")
    matches = [match for match in map(pattern.fullmatch, sorted(names)) if match]
    numbers = [int(result[1]) for result in matches]
    size = {int(result[2]) for result in matches}
    return [result[0] for result in matches] if size == {len(numbers)} else []


def write_shards(
    folder: Path,
    tensors: Mapping[str, Mapping[str, Tensor]],
    rows: Mapping[str, int],
    messages: RankMessages,
) -> dict[str, Record]:
    """Write this rank's tensors, by kind, in a folder that the first rank has made.

    `rows` says where each shard begins. Returns the files written, on the first rank those of all.
    """
    world, name = messages.world, folder.name
    if world.first:
        messages.send(f"{name}/made", True)
    else:
        messages.receive(f"{name}/made")
    records = {}
    for kind, shard in tensors.items():
        file = f"{kind}-{world.rank + 1:05}-of-{world.size:05}.safetensors"
        records[file] = write_tensors(folder / file, shard, _header(shard, rows))
    if not world.first:
        messages.send(f"{name}/{world.rank}", records)
        return records
    for rank in range(1, world.size):
        shards = messages.receive(f"{name}/{rank}")
        records |= {file: Record(*record) for file, record in shards.items()}
    return records


def _header(tensors: Mapping[str, Tensor], rows: Mapping[str, int]) -> dict[str, str]:
    """Return a file's header for the shares in it."""
    offsets = {
        name: {_OFFSETS: [rows.get(name, 0), *[0] * tensor.dim()][: tensor.dim()]}
        for name, tensor in tensors.items()
    }
    return {_SHARDING: json.dumps(offsets)}


_MAX_BYTES = 2**20
_MAX_MEMORY_BYTES = 2**30


class Manifest(NamedTuple):
    """The run that a checkpoint is of, its step, and its files by name."""

    run: str
    step: int
    records: dict[str, Record]


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest that holds the hash of its content."""
    files = {name: record._asdict() for name, record in manifest.records.items()}
    content = {"format": RUN_FORMAT, "run": manifest.run, "step": manifest.step, "files": files}
    write_parts(path, [_rendered(content)])


def read_manifest(path: Path) -> Manifest:
    """Return a manifest; `ValueError` if it is not, byte for byte, what was written.

    The same for a manifest that another version of the program wrote.
    """
    written, version = read_bytes(path, RunFolderError, largest=_MAX_BYTES), ""
    try:
        content = parse_json(written)
        del content["sha256"]
        # rendering it again also finds what the parser would forgive
        if _rendered(content) == written:
            version = other_version(content.get("format"), RUN_FORMAT)
            records = {name: Record(**record) for name, record in content["files"].items()}
            if not version:
                return Manifest(content["run"], content["step"], records)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ValueError(f"{path}: was written by {version}" if version else f"{path}: is damaged")


def check_files(folder: Path, records: Mapping[str, Record]) -> str:
    """Return the first fault in the files of a folder, or nothing."""
    for name, record in records.items():
        path = folder / name
        if path.stat().st_size != record.bytes:
            return f"{path}: has another size than when it was written"
        if file_hash(path) != record.sha256:
            return f"{path}: is damaged"
    return ""


def _rendered(content: dict[str, Any]) -> bytes:
    digest = text_hash(json.dumps(content, sort_keys=True))
    return (json.dumps({"sha256": digest, **content}, indent=1) + "\n").encode()


_TENSORS = ("weights", "optimiser")
_VALUES = ("state.json", "memory.json")


@dataclass(frozen=True, kw_only=True)
class State(Config):
    """The state of a training."""

    step: int = 0
    """Optimiser steps made, skipped ones included."""
    place: DataPosition = field(default_factory=DataPosition)
    """The next sequence."""
    seconds: float = 0.0
    """Time spent in training steps."""
    elapsed: float = 0.0
    """Time on the clock, of all sittings of the run."""
    spent: float = 0.0
    """Share of a budget of minutes that is spent."""
    tokens: int = 0
    """Tokens the model has seen."""
    skipped: int = 0
    """Steps whose gradient was not used: it was not finite, or a spike."""
    measured: int = 0
    """Measurements on held-out text."""
    best_step: int | None = None
    """The step with the least loss on held-out text."""
    best_loss: float | None = None
    """Best held-out loss, summed over the objectives."""
    worse: int = 0
    """Measurements since then."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything that training needs to resume; `memory` holds plain JSON values.

    Where a tensor is this rank's shard of one, `rows` says at which row of it the shard begins.
    """

    state: State
    weights: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]
    memory: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of a run: the newest ones, and the best. Of several ranks the first writes.

    If the world shards the model, every rank writes its shares. Checkpoints of another run than
    `run` are named and passed over, and never deleted.
    """

    def __init__(self, folder: Path, keep: int = 2, world: World = ALONE, *, run: str = "") -> None:
        self.folder = folder
        self._run = run
        self._keep = keep
        self._world = world
        self._meeting = RankMessages(world) if world.shard else None
        self._damaged: set[Path] = set()

    def save(self, checkpoint: Checkpoint) -> Path:
        """Commit a checkpoint and delete those that are too old; returns its folder.

        Raises `DiskError`; the earlier checkpoints are then as they were.
        """
        folder, state = self.folder, checkpoint.state
        final = folder / _name(state.step)
        temporary = folder / f".{final.name}.partial"
        if not self._world.first:
            if self._meeting is not None:
                _write(temporary, checkpoint, self._run, self._meeting)
            return final
        with writing(folder):
            # a run's folder that was deleted is not made again: nothing could resume from it
            if not folder.exists():
                folder.mkdir()
                flush_to_disk(folder.parent)
            self._sweep()
            try:
                temporary.mkdir()
                _write(temporary, checkpoint, self._run, self._meeting)
                if _is_foreign(final, self._run):
                    self._set_aside(final)
                else:
                    self._forget(final)
                commit({temporary: final})
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        self._damaged.discard(final)
        self._prune(state)
        return final

    def load(self) -> Checkpoint | None:
        """Return the run's newest whole checkpoint, None if it has none.

        Damaged ones and those of other runs are named and passed over. Every rank loads the one
        that the first finds. Raises `RunFolderError` when the run's are all damaged.
        """
        results: list[Checkpoint] = []

        def newest() -> int | None:
            results.extend(self._newest())
            return results[0].state.step if results else None

        step = self._world.broadcast(newest)
        if step is not None and not results:
            try:
                return _read(self.folder / _name(step), self._run)
            except (_Damaged, ConfigError) as damage:
                raise RunFolderError(
                    f"rank {self._world.rank} does not find what rank 0 has read: {damage}",
                    remedy="let all machines share the disk of the run's folder",
                ) from damage
        return results[0] if results else None

    def _newest(self) -> Iterator[Checkpoint]:
        """Yield the newest whole checkpoint, if there is one."""
        for path in reversed(self._step_folders()):
            try:
                yield _read(path, self._run)
                return
            except _Foreign as foreign:
                say(f"{foreign}; skipped")
            except (_Damaged, ConfigError) as damage:
                say(f"{damage}; skipped")
                self._damaged.add(path)
        if self._damaged:
            raise RunFolderError(
                "no checkpoint is complete",
                where=self.folder,
                remedy="start again with another --out",
            )

    def has_own(self) -> bool:
        """Return whether there is a checkpoint of the run, even a damaged one."""
        return any(not _is_foreign(path, self._run) for path in self._step_folders())

    def best(self, state: State) -> Checkpoint:
        """Return the checkpoint of the best step according to `state`; raises `RunFolderError`."""
        assert state.best_step is not None
        try:
            return _read(self.folder / _name(state.best_step), self._run)
        except (_Damaged, ConfigError) as damage:
            raise RunFolderError(
                f"the best checkpoint is damaged: {damage}", remedy="start again with another --out"
            ) from damage

    def tidy(self, state: State) -> None:
        """Delete what a process that was killed has left, where it was to be deleted.

        For a run that resumes from `state`; what was found damaged stays until the next one is
        saved.
        """
        self._sweep()
        if not self._damaged:
            self._prune(state)

    def _step_folders(self) -> list[Path]:
        # by number: a name of nine digits sorts before one of eight
        found = ((_step(path), path) for path in self.folder.glob("step-*"))
        numbered = sorted((step, path) for step, path in found if step is not None)
        return [path for _, path in numbered]

    def _prune(self, state: State) -> None:
        """Delete what is neither among the newest nor the best, and what is known to be damaged."""
        own = [path for path in self._step_folders() if not _is_foreign(path, self._run)]
        valid = [path for path in own if path not in self._damaged]
        retained = set(valid[-self._keep :])
        if state.best_step is not None:
            retained.add(self.folder / _name(state.best_step))
        for path in own:
            if path not in retained:
                self._forget(path)
        self._damaged.clear()

    def _forget(self, path: Path) -> None:
        """Delete a checkpoint: first its name, so that no half of it is ever taken for one."""
        nameless = path.with_name(f".{path.name}.pruned")
        with suppress(OSError):
            path.rename(nameless)
        shutil.rmtree(nameless, ignore_errors=True)

    def _set_aside(self, path: Path) -> None:
        """Give another run's checkpoint a name that no checkpoint of this run needs."""
        names = (f"other-{path.name}" + f"-{n}" * (n > 1) for n in itertools.count(1))
        aside = next(item for item in map(path.with_name, names) if not item.exists())
        path.rename(aside)
        say(f"{path}: belongs to another run; renamed to {aside.name}")

    def _sweep(self) -> None:
        """Delete what a process that was killed has left."""
        for leftover in self.folder.glob(".step-*"):
            shutil.rmtree(leftover, ignore_errors=True)


def has_checkpoint(folder: RunFolder) -> bool:
    """Return whether a run has a checkpoint of its own, even a damaged one."""
    return Checkpoints(folder.checkpoints, run=folder.identity).has_own()


class _Damaged(Exception):
    """A checkpoint that is not what was written; the message names the file."""


class _Foreign(_Damaged):
    """A whole checkpoint of another run."""


def _name(step: int) -> str:
    return f"step-{step:08}"


def _step(path: Path) -> int | None:
    match = re.fullmatch(r"step-(\d{8,})", path.name)
    return int(match[1]) if match else None


def _write(folder: Path, checkpoint: Checkpoint, run: str, meeting: RankMessages | None) -> None:
    tensors = {"weights": checkpoint.weights, "optimiser": checkpoint.optimiser}
    if meeting is None:
        records = {
            f"{kind}.safetensors": write_tensors(folder / f"{kind}.safetensors", tensor)
            for kind, tensor in tensors.items()
        }
    else:
        records = write_shards(folder, tensors, checkpoint.rows, meeting)
    if meeting is not None and not meeting.world.first:
        return
    for name, content in zip(_VALUES, (checkpoint.state.to_dict(), checkpoint.memory), strict=True):
        text = json.dumps(content, indent=1) + "\n"
        records[name] = write_parts(folder / name, [text.encode()])
    write_manifest(folder / "manifest.json", Manifest(run, checkpoint.state.step, records))


def _read(folder: Path, run: str) -> Checkpoint:
    """Return a run's checkpoint whose every file is what was written; `_Damaged` otherwise."""
    try:
        its_run, step, records = read_manifest(folder / "manifest.json")
        if its_run != run:
            raise _Foreign(f"{folder}: belongs to another run")
        if problem := _problem(folder, step, records) or check_files(folder, records):
            raise _Damaged(problem)
        state = State.load(folder / "state.json")
        memory = read_json(folder / "memory.json", RunFolderError, largest=_MAX_MEMORY_BYTES)
        weights, optimiser = (_load(folder, kind, records) for kind in _TENSORS)
    except OSError as error:
        raise _Damaged(f"{error.filename or folder}: {error.strerror}") from error
    except ValueError as error:
        raise _Damaged(str(error)) from error
    return Checkpoint(state=state, weights=weights, optimiser=optimiser, memory=memory)


def _is_foreign(folder: Path, run: str) -> bool:
    """Return whether a checkpoint is known to belong to another run."""
    with suppress(OSError, ValueError):
        return read_manifest(folder / "manifest.json").run != run
    return False


def _load(folder: Path, kind: str, names: Iterable[str]) -> Mapping[str, Tensor]:
    if shares := shard_files(kind, list(names)):
        return ShardedTensors([folder / name for name in shares])
    single: dict[str, Tensor] = load_file(folder / f"{kind}.safetensors")
    return single


def _problem(folder: Path, step: int, records: Iterable[str]) -> str:
    if step != _step(folder):
        return f"{folder}: holds the checkpoint of step {step}"
    names = list(records)
    shares = [name for kind in _TENSORS for name in shard_files(kind, names)]
    if set(names) != {*_VALUES, *(shares or [f"{kind}.safetensors" for kind in _TENSORS])}:
        return f"{folder / 'manifest.json'}: names other files"
    return ""
