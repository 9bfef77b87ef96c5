"""Pickled weights of families beside BERT become folders with the same answers, by the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertsmith.cli.main import main
from bertsmith.weights.folder import load_model
from families import MODELS, TOKENIZERS
from parity.comparing import compare, varied
from parity.test_transformers_families import their_class, their_config


@pytest.mark.parametrize(
    "case",
    ["electra-replaced_tokens", "electra-masked_lm", "xlm-roberta-masked_lm", "xlm-roberta-class"],
)
def test_pickled_weights(tmp_path: Path, case: str) -> None:
    config, folder = MODELS[case], tmp_path / "in"
    theirs = varied(their_class(case)(their_config(config)))
    theirs.save_pretrained(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    TOKENIZERS[config.encoder.family].save(folder)
    assert main(["convert", str(folder), str(tmp_path / "out")]) == 0
    ours, _ = load_model(tmp_path / "out")
    assert ours.config == config
    compare(ours, theirs)
