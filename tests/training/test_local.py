"""Replicas in processes of one machine: one gradient, whoever computes which part."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch

import forking
from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig, Text
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import WorkerDied
from bertsmith.core.signals import Interrupted
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.dropout import random_words
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Loss, Losses, Objective
from bertsmith.objectives.pretraining import MaskedLM, NextSentence
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training import local, loop
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Budget, FitConfig
from bertsmith.training.loading import BatchSource
from bertsmith.training.local import DropoutKey, _PartComputer, local_replicas
from bertsmith.training.loop import Session, fit
from bertsmith.training.peak import Peak
from bertsmith.training.run_folder import RunFolder
from bounds import close_after_training
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

OBJECTIVE = Objective({"masked_lm": MaskedLM(), "next_sentence": NextSentence()})
CONFIG = FitConfig(budget=Budget(steps=6), log_every=1, precision="fp32", replicas=2)
SAVING = replace(CONFIG, checkpoint_minutes=1e-9)


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local") / "store"
    prepare_store(invented_documents(30), tokenizer, folder, held_out=0.0)
    return folder


def batches_of(store: Path, tokenizer: Tokenizer, text: Text) -> PretrainingBatches:
    config = SampleConfig(max_length=24, tokens_per_batch=260, text=text)
    return PretrainingBatches(TokenStore(store), tokenizer, config, seed=3)


@pytest.fixture(scope="module")
def batches(store: Path, tokenizer: Tokenizer) -> PretrainingBatches:
    return batches_of(store, tokenizer, "next_sentence")


def model_of(batches: PretrainingBatches) -> Model:
    encoder = EncoderConfig(
        vocabulary=batches.store.tokenizer().size,
        hidden=14, layers=2, heads=2, feed_forward=19, longest=24,
    )  # fmt: skip
    return build_model(ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True), seed=5)


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def have(number: int) -> None:
        # there alone: the speed of a machine with so many would be measured anew
        monkeypatch.setattr(local, "usable_processors", lambda: number)

    return have


def trained(
    batches: BatchSource,
    config: FitConfig,
    source: PretrainingBatches,
    folder: Path | None = None,
    session: Session | None = None,
) -> tuple[State, dict[str, torch.Tensor], list[dict[str, Any]]]:
    model = model_of(source)
    if folder is not None:
        folder.mkdir(exist_ok=True)
    run = None if folder is None else RunFolder(folder)
    state = fit(config, model, OBJECTIVE, batches, folder=run, session=session or Session())
    return state, model.state_dict(), [] if run is None else list(run.log())


@pytest.mark.parametrize("text", ["next_sentence", "within_documents"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 40])
def test_parts_are_the_batch(store: Path, tokenizer: Tokenizer, text: Text, count: int) -> None:
    whole, _ = batches_of(store, tokenizer, text).next_batch(DataPosition())
    parts = whole.parts(count)
    assert len(parts) == min(count, whole.sequences)
    assert torch.equal(torch.cat([part.ids for part in parts]), whole.ids)
    assert torch.equal(torch.cat([part.segments for part in parts]), whole.segments)
    assert torch.equal(torch.cat([part.positions for part in parts]), whole.positions)
    assert sum((part.lengths for part in parts), ()) == whole.lengths
    for part in parts:
        assert part.offsets.tolist() == [0, *torch.tensor(part.lengths).cumsum(0).tolist()]
        # no part is more than a sequence off
        assert abs(part.tokens - whole.tokens / len(parts)) <= 24 or count == 40
    for name, target in whole.targets.items():
        of_parts = [part.targets[name] for part in parts]
        assert torch.equal(torch.cat([of_part.labels for of_part in of_parts]), target.labels)
        begins = [0, *torch.tensor([part.tokens for part in parts]).cumsum(0).tolist()]
        found = [
            (part.starts[of_part.positions] if of_part.by_sequence else of_part.positions) + begin
            for part, of_part, begin in zip(parts, of_parts, begins, strict=False)
        ]
        read = whole.starts[target.positions] if name == "next_sentence" else target.positions
        assert torch.equal(torch.cat(found), read)


def test_seeding_dropout_leaves_the_generator_of_torch_alone() -> None:
    """Of the same seed it has the numbers that it had, by which earlier runs are resumed."""
    key = DropoutKey(3, 5, 7)
    torch.manual_seed(int(stream(Purpose.DROPOUT, *key)))
    expected = random_words(11)
    torch.manual_seed(8)
    state = torch.get_rng_state()
    with key.seeded():
        assert torch.equal(random_words(11), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_that_train_draw_what_they_draw_alone() -> None:
    """All shared one generator, and a run depended on what trained beside it."""
    together = Barrier(2)

    def drawn(number: int) -> list[int]:
        with DropoutKey(3, 5, number).seeded():
            together.wait(20)
            words = random_words(11).tolist()
            together.wait(20)
            return words + random_words(11).tolist()

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(drawn, range(2)))
    for number, words in enumerate(found):
        with DropoutKey(3, 5, number).seeded():
            assert words == random_words(11).tolist() + random_words(11).tolist()


def test_a_machine_may_have_more_cores_than_a_byte_counts_parts(
    batches: PretrainingBatches,
) -> None:
    model, sequences = model_of(batches), 260
    ids = [np.array([2, 3])] * sequences
    batch = pack(ids, [np.zeros(2, np.int64)] * sequences)

    def length_of_biases(model: Model, part: Batch) -> Losses:
        length = (model.get_parameter("pooler.dense.bias") + 1).square().sum()
        return Losses(parts={"a": Loss(sum=length, count=part.sequences, correct=torch.tensor(0))})

    with local_replicas(model, length_of_biases, "fp32", parts=sequences, processes=1) as replicas:
        found = replicas.add_gradient(batch, {"a": sequences}, DropoutKey(0, 0, 0))
    assert [losses.parts["a"].count for _, losses in found] == [1] * sequences
    gradient = model.get_parameter("pooler.dense.bias").grad
    torch.testing.assert_close(gradient, torch.full((14,), 2.0))


def test_a_pipe_of_one_page_is_enough_for_the_slices_of_a_large_model(
    batches: PretrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux gives no more to a user who has thousands of pipes."""
    model, opened = model_of(batches), os.pipe2
    count = sum(parameter.numel() for parameter in model.parameters())
    # as many slices as BERT-large has
    monkeypatch.setattr(local, "_SLICE", count // 10_000)

    def small_pipe(flags: int) -> tuple[int, int]:
        ends = opened(flags)
        assert fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, mmap.PAGESIZE) == mmap.PAGESIZE
        return ends

    monkeypatch.setattr(os, "pipe2", small_pipe)
    name = "encoder.embeddings.tokens.weight"

    def loss(model: Model, part: Batch) -> Losses:
        total = 3 * model.get_parameter(name).sum()
        return Losses(parts={"a": Loss(sum=total, count=1, correct=torch.tensor(0))})

    batch = pack([np.array([2, 3])] * 2, [np.zeros(2, np.int64)] * 2)
    with local_replicas(model, loss, "fp32", parts=2, processes=1) as replicas:
        replicas.add_gradient(batch, {"a": 2}, DropoutKey(0, 0, 0))
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        assert torch.equal(gradient, torch.full_like(gradient, 3.0))


