"""What the server has to stand: load, overload, long texts, dead workers, clients that hang up."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loading.bench import MB, Bench, our_server, outcome
from loading.questions import save_questions
from loading.servers import LoadProcess, Server, Watch, free_port

# connections of an open loop: below the server's own limit
_OPEN = 1800
_QUEUE_SECONDS = 2.0
_LONG_TEXTS, _LONG_TOKENS = 16, 8000
# seconds that a server answers until it is asked to end
_LIVES = (0.5, 5.0)
# stretches of a series, and Student's t for 95 % with two fewer degrees of freedom
_STRETCHES, _STUDENT = 10, 2.306


def closed(bench: Bench, server: Server) -> dict[str, Any]:
    """Ask in a closed loop, and compare the throughput with that in bulk."""
    bench.load(server, seconds=3.0).result()
    before = server.seconds()
    with Watch(server) as watch:
        found = bench.load(server).result()
    spent = {name: second - before[name] for name, second in server.seconds().items()}
    cores, clients = len(bench.cores), bench.share_of_clients * found["cpu"]
    elapsed, rate = found["seconds"], found["answers_per_second"]
    # what is left of the processors for computing, when clients and HTTP have had their share
    left = elapsed - (clients + spent["http"]) / cores
    bulk = len(bench.questions) / sum(bench.bulk.values())
    shares = {
        "bulk_per_second": bulk,
        "of_bulk": rate / bulk,
        "of_bulk_without_clients_and_http": rate * elapsed / left / bulk if left > 0 else None,
        "cpu": spent | {"clients": found["cpu"]},
        "memory": watch.peak,
    }
    outcome(bench, "closed", found)
    bench.tell("closed", "answers/s", f"{rate:.0f}; in bulk {bulk:.0f}")
    bench.tell(
        "closed", "of bulk, processor time of clients and HTTP taken off",
        f"{100 * (shares['of_bulk_without_clients_and_http'] or 0):.0f} %",
    )  # fmt: skip
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in shares["cpu"].items())
    bench.tell("closed", f"processor time in {elapsed:.0f} s on {cores} cores", seconds)
    bench.tell("closed", "memory of all processes", f"{watch.peak / MB:.0f} MB")
    return found | shares


def overload(bench: Bench) -> dict[str, Any]:
    """Ask at five times the rate that is possible, a server whose queue may last two seconds."""
    capacity = _capacity(bench)
    rate = capacity["answers_per_second"]
    # in tokens it has room for more
    tokens = int(5 * _QUEUE_SECONDS * capacity["tokens_per_second"])
    bounds = {"--queue-seconds": f"{_QUEUE_SECONDS:g}", "--queue-tokens": str(tokens)}
    with our_server(bench, **bounds) as server, Watch(server) as watch:
        bench.load(server, clients=64, seconds=3.0).result()
        before = server.seconds()
        found = bench.load(
            server, rate=5 * rate, clients=_OPEN, seconds=bench.options.overload_seconds
        ).result()
        spent = {name: second - before[name] for name, second in server.seconds().items()}
    cores, elapsed = len(bench.cores), found["seconds"]
    # machines that are shared change their speed within minutes
    after = _capacity(bench)
    mean = (rate + after["answers_per_second"]) / 2
    goodput = found["answers_per_second"] / mean
    disturbance = (undisturbed(bench, capacity) + undisturbed(bench, after)) / 2
    elsewhere = goodput * undisturbed(bench, found) / disturbance
    outcome(bench, "overload", found)
    rates = f"{rate:.0f}/s, {after['answers_per_second']:.0f}/s"
    bench.tell("overload", "capacity before and after", rates)
    bench.tell("overload", "goodput, of the mean of both", f"{100 * goodput:.1f} %")
    bench.tell(
        "overload", "goodput, clients' processor time taken off both", f"{100 * elsewhere:.0f} %"
    )
    spent_by = ", ".join(f"{name} {value:.1f} s" for name, value in spent.items())
    bench.tell(
        "overload", f"processor time in {elapsed:.0f} s on {cores} cores",
        f"{spent_by}, clients {found['cpu']:.1f} s",
    )  # fmt: skip
    rejected = found["latency"].get("429", {})
    if rejected:
        figure = f"{1000 * rejected['p50']:.1f} ms, {1000 * rejected['p99']:.1f} ms"
        bench.tell("overload", "time to reject, p50, p99", figure)
    if "200" in found["latency"]:
        share = found["latency"]["200"]["p99"] / _QUEUE_SECONDS
        name = f"p99 of accepted, of the queue's {_QUEUE_SECONDS:g} s"
        bench.tell("overload", name, f"{share:.2f}")
    bench.tell("overload", "memory", f"{watch.peak / MB:.0f} MB")
    figures = {
        "capacity": capacity, "capacity_after": after, "goodput": goodput, "memory": watch.peak,
        "cpu_server": spent,
    }  # fmt: skip
    return found | figures | {"goodput_without_clients": elsewhere}


def _capacity(bench: Bench) -> dict[str, Any]:
    """Return the result of a closed loop on a server of its own."""
    with our_server(bench) as server:
        bench.load(server, clients=64, seconds=3.0).result()
        return bench.load(server, clients=64, seconds=min(bench.options.seconds, 10.0)).result()


def undisturbed(bench: Bench, found: Mapping[str, Any]) -> float:
    """Return how many times as much processor time servers have when clients run elsewhere."""
    seconds, clients = float(found["seconds"]), bench.share_of_clients * float(found["cpu"])
    return seconds / (seconds - clients / len(bench.cores))


def long(bench: Bench, server: Server) -> dict[str, Any]:
    """Ask for sixteen long texts while short ones are asked for."""
    kind = next((item for item in ("tags", "spans") if item in bench.options.heads), None)
    if kind is None:
        bench.tell("long", "left out", "tags or spans must be among --heads")
        return {}
    shorts = [question for question in bench.questions if len(str(question.inputs)) < 200]
    short_file = bench.folder / "short.pickle"
    save_questions(short_file, shorts)
    text = _long_text(bench, kind)
    body = {"model": kind, "task": kind, "truncate": True}
    body["inputs"] = [text] if kind == "tags" else [{"question": "who?", "context": text}]
    how = {"questions": str(short_file), "clients": 8}
    seconds = min(bench.options.seconds, 30.0)
    bench.load(server, seconds=2.0, **how).result()
    with Watch(server, every=0.1) as before:
        quiet = bench.load(server, seconds=seconds / 2, **how).result()
    with Watch(server, every=0.1) as watch:
        load = bench.load(server, seconds=600.0, **how)
        began = time.perf_counter()
        answered = _ask_together(server.port, json.dumps(body).encode(), _LONG_TEXTS)
        elapsed = time.perf_counter() - began
        load.stop()
        busy = load.result()
    outcome(bench, "long", busy)
    bench.tell("long", f"{_LONG_TEXTS} texts of {_LONG_TOKENS:,} tokens", f"{elapsed:.1f} s")
    bench.tell("long", "their statuses", str(sorted(answered)))
    calm, hard = quiet["latency"]["200"]["p99"], busy["latency"]["200"]["p99"]
    bench.tell("long", "p99 of short ones, quiet, then busy", f"{calm:.3f} s, {hard:.3f} s")
    bench.tell("long", "ratio", f"{hard / calm:.1f}")
    memory = f"{before.peak / MB:.0f} MB, {watch.peak / MB:.0f} MB"
    bench.tell("long", "memory before, at most", memory)
    return {
        "quiet": quiet, "busy": busy, "seconds": elapsed, "ratio": hard / calm,
        "memory_before": before.peak, "memory": watch.peak, "statuses": answered,
    }  # fmt: skip


def _long_text(bench: Bench, kind: str) -> str:
    """Return a text of 8,000 tokens, of the words of the questions."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(bench.folders[kind] / "tokenizer.json"))
    tokenizer.no_truncation()
    texts = (question.inputs for question in bench.questions if isinstance(question.inputs, str))
    words = [word for text in texts for word in text.split()]
    lengths = np.cumsum([len(tokenizer.encode(word, add_special_tokens=False)) for word in words])
    repeated = 1 + _LONG_TOKENS // int(lengths[-1])
    rest = _LONG_TOKENS - (repeated - 1) * int(lengths[-1])
    return " ".join(words * (repeated - 1) + words[: int(np.searchsorted(lengths, rest))])


