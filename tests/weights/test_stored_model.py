"""Models whose blocks are read from their file one by one: the same weights, in the same memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.core.errors import ModelFolderError
from bertsmith.network.model import Model, build_model
from bertsmith.weights.folder import StoredModel, load_model, load_prepared, save_model
from bertsmith.weights.tensors import INDEX_FILE, WEIGHTS_FILE
from families import MODELS, TOKENIZERS
from parity.comparing import varied


def bytes_of_blocks(stored: StoredModel) -> list[dict[str, bytes]]:
    """Return what lies where the tensors of each block are said to be."""
    states: list[dict[str, bytes]] = []
    for number, block in enumerate(stored.model.encoder.blocks):
        states.append({})
        sizes = {name: 4 * tensor.numel() for name, tensor in block.named_parameters()}
        for name, (file, _, kind, offset) in stored.locate_block(number).items():
            assert kind == "F32"
            states[-1][name] = file.path.read_bytes()[offset : offset + sizes[name]]
    return states


def bytes_of(block: torch.nn.Module) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in block.state_dict().items()}


@pytest.mark.parametrize("case", MODELS)
def test_blocks_are_found_where_they_were_saved(tmp_path: Path, case: str) -> None:
    model = varied(build_model(MODELS[case], seed=3))
    save_model(tmp_path / "model", model, TOKENIZERS[case.rpartition("-")[0]])  # type: ignore[index]
    states, _ = load_prepared(tmp_path / "model", bytes_of_blocks)
    assert states == [bytes_of(block) for block in model.encoder.blocks]


def test_a_block_whose_tensors_lie_in_several_files(saved: Path, model: Model) -> None:
    tensors = load_file(saved / WEIGHTS_FILE)
    (saved / WEIGHTS_FILE).unlink()
    files: dict[str, str] = {}
    for number in range(3):
        name = f"model-{number + 1:05}-of-00003.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number::3]}
        save_file(part, saved / name)
        files |= dict.fromkeys(part, name)
    (saved / INDEX_FILE).write_text(json.dumps({"weight_map": files}))
    states, _ = load_prepared(saved, bytes_of_blocks)
    assert states == [bytes_of(block) for block in model.encoder.blocks]


def test_blocks_of_a_whole_model_have_memory_of_their_own(saved: Path, model: Model) -> None:
    back, _ = load_model(saved)
    addresses = [tensor.data_ptr() for tensor in back.parameters()]
    assert len(set(addresses)) == len(addresses)
    assert all(
        torch.equal(back.state_dict()[name], tensor) for name, tensor in model.state_dict().items()
    )


def test_a_folder_that_is_replaced_as_it_is_read_gives_no_model_of_both(
    tmp_path: Path, saved: Path
) -> None:
    def replaced(stored: StoredModel) -> None:
        for number in range(2):
            for file in {tensor.file for tensor in stored.locate_block(number).values()}:
                with file.opened():
                    pass
            tensors = load_file(saved / WEIGHTS_FILE)
            save_file({name: tensor + 1 for name, tensor in tensors.items()}, tmp_path / "new")
            (tmp_path / "new").replace(saved / WEIGHTS_FILE)

    with pytest.raises(ModelFolderError, match=f"{WEIGHTS_FILE}: was changed while it was read"):
        load_prepared(saved, replaced)
