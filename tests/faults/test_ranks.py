"""Several processes: the same run as one, other numbers of them midway, and what kills one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from torch.distributed.run import parse_args as parse_torchrun_options

from bertsmith.batches import DataPosition
from bertsmith.cli.command import read_arguments
from bertsmith.cli.commands import COMMANDS
from bertsmith.cli.main import main
from bertsmith.network.batch import Batch
from bertsmith.training.loading import Feed
from bertsmith.training.run_folder import PREFLIGHT, read_record
from bounds import close_losses
from faults.forked_torchrun import forked_torchrun
from launching import Launched, ours, torchrun

SETTINGS = (
    "--model tiny --recipe paper --phases [] --force --log-every 1 --max-length 32 "
    "--tokens-per-batch 96 --precision fp32 --learning-rate 1e-3"
)
# the second where the launcher, whose child it is, was the first to ask for its status
DEATHS = ("was killed by signal 9 (SIGKILL)", "was killed or has crashed")
Launch = Callable[..., AbstractContextManager[Launched]]
LOST = "give the same command again: it resumes from what is saved"


def lines_of(run: Path) -> list[dict[str, float]]:
    """The lines of training in a run's log."""
    text = (run / "log.jsonl").read_text(encoding="utf-8") if run.exists() else ""
    found = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return [line for line in found if "gradient_norm" in line]


def wait_for_step(launched: Launched, run: Path, step: int) -> None:
    while not (run / "log.jsonl").exists() or len(lines_of(run)) < step:
        assert launched.process.poll() is None, launched.output
        time.sleep(0.02)


def ranks_of(launched: Launched, folder: Path) -> dict[int, int]:
    """The processes of a command by rank."""
    forked = sorted(folder.glob("launched-*"))
    if forked:
        return {rank: int(path.read_text()) for rank, path in enumerate(forked)}
    children = Path(f"/proc/{launched.process.pid}/task").glob("*/children")
    ranks = {}
    for pid in " ".join(item.read_text() for item in children).split():
        variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        ranks[int(dict(variable.split("=", 1) for variable in variables if variable)["RANK"])] = (
            int(pid)
        )
    return ranks


def compare(run: Path, whole: Path, steps: int) -> None:
    """The same samples in the same order, and losses but for rounding."""
    assert [line["step"] for line in lines_of(run)] == list(range(1, steps + 1))
    for line, other in zip(lines_of(run), lines_of(whole), strict=True):
        assert line["tokens"] == other["tokens"]
        for name in ("masked_lm_loss", "next_sentence_loss"):
            close_losses(line[name], other[name], line["step"])


def alone(command: str) -> None:
    """A command in this process."""
    assert main(["pretrain", *command.split()]) == 0


