from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertsmith.core.errors import DiskError, HubError, ModelFolderError
from bertsmith.hub import models as names
from bertsmith.hub.client import HubUnreachable
from bertsmith.hub.models import model_folder, origin
from bertsmith.tokens.folder.files import VOCABULARY_FILES
from bertsmith.weights.folder import QUANTIZED_FILE, load_model
from bertsmith.weights.sentence_folder import TRANSFORMER_FILES
from hub.fake_hub import FakeHub, Files, Refusal, sha256, told

NAME = "hub:owner/name"
WEIGHTS = "model.safetensors"

OTHERS = (
    "modeling_evil.py",
    "pytorch_model.bin",
    "flax_model.msgpack",
    "training_args.bin",
    "optimizer.pt",
    "../outside.json",
    "onnx/model.onnx",
    "model-00001-of-00002.safetensors",
    "1_Pooling/config.json",
    "sub/config.json",
)


def again() -> None:
    """As another process would begin."""
    names._from_hub.cache_clear()


def asked_paths(hub: FakeHub) -> list[str]:
    return [path for _, path, _ in hub.asked]


@pytest.fixture
def offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    del hub
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_model_is_fetched_and_loads(
    hub: FakeHub, model_files: Files, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = hub.add("owner/name", model_files)
    folder = model_folder(NAME)
    assert folder.name == commit
    assert origin(folder) == f"{NAME}@{commit}"
    assert f"{NAME}@main: commit {commit}" in capsys.readouterr().err
    fetched, own = load_model(folder)[0].state_dict(), load_model(model)[0].state_dict()
    assert fetched.keys() == own.keys()
    assert all(torch.equal(fetched[name], own[name]) for name in own)


def test_only_what_makes_a_model_is_fetched(hub: FakeHub, model_files: Files) -> None:
    others = dict.fromkeys(OTHERS, b"import os; os.abort()")
    hub.add("owner/name", model_files | others)
    folder = model_folder(NAME)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert there == set(model_files) - {"README.md"}
    assert not [path for path in asked_paths(hub) if any(other in path for other in others)]


def test_a_second_use_asks_once_and_fetches_nothing(hub: FakeHub, model_files: Files) -> None:
    hub.add("owner/name", model_files)
    first = model_folder(NAME)
    assert model_folder(Path(NAME)) == first
    hub.asked.clear()
    again()
    assert model_folder(NAME) == first
    assert asked_paths(hub) == ["/api/models/owner/name/revision/main"]


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: FakeHub, model_files: Files) -> None:
    first = hub.add("owner/name", model_files)
    changed = model_files | {"vocab.txt": model_files["vocab.txt"] + b"more\n"}
    second = hub.repositories["owner/name"].commit(changed)
    hub.repositories["owner/name"].refs["v1.0"] = first
    assert model_folder(NAME).name == second
    for revision in ("v1.0", first):
        folder = model_folder(f"{NAME}@{revision}")
        assert folder.name == first
        assert (folder / "vocab.txt").read_bytes() == model_files["vocab.txt"]


def test_a_commit_that_is_in_the_cache_asks_nothing(hub: FakeHub, model_files: Files) -> None:
    commit = hub.add("owner/name", model_files)
    first = model_folder(f"{NAME}@{commit}")
    hub.asked.clear()
    again()
    assert model_folder(f"{NAME}@{commit}") == first
    assert hub.asked == []


SENTENCES = {"modules.json": b"[]", "1_Pooling/config.json": b"{}"}


@pytest.fixture
def filled_by_another(hub: FakeHub, model_files: Files) -> Path:
    """The cache as it is where another program fetched a model and knew of no sentences."""
    from huggingface_hub import hf_hub_download

    hub.add("owner/name", model_files | SENTENCES)
    fetched = [hf_hub_download("owner/name", name) for name in model_files]
    return Path(fetched[0]).parent


