"""Estimates by which batches and queue are bounded.

They are of how fast texts are computed, and of the tokens of a request that was not read yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BATCH_SECONDS = 0.05
"""The time in which a batch should be computed."""
_MIN_BATCH, _MAX_BATCH, _FIRST_BATCH = 512, 16_384, 2048
# share of what was known before in each estimate
_MEMORY, _LONG_MEMORY = 0.9, 0.98
# of texts, whose tokens count as much as all that was known before
_MEMORY_BYTES = 2**14
SPECIALS = 2
"""Tokens of a text that are there whatever its length."""
# of the least density; one odd request is forgotten after some thousands that are read
_MIN_MEMORY = 0.999


@dataclass(slots=True)
class ModelPace:
    """Estimates for a model's texts: tokens for each byte, seconds for each token."""

    tokens_per_byte: float = 0.3
    seconds_per_token: float = BATCH_SECONDS / _FIRST_BATCH

    @property
    def budget(self) -> int:
        """The tokens of a batch."""
        return max(_MIN_BATCH, min(_MAX_BATCH, int(BATCH_SECONDS / self.seconds_per_token)))

    def learn(self, size: int, tokens: int, computed: int, seconds: float) -> None:
        """Record a batch: the tokens and bytes of its requests, and the seconds it took.

        Texts that were truncated are of no use for the first, and special tokens do not count.
        Bytes count alike: queries of a word say little about documents.
        """
        if tokens and size:
            ratio = min(max(tokens / size, 0.01), 4.0)
            share = size / (size + _MEMORY_BYTES)
            self.tokens_per_byte += share * (ratio - self.tokens_per_byte)
        if computed:
            pace = max(seconds / computed, 1e-8)
            self.seconds_per_token += (1 - _MEMORY) * (pace - self.seconds_per_token)


@dataclass(slots=True)
class ServerPace:
    """The seconds that a worker computes for each token, over the requests to all models."""

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


@dataclass(slots=True)
class BodyTokens:
    """The least tokens of a body by its bytes, learned from the bodies that were read.

    Bodies of different sizes are of different kinds: one long text, of which a part is read, or
    many short ones. So the least density, in tokens for each byte, is kept for each power of two.
    """

    _densities: dict[int, float] = field(default_factory=dict)

    def least(self, size: int) -> int | None:
        """Estimate the least tokens of a body; None if no body of about its size was read."""
        density = self._densities.get(size.bit_length())
        return None if density is None else int(density * size)

    def learn(self, size: int, tokens: int) -> None:
        """Record the tokens of a body."""
        key, density = size.bit_length(), tokens / size
        least = self._densities.get(key, density)
        self._densities[key] = min(density, density + _MIN_MEMORY * (least - density))
