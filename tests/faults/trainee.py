"""A process that trains a small model as often as it is told to, and dies where it is told to.

Standard input holds one life a line, as JSON; each is led by a process of its own, forked after
everything has been imported, and its end is told on standard output. Time is made up: a step takes
a second. What the model is shown goes to a file, as does where each life began.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # torch's optimisers import it late: once here is better than in every life

from bertsmith.batches.config import Phase, SampleConfig
from bertsmith.batches.pretraining import PhasedBatches
from bertsmith.core import files
from bertsmith.core.clock import Clock
from bertsmith.core.errors import UserError
from bertsmith.core.signals import Interrupted
from bertsmith.engine.devices import training_precision
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Losses
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.pretrain import report
from bertsmith.store.store import TokenStore
from bertsmith.training import checkpoints, local, loop, parallelism, state
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig, Parallelism
from bertsmith.training.peak import Peak
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Timing
from faults.own_server import fork_own_server

INTERVAL = 5
"""Steps between two checkpoints."""

AUDITED = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
"""What Python itself tells of, under these names."""


def trap(moment: str, number: int, violence: int) -> Callable[[str], None]:
    """Something to call with the name of each moment: it sends a signal at one of them.

    That is to this process alone if it ends at once by it, else to all of its group.
    """
    left = [number or -1]

    def passing(name: str) -> None:
        left[0] -= name == moment
        if left[0] == 0:
            left[0] = -1
            if violence != signal.SIGKILL:
                os.killpg(0, violence)
                return
            os.kill(os.getpid(), violence)
            signal.pause()  # the signal may reach another thread first

    return passing


def set_traps(passing: Callable[[str], None]) -> None:
    """Have the moments of saving, pruning and logging told to `passing`, before they happen."""
    fsync, write = os.fsync, files.write_all

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in AUDITED:
            passing(event)
        elif event == "open" and str(arguments[0]).endswith("log.jsonl"):
            passing("log")

    def flushing(handle: int) -> None:
        passing("fsync")
        fsync(handle)

    def write_all(file: FileIO, data: bytes | memoryview) -> None:
        passing("write")
        write(file, data)

    sys.addaudithook(audit)
    setattr(os, "fsync", flushing)  # noqa: B010
    setattr(files, "write_all", write_all)  # noqa: B010
    files._BLOCK = 5000


class MadeUpTime:
    """A clock that goes on by a second a step, on any machine and in any sitting."""

    def __init__(self, batches_a_step: int) -> None:
        self._a_batch = 1 / batches_a_step
        self.now = 0.0

    def pass_batch(self) -> None:
        """Let the time of a batch go by."""
        self.now += self._a_batch


def make_up_peak() -> None:
    """Let every machine have the same peak."""
    peak = Peak(flops=1e12, occasions=1, measured=0.0)
    setattr(loop, "matrix_peak", lambda *_, **__: peak)  # noqa: B010


def change_often(by: str) -> None:
    """Have a life try its alternative after every step, and adopt it by chance; or never try it.

    Replicas are computed by this process alone, as several would.
    """
    chance, tried = random.Random(os.getpid()), parallelism.GradientComputer._try

    def tried_by_chance(*given: Any) -> float:  # noqa: ANN401
        tried(*given)
        return chance.choice([0.0, 0.0, math.inf])

    share = math.inf if by == "chance" else 0.0
    names = dict.fromkeys(("TRIAL_SHARE", "_UNCHANGED_SHARE"), share) | {"_RECENT": 1}
    for name, value in names.items():
        setattr(parallelism, name, value)
    setattr(parallelism.GradientComputer, "_try", tried_by_chance)  # noqa: B010
    setattr(local, "usable_processors", lambda: 1)  # noqa: B010


class Diary:
    """What a life came to, in a file: where it began, what the model was shown, what was saved."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.step = 0

    def write(self, **line: object) -> None:
        os.write(self._file, f"{json.dumps(line)}\n".encode())

    def keep(self) -> None:
        """Have everything that is to be told written down from now on."""
        resume, save = state.TrainState.resume, state.Saver.save

        def resumed(now: state.TrainState, *arguments: Any) -> None:  # noqa: ANN401
            resume(now, *arguments)
            self.write(began=now.state.step)

        def saved(saver: state.Saver, checkpoint: checkpoints.Checkpoint) -> None:
            # it begins when the one before is on the disk, for which a busy machine may wait long
            saver.wait()
            self.write(saving=checkpoint.state.step)
            save(saver, checkpoint)

        setattr(state.TrainState, "resume", resumed)  # noqa: B010
        setattr(state.Saver, "save", saved)  # noqa: B010

    def shown(self, batch: Batch) -> None:
        digest = hashlib.sha1(batch.ids.numpy().tobytes()).hexdigest()
        self.write(shown=digest, tokens=batch.tokens)