@pytest.mark.parametrize("revision", ["main", "commit"])
def test_what_another_program_left_out_is_fetched(filled_by_another: Path, revision: str) -> None:
    revision = filled_by_another.name if revision == "commit" else revision
    folder = model_folder(f"{NAME}@{revision}")
    assert folder == filled_by_another
    assert all((folder / name).read_bytes() == content for name, content in SENTENCES.items())


def test_offline_it_is_told_what_another_program_may_have_left_out(
    filled_by_another: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    # what is fetched above asks the hub
    request.getfixturevalue("offline")
    assert model_folder(NAME) == filled_by_another
    assert "without looking for modules.json" in capsys.readouterr().err
    absent = filled_by_another.parents[1] / ".no_exist" / filled_by_another.name / "modules.json"
    absent.parent.mkdir(parents=True)
    absent.touch()
    again()
    assert model_folder(NAME) == filled_by_another
    assert "modules.json" not in capsys.readouterr().err


def test_a_download_of_a_commit_that_was_cut_off_goes_on(hub: FakeHub, model_files: Files) -> None:
    commit = hub.add("owner/name", model_files | SENTENCES)
    folder = model_folder(f"{NAME}@{commit}")
    # the last to be fetched
    (folder / "1_Pooling" / "config.json").unlink()
    again()
    assert (model_folder(f"{NAME}@{commit}") / "1_Pooling" / "config.json").exists()


def test_a_cache_in_which_nothing_can_be_noted_serves(hub: FakeHub, model_files: Files) -> None:
    hub.add("owner/name", model_files)
    folder = model_folder(NAME)
    again()
    for noted in ("refs", "bertsmith"):
        shutil.rmtree(folder.parents[1] / noted)
        (folder.parents[1] / noted).touch()
    assert model_folder(NAME) == folder


def sharded(files: Files) -> Files:
    """Two files and an index in place of one; what is in them does not matter here."""
    weights = files[WEIGHTS]
    parts = {
        "model-00001-of-00002.safetensors": weights[:900],
        "model-00002-of-00002.safetensors": weights[900:],
    }
    index = {"metadata": {}, "weight_map": dict(zip("abc", [*parts, *parts], strict=False))}
    rest = {name: content for name, content in files.items() if name != WEIGHTS}
    return rest | parts | {f"{WEIGHTS}.index.json": json.dumps(index).encode()}


def test_the_shards_of_the_index_are_fetched(hub: FakeHub, model_files: Files) -> None:
    files = sharded(model_files)
    hub.add("owner/name", files | {"model-00003-of-00003.safetensors": b"old"})
    folder = model_folder(NAME)
    assert {path.name for path in folder.iterdir()} == set(files) - {"README.md"}


@pytest.mark.parametrize(
    "named", ["../../outside.safetensors", "missing.safetensors", "evil.py", ".x.safetensors", 3]
)
def test_an_index_that_names_anything_else_is_refused(
    hub: FakeHub, model_files: Files, named: object
) -> None:
    files = sharded(model_files)
    files[f"{WEIGHTS}.index.json"] = json.dumps({"weight_map": {"a": named}}).encode()
    hub.add("owner/name", files | {"../../outside.safetensors": b"x", "evil.py": b"x"})
    with pytest.raises(ModelFolderError, match=r"index\.json: names"):
        model_folder(NAME)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"weight_map": 3}', b"[" * 9999])
def test_an_index_that_is_none_is_refused(hub: FakeHub, model_files: Files, content: bytes) -> None:
    hub.add("owner/name", sharded(model_files) | {f"{WEIGHTS}.index.json": content})
    with pytest.raises(ModelFolderError, match=r"is not an index|not JSON|no JSON object|nested"):
        model_folder(NAME)


def test_modules_of_sentence_transformers_come_along(hub: FakeHub, model_files: Files) -> None:
    more = {
        "modules.json": b"[]",
        "sentence_bert_config.json": b"{}",
        "1_Pooling/config.json": b"{}",
        "2_Dense/config.json": b"{}",
        "2_Dense/model.safetensors": b"x" * 600,
        # one of several lengths of vectors
        "3_Dense_1024/config.json": b"{}",
        "3_Dense_1024/model.safetensors": b"x" * 600,
        "2_Dense/pytorch_model.bin": b"x",
        "2_Dense/evil.py": b"x",
    }
    hub.add("owner/name", model_files | more)
    folder = model_folder(NAME)
    fetched = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    assert fetched & set(more) == set(list(more)[:7])


