"""The process that opens pickled weights: it has limits, runs nothing it reads, and ends.

It reads on standard input, as JSON, which files to open and what it may use; it writes the tensors
as safetensors and what else it found as JSON. `pickled` starts it and trusts nothing it writes.
"""

from __future__ import annotations

import errno
import json
import math
import re
import resource
import sys
import time
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from bertsmith.core.errors import UserError
from bertsmith.weights.tensors import write_tensors
from bertsmith.weights.wrappers import unwrapped

_LIKE_FILE = 2
"""Most multiples of the files' bytes that tensors may have: tied ones are stored once."""
_INNER = (
    "state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights",
    "params",
)  # fmt: skip
"""Keys under which training programs keep the weights among other things."""
_DEPTH = 3
"""Most of them inside each other."""
_WEIGHTS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_STAND_INS = frozenset(
    {
        "accelerate", "argparse", "collections", "datetime", "deepspeed", "enum", "fairseq",
        "lightning", "lightning_fabric", "numpy", "omegaconf", "pathlib", "pytorch_lightning",
        "typing",
    }
)  # fmt: skip
"""Packages whose objects training programs leave beside the weights."""
_CONFIG = re.compile(r"transformers\.[\w.]+\.configuration_\w+\.\w+")
_MODULE = re.compile(r"(torch\.nn\.modules|__main__)\..+|.+\.modeling_\w+\..+")
"""Classes of a model that was saved whole, and not its weights."""
DISK = 64
"""Exit statuses from here on are that and the number of the system's error."""
DISK_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_MAX_STAND_INS = 64
_MAX_SETTINGS = 2000
_MAX_SETTING_LENGTH = 1000


class Placeholder:
    """Takes the place of an object of some program, and does nothing."""

    state: object = None
    """The state that its fields would have been set from."""

    def __init__(self, *_arguments: object) -> None: ...

    def __setstate__(self, state: object) -> None:
        self.state = state


class Refused(Exception):
    """The refusal of a file, for the caller, and what helps."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy


def main() -> None:
    """Do what standard input asks for."""
    job = json.load(sys.stdin)
    files = [Path(name) for name in job["files"]]
    _limit(job["memory"], job["seconds"], job["room"])
    result: dict[str, Any] = {}
    try:
        result = read_weights(files, Path(job["out"]))
    except Refused as error:
        result = {"refused": str(error), "remedy": error.remedy}
    except MemoryError:
        result = {"refused": "asks for more memory than weights of its size need"}
    except UserError as error:
        _end_if_refused(error.__cause__)
        result = {"refused": error.problem}
    except OSError as error:
        _end_if_refused(error)
        raise
    try:
        Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")
    except OSError as error:
        _end_if_refused(error)
        raise


def _end_if_refused(error: BaseException | None) -> None:
    """End with a distinct status if the disk refuses a write."""
    if isinstance(error, OSError) and error.errno in DISK_REFUSES:
        sys.exit(DISK + error.errno)


def _limit(memory: int, seconds: float, max_bytes: int) -> None:
    """Limit what this process may still use: memory, processor time, bytes written."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory
    _lower(resource.RLIMIT_AS, limit)
    used = math.ceil(time.process_time() + seconds)
    _lower(resource.RLIMIT_CPU, used)
    # where the user's own limit is lower it is the disk that refuses, not the file that is odd
    own, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if own == resource.RLIM_INFINITY or own > max_bytes:
        DISK_REFUSES.discard(errno.EFBIG)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _lower(kind: int, limit: int) -> None:
    """Set a limit, or the user's own where that is lower: it must not be raised."""
    _, own = resource.getrlimit(kind)
    limit = limit if own == resource.RLIM_INFINITY else min(limit, own)
    resource.setrlimit(kind, (limit, limit))


def read_weights(files: list[Path], out: Path) -> dict[str, Any]:
    """Write the tensors of pickled files as one safetensors file; returns what else there is.

    `Refused` for a file that is damaged, or asks for anything but tensors. Without the limits that
    `main` sets it may still take all memory and time.
    """
    tensors: dict[str, Tensor] = {}
    dropped: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for path in files:
        loaded = _load(path)
        state = _state(loaded)
        settings |= _settings(loaded)
        for name, value in state.items():
            if not isinstance(value, Tensor):
                dropped[name[:200]] = "no tensor"
            elif reason := _no_weight(value):
                dropped[name[:200]] = reason
            elif name in tensors:
                raise Refused(f"holds {name[:80]!r} a second time")
            else:
                tensors[name] = value.detach()
    size = sum(path.stat().st_size for path in files)
    if (
        sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        > _LIKE_FILE * size
    ):
        raise Refused("contains tensors that are larger than the file")
    names = unwrapped(tensors)
    write_tensors(out, {names[name]: tensors[name] for name in tensors}, {"format": "pt"})
    renamed = {new: old for old, new in names.items() if new != old}
    return {"dropped": dropped, "renamed": renamed, "settings": settings}


