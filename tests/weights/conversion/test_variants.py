"""Weights under other names and in other precisions, and what cannot be converted named as such."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForPreTraining

from bertsmith.cli.main import main
from bertsmith.core.errors import ModelFolderError
from bertsmith.weights.folder import load_model
from limits import files_of
from verbs import convert
from weights.conversion.reference import SIZES, compared, varied, write_vocabulary

VOCABULARY = ("vocab.txt",)
Make = Callable[[torch.dtype], Path]


@pytest.fixture(scope="module")
def theirs() -> BertForPreTraining:
    torch.manual_seed(1)
    return varied(BertForPreTraining(BertConfig(**SIZES)))


@pytest.fixture
def make(tmp_path: Path, theirs: BertForPreTraining) -> Make:
    """A folder as `transformers` saves it, with weights of some type."""

    def made(kind: torch.dtype) -> Path:
        folder = tmp_path / "in" / "checkpoint-10"
        write_vocabulary(folder)
        theirs.save_pretrained(folder)
        weights = load_file(folder / "model.safetensors")
        cast = {name: weight.to(kind) for name, weight in weights.items()}
        save_file(cast, folder / "model.safetensors", {"format": "pt"})
        return folder

    return made


def as_pickle(folder: Path, name: str) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / name)
    (folder / "model.safetensors").unlink()


def cast_model(theirs: BertForPreTraining, kind: torch.dtype) -> BertForPreTraining:
    other = BertForPreTraining(theirs.config).eval()
    other.load_state_dict({n: e.to(kind).float() for n, e in theirs.state_dict().items()})
    return other


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.fp16.safetensors", torch.float16),
        ("model.bf16.safetensors", torch.bfloat16),
        ("pytorch_model.fp16.safetensors", torch.float16),
        ("pytorch_model.fp16.bin", torch.float16),
        ("pytorch_model.bin", torch.float64),
    ],
)
def test_files_of_other_precisions(
    make: Make, theirs: BertForPreTraining, tmp_path: Path, name: str, kind: torch.dtype
) -> None:
    folder = make(kind)
    if name.endswith(".bin"):
        as_pickle(folder, name)
    else:
        (folder / "model.safetensors").rename(folder / name)
        with pytest.raises(ModelFolderError, match=r"no model.safetensors; .* bertsmith convert"):
            load_model(folder)
    convert(folder, tmp_path / "out")
    found = compared(load_model(tmp_path / "out")[0], cast_model(theirs, kind))
    assert found == {"hidden", "masked_lm", "next_sentence"}


def test_shards_of_another_precision(
    make: Make, theirs: BertForPreTraining, tmp_path: Path
) -> None:
    folder = make(torch.float16)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    table: dict[str, str] = {}
    for number, names in enumerate((sorted(weights)[:20], sorted(weights)[20:]), 1):
        file = f"model.fp16-0000{number}-of-00002.safetensors"
        save_file({name: weights[name] for name in names}, folder / file)
        table |= dict.fromkeys(names, file)
    index = folder / "model.safetensors.index.fp16.json"
    index.write_text(json.dumps({"weight_map": table}), encoding="utf-8")
    convert(folder, tmp_path / "out")
    compared(load_model(tmp_path / "out")[0], cast_model(theirs, torch.float16))
    index.write_text(json.dumps({"weight_map": {"a": "../x.safetensors"}}), encoding="utf-8")
    with pytest.raises(ModelFolderError, match="not a file of weights in its folder"):
        convert(folder, tmp_path / "again")


def test_several_precisions_are_a_choice(make: Make, tmp_path: Path) -> None:
    folder = make(torch.float16)
    shutil.copy(folder / "model.safetensors", folder / "model.fp16.safetensors")
    (folder / "model.safetensors").rename(folder / "model.bf16.safetensors")
    with pytest.raises(ModelFolderError, match=r"holds 2 models.*name a file: .*bf16"):
        convert(folder, tmp_path / "out")
    convert(folder / "model.fp16.safetensors", tmp_path / "out")
    load_model(tmp_path / "out")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.fp16.safetensors", None])
@pytest.mark.parametrize("above", [VOCABULARY, (*VOCABULARY, "config.json")])
def test_what_lies_one_folder_up(
    make: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str | None,
    above: tuple[str, ...],
) -> None:
    folder = make(torch.float32)
    if name is not None and name.endswith(".bin"):
        as_pickle(folder, name)
    elif name is not None:
        (folder / "model.safetensors").rename(folder / name)
    for file in above:
        (folder / file).rename(folder.parent / file)
    assert main(["convert", str(folder), str(tmp_path / "out")]) == 0
    assert "has no vocabulary: taken from the folder above it" in capsys.readouterr().err
    load_model(tmp_path / "out")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.fp16.safetensors", None])
def test_families_that_are_not_supported(make: Make, tmp_path: Path, name: str | None) -> None:
    folder = make(torch.float32)
    if name is not None:
        (folder / "model.safetensors").rename(folder / name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mpnet"}))
    with pytest.raises(
        ModelFolderError, match=r"model_type is 'mpnet'; it can be bert, albert, roberta"
    ):
        convert(folder, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_model_folder_is_still_one(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="is already a model folder; use it as it is"):
        convert(make(torch.float32), tmp_path / "out")


def test_a_folder_whose_weights_were_compiled_is_refused_with_a_remedy_and_converted(
    make: Make, theirs: BertForPreTraining, tmp_path: Path
) -> None:
    folder = make(torch.float32)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {f"_orig_mod.{name}": weight for name, weight in weights.items()},
        folder / "model.safetensors",
    )
    with pytest.raises(
        ModelFolderError, match=r"lacks the tensor .*names of its tensors with: bertsmith convert "
    ):
        load_model(folder)
    result = convert(folder, tmp_path / "out")
    assert compared(load_model(tmp_path / "out")[0], theirs) >= {"hidden", "masked_lm"}
    assert {move.change for move in result.moves.done} == {"renamed"}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("model.onnx", r"is an ONNX graph.*; convert the model that it was exported from"),
        ("onnx/model_quantized.onnx", "is an ONNX graph"),
        ("openvino_model.bin", "is a model of OpenVINO"),
        ("tf_model.h5", "is weights of Keras; open them with transformers"),
        ("flax_model.msgpack", "is weights of Flax; open them"),
        ("saved_model.pb", "is a graph of TensorFlow; convert its checkpoint"),
        ("ggml-model.gguf", "is a model of llama.cpp"),
        ("adapter_model.safetensors", "is an adapter, .*; merge it"),
        ("adapter_model.bin", "is an adapter, .*; merge it"),
        ("model.tar.gz", "is an archive; unpack it"),
        ("zero_to_fp32.py", "is a checkpoint of DeepSpeed; convert the file mp_rank_00_model_st"),
        ("__0_0.distcp", r"that torch has divided among ranks; join it, .* FOLDER FILE\.pt"),
        ("notes.txt", "holds no weights of a known kind"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_what_cannot_be_converted_is_named(
    tmp_path: Path, name: str, what: str, named: bool
) -> None:
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 100)
    (tmp_path / "in" / "config.json").write_text('{"model_type": "bert"}')
    if named and name.endswith(".bin"):
        pytest.skip("a file that is named is opened, whatever its name")
    with pytest.raises(ModelFolderError, match=what):
        convert(path if named else tmp_path / "in", tmp_path / "out")


def test_fairseq_with_a_dictionary_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"x")
    (tmp_path / "dict.txt").write_text("L 100\nA 90\nmadeupword0000 0\n", encoding="utf-8")
    with pytest.raises(
        ModelFolderError, match=r"dict.txt: is a dictionary of 3 tokens of its own \('L', 'A', "
    ):
        convert(tmp_path, tmp_path / "out")
    (tmp_path / "dict.txt").write_text("13 100\n262 90\nmadeupword0000 0\n", encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"has no encoder.json beside it; put GPT-2's"):
        convert(tmp_path, tmp_path / "out")


def test_weights_of_float64_are_rounded_and_that_is_said(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(torch.float64)
    weights = load_file(folder / "model.safetensors")
    random = torch.Generator().manual_seed(7)
    moved = {
        name: weight * (1 + 1e-9 * torch.rand(weight.shape, generator=random, dtype=torch.float64))
        for name, weight in weights.items()
    }
    save_file(moved, folder / "model.safetensors", {"format": "pt"})
    model, _ = load_model(folder)
    name = "bert.encoder.layer.0.output.dense.weight"
    found = next(
        value for value in model.state_dict().values() if torch.equal(value, moved[name].float())
    )
    assert found.dtype == torch.float32
    assert "tensors of float64 are rounded to float32" in capsys.readouterr().err
    moved[name][0, 0] = 1e300
    save_file(moved, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFolderError, match=f"{name} contains values that are not finite"):
        load_model(folder)


@pytest.mark.parametrize("size", [20_000, 400])
def test_a_full_disk_is_not_blamed_on_the_weights(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str], size: int
) -> None:
    folder = make(torch.float32)
    as_pickle(folder, "pytorch_model.bin")
    capfd.readouterr()
    with files_of(size):
        status = main(["convert", str(folder), str(tmp_path / "out")])
    told = capfd.readouterr().err
    assert status == 2
    assert f"{tmp_path / 'out'}: cannot be written: File too large; allow larger files" in told
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