@pytest.mark.parametrize("name", [*TRANSFORMER_FILES, QUANTIZED_FILE])
def test_settings_that_are_read_of_a_folder_come_along(
    hub: FakeHub, model_files: Files, name: str
) -> None:
    hub.add("owner/name", model_files | {name: b"{}"})
    assert (model_folder(NAME) / name).read_bytes() == b"{}"


def test_a_vocabulary_alone_needs_no_weights(hub: FakeHub, model_files: Files) -> None:
    hub.add("owner/name", model_files)
    folder = model_folder(NAME, "vocabulary")
    assert (folder / "vocab.txt").exists()
    assert not (folder / WEIGHTS).exists()


def test_pickled_weights_are_fetched_for_a_conversion_only(
    hub: FakeHub, model_files: Files
) -> None:
    files = {name: file for name, file in model_files.items() if name != WEIGHTS}
    hub.add("owner/name", files | {"pytorch_model.bin": b"x" * 600})
    with pytest.raises(ModelFolderError, match=f"bertsmith convert {NAME}@main OUT"):
        model_folder(NAME)
    assert (model_folder(NAME, "conversion") / "pytorch_model.bin").exists()


def test_safetensors_are_preferred_for_a_conversion(hub: FakeHub, model_files: Files) -> None:
    hub.add("owner/name", model_files | {"pytorch_model.bin": b"x" * 600})
    folder = model_folder(NAME, "conversion")
    assert not (folder / "pytorch_model.bin").exists()


def test_a_pickled_layer_is_fetched_for_a_conversion_where_there_is_no_other(
    hub: FakeHub, model_files: Files
) -> None:
    more = {"modules.json": b"[]", "2_Dense/config.json": b"{}", "3_Dense/config.json": b"{}"}
    pickled = {f"{number}_Dense/pytorch_model.bin": b"x" for number in (2, 3)}
    hub.add("owner/name", model_files | more | pickled | {"3_Dense/model.safetensors": b"x"})
    assert not any(path.suffix == ".bin" for path in model_folder(NAME).rglob("*"))
    folder = model_folder(NAME, "conversion")
    fetched = [path.relative_to(folder).as_posix() for path in folder.rglob("*.bin")]
    assert fetched == ["2_Dense/pytorch_model.bin"]


@pytest.mark.parametrize("missing", ["config.json", WEIGHTS])
def test_a_repository_that_holds_no_model_is_told(
    hub: FakeHub, model_files: Files, missing: str
) -> None:
    hub.add("owner/name", {name: file for name, file in model_files.items() if name != missing})
    with pytest.raises(ModelFolderError, match="holds no"):
        model_folder(NAME)


def test_a_settings_file_of_a_terabyte_is_not_fetched(hub: FakeHub, model_files: Files) -> None:
    hub.add("owner/name", model_files)
    rows = [
        {"rfilename": "vocab.txt", "size": 2**40, "blobId": "0" * 40},
        {"rfilename": "config.json", "size": 2, "blobId": "1" * 40},
    ]
    body = json.dumps({"id": "owner/name", "sha": "2" * 40, "siblings": rows}).encode()
    hub.refusals.append(Refusal("/api/models", 200, body=body))
    with pytest.raises(ModelFolderError, match="larger than 64 MiB"):
        model_folder(NAME)


