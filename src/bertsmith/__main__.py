"""The program: ``bertsmith``, ``python -m bertsmith``, and what ``torchrun -m bertsmith`` starts.

Importing the command line takes a tenth of a second, in which Ctrl-C ends as it does later on.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# bertsmith.core.signals is not imported yet when this is needed
INTERRUPTED = 130
"""Exit status after Ctrl-C."""

# systems without terminals have no signal of one that hangs up
_ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
_DEFAULT = (signal.default_int_handler, signal.SIG_DFL)


def main() -> int:
    """Run the command line with the arguments of the process, and return the exit status."""
    handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    status = INTERRUPTED
    ended = False

    def leave() -> None:
        if ended:
            from bertsmith.core.output import end_process

            end_process(status)

    if not atexit._ncallbacks():
        # called last; what measures the process, as coverage does, would be called after it
        atexit.register(leave)
    # those that are ignored, as below nohup, stay so
    ending = [number for number in _ENDING if signal.getsignal(number) in _DEFAULT]
    if handles:
        signal.signal(signal.SIGINT, _end)
    for number in ending:
        # the first that is registered is called last; what comes then is the end of libraries
        atexit.register(signal.signal, number, signal.SIG_IGN)
    try:
        from bertsmith.cli.main import main as run

        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run()
        ended = True
    except KeyboardInterrupt:
        _end()
    finally:
        for number in ending:
            # all is said: while Python shuts down, a signal changes neither output nor status
            signal.signal(number, lambda *_: os._exit(status))
    return status


def _end(*_: object) -> NoReturn:
    """End at once, as nothing has begun yet that would have to be cleaned up."""
    try:
        os.write(2, b"bertsmith: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
