"""torchrun whose processes need not import torch, as it is forked, and so are they.

    python -m faults.forked_torchrun OPTIONS COMMAND...

The number of each process is in a file `launched-RANK` in the working folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults.own_server import fork_own_server
from forking import Forked
from launching import STANDALONE, TESTS, Launched, launched


@contextmanager
def forked_torchrun(*command: str, folder: Path) -> Iterator[Launched]:
    """A command in two processes, on a port that the system picks."""
    paths = [str(TESTS.parent / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    module = ["faults.forked_torchrun", *STANDALONE.split(), *command]
    with launched(Forked, *module, folder=folder, environment=environment) as result:
        yield result


def _popen(args: Sequence[str], env: Mapping[str, str], **options: Any) -> Forked[bytes]:  # noqa: ANN401
    """Fork a rank; libraries have been loaded with the variables that torchrun adds."""
    assert args[1] == "-u"
    added = {name: value for name, value in env.items() if name.startswith(("TORCH_", "PYTHON_"))}
    environment = {name: value for name, value in env.items() if name not in added}
    started = Forked[bytes]([args[0], *args[2:]], env=environment, **options)
    Path(f"launched-{env['RANK']}").write_text(str(started.pid))
    return started


def main() -> None:
    """Run torchrun."""
    with tempfile.TemporaryDirectory() as folder:
        end = fork_own_server(Path(folder))
        from torch.distributed import run
        from torch.distributed.elastic.multiprocessing.subprocess_handler import (
            subprocess_handler as handler,
        )

        # asked to end, it would kill processes that a busy machine keeps for half a minute
        os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "300"
        setattr(handler, "Popen", _popen)  # noqa: B010
        try:
            run.main(sys.argv[1:])
        finally:
            end()


if __name__ == "__main__":
    main()
