"""A server under load: workers killed, a request to end, clients that trickle, hang up or lie."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median

import httpx
import pytest

pytest.importorskip("granian")

from bertsmith.network.model import build_model
from bertsmith.weights.folder import save_model
from families import MODELS, TOKENIZERS
from serving_process import Started, started

pytestmark = pytest.mark.faults
_HEAD = b"POST /answer HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# seconds in which what has to happen does, on a busy machine too
PATIENCE = 120
ASKED = {"inputs": ["word1 word2 word3"], "task": "vectors"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    save_model(folder, build_model(MODELS["bert-masked_lm"], seed=7), TOKENIZERS["bert"])
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[Started]:
    # as it is by default: connections that rest for a while are kept
    with started(folder, "--precision", "fp32", "--workers", "2") as server:
        yield server


def resident(server: Started) -> int:
    """The resident bytes of the process that speaks HTTP."""
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Load:
    """Clients that ask again and again until they are told to end; `statuses` counts answers."""

    def __init__(self, url: str, clients: int = 20) -> None:
        self._url, self._count = url, clients
        self.statuses: Counter[int] = Counter()
        self.died = 0
        self.lost = 0
        self.refused = 0
        self.wrong = 0
        self.ending = self.impatient = False
        self.expected: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Ask until `ending` is set, or nobody listens."""
        self._task = asyncio.current_task()
        limits = httpx.Limits(max_connections=self._count)
        async with httpx.AsyncClient(base_url=self._url, limits=limits, timeout=PATIENCE) as client:
            while (first := await client.post("/answer", json=ASKED)).status_code != 200:
                # a worker was killed meanwhile
                assert first.status_code == 503
            self.expected = first.json()["answers"][0]["vector"]
            await asyncio.gather(*(self._ask(client) for _ in range(self._count)))

    async def _ask(self, client: httpx.AsyncClient) -> None:
        while not self.ending:
            try:
                response = await client.post("/answer", json=ASKED)
            except httpx.ConnectError:
                self.refused += 1
                return
            except httpx.HTTPError:
                self.lost += 1
                continue
            self.statuses[response.status_code] += 1
            if response.status_code == 503:
                # the others found no worker that had opened the model yet
                self.died += "has died" in response.text
                after = int(response.headers["retry-after"])
                await asyncio.sleep(0.01 if self.impatient else after)
            if response.status_code == 200:
                found = response.json()["answers"][0]["vector"]
                self.wrong += found != pytest.approx(self.expected, abs=1e-5)

    async def until(self, answers: int) -> None:
        """Wait until so many more have been answered well."""
        wanted = self.statuses[200] + answers
        while self.statuses[200] < wanted:
            assert self._task is None or not self._task.done(), "nobody asks any more"
            await asyncio.sleep(0.01)


def test_a_killed_worker_is_replaced(server: Started) -> None:
    async def run() -> None:
        load = Load(server.url)
        asking = asyncio.create_task(load.run())
        for _ in range(3):
            await load.until(200)
            before = set(server.workers())
            os.kill(before.pop(), signal.SIGKILL)
            await load.until(200)
            async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
                while len(server.workers()) < 2 or (await client.get("/ready")).status_code != 200:
                    await asyncio.sleep(0.05)
        load.ending = True
        await asking
        assert set(load.statuses) <= {200, 503}
        # of each worker at most two batches
        assert load.died <= 3 * 20
        assert (load.lost, load.refused, load.wrong) == (0, 0, 0)

    asyncio.run(run())


@pytest.mark.parametrize("holder", [False, True])
def test_all_workers_killed_are_replaced(server: Started, holder: bool) -> None:
    """Also where the process that holds the models is killed with them."""

    async def run() -> None:
        load = Load(server.url)
        asking = asyncio.create_task(load.run())
        await load.until(100)
        killed = [*([server.fork_server()] if holder else []), *server.workers()]
        for number in killed:
            assert number is not None
            os.kill(number, signal.SIGKILL)
        await load.until(100)
        load.ending = True
        await asking
        # what waits for a worker to be replaced may be late
        assert set(load.statuses) <= {200, 503, 504}
        assert (load.lost, load.wrong) == (0, 0)

    asyncio.run(run())
    assert server.end() == 0


def test_workers_go_on_without_the_process_that_holds_the_models(server: Started) -> None:
    async def run() -> None:
        load = Load(server.url)
        asking = asyncio.create_task(load.run())
        await load.until(100)
        for _ in range(2):
            before, workers = server.fork_server(), server.workers()
            assert before is not None
            os.kill(before, signal.SIGKILL)
            await load.until(100)
            while server.fork_server() in (None, before):
                await asyncio.sleep(0.05)
            # the same ones answer, all the time
            assert sorted(server.workers()) == sorted(workers)
        assert set(load.statuses) == {200}
        # those that it forks replace them
        os.kill(workers[0], signal.SIGKILL)
        while len(set(server.workers()) - {workers[0]}) < 2:
            await asyncio.sleep(0.05)
        await load.until(100)
        load.ending = True
        await asking
        assert set(load.statuses) <= {200, 503}
        assert (load.lost, load.refused, load.wrong) == (0, 0, 0)
        # the server has buried those whose parent had died
        assert not Path(f"/proc/{workers[0]}").exists()

    asyncio.run(run())
    assert server.end() == 0


