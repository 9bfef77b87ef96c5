"""Every error a user can meet.

    UserError                 a mistake the user can mend; the command line ends with status 2
    ├── ConfigError           a setting that is unknown, of the wrong type or impossible
    ├── CorpusError           text that cannot be read
    ├── ExampleError          labelled data that cannot be read, or labels that do not fit
    ├── VocabularyError       a vocabulary that cannot be learned or read
    ├── StoreError            a token store that is damaged or made for something else
    ├── ModelFolderError      a folder that is no model, or one that we must not or cannot load
    ├── HubError              a model hub that refuses, or cannot be reached
    ├── RunFolderError        a run folder that is taken, damaged or belongs to another run
    ├── DiskError             the disk is full or cannot be written
    ├── OutOfMemory           there is too little memory for what was asked
    ├── TooManyProcesses      the system starts no more threads or processes
    ├── OutputTaken           another process is writing the same file or folder
    ├── TrainingDiverged      the loss, its gradient or the weights stopped being numbers
    ├── NonFiniteOutputs      a model's outputs for a text are infinite or no numbers
    ├── WorkerDied            a process that works for this one was killed
    ├── RankLost              another process of the same run has ended before its time
    └── MissingExtra          an optional package is not installed

Each says in one line where it happened (file and line), what is wrong, and what to do about it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertsmith.core.printable import printable

# of each part of a message, which may quote text from outside
_MAX_LENGTH = 1000
_NO_PROCESS = os.strerror(errno.EAGAIN)
# a GPU that another program has filled says it with "error"
_ALLOCATION = re.compile(
    r"can't allocate memory|not enough memory|CUDA out of memory|CUDA error: out of memory"
)

_NOT_MAPPED = "failed to map segment"
_NO_TEMPORARY_FOLDER = "No usable temporary directory"


class UserError(ValueError):
    """A mistake the user can mend, reported in one line: ``where:line: problem; remedy``."""

    usual_remedy = ""
    """Default remedy."""

    def __init__(
        self,
        problem: str,
        *,
        where: str | Path | None = None,
        line: int | None = None,
        remedy: str = "",
    ) -> None:
        self.problem = _shown(problem)
        self.where = where
        self.line = line
        self.remedy = _shown(remedy or self.usual_remedy)
        super().__init__(str(self))

    def __str__(self) -> str:
        # a path is shown as it is, blanks included
        location = "" if self.where is None else printable(self.where, _MAX_LENGTH)
        if self.line is not None:
            location += f":{self.line}"
        message = f"{location}: {self.problem}" if location else self.problem
        return f"{message}; {self.remedy}" if self.remedy else message

    def __reduce__(self) -> tuple[Any, ...]:
        """Make it picklable, whatever arguments a subclass takes."""
        return _restored, (type(self), vars(self))

    def reword(self, rewrite: Callable[[str], str]) -> None:
        """Replace the words of the problem and of the remedy."""
        self.problem, self.remedy = rewrite(self.problem), rewrite(self.remedy)
        self.args = (str(self),)


def _restored(kind: type[UserError], fields: dict[str, Any]) -> UserError:
    error = kind.__new__(kind)
    vars(error).update(fields)
    error.args = (str(error),)
    return error


def _shown(text: str) -> str:
    """Return a part of a message as one line: the errors of libraries break theirs anywhere."""
    return printable(" ".join(text[: 2 * _MAX_LENGTH].split()), _MAX_LENGTH)


class ConfigError(UserError):
    """A setting that is unknown, of the wrong type or impossible."""

    usual_remedy = "change that setting"


class CorpusError(UserError):
    """Text that cannot be read."""

    usual_remedy = "check the path"


class ExampleError(UserError):
    """Labelled data that cannot be read, or labels that do not fit."""

    usual_remedy = "check the path"


class BlankText(ExampleError):
    """A row whose text is empty."""


class VocabularyError(UserError):
    """A vocabulary that cannot be learned or read."""

    usual_remedy = "use the vocabulary's own folder, or learn one: bertsmith vocab learn"


class StoreError(UserError):
    """A token store that is damaged or made for something else."""

    usual_remedy = "run `bertsmith prepare` again"


class ModelFolderError(UserError):
    """A folder that is no model, or one that we must not or cannot load."""

    usual_remedy = "name another model folder, or fetch this one again"


class HubError(UserError):
    """A model hub that refuses, or cannot be reached."""

    usual_remedy = "try again later, or name a folder"


class RunFolderError(UserError):
    """A run folder that is taken, damaged or belongs to another run."""


class DiskError(UserError):
    """The disk is full or cannot be written."""


class OutOfMemory(UserError):
    """There is too little memory, of the machine or of a GPU, for what was asked."""

    usual_remedy = (
        "keep fewer tokens in memory at once (smaller batches, shorter sequences, a smaller "
        "model), end other programs, or use a machine with more"
    )


class TooManyProcesses(UserError):
    """The system starts no more threads or processes."""

    usual_remedy = (
        "allow more (ulimit -u, or the limit of the container), or give fewer --workers and "
        "--threads where the command has them"
    )


def out_of_memory(error: BaseException) -> OutOfMemory | None:
    """Return the error for an exception that means too little memory, None for any other."""
    # torch has no separate class for the processor's memory, and is not imported here
    text = str(error)
    if isinstance(error, ImportError) and _NOT_MAPPED in text:
        # the loader of libraries says the same of a disk from which nothing may be run
        return OutOfMemory(
            f"a library cannot be loaded: {text}",
            remedy="allow more memory (ulimit -v), or install bertsmith on a disk that is mounted "
            "without noexec",
        )
    if isinstance(error, MemoryError):
        return OutOfMemory(f"not enough memory{text and f': {text}'}")
    if isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or _ALLOCATION.search(text)
    ):
        match = re.search(r"[Tt]ried to allocate ([\d.]+ ?\w+)", text)
        kind = "GPU memory" if "CUDA" in text else "memory"
        return OutOfMemory(f"not enough {kind}" + (f" for {match[1]} more" if match else ""))
    return None


def too_many_processes(error: BaseException) -> TooManyProcesses | None:
    """Return the error for an exception that means no more threads or processes, else None.

    Also for one that came up while the program cleaned up after it.
    """
    chain: BaseException | None = error
    while chain is not None:
        refused = isinstance(chain, RuntimeError) and str(chain) == "can't start new thread"
        # of a pipe that is full it says something else
        no_process = isinstance(chain, BlockingIOError) and chain.strerror == _NO_PROCESS
        if refused or no_process:
            return TooManyProcesses("the system starts no more threads or processes")
        chain = chain.__cause__ or chain.__context__
    return None


def no_temporary_folder(error: BaseException) -> DiskError | None:
    """Return the error for an exception of `tempfile`, which can write nowhere; else None.

    Torch asks it for a folder when its compiler is imported; matplotlib, which has an error of its
    own for that, where the home folder cannot be written.
    """
    refusal = error.__cause__ if isinstance(error.__cause__, OSError) else error
    text = str(refusal)
    if not isinstance(refusal, FileNotFoundError) or _NO_TEMPORARY_FOLDER not in text:
        return None
    tried = text.rpartition("[")[2].rstrip("]")
    return DiskError(
        f"temporary files can be written to none of {tried}",
        remedy="make room in one of them, or set TMPDIR to a folder that can be written",
    )


class OutputTaken(UserError):
    """Another process is writing the same file or folder."""


class TrainingDiverged(UserError):
    """The loss, its gradient or the weights are no numbers any more."""


class NonFiniteOutputs(UserError):
    """A model's outputs for a text are infinite or no numbers."""

    usual_remedy = (
        "the weights are damaged or their training has diverged; or, with --precision bf16 or "
        "int8, try fp32"
    )

    def __init__(self, *, where: str | Path | None = None, line: int | None = None) -> None:
        text = "a text" if where is None else "this text"
        problem = f"the model's outputs for {text} are not finite numbers"
        super().__init__(problem, where=where, line=line)


class WorkerDied(UserError):
    """A process that works for this one was killed."""


class RankLost(UserError):
    """Another process of the same run has ended before its time."""

    usual_remedy = "give the same command again: it resumes from what is saved"


class MissingExtra(UserError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}",
            remedy=f"install it with: pip install 'bertsmith[{extra}]'",
        )