def test_parameters_that_some_parts_do_not_use_have_the_gradient_of_the_others(
    batches: PretrainingBatches,
) -> None:
    """Over steps of two batches, in which other parts use a parameter, or none does."""
    model, name, never = model_of(batches), "pooler.dense.bias", "pooler.dense.weight"
    used: list[int] = []

    def loss(model: Model, part: Batch) -> Losses:
        first = int(part.ids[0])
        total = first * model.get_parameter("encoder.embeddings.tokens.weight")[first].sum()
        if first in used:
            total = total + first * model.get_parameter(name).sum()
        return Losses(parts={"a": Loss(sum=total, count=1, correct=torch.tensor(0))})

    def batch(*ids: int) -> Batch:
        return pack([np.array([each]) for each in ids], [np.zeros(1, np.int64)] * len(ids))

    steps: list[tuple[list[int], list[tuple[int, ...]], int | None]] = [
        ([5, 7], [(5, 6), (7, 8)], 12),
        ([8], [(5, 6), (7, 8)], 8),
        ([], [(5, 6), (7, 8)], None),
        ([6, 8], [(6, 8), (8, 5)], 22),
        # of fewer sequences than parts: what the last batch left in the memory of others is no part
        ([5, 6], [(7, 5), (6,)], 11),
    ]
    with local_replicas(model, loss, "fp32", parts=2, processes=1) as replicas:
        for chosen, of_step, expected in steps:
            used[:] = chosen
            for number, ids in enumerate(of_step):
                replicas.add_gradient(batch(*ids), {"a": 1}, DropoutKey(0, 0, number))
            gradient = model.get_parameter(name).grad
            if expected is None:
                assert gradient is None
            else:
                assert gradient is not None
                assert torch.equal(gradient, torch.full((14,), float(expected)))
            assert model.get_parameter(never).grad is None
            tokens = model.get_parameter("encoder.embeddings.tokens.weight").grad
            assert tokens is not None
            rows = torch.tensor(
                [sum(i for pair in of_step for i in pair if i == row) for row in range(len(tokens))]
            )
            assert torch.equal(tokens[:, 0], rows.float())
            model.zero_grad(set_to_none=True)


