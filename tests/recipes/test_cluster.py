"""The same answers, vectors and stores from a Ray cluster, also where a process of it is killed."""

from __future__ import annotations

import filecmp
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes import embed, prepare
from bertsmith.recipes.cluster import Cluster, Job
from bertsmith.recipes.predict import recipe
from bertsmith.store import preparing
from bertsmith.tasks import opening
from bertsmith.weights.folder import save_model
from families import TOKENIZERS

Dying = Callable[[object, str], None]


@pytest.mark.parametrize("address", ["", "host", "auto:", "http://host:1", "a b:1"])
def test_what_is_no_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "model", "texts.txt", f"--ray={address}"]) == 2
    assert "it can be auto, local, or host:port" in capsys.readouterr().err


def test_processes_are_of_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prepare", "books", "--vocab", "vocab", "--out", "store"]
    assert main([*command, "--ray", "auto", "--workers", "2"]) == 2
    assert "--workers is for this machine" in capsys.readouterr().err


def test_what_fits_on_no_machine_is_refused_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores = [4, 2, 4, 0]
    nodes = [
        *({"Alive": True, "Resources": {"CPU": float(each)} if each else {}} for each in cores),
        {"Alive": False, "Resources": {"CPU": 64.0}},
    ]
    fake = ModuleType("ray")
    vars(fake).update(
        nodes=lambda: nodes, put=lambda job: job, remote=lambda run: fake, options=lambda **_: fake,
        cluster_resources=lambda: {"CPU": float(sum(cores))},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", fake)
    # a process has all its threads on one machine
    assert [Cluster().processes(threads) for threads in (1, 2, 3, 4)] == [10, 5, 2, 2]
    Cluster().submit(Job(open=str, argument=1, work=divmod, threads=4))
    with pytest.raises(ConfigError, match=r"--threads is 5, and the largest .* has 4 cores"):
        Cluster().submit(Job(open=str, argument=1, work=divmod, threads=5))
    # machines of a cluster that grows by itself are yet to come
    nodes[:] = nodes[3:]
    Cluster().submit(Job(open=str, argument=1, work=divmod, threads=5))


def test_results_are_in_order_few_are_in_flight_and_a_job_is_opened_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two jobs at once, whose tasks a process ends in another order than they were given."""
    waiting: list[tuple[Any, ...]] = []
    done: dict[int, Any] = {}
    most = 0

    class Task:
        def __init__(self, run: Callable[..., Any]) -> None:
            self.run = run

        def options(self, **settings: object) -> Task:
            assert settings["num_cpus"] == 1
            return self

        def remote(self, *arguments: Any) -> int:  # noqa: ANN401
            nonlocal most
            waiting.append((len(waiting) + len(done), self.run, arguments))
            most = max(most, len(waiting))
            return len(waiting) + len(done) - 1

    def get(reference: Any) -> Any:  # noqa: ANN401
        if isinstance(reference, Job):
            return reference
        while reference not in done:
            number, run, arguments = waiting.pop()
            done[number] = run(*arguments)
        return done[reference]

    opened: list[str] = []

    def open_one(argument: str) -> str:
        opened.append(argument)
        return argument

    def work(state: str, item: int) -> tuple[str, int]:
        return state, item

    fake = ModuleType("ray")
    vars(fake).update(
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}],
        put=lambda job: job, remote=Task, get=get,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", fake)
    for name in ("one", "other"):
        job = Job(open=open_one, argument=name, work=work)
        assert list(Cluster().in_order(job, range(23))) == [(name, item) for item in range(23)]
    assert opened == ["one", "other"]
    assert 2 < most <= 7


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Ray with two processes of this machine."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # the processes cannot import the tests
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models, texts and a corpus, taken in small windows."""
    tokenizer = TOKENIZERS["bert"]
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=32, layers=2, heads=2, feed_forward=37, longest=24
    )
    config = ModelConfig(encoder=encoder, predicts="class", labels=("ham", "spam"))
    save_model(tmp_path / "model", build_model(config, seed=2), tokenizer)
    random = np.random.default_rng(1)
    lines = [
        " ".join(f"word{n}" for n in random.integers(1, 90, size))
        for size in random.integers(0, 30, 90)
    ]
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "corpus").mkdir()
    for number in range(9):
        text = "\n\n".join(lines[number * 9 : number * 9 + 12])
        (tmp_path / "corpus" / f"{number}.txt").write_text(f"{text}\n", encoding="utf-8")
    monkeypatch.setattr(recipe, "ROWS", 8)
    monkeypatch.setattr(opening, "ROWS", 8)
    monkeypatch.setattr(preparing, "GROUP_BYTES", 900)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dying:
    """Let a module's function kill the process that runs it, once, at its third item."""

    def replaced(module: object, name: str) -> None:
        work = partial(killed_once, tmp_path / "calls", getattr(module, name))
        monkeypatch.setattr(module, name, work)

    (tmp_path / "calls").mkdir()
    return replaced


