"""Values of Parquet's columns: fields inside columns, decimal numbers, and classes by number.

Hugging Face's `datasets` writes classes as numbers, and their names into the file's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from bertsmith.core.files import parse_json

_FEATURES = b"huggingface"
_NONE = -1


def class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, Sequence[str]]:
    """Return the names of classes by column, of columns that hold numbers in place of names."""
    try:
        features: object = parse_json((metadata or {}).get(_FEATURES, b"{}").decode())
    except ValueError:
        return {}
    for key in ("info", "features"):
        features = features.get(key) if isinstance(features, dict) else None
    named = (
        {} if not isinstance(features, dict) else {key: _names(features[key]) for key in features}
    )
    return {key: names for key, names in named.items() if names}


def _names(feature: object) -> Sequence[str]:
    """Return the names of a feature's classes, or of those in its lists; () for other features."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names(feature[0])
    if not isinstance(feature, dict):
        return ()
    names = feature.get("names")
    if feature.get("_type") != "ClassLabel" or not isinstance(names, list):
        return _names(feature.get("feature"))
    return names if all(isinstance(name, str) for name in names) else ()


def inner_fields(schema: Any, levels: int) -> dict[str, tuple[str, ...]]:  # noqa: ANN401
    """Return the paths of the fields inside columns by their names, such as ``review.text``.

    Names that are those of columns are left out.
    """
    import pyarrow as pa

    def paths(field: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:  # noqa: ANN401
        if pa.types.is_struct(field.type) and len(path) <= levels:
            for inner in field.type:
                yield (*path, inner.name)
                yield from paths(inner, (*path, inner.name))

    found = (path for field in schema for path in paths(field, (field.name,)))
    return {".".join(path): path for path in found if ".".join(path) not in schema.names}


def field_of(batch: Any, path: Sequence[str]) -> Any:  # noqa: ANN401
    """Return a column of a batch, or the field inside one at the end of a path."""
    from pyarrow import compute

    column = batch.column(path[0])
    return compute.struct_field(column, list(path[1:])) if len(path) > 1 else column


def column_values(column: Any, names: Sequence[str] = ()) -> list[object]:  # noqa: ANN401
    """Return the values of a column, numbers of classes by `names`; databases write decimals."""
    import pyarrow as pa

    values: list[object] = column.to_pylist()
    if pa.types.is_decimal(column.type):
        return [_plain_number(value) if isinstance(value, Decimal) else value for value in values]
    return [_named(value, names) for value in values] if names else values


def _named(value: object, names: Sequence[str]) -> object:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if not isinstance(value, int) or not _NONE <= value < len(names):
        return value
    return None if value == _NONE else names[value]


def _plain_number(value: Decimal) -> float:
    return int(value) if value == value.to_integral_value() else float(value)
