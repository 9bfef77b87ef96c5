"""Model folders of ours: what is saved comes back, and only whole folders are ever seen."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from bertsmith.core.errors import DiskError, ModelFolderError, TrainingDiverged
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import ModelConfig, Positions
from bertsmith.network.encoder import sinusoidal_table
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model, start_from
from bounds import close_to_transformers
from limits import files_of

POSITIONS = "bert.embeddings.position_embeddings.weight"
SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
FILES = {
    "README.md", "config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "vocab.txt",
}  # fmt: skip


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(99, (n,), generator=generator).numpy() for n in (13, 1, 7)]
    return pack(ids, [id_ % 2 for id_ in ids])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    tensors = change(load_file(folder / "model.safetensors"))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )


def test_a_saved_folder_has_the_files_of_the_hub(saved: Path) -> None:
    assert set(contents(saved)) == FILES
    assert (saved / "README.md").read_text() == "# Card\n"
    assert {path.name for path in saved.parent.iterdir()} == {"model"}


def test_what_is_saved_comes_back(saved: Path, model: Model, tokenizer: Tokenizer) -> None:
    back, read = load_model(saved)
    assert back.config == model.config
    assert not back.training
    assert read.fingerprint == tokenizer.fingerprint
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    assert all(parameter.requires_grad for parameter in back.parameters())


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("segments", [0, 2, 3])
def test_save_load_save_is_equal_to_the_bit(
    tmp_path: Path,
    config: ModelConfig,
    make: Callable[[ModelConfig], Model],
    tokenizer: Tokenizer,
    positions: Positions,
    segments: int,
) -> None:
    encoder = dataclasses.replace(config.encoder, positions=positions, segments=segments)
    model = make(dataclasses.replace(config, encoder=encoder))
    save_model(tmp_path / "first", model, tokenizer)
    back, read = load_model(tmp_path / "first")
    save_model(tmp_path / "second", back, read)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    assert back.config == model.config
    with torch.no_grad():
        assert torch.equal(back.encoder(batch()).last, model.encoder(batch()).last)


@pytest.mark.parametrize(
    "parts",
    [
        {"pooler": False},
        {},
        {"masked_lm": True, "pooler": False},
        {"masked_lm": True, "next_sentence": True},
        {"predicts": "class", "labels": ("yes", "no", "perhaps")},
    ],
)
def test_the_heads_are_those_the_file_holds(
    tmp_path: Path,
    config: ModelConfig,
    make: Callable[[ModelConfig], Model],
    tokenizer: Tokenizer,
    parts: dict[str, Any],
) -> None:
    model = make(ModelConfig(encoder=config.encoder, **parts))
    save_model(tmp_path / "model", model, tokenizer)
    assert load_model(tmp_path / "model")[0].config == model.config


def test_constants_that_were_trained_elsewhere_are_learned_now(
    tmp_path: Path,
    config: ModelConfig,
    make: Callable[[ModelConfig], Model],
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    encoder = dataclasses.replace(config.encoder, positions="sinusoidal", segments=0)
    folder = tmp_path / "model"
    save_model(folder, make(dataclasses.replace(config, encoder=encoder)), tokenizer)
    trained = sinusoidal_table(23, 32) + 0.001
    rewrite(folder, lambda tensors: tensors | {POSITIONS: trained})
    back = load_model(folder)[0]
    assert back.config.encoder == dataclasses.replace(encoder, positions="learned")
    assert torch.equal(back.state_dict()["encoder.embeddings.positions.weight"], trained)
    assert "was trained" in capsys.readouterr().err
    # two rows of zeros stand for no segments
    segments = torch.full((2, 32), 0.25)
    segments[1] = -0.5
    rewrite(folder, lambda tensors: tensors | {SEGMENTS: segments})
    back = load_model(folder)[0].eval()
    assert back.config.encoder == dataclasses.replace(encoder, positions="learned", segments=2)
    theirs = AutoModel.from_pretrained(folder).eval()
    ids, kinds = torch.tensor([[2, 7, 9, 3]]), torch.tensor([[0, 0, 1, 1]])
    batch = pack([ids[0].numpy()], [kinds[0].numpy()])
    with torch.no_grad():
        expected = theirs(input_ids=ids, token_type_ids=kinds).last_hidden_state[0]
        close_to_transformers(back.encoder(batch).last, expected)
    assert f"{SEGMENTS} was trained" in capsys.readouterr().err


def test_zeros_that_were_trained_a_little_and_saved_in_bfloat16_are_learned_now(
    tmp_path: Path, config: ModelConfig, make: Callable[[ModelConfig], Model], tokenizer: Tokenizer
) -> None:
    encoder = dataclasses.replace(config.encoder, positions="none", segments=0)
    folder, again = tmp_path / "model", tmp_path / "again"
    save_model(folder, make(dataclasses.replace(config, encoder=encoder)), tokenizer)
    theirs = AutoModel.from_pretrained(folder)
    for table in (theirs.embeddings.position_embeddings, theirs.embeddings.token_type_embeddings):
        table.weight.data += torch.linspace(-3e-3, 3e-3, table.weight.numel()).view_as(table.weight)
    theirs.bfloat16().save_pretrained(again)
    tokenizer.save(again)
    ids = torch.tensor([[2, 7, 9, 3]])
    with torch.no_grad():
        expected = theirs.float().eval()(ids).last_hidden_state[0]
        found = load_model(again)[0].encoder(pack([ids[0].numpy()], [0 * ids[0].numpy()])).last
    close_to_transformers(found, expected)


def test_a_store_or_a_run_in_place_of_a_model_is_named(tmp_path: Path, saved: Path) -> None:
    store, run = tmp_path / "store", tmp_path / "run"
    store.mkdir()
    for name in ("store.json", "documents.bin"):
        (store / name).write_text("{}")
    with pytest.raises(
        ModelFolderError, match="is a token store, not a model folder; name a model"
    ):
        load_model(store)
    for inner, folder in (("vocabulary", store), ("model", run)):
        shutil.copytree(saved, folder / inner)
        with pytest.raises(ModelFolderError, match=rf"tokenizer.json; name {folder / inner}$"):
            Tokenizer.load(folder)


def test_start_from_keeps_the_encoder_and_draws_the_head(saved: Path, model: Model) -> None:
    first, _ = start_from(saved, labels=("a", "b", "c"), seed=1)
    again, _ = start_from(saved, labels=("a", "b", "c"), seed=1)
    other, _ = start_from(saved, labels=("a", "b", "c"), seed=2)
    old, states = model.state_dict(), [item.state_dict() for item in (first, again, other)]
    assert first.config.labels == ("a", "b", "c")
    assert set(first.heads) == {"classify"}
    for name in states[0]:
        if not name.startswith("heads."):
            assert torch.equal(states[0][name], old[name]), name
    head = "heads.classify.weight"
    assert torch.equal(states[0][head], states[1][head])
    assert not torch.equal(states[0][head], states[2][head])
    assert 0.02 < states[0][head].std() < 0.03
    assert states[0][head].abs().max() <= 2 * 0.03


def test_start_from_draws_a_pooler_where_there_is_none(
    tmp_path: Path,
    config: ModelConfig,
    make: Callable[[ModelConfig], Model],
    tokenizer: Tokenizer,
) -> None:
    encoder = dataclasses.replace(config.encoder, positions="sinusoidal")
    model = make(ModelConfig(encoder=encoder, pooler=False))
    save_model(tmp_path / "model", model, tokenizer)
    started, _ = start_from(tmp_path / "model", labels=("a", "b"), seed=5)
    assert started.pooler is not None
    assert 0.02 < started.pooler.dense.weight.std() < 0.03
    packed = batch()
    with torch.no_grad():
        encoded = started.encoder(packed)
        assert torch.equal(encoded.last, model.encoder(packed).last)
        assert started.classify(encoded, packed).shape == (3, 2)


def test_a_model_folder_is_replaced_whole(saved: Path, model: Model, tokenizer: Tokenizer) -> None:
    with torch.no_grad():
        model.get_parameter("heads.classify.bias").add_(1)
    save_model(saved, model, tokenizer)
    assert set(contents(saved)) == FILES - {"README.md"}
    assert {path.name for path in saved.parent.iterdir()} == {"model"}
    back = load_model(saved)[0]
    assert torch.equal(*(item.get_parameter("heads.classify.bias") for item in (back, model)))


def test_through_a_link_the_folder_it_leads_to_is_replaced(
    saved: Path, model: Model, tokenizer: Tokenizer
) -> None:
    link = saved.parent / "latest"
    link.symlink_to(saved)
    save_model(link, model, tokenizer, card="new\n")
    assert link.is_symlink()
    assert (saved / "README.md").read_text() == "new\n"


def test_a_folder_with_anything_else_in_it_is_left_alone(
    saved: Path, model: Model, tokenizer: Tokenizer
) -> None:
    (saved / "notes.txt").write_text("mine")
    before = contents(saved)
    with pytest.raises(ModelFolderError, match=r"holds 'notes\.txt'"):
        save_model(saved, model, tokenizer)
    assert contents(saved) == before
    with pytest.raises(ModelFolderError, match="is a file"):
        save_model(saved / "notes.txt", model, tokenizer)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_not_saved(
    saved: Path, model: Model, tokenizer: Tokenizer, value: float
) -> None:
    """Nobody could load them."""
    before = contents(saved)
    with torch.no_grad():
        model.get_parameter("pooler.dense.bias")[3] = value
    with pytest.raises(
        TrainingDiverged, match=r"bert\.pooler\.dense\.bias contains values that are not"
    ):
        save_model(saved, model, tokenizer)
    assert contents(saved) == before


def test_a_full_disk_leaves_the_old_folder_and_nothing_else(
    saved: Path, model: Model, tokenizer: Tokenizer
) -> None:
    before = contents(saved)
    with files_of(20_000), pytest.raises(DiskError, match="cannot be written"):
        save_model(saved, model, tokenizer)
    assert contents(saved) == before
    assert {path.name for path in saved.parent.iterdir()} == {"model"}


def test_a_rename_that_fails_brings_the_old_folder_back(
    saved: Path, model: Model, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(path: Path, target: Path) -> Path:
        if path.name.startswith(".model.partial-"):
            raise OSError(28, "No space left on device")
        return original(path, target)

    before, original = contents(saved), Path.rename
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(DiskError, match="No space left on device; make room"):
        save_model(saved, model, tokenizer)
    assert contents(saved) == before
    assert {path.name for path in saved.parent.iterdir()} == {"model"}


def test_a_save_that_is_broken_off_leaves_the_old_folder(
    saved: Path, model: Model, tokenizer: Tokenizer
) -> None:
    class Interrupting(Tokenizer):
        def save(self, folder: Path, *, longest: int | None = None, segments: bool = True) -> None:
            super().save(folder, longest=longest, segments=segments)
            raise KeyboardInterrupt

    before = contents(saved)
    with pytest.raises(KeyboardInterrupt):
        save_model(saved, model, Interrupting(tokenizer.vocabulary, tokenizer.rules))
    assert contents(saved) == before
    assert {path.name for path in saved.parent.iterdir()} == {"model"}


def test_a_save_that_was_killed_is_told_and_mended(
    saved: Path, model: Model, tokenizer: Tokenizer
) -> None:
    aside = saved.with_name(".model.replaced")
    saved.rename(aside)
    (saved.parent / ".model.partial-99999999").mkdir()
    with pytest.raises(ModelFolderError, match=r"interrupted; rename .*\.model\.replaced"):
        load_model(saved)
    save_model(saved, model, tokenizer)
    load_model(saved)
    assert {path.name for path in saved.parent.iterdir()} == {"model"}


@pytest.mark.parametrize(
    "names",
    [["model.onnx"], ["openvino_model.xml", "openvino_model.bin"], ["model.pt2"]],
)
def test_what_was_exported_for_another_runtime_is_named(tmp_path: Path, names: list[str]) -> None:
    for name in ("config.json", *names):
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(ModelFolderError, match=f"{names[0]}; name the model folder that it was"):
        load_model(tmp_path)
