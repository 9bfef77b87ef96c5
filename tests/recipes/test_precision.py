"""The number format of training: chosen when a run begins, and kept when it goes on elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.batches.config import SampleConfig
from bertsmith.core.errors import RunFolderError
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.recipe import pretrain
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training import replicas
from invented import invented_documents

Machine = Callable[[bool], list[str]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make a processor with or without bf16; returns the types in which training multiplies."""

    def make(has_bf16: bool) -> list[str]:
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_bf16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        entered: list[str] = []

        def autocast(precision: str, device: torch.device) -> Any:  # noqa: ANN401
            entered.append(precision)
            return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")

        monkeypatch.setattr(replicas, "autocast", autocast)
        return entered

    return make


def settings_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text("utf-8"))["settings"]
    return found


@pytest.mark.parametrize("began", [True, False])
def test_pretraining_goes_on_in_the_precision_that_it_began_in(
    began: bool, machine: Machine, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prepare_store(invented_documents(50), tiny_tokenizer, tmp_path / "store", held_out=0.1)
    precision, entered = "bf16" if began else "fp32", machine(began)
    settings = PretrainSettings(
        network=NetworkConfig(max_positions=64),
        samples=SampleConfig(max_length=32, tokens_per_batch=256),
        measurements=0,
    )
    config = PretrainConfig(
        store=tmp_path / "store", out=tmp_path / "run", model="1/64", steps=1, settings=settings,
        force=True,
    )  # fmt: skip
    pretrain(config)
    assert set(entered) == {precision}
    assert settings_of(config.out)["precision"] == precision
    machine(not began)
    pretrain(config)
    pretrain(PretrainConfig(out=config.out))
    assert settings_of(config.out)["precision"] == precision


@pytest.mark.parametrize("began", [True, False])
def test_finetuning_goes_on_in_the_precision_that_it_began_in(
    began: bool, machine: Machine, base_folder: Path, labelled: Path, tmp_path: Path
) -> None:
    precision, entered = "bf16" if began else "fp32", machine(began)

    def run(seeds: int, **settings: Any) -> None:  # noqa: ANN401
        finetune(
            FinetuneConfig(
                model=base_folder, train=labelled, out=tmp_path / "run",
                settings=FinetuneSettings(epochs=1, baseline=False, **settings),
                experiment=ExperimentConfig(seeds=seeds, side_by_side=1),
            )
        )  # fmt: skip

    run(1)
    again = machine(not began)
    run(2)
    assert set(entered) == set(again) == {precision}
    assert settings_of(tmp_path / "run")["settings"]["precision"] == precision
    with pytest.raises(RunFolderError, match="precision"):
        run(2, precision="fp32" if began else "bf16")
