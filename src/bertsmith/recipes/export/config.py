"""The options of exporting."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_range
from bertsmith.core.errors import ConfigError
from bertsmith.core.options import typed_options
from bertsmith.engine.config import MAX_THREADS
from bertsmith.tasks.config import Reading, TextLength

Target = Literal["onnx", "openvino", "torch-export", "transformers.js"]


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Config):
    """The options of exporting a model."""

    model: Path = field(metadata=POSITIONAL)
    """Model folder, hub:owner/name or hub:owner/name@revision."""
    to: Target
    """onnx for ONNX Runtime and others; openvino; torch-export for a program of torch.export;
    transformers.js for a folder for browsers and node."""
    out: Path
    """Folder to write; it must not exist."""
    precision: Literal["fp32", "int8"] = "fp32"
    """int8 also writes a file with int8 products if it is faster on this processor and as good; for
    onnx and transformers.js."""
    calibrate: Path | None = None
    """With int8: typical texts, one a line or in the columns of a table. Their lengths decide the
    speed that is measured; if the model is for vectors, theirs are compared with those of fp32."""
    dev: Path | None = None
    """With int8: labelled examples on which its loss is measured; for vectors, pairs of texts with
    a number (optional)."""
    threads: int | None = None
    """With int8: number of processor threads in the measurement; one for each core by default."""
    json: bool = False
    """Print the figures as one JSON object to standard output."""
    length: TextLength = field(default=TextLength(), metadata=INLINE)
    """With int8: how much of a text is read."""
    reading: Reading = field(default=Reading(), metadata=INLINE)
    """With int8: how the labelled examples are read, and the texts where it applies to them."""

    def __post_init__(self) -> None:
        check_range(self, ["threads"], f"[1, {MAX_THREADS}]")
        if self.precision == "fp32":
            if self.calibrate is not None or self.dev is not None:
                raise ConfigError(
                    "--calibrate and --dev are for int8", remedy="add --precision int8"
                )
            threads = "" if self.threads is None else " --threads"
            if given := threads + typed_options(self.length) + typed_options(self.reading):
                option = given.split()[0].partition("=")[0]
                raise ConfigError(
                    f"{option} is for int8", remedy="leave it out, or add --precision int8"
                )
            return
        if self.to not in ("onnx", "transformers.js"):
            raise ConfigError(
                f"--precision int8 is not for {self.to}",
                remedy="use --to onnx or transformers.js, or leave --precision out",
            )
        if self.calibrate is None:
            raise ConfigError(
                "--precision int8 needs texts to measure on",
                remedy="give --calibrate TEXTS, and --dev LABELLED where the model has a task",
            )