def killed_once(calls: Path, work: Callable[[Any, Any], Any], state: Any, item: Any) -> Any:  # noqa: ANN401
    (calls / f"{len(list(calls.iterdir()))}-{os.getpid()}").touch()
    result = work(state, item)
    if len(list(calls.iterdir())) >= 3 and not (calls / "killed").exists():
        (calls / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return result


@pytest.mark.faults
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_answers_are_the_same(
    cluster: Any,  # noqa: ANN401
    inputs: Path,
    dying: Dying,
    capsys: pytest.CaptureFixture[str],
    form: str,
    killed: bool,
) -> None:
    command = ["predict", "model", "texts.txt", "--threads", "1", "--format", form]
    assert main(command) == 0
    alone = capsys.readouterr()
    if killed:
        dying(recipe, "answer_window")
    assert main([*command, "--ray", "auto"]) == 0
    spread = capsys.readouterr()
    assert spread.out == alone.out
    assert "cluster: 2 processes of 1 thread" in spread.err
    assert (inputs / "calls" / "killed").exists() == killed


@pytest.mark.faults
@pytest.mark.parametrize("killed", [False, True])
def test_vectors_are_the_same(
    cluster: Any,  # noqa: ANN401
    inputs: Path,
    dying: Dying,
    killed: bool,
) -> None:
    command = ["embed", "model", "texts.txt", "--threads", "1", "--out"]
    assert main([*command, "alone.npy"]) == 0
    assert main([*command, "alone-tokens.npy", "--pool", "token"]) == 0
    if killed:
        dying(embed, "features_of")
    assert main([*command, "spread.npy", "--ray", "auto"]) == 0
    assert main([*command, "spread-tokens.npy", "--pool", "token", "--ray", "auto"]) == 0
    names = [path.name for path in inputs.glob("alone*.npy")]
    assert len(names) == 4
    for name in names:
        assert filecmp.cmp(name, name.replace("alone", "spread"), shallow=False), name
    assert (inputs / "calls" / "killed").exists() == killed


@pytest.mark.faults
@pytest.mark.parametrize("killed", [False, True])
def test_a_store_is_the_same(
    cluster: Any,  # noqa: ANN401
    inputs: Path,
    dying: Dying,
    killed: bool,
) -> None:
    command = ["prepare", "corpus", "--vocab", "model", "--held-out", "0.2", "--out"]
    assert main([*command, "alone", "--workers", "1"]) == 0
    if killed:
        dying(prepare, "encode_group")
    assert main([*command, "spread", "--ray", "auto"]) == 0
    files = [path.relative_to("alone") for path in Path("alone").rglob("*") if path.is_file()]
    others = [path.relative_to("spread") for path in Path("spread").rglob("*") if path.is_file()]
    assert sorted(files) == sorted(others)
    assert len(files) > 8
    for path in files:
        assert filecmp.cmp("alone" / path, "spread" / path, shallow=False), path
    assert (inputs / "calls" / "killed").exists() == killed


def refusing(state: None, item: int) -> int:
    del state
    if item == 3:
        raise ExampleError("is a three", where="numbers.txt", line=item, remedy="leave it out")
    return item * item


def nothing(given: None) -> None:
    return given


@pytest.mark.faults
def test_a_mistake_is_told_as_without_a_cluster(cluster: Any) -> None:  # noqa: ANN401
    found = Cluster().in_order(Job(open=nothing, argument=None, work=refusing), range(9))
    assert [next(found) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(ExampleError, match=r"^numbers\.txt:3: is a three; leave it out$"):
        next(found)


@pytest.mark.faults
def test_a_cluster_that_does_not_answer_is_told_in_a_line(
    inputs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        ray.shutdown()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address in ("auto", "127.0.0.1:1"):
        assert main(["embed", "model", "texts.txt", "--out", "out.npy", "--ray", address]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert f"--ray {address}: no cluster answers" in line
    assert not (inputs / "out.npy").exists()
