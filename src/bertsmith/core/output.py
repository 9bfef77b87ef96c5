"""Standard output, which carries answers, and the three standard streams as the caller left them.

Answers that cannot be written end the program: a part must not be taken for the whole.
What goes wrong on standard error ends nothing (`log`).
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any

from rich.console import Console

from bertsmith.core.errors import DiskError
from bertsmith.core.files import writing
from bertsmith.core.log import Table
from bertsmith.core.printable import json_text, printable

_OUTPUT = "standard output"
_REPEAT = "give the same command again"
_IN_UTF8 = "set PYTHONIOENCODING=utf-8, or use --format jsonl, which escapes such letters"
_SURROGATES = re.compile("[\ud800-\udfff]")
# an escape such as \\U000e0001 has ten characters
_MAX_ESCAPE = 10


def print_line(line: str, *, exact: bool = False) -> None:
    """Write a line of an answer, printable; what the encoding lacks becomes a question mark.

    With `exact`, for a program that reads it, it is made printable on a terminal alone, and letters
    that the encoding lacks are an error. Raises `DiskError` for these and when standard
    output is closed or full, `BrokenPipeError` when its reader has gone.
    """
    terminal = sys.stdout.isatty()
    if not exact or terminal:
        line = _shown(line)
    encoding = sys.stdout.encoding or "utf-8"
    if exact and not terminal:
        _check_encodable(line, encoding)
    with _written():
        sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")


def prints_exactly(line: str) -> bool:
    """Return whether `print_line` writes a line as it is, letter by letter."""
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return _shown(line) == line


def _shown(line: str) -> str:
    """Return a line of any length as it can be printed."""
    return printable(line, _MAX_ESCAPE * len(line))


def _check_encodable(line: str, encoding: str) -> None:
    """Raise `DiskError` for a letter that an encoding lacks."""
    try:
        # lone surrogates are letters of no encoding
        _SURROGATES.sub("?", line).encode(encoding)
    except UnicodeEncodeError as error:
        letter = error.object[error.start]
        problem = f"is in {encoding} here, which lacks U+{ord(letter):04X} {letter}"
        raise DiskError(problem, where=_OUTPUT, remedy=_IN_UTF8) from error


def print_json(content: Mapping[str, Any] | Sequence[Any], *, readable: bool = False) -> None:
    """Write a value as one line of JSON: in ASCII, or `readable`, with letters as they are.

    Numbers that JSON cannot write become null. Raises as `print_line`.
    """
    try:
        line = json_text(content)
    except ValueError:
        content = _finite(content)
        line = json_text(content)
    with _written():
        try:
            line.encode(sys.stdout.encoding or "utf-8" if readable else "ascii")
        except UnicodeEncodeError:
            line = json.dumps(content, default=str).replace("\x7f", "\\u007f")
        sys.stdout.write(line + "\n")


def _finite(value: Any) -> Any:  # noqa: ANN401
    """Return JSON values with null for numbers that JSON cannot write."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(table: Table) -> None:
    """Write a table; what the encoding lacks becomes a question mark, and lines ASCII.

    Raises as `print_line`.
    """
    # rendered first: rich itself ends the program when the reader has gone
    encoding = sys.stdout.encoding or "utf-8"
    buffer = io.BytesIO()
    rendered = io.TextIOWrapper(buffer, encoding, errors="replace", newline="\n")
    terminal = sys.stdout.isatty()
    width = max(shutil.get_terminal_size().columns, table.least_width())
    console = Console(
        file=rendered, force_terminal=terminal, force_jupyter=False, width=width, markup=False
    )
    console.print(table)
    rendered.flush()
    with _written():
        sys.stdout.write(buffer.getvalue().decode(encoding))


def flush() -> None:
    """Hand on what was written; raises as `print_line`."""
    with _written():
        sys.stdout.flush()


@contextmanager
def output_of_this_thread() -> Iterator[None]:
    """Redirect the output of other threads to standard error, so that it is not amid the answers.

    A library's thread may print what it likes.
    """
    with redirect_stdout(_OneThread(sys.stdout, sys.stderr)):
        yield


class _OneThread(io.TextIOBase):
    """Standard output for the thread that made this, standard error for all others."""

    def __init__(self, output: Any, others: Any) -> None:  # noqa: ANN401
        self._output, self._others = output, others
        self._thread = threading.get_ident()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of standard output."""
        return str(self._output.encoding)

    def write(self, text: str) -> int:
        """Write text; returns its length."""
        is_own_thread = threading.get_ident() == self._thread
        return int((self._output if is_own_thread else self._others).write(text))

    def flush(self) -> None:
        """Hand on what was written."""
        self._output.flush()

    def isatty(self) -> bool:
        """Return whether standard output is a terminal."""
        return bool(self._output.isatty())

    def fileno(self) -> int:
        """Return the descriptor of standard output."""
        return int(self._output.fileno())


@contextmanager
def _written() -> Iterator[None]:
    try:
        with writing(_OUTPUT, then=_REPEAT):
            yield
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        raise DiskError("is closed", where=_OUTPUT, remedy=f"open it, then {_REPEAT}") from error


def open_closed_streams() -> None:
    """Open on the null device what the caller closed of standard input, output and error.

    Else the next file opened would get the descriptor, and with it the lines meant for a terminal.
    Input and output are opened the wrong way round, so that using them is an error, as it should
    be; standard error swallows what it is given.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, flags)
            # always so where those before are open; what it is given for, processes inherit
            assert handle == number
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def end_process(status: int) -> None:
    """End the process at once, without freeing what its modules hold; return if output is lost.

    With libraries such as torch that takes half a second.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def discard_lost_streams() -> None:
    """Discard output that cannot be written, so that the interpreter does not try again at its end.

    It would print an error, and end with a status of its own.
    """
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                if stream.fileno() == number:
                    null = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(null, number)
                    os.close(null)
