"""Memory and disk: does a run fit, and how much memory published models take.

The pre-flight check of both runs before anything is allocated. Memory is estimated from sizes,
mostly to within a third (tests/recipes/test_preflight_room.py measures it); it is the sum of

    weights, gradients, moments     float32, 12 to 16 bytes per parameter; copies in bfloat16
    a copy while it is saved        weights and moments once more
    activations                     what the backward pass needs of every token of one batch
    libraries                       their own memory

The table of models has two such figures, plus the memory of Python and the libraries:

    inference   the weights, and the tensors of a batch that are alive at once: the output of every
                layer, as the encoder returns them, and both sides of the feed-forward activation
    training    the sum above (`memory_need`), with AdamW's two moments"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from rich.box import SIMPLE_HEAD
from torch import nn

from bertsmith.batches.config import SampleConfig
from bertsmith.core.errors import StoreError
from bertsmith.core.log import Table, say
from bertsmith.core.output import print_table
from bertsmith.core.processors import group_folders
from bertsmith.network.config import EncoderConfig, ModelConfig, Precision, preset_config
from bertsmith.network.families.catalog import presets
from bertsmith.network.model import Model, empty_modules
from bertsmith.objectives.pretraining import Generator, generator_config
from bertsmith.training.config import OptimiserConfig

Verdict = Literal["fine", "look", "stop"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a check: the finding, whether that is fine, and what to do if not."""

    name: str
    found: str
    verdict: Verdict = "fine"
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of a check, in the order they are printed."""

    findings: tuple[Finding, ...]

    def __add__(self, other: Findings) -> Findings:
        """Return all findings, these first."""
        return Findings(findings=(*self.findings, *other.findings))

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return asdict(self)

    def page(self) -> list[str]:
        """Return the lines of the page."""
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = []
        for finding in self.findings:
            lines.append(f"  {finding.name:<{width}}  {finding.found}")
            if finding.verdict != "fine":
                lines.append(f"  {'':<{width}}  {finding.verdict}: {finding.remedy}")
        return lines

    def print(self) -> None:
        """Print the page."""
        say("before training:")
        for line in self.page():
            say(line)

    def raise_if_stopped(self, where: Path) -> None:
        """Raise `StoreError` if any finding would waste the run."""
        stops = [finding for finding in self.findings if finding.verdict == "stop"]
        if stops:
            remedies = dict.fromkeys(finding.remedy for finding in stops)
            raise StoreError(
                "; ".join(f"{finding.name}: {finding.found}" for finding in stops),
                where=where,
                remedy="; ".join(remedies) + "; or continue with --force",
            )


def limit_finding(
    name: str, result: str, figure: float, limits: tuple[float, float], remedy: str
) -> Finding:
    """Return a finding with the verdict "look" above the first limit, "stop" above the second."""
    verdict: Verdict = "stop" if figure > limits[1] else "look" if figure > limits[0] else "fine"
    return Finding(name=name, found=result, verdict=verdict, remedy=remedy)


def worst_verdict(findings: Iterable[Finding]) -> Verdict:
    """Return the most severe of some verdicts."""
    order: tuple[Verdict, ...] = ("fine", "look", "stop")
    return max((finding.verdict for finding in findings), key=order.index, default="fine")


def percent(share: float) -> str:
    """Return a share in per cent: ``12.3 %``."""
    return f"{100 * share:.1f} %"


WORKING_ROOM = 250_000_000
_REMEDY = (
    "choose a smaller --model, or half of --tokens-per-batch with twice --gradient-accumulation"
)


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
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


def memory_need(
    config: ModelConfig, samples: SampleConfig, optimiser: OptimiserConfig, precision: Precision
) -> MemoryNeed:
    """Return the memory of training a model of this config, from the sizes alone.

    The generator of an ELECTRA is trained beside it.
    """
    with empty_modules():
        model = Model(config)
        generator = Generator(config.encoder) if config.replaced_tokens else nn.Module()
    total = sum(p.numel() for module in (model, generator) for p in module.parameters())
    hidden_matrices = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if name.startswith("encoder.blocks.") and parameter.dim() == 2
    )
    momentum_alone = hidden_matrices if optimiser.matrices == "muon" else 0
    half = precision == "bf16"
    return MemoryNeed(
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
    scores = encoder.heads * _keys_per_query(encoder, longest)
    layer += width * scores
    # masks: a byte per value that dropout applies to, scores included
    if encoder.dropout:
        layer += 2 * hidden * (1 + width)
    if encoder.attention_dropout:
        layer += width * scores
    return encoder.layers * layer


def layer_weights(encoder: EncoderConfig) -> int:
    """Return the weights in the matrices of all layers; shared ones count for each layer."""
    matrices = 4 * encoder.hidden + (3 if encoder.gated else 2) * encoder.feed_forward
    return encoder.layers * encoder.hidden * matrices


def _keys_per_query(encoder: EncoderConfig, longest: int) -> float:
    """Return the number of keys per query for which scores are computed, the mean of all layers."""
    if encoder.window is None:
        return longest
    everywhere = -(-encoder.layers // encoder.global_every)
    local = min(longest, 2 * encoder.window)
    return (everywhere * longest + (encoder.layers - everywhere) * local) / encoder.layers


def check_memory_and_disk(
    needs: MemoryNeed, folder: Path, device: torch.device, *, checkpoints: int, processes: int = 1
) -> list[Finding]:
    """Return findings on memory and disk needed, by `processes` on this machine, and available."""
    free = free_memory(device)
    memory = needs.memory * (1 if device.type == "cuda" else processes)
    disk = checkpoints * needs.checkpoint + needs.weights
    free_disk = shutil.disk_usage(_existing(folder)).free
    several = f" in {processes} processes" if processes > 1 else ""
    findings = [
        limit_finding(
            "disk needed",
            f"{gigabytes(disk)} for checkpoints and model, {gigabytes(free_disk)} free",
            disk / max(free_disk, 1),
            (0.8, 1.0),
            "free some space, or name an --out on another disk",
        )
    ]
    if free is None:
        return [Finding(name="memory needed", found=gigabytes(memory) + several), *findings]
    return [
        limit_finding(
            "memory needed",
            f"about {gigabytes(memory)}{several} ({gigabytes(needs.activations)} of it for "
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
    free = [_free_machine_memory(), *_free_group_memory(group_folders("memory"))]
    limits = [item for item in free if item is not None]
    return min(limits) if limits else None


def _free_machine_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(kilobytes[0]) if kilobytes else None


def _free_group_memory(groups: Iterable[Path]) -> Iterator[int]:
    """Yield the free bytes of the control groups in these folders that have a limit."""
    for group in groups:
        # of versions 2 and 1
        for limit, used in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
            allowed, usage = (_number(group / f"memory.{name}") for name in (limit, used))
            if allowed is not None and usage is not None:
                yield max(0, allowed - usage + _reclaimable(group / "memory.stat"))


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


TOKENS = 4096
"""Tokens of the batch for which memory is given, 32 sequences of 128."""
_MAX_LENGTH = 128
# measured: a process with all imports, and what the first batch loads
_IMPORTED, _LOADED = 230_000_000, 70_000_000


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A row of the table; memory in bytes."""

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    parameters: int
    published: str
    inference_fp32: int
    inference_bf16: int
    training_fp32: int


