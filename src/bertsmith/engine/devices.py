"""Choice of the device, and of the number of torch's threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bertsmith.core.errors import ConfigError


def best_device() -> torch.device:
    """Return the first CUDA device if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_named(name: str) -> torch.device:
    """Return the device of a name: auto (the best available), cpu, cuda, or a numbered cuda:1.

    Raises `ConfigError` for a device that is not available.
    """
    if name == "auto":
        return best_device()
    if name == "cpu":
        return torch.device(name)
    if not re.fullmatch(r"cuda(:\d+)?", name):
        raise ConfigError(
            f"there is no device {name!r}", remedy="devices are auto, cpu, cuda, cuda:1 and so on"
        )
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None
        why = "finds no GPU it can use" if built else "was built for processors alone"
        raise ConfigError(
            f"--device is {name}, and torch {torch.__version__} {why}",
            remedy="leave --device out" if built else "install torch with CUDA, or leave it out",
        )
    device, count = torch.device(name), torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise ConfigError(
            f"--device is {name}, and there are {count} GPUs",
            remedy=f"take one of cuda:0 to cuda:{count - 1}",
        )
    return device


@contextmanager
def threads_of_torch(count: int | None) -> Iterator[None]:
    """Let torch compute with so many threads meanwhile; None for as many as before."""
    before = torch.get_num_threads()
    if count not in (None, before):
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
