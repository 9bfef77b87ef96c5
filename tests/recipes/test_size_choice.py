"""The size of a network where no --model is named, and what held-out text takes of the minutes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import EncoderConfig, ModelConfig, encoder_of
from bertsmith.network.model import build_model
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.pretrain import planning
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainRun, PretrainSettings
from bertsmith.recipes.pretrain.planning import choose_size, pick_size, plan_time
from bertsmith.recipes.pretrain.published import RECIPES
from bertsmith.recipes.pretrain.resolving import begin
from bertsmith.recipes.pretrain.speed import PhaseTiming, StepCosts
from bertsmith.reports.training import CURVES
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget
from bertsmith.training.distribution import ALONE
from bertsmith.training.peak import Peak
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Costs
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

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
        ((40_000, 14_000, 5_000), 1000, 1_000_000, "tiny", ("more than 16 times", " 2,400 times")),
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


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    folder = tmp_path_factory.mktemp("prepared") / "store"
    prepare_store(invented_documents(60), tokenizer, folder, held_out=0.0)
    return TokenStore(folder)


SETTINGS = PretrainSettings(
    samples=SampleConfig(max_length=64, tokens_per_batch=512), gradient_accumulation=2
)


def run_of(store: TokenStore, budget: Budget) -> PretrainRun:
    return PretrainRun(
        store=store.folder, store_hash="", model="", budget=budget, threads=1, device="cpu",
        precision="bf16", settings=SETTINGS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "replicas", "size"),
    [
        # 3 processes with 2 batches of 512 tokens; sizes need 17,280 tokens and 69,120
        (Budget(steps=5), 1, "tiny"),
        (Budget(steps=6), 1, "mini"),
        (Budget(steps=22), 1, "mini"),
        (Budget(steps=23), 1, "medium"),
        # the last one needs 491,520, and the text read 16 times has fewer
        (Budget(steps=10**6), 1, "medium"),
        # 45 of 60 seconds are for steps, and a batch takes one: two replicas share it
        (Budget(minutes=0.99), 1, "mini"),
        (Budget(minutes=1.01), 1, "medium"),
        (Budget(minutes=0.99), 2, "medium"),
    ],
)
def test_the_size_is_the_largest_that_reads_enough_of_those_a_family_has(
    budget: Budget,
    replicas: int,
    size: str,
    store: TokenStore,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 69_120 < 16 * store.tokens < 491_520
    widths = {"tiny": 8, "mini": 12, "medium": 24, "base": 64}

    def network_of(name: str) -> ModelConfig:
        if name not in widths:
            raise ConfigError("there is none of this size")
        encoder = EncoderConfig(
            vocabulary=tokenizer.size, hidden=widths[name], layers=1, heads=2,
            feed_forward=widths[name], longest=64,
        )  # fmt: skip
        return ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)

    def measured(*values: object, seconds: float) -> StepCosts:
        assert budget.minutes is not None
        assert seconds == pytest.approx(0.01 * 60 * budget.minutes)
        trial = PhaseTiming(
            longest=64, share=1.0, tokens=512, batch_seconds=1.0, update_seconds=0.0, flops=1e9,
            first_loss=9.0,
        )  # fmt: skip
        return StepCosts(trials=(trial,), peak=Peak(flops=1e12, occasions=1, measured=0.0))

    monkeypatch.setattr(planning, "measure", measured)
    choice = choose_size(
        run_of(store, budget), store, network_of, torch.device("cpu"), processes=3,
        replicas=replicas,
    )  # fmt: skip
    assert choice.size == size


def test_a_size_for_which_a_recipe_has_other_settings_is_not_chosen(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ELECTRA's base was trained at the rate, and with the sequences, of its small."""
    monkeypatch.setattr(planning, "USEFUL_TIMES", 10**9)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    chosen = {}
    for recipe in ("electra", "quick"):
        config = PretrainConfig(
            store=store.folder, out=tmp_path / "run", steps=10**9, recipe=recipe
        )
        chosen[recipe] = begin(RunFolder(config.out), config, ALONE, dry=True)
    assert {recipe: run.model for recipe, run in chosen.items()} == {
        "electra": "small", "quick": "base",
    }  # fmt: skip
    assert chosen["electra"].settings == RECIPES["electra"]("small")


