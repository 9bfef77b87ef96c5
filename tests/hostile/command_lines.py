"""Command lines of odd options, run in this process: each has to end in a status that is explained.

    python -m hostile.command_lines 2000              cases 0 to 1999, with little memory
    python -m hostile.command_lines 1 --first 4711    one of them again

Whatever takes longer than some seconds is interrupted, which has a status of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace

import bertsmith.core.pool
import forking
from bertsmith.cli.commands import COMMANDS
from bertsmith.cli.main import main
from bertsmith.core.options import REQUIRED, options_of
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model, start_from
from invented import SYLLABLES, invented_documents, syllable_tokenizer

STATUSES = {0, 2, 130, 141, 143}
SECONDS = 3.0
MEMORY = 8 << 30

_NUMBERS = (
    "0", "-0", "-0.0", "1", "2", "-1", "0.5", "1e-320", "1e308", "1e309", "nan", "NaN", "inf",
    "-inf", "9" * 30, "-" + "9" * 30, "2147483648", "0x10", "1_000", "٣", "1e", "True",
)  # fmt: skip
_WORDS = (
    "", " ", "\t", "\n", "x", "X" * 5000, "é", "\udcff\udc80", "\u202eabc", "\x1b[31m", "null",
    "None", "true", "[]", "[1]", "[[[", "{}", '{"a": 1}', "{0}", "%s", "%(default)s", "'", '"',
    "*", "**/*", "../x", "/dev/null", "/dev/full", ".", "..", "-", "--", "-h1", "=", "a=b", "@x",
    "hub:", "hub:a", "hub:a/b/c", "~", "$HOME", "\U0001f600", "0,1", "a,b", "CON", "é" * 300,
)  # fmt: skip
# the folder of what is made must lie in the place of the test
_OUTS = ("out", "a/b/c", "é", "\udcff", "x" * 300, "", "text.txt", "model", "-out")
_OUTPUTS = {"--out", "--config"}


def make_inputs(place: Path, tokenizer: Tokenizer) -> None:
    """Write a vocabulary, a store, models, texts and tables into a folder."""
    tokenizer.save(place / "vocab")
    prepare_store(invented_documents(12), tokenizer, place / "store", held_out=0.2)
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=48, longest=40
    )
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    save_model(place / "model", build_model(config, seed=2), tokenizer)
    save_model(place / "classifier", start_from(place / "model", labels=("a", "b"))[0], tokenizer)
    words = random.Random(0).choices(SYLLABLES, k=400)
    lines = [" ".join(words[start : start + 8]) for start in range(0, 400, 8)]
    (place / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = [f"{line}\t{'ab'[number % 2]}" for number, line in enumerate(lines)]
    (place / "table.tsv").write_text("\n".join(["text\tlabel", *rows]), encoding="utf-8")
    (place / "settings.json").write_text(json.dumps({"seed": 5}), encoding="utf-8")
    (place / "settings.toml").write_text("seed = nan\n", encoding="utf-8")
    (place / "settings.yaml").write_text("out: [a, {b: *c}]\n", encoding="utf-8")
    (place / "empty").mkdir()


def command_line(number: int) -> list[str]:
    """The arguments of a case."""
    draw = random.Random(number)
    name = draw.choice(list(COMMANDS))
    inputs = {"model": "model", "first": "model", "second": "classifier", "store": "store",
              "vocab": "vocab", "train": "table.tsv", "corpus": "text.txt", "file": "text.txt",
              "texts": "text.txt", "repository": "owner/name", "data": "empty"}  # fmt: skip
    arguments = name.split()
    options = options_of(COMMANDS[name].config).values()
    for option in options:
        usual = inputs.get(option.name, "text.txt" if option.positional else "out")
        if option.positional:
            odd = draw.choice([*inputs.values(), *_OUTS, *_WORDS])
            arguments.append(odd if draw.random() < 0.25 else usual)
        elif option.default is REQUIRED and draw.random() < 0.95:
            arguments += [option.shown, usual]
    optional = {option.shown: option for option in options if not option.positional}
    for _ in range(draw.randint(0, 4)):
        flag = draw.choice([*optional, "--config", "--print-config"])
        if flag == "--print-config" or (flag in optional and optional[flag].hint is bool):
            arguments.append(flag)
            continue
        if flag in _OUTPUTS:
            value = draw.choice([*_OUTS, "settings.json", "settings.toml", "settings.yaml"])
        else:
            value = draw.choice(draw.choice((_NUMBERS, _NUMBERS, _WORDS, tuple(inputs.values()))))
        arguments += [f"{flag}={value}"] if draw.random() < 0.5 else [flag, value]
    if name == "push":
        arguments.append("--dry-run")
    if draw.random() < 0.05:
        arguments.insert(draw.randint(0, len(arguments)), draw.choice(_WORDS))
    return arguments


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def failure(arguments: list[str], seconds: float = SECONDS) -> str:
    """Run a command line in the working folder; what is wrong with its end, or "" for nothing."""
    output, told = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(told):
            try:
                with _interrupted_after(seconds):
                    status = main(arguments)
            except SystemExit as end:
                status = int(end.code or 0)
            except KeyboardInterrupt:
                # after the command had ended
                status = 130
    except Exception:
        return traceback.format_exc()
    lines = told.getvalue().splitlines()
    if status not in STATUSES:
        return f"status {status}"
    if status == 2 and not lines[-1].startswith("bertsmith: ") and "usage:" not in lines[2]:
        return f"no complaint: {lines}"
    return f"a traceback: {lines}" if any("Traceback" in line for line in lines) else ""


def run_cases(numbers: range, seconds: float = SECONDS) -> list[str]:
    """The failures of cases, run in the working folder, which holds the inputs."""
    failures = []
    for number in numbers:
        arguments = command_line(number)
        if wrong := failure(arguments, seconds):
            failures.append(f"case {number}: {arguments}\n{wrong}")
    return failures


def _import_all() -> None:
    """Import what commands import late: a module whose import is interrupted stays half imported.

    That would spoil the cases that follow, which have one process.
    """
    for name in forking.IMPORTED:
        importlib.import_module(name)


def _fork_pools() -> None:
    """Have the processes of pools forked from one that has imported what they need.

    Each would import torch by itself, for seconds that an interrupted command waits.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bertsmith.store.preparing", "bertsmith.recipes.demo.recipe"])
    spawning = SimpleNamespace(get_context=lambda _: context)
    setattr(bertsmith.core.pool, "multiprocessing", spawning)  # noqa: B010


def _campaign() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _import_all()
    _fork_pools()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        make_inputs(Path(), syllable_tokenizer())
        failures = run_cases(range(options.first, options.first + options.cases))
    print("\n\n".join(failures))
    print(f"{options.cases} cases, {len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    _campaign()