def live(life: dict[str, Any]) -> None:
    """Train until the end, or a violent one."""
    passing = trap(
        life.get("moment", ""), life.get("number", 0), life.get("signal", signal.SIGKILL)
    )
    diary = Diary(Path(life["diary"]))
    set_traps(passing)
    make_up_peak()
    if "changes" in life:
        change_often(life["changes"])
    time_passing = MadeUpTime(batches_a_step=2)
    diary.keep()
    torch.manual_seed(os.getpid())
    store = TokenStore(Path(life["store"]))
    tokenizer = store.tokenizer()
    samples = SampleConfig(max_length=41, tokens_per_batch=300)
    batches = PhasedBatches(store, tokenizer, samples, [Phase(share=0.5, max_length=24)], seed=3)
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=28, layers=2, heads=7, feed_forward=37, longest=41
    )
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True), seed=5)
    precision = training_precision("auto", model.device)
    config = FitConfig(
        budget=Budget(steps=life["steps"]),
        optimiser=OptimiserConfig(learning_rate=2e-3, matrices="muon"),
        gradient_accumulation=2,
        log_every=3,
        seed=9,
        precision=precision,
        spike=10.0,
        checkpoint_minutes=(INTERVAL - 0.5) / 60,
        measurements=4,
        alternative=Parallelism(threads=1, replicas=3) if "changes" in life else None,
        workers=life.get("workers", 0),
    )

    def objective(model: Model, batch: Batch) -> Losses:
        passing("batch" if model.training else "measure")
        if model.training:
            diary.shown(batch)
            time_passing.pass_batch()
        return PRETRAINING(model, batch)

    held_out = report.held_out_batches(tokenizer, store, samples)
    measure = report.measure_held_out(objective, held_out, precision)
    assert measure is not None
    folder = RunFolder(Path(life["run"]))
    with folder.owned():
        folder.claim("pretrain", config.budget)
        loop.fit(
            config, model, objective, batches,
            enter=batches.enter, measure=measure, folder=folder,
            session=loop.Session(timing=Timing(clock=Clock(now=lambda: time_passing.now))),
        )  # fmt: skip


def lives() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def end_of(life: dict[str, Any]) -> int:
    """Lead a life; returns the status that the process has to end with."""
    os.setpgid(0, 0)
    try:
        if life.get("workers"):
            with tempfile.TemporaryDirectory() as folder:
                end = fork_own_server(Path(folder))
                try:
                    live(life)
                finally:
                    end()
        else:
            live(life)
    except Interrupted as stopped:
        print(stopped, file=sys.stderr)
        return 130
    except UserError as error:
        print(f"bertsmith: {error}", file=sys.stderr)
        return 2
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def alone(group: int) -> bool:
    """Whether nobody is left of a group of processes after a while."""
    for _ in range(6000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def main() -> None:
    torch.set_num_threads(1)
    for life in lives():
        child = os.fork()
        if child == 0:
            status = end_of(life)
            sys.stderr.flush()
            os._exit(status)
        if "after" in life:
            time.sleep(life["after"])  # a moment that nothing in the process decides
            os.kill(child, signal.SIGKILL)
        _, ended = os.waitpid(child, 0)
        told = {"status": os.waitstatus_to_exitcode(ended), "alone": alone(child)}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
