from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from bertsmith.batches import DataPosition
from bertsmith.batches.config import MaskingConfig, SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.cli.main import main
from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError, RunFolderError, StoreError
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch
from bertsmith.network.config import Positions
from bertsmith.network.families.bert import BERT
from bertsmith.network.families.family import usual
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.pretrain import recipe, resolving, speed
from bertsmith.recipes.pretrain.config import (
    NetworkConfig,
    PretrainConfig,
    PretrainRun,
    PretrainSettings,
    fit_config,
)
from bertsmith.recipes.pretrain.recipe import PretrainOutcome, dry_run, pretrain
from bertsmith.recipes.pretrain.report import (
    describe,
    evaluate_held_out,
    held_out_batches,
    measure_held_out,
)
from bertsmith.recipes.resources import Finding, Findings
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Budget, OptimiserConfig, ScheduleConfig
from bertsmith.training.distribution import World
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import load_model
from bounds import close_to_transformers
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

STEPS = 9
QUICK = PretrainSettings(
    network=NetworkConfig(max_positions=40, hidden_dropout=0.05, attention_dropout=0.15),
    samples=SampleConfig(max_length=31, tokens_per_batch=190),
    log_every=2,
    measurements=0,
    seed=5,
)


@pytest.fixture(scope="module", autouse=True)
def sizes() -> Iterator[None]:
    """A size that trains in no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BERT.sizes, "tiny", usual(2, 64))
        yield


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """Fifty documents, some of them held out."""
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(50), tokenizer, folder, held_out=0.1)
    return folder


def run(store: Path | None, out: Path, **changes: object) -> PretrainOutcome:
    settings: dict[str, Any] = {"model": "tiny", "steps": STEPS, "settings": QUICK} | changes
    clock = settings.pop("clock", None)
    return pretrain(PretrainConfig(store=store, out=out, **settings), clock=clock)


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: None, store_folder: Path
) -> PretrainOutcome:
    """A run that was never stopped."""
    return run(store_folder, tmp_path_factory.mktemp("whole") / "run")


def untimed(state: State) -> State:
    return replace(state, seconds=0.0, elapsed=0.0)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def stop_when_drawn(patch: pytest.MonkeyPatch, times: int) -> None:
    """Ask for a stop, as Ctrl-C does, when batches are drawn the n-th time from now on."""
    next_batch, left = PretrainingBatches.next_batch, [times]

    def stopping(self: PretrainingBatches, place: DataPosition) -> tuple[Batch, DataPosition]:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return next_batch(self, place)

    patch.setattr(PretrainingBatches, "next_batch", stopping)


def test_what_is_in_the_folder(whole: PretrainOutcome, store_folder: Path) -> None:
    assert {path.name for path in whole.folder.iterdir()} == {
        "preflight.json", "verified.json",
        "run.json", "log.jsonl", "checkpoints", "result.json", "model", "report.html",
    }  # fmt: skip
    content = json.loads((whole.folder / "run.json").read_text(encoding="utf-8"))
    assert content["kind"] == "pretrain"
    assert content["settings"]["store"] == str(store_folder.resolve())
    assert content["settings"]["settings"] == QUICK.to_dict()
    log = (whole.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in log] == [2, 4, 6, 8, 9]
    result = json.loads((whole.folder / "result.json").read_text(encoding="utf-8"))
    assert result == {"state": whole.state.to_dict(), "held_out": whole.held_out}
    assert whole.state.step == STEPS
    assert 0 < whole.state.tokens <= STEPS * 190
    checkpoints = [path.name for path in (whole.folder / "checkpoints").iterdir()]
    assert checkpoints == [f"step-{STEPS:08}"]


def test_every_setting_reaches_the_loop() -> None:
    settings = PretrainSettings(
        optimiser=OptimiserConfig(beta_2=0.9), schedule=ScheduleConfig(hold=0.2),
        max_gradient_norm=0.3, spike=7.0, patience=3, gradient_accumulation=5, seed=9, log_every=4,
        checkpoint_minutes=2.5, keep_checkpoints=6, measurements=8,
    )  # fmt: skip
    run = PretrainRun(
        store=Path("store"), store_hash="", model="tiny", budget=Budget(minutes=3.0), threads=1,
        replicas=2, device="cpu", precision="bf16", settings=settings, batches_per_step=15,
    )  # fmt: skip
    config = fit_config(run, workers=11)
    given = {"batches_per_step": "gradient_accumulation"}
    for part, others in ((settings, {"gradient_accumulation", "precision"}), (run, set[str]())):
        for name in {field.name for field in fields(part)} - others:
            ours = given.get(name, name)
            if ours in {field.name for field in fields(config)}:
                assert getattr(config, ours) == getattr(part, name), name
    assert config.workers == 11
    assert fit_config(run).workers == 0
    assert fit_config(replace(run, device="cuda")).workers == 2


def test_tokens_of_a_short_run_are_shown() -> None:
    state = State(step=2, tokens=640, seconds=4.0)
    assert describe(state, {}) == "pre-training: 2 steps, 640 tokens, 160 tokens/s"


def test_the_card_counts_epochs_that_were_read(
    tokenizer: Tokenizer, sizes: None, tmp_path: Path
) -> None:
    prepare_store(invented_documents(6), tokenizer, tmp_path / "store", held_out=0)
    whole_epochs = replace(QUICK, samples=replace(QUICK.samples, tokens_per_batch=50_000))
    outcome = run(tmp_path / "store", tmp_path / "run", steps=2, settings=whole_epochs)
    card = (outcome.folder / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| tokens seen | {outcome.state.tokens:,} in 2 steps, 2 epochs |" in card


def test_the_report_and_the_card_say_how_it_was_made(
    whole: PretrainOutcome, store_folder: Path
) -> None:
    page = (whole.folder / "report.html").read_text(encoding="utf-8")
    for said in ("Loss", "Accuracy", "Speed", "Held-out documents", "Settings"):
        assert said in page
    assert "optimiser.muon_learning_rate" in page
    assert "<script" not in page
    # a finding that is to be looked at stands there with its remedy
    check = json.loads((whole.folder / "preflight.json").read_text(encoding="utf-8"))
    advice = [item for item in check["findings"] if item["verdict"] != "fine"]
    assert advice
    for item in advice:
        assert f"{item['verdict']}: {escape(item['remedy'])}</td>" in page
    card = (whole.folder / "model" / "README.md").read_text(encoding="utf-8")
    index = TokenStore(store_folder).index
    content = json.loads((whole.folder / "run.json").read_text(encoding="utf-8"))
    for said in (
        content["settings"]["store_hash"],
        f"in {STEPS} steps, part of one epoch |",
        f"{index.documents:,} documents, {index.text.words:,} words, {index.tokens:,} tokens",
        f"{whole.state.tokens:,} in {STEPS} steps",
        "masked LM and next-sentence prediction",
        f"| masked lm loss, held out | {whole.held_out['masked_lm_loss']:.4g} |",
        f"| masked lm count, held out | {whole.held_out['masked_lm_count']:,} |",
        "| seed | 5 |",
        "library_name: transformers",
    ):
        assert said in card


def test_the_model_gives_the_same_in_transformers(
    whole: PretrainOutcome, tokenizer: Tokenizer
) -> None:
    folder = whole.folder / "model"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    # as published, although pre-training had others
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
    assert config["max_position_embeddings"] == 40
    assert config["bertsmith_pretrained_length"] == 31
    theirs = AutoModelForPreTraining.from_pretrained(folder).eval()
    text = invented_documents(1, seed=8)[0].paragraphs[0][:50]
    inputs = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    ids = inputs["input_ids"][0].tolist()
    assert ids[1:-1] == tokenizer.encode([text])[0].tolist()
    ours, _ = load_model(folder)
    batch = Batch(
        ids=torch.tensor(ids),
        segments=torch.zeros(len(ids), dtype=torch.long),
        positions=torch.arange(len(ids)),
        offsets=torch.tensor([0, len(ids)]),
        lengths=(len(ids),),
    )
    with torch.no_grad():
        encoded, expected = ours.encoder(batch), theirs(**inputs)
        words, pairs = ours.masked_lm(encoded.last), ours.next_sentence(encoded, batch)
    close_to_transformers(words, expected.prediction_logits[0])
    close_to_transformers(pairs, expected.seq_relationship_logits)


def test_held_out_figures_are_those_of_the_saved_model_and_repeat(
    whole: PretrainOutcome, store_folder: Path
) -> None:
    model, loaded = load_model(whole.folder / "model")
    store = TokenStore(store_folder)
    for _ in range(2):
        held_out = held_out_batches(loaded, store, QUICK.samples)
        assert held_out is not None
        found = evaluate_held_out(model, PRETRAINING, held_out)
        # the text is read once
        assert found["masked_lm_count"] < 0.2 * held_out.store.tokens
        assert found == pytest.approx(whole.held_out, abs=1e-6)
    # the masks measured with depend neither on the run's seed nor on its batches
    others = replace(
        QUICK.samples, tokens_per_batch=400, short_sequences=0.5, copies=3,
        masking=MaskingConfig(probability=0.4),
    )  # fmt: skip
    other = held_out_batches(loaded, store, others)
    assert evaluate_held_out(model, PRETRAINING, other) == found


def test_a_measurement_that_is_stopped_is_none(whole: PretrainOutcome, store_folder: Path) -> None:
    """Over some of the text it could be the best."""
    batches = PretrainingBatches(TokenStore(store_folder), whole.tokenizer, QUICK.samples, seed=1)
    measure = measure_held_out(PRETRAINING, batches, "fp32", tokens=600)
    assert measure is not None
    asked = iter([False, False])
    assert measure(whole.network, lambda: next(asked, True)) is None
    figures = measure(whole.network, lambda: False)
    assert figures is not None
    assert figures.metrics["masked_lm_count"] > 60


@pytest.mark.parametrize("again", ["same command", "folder alone"])
def test_a_stopped_run_goes_on_to_the_very_same_model(
    whole: PretrainOutcome,
    store_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    again: str,
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_when_drawn(patch, speed.TRIAL_STEPS + 4)
        with pytest.raises(Interrupted) as stopped:
            run(store_folder, folder)
    assert str(stopped.value) == (
        f"stopped after step 4, saved; to resume: bertsmith pretrain --out {folder}"
    )
    assert not (folder / "model").exists()
    torch.rand(3)  # whatever else the process drew must not matter
    alone = {"model": None, "steps": None, "settings": None} if again == "folder alone" else {}
    resumed = run(None if alone else store_folder, folder, **alone)
    assert f"resuming the run in {folder}" in capsys.readouterr().err
    assert resumed.held_out == whole.held_out
    assert untimed(resumed.state) == untimed(whole.state)
    ours, theirs = files(folder / "model"), files(whole.folder / "model")
    assert ours.keys() == theirs.keys()
    # the card tells of the time it took
    assert {name for name in ours if ours[name] != theirs[name]} <= {"README.md"}


def test_a_run_is_resumed_with_the_options_that_its_folder_does_not_keep(
    store_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As told it went on without TensorBoard, and on the first GPU wherever it had been."""

    def stopped(*_: object, **__: object) -> State:
        raise Interrupted("stopped after step 4")

    monkeypatch.setattr(recipe, "fit", stopped)
    for module in (recipe, resolving):
        monkeypatch.setattr(module, "device_named", lambda name: torch.device("cpu"))
    with pytest.raises(Interrupted) as told:
        run(store_folder, tmp_path / "run", workers=0, tensorboard=True, device="cuda:1")
    assert str(told.value) == (
        "stopped after step 4, saved; to resume: "
        f"bertsmith pretrain --out {tmp_path / 'run'} --device cuda:1 --workers 0 --tensorboard"
    )


