"""The command, really started: the client of OpenAI, the end, mistakes of the command line."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest

pytest.importorskip("granian")
# at the top: within a test, CPython 3.11 may fail to compile it ("recursion depth mismatch")
pytest.importorskip("bertsmith.serving.models.served")

import forking
from bertsmith import load
from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError
from bertsmith.network.model import build_model
from bertsmith.serving.config import LimitsConfig, ServeConfig
from bertsmith.serving.http.http_server import BACKLOG, HttpServer
from bertsmith.serving.http.limits import Receive, Scope, Send
from bertsmith.serving.processes import LONG_SLICE, MIDDLE_SLICE, SHORT_SLICE
from bertsmith.serving.server import listening, with_room
from bertsmith.weights.folder import save_model
from bounds import close_unit_vectors
from families import MODELS, TOKENIZERS
from serving_process import SOURCE, Started, slice_of, started

# seconds after which an answer never comes, on a busy machine too
PATIENCE = 300


THREADS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

from bertsmith.serving.models.fork_server import alone

for _ in range(200):
    with ThreadPoolExecutor(1) as beside:
        beside.submit(int).result()
    assert alone()
Thread(target=Event().wait, daemon=True).start()
assert not alone(0.0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="models are shared by forks on Linux alone")
def test_a_thread_that_is_ending_keeps_no_memory_from_being_shared() -> None:
    """Workers opened the models themselves where one that reads a tokenizer still existed."""
    done = forking.run([sys.executable, "-c", THREADS])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    save_model(folder, build_model(MODELS["bert-masked_lm"], seed=7), TOKENIZERS["bert"])
    return folder


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Callable[[], Started]]:
    """A server for all tests; another one after the test that ends it, in whatever order."""
    options = ("--name", "mine", "--precision", "fp32", "--connections", "500")
    with ExitStack() as opened:
        found: list[Started] = []

        def alive() -> Started:
            if not found or found[-1].process.poll() is not None:
                begun = started(folder, *options, limits="ulimit -n 300")
                found.append(opened.enter_context(begun))
            return found[-1]

        yield alive


@pytest.fixture
def server(running: Callable[[], Started]) -> Started:
    return running()


def test_the_client_of_openai_gets_vectors(server: Started, folder: Path) -> None:
    openai = pytest.importorskip("openai")
    texts = ["word1 word2", "word3"]
    expected = load(folder, precision="fp32", threads=1, device="cpu").embed(texts, normalize=True)
    with openai.OpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0) as client:
        assert [item.id for item in client.models.list()] == ["mine"]
        assert client.models.retrieve("mine").id == "mine"
        # by itself it asks for base64
        handlers: tuple[dict[str, str], ...] = ({}, {"encoding_format": "float"})
        for how in handlers:
            found = client.embeddings.create(model="mine", input=texts, **how)
            close_unit_vectors(np.array([item.embedding for item in found.data]), expected)
        with pytest.raises(openai.BadRequestError, match="42 tokens, and the model reads 23"):
            client.embeddings.create(model="mine", input=" ".join(["word1"] * 40))
        with pytest.raises(openai.NotFoundError, match="there is no model"):
            client.embeddings.create(model="gpt", input="word1")


def test_fewer_connections_are_served_where_the_system_allows_fewer_files(server: Started) -> None:
    line = next(line for line in server.said if "connections" in line)
    found = re.match(r"--connections is 500; (\d+) will be served at once, since the system", line)
    assert found is not None
    told = httpx.get(f"{server.url}/info", timeout=PATIENCE).json()
    assert told["max_concurrent_requests"] == int(found[1])
    assert 200 < int(found[1]) < 300


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux' /proc")
def test_workers_are_forks_of_one_process_with_one_thread(server: Started) -> None:
    before = server.fork_server()
    text = Path(f"/proc/{before}/status").read_text()
    assert "\nThreads:\t1\n" in text
    workers = server.workers()
    assert workers
    for worker in workers:
        assert f"\nPPid:\t{before}\n" in Path(f"/proc/{worker}/status").read_text()


@pytest.mark.skipif(slice_of() is None, reason="this system knows no slices of threads")
@pytest.mark.skipif(os.getpriority(os.PRIO_PROCESS, 0) > 9, reason="workers cannot be nicer yet")
def test_who_answers_small_requests_has_short_slices(running: Callable[[], Started]) -> None:
    """So that the system interrupts the others for it at once: each of its threads."""
    server = running()

    def slices(number: int) -> Counter[float | None]:
        threads = Path(f"/proc/{number}/task").iterdir()
        return Counter(slice_of(int(each.name)) for each in threads)

    assert set(slices(server.process.pid)) == {SHORT_SLICE}
    forks = server.fork_server()
    assert forks is not None
    assert set(slices(forks)) == {LONG_SLICE}

    def wrong() -> list[tuple[int, Counter[float | None]]]:
        """Return niceness and slices of workers whose slices do not fit their niceness."""
        found = [(os.getpriority(os.PRIO_PROCESS, n), slices(n)) for n in server.workers()]
        least = min((niceness for niceness, _ in found), default=0)
        return [
            (niceness, own)
            for niceness, own in found
            # of small ones: who receives, encodes and computes; not who writes the log
            if (niceness > least and set(own) != {LONG_SLICE})
            or (niceness == least and (own[MIDDLE_SLICE] < 3 or own[LONG_SLICE] > 1))
        ]

    # who is ready has one worker, and the others are about to start
    for _ in range(2000):
        if server.workers() and not wrong():
            break
        time.sleep(0.01)
    assert server.workers()
    assert wrong() == []


OVERLOADED = """
import asyncio, os, platform, sys, time
from threading import Event, Thread
from types import SimpleNamespace

