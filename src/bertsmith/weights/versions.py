"""The version of a model folder, by which a later look notices that other files are there.

A run or a server may open its folder again after hours, when another model has taken its name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import FileState
from bertsmith.tokens.folder.files import TOKENIZER_FILES
from bertsmith.weights.config_json import PROMPTS_FILE
from bertsmith.weights.folder import CONFIG_FILE, QUANTIZED_FILE
from bertsmith.weights.sentence_folder import (
    MODULES_FILE,
    TRANSFORMER_FILES,
    module_folders,
)
from bertsmith.weights.tensors import INDEX_FILE, WEIGHTS_FILE, shard_names

_READ = (
    CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE, QUANTIZED_FILE, *TOKENIZER_FILES,
    MODULES_FILE, PROMPTS_FILE, *TRANSFORMER_FILES,
)  # fmt: skip


@dataclass(frozen=True)
class FolderVersion:
    """The files of a model folder that are read to open it, as they were at one moment."""

    folder: Path
    files: tuple[tuple[str, FileState], ...]
    """The name of each, and its state."""

    @classmethod
    def of(cls, folder: Path) -> FolderVersion:
        """Return the present version of a folder.

        Raises `ModelFolderError` for a bad index, or a bad list of modules.
        """
        files: list[tuple[str, FileState]] = []
        # others inside are read by nobody: an export may just be written into one
        for place in (folder, *module_folders(folder)):
            for name in (*_READ, *shard_names(place)):
                with suppress(OSError):
                    state = FileState.of(place / name)
                    files.append((str((place / name).relative_to(folder)), state))
        return cls(folder, tuple(files))

    def check(self) -> None:
        """Raise `ModelFolderError` where the folder has another version by now."""
        if FolderVersion.of(self.folder).files != self.files:
            raise ModelFolderError(
                "was changed while it was in use",
                where=self.folder,
                remedy="put the model back that was there, or start anew with the present one",
            )
