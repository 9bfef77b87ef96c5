"""What of a package is loaded by an import, and passed while verbs of its command line run.

Each measurement is a process of its own. A function is passed when its code object is called, a
module when one of its functions is; bodies of modules and classes, which importing runs, are none.
Only the process of the verb itself is observed, so the verbs run without workers.
"""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_LOADED = """
import json, sys
__import__(sys.argv[1])
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] == sys.argv[2])))
"""
# The code objects called are kept and told apart afterwards: the observer has to be quick.
_PASSED = """
import inspect, json, sys, threading
report, package, folder, *arguments = sys.argv[1:]
called = set()
def observe(frame, event, argument, add=called.add):
    if event == "call":
        add(frame.f_code)
threading.setprofile(observe)
sys.setprofile(observe)
main = __import__(package + ".cli", fromlist=["main"]).main
# a module where the command has a folder
main = getattr(main, "main", main)
status = main(arguments)
sys.setprofile(None)
ours = [
    code for code in called
    if code.co_filename.startswith(folder) and code.co_flags & inspect.CO_OPTIMIZED
    and not code.co_name.startswith("<")
]
loaded = sorted(name for name in sys.modules if name.split(".")[0] == package)
json.dump({
    "loaded": loaded, "modules": sorted({code.co_filename for code in ours}), "functions": len(ours)
}, open(report, "w"))
sys.exit(status)
"""
ENTRY_POINTS = (("bertsmith.engine", "bertsmith.inference"), ("bertsmith.recipes.predict.recipe",))
"""Modules whose import is measured: of several names, the first that is there."""


def measure(folder: Path) -> dict[str, Any]:
    """Return the modules loaded and passed of the package in `folder`, counts and names."""
    figures: dict[str, Any] = {}
    names: dict[str, Any] = {}
    for alternatives in ENTRY_POINTS:
        name = next(
            (alternative for alternative in alternatives if _exists(folder, alternative)), None
        )
        if name is not None:
            # the first name stands for all, so that before and after are one line of the table
            key = f"modules loaded by import {alternatives[0]}"
            names[key] = modules_loaded(folder, name)
            figures[key] = len(names[key])
    with tempfile.TemporaryDirectory() as place:
        for verb, found in _follow(folder, Path(place)).items():
            figures[f"modules loaded by {verb}"] = len(found["loaded"])
            figures[f"modules passed by {verb}"] = len(found["modules"])
            figures[f"functions passed by {verb}"] = found["functions"]
            passed = (Path(file).relative_to(folder) for file in found["modules"])
            names[f"modules passed by {verb}"] = sorted(map(str, passed))
    return figures | {"names": names}


def modules_loaded(folder: Path, module: str) -> list[str]:
    """Return the modules of the package in `folder` that a new process has after one import."""
    done = _python(folder, _LOADED, module, folder.name)
    loaded: list[str] = json.loads(done)
    return loaded


def modules_passed(folder: Path, place: Path, arguments: list[str]) -> dict[str, Any]:
    """Run a verb in `place`; return the modules loaded and passed, and the functions passed."""
    report = place / "passed.json"
    _python(folder, _PASSED, str(report), folder.name, str(folder), *arguments, place=place)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def _exists(folder: Path, module: str) -> bool:
    path = folder.parent.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _python(folder: Path, script: str, *arguments: str, place: Path | None = None) -> str:
    """Run a script in a new process with the source beside `folder`; return what it printed."""
    environment = os.environ | {"PYTHONPATH": str(folder.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", script, *arguments]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


# a run from text to answers


def _follow(folder: Path, place: Path) -> dict[str, dict[str, Any]]:
    """Go from invented text to predictions; return what each of the last three verbs passed."""
    write_inputs(place)
    prepare = ["prepare", "corpus.txt", "--vocab", "vocab", "--out", "store"]
    pretrain = ["pretrain", "store", "--out", "run", "--model", "tiny", "--steps", "3"]
    finetune = ["finetune", "run/model", "labelled.csv", "--out", "task", "--seeds", "1"]
    verbs = {
        "vocab learn": ["vocab", "learn", "corpus.txt", "--out", "vocab", "--size", "300"],
        "prepare": [*prepare, "--workers", "1"],
        "pretrain": pretrain,
        "finetune": [*finetune, "--epochs", "1"],
        "predict": ["predict", "task/model", "texts.txt"],
    }
    found = {verb: modules_passed(folder, place, arguments) for verb, arguments in verbs.items()}
    return {verb: found[verb] for verb in ("pretrain", "finetune", "predict")}


def write_inputs(place: Path) -> None:
    """Write corpus.txt, labelled.csv and texts.txt of invented words."""
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]

    def sentence() -> str:
        words = ("".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(6))
        return " ".join(words).capitalize() + "."

    documents = ("\n".join(sentence() for _ in range(draw.randint(4, 12))) for _ in range(60))
    (place / "corpus.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    with (place / "labelled.csv").open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("text", "label"))
        rows.writerows((sentence(), ("good", "bad")[number % 2]) for number in range(40))
    texts = "".join(f"{sentence()}\n" for _ in range(5))
    (place / "texts.txt").write_text(texts, encoding="utf-8")
