"""The options of answering texts and of measuring the answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_range
from bertsmith.core.errors import ConfigError
from bertsmith.engine.config import EngineConfig, Masking, WritingConfig
from bertsmith.recipes.config import check_cluster
from bertsmith.tasks.config import AnsweringConfig, Reading, TextLength

Format = Literal["table", "csv", "jsonl"]


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Config):
    """The options of answering texts."""

    model: Path = field(metadata=POSITIONAL)
    """Model folder, hub:owner/name or hub:owner/name@revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in the columns of a table, or a file or folder of the model's task; - is
    standard input."""
    format: Format = "table"
    """table for people; csv, or jsonl (one JSON object a line), for programs."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    ray: str | None = None
    """Compute on a Ray cluster whose machines see the same model folder: auto for the cluster of
    this machine, local for processes on this machine, or the host:port of a cluster."""
    answering: AnsweringConfig = field(default=AnsweringConfig(), metadata=INLINE)
    """The decoding of answers."""
    engine: EngineConfig = field(default=EngineConfig(), metadata=INLINE)
    """The computation of answers."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of the file."""

    def __post_init__(self) -> None:
        check_cluster(self.ray, self.device)


@dataclass(frozen=True, kw_only=True)
class MeasuringConfig(Config):
    """The options of measuring a model that is loaded."""

    answering: AnsweringConfig = field(default=AnsweringConfig(), metadata=INLINE)
    """The decoding of answers."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of rows."""


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(Config):
    """The options of measuring a fine-tuned model."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a fine-tuned model, hub:owner/name or hub:owner/name@revision."""
    file: Path = field(metadata=POSITIONAL)
    """Labelled examples."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    json: bool = False
    """Print the scores as one JSON object to standard output."""
    conformal: float | None = None
    """Also report how often the prediction sets of predict --conformal contain the right class or
    choice at this level, and how large they are; 0.5 to 0.999."""
    length: TextLength = field(default=TextLength(), metadata=INLINE)
    """The part of a text that is read."""
    engine: EngineConfig = field(default=EngineConfig(), metadata=INLINE)
    """The computation of answers."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of the file."""


@dataclass(frozen=True, kw_only=True)
class ScoringConfig(Config):
    """The computation of the scores of texts."""

    masking: Masking = "token"
    """Masked part of a text when a token is scored: token, the token alone (Salazar et al. 2020);
    word-l2r, also the later pieces of its word, which would reveal it (Kauf & Ivanova 2023)."""


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(Config):
    """The options of scoring texts by how well a model predicts their tokens."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a pre-trained model, hub:owner/name or hub:owner/name@revision."""
    file: str = field(default="-", metadata=POSITIONAL)
    """Texts, one a line or in a column of a table; pairs in two columns, or separated by a tab,
    with the better text first; - is standard input."""
    format: Format = "table"
    """table for people; csv, or jsonl (one JSON object a line), for programs."""
    json: bool = False
    """Print only the figures over all texts, as one JSON object."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    scoring: ScoringConfig = field(default=ScoringConfig(), metadata=INLINE)
    """The scoring of tokens."""
    engine: EngineConfig = field(default=EngineConfig(), metadata=INLINE)
    """The computation of predictions; auto is fp32."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """The reading of the file."""

    def __post_init__(self) -> None:
        if self.json and self.format != "table":
            raise ConfigError(
                f"--format {self.format} is for the score of each text, and --json prints none",
                remedy="leave one of them out",
            )


MAX_SAMPLES = 100_000
"""Largest number of texts that are written at once, all of which are kept in memory."""


@dataclass(frozen=True, kw_only=True)
class WriteConfig(Config):
    """The options of writing text with a pre-trained model."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a pre-trained model, hub:owner/name or hub:owner/name@revision."""
    prompt: str = ""
    """Text with which the result begins."""
    samples: int = 1
    """Number of texts to write."""
    json: bool = False
    """Print the texts, their passes and their time as one JSON object."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    writing: WritingConfig = field(default=WritingConfig(), metadata=INLINE)
    """The generation of the text."""
    engine: EngineConfig = field(default=EngineConfig(), metadata=INLINE)
    """The computation of predictions."""

    def __post_init__(self) -> None:
        check_range(self, ["samples"], f"[1, {MAX_SAMPLES}]")
