"""The options of GLUE."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bertsmith.core.config import INLINE, POSITIONAL, Config
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneSettings


@dataclass(frozen=True, kw_only=True)
class GlueConfig(Config):
    """The options of GLUE."""

    model: Path = field(metadata=POSITIONAL)
    """Folder of a pre-trained model, or hub:owner/name, or with @revision."""
    data: Path
    """Folder with CoLA/, SST-2/ and so on, as GLUE distributes them."""
    out: Path
    """Folder for a run a task, the table and submission.zip."""
    tasks: tuple[str, ...] = ()
    """Tasks, with commas between them; all that are there if not given."""
    json: bool = False
    """Print the scores as one JSON object on standard output."""
    experiment: ExperimentConfig = field(default=ExperimentConfig(), metadata=INLINE)
    """The trainings of each task."""
    settings: FinetuneSettings = field(default=FinetuneSettings(), metadata=INLINE)
    """The settings of each training."""
