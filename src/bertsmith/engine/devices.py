"""Choice of the device, and of the precision of training on it."""

from __future__ import annotations

import re

import torch

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import say
from bertsmith.network.config import Precision, TrainingPrecision


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
        reason = "finds no GPU it can use" if built else "was built without support for GPUs"
        raise ConfigError(
            f"--device is {name}, and torch {torch.__version__} {reason}",
            remedy="leave --device out" if built else "install torch with CUDA, or leave it out",
        )
    device, count = torch.device(name), torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise ConfigError(
            f"--device is {name}, and there are {count} GPUs",
            remedy=f"use one of cuda:0 to cuda:{count - 1}",
        )
    return device


def training_precision(
    requested: TrainingPrecision, device: torch.device, earlier: Precision | None = None
) -> Precision:
    """Return the number format of training; auto is the one `earlier` by the run that is resumed.

    Without one it is bf16 where the device multiplies it natively: elsewhere it is emulated, on a
    processor with AVX2 at a sixtieth of the speed of float32 products. Says so where it is wanted.
    """
    native = multiplies_bf16(device)
    if requested == "auto":
        return earlier or ("bf16" if native else "fp32")
    if requested == "bf16" and not native:
        kind = "GPU" if device.type == "cuda" else "processor"
        say(f"this {kind} has no instructions for bf16: training is many times faster in fp32")
    return requested


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether torch multiplies bf16 on a device by instructions made for it."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return _has_feature("_is_avx512_bf16_supported") or has_amx()


def has_amx() -> bool:
    """Return whether the processor multiplies bf16 by tiles (AMX)."""
    return _has_feature("_is_amx_tile_supported")


def _has_feature(check: str) -> bool:
    """Return whether torch finds a feature of the processor; False if unknown."""
    result = getattr(torch.cpu, check, None)
    return result is not None and bool(result())
