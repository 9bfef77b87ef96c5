"""The highest speed of matrix products on this machine, which utilisation (MFU) is a share of.

A busy machine can only make a product slower, never faster. So the peak is the fastest of many
short calls, and the highest of all such measurements counts: it is kept in the user's cache folder,
one file for each machine, precision and number of threads, and replaced when a later run measures
more. The file is safe to lose, and nothing depends on its being writable.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from bertsmith.core.errors import DiskError
from bertsmith.core.files import replaced_file, user_cache
from bertsmith.core.hashing import text_hash
from bertsmith.core.json_files import read_json
from bertsmith.core.ownership import unfinished
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.model import Precision

# square products from one that fits a core's cache to one that fills an accelerator
_SIDES = (256, 512, 1024, 2048, 4096, 8192)
# what a machine that was never seen is measured for, and one that was
_FIRST_SECONDS, _LATER_SECONDS = 1.8, 0.6
# many calls on end are what meets a moment in which all threads of a busy machine run; calls longer
# than a time slice of the system never do
_TURN, _LONGEST = 0.15, 0.025
# cores that share a clock, or two threads of one core, reach about this share of their sum
_SCALING = 0.6
# runs that follow one another meet the same neighbours: measuring again would tell nothing new
_OCCASION = 600.0
# settings that make the libraries take other kernels
_KERNEL_SETTINGS = (
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The fastest matrix product measured on a machine so far."""

    flops: float
    """Operations a second."""
    occasions: int
    """How often it was measured, at least ten minutes apart."""
    measured: float
    """When it was measured last, in seconds since 1970."""

    def __str__(self) -> str:
        times = "measured once" if self.occasions == 1 else f"best of {self.occasions} measurements"
        return f"{self.flops / 1e9:,.0f} GFLOP/s ({times})"


def matrix_peak(precision: Precision, device: torch.device, *, reached: float = 0.0) -> Peak:
    """Return the machine's peak with the number of threads set now.

    It is measured if the machine is new or was measured more than ten minutes ago, or if operations
    a second that were `reached` show that what is known is too low. A process asks once.
    """
    machine = describe_machine(precision, device)
    known = _seen.get(machine)
    if known is None or known.flops < reached:
        measure = functools.partial(measure_peak, precision, device)
        folder = user_cache()
        known = known_peak(
            None if folder is None else folder / "matrix-peak", machine, measure, reached=reached
        )
        _seen[machine] = known
    return known


# of this process, by machine
_seen: dict[str, Peak] = {}


def known_peak(
    folder: Path | None,
    machine: str,
    measure: Callable[[float], float],
    *,
    reached: float = 0.0,
    now: Callable[[], float] = time.time,
) -> Peak:
    """Return the highest peak that `folder` or `measure` knows of; the folder is told the highest.

    `measure` is called with the seconds it may take, unless the folder's figure is fresh and not
    below `reached`. Without a folder, or with one that cannot be read or written, it is measured.
    """
    before = None if folder is None else _read(folder, machine)
    if before is not None and abs(now() - before.measured) < _OCCASION and before.flops >= reached:
        return before
    found = measure(_FIRST_SECONDS if before is None else _LATER_SECONDS)
    peak = Peak(flops=found, occasions=1, measured=now())
    if before is not None:
        peak = Peak(
            flops=max(found, before.flops), occasions=before.occasions + 1, measured=peak.measured
        )
    if folder is not None:
        _write(folder, machine, peak)
    return peak


def _file(folder: Path, machine: str) -> Path:
    return folder / f"{text_hash(machine)[:16]}.json"


def _read(folder: Path, machine: str) -> Peak | None:
    """Return what a folder holds of a machine, nothing if that is missing or damaged."""
    path = _file(folder, machine)
    with suppress(OSError, ValueError, KeyError, TypeError):
        if not path.is_file():
            return None
        record = read_json(path, DiskError, largest=1 << 16)
        flops, measured = float(record["flops"]), float(record["measured"])
        occasions = int(record["occasions"])
        if record["machine"] == machine and 0 < flops < math.inf and occasions > 0:
            return Peak(flops=flops, occasions=occasions, measured=measured)
    return None


