"""The measured speed of matrix products."""

from __future__ import annotations

import torch

from bertsmith.training import peak


def test_the_peak_is_a_speed_that_a_product_reaches_and_is_measured_once() -> None:
    device = torch.device("cpu")
    measured = peak.matrix_peak("fp32", device)
    # any machine that runs the tests is between a thousandth and a thousand times a usual core
    assert 1e8 < measured < 1e15
    assert peak.matrix_peak("fp32", device) == measured


def test_each_number_of_threads_is_measured_by_itself() -> None:
    device, threads = torch.device("cpu"), torch.get_num_threads()
    before = peak._measured.cache_info().currsize
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            peak.matrix_peak("bf16", device)
    finally:
        torch.set_num_threads(threads)
    assert peak._measured.cache_info().currsize >= before + 1


def test_the_fastest_of_at_least_two_calls_counts() -> None:
    calls: list[int] = []
    seconds = peak._fastest(lambda: calls.append(0), torch.device("cpu"), limit=0.0)
    assert len(calls) == 2
    assert 0 <= seconds < 1