def stopped_alone(command: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process, interrupted while it draws the batches of some step."""
    draw, left = Feed.next_batches, [step]

    def stopping(feed: Feed, place: DataPosition, count: int) -> tuple[list[Batch], DataPosition]:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return draw(feed, place, count)

    with monkeypatch.context() as patch:
        patch.setattr(Feed, "next_batches", stopping)
        assert main(["pretrain", *command.split()]) == 143


@pytest.mark.parametrize(
    ("steps", "launch"),
    [(12, forked_torchrun), pytest.param(200, torchrun, marks=pytest.mark.faults)],
)
def test_two_are_as_one_and_come_and_go(
    steps: int,
    launch: Launch,
    shared: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One process, then two, then one, against one from the beginning to the end."""
    monkeypatch.chdir(tmp_path)
    command = f"{shared['store']} {SETTINGS} --steps {steps} --gradient-accumulation 2"
    alone(f"{command} --out whole")
    stopped_alone(f"{command} --out run", 4, monkeypatch)
    before = len(lines_of(tmp_path / "run"))
    assert 0 < before <= 4
    held = ("-m", "faults.holding", str(steps // 2))
    with launch(*held, "pretrain", "--out", "run", folder=tmp_path) as launched:
        while not all((tmp_path / f"held-{rank}").exists() for rank in (0, 1)):
            assert launched.process.poll() is None, launched.output
            time.sleep(0.02)
        launched.process.terminate()
        told = launched.ended()
    (line,) = ours(told)
    assert line.endswith("saved; to resume: torchrun ... -m bertsmith pretrain --out run"), told
    assert before + steps // 2 - 1 <= len(lines_of(tmp_path / "run")) <= before + steps // 2
    alone("--out run")
    compare(tmp_path / "run", tmp_path / "whole", steps)


@pytest.mark.parametrize(
    "launch", [forked_torchrun, pytest.param(torchrun, marks=pytest.mark.faults)]
)
def test_a_killed_rank_is_named(launch: Launch, shared: dict[str, str], tmp_path: Path) -> None:
    command = f"{shared['store']} --out run {SETTINGS} --steps 100000"
    with launch("-m", "bertsmith", "pretrain", *command.split(), folder=tmp_path) as launched:
        wait_for_step(launched, tmp_path / "run", 2)
        pid = ranks_of(launched, tmp_path)[1]
        os.kill(pid, signal.SIGKILL)
        told = launched.ended()
    assert launched.process.returncode
    (line,) = ours(told)
    # the check before the run counted both
    found = {
        item["name"]: item["found"]
        for item in read_record(tmp_path / "run" / PREFLIGHT)["findings"]
    }
    assert " in 2 processes" in found["memory needed"]
    tokens = re.match(r"([\d.]+)M tokens in 100,000 steps", found["budget"])
    assert tokens is not None
    last = lines_of(tmp_path / "run")[-1]
    read = last["tokens"] / last["step"] * 100_000 / 1e6
    assert float(tokens[1]) == pytest.approx(read, rel=0.15)
    assert line.startswith(f"bertsmith: rank 1 (pid {pid} on ")
    assert line.endswith(tuple(f") {death}; {LOST}" for death in DEATHS))


@pytest.mark.faults
def test_a_stopped_rank_is_told_and_goes_on(shared: dict[str, str], tmp_path: Path) -> None:
    command = (
        f"pretrain {shared['store']} --out run {SETTINGS} --steps 200 --gradient-accumulation 1"
    )
    with torchrun("-m", "bertsmith", *command.split(), folder=tmp_path) as launched:
        wait_for_step(launched, tmp_path / "run", 3)
        pid = ranks_of(launched, tmp_path)[1]
        os.kill(pid, signal.SIGSTOP)
        silent = (
            f"rank 1 (pid {pid} on {socket.gethostname()}) has sent no heartbeat for 10 seconds"
        )
        began = time.monotonic()
        while silent not in " ".join(launched.output.split()):
            assert time.monotonic() < began + 20, launched.output
            time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        told = " ".join(launched.ended().split())
    assert launched.process.returncode == 0, told
    assert f"kill -CONT {pid}" in told
    assert "is running again" in told


@pytest.mark.faults
def test_two_machines(shared: dict[str, str], tmp_path: Path) -> None:
    """Two launchers that meet at an address, as on two machines."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    options = "--nnodes 2 --nproc-per-node 1 --rdzv-id test --rdzv-backend c10d"
    command = ["-m", "bertsmith", "pretrain", shared["store"], *f"--out run {SETTINGS}".split()]
    options = f"{options} --rdzv-endpoint {address}"
    with (
        torchrun(*command, "--steps", "100000", folder=tmp_path, options=options) as one,
        torchrun(*command, "--steps", "100000", folder=tmp_path, options=options) as two,
    ):
        wait_for_step(one, tmp_path / "run", 2)
        (pid,) = ranks_of(two, tmp_path).values()
        os.kill(pid, signal.SIGKILL)
        told = ours(one.ended()) + ours(two.ended())
    (line,) = told
    assert f"(pid {pid} on " in line
    assert any(death in line for death in DEATHS)


def test_the_page_on_many_machines_can_be_followed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "many-machines.md").read_text(encoding="utf-8")
    found = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    blocks = [block for block in found if "--ray" not in block]
    assert (len(blocks), len(found)) == (5, 6)
    for block in blocks:
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)
        (command,) = re.findall(r"^.*bertsmith pretrain (.*)$", block, re.MULTILINE)
        read_arguments("pretrain", COMMANDS["pretrain"], command.split())
        for options in re.findall(r"torchrun (.*?) -m", block.replace("\\\n", " "), re.DOTALL):
            parse_torchrun_options([*options.replace("$SLURM_NNODES", "2").split(), "script"])
