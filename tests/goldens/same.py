"""Losses of the working tree against those of an earlier revision, bit for bit, on this machine.

    python tests/goldens/same.py [REVISION] [--cells PATTERN]

checks the revision (HEAD~1) out into a temporary worktree, compiles its native kernels, and trains
the cells of `losses.py` there and here, each tree by its own script, as options may have been
renamed between them; a revision that has no such script yet is trained by the script of here. Where
the kernels of one tree are missing, neither uses any, and a line says why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIBRARY = "src/bertsmith/core/_kernels.so"


def main() -> int:
    """Train both, print what differs, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", default="HEAD~1")
    parser.add_argument("--cells", default="*", help="pattern of names, such as fp32/bert/*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", tree, options.revision], check=True)
        try:
            variables = kernel_variables(compile_kernels(tree), ROOT)
            before = train(tree, options.cells, Path(folder) / "before.json", variables)
            after = train(ROOT, options.cells, Path(folder) / "after.json", variables)
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)
    lines = differences(before, after)
    for line in lines:
        print(line)
    print(f"{len(set(before) & set(after))} cells compared, {len(lines)} differ or are missing")
    return int(bool(lines) or not after)


def compile_kernels(tree: Path) -> str:
    """Compile the native kernels of a tree by its own script; return why it failed, "" if not."""
    script = tree / "hatch_build.py"
    if not script.is_file():
        return "the revision has none"
    print("compiling the native kernels of the revision", flush=True)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tree
    )
    return "" if done.returncode == 0 else done.stderr.strip() or "compiling them failed"


def kernel_variables(reason: str, here: Path) -> dict[str, str]:
    """Return the variables with which both trees use their kernels, or neither does.

    `reason` is why the revision has no kernels, "" if it has them.
    """
    if not reason and not (here / LIBRARY).is_file():
        reason = "those of the working tree are not compiled: python hatch_build.py"
    if reason:
        print(f"neither side uses native kernels: {reason}", flush=True)
    return {"BERTSMITH_KERNELS": "none"} if reason else {}


def train(tree: Path, pattern: str, out: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the rows of all cells, trained by the source in a tree."""
    scripts = tree if (tree / "tests/goldens/losses.py").is_file() else ROOT
    paths = os.pathsep.join([str(tree / "src"), str(scripts / "tests")])
    command = [sys.executable, "-m", "goldens.losses", "--out", str(out), "--cells", pattern]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **variables}
    subprocess.run(command, env=environment, check=True)
    rows: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return rows


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each cell that is missing, or whose rows are not equal to the last bit."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            lines.append(f"{name}: only {'before' if name in before else 'after'}")
        elif before[name] != after[name]:
            pairs = zip(before[name], after[name], strict=False)
            step = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), None)
            lines.append(f"{name}: differs from step {step}" if step else f"{name}: other length")
    return lines


if __name__ == "__main__":
    sys.exit(main())
