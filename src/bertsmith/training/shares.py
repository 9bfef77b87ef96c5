"""Tensors that several ranks hold in shares (`DTensor`), beside plain ones.

Most operations take both alike; here are the few places where a share is not enough. The module of
distributed tensors is imported where there are any: it takes half a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def in_shares(tensor: Tensor) -> bool:
    """Whether a tensor is held in shares."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; where it is in shares every rank has to ask for it."""
    if not in_shares(tensor):
        return tensor
    gathered: Tensor = _distributed(tensor).full_tensor()
    return gathered


def own_share(tensor: Tensor) -> Tensor:
    """This rank's share, or a plain tensor as it is."""
    if not in_shares(tensor):
        return tensor
    share: Tensor = _distributed(tensor).to_local()
    return share


def shared_as(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor that every rank has, as it is or in shares: as `like` is; nothing is sent."""
    if not in_shares(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    model = _distributed(like)
    shared = distribute_tensor(tensor, model.device_mesh, model.placements, src_data_rank=None)
    # else the share would be a view of all of it
    return shared.clone()


def to_save(tensors: Mapping[str, Tensor], *, first: bool) -> dict[str, Tensor]:
    """This rank's shares that have rows; the first rank has what is not in shares, too."""
    own = {
        name: own_share(tensor) for name, tensor in tensors.items() if first or in_shares(tensor)
    }
    return {name: each for name, each in own.items() if each.dim() == 0 or len(each)}


def first_rows(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Of what is in shares, the row at which this rank's begins."""
    return {name: _first_row(tensor) for name, tensor in tensors.items() if in_shares(tensor)}


def _first_row(tensor: Tensor) -> int:
    """The row at which this rank's share begins: rows are dealt out in equal runs, the last short.

    That is how FSDP2 divides; there is no share along another dimension here.
    """
    model = _distributed(tensor)
    size, rank = model.device_mesh.size(), model.device_mesh.get_local_rank()
    return int(min(rank * -(-len(tensor) // size), len(tensor)))


def _distributed(tensor: Tensor) -> Any:  # noqa: ANN401
    return tensor
