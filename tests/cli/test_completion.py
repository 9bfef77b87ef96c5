"""Completion scripts: what a real bash offers after some words."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from bertsmith.cli.commands import COMMANDS
from bertsmith.cli.completion import completion_script
from bertsmith.core.options import options_of

ASK = """
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_bertsmith
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p bertsmith
"""


def offered(words: str) -> set[str]:
    script = completion_script("bash", COMMANDS) + ASK.format(words=words)
    done = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    *found, registered = done.stdout.splitlines()
    assert registered == "complete -o default -F _bertsmith bertsmith"
    return set(found) - {""}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bertsmith 'fi'", {"finetune"}),
        ("bertsmith v", {"vocab"}),
        ("bertsmith vocab ''", {"learn", "extend"}),
        ("bertsmith finetune model train.csv --learn", {"--learning-rate"}),
        ("bertsmith finetune --schedule ''",
         {"linear", "slanted", "triangular", "cosine", "constant"}),
        ("bertsmith vocab learn corpus --kind byte", {"byte-bpe"}),
        ("bertsmith vocab extend --ki", set()),
        ("bertsmith pretrain store --masking.p", {"--masking.probability"}),
        # files, which the shell itself completes
        ("bertsmith finetune mod", set()),
        ("bertsmith finetune --out ''", set()),
        ("bertsmith nothing --o", set()),
    ],
)  # fmt: skip
def test_bash_offers(words: str, expected: set[str]) -> None:
    assert offered(words) == expected


def test_bash_offers_every_verb_and_option() -> None:
    verbs = {name.split()[0] for name in COMMANDS}
    assert offered("bertsmith ''") == verbs | {"--help", "--version"}
    for name in ("finetune", "pretrain", "vocab learn"):
        options = options_of(COMMANDS[name].config).values()
        own = {option.shown for option in options if not option.positional}
        assert offered(f"bertsmith {name} --") == own | {"--config", "--print-config", "--help"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(shell: str) -> None:
    script = completion_script("zsh" if shell == "zsh" else "fish", COMMANDS)
    assert "learning-rate" in script
    assert "slanted" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_the_verb_prints_it_without_torch() -> None:
    program = """
import sys
from bertsmith.cli.main import main
status = main(["completion", "bash"])
sys.exit(status or 3 * ("torch" in sys.modules or "numpy" in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == completion_script("bash", COMMANDS) + "\n"
