"""The command ``bertsmith``: finds the verb, runs it, and tells in one line what went wrong.

0     done
2     a mistake of the user's, told in one line on standard error
130   interrupted by Ctrl-C
143   ended by a request to terminate
141   whoever read the output has closed it
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from bertsmith import __doc__ as promise
from bertsmith import __version__
from bertsmith.clock import command_from, process_start
from bertsmith.command import Verb, help_page, read_arguments
from bertsmith.disk import disk_error, refused_by_disk, writing
from bertsmith.errors import ConfigError, DiskError, UserError
from bertsmith.verbs import VERBS

_OUTPUT = "standard output"


def main(arguments: Sequence[str] | None = None, verbs: Mapping[str, Verb] = VERBS) -> int:
    """Run the command line; returns the exit status, and raises only what is a bug of ours."""
    # called with arguments of its own, the process may have done other things before
    began = process_start() if arguments is None else time.monotonic()
    try:
        with _termination_as_interrupt(), command_from(began):
            status = _run(list(sys.argv[1:] if arguments is None else arguments), verbs)
            with writing(_OUTPUT, then="give the same command again"):
                sys.stdout.flush()
    except UserError as error:
        return _complain(error)
    except KeyboardInterrupt as interruption:
        print(f"bertsmith: {str(interruption) or 'interrupted'}", file=sys.stderr)
        return 143 if isinstance(interruption, _Terminated) else 130
    except BrokenPipeError:
        # else the interpreter would complain when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if not refused_by_disk(error):
            raise
        # whether it was to be read or written, nobody knows here
        remedy = disk_error(error, None).remedy
        return _complain(DiskError(str(error.strerror), where=error.filename, remedy=remedy))
    return status


class _Terminated(KeyboardInterrupt):
    """The program was asked to end: it tidies up as after Ctrl-C."""

    def __init__(self) -> None:
        super().__init__("terminated")


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(arguments: list[str], verbs: Mapping[str, Verb]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_page(verbs, promise or ""), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"bertsmith {__version__}")
        return 0
    for name, verb in verbs.items():
        words = name.split()
        if arguments[: len(words)] == words:
            verb.function(**read_arguments(name, verb, arguments[len(words) :]))
            return 0
    meant = [name for name in verbs if name.split()[0] == arguments[0]] or verbs
    raise ConfigError(f"there is no verb {arguments[0]!r}", remedy=f"there is: {', '.join(meant)}")


def _complain(error: UserError) -> int:
    print(f"bertsmith: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
