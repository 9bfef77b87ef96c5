from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertsmith.batches.config import Phase, SampleConfig
from bertsmith.batches.pretraining import PhasedBatches, PretrainingBatches
from bertsmith.core.errors import StoreError
from bertsmith.network.batch import Batch
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.model import build_model
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.pretrain import speed
from bertsmith.recipes.pretrain.config import PretrainRun, PretrainSettings
from bertsmith.recipes.pretrain.preflight import (
    PreparedRun,
    check,
    check_resources,
    check_vocabulary,
)
from bertsmith.recipes.pretrain.recipe import print_plan
from bertsmith.recipes.pretrain.speed import PhaseTiming, StepCosts, check_budget, check_time
from bertsmith.recipes.resources import Findings
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.store.survey import survey
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.training.config import Budget, OptimiserConfig
from bertsmith.training.peak import Peak
from bertsmith.training.run_folder import RunFolder
from invented import SYLLABLES, invented_documents, tokenizer

__all__ = ["tokenizer"]

PEAK = Peak(flops=1e12, occasions=1, measured=0.0)


@pytest.fixture(scope="module", autouse=True)
def brief_trial() -> None:
    """Measure with as many steps as usual: this is what is tested."""


def stored(
    documents: list[Document], tokenizer: Tokenizer, folder: Path, held_out: float = 0.0
) -> TokenStore:
    prepare_store(documents, tokenizer, folder, held_out=held_out)
    return TokenStore(folder)


def checked(
    store: TokenStore,
    tokenizer: Tokenizer,
    budget: Budget,
    **changes: Any,  # noqa: ANN401
) -> Findings:
    settings = PretrainSettings(
        samples=SampleConfig(max_length=64, tokens_per_batch=512),
        optimiser=OptimiserConfig(matrices="muon"),
        precision="fp32",
    )
    settings = replace(settings, **changes)
    run = PretrainRun(
        store=store.folder, store_hash="", model="tiny", budget=budget, threads=1, device="cpu",
        precision="fp32", settings=settings,
    )  # fmt: skip
    encoder = encoder_of("bert", "tiny", tokenizer.size, longest=64)
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    model = build_model(config, seed=1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batches = PhasedBatches(store, tokenizer, settings.samples, settings.phases, seed=0)
    prepared = PreparedRun(
        run=run, store=store, tokenizer=tokenizer, folder=RunFolder(store.folder / "run"),
        network=config, batches=batches,
        model=model, objective=PRETRAINING,
    )  # fmt: skip
    found = check(prepared)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    return found


def verdicts(preflight: Findings) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in preflight.findings}