# as a library may do that measures what programs do
_THREAD = """
import sys, threading
if "bertsmith.serving.models.fork_server" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def test_a_process_with_several_threads_is_not_forked(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_THREAD)
    options = (folder, "--precision", "fp32", "--workers", "2")
    with started(*options, patches=tmp_path) as server:
        (first, *_) = server.workers()
        # started afresh: its own program is another one
        assert b"serving.models.worker" in Path(f"/proc/{first}/cmdline").read_bytes()
        assert httpx.post(f"{server.url}/answer", json=ASKED, timeout=PATIENCE).is_success
        os.kill(first, signal.SIGKILL)
        while len(set(server.workers()) - {first}) < 2:
            time.sleep(0.05)
        computed(server)
        assert server.end() == 0


@pytest.mark.parametrize("kind", ["full", "gone"])
def test_a_log_that_cannot_be_written_holds_up_nobody(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    log = tmp_path / "log"
    if kind == "full":
        log.touch()
        # shown from the file, by a process that is no child of the server
        place = f"(tail -n +1 -f --pid=$$ {log} >&2 &)\nexec 2>>{log}"
    else:
        # a pipe that is read until the server is ready, and by nobody from then on
        os.mkfifo(log)
        place = f"(sed -u /^ready:/q {log} >&2 &)\nexec 2>{log}"

    async def replaced(server: Started, load: Load) -> None:
        before = server.workers()
        os.kill(before[0], signal.SIGKILL)
        await load.until(100)
        while len(set(server.workers()) - {before[0]}) < 2:
            await asyncio.sleep(0.05)

    async def run(server: Started) -> None:
        size = log.stat().st_size
        load = Load(server.url)
        asking = asyncio.create_task(load.run())
        await load.until(1)
        for _ in range(3):
            await replaced(server, load)
        if kind == "full":
            assert log.stat().st_size == size
            limit_files(server, resource.RLIM_INFINITY)
            await replaced(server, load)
            *_, last = log.read_text().splitlines()
            assert last == "a worker has died and is replaced"
        load.ending = True
        await asking
        assert set(load.statuses) <= {200, 503}
        assert (load.lost, load.refused, load.wrong) == (0, 0, 0)

    with started(folder, "--precision", "fp32", "--workers", "2", limits=place) as server:
        if kind == "full":
            limit_files(server, 0)
        asyncio.run(run(server))
        assert server.end() == 0


# said by the server for each batch, and by a worker for its answers: more than fits into a pipe and
# what the process keeps
_NOISE = """
from bertsmith.core.log import say
from bertsmith.serving import messages

framed = messages.framed

def noisy(message):
    if isinstance(message, messages.Batch | messages.Done):
        for _ in range(100):
            say("noise" + 3990 * "x")
    return framed(message)

messages.framed = noisy
"""


def test_a_log_whose_reader_stalls_holds_up_nobody(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NOISE)
    options = (folder, "--precision", "fp32", "--workers", "1")
    with started(*options, patches=tmp_path, stalls=True) as server:
        log = server.process.stderr
        assert log is not None
        for _ in range(2):
            # nobody reads meanwhile
            answer = httpx.post(f"{server.url}/answer", json=ASKED, timeout=PATIENCE)
            assert answer.status_code == 200
            lost: dict[str, str] = {}
            while len(lost) < 2:
                line = log.readline()
                if found := re.match(r"(\d+) lines of process (\d+) could not be written", line):
                    lost[found[2]] = found[1]
            # of the server, and of its worker
            assert str(server.process.pid) in lost
        answer = httpx.post(f"{server.url}/answer", json=ASKED, timeout=PATIENCE)
        assert answer.status_code == 200
        assert server.end() == 0


def limit_files(server: Started, size: int) -> None:
    """Let files be no longer than some bytes, as on a disk that is full."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))


@pytest.mark.parametrize("impatient", [False, True])
def test_nothing_is_lost_when_the_server_is_asked_to_end(server: Started, impatient: bool) -> None:
    """Nor where clients come again and again, whatever they are told."""

    async def run() -> None:
        load = Load(server.url, clients=50)
        load.impatient = impatient
        asking = asyncio.create_task(load.run())
        await load.until(1000)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.process.wait)
        load.ending = True
        await asking
        assert server.process.returncode == 0
        assert set(load.statuses) <= {200, 503}
        assert (load.lost, load.wrong) == (0, 0)

    asyncio.run(run())


