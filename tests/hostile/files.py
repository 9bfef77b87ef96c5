"""Files that are made to do harm: all small, but for holes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def change_json(path: Path, **changes: object) -> None:
    """Set some keys of a JSON file."""
    data = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(data | changes))


def sparse(path: Path, size: int, begin: bytes = b"") -> None:
    """A file that is almost all hole."""
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size)


def header_of(path: Path) -> tuple[Json, bytes]:
    """The header and the data of a safetensors file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def with_header(path: Path, header: object, data: bytes) -> None:
    """A safetensors file of a header, which may be any JSON."""
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def overlapping(path: Path) -> None:
    """Two tensors of one size share their bytes, and the file is as much shorter."""
    header, data = header_of(path)
    entries = sorted(
        ((name, entry) for name, entry in header.items() if name != "__metadata__"),
        key=lambda item: item[1]["data_offsets"],
    )
    (_, first), (_, second) = next(
        (one, other)
        for one in entries
        for other in entries
        if one is not other and one[1]["shape"] == other[1]["shape"]
    )
    begin, end = second["data_offsets"]
    size = end - begin
    for _, entry in entries:
        if entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [place - size for place in entry["data_offsets"]]
    second["data_offsets"] = first["data_offsets"]
    with_header(path, header, data[:begin] + data[end:])


def _special(kind: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "loop":
            path.symlink_to(path.name)
        else:
            path.symlink_to(kind)

    return make


SPECIAL = {
    "fifo": _special("fifo"),
    "folder": _special("folder"),
    "loop": _special("loop"),
    "zero": _special("/dev/zero"),
    "random": _special("/dev/urandom"),
    "terminal": _special("/dev/tty"),
    "memory": _special("/proc/self/mem"),
    "nothing": _special("nowhere"),
}

_SMALL_BPE: Json = {
    "type": "BPE",
    "vocab": {"a": 0, "b": 1, "ab": 2},
    "merges": [["a", "b"]],
    "continuing_subword_prefix": "########",
}
PANICS: dict[str, Json] = {
    "no table of characters": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": None}},
    "a table of characters cut off": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    },
    "a table of characters of 4 GiB": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    },
    "a prefix longer than the piece": {"model": _SMALL_BPE},
    "pieces of no length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "a template that asks for a token that is not there": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[NONE]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {},
        }
    },
    "padding to 2^40": {
        "padding": {
            "strategy": {"Fixed": 2**40},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
    },
}
"""What the compiled parser panics on, or ends the process: changes to a tokenizer.json."""