def test_held_out_text_is_read_for_its_share_of_the_minutes(
    store: TokenStore, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = PretrainingBatches(store, tokenizer, SETTINGS.samples, seed=0)
    tokens = store.tokens
    assert tokens > 8_000
    encoder = encoder_of("bert", "tiny", tokenizer.size, longest=64)
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True), seed=1)
    # measurements are in the precision of training, the evaluation is in float32
    speeds = {"bf16": 0.0, "fp32": 0.0}
    monkeypatch.setattr(planning, "_reading_speed", lambda *values: speeds[values[3]])
    monkeypatch.setattr(planning, "_drawing_seconds", lambda: 0.5)
    for number, (minutes, speed, measurements) in enumerate(
        [
            # ten readings of 8,000 tokens take a twentieth of the minutes or less, five, two, ...
            (1.0, 40_000, 10), (1.0, 16_000, 5), (1.0, 6_000, 2), (1.0, 3_000, 1), (1.0, 1_500, 0),
            (30.0, 40_000, 10), (600.0, 40_000, 10),
        ]
    ):  # fmt: skip
        speeds.update(bf16=speed, fp32=speed / 2)
        run = run_of(store, Budget(minutes=minutes))
        (tmp_path / str(number)).mkdir()
        folder = RunFolder(tmp_path / str(number))
        plan, costs = plan_time(run, model, PRETRAINING, held_out, folder)
        assert plan.measurements == measurements
        share = 0.05 * 60 * minutes
        measured, evaluated = plan.measured_tokens, plan.evaluated_tokens
        assert min(measured, evaluated) >= 8_000
        # halved until they fit into their shares, and no further
        assert measurements * measured / speed <= share or measured < 16_000
        assert measured == 64_000 or max(1, measurements) * 2 * measured / speed > share
        assert 2 * evaluated / speed <= share or evaluated < 16_000
        assert evaluated == 400_000 or 2 * 2 * evaluated / speed > share
        assert costs.measurement == pytest.approx(min(measured, tokens) / speed)
        other = plan_time(run, model, PRETRAINING, None, folder)[1]
        evaluating = 2 * min(evaluated, tokens) / speed
        assert costs.afterwards - other.afterwards == pytest.approx(evaluating)
        # a machine that is faster by now reads the same, so that figures can be compared
        speeds.update(bf16=99 * speed, fp32=99 * speed)
        assert plan_time(run, model, PRETRAINING, held_out, folder)[0] == plan


def test_saving_and_leaving_are_kept_free(
    store: TokenStore, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what makes a run longer than its minutes."""
    run, figure = run_of(store, Budget(minutes=1.0)), [0.5]
    monkeypatch.setattr(planning, "_drawing_seconds", lambda: figure[0])

    def costs_of(size: str, startup: float = 0.0) -> Costs:
        encoder = encoder_of("bert", size, tokenizer.size, longest=64)
        model = build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=1)
        return plan_time(run, model, PRETRAINING, None, RunFolder(tmp_path), startup)[1]

    tiny, mini = costs_of("tiny"), costs_of("mini")
    saving = mini.afterwards - tiny.afterwards
    assert saving > 0
    # two moments of every weight lie in a checkpoint too
    assert mini.checkpoint - tiny.checkpoint == pytest.approx(3 * saving)
    # a machine that starts slowly ends slowly
    assert costs_of("tiny", startup=10.0).afterwards > tiny.afterwards + 1
    figure[0] = 1.5
    assert costs_of("tiny").afterwards == pytest.approx(tiny.afterwards + CURVES)