from bertsmith.serving import processes, server
from serving_process import slice_of

if sys.argv[1] == "forbidden":
    # a number that no call has
    processes._ATTRIBUTE_CALLS[platform.machine()] = (9999, 9999)
server._OVERLOAD_SECONDS = 0.01
processes.set_slice(processes.SHORT_SLICE)
expected = slice_of()
assert (expected == processes.SHORT_SLICE) == (sys.argv[1] == "allowed")
begun = Event()

def idle():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    begun.set()
    Event().wait()

for work in (idle, Event().wait):
    Thread(target=work, daemon=True).start()
begun.wait()

def policies():
    threads = map(int, os.listdir("/proc/self/task"))
    return {number: os.sched_getscheduler(number) for number in threads}

async def until(wanted, app, refused):
    end = time.monotonic() + 300
    while (found := policies()) != wanted:
        assert time.monotonic() < end, (found, wanted)
        app.overloaded += refused
        await asyncio.sleep(0.005)

async def main():
    before, app = policies(), SimpleNamespace(overloaded=0)
    own = [number for number, policy in before.items() if policy == os.SCHED_OTHER]
    assert (len(own), len(before)) == (2, 3)
    rests = []
    time.sleep = rests.append
    easing = asyncio.create_task(server._ease_overload(app))
    waiting = {number: policy or os.SCHED_BATCH for number, policy in before.items()}
    for wanted, refused in ((waiting, 50), (before, 0)):
        await until(wanted, app, refused)
        assert {slice_of(number) for number in own} == {expected}
    # requests that came meanwhile are looked at together, and soon
    number = len(rests)
    assert number and max(rests) < 0.01
    await asyncio.sleep(0.02)
    assert len(rests) == number
    easing.cancel()
    # chosen by whoever started the server
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    await asyncio.wait_for(server._ease_overload(app), 300)

asyncio.run(main())
"""


@pytest.mark.skipif(slice_of() is None, reason="this system knows no slices of threads")
@pytest.mark.parametrize("slices", ["allowed", "forbidden"])
def test_under_overload_http_interrupts_no_worker(slices: str) -> None:
    paths = os.pathsep.join((str(SOURCE), str(Path(__file__).parent.parent)))
    command = [sys.executable, "-c", OVERLOADED, slices]
    done = forking.run(command, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr


WORKERS_BEGIN = """
import asyncio, os, socket, sys
from pathlib import Path

from bertsmith.serving import processes
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.dispatch import workers

workers._FORK_SERVER = "waits"

def begin(forks):
    ours, theirs = socket.socketpair()
    forks.make_worker(theirs)
    return ours

