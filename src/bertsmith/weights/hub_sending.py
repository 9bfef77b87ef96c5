"""Bringing a model folder to the hub, as one commit."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bertsmith.errors import HubError
from bertsmith.log import progress
from bertsmith.weights.hub_client import hub_api, talking
from bertsmith.weights.hub_files import of_a_model


def send(
    folder: Path,
    files: Sequence[str],
    repository: str,
    *,
    private: bool,
    revision: str | None,
    message: str,
) -> str:
    """Make one commit of the files, in a repository and a branch made where there are none yet.

    Files of an earlier model that this one has not are deleted: they would be read with it.
    Returns the commit's address. Raises `HubError`, before anything is sent if `private` is asked
    for and the repository is public.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    api, total = hub_api(), sum((folder / name).stat().st_size for name in files)
    with (
        talking(repository),
        progress(f"sending to {repository}", total, "B") as bar,
        ExitStack() as opened,
    ):
        api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise HubError(
                "is there already, and public",
                where=repository,
                remedy="make it private on its page, choose another name, or leave --private out",
            )
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        there = api.list_repo_files(repository, revision=revision)
        stale = [name for name in there if of_a_model(name) and name not in files]
        # hashed here, sent below
        sent = [opened.enter_context(_Counted(folder / name)) for name in files]
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(name, file) for name, file in zip(files, sent, strict=True)
        ]
        operations += [CommitOperationDelete(name) for name in stale]
        for file in sent:
            file.moved = bar.advance
        made = api.create_commit(repository, operations, commit_message=message, revision=revision)
    return str(made.commit_url)


class _Counted(io.BufferedReader):
    """A file that tells how much of it is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.moved: Callable[[float], None] | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        """Bytes, counted."""
        block = super().read(size)
        if self.moved is not None:
            self.moved(len(block))
        return block