def _write(folder: Path, machine: str, peak: Peak) -> None:
    """Replace what a folder holds of a machine, whole or not at all; a refusal changes nothing."""
    path = _file(folder, machine)
    record = {
        "machine": machine,
        "flops": peak.flops,
        "occasions": peak.occasions,
        "measured": peak.measured,
    }
    with suppress(OSError, DiskError):
        folder.mkdir(parents=True, exist_ok=True)
        with replaced_file(path, unfinished(path)) as fresh:
            fresh.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def describe_machine(precision: Precision, device: torch.device) -> str:
    """Return all that decides the speed of products: chip, threads, libraries, precision."""
    if device.type == "cuda":
        chip = torch.cuda.get_device_name(device)
    else:
        settings = [f"{name}={os.environ[name]}" for name in _KERNEL_SETTINGS if name in os.environ]
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        chip = ", ".join(
            [
                _processor(),
                f"{torch.get_num_threads()} threads on {processors or os.cpu_count()} processors",
                torch.backends.cpu.get_cpu_capability(),
                *settings,
            ]
        )
    return f"{device.type}: {chip}, torch {torch.__version__}, {precision}"


@functools.cache
def _processor() -> str:
    """Return model and features of the processor."""
    told = []
    with suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            if name.strip() in {"vendor_id", "cpu family", "model", "model name", "stepping"}:
                told.append(value.strip())
            elif name.strip() in {"flags", "Features"}:
                features = " ".join(sorted(value.split()))
                told.append(f"features {text_hash(features)[:16]}")
    return " ".join(told) or f"{platform.machine()} {platform.processor()}"


def measure_peak(precision: Precision, device: torch.device, seconds: float) -> float:
    """Return the operations a second of the fastest square matrix product, in about `seconds`.

    Threads of a busy machine may never run at the same time meanwhile. What one of them reaches by
    itself shows that: then it is tried up to two times more.
    """
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    best = least = 0.0
    if threads > 1:
        torch.set_num_threads(1)
        try:
            best = fastest(_products(precision, device), seconds / 3)
        finally:
            torch.set_num_threads(threads)
        least = _SCALING * threads * best
    for _ in range(3):
        best = max(best, fastest(_products(precision, device), seconds))
        if best >= least:
            break
    return best


def _products(
    precision: Precision, device: torch.device
) -> Iterator[tuple[float, Callable[[], object]]]:
    """Yield square products from small to large: number of operations, and a call that does it."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    # what is drawn later must not depend on whether the peak was measured
    own = torch.Generator(device).manual_seed(int(stream(Purpose.PEAK_PRODUCTS)))
    for side in _SIDES:
        left, right = torch.rand(2, side, side, device=device, generator=own).to(kind)
        multiply = functools.partial(torch.mm, left, right, out=torch.empty_like(left))
        yield 2.0 * side**3, functools.partial(_finished, multiply, device)


def _finished(call: Callable[[], object], device: torch.device) -> None:
    """Make a call and wait until an accelerator has done it."""
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fastest(
    products: Iterator[tuple[float, Callable[[], object]]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the highest speed of some products, each its number of operations and a call.

    Ordered from small to large, they take turns of many calls until `seconds` are over, the first
    call of each not counted. A product joins when its calls are short by the best speed so far.
    """
    began, best = clock(), 0.0

    def timed(call: Callable[[], object]) -> float:
        start = clock()
        call()
        # a clock too coarse for a call would tell of an endless speed
        return max(clock() - start, 1e-7)

    joined: list[tuple[float, Callable[[], object]]] = []
    waiting = next(products, None)
    while clock() - began < seconds:
        if waiting is not None and waiting[0] <= (best or math.inf) * _LONGEST:
            timed(waiting[1])
            # the newest first: it is likely the fastest
            joined.insert(0, waiting)
            waiting = next(products, None)
        for operations, call in joined:
            ends = clock() + min(_TURN, seconds / 4)
            while True:
                best = max(best, operations / timed(call))
                if clock() >= min(ends, began + seconds):
                    break
    return best
