"""The peak speed of matrix products on this machine, the denominator of utilisation (MFU).

Load on the machine can only make a product slower, never faster. So the peak is the fastest of many
short calls, and the maximum of all such measurements is kept in the user's cache folder, one file
per machine, precision and number of threads, replaced when a later run measures more. The file may
be deleted, and nothing depends on its being writable.
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
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from bertsmith.core.errors import DiskError
from bertsmith.core.files import read_json, replaced_file, text_hash, user_cache
from bertsmith.core.ownership import temporary_path
from bertsmith.core.processors import usable_processors
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.config import Precision
from bertsmith.network.torch_state import threads_of_torch

# square products from one that fits a core's cache; of those that leave most of a GPU idle none
_SIDES = {"cpu": (256, 512, 1024, 2048, 4096, 8192), "cuda": (2048, 4096, 8192)}
# duration of the first measurement on a machine, and of later ones
_FIRST_SECONDS, _LATER_SECONDS = 1.8, 0.6
# many consecutive calls hit a moment in which all threads of a busy machine run; calls longer than
# a time slice of the system never do
_TURN, _MAX_LENGTH = 0.15, 0.025
# cores that share a clock, or two threads of one core, reach about this share of their sum
_SCALING = 0.6
# runs in quick succession share the machine with the same processes: measuring again adds nothing
_RECENT_SECONDS = 600.0
# settings that make the libraries choose other kernels
_KERNEL_SETTINGS = (
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The speed of the fastest matrix product measured on a machine so far."""

    flops: float
    """Operations per second."""
    occasions: int
    """Number of measurements, at least ten minutes apart."""
    measured: float
    """Time of the last measurement, in seconds since 1970."""

    def __str__(self) -> str:
        times = "measured once" if self.occasions == 1 else f"best of {self.occasions} measurements"
        return f"{self.flops / 1e9:,.0f} GFLOP/s ({times})"


def matrix_peak(
    precision: Precision, device: torch.device, *, reached: float = 0.0, processes: int = 1
) -> Peak:
    """Return the machine's peak with the threads of `processes`, each with torch's current number.

    It is measured if the machine is new or was measured more than ten minutes ago, or if `reached`,
    in operations per second, shows that the known peak is too low. It is cached per process.
    """
    with threads_of_torch(processes * torch.get_num_threads()):
        return _peak_with_these_threads(precision, device, reached)


def _peak_with_these_threads(precision: Precision, device: torch.device, reached: float) -> Peak:
    machine = describe_machine(precision, device)
    known = _known_peaks.get(machine)
    if known is None or known.flops < reached:
        measure = functools.partial(measure_peak, precision, device)
        folder = user_cache()
        known = known_peak(
            None if folder is None else folder / "matrix-peak", machine, measure, reached=reached
        )
        _known_peaks[machine] = known
    return known


# peaks known to this process, by machine
_known_peaks: dict[str, Peak] = {}


def known_peak(
    folder: Path | None,
    machine: str,
    measure: Callable[[float], float],
    *,
    reached: float = 0.0,
    now: Callable[[], float] = time.time,
) -> Peak:
    """Return the maximum of the peak in `folder` and a measurement, and store it in the folder.

    `measure` is called with the seconds it may take, unless the stored peak is recent and not below
    `reached`. Without a folder, or with one that cannot be read or written, it is always measured.
    """
    before = None if folder is None else _read(folder, machine)
    if (
        before is not None
        and abs(now() - before.measured) < _RECENT_SECONDS
        and before.flops >= reached
    ):
        return before
    measured_flops = measure(_FIRST_SECONDS if before is None else _LATER_SECONDS)
    peak = Peak(flops=measured_flops, occasions=1, measured=now())
    if before is not None:
        peak = Peak(
            flops=max(measured_flops, before.flops),
            occasions=before.occasions + 1,
            measured=peak.measured,
        )
    if folder is not None:
        _write(folder, machine, peak)
    return peak


def _file(folder: Path, machine: str) -> Path:
    return folder / f"{text_hash(machine)[:16]}.json"


