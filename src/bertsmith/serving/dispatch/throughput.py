"""Estimates by which batches and queue are bounded.

They are of how fast texts are computed, and of the tokens of a request that was not read yet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

BATCH_SECONDS = 0.05
"""The time in which a batch should be computed."""
_MIN_BATCH, _MAX_BATCH, _FIRST_BATCH = 512, 16_384, 2048
# share of what was known before in each estimate
_MEMORY, _LONG_MEMORY = 0.9, 0.98
# of the times in which much was computed, of which a pace is that of slow ones
_WINDOW_SECONDS, _WINDOWS, _SLOW = 0.5, 120, 0.9
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
class _Window:
    """The batches of some time: the seconds that they were computed, their tokens."""

    begin: float
    computed: float = 0.0
    tokens: float = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        """Count what was computed."""
        self.tokens += tokens
        self.computed += seconds

    @property
    def pace(self) -> float:
        """Seconds for each token."""
        return self.computed / self.tokens


class ServerPace:
    """The seconds that a worker computes for each token, over the requests to all models.

    Machines that are shared vary in speed, by half within seconds, and what is promised to a
    request must hold until its turn. So the pace is that of slow times: of windows of half a
    second, of the last minute in which there was much to do, the tenth that was slowest; or the
    present pace, where that is slower still. Batches that are not half full say little about many
    requests, since each batch takes some time whatever it holds; they count as long as there were
    no others.
    """

    def __init__(self) -> None:
        self._light = _Window(0.0, BATCH_SECONDS, _FIRST_BATCH)
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)
        self.seconds = self._light.pace
        """Seconds for each token."""

    def learn(self, tokens: int, seconds: float, now: float, *, full: bool) -> None:
        """Record a batch that has just been computed, and whether it was at least half full."""
        if not tokens:
            return
        if full:
            if not self._windows or now - self._windows[-1].begin >= _WINDOW_SECONDS:
                self._windows.append(_Window(now))
            self._windows[-1].add(tokens, seconds)
            self.seconds = max(self._present(), self._slow())
        else:
            self._light.computed *= _LONG_MEMORY
            self._light.tokens *= _LONG_MEMORY
            self._light.add(tokens, seconds)
            if not self._windows:
                self.seconds = self._light.pace

    def _present(self) -> float:
        """Return the pace of the last two windows, of which one may have just begun."""
        latest = _Window(0.0)
        for window in islice(reversed(self._windows), 2):
            latest.add(window.tokens, window.computed)
        return latest.pace

    def _slow(self) -> float:
        """Return the pace that was slower in a tenth of the windows."""
        paces = sorted(window.pace for window in self._windows)
        return paces[int(_SLOW * (len(paces) - 1))]


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