def test_weights_that_have_no_room_are_not_fetched(hub: FakeHub, model_files: Files) -> None:
    commit = hub.add("owner/name", model_files)
    listing = [told(name, file) for name, file in model_files.items()]
    next(row for row in listing if row["rfilename"] == WEIGHTS)["lfs"]["size"] = 2**60
    body = json.dumps({"id": "owner/name", "sha": commit, "siblings": listing}).encode()
    hub.refusals.append(Refusal("/api/models", 200, body=body))
    with pytest.raises(DiskError, match=r"too little free space for the 1.* free some space, or"):
        model_folder(NAME)
    assert not [path for path in asked_paths(hub) if path.endswith(WEIGHTS)]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (Refusal("api", 429, {"Retry-After": "17"}), "requests for 17 s: too many .*HF_TOKEN"),
        (Refusal("api", 503), r"an internal error \(503\); try again later"),
        (Refusal("api", 401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
         "token is not accepted; set HF_TOKEN or run: hf auth login"),
        (Refusal("api", 418, body=b'{"error": "a teapot"}'), "refused the request: 418 a teapot"),
        (Refusal("api", 200, body=b"<html>sign in to this hotel"), "unexpected answer from"),
        (Refusal("api", 200, body=b"[]"), "unexpected answer from"),
        (Refusal("api", 200, body=b'{"id": "x", "sha": "../../x"}'), "answer names no commit"),
        (Refusal("/large/", 403), "does not permit this"),
    ],
)  # fmt: skip
def test_what_the_hub_refuses_is_told_in_a_line(
    hub: FakeHub, model_files: Files, refusal: Refusal, message: str
) -> None:
    hub.add("owner/name", model_files)
    hub.refusals.append(refusal)
    with pytest.raises(HubError, match=message) as caught:
        model_folder(NAME)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{NAME}@main: ")


def test_the_host_of_large_files_may_be_out_of_order_too(hub: FakeHub, model_files: Files) -> None:
    """The client asks it again and again, and then raises an error of the HTTP library."""
    hub.add("owner/name", model_files)
    hub.refusals.extend([Refusal("/large/", 500)] * 20)
    with pytest.raises(HubUnreachable, match=r"reports an internal error \(500\); try again later"):
        model_folder(NAME)


def test_the_signature_of_an_address_is_not_told(hub: FakeHub, model_files: Files) -> None:
    commit, size = hub.add("owner/name", model_files), str(len(model_files[WEIGHTS]))
    signed = f"{hub.other_host}/large/owner/name/{commit}/{WEIGHTS}?Expires=9&Signature=SECRET"
    sums = {"X-Linked-ETag": f'"{sha256(model_files[WEIGHTS])}"', "X-Linked-Size": size}
    moved = {"X-Repo-Commit": commit, "Location": signed, **sums}
    hub.refusals.extend([Refusal(f"resolve/.*{WEIGHTS}", 302, moved), Refusal("/large/", 410)])
    with pytest.raises(HubError, match=r"refused the request: 410 (?!410).*/large/") as caught:
        model_folder(NAME)
    assert "SECRET" not in str(caught.value)


def test_what_is_not_there_is_told(hub: FakeHub, model_files: Files) -> None:
    with pytest.raises(HubError, match="no such model, or it is private; check the name"):
        model_folder(NAME)
    hub.add("owner/name", model_files)
    with pytest.raises(HubError, match="no such branch, tag or commit"):
        model_folder(f"{NAME}@v9")


