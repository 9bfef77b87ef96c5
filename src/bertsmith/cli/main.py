"""The command ``bertsmith``: finds the verb, runs it, and reports an error in one line.

0     done
1     a fault of ours: the traceback, and a request to report it
2     a user error, in one line on standard error; too little memory, too few processes, a full disk
130   interrupted by Ctrl-C
141   the reader of the output has closed it
143   ended by a request to terminate (SIGTERM), or by a terminal that hung up (SIGHUP)

These hold for every verb, also where what was begun is saved and can go on. Standard error that is
closed, full or read by nobody any more ends nothing.
"""

from __future__ import annotations

import difflib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType

import bertsmith
from bertsmith.cli.command import Command, help_page, read_arguments
from bertsmith.cli.commands import COMMANDS
from bertsmith.core import VERSION
from bertsmith.core.clock import command_from, process_start
from bertsmith.core.errors import (
    ConfigError,
    DiskError,
    UserError,
    no_temporary_folder,
    out_of_memory,
    too_many_processes,
)
from bertsmith.core.files import disk_error, refused_by_disk
from bertsmith.core.log import print_error, say
from bertsmith.core.options import docstring
from bertsmith.core.output import discard_lost_streams, flush, open_closed_streams, print_line
from bertsmith.core.processors import threads_are_set, usable_processors
from bertsmith.core.signals import ending_at_once, ending_status, termination_as_interrupt

_REPORT = (
    "this is a bug in bertsmith itself: please report it, with the lines above and the command"
)


def main(arguments: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    """Run the command line, and return the exit status.

    Without `arguments` it is the program: it takes those of the process, and shows a bug itself.
    Raises only what is a bug of ours.
    """
    # called with arguments of its own, the process may have done other things before
    program = arguments is None
    started = process_start() if program else time.monotonic()
    if arguments is None:
        open_closed_streams()
        sys.excepthook = _show_bug
        # of scikit-learn where the system has no semaphores: no process is started by it here
        warnings.filterwarnings("ignore", message=".*joblib will operate in serial mode")
        arguments = sys.argv[1:]
    try:
        with termination_as_interrupt(), command_from(started):
            return _run_to_status(list(arguments), commands, program=program)
    finally:
        discard_lost_streams()


def _run_to_status(arguments: list[str], commands: Mapping[str, Command], *, program: bool) -> int:
    """Run a verb; whatever ends it that is no bug becomes a line and a status."""
    try:
        try:
            status = _run(arguments, commands, program=program)
        except SystemExit:
            # --help
            flush()
            raise
        flush()
    except UserError as error:
        return _print_user_error(error)
    except KeyboardInterrupt as interruption:
        return _interruption_status(interruption)
    except BrokenPipeError:
        return 141
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not _has_working_folder():
            return _print_user_error(_no_working_folder())
        if isinstance(error, OSError) and refused_by_disk(error):
            return _print_user_error(disk_error(error, None))
        shortage = out_of_memory(error) or too_many_processes(error) or no_temporary_folder(error)
        if shortage is not None:
            return _print_user_error(shortage)
        if (request := _interruption_before(error)) is not None:
            return _interruption_status(request)
        raise
    return status


def _run(arguments: list[str], commands: Mapping[str, Command], *, program: bool) -> int:
    if arguments[:1] == ["help"] and arguments[1:]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        return _print_help(commands, print_line if arguments else say)
    if arguments[0] == "--version":
        print_line(f"bertsmith {VERSION}")
        return 0
    for name, command in commands.items():
        words = name.split()
        if arguments[: len(words)] == words:
            rest = arguments[len(words) :]
            config = read_arguments(name, command, rest)
            # without one, a library in another language ends the process, and blames itself
            if not _has_working_folder():
                raise _no_working_folder()
            with ending_at_once() if program else nullcontext():
                recipe = command.recipe()
            if program:
                _limit_threads()
            recipe(config)
            return 0
    group = {name: each for name, each in commands.items() if name.split()[0] == arguments[0]}
    if group and not {"-h", "--help"}.isdisjoint(arguments):
        return _print_help(group, print_line)
    raise _unknown_verb(arguments, commands)


def _print_help(commands: Mapping[str, Command], write: Callable[[str], None]) -> int:
    """Print the page of these verbs, and return the status: 2 where no help was asked for."""
    for line in help_page(commands, docstring(bertsmith).partition("\n")[0]).split("\n"):
        write(line)
    return 0 if write is print_line else 2


def _limit_threads() -> None:
    """Give torch no more threads than this process may use processors, unless the user did.

    Torch knows the processors of the machine, but not the share of a container in their time, and
    threads that wait for one another would use that up.
    """
    torch = sys.modules.get("torch")
    if torch is None or threads_are_set():
        return
    if torch.get_num_threads() > usable_processors():
        torch.set_num_threads(usable_processors())


def _unknown_verb(arguments: list[str], verbs: Collection[str]) -> ConfigError:
    """Return the error for a verb that does not exist, with the one that may be meant."""
    candidates = [name for name in verbs if name.split()[0] == arguments[0]]
    close = difflib.get_close_matches(" ".join(arguments[:2]), verbs, n=1)
    close += difflib.get_close_matches(arguments[0], [*verbs, "--help", "--version"], n=1)
    remedy = f"the verbs are: {', '.join(candidates or verbs)}"
    if close and not candidates:
        remedy = f"did you mean {close[0]}?"
    return ConfigError(f"there is no verb {arguments[0]!r}", remedy=remedy)


def _has_working_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _no_working_folder() -> DiskError:
    return DiskError("has been deleted", where="the working folder", remedy="cd to another one")


def _interruption_before(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interruption after which an error came up, as it does where torch cleans up."""
    context = error.__context__
    while context is not None and not isinstance(context, KeyboardInterrupt):
        context = context.__context__
    return context


def _interruption_status(interruption: KeyboardInterrupt) -> int:
    # an interruption in code that was a string, as dataclasses' own, would have Python end by the
    # signal; the next such code resets that
    exec("")
    print_error(str(interruption) or "interrupted")
    return ending_status()


def _print_user_error(error: UserError) -> int:
    print_error(str(error))
    return 2


def _show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected exception, and what to do about it."""
    for part in traceback.format_exception(kind, error, trace):
        for line in part.removesuffix("\n").split("\n"):
            say(line)
    print_error(_REPORT)


if __name__ == "__main__":
    sys.exit(main())