@pytest.fixture(scope="module")
def good(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    folder = tmp_path_factory.mktemp("good") / "store"
    return stored(invented_documents(200), tokenizer, folder, held_out=0.05)


def test_a_good_corpus_passes(
    good: TokenStore, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    preflight = checked(good, tokenizer, Budget(steps=1000))
    assert set(verdicts(preflight).values()) == {"fine"}
    preflight.raise_if_stopped(good.folder)
    found = {finding.name: finding.found for finding in preflight.findings}
    assert f"ln {tokenizer.size} = {math.log(tokenizer.size):.2f}" in found["initial loss"]
    assert "1,000 steps" in found["budget"]
    preflight.print()
    assert "unigram loss" in capsys.readouterr().err


def test_a_store_that_holds_nothing_out_is_worth_a_look(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    preflight = checked(
        stored(invented_documents(40), tokenizer, tmp_path / "store"), tokenizer, Budget(steps=20)
    )
    assert verdicts(preflight)["held-out text"] == "look"


def test_the_survey_counts(good: TokenStore, tokenizer: Tokenizer) -> None:
    seen = survey(good, tokenizer.size)
    assert seen.repeated_sentences < 0.01
    assert seen.near_duplicates == 0.0
    ids = good.read(0, good.tokens)
    shares = torch.bincount(torch.from_numpy(ids.astype("int64"))) / len(ids)
    exact = -torch.special.xlogy(shares, shares).sum().item()
    assert seen.unigram_entropy == pytest.approx(exact, rel=1e-6)


def test_repeated_lines_stop_the_run(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The known cause of a loss stuck near 7."""
    footer = "Bade kifo muna lepo sitagu rona beki dumo nasi ve."
    documents = [
        replace(document, paragraphs=(document.paragraphs[0][:200], *[footer] * 9))
        for document in invented_documents(100)
    ]
    store = stored(documents, tokenizer, tmp_path / "store")
    preflight = checked(store, tokenizer, Budget(steps=100))
    assert verdicts(preflight)["repeated sentences"] == "stop"
    assert verdicts(preflight)["most frequent sentence"] == "stop"
    with pytest.raises(
        StoreError, match=r"repeated sentences.*[89]\d\d times.*boilerplate.*--force"
    ):
        preflight.raise_if_stopped(store.folder)


def test_near_duplicates_are_found(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [d for d in invented_documents(160) if len(d.paragraphs) > 4][:60]
    changed = [
        replace(document, paragraphs=(*document.paragraphs[:-1], "Bado kife."))
        for document in documents[:30]
    ]
    store = stored(documents + changed, tokenizer, tmp_path / "store")
    assert survey(store, tokenizer.size).near_duplicates == pytest.approx(60 / 90, abs=0.05)


def test_documents_of_one_sentence_and_unknown_words(tokenizer: Tokenizer, tmp_path: Path) -> None:
    texts = [f"{d.paragraphs[0].partition('.')[0]} qqq xxx" for d in invented_documents(120)]
    documents = [Document(source="", line=1, paragraphs=(text,)) for text in texts]
    store = stored(documents, tokenizer, tmp_path / "store")
    assert survey(store, tokenizer.size).single_sentence_documents == 1.0
    samples = SampleConfig(max_length=64, tokens_per_batch=512)
    batch = PretrainingBatches(store, tokenizer, samples, seed=0)
    assert batch.sequences == 120
    found = verdicts(checked(store, tokenizer, Budget(steps=50)))
    assert found["documents of one sentence"] == "stop"
    assert found["[UNK]"] in ("look", "stop")
    assert found["steps"] == "look"


def test_too_much_of_the_same_text_stops(good: TokenStore, tokenizer: Tokenizer) -> None:
    preflight = checked(good, tokenizer, Budget(steps=200_000))
    assert verdicts(preflight)["budget"] == "stop"


def test_a_long_sentence_that_occurs_once_is_not_repeated(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Text without full stops is one sentence, nearly all of its document, and no repetition."""
    documents = [
        replace(document, paragraphs=(document.paragraphs[0].replace(".", ""),))
        for document in invented_documents(3)
    ]
    store = stored(documents, tokenizer, tmp_path / "store")
    found = checked(store, tokenizer, Budget(steps=100))
    assert verdicts(found)["most frequent sentence"] == "fine"


def test_one_line_in_every_document_stops(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Few sentences repeat, and one of them would be learned in place of the language."""
    notice = "Bade kifo muna lepo sitagu rona beki dumo nasi ve."
    documents = [
        replace(document, paragraphs=(document.paragraphs[0][:300], notice))
        for document in invented_documents(250)
    ]
    store = stored(documents, tokenizer, tmp_path / "store")
    found = checked(store, tokenizer, Budget(steps=100))
    assert verdicts(found)["repeated sentences"] == "fine"
    assert verdicts(found)["most frequent sentence"] == "stop"
    with pytest.raises(StoreError, match=r"most frequent sentence: 2\d\d times.*bade kifo.*remove"):
        found.raise_if_stopped(store.folder)


def test_a_vocabulary_that_is_hardly_used_is_worth_a_look(tmp_path: Path) -> None:
    pieces = [*SPECIALS, ".", *(f"word{n}" for n in range(900)), *SYLLABLES]
    large = Tokenizer([*pieces, *(f"##{s}" for s in SYLLABLES)], BasicRules(lowercase=True))
    store = stored(invented_documents(60), large, tmp_path / "store")
    found = {f.name: f for f in checked(store, large, Budget(steps=200)).findings}
    assert found["vocabulary"].verdict == "look"
    assert "86.5 % of them do not occur in it" in found["vocabulary"].found
    assert "--size" in found["vocabulary"].remedy


def test_a_model_of_fewer_rows_than_the_store_has_pieces_stops(
    good: TokenStore, tokenizer: Tokenizer
) -> None:
    seen = survey(good, tokenizer.size)
    vocabulary, *_ = check_vocabulary(good, tokenizer, seen, 100, inherited=True)
    assert vocabulary.verdict == "stop"
    assert vocabulary.found == f"100 in the model, {tokenizer.size} in the store"


def test_text_of_another_language_wants_its_own_vocabulary(tmp_path: Path) -> None:
    pieces = [*SPECIALS, ".", *"aeioubdfgklmnprstvz"]
    letters = Tokenizer([*pieces, *(f"##{c}" for c in pieces[6:])], BasicRules(lowercase=True))
    store = stored(invented_documents(40), letters, tmp_path / "store")
    found = {f.name: f for f in checked(store, letters, Budget(steps=200)).findings}
    assert found["pieces per word"].verdict == "look"
    assert "bertsmith vocab learn" in found["pieces per word"].remedy


def test_every_length_is_measured_by_itself(good: TokenStore, tokenizer: Tokenizer) -> None:
    phases = (Phase(share=0.75, max_length=16, tokens_per_batch=256),)
    found = checked(good, tokenizer, Budget(steps=400), phases=phases, gradient_accumulation=3)
    told = {finding.name: finding.found for finding in found.findings}
    assert {"speed at 16", "speed at 64"} <= told.keys()
    assert "400 steps" in told["budget"]


def test_what_a_budget_comes_to() -> None:
    same = {"update_seconds": 0.5, "flops": 1e9, "first_loss": 5.0}
    trials = (
        PhaseTiming(longest=16, share=0.75, tokens=100, batch_seconds=0.25, **same),
        PhaseTiming(longest=64, share=0.25, tokens=200, batch_seconds=1.0, **same),
    )
    costs = StepCosts(trials=trials, accumulate=2, processes=3, peak=PEAK)
    assert [costs.seconds_a_step(trial) for trial in trials] == [1.0, 2.5]
    # 300 steps of 3 x 2 x 100 tokens, and 100 of 3 x 2 x 200
    assert costs.outcome(Budget(steps=400)) == (400, 300 + 250, 300_000)
    # 45 seconds of steps of 1 second, and 15 of steps of 2.5
    assert costs.outcome(Budget(minutes=1)) == (45 + 6, 60, 45 * 600 + 6 * 1200)
    assert costs.utilisation(trials[0]) == pytest.approx(2e9 / 1.0 / 1e12)


class InventedMachine:
    """A machine whose steps take a second the first time, then a tenth and their tokens."""

    def __init__(self) -> None:
        self.now, self.steps = 0.0, 0

    def step(self, batch: Batch) -> tuple[float, float, float]:
        seconds = 0.1 + batch.tokens * 1e-4 + (0 if self.steps else 1)
        # another program has the processor meanwhile
        seconds += 3 * (self.steps == 6)
        self.now, self.steps = self.now + seconds, self.steps + 1
        return seconds / batch.tokens, 0.0, 6.0


@pytest.mark.parametrize("seconds", [0.6, 5.0])
def test_costs_that_do_not_grow_with_the_batch_are_not_taken_for_many_times_themselves(
    good: TokenStore, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    encoder = encoder_of("bert", "tiny", tokenizer.size, longest=64)
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    model = build_model(config, seed=1)
    machine = InventedMachine()
    monkeypatch.setattr(speed.TrainedCopy, "step", lambda _, batch: machine.step(batch))
    monkeypatch.setattr(speed, "matrix_peak", lambda *values: PEAK)
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: machine.now))
    batches = PretrainingBatches(
        good, tokenizer, SampleConfig(max_length=64, tokens_per_batch=2000), seed=0
    )
    copy = speed.TrainedCopy(model, PRETRAINING, OptimiserConfig(), "fp32")
    (trial,) = speed.measure(copy, [(1.0, batches)], seconds=seconds).trials
    assert trial.tokens > 1500
    assert trial.batch_seconds == pytest.approx(0.1 + trial.tokens * 1e-4, rel=0.1)
    costs = StepCosts(trials=(trial,), peak=PEAK)
    assert "of a batch" not in speed.check_speed(costs)[0].found


def test_a_speed_of_part_of_a_batch_says_so() -> None:
    trial = PhaseTiming(
        longest=64, share=1.0, tokens=8000, batch_seconds=11, update_seconds=1, flops=1e12,
        first_loss=9.0, timed=0.0625,
    )  # fmt: skip
    (finding,) = speed.check_speed(StepCosts(trials=(trial,), peak=PEAK))
    assert "timed on 6 % of a batch" in finding.found


def test_minutes_that_come_to_a_few_steps_stop(good: TokenStore) -> None:
    trial = PhaseTiming(
        longest=64, share=1.0, tokens=8000, batch_seconds=11, update_seconds=1, flops=1e12,
        first_loss=9.0,
    )  # fmt: skip
    costs = StepCosts(trials=(trial,), accumulate=1, processes=1, peak=PEAK)
    for budget, verdict in (
        (Budget(minutes=2), "stop"), (Budget(minutes=15), "look"), (Budget(minutes=30), "fine"),
        (Budget(steps=3), "look"),
    ):  # fmt: skip
        assert check_budget(good, costs, budget, 10**8)[1].verdict == verdict, budget


def test_steps_of_many_batches_are_to_have_fewer_of_them(good: TokenStore) -> None:
    """Smaller batches would not help: a step of a published recipe has hundreds of them."""
    trial = PhaseTiming(
        longest=64, share=1.0, tokens=8000, batch_seconds=11, update_seconds=1, flops=1e12,
        first_loss=9.0,
    )  # fmt: skip
    costs = StepCosts(trials=(trial,), accumulate=256, peak=PEAK)
    _, few = check_budget(good, costs, Budget(minutes=2), 10**8)
    assert few.remedy == "give more time, or a smaller --model, or smaller --gradient-accumulation"
    (time,) = check_time(costs, Budget(minutes=2), 30)
    # a hundred steps of 2,817 seconds, and 30
    assert time.remedy == "give --minutes 4696 or more"


def test_a_remedy_has_the_unit_of_the_budget(good: TokenStore) -> None:
    trial = PhaseTiming(
        longest=64, share=1.0, tokens=good.tokens * 10, batch_seconds=2, update_seconds=1,
        flops=1e12, first_loss=9.0,
    )  # fmt: skip
    costs = StepCosts(trials=(trial,), accumulate=1, processes=1, peak=PEAK)
    # 40 passes are 4 steps, of 3 seconds each
    repeated, few = check_budget(good, costs, Budget(steps=9), 10**8)
    assert repeated.remedy.startswith("use more text, or 4 steps: after 40 passes")
    assert few.remedy.startswith("give more steps, ")
    repeated, few = check_budget(good, costs, Budget(minutes=0.5), 10**8)
    assert repeated.remedy.startswith("use more text, or 0.2 minutes: after 40 passes")
    assert few.remedy.startswith("give more time, ")
    # neither 5e+03 nor 2e+02
    repeated, _ = check_budget(good, costs, Budget(minutes=10_000), 10**8)
    assert repeated.found.endswith(" minutes: the corpus 2,000,000 times")
    costs = replace(costs, trials=(replace(trial, batch_seconds=2999),))
    repeated, _ = check_budget(good, costs, Budget(minutes=10_000), 10**8)
    assert repeated.remedy.startswith("use more text, or 200 minutes: after 40 passes")


def test_one_sequence_and_one_step_are_no_sequences_and_steps(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (document,) = invented_documents(1)
    short = replace(document, paragraphs=document.paragraphs[:1])
    store = stored([short], tokenizer, tmp_path / "store")
    samples = SampleConfig(max_length=512, text="within_documents")
    batches = PretrainingBatches(store, tokenizer, samples, seed=0)
    run = PretrainRun(
        store=store.folder, store_hash="", model="tiny", budget=Budget(steps=1), threads=1,
        device="cpu", precision="fp32", settings=PretrainSettings(samples=samples),
    )  # fmt: skip
    encoder = encoder_of("bert", "tiny", tokenizer.size, longest=512)
    print_plan(run, build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=1), batches)
    assert "1 step on cpu; 1 sequence of at most 512 tokens an epoch" in capsys.readouterr().err


def test_too_little_memory_stops_before_anything_is_allocated(
    good: TokenStore, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = PretrainSettings(samples=SampleConfig(max_length=64, tokens_per_batch=10**9))
    run = PretrainRun(
        store=good.folder, store_hash="", model="large", budget=Budget(steps=9), threads=1,
        device="cpu", precision="fp32", settings=settings,
    )  # fmt: skip
    batches = PhasedBatches(good, tokenizer, settings.samples, (), seed=0)
    config = ModelConfig(encoder=encoder_of("bert", "large", tokenizer.size), masked_lm=True)
    cpu = torch.device("cpu")
    with pytest.raises(StoreError, match=r"memory needed: about [\d.]+ GB .* smaller --model.*"):
        check_resources(run, config, batches.parts, tmp_path, cpu)
    assert "memory needed" in capsys.readouterr().err
    assert len(check_resources(run, config, batches.parts, tmp_path, cpu, force=True).findings) == 2
