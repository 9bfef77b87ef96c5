"""A preparation that was killed goes on, and the store is that of one that never was.

`dying.py` ends the command without warning at a moment of its work with the disk.
"""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import forking
from faults.dying import FORK_POOLS
from faults.test_interruptions import started
from invented import invented_documents

DYING = (sys.executable, str(Path(__file__).with_name("dying.py")))
NEVER = 10**9


@dataclass(frozen=True)
class Corpus:
    """A corpus, the command that prepares it, the store, and its moments when all goes well."""

    folder: Path
    vocabulary: str
    store: dict[str, bytes]
    moments: int

    def command(self, out: Path, workers: int) -> list[str]:
        return _command(self.folder, self.vocabulary, out, workers)


def _command(folder: Path, vocabulary: str, out: Path, workers: int) -> list[str]:
    options = f"--vocab {vocabulary} --out {out} --workers {workers} --layout documents"
    return ["prepare", str(folder), *options.split()]


def run(moment: int, command: list[str]) -> subprocess.CompletedProcess[str]:
    return forking.run([*DYING, str(moment), *command])


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def moments(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.fixture(scope="module")
def corpus(shared: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Three files, 60 KB each: plain, gzip and rows; some documents are in two of them."""
    folder = tmp_path_factory.mktemp("corpus")
    documents = invented_documents(150)
    texts = ["\n".join(document.paragraphs) for document in documents]
    (folder / "a.txt").write_text("\n\n".join(texts[:60]), encoding="utf-8")
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n\n".join(texts[50:110]).encode()))
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts[100:])
    (folder / "c.jsonl").write_text(rows, encoding="utf-8")
    out = tmp_path_factory.mktemp("whole") / "store"
    done = run(NEVER, _command(folder, shared["vocab"], out, 1))
    assert "20 duplicates left out" in done.stderr
    store = contents(out)
    assert len([name for name in store if name.startswith("tokens-")]) > 3
    return Corpus(folder=folder, vocabulary=shared["vocab"], store=store, moments=moments(done))


def killed(corpus: Corpus, out: Path, workers: int, moment: int) -> bool:
    """Whether the command was killed; else it has come to its end."""
    done = run(moment, corpus.command(out, workers))
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert (done.returncode == 0) == (moment > 0 and out.exists() and "next:" in done.stderr)
    return done.returncode != 0


@pytest.mark.parametrize(
    "workers",
    [pytest.param(1, marks=pytest.mark.faults), 2, pytest.param(3, marks=pytest.mark.faults)],
)
def test_killed_three_times(corpus: Corpus, tmp_path: Path, workers: int) -> None:
    out = tmp_path / "store"
    for share in (0.4, 0.25, 0.1):
        assert killed(corpus, out, workers, int(share * corpus.moments))
        assert not out.exists()
    done = run(NEVER, corpus.command(out, workers))
    assert "% is done" in done.stderr
    # what came after the last line of the journal is done twice; on a slow disk a line more at each
    # death, as it is written while work goes on
    assert moments(done) < 0.6 * corpus.moments
    assert contents(out) == corpus.store
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(("left", "kept"), [(1, False), (4, True)])
def test_killed_at_the_very_end(corpus: Corpus, tmp_path: Path, left: int, kept: bool) -> None:
    out = tmp_path / "store"
    assert killed(corpus, out, 1, corpus.moments - left + 1)
    # the last moment is the removal of what is no longer needed
    assert out.exists() != kept
    if kept:
        assert moments(run(NEVER, corpus.command(out, 1))) < 0.2 * corpus.moments
    assert contents(out) == corpus.store


@pytest.mark.faults
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_many_moments(
    corpus: Corpus, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORK_POOLS, "1")
    # now and then while sections are written, and at every moment of the end
    most, last = corpus.moments, 40
    for moment in (*range(1, most - last, 9), *range(most - last, most + 1)):
        out = tmp_path / str(moment) / "store"
        killed(corpus, out, workers, moment)
        if not out.exists():
            moments(run(NEVER, corpus.command(out, 3 - workers)))
        assert contents(out) == corpus.store


@pytest.mark.parametrize(
    ("number", "status", "said", "workers"),
    [(signal.SIGINT, 130, "interrupted", 1), (signal.SIGTERM, 143, "terminated", 2)],
)
def test_an_interruption_tells_what_is_kept(
    corpus: Corpus, tmp_path: Path, number: signal.Signals, status: int, said: str, workers: int
) -> None:
    out = tmp_path / "made" / "store"
    command = corpus.command(out, workers)
    moment = f"{corpus.moments // 2}:{number.value}"
    with started(moment, *command, place=tmp_path, program=DYING) as process:
        _, told = process.communicate(timeout=300)
    assert process.returncode == status
    first, _, last = told.splitlines()[-1].partition(" % is done and kept in ")
    assert first.startswith(f"bertsmith: {said}; ")
    assert 0 < float(first.split()[-1]) < 100
    kept = out.with_name("store.partial") / "journal.jsonl"
    assert last == f"{kept.parent}: give the same command again to resume"
    assert kept.exists()
    assert not out.exists()
    done = run(NEVER, command)
    assert done.returncode == 0
    assert f"resuming {kept.parent}: {first.split()[-1]} % is done" in done.stderr
    assert contents(out) == corpus.store
