"""Losses and gradient norms of 20 steps: each family with each objective, in fp32 and bf16.

    PYTHONPATH=src:tests python -m goldens.losses --out FILE [--cells PATTERN]

Everything goes through the command line and the log of the run folder, so that it survives what is
renamed below them; where an option is renamed, this file follows. One thread, one process. A cell
is named PRECISION/FAMILY/OBJECTIVE; its value is a list, by step, of all losses and the norm of the
gradient that log.jsonl holds.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from goldens.inputs import EXAMPLES, write_corpus, write_examples

STEPS = 20
FAMILIES = ("bert", "albert", "roberta", "distilbert", "modernbert", "electra", "xlm-roberta")
PRECISIONS = ("fp32", "bf16")
VOCABULARIES = {
    "albert": "unigram", "roberta": "byte-bpe", "modernbert": "byte-bpe",
    "xlm-roberta": "unigram --specials xlm-roberta",
}  # fmt: skip
"""Kinds of vocabulary, where they are not wordpiece, with options."""
PRETRAINING = {
    "bert": ("next_sentence", "sentence_order", "left_to_right", "within_documents"),
    "albert": ("next_sentence", "sentence_order", "within_documents"),
    "electra": ("replaced_tokens", "within_documents"),
}
"""Objectives of pre-training by family; of the others masked LM alone."""
_SMALL = (
    "--model", "tiny", "--seed", "11", "--log-every", "1", "--measurements", "0",
    "--gradient-accumulation", "1", "--max-length", "32", "--tokens-per-batch", "200",
    "--max-positions", "64", "--initialisation", "random",
    "--hidden-dropout", "0.1", "--attention-dropout", "0.1",
)  # fmt: skip
_FINETUNE = (
    "--seeds", "1", "--seed", "11", "--epochs", "4", "--batch-size", "8",
    "--learning-rate", "1e-3", "--max-length", "32", "--no-baseline", "--side-by-side", "1",
)  # fmt: skip

Rows = list[dict[str, float]]


def cells() -> list[str]:
    """Return the names of all cells."""
    return [
        f"{precision}/{family}/{objective}"
        for precision in PRECISIONS
        for family in FAMILIES
        for objective in (*PRETRAINING.get(family, ("within_documents",)), *EXAMPLES)
    ]


class Laboratory:
    """A folder with vocabularies, stores and parents, each made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_corpus(folder / "corpus.txt")
        write_examples(folder)

    def cell(self, name: str) -> Rows:
        """Train a cell; return the losses and gradient norms of each step."""
        precision, family, objective = name.split("/")
        out = self.folder / name.replace("/", "-")
        if objective in EXAMPLES:
            parent, rows = self.parent(family), self.folder / f"{objective}.jsonl"
            given = ("finetune", parent, rows, "--dev", rows, "--task", objective, *_FINETUNE)
            bertsmith(*given, "--out", out, "--precision", precision)
            return read_log(next(out.glob("seeds/*/log.jsonl")))
        self.pretrain(family, objective, out, "--steps", str(STEPS), "--precision", precision)
        return read_log(out / "log.jsonl")

    def parent(self, family: str) -> Path:
        """Return a model folder with the random weights of seed 11: a step whose rate is zero."""
        out = self.folder / f"parent-{family}"
        if not out.exists():
            self.pretrain(
                family, "within_documents", out, "--steps", "1", "--precision", "fp32",
                "--warmup", "1.0", "--hold", "0.0",
            )  # fmt: skip
        return out / "model"

    def pretrain(self, family: str, objective: str, out: Path, *more: str) -> None:
        """Pre-train a tiny model of a family."""
        recipe = "modern" if family == "modernbert" else "roberta"
        text = ["--sequences", objective]
        if objective == "left_to_right":
            text = ["--sequences", "within_documents", "--left-to-right"]
        if objective == "replaced_tokens":
            text = ["--sequences", "within_documents", "--replaced-tokens"]
        store = self.store(VOCABULARIES.get(family, "wordpiece"))
        which = ("--recipe", recipe, "--family", family, *text)
        bertsmith("pretrain", store, "--out", out, "--force", *which, *_SMALL, *more)

    def vocabulary(self, kind: str, *options: str) -> Path:
        """Return the folder of a learned vocabulary."""
        out = self.folder / "-".join(
            ["vocabulary", kind, *(option.strip("-") for option in options)]
        )
        if not out.exists():
            given = ("--kind", kind, "--size", "400", *options)
            if kind == "wordpiece" and "--cased" not in options:
                # the hard page has as many marks as just decide for or against it
                given += ("--strip-accents", "yes")
            bertsmith("vocab", "learn", self.folder / "corpus.txt", "--out", out, *given)
        return out

    def store(self, kind: str) -> Path:
        """Return a store of the corpus."""
        out = self.folder / f"store-{kind.replace(' ', '')}"
        if not out.exists():
            given = ("--vocab", self.vocabulary(*kind.split()), "--out", out, "--workers", "1")
            bertsmith("prepare", self.folder / "corpus.txt", *given)
        return out


def bertsmith(*arguments: str | Path) -> str:
    """Run a command in this process; return what it printed, or raise where it fails."""
    from bertsmith.cli.main import main

    printed, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
        status = main([str(argument) for argument in arguments])
    if status:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {complaints.getvalue()[-2000:]}")
    return printed.getvalue()


def read_log(file: Path) -> Rows:
    """Return losses and gradient norms, a row a step."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [
        {key: line[key] for key in sorted(line) if key.endswith("_loss") or key == "gradient_norm"}
        for line in lines
        if "gradient_norm" in line
    ]


@contextlib.contextmanager
def quiet_laboratory() -> Iterator[Laboratory]:
    """Give a laboratory in a folder that is gone afterwards, one thread, and no plots."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("BERTSMITH_CACHE", folder)
        # the report of each run would draw curves for longer than it trained
        before = sys.modules.get("matplotlib")
        sys.modules["matplotlib"] = None  # type: ignore[assignment]
        try:
            yield Laboratory(Path(folder))
        finally:
            del sys.modules["matplotlib"]
            if before is not None:
                sys.modules["matplotlib"] = before


def train_cells(names: Sequence[str]) -> dict[str, Rows]:
    """Train cells by name; return their rows."""
    with quiet_laboratory() as laboratory:
        return {name: laboratory.cell(name) for name in names}


def main() -> None:
    """Train the cells that a pattern names and write their rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", default="*", help="pattern of names, such as fp32/bert/*")
    options = parser.parse_args()
    rows = train_cells(fnmatch.filter(cells(), options.cells))
    options.out.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
