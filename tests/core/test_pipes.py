from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from bertsmith.core import pipes
from bertsmith.core.pipes import open_file_or_pipe, standard_input_bytes, standard_input_waits
from bertsmith.recipes.predict.texts import standard_input


def test_bytes_are_those_that_were_written(tmp_path: Path) -> None:
    pipe, written = tmp_path / "pipe", os.urandom(3_000_000)
    os.mkfifo(pipe)
    (tmp_path / "file").write_bytes(written)
    writer = threading.Thread(target=pipe.write_bytes, args=(written,))
    writer.start()
    with open_file_or_pipe(pipe) as opened, open_file_or_pipe(tmp_path / "file") as file:
        assert opened.read(1 << 20) == file.read(1 << 20) == written[: 1 << 20]
        assert opened.read() == file.read() == written[1 << 20 :]
    writer.join()


@pytest.mark.parametrize("encoding", [None, "utf-8", "utf-16"])
def test_a_signal_that_another_thread_has_received_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str | None
) -> None:
    """A read in the main thread is not ended by it: nothing is ever written.

    Neither of a file that is named nor, with an encoding, of standard input.
    """
    monkeypatch.setattr(pipes, "_WAIT_MILLISECONDS", 10)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDWR)
    main = threading.get_native_id()

    def interrupt() -> None:
        path = Path(f"/proc/self/task/{main}/stat")
        while path.read_text().rpartition(")")[2].split()[0] != "S":
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def read() -> None:
        thread.start()
        if encoding is None:
            opened.read(1)
        else:
            list(standard_input(encoding))

    thread = threading.Thread(target=interrupt)
    with (
        open_file_or_pipe(tmp_path / "pipe") as opened,
        (tmp_path / "pipe").open("r", encoding="utf-8") as given,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", given)
        with pytest.raises(KeyboardInterrupt):
            read()
    thread.join()
    os.close(end)
    signal.signal(signal.SIGINT, before)


def test_standard_input_stays_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    receiving, sending = os.pipe()
    with os.fdopen(receiving) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        for text in (b"one\n", b"three\n"):
            os.write(sending, text)
            assert standard_input_bytes().readline() == text
        os.close(sending)
        assert standard_input_bytes().read() == b""
    (tmp_path / "file").write_bytes(b"one\ntwo\n")
    with (tmp_path / "file").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert standard_input_bytes().readline() == b"one\n"
        # what is read of a file once is not read again
        assert standard_input_bytes().readline() == b"two\n"


def test_an_end_that_was_typed_ahead_is_left_to_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed while the model was loaded, Ctrl-D was swallowed, and the command seemed to hang."""
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        os.write(keyboard, b"one\n\x04")
        assert standard_input_bytes().readline() == b"one\n"
        assert not standard_input_waits()
        os.write(keyboard, b"two\n")
        assert standard_input_bytes().readline() == b""
        assert standard_input_bytes().readline() == b"two\n"
    os.close(keyboard)
