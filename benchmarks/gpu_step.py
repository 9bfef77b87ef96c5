"""What each fused part of a training step is worth on a GPU, in one run of two minutes or so.

python benchmarks/gpu_step.py
python benchmarks/gpu_step.py --sweep                    tile sizes of the kernels as well
python benchmarks/gpu_step.py --device cpu --shape 2/128 --sequences 4   to see that it runs

Full steps as `bertsmith pretrain` makes them (gradient, norm, clipping, AdamW; masked LM, bf16,
dropout 0.1, 256 filled sequences of 128 tokens), in interleaved rounds of a few steps: with all
that `network.fused` has, with each part left to torch in turn, without any, and transformers with
sdpa. Batches lie ready; two rows draw them in line. Steps of fewer sequences wait for the
processor, and all parts are used there too. Kernels and their times are those that the profiler saw
in a step. Without dropout and from the same weights, losses have to agree to 2e-3 and gradients to
a cosine of .999; and short trainings, with all and without any, within the spread of their seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bertsmith.network import batch as batches
from bertsmith.network.batch import Batch
from bertsmith.network.flops import training_flops, work_of
from bertsmith.network.fused import support
from bertsmith.network.fused.support import PARTS
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.training.distribution import ALONE
from bertsmith.training.gradients import compute_gradient
from bertsmith.training.peak import measure_peak
from bertsmith.training.replicas import Replica
from throughput.sequences import Sequences, filled, tokenizer_for
from throughput.sides import Bertsmith, Plan, Transformers

LENGTH = 128
# batches that the processor may not keep up with, in sequences
FEWER = (8, 32, 64, 96, 128)
TRAINED_SEEDS = 6
LOSS_BOUND, COSINE_BOUND, TRAINED_BOUND = 2e-3, 0.999, 0.02


def main() -> None:
    """Run everything, print the tables and a line of JSON."""
    asked = _arguments()
    torch.set_num_threads(asked.threads)
    # whatever the size: what that costs is measured too
    support.least_values = 0
    layers, hidden = map(int, asked.shape.split("/"))
    with tempfile.TemporaryDirectory() as folder:
        sequences = filled(None, tokenizer_for(None, Path(folder)), LENGTH)
        plan = Plan(
            side="bertsmith", objective="masked_lm", layers=layers, hidden=hidden, dropout=0.1,
            device=asked.device, threads=asked.threads, vocabulary=Path(folder),
        )  # fmt: skip
        result = _measured(asked, plan, sequences)
    _show(result)
    print(json.dumps(result))


def _measured(asked: argparse.Namespace, plan: Plan, sequences: Sequences) -> dict[str, Any]:
    """Return all results, the most important ones first."""
    began = time.perf_counter()
    ours = Ours(plan, sequences, asked.sequences)
    rival = None
    if not asked.no_rival:
        rival = Transformers(replace(plan, side="transformers"), sequences)
    result: dict[str, Any] = {"benchmark": "gpu_step", "device": _name(asked.device)}
    result["agreement"] = ours.agreement()
    result["rows"] = _rows(asked, ours, rival)
    names = [name for name in ("all", "none") if name in result["rows"]]
    result["profile"] = {name: ours.profile(name) for name in names}
    result["trained"] = ours.trained(plan, sequences) if len(names) == 2 else None
    peak = measure_peak(plan.precision, torch.device(asked.device), seconds=1.0)
    result["peak_tflops"], result["step_tflop"] = peak / 1e12, ours.flops / 1e12
    if asked.sweep:
        result["sweep"] = _sweep(asked.sequences * LENGTH, plan.hidden)
    return result | {"seconds": time.perf_counter() - began}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--shape", default="12/768", help="layers/hidden")
    parser.add_argument("--sequences", type=int, default=256, help="in a batch")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=6, help="of a variant in a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-rival", action="store_true", help="without transformers")
    parser.add_argument("--sweep", action="store_true", help="time other tile sizes of the kernels")
    return parser.parse_args()


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else device


def variants() -> list[str]:
    """Names of what is compared."""
    return [
        "all",
        *(f"without {part}" for part in PARTS),
        "without pinning",
        "none",
    ]


@contextmanager
def variant(name: str) -> Iterator[None]:
    """Compute meanwhile as a variant does."""
    left_out = {"none": PARTS}.get(name, tuple(p for p in PARTS if name == f"without {p}"))
    moved = batches.moved
    if name in ("without pinning", "none"):
        batches.moved = lambda tensor, device: tensor.to(device, non_blocking=True)
    try:
        with support.without(*left_out):
            yield
    finally:
        batches.moved = moved


class Ours:
    """Steps as the training loop makes them."""

    def __init__(self, plan: Plan, sequences: Sequences, count: int, *, seed: int = 0) -> None:
        self.side, self.count, self.seed = Bertsmith(plan, sequences), count, seed
        self.replica = Replica(self.side.model, PRETRAINING, plan.precision, ALONE)
        self.batches = [self._draw(count) for _ in range(8)]
        self.fewer = {few: [self._draw(few) for _ in range(8)] for few in FEWER}
        self.steps, self.losses = 0, list[float]()
        work = work_of(self.batches[0], last_needed=True)
        self.flops = training_flops(self.side.model.config, work)

    def _draw(self, count: int) -> Batch:
        batch = self.side._batch(count * LENGTH)
        # masks differ from step to step
        self.side.steps += 1
        assert isinstance(batch, Batch)
        return batch

    def step(self, batches: list[Batch] | None = None) -> None:
        """Make a step on one of some batches, or on one that is drawn now."""
        batch = batches[self.steps % len(batches)] if batches else self._draw(self.count)
        gradient = compute_gradient(self.replica, [batch], self.seed, self.steps, clip=1.0)
        assert gradient is not None
        self.losses.append(gradient.loss)
        self.side.optimiser.step(1.0)
        self.steps += 1

    def gradients(self) -> tuple[float, dict[str, Tensor]]:
        """Return the loss of the first batch and its gradients, without a step."""
        gradient = compute_gradient(self.replica, self.batches[:1], 0, 0, clip=0.0)
        assert gradient is not None
        found = {
            name: parameter.grad.double()
            for name, parameter in self.side.model.named_parameters()
            if parameter.grad is not None
        }
        self.side.model.zero_grad(set_to_none=True)
        return gradient.loss, found

    def agreement(self) -> dict[str, dict[str, Any]]:
        """Return how far losses and gradients of every variant are from those without any part."""
        self.side.model.set_dropout(0.0)
        results: dict[str, dict[str, Any]] = {}
        with variant("none"):
            loss, wanted = self.gradients()
        for name in variants():
            try:
                with variant(name):
                    mine, found = self.gradients()
            except Exception:
                # what fails shall not hide the rest, as time on a GPU is dear
                traceback.print_exc()
                results[name] = {"loss": math.nan, "cosine": math.nan, "agrees": False}
                continue
            assert found.keys() == wanted.keys()
            cosines = {
                # a constant added to all keys changes nothing, so their biases' gradient is noise
                key: float(torch.cosine_similarity(found[key].flatten(), value.flatten(), 0))
                for key, value in wanted.items() if not key.endswith("key.bias")
            }  # fmt: skip
            worst = min(cosines, key=lambda key: cosines[key])
            apart = abs(mine / loss - 1)
            results[name] = {
                "loss": mine, "apart": apart, "worst": worst, "cosine": cosines[worst],
                "agrees": apart < LOSS_BOUND and cosines[worst] > COSINE_BOUND,
            }  # fmt: skip
        self.side.model.set_dropout(0.1)
        return results

    def trained(self, plan: Plan, sequences: Sequences) -> dict[str, Any]:
        """Return mean losses of the last third of 60 steps, by seeds of dropout, on like batches.

        They agree if the means over seeds differ by less than three standard errors, and without
        dropout by less than the bound.
        """
        means: dict[str, list[float]] = {"none": [], "all": []}
        still = dict[str, float]()
        for name, found in means.items():
            with variant(name):
                still[name] = self._trained(replace(plan, dropout=0.0), sequences, seed=0)
                for seed in range(TRAINED_SEEDS):
                    found.append(self._trained(plan, sequences, seed=seed))
        error = math.sqrt(sum(statistics.variance(each) for each in means.values()) / TRAINED_SEEDS)
        apart = abs(statistics.fmean(means["all"]) - statistics.fmean(means["none"]))
        without = abs(still["all"] / still["none"] - 1)
        return {
            **means, "without dropout": still, "apart": apart, "standard error": error,
            "agrees": apart < 3 * error and without < TRAINED_BOUND,
        }  # fmt: skip

    def _trained(self, plan: Plan, sequences: Sequences, *, seed: int) -> float:
        run = Ours(plan, sequences, max(1, self.count // 4), seed=seed)
        for _ in range(60):
            run.step(run.batches)
        return statistics.fmean(run.losses[40:])

    def profile(self, name: str) -> dict[str, Any]:
        """Return the number of kernels of a step, their time, and the longest, in milliseconds."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with variant(name):
            self.step(self.batches)
            _wait()
            with torch.profiler.profile(activities=activities) as seen:
                for _ in range(2):
                    self.step(self.batches)
                _wait()
        on_gpu = [
            event
            for event in seen.events()
            # a range that a program names covers kernels that stand there themselves
            if event.device_type != torch.profiler.DeviceType.CPU
            and not getattr(event, "is_user_annotation", False)
        ]
        on_gpu.sort(key=lambda event: event.time_range.start)
        gaps = sorted(
            ((after.time_range.start - before.time_range.end) / 1000, after.name[:60])
            for before, after in pairwise(on_gpu)
        )  # fmt: skip
        times: dict[str, list[float]] = defaultdict(list)
        for event in on_gpu:
            times[event.name].append(event.time_range.elapsed_us() / 2000)
        longest = sorted(times, key=lambda key: -sum(times[key]))[:24]
        return {
            "kernels": len(on_gpu) / 2,
            "busy_ms": sum(map(sum, times.values())),
            "idle_ms": sum(gap for gap, _ in gaps if gap > 0) / 2,
            "gaps": [[round(gap, 3), name] for gap, name in gaps[:-9:-1]],
            "longest": {
                key[:90]: [round(sum(times[key]), 3), len(times[key]) / 2] for key in longest
            },
        }


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _timed(step: Callable[[], object], steps: int) -> float:
    """Return milliseconds of a step, after one that is not counted."""
    step()
    _wait()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    _wait()
    return (time.perf_counter() - began) / steps * 1000


