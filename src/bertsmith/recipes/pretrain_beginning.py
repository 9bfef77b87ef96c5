"""How a run of pre-training begins, or goes on: by one process, for all that share it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from bertsmith.batches.store import INDEX, TokenStore
from bertsmith.batches.verifying import verify_store
from bertsmith.errors import RunFolderError
from bertsmith.log import say
from bertsmith.recipes.continuing import check_parent
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.pretrain_settings import PretrainRun
from bertsmith.training.distribution import World
from bertsmith.training.run_folder import RunFolder

RESULT = "result.json"
VERIFYING = 0.1
"""Share of the minutes after which no other file of the store is hashed."""


def begin(
    folder: RunFolder,
    device: str,
    wanted: Callable[[torch.device, int], PretrainRun | None],
    world: World,
) -> PretrainRun:
    """The run that the folder holds, begun now if it held none; it must be the one wanted."""
    out, stored = folder.path, folder.settings("pretrain")
    place = device_named((stored or {}).get("device", device) if device == "auto" else device)
    run = wanted(place, world.size)
    if run is None:
        if stored is None:
            raise RunFolderError(
                "holds no run to go on with", where=out, remedy="name a store to train on"
            )
        run = PretrainRun.from_dict(stored, where=out / "run.json")
    elif stored is not None:
        # another number of threads would round differently in what is left to do, and steps of
        # more batches would be other steps
        threads, batches = stored.get("threads", run.threads), stored.get("batches_per_step")
        run = replace(run, threads=threads, batches_per_step=batches)
    check_store(run, out)
    if run.device != place.type:
        raise RunFolderError(
            f"was begun on {run.device}, and would go on otherwise on {place.type}",
            where=out,
            remedy=f"give --device {run.device}, or choose another --out",
        )
    world.share(run.batches_per_step or run.settings.accumulate)
    opened = TokenStore(run.store)
    minutes = run.budget.minutes
    seconds = None if minutes is None else VERIFYING * 60 * minutes
    verified = verify_store(opened, folder.verified(), seconds)
    check_parent(run, opened)
    if folder.claim("pretrain", run):
        ended = (out / RESULT).exists()
        say(f"the run in {out} has ended" if ended else f"going on with the run in {out}")
    folder.note_verified(verified)
    return run


def check_store(run: PretrainRun, out: Path) -> None:
    """Whether the store is the one that the run was begun with, on this machine too."""
    TokenStore(run.store)
    if run.store_hash != store_hash(run.store):
        raise RunFolderError(
            f"was begun with another store than the one in {run.store} now",
            where=out,
            remedy="choose another --out",
        )


def store_hash(store: Path) -> str:
    """SHA-256 of a store's index, which names the hash of every file."""
    return hashlib.sha256((store / INDEX).read_bytes()).hexdigest()
