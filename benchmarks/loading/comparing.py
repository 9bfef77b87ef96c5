"""Answers of a server compared with those of the engine, within DESIGN's bounds (its Numbers).

Shares and unit vectors of the same text in other batches may differ by 1e-6 in fp32; shares are
sent rounded to six digits, which adds as much; those of labels that exclude nobody, and numbers,
are not sums of one and may differ by twice that. In bf16 a vector's cosine is at least 0.9999.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# rounded to six digits on both sides, after a difference of 1e-6
_SHARE = {"fp32": 3e-6, "bf16": 0.05}
_COSINE = {"fp32": 1 - 1e-9, "bf16": 0.9999}
_VECTOR = {"fp32": 2e-6, "bf16": 0.05}


@dataclass(frozen=True)
class Numbers:
    """A vector."""

    values: NDArray[np.float64]


def wrong(kind: str, expected: Any, found: Any, precision: str) -> str | None:  # noqa: ANN401
    """Return what is wrong with an answer; None if it is right."""
    if isinstance(expected, Numbers):
        return _wrong_vector(expected.values, np.asarray(found, np.float64), precision)
    bound = _SHARE[precision]
    problem: str | None = {
        "classes": _wrong_class, "multi-label": _wrong_labels, "regression": _wrong_value,
        "tags": _wrong_tags, "spans": _wrong_span, "choices": _wrong_choice,
        "fill-mask": _wrong_masks,
    }[kind](expected, found, bound)  # fmt: skip
    return problem


def cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the cosine of two vectors."""
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def _wrong_vector(
    expected: NDArray[np.float64], found: NDArray[np.float64], precision: str
) -> str | None:
    if found.shape != expected.shape or not np.isfinite(found).all():
        return f"shape {found.shape}"
    largest = max(1.0, float(np.abs(expected).max()))
    far = float(np.abs(found - expected).max())
    if far > _VECTOR[precision] * largest or cosine(expected, found) < _COSINE[precision]:
        return f"vector off by {far:.2e}"
    return None


def _far(what: str, expected: float | None, found: float | None, bound: float) -> str | None:
    if expected is None or found is None:
        return None if expected is found else f"{what}: {found}, not {expected}"
    difference = abs(expected - found)
    return None if difference <= bound else f"{what} off by {difference:.2e}"


def _shares(expected: dict[str, float], found: dict[str, float], bound: float) -> str | None:
    for label in expected.keys() & found.keys():
        if problem := _far(label, expected[label], found[label], bound):
            return problem
    # of more labels than are shown the last ones may change places
    least = min(expected.values(), default=0.0)
    if any(share > least + 2 * bound for label, share in found.items() if label not in expected):
        return f"labels {sorted(found)}"
    return None if len(expected) <= len(found) else f"labels {sorted(found)}"


def _wrong_class(expected: Any, found: Any, bound: float) -> str | None:  # noqa: ANN401
    shares = {item["label"]: item["score"] for item in found["scores"]}
    problem = _shares(expected["probabilities"], shares, bound)
    if problem is None and found["label"] != expected["label"]:
        best = expected["probabilities"][expected["label"]]
        if abs(shares[found["label"]] - best) > 2 * bound:
            return f"{found['label']}, not {expected['label']}"
    return problem


def _wrong_labels(expected: Any, found: Any, bound: float) -> str | None:  # noqa: ANN401
    shares = {item["label"]: item["score"] for item in found["scores"]}
    problem = _shares(expected["probabilities"], shares, 2 * bound)
    differ = set(found["labels"]) ^ set(expected["labels"])
    if problem is None and any(abs(shares[item] - 0.5) > 2 * bound for item in differ):
        return f"labels {found['labels']}, not {expected['labels']}"
    return problem


def _wrong_value(expected: Any, found: Any, bound: float) -> str | None:  # noqa: ANN401
    (value,) = (item for name, item in expected.items() if isinstance(item, float))
    return _far("value", value, found["value"], bound * max(1.0, abs(value)))


def _wrong_tags(expected: Any, found: Any, bound: float) -> str | None:  # noqa: ANN401
    def places(entities: Any, share: str) -> dict[tuple[int, int, str], float]:  # noqa: ANN401
        return {
            (entity["start"], entity["end"], entity["label"]): entity[share] for entity in entities
        }

    mine = places(expected["entities"], "probability")
    other = places(found["entities"], "score")
    if mine.keys() != other.keys():
        return f"entities {sorted(mine.keys() ^ other.keys())[:4]}"
    problems = (_far(str(key), mine[key], other[key], bound) for key in mine)
    return next((problem for problem in problems if problem), None)


def _wrong_span(expected: Any, found: Any, bound: float) -> str | None:  # noqa: ANN401
    for mine, other in (("answer", "answer"), ("start", "start"), ("end", "end")):
        if (expected[mine] or None) != (found[other] or None):
            return f"{other}: {found[other]}, not {expected[mine]}"
    return (
        _far("score", expected["probability"], found["score"], bound) if found["answer"] else None
    )


def _wrong_choice(expected: Any, found: Any, bound: float) -> str | None:  # noqa: ANN401
    shares = expected["probabilities"]
    # of options that are as good as each other either is right
    if abs(shares[found["choice"]] - shares[expected["choice"]]) > 2 * bound:
        return f"choice {found['choice']}, not {expected['choice']}"
    pairs = zip(shares, found["scores"], strict=True)
    problems = (_far("choice", mine, other, bound) for mine, other in pairs)
    return next((problem for problem in problems if problem), None)


def _wrong_masks(expected: Any, found: Any, bound: float) -> str | None:  # noqa: ANN401
    for mine, other in zip(expected["masks"], found["masks"], strict=True):
        problem = _shares(
            {item["piece"]: item["probability"] for item in mine},
            {item["token"]: item["score"] for item in other["candidates"]},
            bound,
        )
        if problem:
            return problem
    return None
