"""A text of 100,000 words goes through every verb; where a mask might be cut off it is refused."""

from __future__ import annotations

import json
from pathlib import Path

from faults.shell import Shell

LONG = "gabo dela " * 50_000
PRETRAIN = "--model tiny --steps 2 --max-length 32 --tokens-per-batch 320"


def test_a_long_line_is_learned_prepared_and_trained_on(shell: Shell) -> None:
    # no sentence ends in it; twice the same text would be one document
    Path("a.txt").write_text(f"{LONG}\n\nkuri moti.\n\n{LONG}zu.\n\nmoti zu.\n", encoding="utf-8")
    assert shell.run("vocab learn a.txt --out vocab --size 100")[0] == 0
    options = "--layout documents --held-out 0"
    status, told = shell.run(f"prepare a.txt --vocab vocab --out store --workers 1 {options}")
    assert status == 0
    assert "4 documents" in told
    assert "200k words" in told
    assert shell.run(f"pretrain store --out run --force {PRETRAIN}")[0] == 0
    assert json.loads(Path("run/result.json").read_text())["state"]["step"] == 2


def test_a_long_example_is_cut_and_told(shell: Shell) -> None:
    rows = [{"label": "ab"[n % 2], "text": f"gabo {n}"} for n in range(20)]
    rows[7]["text"] = LONG
    Path("a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    status, told = shell.run(
        "finetune {model} a.jsonl --out run --seeds 1 --epochs 1 --batch-size 8"
    )
    assert status == 0
    assert "1 of 20 texts (5.0 %) was longer than 40 tokens: only the beginning was read" in told
    status, told = shell.run("predict run/model a.jsonl")
    assert status == 0
    cut = "1 of 20 texts was longer than 40 tokens: only the beginning was read; "
    assert told.splitlines()[0] == f"{cut}--truncation chooses the part that is read"


def test_a_long_text_with_a_mask_is_refused(shell: Shell) -> None:
    Path("a.txt").write_text(f"gabo [MASK]\n{LONG}[MASK]\n", encoding="utf-8")
    assert shell.refused("predict {model} a.txt") == (
        "bertsmith: a.txt:2: the text is longer than the 40 tokens that the model reads; "
        "keep only the text around [MASK]"
    )