def _rows(asked: argparse.Namespace, ours: Ours, rival: Transformers | None) -> dict[str, Any]:
    """Return medians of milliseconds a step and their spread, by variant."""
    contests: dict[str, tuple[str, Callable[[], object]]] = {}
    for name in variants():
        contests[name] = (name, lambda: ours.step(ours.batches))
    for name in ("all", "none"):
        contests[f"{name}, drawn in line"] = (name, ours.step)
    for few, those in ours.fewer.items():
        for name in ("all", "none"):
            contests[f"{name}, {few} sequences"] = (name, partial(ours.step, those))
    if rival is not None:
        contests["transformers, drawn in line"] = ("none", lambda: rival.step(asked.sequences))
    times: dict[str, list[float]] = {}
    for label, (name, step) in contests.items():
        try:
            with variant(name):
                # compile, and let libraries choose their kernels
                _timed(step, 1)
            times[label] = []
        except Exception:
            traceback.print_exc()
    for _ in range(asked.rounds):
        for label, found in times.items():
            name, step = contests[label]
            with variant(name):
                found.append(_timed(step, asked.steps))
    return {
        label: {"ms": statistics.median(mine), "least": min(mine), "most": max(mine)}
        for label, mine in times.items()
    }


# tiles that are tried, by the names of the constants
_NORM_TILES = [
    {"TILE": tile, "WARP": warp, "RESIDENT": resident}
    for tile, warp in ((1024, 256), (2048, 256), (1024, 128), (2048, 512))
    for resident in (16, 24, 48, 96)
]
_GELU_TILES = [
    {"ROWS": tall, "COLUMNS": wide, "CHUNK": chunk}
    for tall, wide in ((8, 256), (4, 256), (4, 512), (16, 128))
    for chunk in (64, 128, 256)
]