def test_losses_are_in_the_order_of_the_parts_whichever_is_computed_first(
    batches: PretrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last bits of what is logged would depend on which process was faster."""

    def backwards(entry: int, count: int) -> None:
        os.write(entry, b"".join(n.to_bytes(2, "little") for n in reversed(range(count))))

    def loss(model: Model, part: Batch) -> Losses:
        first = int(part.ids[0])
        total = first * model.get_parameter("pooler.dense.bias").add(1).mean()
        return Losses(parts={"a": Loss(sum=total, count=first, correct=torch.tensor(0))})

    monkeypatch.setattr(local, "_enqueue_parts", backwards)
    batch = pack([np.array([each]) for each in (5, 9, 7)], [np.zeros(1, np.int64)] * 3)
    with local_replicas(model_of(batches), loss, "fp32", parts=3, processes=1) as replicas:
        found = replicas.add_gradient(batch, {"a": 1}, DropoutKey(0, 0, 0))
    assert [losses.parts["a"].count for _, losses in found] == [5, 9, 7]
    assert [float(total) for total, _ in found] == [5, 9, 7]


def test_every_part_of_every_batch_has_dropout_of_its_own(batches: PretrainingBatches) -> None:
    model, drawn = model_of(batches), list[tuple[int, ...]]()
    batch, _ = batches.next_batch(DataPosition())

    def drawing(model: Model, part: Batch) -> Losses:
        drawn.append(tuple(random_words(3).tolist()))
        total = model.get_parameter("pooler.dense.bias").sum()
        return Losses(parts={"a": Loss(sum=total, count=1, correct=torch.tensor(0))})

    with local_replicas(model, drawing, "fp32", parts=3, processes=1) as replicas:
        for number in range(2):
            replicas.add_gradient(batch, {"a": 1}, DropoutKey(3, 5, number))
    assert len({*drawn}) == len(drawn) == 6


def test_gradients_are_those_of_the_whole_batch(batches: PretrainingBatches) -> None:
    """Without dropout, whole batches by one process and parts by two learn the same."""
    still = replace(CONFIG, replicas=1)

    def without_dropout(config: FitConfig) -> tuple[State, dict[str, torch.Tensor]]:
        model = model_of(batches)
        model.set_dropout(0.0)
        return fit(config, model, OBJECTIVE, batches), model.state_dict()

    (alone, one), (shared, two) = without_dropout(still), without_dropout(CONFIG)
    assert (alone.step, alone.tokens) == (shared.step, shared.tokens)
    for name, weight in one.items():
        close_after_training(two[name], weight, name)


def test_the_number_of_processes_changes_no_bit(
    batches: PretrainingBatches, tmp_path: Path, cores: Callable[[int], None]
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = []
        for number in (1, 3):
            cores(number)
            # three, of which the last one is made with what the first two left in the optimiser
            budget = Budget(steps=3)
            config = replace(CONFIG, budget=budget, replicas=3, gradient_accumulation=2)
            found.append(trained(batches, config, batches, tmp_path / str(number)))
    finally:
        torch.set_num_threads(before)
    _, weights, log = found[0]
    for _, others, other_log in found[1:]:
        assert all(torch.equal(weights[name], others[name]) for name in weights)
        for line, other in zip(log, other_log, strict=True):
            assert line["gradient_norm"] == other["gradient_norm"]
            assert line["masked_lm_loss"] == other["masked_lm_loss"]
    # weights are the process's own again
    assert not any(weight.untyped_storage().nbytes() > 10**5 for weight in weights.values())


class Stopping:
    """Batches that stop the run by themselves, or kill a process that trains beside this one."""

    def __init__(self, batches: PretrainingBatches, at: int, action: Callable[[], None]) -> None:
        self._batches, self._left, self._action = batches, at, action

    def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        self._left -= 1
        if self._left == 0:
            self._action()
        return self._batches.next_batch(place)


def children() -> list[int]:
    # it stays, whichever test asks for it first
    forking.server()
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]


def test_a_run_goes_on_bit_for_bit_with_one_process_or_two(
    batches: PretrainingBatches, tmp_path: Path, cores: Callable[[int], None]
) -> None:
    before = set(children())
    _, whole, log = trained(batches, CONFIG, batches, tmp_path / "whole")
    stopping = Stopping(batches, 4, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted):
        trained(stopping, CONFIG, batches, tmp_path / "run")
    assert set(children()) == before
    cores(1)
    _, weights, after = trained(batches, CONFIG, batches, tmp_path / "run")
    assert all(torch.equal(whole[name], weights[name]) for name in whole)
    assert [line["gradient_norm"] for line in log] == [line["gradient_norm"] for line in after]


_DYING = """
import os, runpy, signal, sys
from pathlib import Path
from threading import Barrier
from bertsmith.store.store import TokenStore
here, store = runpy.run_path(sys.argv[1]), Path(sys.argv[2])
batches = here["batches_of"](store, TokenStore(store).tokenizer(), "next_sentence")
dying = here["Stopping"](batches, 5, lambda: os.kill(os.getpid(), signal.SIGKILL))
here["trained"](dying, here["SAVING"], batches, Path(sys.argv[3]))
"""


def test_a_killed_run_goes_on_bit_for_bit_with_one_process(
    store: Path, batches: PretrainingBatches, tmp_path: Path, cores: Callable[[int], None]
) -> None:
    _, whole, log = trained(batches, SAVING, batches, tmp_path / "whole")
    before, run = set(children()), tmp_path / "run"
    command = [sys.executable, "-c", _DYING, __file__, str(store), str(run)]
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH", "")]))
    died = forking.run(command, env=os.environ | {"PYTHONPATH": path, forking.FORK_WORKERS: "1"})
    assert died.returncode == -signal.SIGKILL, died.stderr
    cores(1)
    _, weights, after = trained(batches, SAVING, batches, run)
    assert all(torch.equal(whole[name], weights[name]) for name in whole)
    # what was made after the last checkpoint is made and logged again
    assert {line["step"]: line["gradient_norm"] for line in after} == {
        line["step"]: line["gradient_norm"] for line in log
    }
    assert set(children()) == before


def killing(batches: PretrainingBatches, *drawn: int) -> Any:  # noqa: ANN401
    """Return batches that kill the process that trains beside this one when some are drawn."""
    before = set(children())

    def kill() -> None:
        (pid,) = set(children()) - before
        os.kill(pid, signal.SIGKILL)

    source: Any = batches
    for at in drawn:
        source = Stopping(source, at, kill)
    return source


def test_another_process_takes_the_place_of_one_that_was_killed_and_no_bit_changes(
    batches: PretrainingBatches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(children())
    _, whole, log = trained(batches, CONFIG, batches, tmp_path / "whole")
    capsys.readouterr()
    _, weights, after = trained(killing(batches, 3), CONFIG, batches, tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert "a process that trains has died (status -9), perhaps out of memory; another" in said
    assert all(torch.equal(whole[name], weights[name]) for name in whole)
    assert [line["gradient_norm"] for line in log] == [line["gradient_norm"] for line in after]
    assert set(children()) == before


def test_processes_that_are_killed_one_after_the_other_end_the_run_in_a_line(
    batches: PretrainingBatches, tmp_path: Path
) -> None:
    before = set(children())
    with pytest.raises(WorkerDied, match=r"a process that trains has died \(status -9\)"):
        trained(killing(batches, 3, 5), CONFIG, batches, tmp_path / "run")
    assert set(children()) == before


@pytest.mark.parametrize("number", [1, 2])
def test_utilisation_is_a_share_of_what_all_processes_could_do(
    batches: PretrainingBatches, cores: Callable[[int], None], monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:  # fmt: skip
    measured: list[int] = []

    def machine(*_: object, processes: int = 1, **__: object) -> Peak:
        measured.append(processes)
        return Peak(flops=1e18, occasions=1, measured=0.0)

    cores(number)
    monkeypatch.setattr(loop, "matrix_peak", machine)
    trained(batches, replace(CONFIG, budget=Budget(steps=1)), batches)
    assert measured == [number]


def test_no_part_is_left_where_nobody_hands_them_out() -> None:
    """The process that did was killed: the end of the pipe is no part 0, again and again."""
    queue, entry = os.pipe2(os.O_NONBLOCK)
    parts = _PartComputer.__new__(_PartComputer)
    parts._queue = queue
    os.write(entry, b"\x05\x01")
    os.close(entry)
    assert list(iter(parts._next, None)) == [0x105]
    os.close(queue)
