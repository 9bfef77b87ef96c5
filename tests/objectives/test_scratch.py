"""Memory that is kept for the next step."""

from __future__ import annotations

import torch

from bertsmith.objectives.cross_entropy import Scratch


def test_memory_goes_to_the_next_one_once_it_is_free() -> None:
    kind = torch.float64
    first = Scratch((3, 5), kind)
    at = first.tensor.data_ptr()
    other = Scratch((3, 5), kind)
    assert other.tensor.data_ptr() != at
    del first
    smaller = Scratch((2, 4), kind)
    assert smaller.tensor.shape == (2, 4)
    assert smaller.tensor.data_ptr() == at
    del smaller
    larger = Scratch((300, 5), kind)
    assert larger.tensor.shape == (300, 5)
    larger.tensor.fill_(1)
    assert float(larger.tensor.sum()) == 1500
