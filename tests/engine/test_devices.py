"""Devices by name; what is not there is said in one line."""

from __future__ import annotations

import pytest
import torch

from bertsmith.core.errors import ConfigError
from bertsmith.engine.devices import best_device, device_named, training_precision


def machine(patch: pytest.MonkeyPatch, count: int, cuda: str | None = "12.8") -> None:
    patch.setattr(torch.cuda, "is_available", lambda: count > 0)
    patch.setattr(torch.cuda, "device_count", lambda: count)
    patch.setattr(torch.version, "cuda", cuda)


def test_without_a_gpu_there_is_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0)
    assert device_named("auto") == device_named("cpu") == best_device() == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"--device is cuda, .* finds no GPU .*leave --device"):
        device_named("cuda")
    machine(monkeypatch, 0, cuda=None)
    with pytest.raises(ConfigError, match=r"without support for GPUs; install torch with CUDA"):
        device_named("cuda:0")


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 2)
    assert device_named("auto") == device_named("cuda") == torch.device("cuda")
    assert device_named("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match=r"there are 2 GPUs; use one of cuda:0 to cuda:1"):
        device_named("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "mps", "", "CPU"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="there is no device"):
        device_named(name)


FAST = {"avx512": "_is_avx512_bf16_supported", "tiles": "_is_amx_tile_supported"}


@pytest.mark.parametrize("feature", [None, *FAST])
def test_training_takes_bf16_where_the_processor_has_instructions_for_it(
    feature: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, check in FAST.items():
        monkeypatch.setattr(torch.cpu, check, lambda name=name: name == feature)
    cpu, fast = torch.device("cpu"), feature is not None
    assert training_precision("auto", cpu) == ("bf16" if fast else "fp32")
    assert training_precision("fp32", cpu, "bf16") == "fp32"
    for kept in ("bf16", "fp32"):
        assert training_precision("auto", cpu, kept) == kept
    assert capsys.readouterr().err == ""
    assert training_precision("bf16", cpu) == "bf16"
    slow = "no instructions for bf16: training is many times faster in fp32"
    assert (slow in capsys.readouterr().err) == (not fast)


@pytest.mark.parametrize("native", [True, False])
def test_training_takes_bf16_where_the_gpu_does_not_emulate_it(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: native or including_emulation,
    )
    assert training_precision("auto", torch.device("cuda")) == ("bf16" if native else "fp32")