def _read(folder: Path, machine: str) -> Peak | None:
    """Return a machine's peak stored in a folder, None if it is missing or damaged."""
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
    """Replace a machine's peak in a folder atomically; errors of the system are ignored."""
    path = _file(folder, machine)
    record = {"machine": machine, **asdict(peak)}
    with suppress(OSError, DiskError):
        folder.mkdir(parents=True, exist_ok=True)
        with replaced_file(path, temporary_path(path)) as fresh:
            fresh.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def describe_machine(precision: Precision, device: torch.device) -> str:
    """Return all that determines the speed of products: chip, threads, libraries, precision."""
    if device.type == "cuda":
        chip = torch.cuda.get_device_name(device)
    else:
        settings = [f"{name}={os.environ[name]}" for name in _KERNEL_SETTINGS if name in os.environ]
        chip = ", ".join(
            [
                _processor(),
                f"{torch.get_num_threads()} threads on {usable_processors()} processors",
                torch.backends.cpu.get_cpu_capability(),
                *settings,
            ]
        )
    return f"{device.type}: {chip}, torch {torch.__version__}, {precision}"


@functools.cache
def _processor() -> str:
    """Return the model and features of the processor."""
    details = []
    with suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            if name.strip() in {"vendor_id", "cpu family", "model", "model name", "stepping"}:
                details.append(value.strip())
            elif name.strip() in {"flags", "Features"}:
                features = " ".join(sorted(value.split()))
                details.append(f"features {text_hash(features)[:16]}")
    return " ".join(details) or f"{platform.machine()} {platform.processor()}"


def measure_peak(precision: Precision, device: torch.device, seconds: float) -> float:
    """Return the operations per second of the fastest square matrix product, in about `seconds`.

    Threads of a busy machine may never run at the same time meanwhile. The speed of a single thread
    reveals that; then the measurement is repeated up to two times.
    """
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    best = wanted = 0.0
    if threads > 1:
        torch.set_num_threads(1)
        try:
            best = fastest(_products(precision, device), seconds / 3)
        finally:
            torch.set_num_threads(threads)
        wanted = _SCALING * threads * best
    for _ in range(3):
        best = max(best, fastest(_products(precision, device), seconds))
        if best >= wanted:
            break
    return best


def _products(
    precision: Precision, device: torch.device
) -> Iterator[tuple[float, Callable[[], object]]]:
    """Yield square products from small to large: number of operations, and a call that runs it."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    # random numbers drawn later must not depend on whether the peak was measured
    generator = torch.Generator(device).manual_seed(int(stream(Purpose.PEAK_PRODUCTS)))
    for side in _SIDES[device.type]:
        operand, right = torch.rand(2, side, side, device=device, generator=generator).to(kind)
        multiply = functools.partial(torch.mm, operand, right, out=torch.empty_like(operand))
        yield 2.0 * side**3, functools.partial(_finished, multiply, device)


def _finished(call: Callable[[], object], device: torch.device) -> None:
    """Make a call and wait until an accelerator has finished it."""
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fastest(
    products: Iterator[tuple[float, Callable[[], object]]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the highest speed of some products, given as number of operations and call.

    Ordered from small to large, they run in turns of many calls until `seconds` are over; the first
    call of each is not counted. A product joins when its calls are short at the best speed so far.
    """
    started, best = clock(), 0.0

    def timed(call: Callable[[], object]) -> float:
        start = clock()
        call()
        # a clock too coarse for a call would yield an infinite speed
        return max(clock() - start, 1e-7)

    joined: list[tuple[float, Callable[[], object]]] = []
    waiting = next(products, None)
    # once at least: on a busy machine the time may be over before the first product is made
    while (waiting is not None and not joined) or clock() - started < seconds:
        if waiting is not None and waiting[0] <= (best or math.inf) * _MAX_LENGTH:
            timed(waiting[1])
            # the newest first: it is likely the fastest
            joined.insert(0, waiting)
            waiting = next(products, None)
        for operations, call in joined:
            ends = clock() + min(_TURN, seconds / 4)
            while True:
                best = max(best, operations / timed(call))
                if clock() >= min(ends, started + seconds):
                    break
    return best
