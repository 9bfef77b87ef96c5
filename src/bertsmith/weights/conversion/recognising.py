"""Files of models that cannot be converted, told by their names: what they are, and what helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_LOOKED_AT = 2000
"""Entries of a folder."""


class Kind(NamedTuple):
    """A kind of file by its name, what it is in words, and what helps."""

    name: re.Pattern[str]
    what: str
    remedy: str


_WEIGHTS = "model.safetensors or pytorch_model.bin"
_ORIGINAL = f"convert the model that it was exported from: its {_WEIGHTS}, often beside it"
KINDS = tuple(
    Kind(re.compile(pattern, re.IGNORECASE), what, remedy)
    for pattern, what, remedy in (
        (r".*\.onnx(\.data|_data)?", "an ONNX graph, whose weights have lost their names",
         _ORIGINAL),
        (r"openvino_.*\.(xml|bin)", "a model of OpenVINO", _ORIGINAL),
        (r".*\.(gguf|ggml)", "a model of llama.cpp", _ORIGINAL),
        (r".*\.tflite", "a model of TensorFlow Lite", _ORIGINAL),
        (r".*\.(mlmodel|mlpackage)", "a model of Core ML", _ORIGINAL),
        (r"saved_model\.pb|frozen.*\.pb|.*graph.*\.pb", "a graph of TensorFlow",
         "convert its checkpoint: the files NAME.index and NAME.data-00000-of-00001"),
        (r".*\.(h5|keras)", "weights of Keras",
         "open them with transformers (from_tf=True) and save them anew, or fetch "
         f"{_WEIGHTS} of the same model"),
        (r".*\.msgpack", "weights of Flax",
         "open them with transformers (from_flax=True) and save them anew, or fetch "
         f"{_WEIGHTS} of the same model"),
        (r"rust_model\.ot", "weights of rust-bert", f"fetch {_WEIGHTS} of the same model"),
        (r"adapter_model\..*|adapter_config\.json", "an adapter, which is added to a model",
         "merge it into its model first (merge_and_unload of peft), and save that"),
        (r".*\.(zip|tar|tgz|tar\.gz|tar\.bz2|tar\.xz)", "an archive",
         "unpack it, and name the folder"),
        (r".*\.(npz|npy)", "arrays of NumPy or JAX", f"fetch {_WEIGHTS} of the same model"),
    )
)  # fmt: skip


def recognised(source: Path) -> tuple[Path, Kind] | None:
    """Return the file of a known kind that a source is or holds, and that kind; None of others."""
    files = [source]
    if source.is_dir():
        entries = list(source.iterdir()) + list(source.glob("onnx/*.onnx"))
        files = sorted(entries[:_LOOKED_AT])
    for kind in KINDS:
        for path in files:
            if kind.name.fullmatch(path.name):
                return path, kind
    return None