def test_a_run_stopped_after_its_last_step_says_so_and_makes_the_model_later(
    whole: PretrainOutcome,
    store_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"

    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("bertsmith.recipes.pretrain.recipe.save_model", stop)
        with pytest.raises(KeyboardInterrupt) as stopped:
            run(store_folder, folder)
    assert str(stopped.value) == (
        f"stopped after step {STEPS}, the last, which is saved; for the model: "
        f"bertsmith pretrain --out {folder}"
    )
    assert not (folder / "model").exists()
    resumed = run(None, folder, model=None, steps=None, settings=None)
    assert f"resuming the run in {folder}" in capsys.readouterr().err
    assert resumed.held_out == whole.held_out
    assert (folder / "model").exists()
    run(store_folder, folder)
    assert f"the run in {folder} has ended" in capsys.readouterr().err


def test_a_run_that_has_ended_stays_as_it_is(
    whole: PretrainOutcome, store_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    before, threads = files(folder / "model"), torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        again = run(store_folder, folder)
        # a program goes on with its own, not with those of the run
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert (again.state, again.held_out) == (whole.state, whole.held_out)
    assert files(folder / "model") == before
    content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    # those of another run are left, then none
    (folder / "run.json").write_text(json.dumps(content | {"id": "another"}), encoding="utf-8")
    for _ in range(2):
        for start in (pretrain, dry_run):
            with pytest.raises(RunFolderError, match="has ended, and its checkpoints are gone"):
                start(
                    PretrainConfig(
                        store=store_folder, out=folder, model="tiny", steps=STEPS, settings=QUICK
                    )
                )
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    assert files(folder / "model") == before


def test_a_run_with_checkpoints_of_another_run_alone_begins_as_any_other(
    store_folder: Path, tmp_path: Path
) -> None:
    """It took them for its own, and left out the starting weights that its recipe computes."""
    network = replace(QUICK.network, initialisation="neighbours")
    settings = replace(QUICK, network=network)
    first = run(store_folder, tmp_path / "first", steps=2, settings=settings)
    folder = tmp_path / "second"
    shutil.copytree(first.folder, folder)
    content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(content | {"id": "another"}), encoding="utf-8")
    shutil.rmtree(folder / "model")
    (folder / "preflight.json").unlink()
    second = run(store_folder, folder, steps=2, settings=settings)
    # the checks before training are made as well
    assert (folder / "preflight.json").exists()
    assert (
        files(second.folder / "model")["model.safetensors"]
        == (files(first.folder / "model")["model.safetensors"])
    )


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"steps": 8}, "budget.steps was 9, now 8"),
        ({"steps": None, "minutes": 1.0}, "budget.minutes was None, now 1.0"),
        ({"model": "mini"}, "model was tiny, now mini"),
        ({"settings": replace(QUICK, seed=6)}, "settings.seed was 5, now 6"),
    ],
)
def test_other_settings_are_refused(
    whole: PretrainOutcome, store_folder: Path, changes: dict[str, object], difference: str
) -> None:
    before = files(whole.folder / "model")
    with pytest.raises(RunFolderError) as refused:
        run(store_folder, whole.folder, **changes)
    assert difference in str(refused.value)
    assert files(whole.folder / "model") == before