def _sweep(rows: int, width: int) -> list[dict[str, Any]]:
    """Return microseconds of the kernels with other tiles, and the gigabytes a second they move."""
    from bertsmith.network.fused import add_norm as norms
    from bertsmith.network.fused import gelu as gelus

    norm = torch.nn.LayerNorm(width).cuda()
    half = torch.randn(rows, width).cuda().bfloat16().requires_grad_()
    whole = half.detach().float().requires_grad_()
    bias = torch.zeros(width, device="cuda", requires_grad=True)
    inner = half.detach().repeat(1, 4).requires_grad_()
    inner_bias = bias.detach().repeat(4).requires_grad_()
    of_norm = Measured(
        forward=lambda: norms.add_norm(half, bias, whole, norm, 0.1),
        inputs=(half, bias, whole, *norm.parameters()), given=(whole.detach(), half.detach()),
        moved=(14 * rows * width, 14 * rows * width),
    )  # fmt: skip
    of_gelu = Measured(
        forward=lambda: (gelus.bias_gelu(inner, inner_bias, tanh=False),),
        inputs=(inner, inner_bias), given=(inner.detach(),),
        moved=(16 * rows * width, 24 * rows * width),
    )  # fmt: skip
    found = []
    for module, kernel, settings in (
        (norms, of_norm, _NORM_TILES), (gelus, of_gelu, _GELU_TILES)
    ):  # fmt: skip
        before = {name: getattr(module, name) for name in settings[0]}
        for setting in settings:
            vars(module).update(setting)
            found.append({"kernel": module.__name__.split(".")[-1], **setting, **kernel.times()})
        vars(module).update(before)
    return found


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A function of which both directions are timed."""

    forward: Callable[[], tuple[Tensor, ...]]
    inputs: tuple[Tensor, ...]
    given: tuple[Tensor, ...]
    """Gradients of what it returns."""
    moved: tuple[int, int]
    """Bytes that each direction has to move."""

    def times(self) -> dict[str, float]:
        """Return microseconds and gigabytes a second."""
        out = self.forward()
        forward = _busy(self.forward)
        backward = _busy(
            lambda: torch.autograd.grad(out, self.inputs, self.given, retain_graph=True)
        )
        return {
            "forward_us": forward, "forward_GBps": self.moved[0] / forward / 1e3,
            "backward_us": backward, "backward_GBps": self.moved[1] / backward / 1e3,
        }  # fmt: skip


def _busy(call: Callable[[], object], turns: int = 20) -> float:
    """Return microseconds that the GPU is busy with a call."""
    for _ in range(3):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # work before, so that the calls wait in a queue and the processor's time is not counted
    torch.cuda._sleep(20_000_000)
    begin.record()
    for _ in range(turns):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / turns * 1000


def _show(result: dict[str, Any]) -> None:
    console, rows = Console(width=130), result["rows"]
    table = Table(title=f"ms a step, {result['device']}, peak {result['peak_tflops']:.0f} TFLOP/s")
    for column in ("", "ms", "least", "most", "share of none", "MFU", "loss", "cosine", "agrees"):
        table.add_column(column, justify="left" if not column else "right")
    for label, row in rows.items():
        share = result["step_tflop"] / (row["ms"] / 1000) / result["peak_tflops"]
        agreement = result["agreement"].get(label, {})
        other = label.endswith("sequences") or label.startswith("transformers")
        table.add_row(
            label, f"{row['ms']:.2f}", f"{row['least']:.2f}", f"{row['most']:.2f}",
            f"{row['ms'] / rows['none']['ms']:.3f}", "" if other else f"{share:.1%}",
            *(f"{agreement[name]:.5f}" if agreement else "" for name in ("loss", "cosine")),
            str(agreement.get("agrees", "")),
        )  # fmt: skip
    console.print(table)
    for name, seen in result["profile"].items():
        busy = f"busy {seen['busy_ms']:.1f} ms, idle {seen['idle_ms']:.1f} ms"
        console.print(f"{name}: {seen['kernels']:.0f} kernels, {busy}")
        console.print(f"  longest gaps, and what came after them: {seen['gaps']}", markup=False)
        for kernel, (spent, count) in seen["longest"].items():
            console.print(f"  {spent:7.3f} ms {count:5.0f}  {kernel}", markup=False)
    console.print(f"mean loss of 20 steps after 40: {result['trained']}")
    for line in sorted(
        result.get("sweep", []), key=lambda one: (one["kernel"], one["backward_us"])
    ):
        console.print(
            {n: round(v) if isinstance(v, float) else v for n, v in line.items()}, width=130
        )
    console.print(f"{result['seconds']:.0f} s")


if __name__ == "__main__":
    main()
