"""The number of torch's threads where several threads compute with numbers of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bertsmith.network.torch_state import threads_of_torch


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_threads_that_compute_at_once_leave_the_number_as_it_was(first_ends_first: bool) -> None:
    """New threads, and the one that ended last, computed ever after with another one's number."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    inside, over = [threading.Event() for _ in range(2)], threading.Event()
    order = (0, 1) if first_ends_first else (1, 0)

    def compute(which: int, count: int | None) -> tuple[int, int]:
        with threads_of_torch(count):
            number = torch.get_num_threads()
            inside[which].set()
            inside[1].wait()
            if which == order[1]:
                over.wait()
        if which == order[0]:
            over.set()
        return number, torch.get_num_threads()

    try:
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(compute, 0, 1)
            inside[0].wait()
            second = pool.submit(compute, 1, 3)
            assert (first.result(), second.result()) == ((1, 4), (3, 4))
        assert _of_a_new_thread(torch.get_num_threads) == torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_a_new_thread_without_a_number_computes_with_the_usual_one() -> None:
    before = torch.get_num_threads()

    def compute() -> int:
        with threads_of_torch(None):
            return torch.get_num_threads()

    with threads_of_torch(before + 2):
        assert _of_a_new_thread(compute) == before
        with threads_of_torch(before + 1):
            assert torch.get_num_threads() == before + 1
        assert torch.get_num_threads() == before + 2
    assert _of_a_new_thread(torch.get_num_threads) == torch.get_num_threads() == before


def _of_a_new_thread(function: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
