"""A model is answered with by the modules of its own family, format, tokenizer and task alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import bertsmith
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model

_LOADED = """
import json, sys
from bertsmith.cli.main import main
status = main(["predict", sys.argv[1], sys.argv[2]])
print(json.dumps([status, *sorted(name for name in sys.modules if name.startswith("bertsmith."))]))
"""
_TABLES = {
    "network.families": {"catalog", "family", "bert"},
    "weights.formats": {"catalog", "format", "bert"},
    "tokens.folder": {"added", "compiled", "files", "wordpiece"},
}
_TASKS = {"choice", "classify", "glue", "multi_label", "rank", "regression", "span", "tag"}


def test_predict_loads_the_entries_of_a_model_alone(tmp_path: Path) -> None:
    tokenizer = Tokenizer((*SPECIALS, "good", "bad"), BasicRules(lowercase=True))
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=1, heads=3, feed_forward=32, longest=11
    )
    config = ModelConfig(encoder=encoder).with_head("class", ("no", "yes"))
    save_model(tmp_path / "model", build_model(config, seed=2), tokenizer)
    (tmp_path / "texts.txt").write_text("good bad\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LOADED, str(tmp_path / "model"), str(tmp_path / "texts.txt")],
        env=os.environ | {"PYTHONPATH": str(Path(bertsmith.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    status, *loaded = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    for table, entries in _TABLES.items():
        inside = f"bertsmith.{table}."
        assert {item.removeprefix(inside) for item in loaded if item.startswith(inside)} == entries
    assert _TASKS & {item.removeprefix("bertsmith.tasks.") for item in loaded} == {"classify"}
