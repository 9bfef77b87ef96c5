"""Devices by name; what is not there is said in one line."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.core.errors import ConfigError
from bertsmith.engine.answers import fetched
from bertsmith.engine.devices import best_device, device_named, training_precision
from bertsmith.network.batch import pack


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


class OtherGpuOutputs:
    """Outputs on a second GPU, which are copied once its own stream is waited for."""

    is_cuda, device, shape, dtype = True, torch.device("cuda", 1), (2, 3), torch.float32

    def __init__(self, streams: dict[int, list[torch.Tensor]]) -> None:
        self.streams = streams

    @classmethod
    def __torch_function__(
        cls, func: object, types: object, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> None:
        assert func is torch.Tensor.copy_
        assert kwargs == {"non_blocking": True}
        copied, outputs = args
        outputs.streams[1].append(copied)


class CopiesDone(torch.cuda.Event):
    """The event after the copies of a stream; there is no GPU to make another one."""

    copies: list[torch.Tensor]

    def __new__(cls, copies: list[torch.Tensor]) -> CopiesDone:
        # torch without CUDA has events that cannot be made
        makes: Any = object if torch.version.cuda is None else torch.cuda.Event
        event: CopiesDone = makes.__new__(cls)
        event.copies = copies
        return event

    def __init__(self, copies: list[torch.Tensor]) -> None:
        """Leave what `torch.cuda.Event` does out."""

    def synchronize(self) -> None:
        """Wait."""
        for copied in self.copies:
            copied.fill_(7.0)


def test_outputs_of_a_second_gpu_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event was one of the first GPU: answers were made of whatever was in memory."""
    streams: dict[int, list[torch.Tensor]] = {0: [], 1: []}

    def stream(device: torch.device | None = None) -> SimpleNamespace:
        index = None if device is None else device.index
        return SimpleNamespace(record_event=lambda: CopiesDone(streams[index or 0]))

    def room(shape: tuple[int, ...], *, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    monkeypatch.setattr(torch, "empty", room)
    monkeypatch.setattr(torch.cuda, "current_stream", stream)

    def computed() -> Generator[Any, None, None]:
        batch = pack([np.arange(3)] * 2, [np.zeros(3, np.int8)] * 2)
        yield np.arange(2), batch, OtherGpuOutputs(streams)

    ((_, _, outputs),) = fetched(computed())
    assert outputs.tolist() == [[7.0] * 3] * 2
