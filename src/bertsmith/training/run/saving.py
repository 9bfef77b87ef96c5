"""Saving while training goes on: a copy is taken between two steps, and written by a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from bertsmith.training.run.checkpoints import Checkpoint, Checkpoints
from bertsmith.training.run.folder import RunFolder


class Saver:
    """Writes checkpoints one at a time; what goes wrong is raised by the next call."""

    def __init__(self, folder: RunFolder | None, checkpoints: Checkpoints | None) -> None:
        self._folder = folder
        self._checkpoints = checkpoints
        self._thread = ThreadPoolExecutor(1, "saving")
        self._writing: Future[None] | None = None
        self._newest = -1
        self.seconds: float | None = None
        """What the last checkpoint took to copy and to write, None before the first one."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Begin to write a checkpoint, unless that of its step was saved; it is copied at once.

        Waits for the one before. Raises `DiskError` of the one before.
        """
        self.wait()
        if self._checkpoints is None or checkpoint.state.step == self._newest:
            return
        self._newest = checkpoint.state.step
        began = time.monotonic()
        copy = replace(
            checkpoint, weights=_copied(checkpoint.weights), optimiser=_copied(checkpoint.optimiser)
        )
        self._writing = self._thread.submit(self._write, copy, began)

    def check(self) -> None:
        """Raise the `DiskError` of a checkpoint that could not be written."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until everything is saved; raises `DiskError`."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def saved(self, step: int) -> None:
        """Take note that the checkpoint of a step is there already."""
        self._newest = step

    def close(self) -> None:
        """End the thread when what it has in hand is written."""
        self._thread.shutdown()

    def _write(self, checkpoint: Checkpoint, began: float) -> None:
        assert self._folder is not None
        assert self._checkpoints is not None
        self._folder.flush_log()
        self._checkpoints.save(checkpoint)
        self.seconds = time.monotonic() - began


@contextmanager
def saving(folder: RunFolder | None, checkpoints: Checkpoints | None) -> Iterator[Saver]:
    """A saver, closed in the end; without a folder it saves nothing."""
    saver = Saver(folder, checkpoints)
    try:
        yield saver
    finally:
        saver.close()


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
