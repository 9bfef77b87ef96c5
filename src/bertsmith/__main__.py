"""The program: ``bertsmith``, ``python -m bertsmith``, and what ``torchrun -m bertsmith`` starts.

Importing the command line takes a tenth of a second, in which Ctrl-C ends as it does later on.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> int:
    """Run the command line with the arguments of the process, and return the exit status."""
    handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles:
        signal.signal(signal.SIGINT, _end)
    try:
        from bertsmith.cli.main import main as run

        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        _end()
    finally:
        if handles:
            # nothing is left to say: what comes now ends the program without a traceback
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(*_: object) -> NoReturn:
    """End at once, as nothing has begun yet that would have to be cleaned up."""
    try:
        os.write(2, b"bertsmith: interrupted\n")
    finally:
        os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
