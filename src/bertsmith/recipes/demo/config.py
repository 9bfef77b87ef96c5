"""The options of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertsmith.core.config import Config


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Config):
    """The options of the demo."""

    minutes: float = 3.0
    """Time for pre-training; the rest takes two or three more."""
    out: Path = Path("demo")
    """Folder for everything made."""
    seed: int = 0
    """Seed of all random numbers."""
    json: bool = False
    """Print the figures as one JSON object on standard output."""
