"""Default size of a new network, chosen by the amounts of text and of time.

A network learns most from a budget when it reads about 20 tokens for each weight of its layers
(Hoffmann et al. 2022, section 3: Chinchilla), and repeating the text more than 16 times has no
further benefit (Muennighoff et al. 2023, section 6). So the choice is the largest published size
that reads so much in the given time, at its measured speed on this machine, from a corpus of this
length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch

from bertsmith.batches.pretraining import PhasedBatches
from bertsmith.core.errors import ConfigError
from bertsmith.core.log import short_number
from bertsmith.core.printable import counted
from bertsmith.network.model import ModelConfig, build_model
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.pretrain.config import PretrainSettings
from bertsmith.recipes.pretrain.preflight.check import shares_of
from bertsmith.recipes.pretrain.preflight.speed import MOST_SECONDS, measure
from bertsmith.store.store import TokenStore
from bertsmith.training.config import Budget

SIZES = ("tiny", "mini", "small", "medium", "base")
TOKENS_A_WEIGHT, USEFUL_TIMES = 20, 16
# shares of the minutes: for trying one size, and for everything but steps
_TRYING, _NO_STEPS = 0.01, 0.25


@dataclass(frozen=True, kw_only=True)
class SizeChoice:
    """A size, and why it was chosen."""

    size: str
    reason: str


def pick_size(
    weights: Mapping[str, float], tokens_of: Callable[[str], float], corpus: int, time: str
) -> SizeChoice:
    """Choose among sizes, in growing order of their `weights`, for a corpus of tokens.

    `tokens_of` returns how many tokens a size reads in the budget; a larger one reads no more than
    a smaller one, and is measured only if that would be enough.
    """
    sizes = list(weights)
    chosen, read = sizes[0], tokens_of(sizes[0])
    most = USEFUL_TIMES * corpus
    wanting = ""
    for size in sizes[1:]:
        wanted = TOKENS_A_WEIGHT * weights[size]
        reads = tokens_of(size) if min(read, most) >= wanted else read
        if min(reads, most) < wanted:
            wanting = (
                f"; {size} would want {short_number(wanted)}, {TOKENS_A_WEIGHT} for each of the "
                f"{short_number(weights[size])} weights in its layers"
            )
            if most < reads:
                wanting += f", and text read more than {USEFUL_TIMES} times teaches nothing new"
            break
        chosen, read = size, reads
    return SizeChoice(
        size=chosen,
        reason=f"size {chosen}, as no --model is named: it reads about {short_number(read)} tokens "
        f"in {time}, the corpus {read / max(corpus, 1):.2g} times{wanting}",
    )


def choose_size(
    store: TokenStore,
    budget: Budget,
    settings: PretrainSettings,
    network_of: Callable[[str], ModelConfig],
    device: torch.device,
    processes: int = 1,
) -> SizeChoice:
    """Choose the size for a new run; `network_of` returns the config of a size."""
    configs = {SIZES[0]: network_of(SIZES[0])}
    for size in SIZES[1:]:
        # not every family has all of them
        with suppress(ConfigError):
            configs[size] = network_of(size)
    batches = PhasedBatches(
        store, store.tokenizer(), settings.samples, settings.phases, settings.seed
    )

    def tokens_of(size: str) -> float:
        if budget.steps is not None:
            a_step = processes * settings.gradient_accumulation * settings.samples.tokens_per_batch
            return float(budget.steps * a_step)
        assert budget.minutes is not None
        seconds = 60 * budget.minutes
        pace = measure(
            build_model(configs[size], seed=settings.seed).to(device),
            list(zip(shares_of(settings.phases), batches.parts, strict=True)),
            objective_of(configs[size], seed=settings.seed),
            settings.optimiser,
            settings.precision,
            accumulate=settings.gradient_accumulation,
            processes=processes,
            seconds=min(MOST_SECONDS, _TRYING * seconds),
        )
        return pace.outcome(budget, _NO_STEPS * seconds)[2]

    if budget.steps is None:
        time = counted(budget.minutes or 0, "minute") + " here"
    else:
        time = counted(budget.steps, "step")
    weights = {size: _weights(config) for size, config in configs.items()}
    return pick_size(weights, tokens_of, store.tokens, time)


def _weights(config: ModelConfig) -> float:
    """Return the number of weights in the matrices of all layers; shared ones count per layer."""
    encoder = config.encoder
    matrices = 4 * encoder.hidden + (3 if encoder.gated else 2) * encoder.feed_forward
    return float(encoder.layers * encoder.hidden * matrices)
