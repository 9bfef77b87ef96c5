"""kill -9 at any moment: the resumed run is the run that was never killed, bit for bit."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertsmith.training.checkpoints import Checkpoints
from bertsmith.training.run_folder import RunFolder
from faults.lives import Run, Trainee, trainee

STEPS = 36
KILLED = -9
# what can be met, and how often it is in the time of two checkpoints or so
MOMENTS = {
    "batch": 30,  # accumulating
    "write": 60,  # a file of a checkpoint is half written
    "fsync": 24,
    "os.mkdir": 3,  # a checkpoint begins
    "os.rename": 6,  # it gets its name, or loses it before it is pruned
    "os.remove": 8,  # pruning
    "os.rmdir": 2,
    "measure": 6,
    "log": 8,
    "os.truncate": 1,  # resuming
}
# one of each, near enough to each other for a short run
ONE_OF_EACH = (
    ("measure", 1), ("batch", 3), ("write", 30), ("fsync", 5), ("os.rename", 1), ("os.rename", 2),
    ("os.remove", 2), ("os.rmdir", 1), ("log", 2), ("os.truncate", 1), ("os.mkdir", 1),
)  # fmt: skip


@pytest.fixture(scope="module")
def alive(shared: dict[str, str]) -> Iterator[Trainee]:
    with trainee(Path(shared["store"])) as process:
        yield process


@pytest.fixture(scope="module")
def whole(alive: Trainee, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was never killed."""
    run = Run(tmp_path_factory.mktemp("whole") / "run", STEPS)
    assert alive.live(run).status == 0
    return run


def check_same(run: Run, whole: Run) -> None:
    assert run.log() == whole.log()  # every figure, not one line too many
    assert run.hashes() == whole.hashes()
    assert run.shown() == whole.shown()
    assert [path.name for path in run.checkpoints] == [path.name for path in whole.checkpoints]
    assert not list(run.folder.glob("checkpoints/.*"))
    run.check_losses()


def check_whole(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever has a checkpoint's name is one."""
    for newest in range(len(run.checkpoints)):
        identity = RunFolder(run.folder).identity
        checkpoints = Checkpoints(run.folder / "checkpoints", run=identity)
        checkpoints._step_folders = lambda n=newest: run.checkpoints[: n + 1]  # type: ignore[method-assign,misc]
        checkpoints.load()
    assert "; skipped" not in capsys.readouterr().err


def test_a_whole_run_shows_every_sequence_in_its_turn(whole: Run) -> None:
    assert len(whole.shown()) == 2 * STEPS
    assert len(set(whole.shown())) == 2 * STEPS
    assert whole.log().count('"rate"') == STEPS // 3
    assert whole.log().count("held_out_masked_lm_loss") == 4


def test_killed_once_at_each_kind_of_moment(
    alive: Trainee, whole: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "run", STEPS)
    assert {moment for moment, _ in ONE_OF_EACH} == MOMENTS.keys()
    for moment, number in ONE_OF_EACH:
        ended = alive.live(run, moment=moment, number=number)
        assert (ended.status, ended.alone) == (KILLED, True), moment
        check_whole(run, capsys)
    assert alive.live(run).status == 0
    check_same(run, whole)


def test_killed_with_processes_that_draw(alive: Trainee, whole: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", STEPS)
    ended = alive.live(run, workers=2, moment="batch", number=50)
    assert (ended.status, ended.alone) == (KILLED, True)
    assert alive.live(run).status == 0
    check_same(run, whole)


@pytest.mark.faults
@pytest.mark.parametrize("workers", [0, 1, 4])
def test_fifty_kills(
    alive: Trainee,
    whole: Run,
    tmp_path: Path,
    workers: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(workers)
    kills = number = 0
    met = dict.fromkeys([*MOMENTS, "time"], 0)
    while kills < 50 or min(met.values()) < 2:
        number += 1
        run = Run(tmp_path / f"run-{number}", STEPS)
        status = KILLED
        while status == KILLED:
            kind = min(met, key=lambda name: (met[name], chance.random()))
            life: dict[str, object]
            if kind == "time":
                life = {"after": chance.uniform(0, 3 + 2 * workers)}
            else:
                life = {"moment": kind, "number": chance.randint(1, MOMENTS[kind])}
            ended = alive.live(run, workers=workers, **life)
            assert ended.alone
            status = ended.status
            kills += status == KILLED
            met[kind] += status == KILLED
            check_whole(run, capsys)
        assert status == 0
        check_same(run, whole)
    with capsys.disabled():
        print(f"\n{workers} workers, {kills} kills over {number} runs: {met}")


@pytest.mark.faults
def test_killed_while_it_changes_between_threads_and_replicas(
    alive: Trainee, tmp_path: Path
) -> None:
    """Every step is computed as the folder says, whatever was computed and lost before."""
    chance = random.Random(0)
    kills = runs = 0
    while kills < 15:
        runs += 1
        run, status = Run(tmp_path / f"run-{runs}", STEPS), KILLED
        while status == KILLED:
            # of those that every life meets
            moment = chance.choice(["batch", "write", "fsync", "log", "measure"])
            number = chance.randint(1, MOMENTS[moment])
            ended = alive.live(run, changes="chance", moment=moment, number=number)
            assert ended.alone
            status = ended.status
            kills += status == KILLED
        assert status == 0
        check_recorded(run, alive, Run(tmp_path / f"again-{runs}", STEPS))


def check_recorded(run: Run, alive: Trainee, again: Run) -> None:
    """Check that a run that follows the changes of another has its weights."""
    changes = RunFolder(run.folder).parallelism_changes()
    steps = [step for step, _ in changes]
    assert len(steps) >= 3
    assert steps == sorted(set(steps))
    shutil.copytree(run.folder, again.folder)
    shutil.rmtree(again.folder / "checkpoints")
    (again.folder / "log.jsonl").unlink()
    assert alive.live(again, changes="none").status == 0
    assert RunFolder(again.folder).parallelism_changes() == changes
    names = ("weights.safetensors", "optimiser.safetensors")
    assert [again.hashes()[name] for name in names] == [run.hashes()[name] for name in names]
