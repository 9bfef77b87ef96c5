"""Estimates of how fast texts are computed, by which batches and queue are bounded."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_SECONDS = 0.05
"""The time in which a batch should be computed."""
_LEAST_BATCH, _MOST_BATCH, _FIRST_BATCH = 512, 16_384, 2048
# share of what was known before in each estimate
_MEMORY, _LONG_MEMORY = 0.9, 0.98


@dataclass(slots=True)
class ModelPace:
    """Estimates for a model's texts: tokens for each byte, seconds for each token."""

    tokens_per_byte: float = 0.3
    seconds_per_token: float = BATCH_SECONDS / _FIRST_BATCH

    @property
    def budget(self) -> int:
        """The tokens of a batch."""
        return max(_LEAST_BATCH, min(_MOST_BATCH, int(BATCH_SECONDS / self.seconds_per_token)))

    def learn(self, size: int, tokens: int, computed: int, seconds: float) -> None:
        """Take note of a batch: the tokens of so many bytes, the seconds of all that was computed.

        Texts that were truncated are of no use for the first.
        """
        if tokens and size:
            ratio = min(max(tokens / size, 0.01), 4.0)
            self.tokens_per_byte += (1 - _MEMORY) * (ratio - self.tokens_per_byte)
        if computed:
            pace = max(seconds / computed, 1e-8)
            self.seconds_per_token += (1 - _MEMORY) * (pace - self.seconds_per_token)


@dataclass(slots=True)
class ServerPace:
    """The seconds that a worker computes for each token, of all models as they are asked."""

    computed: float = BATCH_SECONDS
    tokens: float = _FIRST_BATCH

    @property
    def seconds(self) -> float:
        """Seconds for each token."""
        return self.computed / self.tokens

    def learn(self, tokens: int, seconds: float) -> None:
        """Take note of a batch."""
        if tokens:
            self.computed = _LONG_MEMORY * self.computed + seconds
            self.tokens = _LONG_MEMORY * self.tokens + tokens
