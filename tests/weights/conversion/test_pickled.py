"""Pickled weights: what programs saved is read, what was made to do harm is refused."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from bertsmith.core.errors import ModelFolderError
from bertsmith.weights.conversion import pickled, unpickling
from bertsmith.weights.conversion.pickled import find_pickled, unpickle
from bertsmith.weights.conversion.unpickling import Refused, read_weights
from bertsmith.weights.folder import load_model
from bertsmith.weights.tensors import TensorFile
from verbs import convert
from weights.conversion.reference import SIZES, compared, varied, write_vocabulary

Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def theirs() -> BertForPreTraining:
    torch.manual_seed(1)
    return varied(BertForPreTraining(BertConfig(**SIZES)))


@pytest.fixture
def source(tmp_path: Path, theirs: BertForPreTraining) -> Path:
    """A folder as old versions of `transformers` left it, still without weights."""
    write_vocabulary(tmp_path / "in")
    theirs.config.to_json_file(tmp_path / "in" / "config.json")
    return tmp_path / "in"


def old_names(state: Tensors) -> Tensors:
    """Names and constants of the first versions."""
    pairs = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
    renamed = {}
    for name, value in state.items():
        for new, old in pairs:
            name = name.replace(new, old)  # noqa: PLW2901
        renamed[name] = value
    return renamed | {"bert.embeddings.position_ids": torch.arange(23)[None]}


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_of_old_versions(
    source: Path, theirs: BertForPreTraining, tmp_path: Path, zipped: bool
) -> None:
    path = source / "pytorch_model.bin"
    torch.save(old_names(theirs.state_dict()), path, _use_new_zipfile_serialization=zipped)
    (source / "training_args.bin").write_bytes(b"never opened")
    result = convert(source, tmp_path / "out")
    ours, _ = load_model(tmp_path / "out")
    assert compared(ours, theirs) == {"hidden", "masked_lm", "next_sentence"}
    assert result.moves.dropped == {
        "bert.embeddings.position_ids": "of type int64, a constant",
        "cls.predictions.decoder.weight": "a copy of another",
        "cls.predictions.decoder.bias": "a copy of another",
    }
    moves = {move.source: move for move in result.moves.done}
    gamma = moves["bert.embeddings.LayerNorm.gamma"]
    assert (gamma.target, gamma.change) == ("bert.embeddings.LayerNorm.weight", "renamed")
    assert moves["bert.pooler.dense.weight"].change == "same"
    file, state = TensorFile(tmp_path / "out" / "model.safetensors"), theirs.state_dict()
    assert all(torch.equal(file.read(name), state[name]) for name in file.entries)


def test_a_process_of_its_own_opens_them_whatever_folder_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"weight": torch.ones(2), "step": torch.tensor(3)}, tmp_path / "some.bin")
    (tmp_path / "json.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pickled, "subprocess", subprocess)
    found = unpickle([Path("some.bin")], Path("out"))
    assert found.dropped == {"step": "of type int64, a constant"}
    assert torch.equal(TensorFile(Path("out")).read("weight"), torch.ones(2))


def test_weights_in_several_files(source: Path, theirs: BertForPreTraining, tmp_path: Path) -> None:
    theirs.save_pretrained(source, safe_serialization=False, max_shard_size="20KB")
    assert len(find_pickled(source)) > 2
    convert(source, tmp_path / "out")
    compared(load_model(tmp_path / "out")[0], theirs)


def test_weights_among_other_things(
    source: Path, theirs: BertForPreTraining, tmp_path: Path
) -> None:
    left = {
        "state_dict": theirs.state_dict(),
        "epoch": 3,
        "loss": torch.tensor(0.25),
        "args": argparse.Namespace(lr=1e-3),
        "counts": collections.Counter("aab"),
    }
    torch.save(left, source / "last.pth")
    convert(source / "last.pth", tmp_path / "out")
    compared(load_model(tmp_path / "out")[0], theirs)


def test_weights_of_a_parallel_model(
    source: Path, theirs: BertForPreTraining, tmp_path: Path
) -> None:
    torch.save(torch.nn.DataParallel(theirs).state_dict(), source / "last.pth")
    convert(source / "last.pth", tmp_path / "out")
    assert compared(load_model(tmp_path / "out")[0], theirs) >= {"hidden", "masked_lm"}


class AttributeDict(dict[str, object]):
    """Stands for Lightning's, in which it leaves what its modules were made with."""