def _load(path: Path) -> object:
    _check_archive(path)
    stood_in: set[str] = set()
    while True:
        # only dictionaries may be filled like one
        made = [
            (OrderedDict if name.endswith("Dict") else Placeholder, name)
            for name in sorted(stood_in)
        ]
        try:
            with torch.serialization.safe_globals(made):  # type: ignore[arg-type]
                return torch.load(path, map_location="cpu", weights_only=True)
        except UnpicklingError as error:
            name = _unpickled_name(str(error))
            if name is None:
                _refuse_shard(str(error))
                raise Refused("is damaged, or not a file of weights") from error
            known = name.split(".")[0] in _STAND_INS or _CONFIG.fullmatch(name)
            if not known or len(stood_in) == _MAX_STAND_INS:
                raise Refused(
                    f"asks for {name[:80]}, which is not a weight; nothing was run",
                    _SAVE_STATE if _MODULE.fullmatch(name) else "",
                ) from error
            stood_in.add(name)
        except RuntimeError as error:
            if "allocate memory" in str(error):
                raise MemoryError from error
            raise Refused("is damaged, or not a file of weights") from error
        except (MemoryError, OSError):
            raise
        except Exception as error:
            # whatever the reader trips over in a file that was made to make it trip
            raise Refused(f"is damaged ({type(error).__name__}), or no file of weights") from error


def _check_archive(path: Path) -> None:
    """Check that a file was fetched and, if it is an archive, holds no more than its own bytes."""
    with path.open("rb") as file:
        start = file.read(8)
    if start == b"version ":
        raise Refused("is a Git LFS pointer, not the weights", "run: git lfs pull")
    if not start.startswith(b"PK\x03\x04"):
        return
    try:
        entries = zipfile.ZipFile(path).infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise Refused("is damaged: its archive is incomplete") from error
    stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
    if not stored or sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise Refused("is a compressed archive, which files of weights never are")


def _unpickled_name(message: str) -> str | None:
    """Return the name of the first thing that a pickle asks for and may not have."""
    match = re.search(r"GLOBAL ([\w.]+)", message)
    return match[1] if match else None


_SAVE_STATE = (
    "it is a model that was saved whole: open it where it was trained, and save its weights: "
    "torch.save(model.state_dict(), FILE)"
)


def _refuse_shard(message: str) -> None:
    """Raise `Refused` for the weights of one rank of several."""
    if "DTensor" in message:
        raise Refused(
            "holds one rank's part of each weight (DTensor)",
            "gather the weights where they were trained: get_model_state_dict with "
            "full_state_dict=True, of torch.distributed.checkpoint.state_dict",
        )


def _state(loaded: object) -> Mapping[str, object]:
    """Return the weights by their names, wherever in the file they are."""
    state = next(_states(loaded), None)
    if state is None:
        raise Refused("holds no tensors by names")
    result = {str(name): value for name, value in state.items()}
    weights = [value for value in result.values() if isinstance(value, Tensor)]
    if (
        isinstance(loaded, Mapping)
        and "param_shapes" in loaded
        and not any(value.numel() for value in weights)
    ):
        raise Refused(
            "holds no weights: DeepSpeed has divided them among its ranks (ZeRO 3)",
            "join them with the zero_to_fp32.py in the checkpoint's folder, and convert the result",
        )
    return result


def _states(loaded: object, depth: int = _DEPTH) -> Iterator[Mapping[Any, object]]:
    """Yield what may be the weights, the likeliest first."""
    if not isinstance(loaded, Mapping) or not depth:
        return
    # the weights before what is beside them, of which a loss may be a tensor too
    for key in _INNER:
        yield from _states(loaded.get(key), depth - 1)
    if any(isinstance(value, Tensor) for value in loaded.values()):
        yield loaded


def _no_weight(value: Tensor) -> str | None:
    """Return the reason why a tensor is no weight, None if it is one."""
    if value.dtype not in _WEIGHTS:
        return f"of type {str(value.dtype).removeprefix('torch.')}, a constant"
    if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
        return "no plain tensor"
    return None


def _settings(loaded: object) -> dict[str, Any]:
    """Return the plain values among fairseq's settings of training, one level of groups undone."""
    results: dict[str, Any] = {}
    if not isinstance(loaded, Mapping):
        return results
    for group in (loaded.get("args"), loaded.get("cfg")):
        values = _values(group)
        for inner in (values, _values(values.get("task")), _values(values.get("model"))):
            for key, value in list(inner.items())[:_MAX_SETTINGS]:
                plain = isinstance(value, bool | int | float | str)
                if plain and len(f"{key}{value}") <= _MAX_SETTING_LENGTH:
                    results[str(key)] = value
    return results


def _values(group: object) -> Mapping[Any, Any]:
    inner = group.state if isinstance(group, Placeholder) else group
    return inner if isinstance(inner, Mapping) else {}


if __name__ == "__main__":
    main()
