from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith.core.errors import CorpusError, DiskError, StoreError
from bertsmith.store.preparing import prepare_corpus, prepare_store
from bertsmith.store.store import StoreIndex
from bertsmith.store.unfinished import Journal, unfinished_store
from bertsmith.text.corpus.documents import Document
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.corpus.sections import Position
from bertsmith.tokens.tokenizer import Tokenizer
from invented import invented_documents

Prepare = Callable[..., StoreIndex]
READING = ("text_column", "header", "layout", "encoding", "text_files", "markup_files")
"""Options of a corpus."""


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few documents a group, and a line in the journal every other group."""
    monkeypatch.setattr("bertsmith.text.corpus.sections.SECTION_BYTES", 5_000)
    monkeypatch.setattr("bertsmith.store.preparing.GROUP_BYTES", 5_000)
    monkeypatch.setattr("bertsmith.store.unfinished.COMMIT_GROUPS", 2)


def write(path: Path, documents: list[Document]) -> None:
    text = "\n\n".join("\n".join(document.paragraphs) for document in documents)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Three files of twenty documents; the last has some of the first's."""
    folder = tmp_path / "books"
    folder.mkdir()
    documents = invented_documents(55)
    write(folder / "a.txt", documents[:20])
    write(folder / "b.txt", documents[20:40])
    write(folder / "c.txt", documents[40:] + documents[:5])
    return folder


@pytest.fixture
def prepare(books: Path, tokenizer: Tokenizer, folder: Path) -> Prepare:
    def run(place: Path = folder, **options: object) -> StoreIndex:
        reading: dict[str, object] = {"layout": "documents"}
        reading |= {name: options.pop(name) for name in READING if name in options}
        corpus = Corpus([books], **reading)  # type: ignore[arg-type]
        vocabulary = options.pop("vocabulary", tokenizer)
        return prepare_corpus(corpus, vocabulary, place, **options)  # type: ignore[arg-type]

    return run


def after(groups: int, error: BaseException) -> Callable[[Position], None]:
    """Raises the error once so many groups are written."""
    left = [groups]

    def moved(position: Position) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise error

    return moved


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def partial(folder: Path) -> Path:
    return folder.with_name("store.partial")