AttributeDict.__module__ = "pytorch_lightning.utilities.parsing"


def named_within(wrapper: str, state: Tensors) -> Tensors:
    return {wrapper + name: value for name, value in state.items()}


def around_layers(wrapper: str, state: Tensors) -> Tensors:
    inside = re.compile(r"^(bert)\.|(layer\.\d)\.")
    return {inside.sub(rf"\g<0>{wrapper}.", name): value for name, value in state.items()}


LEFT_BY_PROGRAMS: dict[str, Callable[[Tensors], object]] = {
    "deepspeed": lambda state: {
        "module": state,
        "param_shapes": [{name: value.shape for name, value in state.items()}],
        "optimizer": None,
        "ds_version": "0.16.2",
    },
    "lightning": lambda state: {
        "epoch": 3,
        "state_dict": named_within("model.", state) | {"loss.weight": torch.ones(2)},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3, 2)}}}],
        "hyper_parameters": AttributeDict(rate=0.1, out=Path("runs")),
    },
    "lightning, called bert": lambda state: {"state_dict": named_within("bert.", state)},
    "compiled": lambda state: named_within("_orig_mod.", state),
    "compiled within": lambda state: named_within("net._orig_mod.module.", state),
    "layers compiled": lambda state: around_layers("_orig_mod", state),
    "fsdp": lambda state: {
        "model": named_within("_fsdp_wrapped_module.", around_layers("_fsdp_wrapped_module", state))
    },
    "nested": lambda state: {"checkpoint": 3, "model": {"state_dict": state, "step": 7}},
}


@pytest.mark.parametrize("program", LEFT_BY_PROGRAMS)
def test_what_programs_put_around_weights_is_taken_off(
    source: Path,
    theirs: BertForPreTraining,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
) -> None:
    # where pickle looks for it while it is saved
    package = AttributeDict.__module__
    while package:
        monkeypatch.setitem(sys.modules, package, sys.modules[__name__])
        package = package.rpartition(".")[0]
    left = LEFT_BY_PROGRAMS[program](dict(theirs.state_dict()))
    torch.save(left, source / "last.ckpt")
    result = convert(source / "last.ckpt", tmp_path / "out")
    ours, _ = load_model(tmp_path / "out")
    assert compared(ours, theirs) == {"hidden", "masked_lm", "next_sentence"}
    moves = {move.target: move for move in result.moves.done}
    pooler = moves["bert.pooler.dense.weight"]
    assert pooler.source.endswith("pooler.dense.weight")
    assert (pooler.change == "renamed") == (pooler.source != pooler.target)


def test_of_two_models_in_a_file_none_is_taken(
    source: Path, theirs: BertForPreTraining, tmp_path: Path
) -> None:
    state = dict(theirs.state_dict())
    both = named_within("query.", state) | named_within("passage.", state)
    torch.save(both, source / "pytorch_model.bin")
    with pytest.raises(ModelFolderError, match="lacks the tensor"):
        convert(source, tmp_path / "out")


