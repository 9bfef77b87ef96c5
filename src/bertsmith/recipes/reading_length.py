"""How many tokens of a text are read in fine-tuning, where nobody has said.

As many as the texts ask for, within the model's limit, the memory and the time there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.models.flops import Work, training_flops
from bertsmith.models.model import ModelConfig
from bertsmith.recipes.finetune_settings import FinetuneConfig
from bertsmith.recipes.preflight_room import free_memory, layer_activations
from bertsmith.recipes.tasks.task import Room, Task
from bertsmith.tokens.tokenizer import Tokenizer

MOST = 512
# share of the texts that are to be read whole, and what lengths are rounded up to
_COVERED, _MULTIPLE = 0.95, 64
_LOOKED_AT = 2000
# operations of all trainings: about an hour of two cores with bfloat16 products
_OPERATIONS, _OPERATIONS_OF_A_GPU = 1e15, 1e17
_SHARE_OF_MEMORY = 0.5


@dataclass(frozen=True, kw_only=True)
class ReadingLength:
    """Tokens of a text that are read at most, and what is to be said of it, "" for nothing."""

    longest: int
    told: str = ""


def reading_length(
    task: Task[Any],
    rows: Sequence[Any],
    tokenizer: Tokenizer,
    config: ModelConfig,
    settings: FinetuneConfig,
    trainings: int,
    device: torch.device,
) -> ReadingLength:
    """Choose the length for so many trainings on some rows.

    It is the task's own where windows read all of a text, for a benchmark's task, and where 95 % of
    the rows are no longer.
    """
    usual, limit = task.longest, min(config.encoder.longest, MOST)
    if not task.fits or settings.long == "windows" or task.name != task.called or limit <= usual:
        return ReadingLength(longest=min(usual, config.encoder.longest))
    step = -(-len(rows) // _LOOKED_AT)
    encoded = task.encode(tokenizer, rows[::step], (), Room(longest=limit), labelled=False)
    lengths = np.array([len(ids) for ids in encoded.ids], np.int64)
    wanted = int(np.quantile(lengths, _COVERED, method="inverted_cdf"))
    wanted = min(limit, -(-wanted // _MULTIPLE) * _MULTIPLE)
    if wanted <= usual:
        return ReadingLength(longest=usual)
    most = _OPERATIONS if device.type == "cpu" else _OPERATIONS_OF_A_GPU
    memory = free_memory(device)
    times = len(rows) / len(rows[::step]) * settings.epochs * trainings
    chosen = usual
    for longest in (*range(usual, wanted, _MULTIPLE), wanted):
        operations = times * _operations(config, np.minimum(lengths, longest))
        half = settings.precision == "bf16"
        kept = settings.batch * longest * layer_activations(config.encoder, longest, half=half)
        room = memory is None or kept <= _SHARE_OF_MEMORY * memory
        if longest > usual and (operations > most or not room):
            break
        chosen = longest
    whole = 100 * float(np.mean((lengths <= chosen) & (lengths < limit)))
    told = f"up to {chosen} tokens of a text are read, all of {whole:.0f} % of them"
    if chosen < wanted:
        told += f"; more would take too much time or memory, --longest {wanted} reads more"
    return ReadingLength(longest=chosen, told=told)


def _operations(config: ModelConfig, lengths: NDArray[np.int64]) -> float:
    """Operations of training on sequences of these lengths once."""
    work = Work(tokens=int(lengths.sum()), pairs=int((lengths**2).sum()), sequences=len(lengths))
    return training_flops(config, work)
