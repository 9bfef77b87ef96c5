"""Static vectors: what they are made of, and who opens them."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import PCA
from transformers import BertModel

from bertsmith.core.errors import UserError
from bertsmith.engine.config import EngineConfig, FeatureConfig
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes.config import EmbedConfig
from bertsmith.recipes.distil.config import DistilConfig, GeneralSettings, StudentConfig
from bertsmith.recipes.distil.recipe import distil
from bertsmith.recipes.embed import embed
from bertsmith.recipes.loaded import load
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bounds import close_to_transformers, close_unit_vectors
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

TEXTS = ["bada digi kolo", "Mapu.", "bada", "", "xyz bada"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("static")
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=40, longest=33,
        initial_std=0.2,
    )  # fmt: skip
    model = build_model(ModelConfig(encoder=encoder, pooler=False), seed=1)
    save_model(folder / "teacher", model, tokenizer)
    prepare_store(invented_documents(12), tokenizer, folder / "store")
    config = DistilConfig(
        teacher=folder / "teacher", data=folder / "store", out=folder / "out",
        student=StudentConfig(student="8"), method=("static",),
    )  # fmt: skip
    distil(config)
    return folder / "teacher", folder / "store", folder / "out"


def test_vectors_are_weighted_components_of_what_the_teacher_makes_of_a_piece(
    made: tuple[Path, Path, Path], tokenizer: Tokenizer
) -> None:
    teacher, store, out = made
    theirs = BertModel.from_pretrained(teacher).eval()
    ids = torch.arange(5, tokenizer.size)
    around = torch.stack([torch.full_like(ids, 2), ids, torch.full_like(ids, 3)], 1)
    with torch.no_grad():
        rows = theirs(input_ids=around).last_hidden_state.mean(1).double().numpy()
    counts = TokenStore(store).counts(tokenizer.size)
    read = np.concatenate([np.fromfile(path, "<u2") for path in store.glob("tokens-*.bin")])
    assert np.array_equal(counts, np.bincount(read, minlength=tokenizer.size))
    shares = (counts[5:] + 1) / (counts[5:].sum() + len(ids))
    expected = PCA(8).fit_transform(rows) * (1e-4 / (1e-4 + shares))[:, None]
    found = load_file(out / "model.safetensors")["embedding.weight"]
    assert not found[:5].any()
    # directions may point either way
    signs = np.sign((found[5:] * expected).sum(0))
    close_to_transformers(found[5:], expected * signs)


def test_the_vector_of_a_piece_is_pooled_as_the_teachers_folder_says(
    made: tuple[Path, Path, Path], tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """It was the mean, whatever the folder of sentence-transformers said."""
    from sentence_transformers import SentenceTransformer

    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    teacher, store, _ = made
    torch.manual_seed(3)
    stack = [
        modules.Transformer(str(teacher)),
        modules.Pooling(24, pooling_mode=("cls", "max")),
        modules.Dense(48, 20, activation_function=torch.nn.Tanh()),
        modules.Normalize(),
    ]
    theirs = SentenceTransformer(modules=stack[:3], device="cpu").eval()
    SentenceTransformer(modules=stack, device="cpu").save(str(tmp_path / "teacher"))
    config = DistilConfig(
        teacher=tmp_path / "teacher", data=store, out=tmp_path / "out",
        student=StudentConfig(student="20"), method=("static",),
    )  # fmt: skip
    distil(config)
    ids = torch.arange(5, tokenizer.size)
    around = torch.stack([torch.full_like(ids, 2), ids, torch.full_like(ids, 3)], 1)
    features = {"input_ids": around, "attention_mask": torch.ones_like(around)}
    with torch.no_grad():
        rows = theirs(features)["sentence_embedding"].double().numpy()
    counts = TokenStore(store).counts(tokenizer.size)
    shares = (counts[5:] + 1) / (counts[5:].sum() + len(ids))
    expected = PCA(20).fit_transform(rows) * (1e-4 / (1e-4 + shares))[:, None]
    found = load_file(tmp_path / "out" / "model.safetensors")["embedding.weight"][5:]
    close_to_transformers(found @ found.T, expected @ expected.T)


def test_sentence_transformers_and_embed_open_the_folder(
    made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(made[2]), device="cpu").encode(TEXTS)
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(item for item in TEXTS if item) + "\n")
    embed(EmbedConfig(model=made[2], file=str(file), out=tmp_path / "vectors.npy"))
    ours = np.load(tmp_path / "vectors.npy")
    close_unit_vectors(ours, theirs[[0, 1, 2, 4]])


def test_static_folders_of_the_library_are_followed(
    made: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    folder, out = tmp_path / "static", tmp_path / "vectors.npy"
    shutil.copytree(made[2], folder)
    said = {"prompts": {"q": "kolo "}, "default_prompt_name": "q", "truncate_dim": 5}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(said), encoding="utf-8")
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS[:3])
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS[:3]), encoding="utf-8")
    for prompt in (None, "q"):
        embed(EmbedConfig(model=folder, file=str(file), out=out, prompt=prompt))
        assert np.load(out).shape == (3, 5)
        close_to_transformers(np.load(out), theirs)
    # as the library writes others: in a folder of its own, brought to length 1, texts cut
    (folder / "0_StaticEmbedding").mkdir()
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).rename(folder / "0_StaticEmbedding" / name)
    tokens = json.loads((folder / "0_StaticEmbedding" / "tokenizer.json").read_text())
    tokens["truncation"] = {
        "max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right",
    }  # fmt: skip
    (folder / "0_StaticEmbedding" / "tokenizer.json").write_text(json.dumps(tokens))
    modules = [
        {"idx": 0, "name": "0", "path": "0_StaticEmbedding",
         "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize",
         "type": "sentence_transformers.models.Normalize"},
    ]  # fmt: skip
    (folder / "1_Normalize").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS[:3])
    embed(EmbedConfig(model=folder, file=str(file), out=out))
    close_to_transformers(np.load(out), theirs)
    assert "2 of 3 texts were longer than 4 tokens and cut" in capsys.readouterr().err
    with pytest.raises(UserError, match="there is no prompt 'x'; the folder has q"):
        embed(EmbedConfig(model=folder, file=str(file), out=out, prompt="x"))
    tokens["truncation"]["direction"] = "Left"
    (folder / "0_StaticEmbedding" / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(UserError, match="truncates texts at their beginning; only their end"):
        embed(EmbedConfig(model=folder, file=str(file), out=out))


def test_static_folders_of_model2vec_are_followed(
    made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    folder, out = tmp_path / "static", tmp_path / "vectors.npy"
    shutil.copytree(made[2], folder)
    vectors = load_file(folder / "model.safetensors")["embedding.weight"]
    save_file({"embeddings": vectors}, folder / "model.safetensors")
    modules = [
        {"idx": 0, "name": "0", "path": ".",
         "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize",
         "type": "sentence_transformers.models.Normalize"},
    ]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS[:3]), encoding="utf-8")
    embed(EmbedConfig(model=folder, file=str(file), out=out))
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS[:3])
    close_unit_vectors(np.load(out), theirs)
    # which sentence-transformers would ignore; Model2Vec multiplies by one, and looks up the other
    for other in ("weights", "mapping"):
        quantized = {"embeddings": vectors, other: vectors[:, 0].copy()}
        save_file(quantized, folder / "model.safetensors")
        with pytest.raises(UserError, match=f"a tensor {other}, of Model2Vec's vocabulary_quant"):
            embed(EmbedConfig(model=folder, file=str(file), out=out))
    (folder / "modules.json").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    with pytest.raises(UserError, match="save it again with model2vec, which writes that file"):
        embed(EmbedConfig(model=folder, file=str(file), out=out))


def test_only_embed_opens_a_static_folder(made: tuple[Path, Path, Path]) -> None:
    with pytest.raises(UserError, match="a static model, which has no layers; only embed opens"):
        load(made[2])


@pytest.mark.parametrize(
    ("student", "said"),
    [("25", "the teacher's vectors are 24 wide"), ("2/8", "give a width for static, as 256")],
)
def test_impossible_widths_are_refused(
    made: tuple[Path, Path, Path], tmp_path: Path, student: str, said: str
) -> None:
    config = DistilConfig(
        teacher=made[0], data=made[1], out=tmp_path / "out", method=("static",),
        student=StudentConfig(student=student),
    )  # fmt: skip
    with pytest.raises(UserError, match=said):
        distil(config)
    assert not (tmp_path / "out").exists()


def test_settings_of_training_are_refused(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    config = DistilConfig(
        teacher=made[0], data=made[1], out=tmp_path / "out", method=("static",),
        student=StudentConfig(student="8"), general=GeneralSettings(recipe="paper"),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"^--general\.recipe is for training, and static vectors"):
        distil(config)
    assert not (tmp_path / "out").exists()


def test_embed_says_what_a_static_model_does_not_read(
    made: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, folder = made
    texts, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    texts.write_text("bada\n\ndigi\n", encoding="utf-8")
    embed(EmbedConfig(model=folder, file=str(texts), out=out))
    vectors = np.load(out)
    assert vectors.any(1).tolist() == [True, False, True]
    normalized = FeatureConfig(normalize=True)
    embed(EmbedConfig(model=folder, file=str(texts), out=out, features=normalized))
    lengths = np.linalg.norm(vectors[::2], axis=1, keepdims=True)
    close_unit_vectors(np.load(out)[::2], vectors[::2] / lengths)
    assert "1 blank row: the vector of an empty text for each" in capsys.readouterr().err
    for features in (FeatureConfig(max_length=5), FeatureConfig(truncation="windows")):
        with pytest.raises(UserError, match="reads texts of any length whole"):
            embed(EmbedConfig(model=folder, file=str(texts), out=out, features=features))
    engine = EngineConfig(precision="int8")
    with pytest.raises(UserError, match="leave --ray, --precision and --device out"):
        embed(EmbedConfig(model=folder, file=str(texts), out=out, engine=engine))
    for device in ("cuda", "gpu"):
        with pytest.raises(UserError, match="leave --ray, --precision and --device out"):
            embed(EmbedConfig(model=folder, file=str(texts), out=out, device=device))
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text,text_pair\nbada,digi\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.csv:2: is a pair of texts"):
        embed(EmbedConfig(model=folder, file=str(pairs), out=out))