def _ask_together(port: int, body: bytes, count: int) -> list[int]:
    """Post a body so many times at once and return the statuses."""
    import http.client
    from concurrent.futures import ThreadPoolExecutor

    def one(_: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        with suppress(OSError):
            connection.request("POST", "/answer", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        return 0

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def kill(bench: Bench, server: Server) -> dict[str, Any]:
    """Kill a worker under load."""
    load = bench.load(server, seconds=bench.options.fault_seconds)
    moment = bench.options.fault_seconds / 3
    time.sleep(moment)
    known = set(server.workers())
    victim = sorted(known)[-1]
    os.kill(victim, signal.SIGKILL)
    began = time.perf_counter()
    while len(set(server.workers()) - {victim}) < len(known) and _since(began) < 60:
        time.sleep(0.02)
    started = _since(began)
    found = load.result()
    outcome(bench, "kill", found)
    failing = found["latency"].get("503", {"max": 0.0})["max"]
    bench.tell("kill", "another worker has torch after", f"{started:.1f} s")
    bench.tell("kill", "the longest wait for a 503", f"{failing:.2f} s")
    rates = found["each_second"]
    usual = np.median(rates[1 : int(moment)] or [0])
    after = [n for n, rate in enumerate(rates[int(moment) + 2 :], 2) if rate >= 0.8 * usual]
    bench.tell("kill", "80 % of the usual answers/s after", f"{after[0]} s" if after else "never")
    return found | {"replaced_seconds": started, "recovered_seconds": after[:1]}


def _since(began: float) -> float:
    return time.perf_counter() - began


def hangups(bench: Bench, server: Server) -> dict[str, Any]:
    """Let half of the clients hang up."""
    with Watch(server) as watch:
        found = bench.load(server, hang_up=0.5, seconds=bench.options.fault_seconds).result()
    outcome(bench, "hangups", found)
    bench.tell("hangups", "memory", f"{watch.peak / MB:.0f} MB")
    after = bench.load(server, seconds=3.0).result()
    bench.tell("hangups", "answers/s afterwards", f"{after['answers_per_second']:.0f}")
    return found | {"after": after, "memory": watch.peak}


def soak(bench: Bench, server: Server) -> dict[str, Any]:
    """Ask for long, and fit lines to the memory of the second half: before that, caches fill."""
    with Watch(server, every=1.0) as watch:
        found = bench.load(server, seconds=60 * bench.options.soak).result()
    outcome(bench, "soak", found)
    answered = sum(found["statuses"].values())
    bench.tell("soak", "requests, minutes", f"{answered:,}, {bench.options.soak:g}")
    half = [(seconds, *memory) for seconds, memory in watch.found[len(watch.found) // 2 :]]
    hours, whole, http, private = np.array(half, float).T / [[3600], [MB], [MB], [MB]]
    parts = {
        "all processes": whole, "HTTP": http, "workers": whole - http,
        "all processes, without files": private,
    }  # fmt: skip
    slopes = {name: slope(hours, memory) for name, memory in parts.items()}
    for name, (middle, spread) in slopes.items():
        figure = f"{parts[name].max():.1f} MB, {middle:+.2f} ± {spread:.2f} MB an hour"
        bench.tell("soak", f"memory of {name}, slope with its 95 % interval", figure)
    return found | {"slopes_mb_an_hour": slopes, "memory": watch.found}


def slope(times: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope of a line through values, and half the width of its 95 % interval.

    Values a second apart resemble each other, so the line is fitted to the means of ten stretches.
    """
    length = len(times) // _STRETCHES * _STRETCHES
    if not length:
        return math.nan, math.nan
    x, y = (item[:length].reshape(_STRETCHES, -1).mean(1) for item in (times, values))
    (middle, _), residuals, *_ = np.polyfit(x, y, 1, full=True)
    variance = float(residuals.sum()) / (_STRETCHES - 2) / float(((x - x.mean()) ** 2).sum())
    return float(middle), _STUDENT * math.sqrt(variance)


def stop(bench: Bench) -> dict[str, Any]:
    """Send SIGTERM under load: whatever was accepted is answered."""
    with our_server(bench) as server:
        load = bench.load(server, seconds=bench.options.fault_seconds)
        time.sleep(bench.options.fault_seconds / 2)
        server.process.send_signal(signal.SIGTERM)
        began = time.perf_counter()
        status = server.process.wait(120)
        elapsed = _since(began)
        load.stop()
        found = load.result()
    outcome(bench, "stop", found)
    bench.tell("stop", "exit status, after", f"{status}, {elapsed:.1f} s")
    return found | {"status": status, "drain_seconds": elapsed}


def drains(bench: Bench) -> dict[str, Any]:
    """Ask one server after the other at the same port; each gets SIGTERM at some moment."""
    draw, port = random.Random(0), free_port()
    load: LoadProcess | None = None
    ends: list[tuple[int, float]] = []
    said: list[str] = []
    while load is None or load.running:
        with our_server(bench, port) as server:
            if load is None:
                most = bench.options.drain_requests
                load = bench.load(server, seconds=3600.0, requests=most)
            began, lasts = time.perf_counter(), draw.uniform(*_LIVES)
            while load.running and _since(began) < lasts:
                time.sleep(0.01)
            if load.running:
                server.process.send_signal(signal.SIGTERM)
                began = time.perf_counter()
                ends.append((server.process.wait(120), _since(began)))
        said += [line for line in server.log.read_text("utf-8").splitlines() if "fault" in line]
    found = load.result()
    outcome(bench, "drains", found)
    answered = found["statuses"].get("200", 0)
    bench.tell("drains", "requests, answered", f"{found['sent']:,}, {answered:,}")
    statuses = sorted({status for status, _ in ends})
    longest = max((seconds for _, seconds in ends), default=0.0)
    figure = f"{len(ends)}, {statuses}, {longest:.1f} s"
    bench.tell("drains", "SIGTERM, exit statuses, longest until the end", figure)
    bench.tell("drains", "faults in the log", str(len(said)))
    return found | {"ends": ends, "faults": said}