def models() -> list[ModelFacts]:
    """Return the facts of all published models."""
    return [_facts(name) for name in presets()]


def show(facts: Iterable[ModelFacts]) -> None:
    """Print the models as a table."""
    table = Table(title="Published models", caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    table.caption = (
        "Parameters in millions, as the published count takes them. GB of memory of a whole "
        f"process, to run the encoder on batches of {TOKENS:,} tokens in sequences of {_MAX_LENGTH}"
        ", and to train it with them: masked LM, AdamW, a checkpoint being saved."
    )
    table.add_column("model", no_wrap=True)
    for title in ("layers/\nhidden", "parameters", "published", *_MEMORY.values()):
        table.add_column(title, justify="right", no_wrap=True)
    for item in facts:
        memory = (f"{getattr(item, field) / 1e9:,.1f}" for field in _MEMORY)
        count = f"{item.parameters / 1e6:,.1f}"
        table.add_row(item.name, f"{item.layers}/{item.hidden}", count, item.published, *memory)
    print_table(table)


def as_json(facts: Iterable[ModelFacts]) -> dict[str, Any]:
    """Return the models, and the batch that memory is given for, as plain values."""
    return {
        "tokens_per_batch": TOKENS,
        "longest": _MAX_LENGTH,
        "models": [dataclasses.asdict(item) for item in facts],
    }


_MEMORY = {
    "inference_fp32": "run\nfp32",
    "inference_bf16": "run\nbf16",
    "training_fp32": "train\nfp32",
}


def inference_memory(config: ModelConfig, *, width: int) -> int:
    """Return the bytes of a process that runs the encoder on a batch, `width` bytes per value."""
    values = parameters(config) + TOKENS * _live_values(config.encoder)
    return width * values + _IMPORTED + _LOADED


@cache
def parameters(config: ModelConfig) -> int:
    """Return the number of parameters, counted without allocating any."""
    with empty_modules():
        model = Model(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _live_values(encoder: EncoderConfig) -> int:
    """Return the values per token alive at once in the last layer, where most are."""
    inner = (4 if encoder.gated else 2) * encoder.feed_forward
    return (encoder.layers + 1 + 4) * encoder.hidden + inner


def _facts(name: str) -> ModelFacts:
    config = preset_config(name)
    encoder = config.encoder
    samples = SampleConfig(max_length=_MAX_LENGTH, tokens_per_batch=TOKENS)
    trained = dataclasses.replace(config, masked_lm=True)
    return ModelFacts(
        name=name,
        family=encoder.family,
        layers=encoder.layers,
        hidden=encoder.hidden,
        heads=encoder.heads,
        vocabulary=encoder.vocabulary,
        parameters=parameters(config),
        published=presets()[name][1].published,
        inference_fp32=inference_memory(config, width=4),
        inference_bf16=inference_memory(config, width=2),
        training_fp32=_IMPORTED + memory_need(trained, samples, OptimiserConfig(), "fp32").memory,
    )
