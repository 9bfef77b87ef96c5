"""The size of a network where no --model is named."""

from __future__ import annotations

import pytest

from bertsmith.recipes.pretrain.planning import pick_size

# weights in the layers of BERTs of 2/128, 4/256 and 4/512: 12 x layers x width squared
WEIGHTS = {"tiny": 393_216.0, "mini": 3_145_728.0, "small": 12_582_912.0}
BIG = 10**12


@pytest.mark.parametrize(
    ("speeds", "minutes", "corpus", "size", "told"),
    [
        # three minutes read too little for anything but the smallest, whatever the corpus
        ((40_000, 14_000, 5_000), 3, 5_000_000, "tiny", ("1.4 times", "mini would need 62.9M")),
        ((40_000, 14_000, 5_000), 3, BIG, "tiny", ("mini would need 62.9M",)),
        # 84 M tokens of a mini are more than 63, 30 M of a small are less than 252
        ((40_000, 14_000, 5_000), 100, BIG, "mini", ("84M", "small would need 252M")),
        ((40_000, 14_000, 5_000), 1000, BIG, "small", ("300M",)),
        # a faster machine affords more
        ((4e6, 1.4e6, 5e5), 10, BIG, "small", ()),
        # much time and little text
        ((40_000, 14_000, 5_000), 1000, 1_000_000, "tiny", ("more than 16 times",)),
    ],
)
def test_size_follows_text_and_time(
    speeds: tuple[float, ...], minutes: float, corpus: int, size: str, told: tuple[str, ...]
) -> None:
    tokens = dict(zip(WEIGHTS, (speed * 60 * minutes for speed in speeds), strict=True))
    choice = pick_size(WEIGHTS, tokens.__getitem__, corpus, f"{minutes} minutes")
    assert choice.size == size
    assert choice.reason.startswith(f"size {size}, since no --model is given: ")
    for words in told:
        assert words in choice.reason


def test_slow_sizes_are_not_tried_where_a_faster_one_reads_too_little() -> None:
    tried = []

    def tokens_of(size: str) -> float:
        tried.append(size)
        return 1e6

    assert pick_size(WEIGHTS, tokens_of, BIG, "a minute").size == "tiny"
    assert tried == ["tiny"]