def test_names_are_on_the_disk_before_progress_is_noted(
    prepare: Prepare, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with pytest.raises(KeyboardInterrupt):
        prepare(moved=after(9, KeyboardInterrupt()))
    place = partial(folder)
    # the first line is the source, the second the first progress
    first, second = [n for n, path in enumerate(flushed) if path == place / "journal.jsonl"][:2]
    assert {place.parent, place, place / "store"} <= set(flushed[first:second])


@pytest.mark.parametrize("groups", [1, 2, 3, 9])
def test_an_interruption_says_how_to_go_on(
    prepare: Prepare, folder: Path, tmp_path: Path, groups: int, capsys: pytest.CaptureFixture[str]
) -> None:
    index = prepare(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt) as caught:
        prepare(moved=after(groups, KeyboardInterrupt("terminated")))
    assert not folder.exists()
    done, _, where = str(caught.value).removeprefix("terminated; ").partition(" % is done and ")
    assert 0 < int(done) < 100
    assert where == f"kept in {partial(folder)}: give the same command again to resume"
    positions: list[int] = []
    capsys.readouterr()
    assert prepare(moved=lambda position: positions.append(position.read)) == index
    assert capsys.readouterr().err == f"resuming {partial(folder)}: {done} % is done\n"
    assert contents(folder) == contents(tmp_path / "whole")
    assert not partial(folder).exists()
    total = Corpus([tmp_path / "books"]).total_bytes
    # what was done is not done again
    assert f"{100 * positions[0] / total:.0f}" == done
    assert positions == sorted(positions)


def test_progress_that_cannot_be_saved_ends_the_work(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread saves: what its first call, one between or its very last one meets is raised."""
    fsync, calls, refused = os.fsync, 0, 0

    def synced(handle: int) -> None:
        nonlocal calls
        if threading.current_thread() is not threading.main_thread():
            calls += 1
            if calls == refused:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    prepare(tmp_path / "whole")
    last = calls
    assert last > 40
    for refused in (1, 25, last):
        calls, place = 0, tmp_path / f"store{refused}"
        with pytest.raises(DiskError, match=r"No space left on device.*it resumes at \d+ %"):
            prepare(place)
        assert not place.exists()
        prepare(place)
        assert contents(place) == contents(tmp_path / "whole")


def test_interruptions_one_after_the_other(prepare: Prepare, folder: Path, tmp_path: Path) -> None:
    prepare(tmp_path / "whole")
    times = 0
    while not folder.exists():
        try:
            prepare(moved=after(3, KeyboardInterrupt()))
        except KeyboardInterrupt:
            times += 1
    assert times > 4
    assert contents(folder) == contents(tmp_path / "whole")


def test_an_interruption_before_anything_was_done_leaves_nothing(
    prepare: Prepare, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bertsmith.store.preparing.GroupEncoder.__call__", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        prepare(workers=1)
    assert str(caught.value) == ""
    assert [path.name for path in folder.parent.iterdir()] == ["books"]


def interrupt(prepare: Prepare, groups: int = 5, **options: object) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare(moved=after(groups, KeyboardInterrupt()), **options)


def test_another_source_is_refused_and_the_old_one_kept(
    prepare: Prepare,
    folder: Path,
    books: Path,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupt(prepare)
    before = contents(partial(folder))
    other = Tokenizer([*tokenizer.vocabulary, "##xyz"], tokenizer.rules)
    for options, told in (
        ({"vocabulary": other}, "was begun with another vocabulary"),
        ({"held_out": 0.5}, "was begun with another --held-out"),
        ({"layout": "prose"}, "was begun with another --layout"),
        ({"text_column": "body"}, "was begun with another --text-column"),
        ({"header": "no"}, "was begun with another --header"),
        ({"encoding": "cp1252"}, "was begun with another --encoding"),
        ({"text_files": ("*.log",)}, "was begun with another --text-files"),
        ({"markup_files": ("*.page",)}, "was begun with another --markup-files"),
    ):
        with pytest.raises(StoreError, match=rf"store\.partial: an unf.* {told}; .*--fresh"):
            prepare(**options)
    with monkeypatch.context() as later:
        later.setattr("bertsmith.store.preparing.VERSION", "999")
        with pytest.raises(StoreError, match=r"with another version of bertsmith; .*--fresh"):
            prepare()
    os.utime(books / "a.txt", (1, 1))
    with pytest.raises(StoreError, match=r"other text, or this has changed since; .*--fresh"):
        prepare()
    assert contents(partial(folder)) == before
    with pytest.raises(StoreError, match=r"was begun with other text; .*--fresh"):
        prepare_store(invented_documents(3), tokenizer, folder)
    assert contents(partial(folder)) == before


def test_fresh_begins_anew(
    prepare: Prepare, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path / "whole", held_out=0.4)
    interrupt(prepare)
    capsys.readouterr()
    prepare(held_out=0.4, fresh=True)
    assert capsys.readouterr().err == ""
    assert contents(folder) == contents(tmp_path / "whole")


def test_text_that_was_not_reached_may_change(
    prepare: Prepare, folder: Path, tmp_path: Path, books: Path
) -> None:
    interrupt(prepare, 7)
    found = Journal(partial(folder) / "journal.jsonl").progress
    assert found is not None
    assert found.position.file == 1
    write(books / "c.txt", invented_documents(30, seed=7))
    write(books / "d.txt", invented_documents(30, seed=8))
    places: list[Position] = []
    prepare(moved=places.append)
    assert places[0] == found.position
    prepare(tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_what_a_changed_file_gave_is_done_again(
    prepare: Prepare, folder: Path, tmp_path: Path, books: Path
) -> None:
    interrupt(prepare, 9)
    write(books / "b.txt", invented_documents(30, seed=7))
    prepare(tmp_path / "whole")
    places: list[Position] = []
    noted: list[Position] = []

    def moved(position: Position) -> None:
        if not places:
            path = partial(folder) / "journal.jsonl"
            progress = Journal(path).progress
            assert progress is not None
            noted.append(progress.position)
            # nothing of the longer one is left behind it
            for line in path.read_bytes().splitlines():
                checksum, _, text = line.partition(b" ")
                assert int(checksum, 16) == zlib.crc32(text)
        places.append(position)

    prepare(moved=moved)
    assert places[0].file == 0
    # a process killed now would leave no more than what is still true
    assert noted == places[:1]
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_bad_file_can_be_mended_and_gone_on_with(
    prepare: Prepare,
    folder: Path,
    tmp_path: Path,
    books: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = (books / "c.txt").read_bytes()
    (books / "c.txt").write_bytes(good + b"\xff")
    with pytest.raises(CorpusError, match=r"c\.txt:\d+: is not UTF-8"):
        prepare()
    told = capsys.readouterr().err
    assert told.endswith(
        f" % is done and kept in {partial(folder)}: the same command resumes from there\n"
    )
    (books / "c.txt").write_bytes(good)
    places: list[Position] = []
    prepare(moved=places.append)
    assert places[0].file == 1
    prepare(tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["torn", "flipped", "gone"])
def test_a_journal_is_believed_up_to_its_first_bad_line(
    prepare: Prepare, folder: Path, tmp_path: Path, damage: str
) -> None:
    prepare(tmp_path / "whole")
    interrupt(prepare, 9)
    path = partial(folder) / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 4
    checksum, _, text = lines[-1].partition(b" ")
    # a digit of the progress, so that the line is still JSON
    flipped = b" ".join([checksum, text.replace(b"1", b"2", 1)])
    last = {"torn": lines[-1][:-9], "flipped": flipped, "gone": b""}
    path.write_bytes(b"".join(lines[:-1]) + last[damage])
    wanted = json.loads(lines[-2].partition(b" ")[2])["progress"]["position"]
    places: list[Position] = []
    prepare(moved=places.append)
    assert places[0].to_dict() == wanted
    assert places[1].read > places[0].read
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_journal_of_another_version(prepare: Prepare, folder: Path) -> None:
    interrupt(prepare)
    path = partial(folder) / "journal.jsonl"
    text = b'{"strange": 1}'
    path.write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    with pytest.raises(StoreError, match=r"by another version of bertsmith; .*--fresh"):
        prepare()
    prepare(fresh=True)


def test_files_that_lost_something_are_told(prepare: Prepare, folder: Path) -> None:
    interrupt(prepare)
    path = partial(folder) / "store" / "sentences.bin"
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    with pytest.raises(StoreError, match=r"sentences\.bin: is shorter than it was; .*--fresh"):
        prepare()
    path.write_bytes(data)
    prepare()


def test_one_process_at_a_time(prepare: Prepare, folder: Path) -> None:
    def second() -> None:
        with unfinished_store(folder, None, total=1) as work:
            (work.store / "mine").touch()
            try:
                prepare(fresh=True)
            finally:
                assert (work.store / "mine").exists()

    with pytest.raises(StoreError, match=r"store: is in use by process .*; wait"):
        second()


def test_a_folder_of_somebody_else_s_is_not_touched(prepare: Prepare, folder: Path) -> None:
    partial(folder).mkdir()
    (partial(folder) / "thesis.txt").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(StoreError, match=r"holds thesis\.txt and is not an unfinished store"):
            prepare(fresh=fresh)
    assert (partial(folder) / "thesis.txt").read_text() == "mine"


def test_of_a_pipe_nothing_is_kept(tokenizer: Tokenizer, folder: Path, tmp_path: Path) -> None:
    def failing() -> object:
        yield from invented_documents(40)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        prepare_store(failing(), tokenizer, folder)  # type: ignore[arg-type]
    assert str(caught.value) == ""
    assert list(tmp_path.iterdir()) == []
