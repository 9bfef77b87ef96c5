"""How many trainings are made at once, by memory, cores, and what there is to train."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bertsmith.core.errors import ConfigError
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.model import build_model
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.recipes.finetune.config import (
    AtOnce,
    ExperimentConfig,
    FinetuneSettings,
    SearchConfig,
)
from bertsmith.recipes.finetune.experiment import training_counts
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, prepare
from bertsmith.recipes.finetune.trials import (
    Machine,
    parallel_trials,
    training_need,
)
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.tokenizer import Tokenizer

GIGABYTE = 10**9
ROOMY = Machine(cores=16, free=10**12, device="cpu")


@pytest.mark.parametrize(
    ("cores", "seeds", "at_once", "threads"),
    [
        # five of one thread are done before one of two threads has been five times
        (2, 5, 2, 1),
        # two rounds of one thread last longer than three in turn with two
        (2, 3, 1, 2),
        (2, 2, 2, 1),
        # no round with fewer than five, though three cores are left over
        (8, 5, 5, 1),
        # in two rounds of three with five threads, and in one of five with three: the latter
        (16, 5, 5, 3),
        (64, 5, 5, 12),
        (4, 8, 4, 1),
    ],
)
def test_auto_takes_what_should_be_fastest(
    cores: int, seeds: int, at_once: int, threads: int
) -> None:
    chosen = parallel_trials("auto", [seeds], GIGABYTE, replace(ROOMY, cores=cores))
    assert (chosen.at_once, chosen.threads) == (at_once, threads)


def test_auto_takes_no_more_than_there_is_room_for() -> None:
    # four fifths of 6 GB have room for four of 1.2
    few = replace(ROOMY, free=6 * GIGABYTE)
    chosen = parallel_trials("auto", [5], 12 * GIGABYTE // 10, few)
    assert (chosen.at_once, chosen.threads) == (3, 5)
    assert str(chosen) == (
        "3 trainings side by side, with 5 threads each: 16 cores, and each may take 1.2 GB of "
        "6.0 GB free"
    )


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (replace(ROOMY, device="cuda"), "there is one device for all"),
        (replace(ROOMY, cores=1), "there is one core, or OMP_NUM_THREADS allows one"),
        (replace(ROOMY, free=None), "how much memory is free is not known here"),
        (replace(ROOMY, free=7 * GIGABYTE), "each may take 3.0 GB, and 7.0 GB are free"),
    ],
)
def test_in_turn_where_there_is_a_reason(machine: Machine, why: str) -> None:
    chosen = parallel_trials("auto", [5], 3 * GIGABYTE, machine)
    assert (chosen.at_once, chosen.threads, chosen.reason) == (1, machine.cores, why)
    assert str(chosen).startswith("one training after the other, with ")


@pytest.mark.parametrize(
    ("asked", "counts", "at_once", "threads"),
    [(3, [5], 3, 5), (1, [5], 1, 16), (9, [5, 3], 5, 3), (40, [40], 40, 1)],
)
def test_what_is_asked_for_holds(
    asked: AtOnce, counts: list[int], at_once: int, threads: int
) -> None:
    for free, remark in ((None, ""), (1, ", though each may take 1.0 GB of 0 MB free")):
        chosen = parallel_trials(asked, counts, GIGABYTE, replace(ROOMY, free=free))
        assert (chosen.at_once, chosen.threads) == (at_once, threads)
        assert chosen.reason == "as requested" + remark


def test_of_a_single_training_there_is_nothing_to_say() -> None:
    for asked in ("auto", 4):
        chosen = parallel_trials(asked, [1, 0], GIGABYTE, ROOMY)
        assert (chosen.at_once, chosen.threads, str(chosen)) == (1, 16, "")


def test_a_run_that_goes_on_keeps_its_threads() -> None:
    # four at once would need as many rounds as three
    assert parallel_trials("auto", [5], GIGABYTE, ROOMY, 4).at_once == 3
    assert parallel_trials("auto", [5], GIGABYTE, ROOMY, 16).at_once == 1
    assert parallel_trials("auto", [5], GIGABYTE, replace(ROOMY, cores=2), 16).at_once == 1
    for asked, machine in (("auto", ROOMY), (2, ROOMY), ("auto", replace(ROOMY, cores=1))):
        assert parallel_trials(asked, [5], GIGABYTE, machine, 4).threads == 4  # type: ignore[arg-type]


def test_fewer_than_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="--side-by-side is 0; give auto, or at least 1"):
        parallel_trials(0, [5], GIGABYTE, ROOMY)


def test_all_that_is_to_be_trained_is_counted() -> None:
    settings = FinetuneSettings()
    assert training_counts(ExperimentConfig(seeds=5), settings, 144) == [5, 0]
    search = SearchConfig().resolved(768, 144)
    everything = ExperimentConfig(seeds=5, grid=True, search=search, curve=True, baselines=True)
    # 36 and 72 of 144 rows, with three seeds each
    assert training_counts(everything, settings, 144) == [5, 5, 18, 3, 3]


def prepared_rows(tokenizer: Tokenizer, words: int) -> Prepared:
    rows = [
        Example(text="word1 " * words, text_pair=None, label="ab"[n % 2], source="memory", line=n)
        for n in range(64)
    ]
    data = LabelledData(task=CLASSIFY, labels=("a", "b"), train=rows, dev=rows, dev_is_cut=False)
    return prepare(data, tokenizer, ReadingLimits(longest=128))


def test_larger_models_and_batches_need_more(tiny_tokenizer: Tokenizer) -> None:
    settings = FinetuneSettings(batch_size=16, precision="bf16")
    # as large as MiniLM but for its table
    encoder = replace(
        encoder_of("bert", "mini", 30_000), hidden=384, layers=6, heads=12, feed_forward=1536
    )
    model = build_model(ModelConfig(encoder=encoder), seed=0)
    small = build_model(ModelConfig(encoder=encoder_of("bert", "tiny", 30_000)), seed=0)
    texts = prepared_rows(tiny_tokenizer, 126)
    usual = training_need(model, texts, replace(settings, batch_size=32))
    # it has been seen to grow to 1.8 to 2.6 GB
    assert 1.8 * GIGABYTE < usual < 2.8 * GIGABYTE
    assert training_need(model, texts, settings) < usual
    assert training_need(small, texts, replace(settings, batch_size=32)) < usual / 2
    assert training_need(model, prepared_rows(tiny_tokenizer, 20), settings) < usual / 2


def test_threads_are_those_of_before_afterwards() -> None:
    before = torch.get_num_threads()
    with threads_of_torch(before + 2):
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