async def main():
    forks = [workers.ForkServer(ServeConfig(models=[Path("model")]), 1)]
    processes.batch_wakeups(True)
    # chosen by whoever started the server
    forks.append(workers.ForkServer(ServeConfig(models=[Path("model")]), 1))
    connections = list(map(begin, forks))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert [os.sched_getscheduler(int(n)) for n in children] == [os.SCHED_OTHER, os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == os.SCHED_BATCH
    for server in forks:
        await server.stop()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such policies")
def test_workers_that_begin_in_an_overload_wait_for_no_tick(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("def main(connection):\n    connection.recv(1)\n")
    paths = os.pathsep.join((str(SOURCE), str(tmp_path)))
    command = [sys.executable, "-c", WORKERS_BEGIN]
    done = forking.run(command, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr


@pytest.fixture
def open_files(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], list[int]]:
    """A system that allows some open files, and at most others; returns where limits go."""

    def allow(soft: int, hard: int) -> list[int]:
        found = [soft]

        def limit(_: int, limits: tuple[int, int]) -> None:
            if limits[1] != hard or 0 <= hard < limits[0]:
                raise ValueError("not allowed to raise maximum limit")
            found.append(limits[0])

        monkeypatch.setattr(resource, "getrlimit", lambda _: (found[-1], hard))
        monkeypatch.setattr(resource, "setrlimit", limit)
        return found

    return allow


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "raised"),
    [
        (1024, 4096, 2000, True), (1024, resource.RLIM_INFINITY, 2000, True),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 2000, False), (4096, 4096, 2000, False),
        (100, 1024, 940, True), (1024, 1024, 940, False),
    ],
)  # fmt: skip
def test_as_many_connections_are_served_as_files_may_be_open(
    soft: int,
    hard: int,
    connections: int,
    raised: bool,
    open_files: Callable[[int, int], list[int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = open_files(soft, hard)
    config = ServeConfig(models=("it",), limits=LimitsConfig(connections=2000), workers=10)
    assert with_room(config).limits.connections == pytest.approx(connections, abs=10)
    assert (len(limits) > 1) is raised
    told = capsys.readouterr().err
    assert (told == "") is (connections == 2000)
    if told:
        assert told.startswith("--connections is 2,000; 940 will be served at once, since the s")
        assert told.count("\n") == 1


def test_a_server_that_may_open_hardly_any_file_is_refused(
    open_files: Callable[[int, int], list[int]],
) -> None:
    open_files(50, 50)
    with pytest.raises(ConfigError, match="the system allows 50 open files, and the server needs"):
        with_room(ServeConfig(models=("it",)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux' TCP_INFO")
def test_many_may_wait_to_be_accepted() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def run() -> int:
        listener = listening(ServeConfig(models=("it",), port=0))
        url, same = f"http://127.0.0.1:{listener.getsockname()[1]}", listener.dup()
        server = HttpServer(answer, listener, LimitsConfig())
        serving = asyncio.create_task(server.run())
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            assert (await client.get(url)).status_code == 204
        # granian calls listen again; of a socket that listens, tcpi_sacked is its backlog
        information = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
        same.close()
        server.end()
        await serving
        return int.from_bytes(information[28:32], sys.byteorder)

    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    assert asyncio.run(run()) == min(BACKLOG, most)


def test_a_server_answers_until_a_signal_ends_it(server: Started) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        assert client.get("/").headers["content-type"].startswith("text/html")
        asked = {"inputs": ["word1 [MASK]"], "top": 2}
        (answer,) = client.post("/answer", json=asked).json()["answers"]
        assert len(answer["masks"][0]["candidates"]) == 2
    assert server.end() == 0
    assert server.said[-1] == "stopped\n"
    assert "word1" not in "".join(server.said)
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url, timeout=PATIENCE)


def test_requests_are_answered_while_a_balancer_may_not_have_noticed_yet(folder: Path) -> None:
    with (
        started(folder, "--precision", "fp32", "--drain-delay", "3600") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
    ):
        assert client.get("/ready").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        while client.get("/ready").status_code == 200:
            pass
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        assert client.post("/answer", json={"inputs": ["word1 [MASK]"]}).status_code == 200
        # the second signal waits for nothing
        assert server.end() == 0
    assert server.said[-1] == "stopped\n"


def test_a_model_is_tried_without_serving_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(folder), "--check", "--precision", "fp32"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "task", "precision", "tokens", "URL"]
    assert line.split() == ["small", "fill-mask,", "vectors", "fp32", "23",
                            "http://127.0.0.1:8080/answer"]  # fmt: skip


def test_what_cannot_be_served_is_told_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint(*arguments: str) -> str:
        assert main(["serve", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "no such folder" in complaint(str(tmp_path / "none"), "--check")
    # the check passed, and the server did not start
    keys = str(tmp_path / "keys")
    assert "--api-keys cannot be read" in complaint(str(folder), "--check", "--api-keys", keys)
    assert "two models are called 'small'" in complaint(str(folder), str(folder))
    assert "--name has 1 name for 2 models" in complaint(str(folder), "b", "--name", "a")
    for host in ("https://mine.example", "mine.example/models", "*.example", "mine example"):
        # requests would be addressed to none of these
        line = complaint(str(folder), "--check", "--allowed-hosts", f"other.example,{host}")
        assert f"--allowed-hosts contains {host!r}" in line
        assert "write a name" in line
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        taken_line = complaint(str(folder), "--port", port)
    assert f"cannot listen at 127.0.0.1:{port}" in taken_line
    assert "choose another --port, or stop the program" in taken_line
    # no other port would help
    for host in ("192.0.2.1", "a..b"):
        line = complaint(str(folder), "--host", host, "--port", "0")
        assert f"cannot listen at {host}:0" in line
        assert line.endswith("give --host a name or an address of this machine")


def test_without_the_extra_one_line_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertsmith.serving.server._PACKAGES", ("starlette", "no_such_package"))
    assert main(["serve", str(folder)]) == 2
    assert "pip install 'bertsmith[serve]'" in capsys.readouterr().err