def test_clients_that_ask_late_lose_nothing_where_others_come_until_the_end(
    server: Started,
) -> None:
    """As clients that get no processor for most of a second after they have connected."""
    body = json.dumps(ASKED).encode()
    request = _HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    heads = list[bytes]()

    async def ask_late(number: int) -> None:
        # at any time one of them has just connected
        await asyncio.sleep(0.7 * number / 40)
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            except OSError:
                return
            await asyncio.sleep(0.7)
            try:
                writer.write(request)
                await writer.drain()
                heads.append((await reader.readline())[:12])
            except OSError:
                heads.append(b"")
            writer.close()

    async def run() -> None:
        load = Load(server.url, clients=10)
        load.impatient = True
        asking = asyncio.create_task(load.run())
        await load.until(100)
        late = [asyncio.create_task(ask_late(number)) for number in range(40)]
        server.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.process.wait)
        await asyncio.gather(*late)
        load.ending = True
        await asking
        assert (server.process.returncode, load.lost, load.wrong) == (0, 0, 0)

    asyncio.run(run())
    assert len(heads) > 100
    assert set(heads) <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}


def test_a_connection_that_says_nothing_yet_is_answered_at_the_end(server: Started) -> None:
    """As of a client that gets no processor after it has connected."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        server.process.send_signal(signal.SIGTERM)
        # it is not closed, though nobody asks anything any more
        assert not select.select([connection], [], [], 1.0)[0]
        body = json.dumps(ASKED).encode()
        connection.sendall(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        connection.settimeout(PATIENCE)
        answer = b""
        while piece := connection.recv(1000):
            answer += piece
    head = answer.lower()
    assert b" 503 " in head
    assert b"connection: close" in head
    assert b"retry-after: 1" in head
    assert server.process.wait() == 0


def test_connections_that_never_say_anything_do_not_keep_a_server_from_ending(
    server: Started,
) -> None:
    connections = tricklers(server, 20, b"POST ")
    assert server.end() == 0
    for connection in connections:
        connection.close()


def test_a_killed_server_leaves_no_worker(server: Started) -> None:
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    until = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{number}/exe").exists() for number in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def p99(server: Started, asked: int = 200) -> float:
    """The milliseconds in which 99 % of the answers to one client after the other come."""
    found: list[float] = []
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        while len(found) < asked:
            began = time.perf_counter()
            response = client.post("/answer", json=ASKED)
            if response.status_code == 200:
                found.append(1000 * (time.perf_counter() - began))
            assert response.status_code in (200, 429, 504), response.text
    return sorted(found)[len(found) * 99 // 100]


def show(what: str, before: float, under: float) -> None:
    """Print what hostility costs others: shown by pytest -rP, of use on a quiet machine."""
    print(
        f"{what}: p99 of others {before:.1f} ms before, {under:.1f} ms then: {under / before:.2f} x"
    )


def show_turns(what: str, turns: Sequence[tuple[float, float]]) -> None:
    """Print medians of what was measured in turns, quiet and not."""
    quiet, under = zip(*turns, strict=True)
    ratios = [one / other for other, one in turns]
    print(
        f"{what}: p99 of others, medians of {len(turns)} turns, {median(quiet):.1f} ms quiet, "
        f"{median(under):.1f} ms then; ratios {min(ratios):.2f} to {max(ratios):.2f}, "
        f"median {median(ratios):.2f}"
    )


def computed(server: Started) -> None:
    """Wait until nothing is in the queue, nor computed by a worker."""
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        until, before = time.monotonic() + PATIENCE, ""
        while True:
            lines = client.get("/metrics").text.splitlines()
            now = next(line for line in lines if line.startswith("bertsmith_tokens_total"))
            if "bertsmith_queue_texts 0.0" in lines and now == before:
                return
            before = now
            assert time.monotonic() < until
            time.sleep(0.2)


def tricklers(server: Started, count: int, first: bytes) -> list[socket.socket]:
    """Connections on which something begins that never ends."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(first)
        connections.append(connection)
    return connections


BEGINNINGS = {
    "headers": b"POST /answer HTTP/1.1\r\nHost: localhost\r\nX-One: ",
    "a body": b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
    "chunks": _CHUNKED + b"1\r\n",
}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_tricklers_are_cut_off_and_hold_up_nobody(folder: Path, kind: str) -> None:
    options = ("--workers", "2", "--body-deadline", "10", "--header-deadline", "10")
    with started(folder, "--precision", "fp32", *options) as server:
        p99(server)
        before, turns = resident(server), []
        for last in (False, False, False, False, True):
            quiet = p99(server, 500)
            connections = tricklers(server, 500, BEGINNINGS[kind])
            assert httpx.post(f"{server.url}/answer", json=ASKED, timeout=PATIENCE).is_success
            # answered before any of them was cut off
            assert not select.select(connections[-1:], [], [], 0)[0]
            turns.append((quiet, p99(server, 500)))
            assert resident(server) - before < 100e6
            for connection in connections:
                if last:
                    connection.settimeout(PATIENCE)
                    answer = connection.recv(1000)
                    assert kind == "headers" or b" 408 " in answer
                    while answer:
                        answer = connection.recv(1000)
                connection.close()
        show_turns(f"500 that trickle {kind}", turns)


