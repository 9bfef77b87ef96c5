"""Completion scripts: what a real bash and a real fish offer after some words."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import shtab

from bertsmith.cli.command import Shell, completion_script
from bertsmith.cli.commands import COMMANDS
from bertsmith.core.options import options_of

ASK = """
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_bertsmith
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
OFFERS = [
    ("bertsmith fi", {"finetune"}),
    ("bertsmith vo", {"vocab"}),
    ("bertsmith vocab ''", {"learn", "extend"}),
    ("bertsmith finetune model train.csv --learn", {"--learning-rate"}),
    ("bertsmith finetune --schedule ''",
     {"linear", "slanted", "triangular", "cosine", "constant"}),
    ("bertsmith vocab learn corpus --kind byte", {"byte-bpe"}),
    ("bertsmith vocab extend --ki", set()),
    ("bertsmith pretrain store --masking.p", {"--masking.probability"}),
    ("bertsmith completion ''", {"bash", "zsh", "fish"}),
    # its other values are signs, which shells take for syntax
    ("bertsmith finetune --label-separator au", {"auto"}),
    ("bertsmith finetune mod", {"model.txt"}),
    ("bertsmith finetune --out ''", {"model.txt"}),
    ("bertsmith finetune --epochs ''", set()),
    ("bertsmith nothing --o", set()),
]  # fmt: skip


def offered(words: str, shell: Shell, folder: Path) -> set[str]:
    (folder / "model.txt").touch()
    script = completion_script(shell, COMMANDS)
    if shell == "bash":
        script += ASK.format(words=words)
    else:
        line = words.replace("''", "")
        script += f'\ncomplete -C "{line}"'
    done = subprocess.run(
        [shell, "-c", script], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.stderr == ""
    return {line.partition("\t")[0] for line in done.stdout.splitlines()} - {""}


@pytest.mark.parametrize(("words", "expected"), OFFERS)
def test_bash_offers(words: str, expected: set[str], tmp_path: Path) -> None:
    assert offered(words, "bash", tmp_path) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(("words", "expected"), OFFERS)
def test_fish_offers(words: str, expected: set[str], tmp_path: Path) -> None:
    assert offered(words, "fish", tmp_path) == expected


def test_bash_offers_every_verb_and_option(tmp_path: Path) -> None:
    verbs = {name.split()[0] for name in COMMANDS}
    assert offered("bertsmith ''", "bash", tmp_path) == verbs
    assert offered("bertsmith --", "bash", tmp_path) == {"--help", "--version"}
    for name in ("finetune", "pretrain", "vocab learn"):
        options = options_of(COMMANDS[name].config).values()
        own = {option.shown for option in options if not option.positional}
        own |= {f"--no-{option.name}" for option in options if option.hint is bool}
        found = offered(f"bertsmith {name} --", "bash", tmp_path)
        assert found == own | {"--config", "--print-config", "--help"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_read_their_script(shell: Shell) -> None:
    script = completion_script(shell, COMMANDS)
    assert "learning-rate" in script
    assert "slanted" in script
    # a shell of another encoding was refused at the first name with an accent
    assert script.isascii()
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_help_is_such_as_every_python_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.14, argparse formats help as soon as it is given; format_help always did."""
    parsers: list[argparse.ArgumentParser] = []

    def keep(parser: argparse.ArgumentParser, shell: str) -> str:
        parsers.append(parser)
        return shell

    monkeypatch.setattr(shtab, "complete", keep)
    completion_script("bash", COMMANDS)
    shown = " ".join(parsers[0].format_help().split())
    assert "with 95 % intervals" in shown


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
