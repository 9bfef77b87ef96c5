"""The table of published models: what it says, and whether its memory is what is taken."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import torch

from bertsmith.cli.main import main
from bertsmith.network.config import preset_config
from bertsmith.network.families.catalog import presets
from bertsmith.recipes.resources import (
    TOKENS,
    ModelFacts,
    inference_memory,
    models,
    parameters,
    show,
)
from native_precision import NATIVE, OTHER

BYTES = {"fp32": 4, "bf16": 2}
# one batch through the encoder, in a process of its own
RUN = """
import sys, torch, numpy as np
from bertsmith.network.batch import pack
from bertsmith.network.model import build_model
from bertsmith.network.config import preset_config
model = build_model(preset_config(sys.argv[1]), seed=0).eval()
if sys.argv[2] == "2":
    model = model.bfloat16()
ids = [np.arange(5, 133)] * 32
batch = pack(ids, [np.zeros(128, np.int64)] * 32)
# building in float32 is not what is asked for
open("/proc/self/clear_refs", "w").write("5")
with torch.no_grad():
    assert model.encoder(batch).last.isfinite().all()
lines = open("/proc/self/status").read().splitlines()
print(1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(torch.version.cuda is not None, reason="libraries of CUDA take 0.5 GB more")
@pytest.mark.parametrize(
    "width", [BYTES[NATIVE], pytest.param(BYTES[OTHER], marks=pytest.mark.faults)]
)
def test_the_memory_told_is_about_what_is_taken(width: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "minilm-6-384", str(width)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    config = preset_config("minilm-6-384")
    told = inference_memory(config, width=width)
    assert 0.75 * int(done.stdout) < told < 1.3 * int(done.stdout)


def test_every_preset_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tokens_per_batch"] == TOKENS
    facts = {item["name"]: ModelFacts(**item) for item in told["models"]}
    assert list(facts) == list(presets())
    base = facts["bert-base-uncased"]
    assert (base.layers, base.hidden, base.heads, base.vocabulary) == (12, 768, 12, 30_522)
    assert base.parameters == parameters(preset_config("bert-base-uncased")) == 109_482_240
    for fact in facts.values():
        assert 2 * fact.parameters < fact.inference_bf16 < fact.inference_fp32 < fact.training_fp32
        # weights, gradients, two moments, and weights and moments once more while they are saved
        assert fact.training_fp32 > 28 * fact.parameters
    assert facts["albert-base"].training_fp32 < base.training_fp32


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(facts for facts in models() if facts.name in ("bert-tiny", "distilbert-base"))
    shown = capsys.readouterr().out
    assert re.search(r"bert-tiny +2/128 +4\.4 +4\.4", shown)
    assert re.search(r"distilbert-base +6/768 +66\.4 +66", shown)
    assert max(map(len, shown.splitlines())) <= 80