def test_private_and_gated_models_need_a_token(
    hub: FakeHub, model_files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("owner/name", model_files, private=True)
    hub.add("owner/gated", model_files, gated=True)
    with pytest.raises(HubError, match=r"or it is private.* HF_TOKEN"):
        model_folder(NAME)
    for token in (None, "reader"):
        if token is not None:
            monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(HubError, match="the owner's terms; accept them on the model's page"):
            model_folder("hub:owner/gated")
    assert load_model(model_folder(NAME))


def test_the_token_does_not_go_to_another_host(
    hub: FakeHub, model_files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "reader")
    hub.add("owner/name", model_files)
    model_folder(NAME)
    sent = {path: token for _, path, token in hub.asked}
    assert {token for path, token in sent.items() if path.startswith("/large/")} == {None}
    assert {token for path, token in sent.items() if path.startswith("/api/")} == {"reader"}


def test_a_download_that_breaks_off_goes_on_where_it_was(hub: FakeHub, model_files: Files) -> None:
    hub.add("owner/name", model_files)
    hub.cuts.extend([1000, 500])
    folder = model_folder(NAME)
    assert hub.ranges == ["bytes=1000-", "bytes=1500-"]
    assert (folder / WEIGHTS).read_bytes() == model_files[WEIGHTS]


def test_a_download_that_stays_broken_is_told_and_goes_on_later(
    hub: FakeHub, model_files: Files, tmp_path: Path
) -> None:
    hub.add("owner/name", model_files)
    # since 1.0 the client makes several attempts of its own
    hub.cuts.extend([1000, *[0] * 20])
    with pytest.raises(HubError, match=r"(was interrupted|was lost); .*give the same"):
        model_folder(NAME)
    # clients of today keep nothing of a file that they could not finish
    kept = list(tmp_path.glob("cache/**/*.incomplete"))
    hub.ranges.clear()
    hub.cuts.clear()
    folder = model_folder(NAME)
    assert hub.ranges == (["bytes=1000-"] if kept else [])
    assert (folder / WEIGHTS).read_bytes() == model_files[WEIGHTS]


def test_a_file_that_arrives_damaged_is_refused_and_not_kept(
    hub: FakeHub, model_files: Files
) -> None:
    hub.add("owner/name", model_files)
    hub.garbled = True
    with pytest.raises(HubError, match=f"{WEIGHTS} does not match the hub's hash"):
        model_folder(NAME)
    hub.garbled = False
    assert (model_folder(NAME) / WEIGHTS).read_bytes() == model_files[WEIGHTS]


def test_a_damaged_file_is_refused_where_the_disk_has_no_links(
    hub: FakeHub, model_files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import file_download

    monkeypatch.setattr(file_download, "are_symlinks_supported", lambda cache_dir=None: False)
    hub.add("owner/name", model_files)
    hub.garbled = True
    with pytest.raises(HubError, match=f"{WEIGHTS} does not match the hub's hash"):
        model_folder(NAME)


@pytest.mark.usefixtures("offline")
def test_offline_without_a_cache_is_told_in_a_line(hub: FakeHub) -> None:
    with pytest.raises(HubError, match="not in the cache, and HF_HUB_OFFLINE is set; unset it"):
        model_folder(NAME)
    assert hub.asked == []


def test_offline_the_cache_serves_whole_revisions_only(
    hub: FakeHub, model_files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    commit = hub.add("owner/name", model_files)
    folder = model_folder(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.asked.clear()
    for name in (NAME, f"{NAME}@main", f"{NAME}@{commit}"):
        again()
        assert model_folder(name) == folder
    for name in (f"{NAME}@v1", f"{NAME}@{'0' * 40}", "hub:owner/other"):
        with pytest.raises(HubError, match="not in the cache"):
            model_folder(name)
    # as another program leaves a cache that needs weights only, or a tokenizer only
    for needed in ({WEIGHTS}, {*VOCABULARY_FILES} & model_files.keys()):
        assert needed
        kept = {folder / name: (folder / name).read_bytes() for name in needed}
        for path in kept:
            path.unlink()
        again()
        with pytest.raises(HubError, match="not in the cache"):
            model_folder(NAME)
        for path, content in kept.items():
            path.write_bytes(content)
    assert hub.asked == []


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address where nobody listens, and nobody else can begin to: the port is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_on_a_dead_network_the_cache_serves(
    hub: FakeHub,
    model_files: Files,
    dead_address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from huggingface_hub import constants

    commit = hub.add("owner/name", model_files)
    folder = model_folder(NAME)
    again()
    monkeypatch.setattr(constants, "ENDPOINT", dead_address)
    assert model_folder(NAME) == folder
    said = capsys.readouterr().err
    assert f"cannot be reached: no connection; using commit {commit} from the cache" in said
    with pytest.raises(HubUnreachable, match="no connection; check the network") as caught:
        model_folder("hub:owner/other")
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_told(
    hub: FakeHub, model_files: Files, tmp_path: Path
) -> None:
    hub.add("owner/name", model_files)
    (tmp_path / "cache").write_text("")
    with pytest.raises(DiskError):
        model_folder(NAME)
