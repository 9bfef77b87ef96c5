"""Models whose blocks are read from their file one by one: the same weights, in the same memory."""

from __future__ import annotations

import json
from dataclasses import replace
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


def blocks_one_by_one(stored: StoredModel) -> list[dict[str, torch.Tensor]]:
    """Return the weights of each block, copied before the next block is read."""
    states = []
    for number, block in enumerate(stored.model.encoder.blocks):
        stored.read_block(number)
        states.append({name: tensor.clone() for name, tensor in block.state_dict().items()})
    return states


@pytest.mark.parametrize("case", MODELS)
def test_blocks_read_one_by_one_are_those_that_were_saved(tmp_path: Path, case: str) -> None:
    model = varied(build_model(MODELS[case], seed=3))
    save_model(tmp_path / "model", model, TOKENIZERS[case.rpartition("-")[0]])  # type: ignore[index]
    states, _ = load_prepared(tmp_path / "model", blocks_one_by_one)
    assert len(states) == len(model.encoder.blocks)
    for state, block in zip(states, model.encoder.blocks, strict=True):
        expected = block.state_dict()
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in expected)


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
    states, _ = load_prepared(saved, blocks_one_by_one)
    for state, block in zip(states, model.encoder.blocks, strict=True):
        assert all(torch.equal(state[name], tensor) for name, tensor in block.state_dict().items())


def test_a_block_is_whole_until_the_second_one_after_it_takes_its_memory(
    tmp_path: Path, model: Model
) -> None:
    config = replace(model.config, encoder=replace(model.config.encoder, layers=5))
    deep = varied(build_model(config, seed=4))
    save_model(tmp_path / "deep", deep, TOKENIZERS["bert"])
    expected = [block.state_dict() for block in deep.encoder.blocks]

    def addresses(stored: StoredModel) -> list[set[int]]:
        blocks, results = stored.model.encoder.blocks, []
        for number, block in enumerate(blocks):
            stored.read_block(number)
            results.append({tensor.data_ptr() for tensor in block.parameters()})
            for earlier in range(max(number - 1, 0), number + 1):
                state = blocks[earlier].state_dict()
                assert all(torch.equal(state[name], expected[earlier][name]) for name in state)
        return results

    found, _ = load_prepared(tmp_path / "deep", addresses)
    assert found[0] == found[2] == found[4]
    assert found[1] == found[3]
    assert not found[0] & found[1]


def test_blocks_of_a_whole_model_have_memory_of_their_own(saved: Path, model: Model) -> None:
    back, _ = load_model(saved)
    addresses = [tensor.data_ptr() for tensor in back.parameters()]
    assert len(set(addresses)) == len(addresses)
    assert all(
        torch.equal(back.state_dict()[name], tensor) for name, tensor in model.state_dict().items()
    )


def test_a_folder_that_is_replaced_as_it_is_read_gives_no_model_of_both(
    tmp_path: Path, saved: Path, model: Model
) -> None:
    def replaced(stored: StoredModel) -> None:
        stored.read_block(0)
        tensors = load_file(saved / WEIGHTS_FILE)
        save_file({name: tensor + 1 for name, tensor in tensors.items()}, tmp_path / "new")
        (tmp_path / "new").replace(saved / WEIGHTS_FILE)
        stored.read_block(1)

    with pytest.raises(ModelFolderError, match=f"{WEIGHTS_FILE}: was changed while it was read"):
        load_prepared(saved, replaced)
