"""Safetensors under another name than a model folder's: model.fp16.safetensors and the like.

Programs that save a model in several precisions put the precision into the file's name, and into
those of the shards and of their index:

    model.fp16.safetensors
    model.safetensors.index.fp16.json, model.fp16-00001-of-00002.safetensors, ...
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from bertsmith.core.errors import ModelFolderError
from bertsmith.weights.conversion.staging import (
    Change,
    TensorChange,
    TensorChanges,
    config_beside,
    copy_settings,
    indexed_files,
    refuse_adapter,
)
from bertsmith.weights.folder import check_file
from bertsmith.weights.tensors import (
    INDEX_FILE,
    READABLE,
    WEIGHTS_FILE,
    TensorFile,
    Weights,
    write_tensors,
)
from bertsmith.weights.wrappers import unwrapped

SUFFIX = ".safetensors"
_INDEX = re.compile(r"[\w.-]{1,100}\.safetensors\.index(\.\w{1,20})?\.json", re.ASCII)
_SHARD = re.compile(r".*-\d{5}-of-\d{5}\.safetensors")
# weights that are added to a model's, and states of a training
_NO_MODEL = ("adapter", "optimizer", "scheduler", "rng_state")


def find_safetensors(source: Path) -> list[Path]:
    """Return the safetensors files that a source is or holds, [] where there are none.

    `ModelFolderError` where there are several models, or the index leads out of the folder.
    """
    if source.is_file():
        return [source] if source.suffix == SUFFIX and not _is_part(source) else []
    if not source.is_dir():
        return []
    if (source / WEIGHTS_FILE).exists():
        return [source / WEIGHTS_FILE]
    indices = [path for path in sorted(source.glob("*.json")) if _INDEX.fullmatch(path.name)]
    results = [
        path
        for path in sorted(source.glob(f"*{SUFFIX}"))
        if not _SHARD.fullmatch(path.name) and not _is_part(path)
    ]
    if (source / INDEX_FILE) in indices:
        indices = [source / INDEX_FILE]
    if len(results) + len(indices) > 1:
        raise ModelFolderError(
            f"holds {len(results) + len(indices)} models in safetensors",
            where=source,
            remedy=f"name a file: {(results or indices)[0]}",
        )
    return indexed_files(indices[0], (SUFFIX,)) if indices else results


def _is_part(path: Path) -> bool:
    return path.name.startswith(_NO_MODEL)


def read_safetensors(files: list[Path], folder: Path) -> TensorChanges:
    """Write safetensors files as a folder in the hub's layout, in float32; `ModelFolderError`."""
    config_beside(files[0])
    moves, tensors = TensorChanges(), {}
    for path in files:
        check_file(path, path.parent.resolve())
        file = TensorFile(path)
        for name, entry in file.entries.items():
            if entry.kind not in READABLE:
                moves.dropped[name] = f"of type {entry.kind}, no weight"
            elif name in tensors:
                raise ModelFolderError(f"holds {name[:80]!r} a second time", where=path)
            else:
                tensors[name] = file.read(name)
    refuse_adapter(tensors, files[0])
    for name, inner in unwrapped(tensors).items():
        change: Change = "same" if name == inner else "renamed"
        moves.done.append(TensorChange(source=name, target=inner, change=change))
    named = {move.target: tensors[move.source] for move in moves.done}
    write_tensors(folder / WEIGHTS_FILE, named, {"format": "pt"})
    copy_settings(files[0], folder)
    return moves


def is_wrapped(folder: Path) -> bool:
    """Return whether the names of a folder's weights are not those of the model itself."""
    names = Weights(folder).entries
    return any(name != inner for name, inner in unwrapped(names).items())


_LOOKED_AT = 2000
"""Entries of a folder."""


class Kind(NamedTuple):
    """A kind of file by its name, what it is in words, and what helps."""

    name: re.Pattern[str]
    problem: str
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
        (r"global_step\d+|zero_to_fp32\.py", "a checkpoint of DeepSpeed",
         "convert the file mp_rank_00_model_states.pt in it, or, where ZeRO 3 has divided the "
         "weights, join them with the zero_to_fp32.py in it"),
        (r"pytorch_model_fsdp_\d+|.*\.distcp", "a checkpoint that torch has divided among ranks",
         "join it, and convert the result: python -m torch.distributed.checkpoint.format_utils "
         "dcp_to_torch FOLDER FILE.pt"),
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
