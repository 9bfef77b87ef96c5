"""The files of a checkpoint whose tensors several ranks hold in shares.

    weights-00001-of-00002.safetensors     rank 0's rows of every tensor, and what is not in shares
    weights-00002-of-00002.safetensors     rank 1's rows

and the same of the optimiser. Each header also says at which row each share begins, in the words
of torch's `HuggingFaceStorageReader`, so that `torch.distributed.checkpoint` reads them too. Its
own format has an index that is a pickle, and knows neither hashes nor a commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from bertsmith.core.errors import RankLost
from bertsmith.core.hashing import Record
from bertsmith.training.distribution import World, wait_for
from bertsmith.weights.tensors import write_tensors

# names of torch.distributed.checkpoint
_SHARDING, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"


class Meeting:
    """Where the ranks of a world meet to write a checkpoint, each in a thread of its own.

    They speak through the launcher's store: operations between ranks belong to the training.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._name = world.new_name("saving")
        self._store = world.store.clone()

    def tell(self, what: str, value: object) -> None:
        """Tell the other ranks something, a JSON value."""
        self._store.set(f"{self._name}/{what}", json.dumps(value))

    def hear(self, what: str) -> Any:  # noqa: ANN401
        """What another rank tells; raises `RankLost` when one is lost."""
        assert self.world.watch is not None
        found = wait_for(self._store, f"{self._name}/{what}", self.world.watch)
        if not found:
            raise RankLost(self.world.watch.cause)
        return json.loads(found)


class SharedTensors(Mapping[str, Tensor]):
    """The tensors of several files of shares, each put together when it is asked for."""

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


def files_of(kind: str, names: Collection[str]) -> list[str]:
    """The files with shares of a kind among these names, [] unless they are all there."""
    pattern = re.compile(rf"{kind}-(\d{{5}})-of-(\d{{5}})\.safetensors")
    found = [each for each in map(pattern.fullmatch, sorted(names)) if each]
    numbers = [int(each[1]) for each in found]
    size = {int(each[2]) for each in found}
    return [each[0] for each in found] if size == {len(numbers)} else []


def write_shares(
    folder: Path,
    tensors: Mapping[str, Mapping[str, Tensor]],
    rows: Mapping[str, int],
    meeting: Meeting,
) -> dict[str, Record]:
    """Write this rank's tensors, by kind, in a folder that the first rank has made.

    `rows` tells where each share begins. Returns the files written, on the first rank those of all.
    """
    world, name = meeting.world, folder.name
    if world.first:
        meeting.tell(f"{name}/made", True)
    else:
        meeting.hear(f"{name}/made")
    records = {}
    for kind, own in tensors.items():
        file = f"{kind}-{world.rank + 1:05}-of-{world.size:05}.safetensors"
        records[file] = write_tensors(folder / file, own, _header(own, rows))
    if not world.first:
        meeting.tell(f"{name}/{world.rank}", records)
        return records
    for rank in range(1, world.size):
        told = meeting.hear(f"{name}/{rank}")
        records |= {file: Record(*record) for file, record in told.items()}
    return records


def _header(tensors: Mapping[str, Tensor], rows: Mapping[str, int]) -> dict[str, str]:
    """What a file's header says of the shares in it."""
    offsets = {
        name: {_OFFSETS: [rows.get(name, 0), *[0] * tensor.dim()][: tensor.dim()]}
        for name, tensor in tensors.items()
    }
    return {_SHARDING: json.dumps(offsets)}
