"""Export of log.jsonl to TensorBoard, as scalars over steps."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from bertsmith.core.errors import MissingExtra
from bertsmith.training.run_folder import RunFolder

_HELD_OUT = "held_out_"
_FIGURES = ("loss", "accuracy")


def require_tensorboard() -> None:
    """Raise `MissingExtra` unless tensorboard is installed; to be checked before a long run."""
    if find_spec("tensorboard") is None:
        raise MissingExtra("tensorboard", "tensorboard", "--tensorboard")


@contextmanager
def events(folder: RunFolder, place: Path) -> Iterator[None]:
    """Write every record of `folder`'s log to event files in `place` as well.

    At the first record the files are rewritten from log.jsonl, so that a resumed run shows each
    step once. Raises `MissingExtra`.
    """
    require_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    writers: list[SummaryWriter] = []
    began = 0.0

    def follow(line: Mapping[str, object]) -> None:
        nonlocal began
        lines = [line]
        if not writers:
            shutil.rmtree(place, ignore_errors=True)
            writers.append(SummaryWriter(str(place)))
            lines = list(folder.log())
            began = time.time() - _number(line, "seconds")
        for record in lines:
            step, at = int(_number(record, "step")), began + _number(record, "seconds")
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    writers[0].add_scalar(tag(name), value, step, walltime=at)
        writers[0].flush()

    folder.followers.append(follow)
    try:
        yield
    finally:
        folder.followers.remove(follow)
        for writer in writers:
            writer.close()


def tag(name: str) -> str:
    """Return the TensorBoard tag of a metric: ``loss/masked_lm`` for ``masked_lm_loss``."""
    held_out, bare = name.startswith(_HELD_OUT), name.removeprefix(_HELD_OUT)
    for figure in _FIGURES:
        if bare.endswith(f"_{figure}"):
            group = f"held_out_{figure}" if held_out else figure
            return f"{group}/{bare.removesuffix(f'_{figure}')}"
    return f"held_out/{bare}" if held_out else f"training/{name}"


def _number(line: Mapping[str, object], name: str) -> float:
    value = line[name]
    assert isinstance(value, int | float)
    return value