def test_what_changes_no_result_may_change(
    whole: PretrainOutcome, store_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, moved, folder = tmp_path / "store", tmp_path / "moved", tmp_path / "run"
    shutil.copytree(store_folder, store)
    with monkeypatch.context() as patch:
        stop_when_drawn(patch, speed.TRIAL_STEPS + 4)
        with pytest.raises(Interrupted):
            run(store, folder)
    store.rename(moved)
    with pytest.raises(RunFolderError, match=r"is not there any more; if it was moved, give"):
        run(None, folder, model=None, steps=None, settings=None)
    others = replace(QUICK, checkpoint_minutes=0.0, keep_checkpoints=3, log_every=1)
    resumed = run(moved, folder, settings=others)
    assert untimed(resumed.state) == untimed(whole.state)
    weights = "model/model.safetensors"
    assert (folder / weights).read_bytes() == (whole.folder / weights).read_bytes()
    steps = [f"step-{step:08}" for step in range(STEPS - 2, STEPS + 1)]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == steps
    kept = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (kept["store"], kept["settings"]["keep_checkpoints"]) == (str(moved), 3)


@pytest.mark.parametrize("named", [True, False])
def test_a_changed_store_is_refused(
    whole: PretrainOutcome, store_folder: Path, tokenizer: Tokenizer, tmp_path: Path, named: bool
) -> None:
    store, folder = tmp_path / "store", tmp_path / "run"
    prepare_store(invented_documents(50, seed=1), tokenizer, store)
    shutil.copytree(whole.folder, folder)
    content = (folder / "run.json").read_text(encoding="utf-8")
    moved = content.replace(str(store_folder.resolve()), str(store))
    (folder / "run.json").write_text(moved, encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"another store|contents have changed"):
        run(store, folder) if named else pretrain(PretrainConfig(store=None, out=folder))


@pytest.mark.parametrize("named", [True, False])
def test_a_run_of_an_earlier_version_is_refused(
    whole: PretrainOutcome, store_folder: Path, tmp_path: Path, named: bool
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    del content["format"]
    (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RunFolderError, match="an earlier version of bertsmith began"):
        run(store_folder, folder) if named else pretrain(PretrainConfig(store=None, out=folder))
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_run_is_not_resumed_on_a_device_with_other_results(
    whole: PretrainOutcome, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    content = (folder / "run.json").read_text(encoding="utf-8")
    elsewhere = content.replace('"device": "cpu"', '"device": "cuda"')
    (folder / "run.json").write_text(elsewhere, encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"was begun on cuda, .* on cpu; give --device cuda"):
        pretrain(PretrainConfig(store=None, out=folder, device="cpu"))


@pytest.mark.parametrize("start", [pretrain, dry_run])
def test_what_would_waste_a_run_stops_it_unless_forced(
    store_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    start: Callable[[PretrainConfig], object],
) -> None:  # fmt: skip
    finding = Finding(name="corpus", found="a line", verdict="stop", remedy="read more")
    monkeypatch.setattr(recipe, "check", lambda *_, **__: Findings(findings=(finding,)))
    config = PretrainConfig(
        store=store_folder, out=tmp_path / "run", model="tiny", steps=1, settings=QUICK
    )
    with pytest.raises(StoreError, match="corpus: a line; read more; or continue with --force"):
        start(config)
    assert not config.out.exists()
    start(replace(config, force=True))


def test_a_forced_run_that_was_killed_before_its_first_checkpoint_need_not_be_forced_again(
    store_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = Finding(name="corpus", found="a line", verdict="stop", remedy="read more")
    monkeypatch.setattr(recipe, "check", lambda *_, **__: Findings(findings=(finding,)))
    out = tmp_path / "run"
    run(store_folder, out, force=True)
    for folder in (out / "checkpoints", out / "model"):
        shutil.rmtree(folder)
    pretrain(PretrainConfig(store=None, out=out))
    assert (out / "model").exists()


def test_a_rank_that_is_to_write_shards_has_to_see_the_run(
    whole: PretrainOutcome, tmp_path: Path
) -> None:
    class Second(World):
        def broadcast(self, compute: object) -> str:
            return RunFolder(whole.folder).identity

    world = Second(rank=1, size=2, shard=True)
    recipe._check_shared(RunFolder(whole.folder), world)
    with pytest.raises(RunFolderError, match=r"elsewhere: rank 1 does not find .* share the disk"):
        recipe._check_shared(RunFolder(tmp_path / "elsewhere"), world)


def test_nothing_to_go_on_with(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no run to resume; name a store"):
        pretrain(PretrainConfig(store=None, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    ["--window 0", "--global-every -1", "--segments -1", "--max-positions 4",
     "--left-to-right --sequences within_documents --window 64", "--replaced-tokens",
     "--left-to-right --family modernbert --sequences within_documents",
     "--family roberta --sequences next_sentence", "--family distilbert --model xlarge"],
)  # fmt: skip
def test_a_network_that_cannot_be_is_refused_in_terms_of_options(
    options: str, store_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pretrain", str(store_folder), "--out", str(tmp_path / "run"), "--minutes", "1"]
    assert main([*arguments, "--dry-run", "--force", *options.split()]) == 2
    assert " --" in capsys.readouterr().err.splitlines()[-1]


def test_impossible_runs_leave_nothing(store_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(
        ConfigError,
        match=r"--model is xxlarge, and no BERT has this size; choose from tiny, .* as 4/192",
    ):
        run(store_folder, out, model="xxlarge")
    with pytest.raises(ConfigError, match=r"--model is 2/63, .* a multiple of 64, as 4/192"):
        run(store_folder, out, model="2/63")
    longer = replace(QUICK, samples=SampleConfig(max_length=41))
    exceeds = r"--max-length \(41\) exceeds --max-positions \(40\); lower .*, or give --max"
    with pytest.raises(ConfigError, match=exceeds):
        run(store_folder, out, settings=longer)
    with pytest.raises(ConfigError, match="either steps or minutes"):
        run(store_folder, out, minutes=1.0)
    with pytest.raises(StoreError, match="not a token store"):
        run(tmp_path / "nowhere", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--model tiny --log-every 0", "--log-every is 0"),
        ("--model tiny --workers -1", "--workers is -1"),
        (
            "--family albert --model base --initialisation neighbours",
            "needs learned positions, and embeddings as wide",
        ),
    ],
)
def test_options_are_refused_before_anything_is_measured(
    options: str, problem: str, store_folder: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def measured(*_: object, **__: object) -> None:
        raise AssertionError("options that are refused were measured with")

    for name in ("resolving.measure_threads", "preflight.measure", "recipe.count_neighbours"):
        monkeypatch.setattr(f"bertsmith.recipes.pretrain.{name}", measured)
    out = tmp_path / "run"
    arguments = ["pretrain", str(store_folder), "--out", str(out)]
    assert main([*arguments, "--steps", "2", *options.split()]) == 2
    assert problem in capsys.readouterr().err
    assert not out.exists()


def test_minutes_go_from_the_command_to_the_saved_model(
    store_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a clock of its own: a step takes a second, everything else no time."""
    seconds, measured = [0.0], replace(QUICK, measurements=2, log_every=1)
    next_batch = PretrainingBatches.next_batch

    def slow(self: PretrainingBatches, place: DataPosition) -> tuple[Batch, DataPosition]:
        seconds[0] += 1
        return next_batch(self, place)

    def go(minutes: float, began: float, store: Path | None = store_folder) -> PretrainOutcome:
        clock = Clock(began, lambda: seconds[0])
        if store is None:
            return pretrain(PretrainConfig(store=None, out=tmp_path / "run"), clock=clock)
        return run(
            store, tmp_path / "run", steps=None, minutes=minutes, clock=clock, settings=measured
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PretrainingBatches, "next_batch", slow)
        found = go(2.0, began=-20.0)
        # evaluation, saving and the report are kept free, by what they take really
        assert 90 < found.state.elapsed <= 120.5
        assert found.state.elapsed == pytest.approx(found.state.seconds + 20, abs=15)
        # no other clock has been looked at
        assert found.state.seconds == found.state.step
        # the plan is kept: what was read once is read again
        plan = (tmp_path / "run" / "held-out.json").read_bytes()
        again = go(2.0, began=seconds[0], store=None)
    assert again.state.step == found.state.step
    assert (tmp_path / "run" / "held-out.json").read_bytes() == plan
    told = capsys.readouterr().err
    assert "of 120 s are left for steps" in told
    assert "minutes in all" in told


def test_too_few_minutes_say_what_would_do(
    store_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(
        store_folder, tmp_path / "run", steps=None, minutes=0.3, clock=Clock(-30.0, lambda: 0.0)
    )
    assert found.state.step == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "0 of 18 s are left for steps" in told
    assert re.search(r"look: give --minutes [\d.]+ or more", told)


def test_a_size_is_chosen_and_kept(
    store_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(store_folder, tmp_path / "run", model=None, steps=2)
    assert found.network.config.encoder.layers == 2
    told = capsys.readouterr().err
    assert "size tiny, since no --model is given: it reads about 380 tokens in 2 steps" in told
    following = told.splitlines()[-1].removeprefix("next: ")
    _, verb, model, *_ = shlex.split(following)
    assert (verb, Path(model)) == ("finetune", found.model)
    assert load_model(found.model)[0].config == found.network.config
    content = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert content["settings"]["model"] == "tiny"
    run(store_folder, tmp_path / "run", model=None, steps=2)
    told = capsys.readouterr().err
    assert "since no --model is given" not in told
    assert "has ended" in told


@pytest.mark.parametrize("positions", ["sinusoidal", "none"])
def test_positions_that_are_not_learned(
    store_folder: Path, tmp_path: Path, positions: Positions
) -> None:
    settings = replace(QUICK, network=NetworkConfig(max_positions=40, positions=positions))
    found = run(store_folder, tmp_path / "run", steps=2, settings=settings)
    loaded, _ = load_model(found.folder / "model")
    assert loaded.config.encoder.positions == positions
    assert "encoder.embeddings.positions.weight" not in dict(loaded.named_parameters())
    batch, _ = PretrainingBatches(
        TokenStore(store_folder), found.tokenizer, QUICK.samples, seed=2
    ).next_batch(DataPosition())
    with torch.no_grad():
        assert torch.equal(loaded.encoder(batch).last, found.network.encoder(batch).last)


def test_masked_lm_alone_on_one_document(tokenizer: Tokenizer, tmp_path: Path) -> None:
    document = max(invented_documents(3), key=lambda document: len(document.paragraphs))
    prepare_store([document], tokenizer, tmp_path / "store", held_out=0.0)
    with pytest.raises(StoreError, match="another"):
        run(tmp_path / "store", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    samples = replace(QUICK.samples, text="within_documents")
    found = run(tmp_path / "store", tmp_path / "run", settings=replace(QUICK, samples=samples))
    assert found.held_out == {}
    assert not found.network.config.next_sentence
    config = json.loads((found.folder / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["BertForMaskedLM"]
    AutoModelForMaskedLM.from_pretrained(found.folder / "model")
    page = (found.folder / "report.html").read_text(encoding="utf-8")
    assert "next sentence" not in page
    assert "Held-out documents" not in page
    assert "| objective | masked LM |" in (found.folder / "model" / "README.md").read_text("utf-8")
