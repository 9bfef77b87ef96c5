"""The layers of a ModernBERT in `config.json`: what `transformers` 5 writes, by the keys of 4.

Version 4 has three numbers: the bases of the rotation in global and in local layers, and that
every n-th layer is global. Version 5 has the kind of each layer, and a table of the rotation of
each kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from bertsmith.errors import ModelFolderError

_ROTATION, _KINDS, _EVERY = "rope_parameters", "layer_types", "global_attn_every_n_layers"
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_BASES = {_GLOBAL: "global_rope_theta", _LOCAL: "local_rope_theta"}


def with_keys_of_version_4(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings with the keys of version 4 in place of those of 5.

    Raises `ModelFolderError` for a rotation or an order of layers that is not computed here, and
    where both versions' keys are there and do not agree.
    """
    found = {key: value for key, value in data.items() if key not in (_ROTATION, _KINDS)}
    for kind, base in _bases(data.get(_ROTATION), path).items():
        key = _BASES[kind]
        if data.get(key, base) not in (None, base):
            _refuse(
                f"{key} is {data[key]!r}, but {_ROTATION} has {base!r} for {kind}",
                "both must be the same: remove the wrong one",
                path,
            )
        found[key] = base
    kinds = data.get(_KINDS)
    if kinds is not None:
        found[_EVERY] = _every(kinds, data, path)
    return found


def _bases(table: object, path: Path) -> dict[str, object]:
    """Return the base of the rotation for the kinds of layers that have one of their own."""
    if table is None:
        return {}
    if not isinstance(table, dict) or set(table) - set(_BASES):
        _refuse(
            f"{_ROTATION} is {str(table)[:80]!r}",
            f"it must be a table with {_GLOBAL} and {_LOCAL}",
            path,
        )
    found: dict[str, object] = {}
    for kind, settings in table.items():
        if settings is None:
            continue
        if not isinstance(settings, dict):
            _refuse(f"{_ROTATION} of {kind} is {str(settings)[:80]!r}", "it must be a table", path)
        for key, value in settings.items():
            if key == "rope_theta":
                found[kind] = value
            elif key not in ("rope_type", "type") or value != "default":
                _refuse(
                    f"{_ROTATION} of {kind} has {str(key)[:30]} {str(value)[:50]!r}, "
                    "which changes the result",
                    "only rope_theta with the rope_type 'default' can be followed",
                    path,
                )
    return found


def _every(kinds: object, data: dict[str, Any], path: Path) -> int:
    """Return n where every n-th layer is global, the first among them."""
    layers = data.get("num_hidden_layers")
    known = isinstance(kinds, list) and all(kind in (_GLOBAL, _LOCAL) for kind in kinds)
    if not isinstance(kinds, list) or not known or len(kinds) != layers:
        _refuse(
            f"{_KINDS} is {str(kinds)[:80]}",
            f"it must have {_GLOBAL!r} or {_LOCAL!r} for each of the {layers} layers",
            path,
        )
    stated = data.get(_EVERY)
    if type(stated) is int and stated > 0 and kinds == _pattern(stated, len(kinds)):
        return stated
    every = next((n for n, kind in enumerate(kinds) if n and kind == _GLOBAL), len(kinds))
    if kinds != _pattern(every, len(kinds)):
        _refuse(
            f"{_KINDS} has no {_GLOBAL} in every n-th layer, the first among them",
            "another order of layers cannot be followed",
            path,
        )
    return every


def _pattern(every: int, layers: int) -> Sequence[str]:
    return [_LOCAL if layer % every else _GLOBAL for layer in range(layers)]


def _refuse(what: str, remedy: str, path: Path) -> NoReturn:
    raise ModelFolderError(what, where=path, remedy=remedy)
