from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load as load_with_torch

from bertsmith.core.errors import ConfigError
from bertsmith.store.store import TokenStore
from bertsmith.training.checkpoints import Checkpoints
from bertsmith.training.distribution import ALONE, World, join_world
from bertsmith.training.run_folder import RunFolder
from bounds import check, close_losses
from launching import ours, ran_in_forks, torchrun
from training.ranks import CASES, STEPS, Case, train

# sums in another order, in float32; Muon makes matrices orthogonal in bfloat16, and magnifies that
BOUNDS = {"adamw": 1e-5, "lamb": 1e-5, "muon": 1e-3}

RESUMED = [case for case in CASES if case.stop]
WHOLE = [case for case in CASES if not case.stop]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, store: TokenStore) -> Path:
    """The folder in which two ranks have carried out all cases."""
    folder = tmp_path_factory.mktemp("learned")
    shutil.copytree(store.folder, folder / "store")
    told = ran_in_forks("-m", "training.ranks", str(folder), folder=folder)
    (folder / "told").write_text(told, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, store: TokenStore) -> dict[str, Path]:
    """By optimiser, the folder of the same training in one process."""
    folders: dict[str, Path] = {}
    for case in WHOLE:
        if case.method not in folders:
            folders[case.method] = folder = tmp_path_factory.mktemp(case.method)
            weights = train(case, store, folder).state_dict()
            torch.save(weights, folder / "weights.pt")
    return folders


def compare_weights(case: Case, found: dict[str, Tensor], folder: Path) -> None:
    wanted = torch.load(folder / "weights.pt")
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        check(found[name], tensor, BOUNDS[case.method], name)


def compare_logs(found: list[dict[str, float]], wanted: list[dict[str, float]]) -> None:
    clock = {"seconds", "tokens_per_second", "mfu", "peak_gflops"}
    assert len(found) == len(wanted) > 2
    for line, other in zip(found, wanted, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - clock:
            close_losses(line[name], other[name], name)


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_two_ranks_learn_what_one_process_learns(
    case: Case, learned: Path, alone: dict[str, Path]
) -> None:
    weights = load_file(learned / f"{case.name}.safetensors")
    compare_weights(case, weights, alone[case.method])
    logs = [RunFolder(folder).log() for folder in (learned / case.name, alone[case.method])]
    compare_logs(*logs)


@pytest.mark.parametrize("case", RESUMED, ids=lambda case: case.name)
def test_one_process_goes_on_where_two_were_stopped(
    case: Case, learned: Path, alone: dict[str, Path], store: TokenStore, tmp_path: Path
) -> None:
    # rank 1 was told so while it drew its second batch of the second step
    shutil.copytree(learned / case.name, tmp_path / "run")
    stopped = Checkpoints(tmp_path / "run" / "checkpoints").load()
    assert stopped is not None
    assert 1 <= stopped.state.step < STEPS
    model = train(case, store, tmp_path / "run")
    compare_weights(case, model.state_dict(), alone[case.method])
    compare_logs(RunFolder(tmp_path / "run").log(), RunFolder(alone[case.method]).log())


def test_shares_are_what_torch_reads_too(learned: Path) -> None:
    folder = learned / "adamw-shares" / "checkpoints" / f"step-{STEPS:08}"
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "memory.json",
        *(f"optimiser-0000{rank}-of-00002.safetensors" for rank in (1, 2)),
        "state.json",
        *(f"weights-0000{rank}-of-00002.safetensors" for rank in (1, 2)),
    ]
    ours_ = Checkpoints(folder.parent).load()
    assert ours_ is not None
    wanted = {**ours_.weights, **ours_.optimiser}
    found = {name: torch.empty_like(tensor) for name, tensor in wanted.items()}
    with pytest.warns(UserWarning, match="in a single process"):
        load_with_torch(found, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
    weights = load_file(learned / "adamw-shares.safetensors")
    assert all(torch.equal(ours_.weights[name], tensor) for name, tensor in weights.items())
    shared = load_file(folder / "weights-00002-of-00002.safetensors")
    assert shared["encoder.blocks.0.attention.query.weight"].shape == (10, 21)


def test_a_damaged_share_is_found(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(learned / "adamw-shares" / "checkpoints", folder)
    share = folder / f"step-{STEPS:08}" / "weights-00002-of-00002.safetensors"
    share.write_bytes(share.read_bytes()[:-1] + b"?")
    found = Checkpoints(folder).load()
    assert found is not None
    assert found.state.step < STEPS
    assert "weights-00002-of-00002.safetensors" in capsys.readouterr().err.replace("\n", "")


def test_ranks_talk(learned: Path) -> None:
    told = (learned / "told").read_text(encoding="utf-8")
    assert [line for line in told.splitlines() if "this is" in line] == ["this is rank 0"]
    first, second = (json.loads((learned / f"rank-{n}.json").read_text()) for n in (0, 1))
    assert first["pids"] == second["pids"] == [first.pop("pid"), second.pop("pid")]
    assert first == second
    assert first["sum"] == [3.0, 0.2, 2.0**61]
    assert first["any"] == [True, False]
    assert first["of_first"] == 0.1
    assert first["told"] == [{"rank": 0}, None]


def test_what_one_rank_cannot_do_ends_all_and_is_told_once(tmp_path: Path) -> None:
    with torchrun("-m", "training.failing_rank", folder=tmp_path) as launched:
        told = launched.ended()
        assert launched.process.returncode
    assert ours(told) == ["bertsmith: the dog ate it; feed the dog"]


def test_one_process_is_a_world_too() -> None:
    with join_world() as world:
        assert world is ALONE
    assert world.first
    assert world.sum([1.5, 2.5]) == [1.5, 2.5]
    assert world.broadcast(lambda: [1]) == [1]
    world.wait()
    with (
        pytest.raises(ConfigError, match="one process cannot shard a model"),
        join_world(shard=True),
    ):
        raise AssertionError


def test_a_world_that_nothing_describes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with (
        pytest.raises(ConfigError, match="WORLD_SIZE is 2, and LOCAL_RANK is not set"),
        join_world(),
    ):
        raise AssertionError


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_an_empty_variable_of_the_launcher_is_not_set(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for other in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(other, "" if other == name else "0")
    with pytest.raises(ConfigError, match=f"WORLD_SIZE is 2, and {name} is not"), join_world():
        raise AssertionError


def test_the_size_of_a_world_that_is_empty_or_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`WORLD_SIZE= bertsmith ...` starts one without."""
    for stated in ("", " "):
        monkeypatch.setenv("WORLD_SIZE", stated)
        with join_world() as world:
            assert world.size == 1
    for stated in ("two", "1.5", "-1"):
        monkeypatch.setenv("WORLD_SIZE", stated)
        with pytest.raises(ConfigError, match=f"WORLD_SIZE is '{stated}', which"), join_world():
            raise AssertionError


def test_batches_that_cannot_be_shared() -> None:
    assert World(rank=1, size=3).share(6) == 2
    with pytest.raises(ConfigError, match=r"4 processes cannot share .* start 1 or 2 or 3 or 6$"):
        World(rank=1, size=4).share(6)
