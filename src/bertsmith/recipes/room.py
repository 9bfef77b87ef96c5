"""Pre-flight check of memory and disk: does the run fit?

It runs before anything is allocated. Memory is estimated from sizes, mostly to within a third
(tests/recipes/test_preflight_room.py measures it); it is the sum of

    weights, gradients, moments     float32, 12 to 16 bytes per parameter; copies in bfloat16
    a copy while it is saved        weights and moments once more
    activations                     what the backward pass needs of every token of one batch
    libraries                       their own memory
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from bertsmith.batches.config import SampleConfig
from bertsmith.network.config import Precision
from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.model import Model, ModelConfig
from bertsmith.objectives.replaced_tokens import generator_config
from bertsmith.recipes.findings import Finding, judged
from bertsmith.training.config import OptimiserConfig

WORKING_ROOM = 250_000_000
_REMEDY = "take a smaller --model, or half of --tokens-per-batch with twice --gradient-accumulation"


@dataclass(frozen=True, kw_only=True)
class Need:
    """Memory of training, in bytes."""

    weights: int
    """Parameters, float32."""
    moments: int
    """State of the optimiser."""
    passing: int
    """Gradients and the weights in bfloat16."""
    activations: int
    """Tensors of a batch kept for the backward pass."""

    @property
    def memory(self) -> int:
        """Return all of it, with a copy of what a checkpoint holds while that is saved."""
        return 2 * self.checkpoint + self.passing + self.activations + WORKING_ROOM

    @property
    def checkpoint(self) -> int:
        """Return the size of a checkpoint on the disk."""
        return self.weights + self.moments


def need(
    config: ModelConfig, samples: SampleConfig, optimiser: OptimiserConfig, precision: Precision
) -> Need:
    """Return the memory of training a model of this config, from the sizes alone."""
    with torch.device("meta"):
        model = Model(config)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    total = sum(sizes.values())
    hidden_matrices = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if name.startswith("encoder.blocks.") and parameter.dim() == 2
    )
    momentum_alone = hidden_matrices if optimiser.matrices == "muon" else 0
    half = precision == "bf16"
    return Need(
        weights=4 * total,
        moments=8 * total - 4 * momentum_alone,
        passing=4 * total + 2 * half * total,
        activations=_activations(config, samples, half=half),
    )


def _activations(config: ModelConfig, samples: SampleConfig, *, half: bool) -> int:
    """Return the bytes kept for the backward pass of a batch; matrix products in half precision."""
    encoder, width = config.encoder, 2 if half else 4
    share = 1.0 if samples.left_to_right else samples.masking.probability
    # logits, their float32, log-probabilities, gradients and the copy for the maximum
    head = share * encoder.vocabulary * (2 * width + 4 * 4)
    if samples.left_to_right:
        head = 0.0  # made in slices
    layers = layer_activations(encoder, samples.max_length, half=half)
    if samples.replaced_tokens:
        layers += layer_activations(generator_config(encoder), samples.max_length, half=half)
    return int(samples.tokens_per_batch * (layers + head))


def layer_activations(encoder: EncoderConfig, longest: int, *, half: bool) -> float:
    """Return the bytes that all layers keep per token of a sequence of the given length."""
    width, hidden = 2 if half else 4, encoder.hidden
    # inputs of the four products and of the scores; inputs of the two norms and of the layer
    inner = (4 if encoder.gated else 2) * encoder.feed_forward
    layer: float = width * (6 * hidden + inner) + 4 * 3 * hidden
    scores = encoder.heads * _met(encoder, longest)
    layer += width * scores
    # masks: a byte per value that dropout applies to, scores included
    if encoder.dropout:
        layer += 2 * hidden * (1 + width)
    if encoder.attention_dropout:
        layer += width * scores
    return encoder.layers * layer


def _met(encoder: EncoderConfig, longest: int) -> float:
    """Return the number of keys per query for which scores are computed, the mean of all layers."""
    if encoder.window is None:
        return longest
    everywhere = -(-encoder.layers // encoder.global_every)
    near = min(longest, 2 * encoder.window)
    return (everywhere * longest + (encoder.layers - everywhere) * near) / encoder.layers


def look_at_room(
    wanted: Need, folder: Path, device: torch.device, *, checkpoints: int, processes: int = 1
) -> list[Finding]:
    """Return findings on memory and disk needed, by `processes` on this machine, and available."""
    free = free_memory(device)
    memory = wanted.memory * (1 if device.type == "cuda" else processes)
    disk = checkpoints * wanted.checkpoint + wanted.weights
    left = shutil.disk_usage(_existing(folder)).free
    several = f" in {processes} processes" if processes > 1 else ""
    findings = [
        judged(
            "disk needed",
            f"{gigabytes(disk)} for checkpoints and model, {gigabytes(left)} free",
            disk / max(left, 1),
            (0.8, 1.0),
            "free some space, or name an --out on another disk",
        )
    ]
    if free is None:
        return [Finding(name="memory needed", found=gigabytes(memory) + several), *findings]
    return [
        judged(
            "memory needed",
            f"about {gigabytes(memory)}{several} ({gigabytes(wanted.activations)} of it for "
            f"a batch), {gigabytes(free)} free",
            memory / max(free, 1),
            (0.8, 1.1),
            _REMEDY,
        ),
        *findings,
    ]


def free_memory(device: torch.device) -> int | None:
    """Return the bytes this process may still allocate: on the device, or in machine and group."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = [_of_the_machine(), *_of_the_groups()]
    known = [item for item in free if item is not None]
    return min(known) if known else None


def _of_the_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(kilobytes[0]) if kilobytes else None


def _of_the_groups(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> list[int]:
    """Return the free bytes of each control group above this process, versions 1 and 2."""
    free = []
    for line in own.read_text(encoding="utf-8").splitlines() if own.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root / "memory" if controllers else root
        limit, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if controllers
            else ("memory.max", "memory.current")
        )
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                most, now = _number(folder / limit), _number(folder / used)
                if most is not None and now is not None:
                    free.append(max(0, most - now + _reclaimable(folder / "memory.stat")))
    return free


def _number(file: Path) -> int | None:
    """Return the number in a file, None for "max" or if there is none."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _reclaimable(file: Path) -> int:
    """Return the bytes of reclaimable cached files."""
    try:
        pairs = [line.split() for line in file.read_text(encoding="ascii").splitlines()]
    except OSError:
        return 0
    return next((int(value) for name, value in pairs if name == "inactive_file"), 0)


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def gigabytes(amount: float) -> str:
    """Return a human-readable number of bytes."""
    return f"{amount / 1e9:.1f} GB" if amount >= 1e8 else f"{amount / 1e6:.0f} MB"
