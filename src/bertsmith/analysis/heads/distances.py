"""Distances between attention heads, and a map of them (Clark et al. 2019, section 5).

The distance of two heads is the root of the mean Jensen-Shannon divergence of their attention, over
the tokens of some texts: a metric, in nats, at most the root of ln 2.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Distances = NDArray[np.float64]


def divergence_sums(weights: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergences of heads, (heads, heads), summed over queries.

    `weights` is (heads, queries, keys). JS(p, q) is H((p + q) / 2) - (H(p) + H(q)) / 2.
    """
    exact = weights.double()
    entropies = torch.special.entr(exact).sum((1, 2))
    results = torch.empty(len(exact), len(exact), dtype=torch.float64, device=weights.device)
    for number, head in enumerate(exact):
        mixed = torch.special.entr((exact[number:] + head) / 2).sum((1, 2))
        results[number, number:] = results[number:, number] = (
            mixed - (entropies[number:] + entropies[number]) / 2
        )
    return results.clamp_(min=0)


def head_distances(texts: Iterable[Tensor]) -> Distances:
    """Return the distances of heads, (heads, heads); each text is weights (heads, n, n)."""
    total, queries = torch.zeros(()), 0
    for weights in texts:
        total = total + divergence_sums(weights).cpu()
        queries += weights.shape[1]
    assert queries, "no texts"
    result: Distances = (total / queries).sqrt().numpy()
    return result


def classical_map(distances: Distances) -> tuple[NDArray[np.float64], float]:
    """Return points (items, 2) whose distances are nearest, and the share of variance they keep.

    Classical scaling (Torgerson 1952).
    """
    count = len(distances)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centre @ distances**2 @ centre / 2)
    order = np.argsort(-values)[:2]
    clipped = np.clip(values[order], 0, None)
    points = np.zeros((count, 2))
    points[:, : len(order)] = vectors[:, order] * np.sqrt(clipped)
    positive = np.clip(values, 0, None).sum()
    return with_fixed_signs(points), float(clipped.sum() / positive) if positive else 1.0


def with_fixed_signs(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points (items, axes) with each axis turned so that its largest value is positive.

    A map is the same mirrored: its axes come with either sign.
    """
    largest = np.abs(points).argmax(0)
    return np.asarray(points * np.where(points[largest, range(points.shape[1])] < 0, -1, 1))
