"""Phases of sequence length in one run: many short sequences first, long ones at the end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from bertsmith.batches.batch import Batch
from bertsmith.batches.pretraining import Place, PretrainingBatches, SampleConfig
from bertsmith.batches.store import TokenStore
from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Phase(Config):
    """A share of the budget in which sequences have another length."""

    share: float
    """Share of the steps or minutes."""
    longest: int
    """Tokens a sequence at most."""
    tokens_per_batch: int | None = None
    """Tokens a batch at most; None for as many as in the rest of the run."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(f"a phase's share is {self.share}", remedy="it must be in (0, 1)")


class PhasedBatches:
    """The batches of several phases, each of which goes through the corpus on its own.

    The paper's run (Devlin et al. 2018, appendix A.2) is one phase, nine tenths of the steps with
    128 tokens, before a rest with 512. A place names its phase, so that batches stay a pure
    function of the place; `enter` alone knows how far the run is.
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        config: SampleConfig,
        phases: Sequence[Phase],
        seed: int,
    ) -> None:
        """`phases` come before the rest of the run, whose sequences `config` describes."""
        self._ends = list(accumulate(phase.share for phase in phases))
        if self._ends and self._ends[-1] >= 1:
            raise ConfigError("the phases' shares leave nothing for the rest of the run")
        configs = [_in_phase(config, phase) for phase in phases]
        self.parts = [
            PretrainingBatches(store, tokenizer, each, seed) for each in (*configs, config)
        ]

    def take(self, place: Place) -> tuple[Batch, Place]:
        """The batch that begins at a place, and the place after it."""
        return self.parts[place.phase].take(place)

    def after(self, place: Place) -> Place:
        """The place after the batch that begins at a place, at a quarter of its cost."""
        return self.parts[place.phase].after(place)

    def enter(self, place: Place, progress: float) -> Place:
        """Where a run that stands at a place goes on when a share of its budget is spent.

        That is the same place, or the beginning of an epoch in the phase whose turn it is.
        """
        phase = bisect_right(self._ends, progress)
        if phase <= place.phase:
            return place
        return replace(place, phase=phase, epoch=place.epoch + (place.index > 0), index=0)


def _in_phase(config: SampleConfig, phase: Phase) -> SampleConfig:
    if phase.longest > config.longest:
        raise ConfigError(
            f"a phase has sequences of {phase.longest} tokens, more than longest ({config.longest})"
        )
    tokens = phase.tokens_per_batch or config.tokens_per_batch
    return replace(config, longest=phase.longest, tokens_per_batch=tokens)