def test_weights_that_are_not_in_the_file_are_said_to_be_elsewhere(
    source: Path, theirs: BertForPreTraining, tmp_path: Path
) -> None:
    state = dict(theirs.state_dict())
    divided = {name: value.new_empty(0) for name, value in state.items()}
    torch.save({"module": divided, "param_shapes": [{}]}, source / "mp_rank_00_model_states.pt")
    (source / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(b"never opened")
    with pytest.raises(ModelFolderError, match=r"ZeRO 3\); join them with the zero_to_fp32\.py"):
        convert(source, tmp_path / "out")
    (source / "mp_rank_00_model_states.pt").unlink()
    torch.save(theirs, source / "whole.pt")
    with pytest.raises(
        ModelFolderError, match=r"nothing was run; it is a model that was saved who"
    ):
        convert(source, tmp_path / "out")
    adapted = {
        name.replace("query.", "query.base_layer."): value for name, value in state.items()
    } | {"bert.encoder.layer.0.attention.self.query.lora_A.default.weight": torch.ones(2, 32)}
    torch.save(named_within("base_model.model.", adapted), source / "whole.pt")
    with pytest.raises(
        ModelFolderError, match=r"of an adapter beside .*; merge it into them first"
    ):
        convert(source, tmp_path / "out")


def test_labels_that_old_versions_invented(tmp_path: Path) -> None:
    theirs = varied(BertForSequenceClassification(BertConfig(**SIZES, num_labels=5)))
    source = tmp_path / "in"
    write_vocabulary(source)
    labels = {
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    }
    said = {**SIZES, **labels, "num_labels": 5, "architectures": ["BertForSequenceClassification"]}
    (source / "config.json").write_text(json.dumps(said))
    torch.save(theirs.state_dict(), source / "pytorch_model.bin")
    convert(source, tmp_path / "out")
    ours, _ = load_model(tmp_path / "out")
    assert ours.config.labels == tuple(f"LABEL_{number}" for number in range(5))
    compared(ours, theirs)


class Runs:
    """Pickled, it asks for a command to be run."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.asked = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.asked


def legacy(value: object, path: Path) -> None:
    """The form of torch before 1.6: some pickles, one after the other."""
    torch.save(value, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("save", [torch.save, legacy])
@pytest.mark.parametrize("function", [os.system, eval, exec])
def test_commands_are_not_run(
    tmp_path: Path, save: Callable[..., None], function: Callable[..., object]
) -> None:
    witness = tmp_path / "witness"
    command = f"touch {witness}" if function is os.system else f"open({str(witness)!r}, 'w')"
    save({"weight": torch.ones(2), "x": Runs(function, command)}, tmp_path / "bad.bin")
    with pytest.raises(Refused, match=r"asks for [\w.]*(system|eval|exec), which is not a weight"):
        read_weights([tmp_path / "bad.bin"], tmp_path / "out")
    assert not witness.exists()


def test_stand_ins_run_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    opened = Runs(argparse.FileType("w"), str(witness))
    torch.save({"weight": torch.ones(2), "x": opened}, tmp_path / "odd.bin")
    with contextlib.suppress(Refused):
        read_weights([tmp_path / "odd.bin"], tmp_path / "out")
    assert not witness.exists()
    named = Runs(argparse.Namespace, "w")
    torch.save({"weight": torch.ones(2), "x": named}, tmp_path / "odd.bin")
    read_weights([tmp_path / "odd.bin"], tmp_path / "out")
    assert list(TensorFile(tmp_path / "out").entries) == ["weight"]


def bare(program: bytes) -> bytes:
    """A pickle of some instructions, where torch keeps them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", program)
        archive.writestr("x/version", "3\n")
        archive.writestr("x/byteorder", "little")
    return file.getvalue()


def enormous_storage() -> bytes:
    """A legacy file that announces a tensor of 2^40 numbers."""
    file = io.BytesIO()
    torch.save({"w": torch.ones(2)}, file, _use_new_zipfile_serialization=False)
    small, large = b"K\x02N", b"\x8a\x06" + (2**40).to_bytes(6, "little") + b"N"
    raw = file.getvalue()
    assert raw.count(small) == 1
    return raw.replace(small, large)


def bytearray_of(size: int) -> bytes:
    size_pushed = b"\x8a\x06" + size.to_bytes(6, "little")
    return bare(b"\x80\x02cbuiltins\nbytearray\n" + size_pushed + b"\x85R.")


def tuples_in_a_key(levels: int) -> bytes:
    """A key whose hash takes two to the power of `levels` steps."""
    doubled = b"".join(b"q%ch%c\x86" % (n, n) for n in range(levels))
    return bare(b"\x80\x02}K\x01" + doubled + b"K\x01s.")


def nested_lists() -> bytes:
    return bare(b"\x80\x02" + b"]" * 20_000 + b"a" * 19_999 + b".")


def compressed() -> bytes:
    """An archive of which a thousandth is on the disk."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", b"\x80\x02}.")
        archive.writestr("x/data/0", bytes(50_000_000))
    return file.getvalue()


def stretched() -> bytes:
    """A view that repeats one number 2^36 times."""
    file = io.BytesIO()
    torch.save({"w": torch.ones(1).expand(2**18, 2**18)}, file)
    return file.getvalue()


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "tuples in a key": (lambda: tuples_in_a_key(3), "no tensors by names"),
    "nested lists": (nested_lists, "no tensors by names"),
    "a compressed archive": (compressed, "compressed archive"),
    "a stretched view": (stretched, "larger than the file"),
    "nothing": (lambda: b"", "damaged"),
    "text": (lambda: b"<!DOCTYPE html>\n", "damaged"),
    "a pointer": (lambda: b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    "half an archive": (lambda: stretched()[:300], "archive is incomplete"),
    "a number": (lambda: bare(b"\x80\x02K\x01."), "no tensors by names"),
    "a plain pickle": (lambda: pickle.dumps({"w": [1.0]}), "damaged"),
    "a header alone": (lambda: b"PK\x03\x04" + struct.pack("<I", 9), "archive is incomplete"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_no_file_of_weights(tmp_path: Path, name: str) -> None:
    make, message = REFUSED[name]
    (tmp_path / "bad.bin").write_bytes(make())
    with pytest.raises(Refused, match=message):
        read_weights([tmp_path / "bad.bin"], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.bin"]


def test_weights_that_git_lfs_has_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "bad.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelFolderError, match="a Git LFS pointer, not the weights; run"):
        unpickle([tmp_path / "bad.bin"], tmp_path / "out")


HUNGRY: dict[str, tuple[Callable[[], bytes], str, float]] = {
    "an enormous storage": (enormous_storage, "more memory than weights of its size", 9.0),
    "an enormous array of bytes": (lambda: bytearray_of(2**40), "more memory than weights", 9.0),
    "two gigabytes": (lambda: bytearray_of(2**31), "more memory than weights of its size", 9.0),
    "a hash without an end": (lambda: tuples_in_a_key(60), "more memory or time", 0.5),
}


@pytest.mark.parametrize("name", list(HUNGRY))
def test_what_takes_memory_or_time_is_stopped(tmp_path: Path, name: str) -> None:
    make, message, seconds = HUNGRY[name]
    (tmp_path / "bad.bin").write_bytes(make())
    with pytest.raises(ModelFolderError, match=message) as caught:
        unpickle([tmp_path / "bad.bin"], tmp_path / "out", seconds=seconds)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "bad.bin"))
    assert [path.name for path in tmp_path.iterdir()] == ["bad.bin"]


def test_nothing_is_left_of_a_conversion_that_fails(source: Path, tmp_path: Path) -> None:
    torch.save({"x": Runs(os.system, "true")}, source / "pytorch_model.bin")
    with pytest.raises(ModelFolderError, match="nothing was run"):
        convert(source, tmp_path / "out")
    torch.save({"weight": torch.ones(2)}, source / "pytorch_model.bin")
    with pytest.raises(ModelFolderError, match=r"in: (holds|lacks)"):
        convert(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_files_that_are_not_told_apart(source: Path, tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        torch.save({"weight": torch.ones(2)}, source / name)
    with pytest.raises(ModelFolderError, match=r"holds 2 files .* name one: .*a\.pt"):
        convert(source, tmp_path / "out")
    (source / "config.json").unlink()
    with pytest.raises(ModelFolderError, match=r"a\.pt: has no config\.json beside it"):
        convert(source / "a.pt", tmp_path / "out")


@pytest.mark.parametrize("name", ["../out.bin", "/etc/passwd", "a.safetensors"])
def test_an_index_that_leads_elsewhere(source: Path, tmp_path: Path, name: str) -> None:
    index = {"weight_map": {"weight": name}}
    (source / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFolderError, match="not a file of weights in its folder"):
        convert(source, tmp_path / "out")


def test_a_link_that_leads_elsewhere(source: Path, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "elsewhere.bin")
    (source / "pytorch_model.bin").symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(ModelFolderError, match="leads out of the folder"):
        convert(source, tmp_path / "out")


def test_the_users_own_limits_are_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    own = 7
    found: dict[int, tuple[int, int]] = {}

    def limit(kind: int, limits: tuple[int, int]) -> None:
        if max(limits) > own:
            raise ValueError("not allowed to raise maximum limit")
        found[kind] = limits

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (own, own))
    monkeypatch.setattr(resource, "setrlimit", limit)
    unpickling._limit(2**30, 15.0, 2**20)
    assert found[resource.RLIMIT_AS] == found[resource.RLIMIT_CPU] == (own, own)