def test_no_more_connections_are_accepted_than_files_may_be_open(folder: Path) -> None:
    options = ("--workers", "2", "--header-deadline", "2")
    with started(folder, "--precision", "fp32", *options, limits="ulimit -n 200") as server:
        most = httpx.get(f"{server.url}/info", timeout=PATIENCE).json()["max_concurrent_requests"]
        connections = tricklers(server, 300, BEGINNINGS["headers"])
        files = Path(f"/proc/{server.process.pid}/fd")
        # the others wait, and are accepted as those before them are cut off
        assert httpx.post(f"{server.url}/answer", json=ASKED, timeout=PATIENCE).is_success
        assert len(list(files.iterdir())) < 200
        for connection in connections:
            connection.settimeout(PATIENCE)
            while connection.recv(1000):
                assert len(list(files.iterdir())) < 200
            connection.close()
        assert most < 200
        assert "fault" not in "".join(server.said)


def test_clients_that_hang_up_cost_nothing_lasting(server: Started) -> None:
    body = b'{"inputs": ["word1"]}'
    request = (
        b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    quiet = p99(server)
    for connection in tricklers(server, 500, request):
        connection.close()
    show("500 hang up", quiet, p99(server))
    computed(server)
    assert "fault" not in "".join(server.said)


LIES = {
    "two lengths": b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Content-Length: 6\r\n\r\n{}    ",
    "a length below zero": _HEAD + b"Content-Length: -1\r\n\r\n",
    "a huge chunk": _CHUNKED + b"fffffffffffffffff\r\nab",
    "no host": b"POST /answer HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "long headers": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "a path that is no text": b"GET /\xff\xfe%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", LIES)
def test_lies_end_their_own_connection_alone(server: Started, name: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(PATIENCE)
        try:
            connection.sendall(LIES[name])
            answer = connection.recv(1000)
        except ConnectionError:
            answer = b""
        assert not answer or answer.split()[1][:1] == b"4", answer
    assert httpx.post(f"{server.url}/answer", json=ASKED, timeout=PATIENCE).status_code == 200
    assert "fault" not in "".join(server.said)


@contextmanager
def read_slowly(connections: Sequence[socket.socket]) -> Iterator[None]:
    """Read a byte a second from each of a hundred connections meanwhile."""
    ending = threading.Event()

    def read() -> None:
        for connection in cycle(connections):
            if ending.wait(0.01):
                return
            connection.recv(1)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        ending.set()
        reader.join()


def test_slow_readers_hold_little(server: Started) -> None:
    body = b'{"inputs": [' + b",".join([b'"word1 word2"'] * 1000) + b'], "task": "vectors"}'
    request = (
        b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    p99(server)
    before, under_way, then = resident(server), [], []
    for _ in range(7):
        quiet = p99(server, 500)
        connections = tricklers(server, 100, request)
        under_way.append((quiet, p99(server)))
        computed(server)
        with read_slowly(connections):
            then.append((quiet, p99(server, 500)))
        assert resident(server) - before < 400e6
        # the answers have begun, and wait for their readers
        for connection in connections:
            assert connection.recv(1, socket.MSG_DONTWAIT)
            connection.close()
    show_turns("100 that do not read, while their texts are computed", under_way)
    show_turns("100 that read a byte a second", then)


def test_nothing_that_the_openapi_document_allows_is_a_fault(
    folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("schemathesis")
    folders = [folder]
    for name in ("class", "tags", "span", "choice"):
        folders.append(tmp_path_factory.mktemp("models") / name)
        save_model(folders[-1], build_model(MODELS[f"bert-{name}"], seed=7), TOKENIZERS["bert"])
    with started(*folders, "--precision", "fp32") as server:
        program = Path(sys.executable).with_name("schemathesis")
        options = "--checks not_a_server_error --phases coverage,fuzzing --max-examples 100"
        command = [str(program), "run", f"{server.url}/openapi.json", *options.split()]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout
        figures = httpx.get(f"{server.url}/metrics").text
        assert 'status="500"' not in figures
        assert 'status="424"' not in figures
        assert httpx.post(
            f"{server.url}/embed", json={"inputs": "word1"}, timeout=PATIENCE
        ).is_success
        assert "fault" not in "".join(server.said)
