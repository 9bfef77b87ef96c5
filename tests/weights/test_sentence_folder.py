"""Folders of sentence-transformers: read as the library reads them, written so that it does."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import bertsmith
from bertsmith.core.errors import ModelFolderError
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.network.pooling import ACTIVATIONS, Dense, Truncation, UnitLength
from bertsmith.tasks.opening import open_embedder
from bertsmith.tasks.opening import vectors as our_vectors
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import load_model, save_model, start_from
from bertsmith.weights.sentence_folder import (
    POOLINGS,
    TRANSFORMER_FILES,
    SentenceSettings,
    read_sentence_folder,
    save_like,
    save_sentence_folder,
)
from bounds import close_to_transformers
from families import ENCODERS, TOKENIZERS

HIDDEN = 24
TEXTS = [" ".join(f"word{(7 * n + m) % 40}" for m in range(n % 23 + 1)) for n in range(31)]
# the names of special tokens stay what they are where a folder lower-cases
TEXTS.append("WORD1 [MASK] Word2 [SEP] word3")
HERE = Path()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIALS, *(f"word{n}" for n in range(40))), BasicRules(lowercase=True))


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Model:
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=HIDDEN, layers=2, heads=3, feed_forward=37, longest=29,
        initial_std=0.3,
    )  # fmt: skip
    return build_model(ModelConfig(encoder=encoder), seed=5).eval()


@pytest.fixture(scope="module")
def theirs() -> Callable[..., NDArray[np.float32]]:
    """What the library gives for some texts, (texts, width)."""
    library = pytest.importorskip("sentence_transformers")

    def vectors(folder: Path, texts: list[str], **options: Any) -> NDArray[np.float32]:  # noqa: ANN401
        loaded = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        return np.asarray(loaded.encode(texts, show_progress_bar=False, **options))

    return vectors


def dense(inputs: int, outputs: int, activation: str, *, bias: bool) -> Dense:
    generator = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, inputs, generator=generator)
    return Dense(weight, torch.randn(outputs, generator=generator) if bias else None, activation)


SETTINGS = [
    *(SentenceSettings(network=HERE, pool=(kind,)) for kind in POOLINGS.values()),
    SentenceSettings(network=HERE, pool=("cls", "mean", "weighted-mean"), after=(UnitLength(),)),
    SentenceSettings(network=HERE, pool=("max", "mean"), longest=11),
    *(
        SentenceSettings(network=HERE, after=(dense(HIDDEN, 7, name, bias=name != "ReLU"),))
        for name in ACTIVATIONS
    ),
    SentenceSettings(
        network=HERE,
        pool=("cls", "mean"),
        after=(
            dense(2 * HIDDEN, 19, "Tanh", bias=True),
            dense(19, 5, "Identity", bias=False),
            UnitLength(),
        ),
        lowercase=True,
        prompts={"query": "word3 word4: ", "document": ""},
        default_prompt="query",
    ),
    SentenceSettings(network=HERE, after=(UnitLength(), Truncation(5))),
    SentenceSettings(network=HERE, pool=("cls", "mean"), after=(Truncation(HIDDEN + 3),)),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_what_is_written_is_read_there_and_here(
    settings: SentenceSettings,
    model: Model,
    tokenizer: Tokenizer,
    theirs: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    save_sentence_folder(folder, model, tokenizer, settings)
    embedder = open_embedder(folder)
    ours = our_vectors(embedder, TEXTS)
    assert ours.shape == (len(TEXTS), embedder.width)
    close_to_transformers(ours, theirs(folder, TEXTS))
    read = read_sentence_folder(folder)
    assert read is not None
    assert (read.pool, read.lowercase, read.prompts, read.default_prompt) == (
        settings.pool, settings.lowercase, settings.prompts, settings.default_prompt,
    )  # fmt: skip
    assert read.longest in (settings.longest, 29)
    assert list(map(type, read.after)) == list(map(type, settings.after))
    for one, other in zip(read.after, settings.after, strict=True):
        state = one.state_dict()
        assert all(torch.equal(state[name], value) for name, value in other.state_dict().items())


def test_what_a_folder_leaves_out_is_what_the_library_takes(
    model: Model,
    tokenizer: Tokenizer,
    theirs: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    """Of a Dense its activation and bias, and the limit of texts; a vector is as wide as it is."""
    folder = tmp_path / "model"
    layer = dense(HIDDEN, 7, "Tanh", bias=True)
    settings = SentenceSettings(network=HERE, pool=("mean",), after=(layer,))
    save_sentence_folder(folder, model, tokenizer, settings)
    sizes = {"in_features": HIDDEN, "out_features": 7}
    write(folder / "2_Dense" / "config.json", sizes)
    write(folder / "sentence_bert_config.json", {})
    change(folder / "tokenizer_config.json", model_max_length=11)
    change(folder / "config_sentence_transformers.json", truncate_dim=9)
    embedder = open_embedder(folder)
    assert embedder.width == 7
    close_to_transformers(our_vectors(embedder, TEXTS), theirs(folder, TEXTS))


def test_a_folder_that_the_library_wrote_is_read(
    model: Model,
    tokenizer: Tokenizer,
    theirs: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    library = pytest.importorskip("sentence_transformers")
    save_model(tmp_path / "plain", model, tokenizer)
    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    network = modules.Transformer(str(tmp_path / "plain"), max_seq_length=17)
    stack = [
        network,
        modules.Pooling(HIDDEN, pooling_mode=("mean", "cls")),
        modules.Dense(2 * HIDDEN, 9),
        modules.Normalize(),
    ]
    built = library.SentenceTransformer(
        modules=stack, device="cpu", prompts={"asked": "word1 word2 "}
    )
    built.save(str(tmp_path / "saved"))
    ours = our_vectors(open_embedder(tmp_path / "saved"), TEXTS)
    close_to_transformers(ours, theirs(tmp_path / "saved", TEXTS))
    asked = our_vectors(open_embedder(tmp_path / "saved", prompt="asked"), TEXTS)
    expected = theirs(tmp_path / "saved", TEXTS, prompt_name="asked")
    close_to_transformers(asked, expected)
    assert np.abs(asked - ours).max() > 1e-2


def test_the_newest_form_of_the_files_is_read(
    model: Model, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """As version 6.2 writes them, which cannot stand beside our transformers."""
    folder = tmp_path / "model"
    save_sentence_folder(folder, model, tokenizer, SentenceSettings(network=HERE, pool=("cls",)))
    base, sentence = "sentence_transformers.base.modules", "sentence_transformers"
    write(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": f"{base}.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling",
         "type": f"{sentence}.sentence_transformer.modules.pooling.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{base}.normalize.Normalize"},
    ])  # fmt: skip
    said = {"embedding_dimension": HIDDEN, "pooling_mode": ["mean", "cls"], "include_prompt": True}
    write(folder / "1_Pooling" / "config.json", said)
    output = {"method": "forward", "method_output_name": "last_hidden_state"}
    write(folder / "sentence_bert_config.json", {
        "transformer_task": "feature-extraction", "modality_config": {"text": output},
        "module_output_name": "token_embeddings", "model_args": {"attn_implementation": "sdpa"},
        "tokenizer_args": {"trust_remote_code": True}, "unpad_inputs": True,
    })  # fmt: skip
    (folder / "2_Normalize").mkdir()
    write(folder / "2_Normalize" / "config.json", {"module_input_name": "sentence_embedding"})
    read = read_sentence_folder(folder)
    assert read is not None
    assert read.pool == ("mean", "cls")
    assert read.longest == 29
    # flags would say no order
    save_like(folder, tmp_path / "copy", model, tokenizer)
    copied = json.loads((tmp_path / "copy" / "1_Pooling" / "config.json").read_text("utf-8"))
    assert copied["pooling_mode"] == ["mean", "cls"]
    assert isinstance(read.after[0], UnitLength)


@pytest.mark.parametrize("name", TRANSFORMER_FILES)
def test_the_names_that_the_longest_text_has_had_are_known(
    model: Model,
    tokenizer: Tokenizer,
    theirs: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
    name: str,
) -> None:
    folder = tmp_path / "model"
    save_sentence_folder(folder, model, tokenizer, SentenceSettings(network=HERE, longest=11))
    (folder / TRANSFORMER_FILES[0]).rename(folder / name)
    read = read_sentence_folder(folder)
    assert read is not None
    assert read.longest == 11
    if name == "sentence_xlm-roberta_config.json":
        close_to_transformers(our_vectors(open_embedder(folder), TEXTS), theirs(folder, TEXTS))


def test_a_folder_without_modules_is_read_up_to_the_limit_of_its_tokenizer(
    model: Model,
    tokenizer: Tokenizer,
    theirs: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    save_model(folder, model, tokenizer)
    change(folder / "tokenizer_config.json", model_max_length=11)
    close_to_transformers(our_vectors(open_embedder(folder), TEXTS), theirs(folder, TEXTS))
    loaded = load_model(folder)
    save_like(folder, tmp_path / "copy", *loaded)
    assert Tokenizer.load(tmp_path / "copy").longest == 11
    change(folder / "tokenizer_config.json", model_max_length=3)
    with pytest.raises(ModelFolderError, match="model_max_length is 3; it must be at least 8"):
        load_model(folder)


def test_a_copy_is_read_as_far_as_it_has_positions(
    theirs: Callable[..., NDArray[np.float32]], tmp_path: Path
) -> None:
    """The library states the rows of a RoBERTa's table, two of which are no positions."""
    roberta = build_model(ModelConfig(encoder=ENCODERS["roberta"]), seed=5).eval()
    rows = ENCODERS["roberta"].longest + 2
    settings = SentenceSettings(network=HERE, longest=rows)
    save_sentence_folder(tmp_path / "model", roberta, TOKENIZERS["roberta"], settings)
    texts = [" ".join(f"word{n}" for n in range(rows)), *TEXTS[:3]]
    ours = our_vectors(open_embedder(tmp_path / "model"), texts)
    close_to_transformers(ours, theirs(tmp_path / "model", texts))


@pytest.mark.parametrize(("stated", "kept"), [("dot", "dot"), (None, "cosine"), ("x", "cosine")])
def test_a_copy_is_compared_as_the_library_compares_its_parent(
    model: Model, tokenizer: Tokenizer, tmp_path: Path, stated: str | None, kept: str
) -> None:
    library = pytest.importorskip("sentence_transformers")
    parent, copy = tmp_path / "parent", tmp_path / "copy"
    save_sentence_folder(parent, model, tokenizer, SentenceSettings(network=HERE))
    change(parent / "config_sentence_transformers.json", similarity_fn_name=stated)
    save_like(parent, copy, model, tokenizer)
    loaded = library.SentenceTransformer(str(copy), device="cpu", local_files_only=True)
    assert loaded.similarity_fn_name == kept


def test_special_tokens_keep_their_names_in_a_cased_folder_that_lower_cases(
    model: Model, theirs: Callable[..., NDArray[np.float32]], tmp_path: Path
) -> None:
    pieces = (*SPECIALS, *(f"word{n}" for n in range(38)), "[", "]")
    cased = Tokenizer(pieces, BasicRules(lowercase=False))
    settings = SentenceSettings(network=HERE, lowercase=True)
    save_sentence_folder(tmp_path / "model", model, cased, settings)
    texts = [*TEXTS, "[mask] WORD1", "word1[CLS]Word2 [UNK]", "ΣΑΣ İ Word3"]
    ours = our_vectors(open_embedder(tmp_path / "model"), texts)
    close_to_transformers(ours, theirs(tmp_path / "model", texts))


def saved_lower_casing(folder: Path, library: Any) -> None:  # noqa: ANN401
    """Save a plain folder as the library does where it is asked to lower-case."""
    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    network = modules.Transformer(str(folder / "plain"), do_lower_case=True)
    stack = [network, modules.Pooling(HIDDEN, pooling_mode="mean")]
    library.SentenceTransformer(modules=stack, device="cpu").save(str(folder / "saved"))


def test_lower_casing_that_the_library_put_before_uncased_rules_is_read(
    model: Model,
    tokenizer: Tokenizer,
    theirs: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    library = pytest.importorskip("sentence_transformers")
    save_model(tmp_path / "plain", model, tokenizer)
    saved_lower_casing(tmp_path, library)
    compiled = json.loads((tmp_path / "saved" / "tokenizer.json").read_text("utf-8"))
    assert [step["type"] for step in compiled["normalizer"]["normalizers"]] == [
        "Lowercase", "BertNormalizer",
    ]  # fmt: skip
    texts = [*TEXTS, "WORD1 Word2 İ ΣΑΣ"]
    ours = our_vectors(open_embedder(tmp_path / "saved"), texts)
    close_to_transformers(ours, theirs(tmp_path / "saved", texts))


def test_lower_casing_that_versions_of_transformers_disagree_on_is_refused_with_a_remedy(
    model: Model,
    theirs: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    """Version 5 does not read it of a cased BERT; as a setting of the library it is followed."""
    library = pytest.importorskip("sentence_transformers")
    pieces = (*SPECIALS, *(f"word{n}" for n in range(40)))
    save_model(tmp_path / "plain", model, Tokenizer(pieces, BasicRules(lowercase=False)))
    saved_lower_casing(tmp_path, library)
    before = theirs(tmp_path / "saved", TEXTS)
    with pytest.raises(
        ModelFolderError, match=r'a Lowercase, .* "do_lower_case": true in sentence'
    ):
        open_embedder(tmp_path / "saved")
    place = tmp_path / "saved" / "tokenizer.json"
    change(place, normalizer=json.loads(place.read_text("utf-8"))["normalizer"]["normalizers"][1])
    change(tmp_path / "saved" / "sentence_bert_config.json", do_lower_case=True)
    close_to_transformers(our_vectors(open_embedder(tmp_path / "saved"), TEXTS), before)


def test_other_folders_are_none(model: Model, tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_model(tmp_path / "model", model, tokenizer)
    assert read_sentence_folder(tmp_path / "model") is None


CROSS_ENCODER = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


def test_a_cross_encoder_of_the_library_answers_as_there(
    tokenizer: Tokenizer, model: Model, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers")
    config = ModelConfig(encoder=model.config.encoder, predicts="number", labels=("score",))
    folder, written = tmp_path / "model", tmp_path / "written"
    save_model(folder, build_model(config, seed=7), tokenizer)
    ranker = library.CrossEncoder(
        str(folder), device="cpu", local_files_only=True, activation_fn=torch.nn.Identity()
    )
    ranker.save_pretrained(str(written))
    assert json.loads((written / "sentence_bert_config.json").read_text("utf-8")) == CROSS_ENCODER
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    answers = bertsmith.load(written, precision="fp32").predict(pairs)
    numbers = [answer["number"] for answer in answers]
    close_to_transformers(numbers, ranker.predict(pairs))


def cross_encoder_scores(folder: Path) -> NDArray[np.float32]:
    """The numbers of a folder opened by the library without any option."""
    library = pytest.importorskip("sentence_transformers")
    ranker = library.CrossEncoder(str(folder), device="cpu", local_files_only=True)
    return np.asarray(ranker.predict(list(zip(TEXTS, TEXTS[::-1], strict=True))))


def test_numbers_that_are_learned_are_those_of_the_librarys_cross_encoder(
    tokenizer: Tokenizer, model: Model, tmp_path: Path
) -> None:
    save_model(tmp_path / "base", model, tokenizer)
    started, _ = start_from(tmp_path / "base", predicts="number", labels=("number",), seed=3)
    save_model(tmp_path / "model", started, tokenizer)
    answers = bertsmith.load(tmp_path / "model", precision="fp32").predict(
        list(zip(TEXTS, TEXTS[::-1], strict=True))
    )
    numbers = [answer["number"] for answer in answers]
    close_to_transformers(numbers, cross_encoder_scores(tmp_path / "model"))
    # the key of the versions before 4
    config = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    assert config["sbert_ce_default_activation_function"] == "torch.nn.modules.linear.Identity"


STATED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda f: None,
    "a file of version 5": lambda f: make_cross_encoder_with(
        f, activation_fn="torch.nn.modules.activation.Tanh"
    ),
    "a key of version 4": lambda f: change(
        f / "config.json",
        sentence_transformers={"activation_fn": "torch.nn.modules.activation.Tanh"},
    ),
    "a key of version 2": lambda f: change(
        f / "config.json", sbert_ce_default_activation_function="torch.nn.modules.linear.Identity"
    ),
}


@pytest.mark.parametrize("name", STATED)
def test_the_activation_of_a_cross_encoder_is_kept_in_a_copy(
    tokenizer: Tokenizer, model: Model, tmp_path: Path, name: str
) -> None:
    config = ModelConfig(encoder=model.config.encoder, predicts="number", labels=("score",))
    folder, copy = tmp_path / "model", tmp_path / "copy"
    save_model(folder, build_model(config, seed=7), tokenizer)
    STATED[name](folder)
    save_like(folder, copy, *load_model(folder))
    close_to_transformers(cross_encoder_scores(folder), cross_encoder_scores(copy))


def write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def change(path: Path, **values: object) -> None:
    write(path, json.loads(path.read_text(encoding="utf-8")) | values)


def lead_out(path: Path) -> None:
    """A link to a file beside the folder in a file's place."""
    outside = path.parents[2] / "outside.json"
    shutil.copy(path, outside)
    path.unlink()
    path.symlink_to(outside)


@pytest.fixture
def folder(model: Model, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    settings = SentenceSettings(
        network=HERE, after=(dense(HIDDEN, 7, "Tanh", bias=True), UnitLength())
    )
    save_sentence_folder(tmp_path / "model", model, tokenizer, settings)
    return tmp_path / "model"


def make_cross_encoder(folder: Path, **values: object) -> None:
    write(folder / "modules.json", [TRANSFORMER])
    write(folder / "sentence_bert_config.json", CROSS_ENCODER | values)


def make_prompted_cross_encoder(folder: Path) -> None:
    make_cross_encoder(folder)
    prompts = {"prompts": {"query": "word1: "}, "default_prompt_name": "query"}
    change(folder / "config_sentence_transformers.json", **prompts)


def make_cross_encoder_with(folder: Path, **settings: object) -> None:
    make_cross_encoder(folder)
    write(folder / "modules.json", [{"idx": 0, "name": "0", **TRANSFORMER}])
    write(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder", **settings})


TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a class of somebody else": (
        lambda f: write(f / "modules.json", [TRANSFORMER | {"type": "os.system"}]),
        "a module is of the class 'os.system'",
    ),
    "a module we do not follow": (
        lambda f: write(
            f / "modules.json",
            [TRANSFORMER, POOLING | {"type": "sentence_transformers.models.LSTM"}],
        ),
        "models.LSTM'; sentence-transformers' Transformer, Pooling, Dense and Normalize are",
    ),
    "a path that leads out": (
        lambda f: write(f / "modules.json", [TRANSFORMER, POOLING | {"path": "../other"}]),
        "a module's path is '../other'; it must be a plain name",
    ),
    "a path from the root": (
        lambda f: write(f / "modules.json", [TRANSFORMER | {"path": "/etc"}]),
        "a module's path is '/etc'",
    ),
    "two modules of a name": (
        lambda f: (f / "modules.json").write_text(
            (f / "modules.json").read_text("utf-8").replace('"name": "3"', '"name": "2"'), "utf-8"
        ),
        "two modules have the name '2'; give each one of its own",
    ),
    "no pooling": (
        lambda f: write(f / "modules.json", [TRANSFORMER]),
        "its modules are Transformer;",
    ),
    "no list": (lambda f: write(f / "modules.json", {}), "holds no JSON list"),
    "entries that are none": (lambda f: write(f / "modules.json", [7]), "of the class 'None'"),
    "deep nesting": (
        lambda f: (f / "modules.json").write_text("[" * 100_000, encoding="utf-8"),
        "modules.json: ",
    ),
    "a large file": (
        lambda f: (f / "modules.json").write_text(" " * 2**21, encoding="utf-8"),
        "is 2 MiB long; at most 1 MiB are read",
    ),
    "no config of pooling": (
        lambda f: (f / "1_Pooling" / "config.json").unlink(),
        "is missing; modules.json asks",
    ),
    "a link that leads out": (
        lambda f: lead_out(f / "1_Pooling" / "config.json"),
        "is a link that leads out of the folder",
    ),
    "another pooling": (
        lambda f: change(f / "1_Pooling" / "config.json", pooling_mode="median"),
        "pooling is ['median']; it can be cls, max",
    ),
    "prompts that are not pooled": (
        lambda f: change(f / "1_Pooling" / "config.json", include_prompt=False),
        "include_prompt is false",
    ),
    "a width of 2^40": (
        lambda f: change(f / "1_Pooling" / "config.json", word_embedding_dimension=2**40),
        "word_embedding_dimension is 1099511627776",
    ),
    "no kind of pooling": (
        lambda f: write(
            f / "1_Pooling" / "config.json",
            {
                "word_embedding_dimension": 8,
                "pooling_mode_mean_tokens": False,
                "pooling_mode_cls_token": False,
            },
        ),
        "pooling is []; it can be",
    ),
    "what goes in is added": (
        lambda f: change(f / "2_Dense" / "config.json", use_residual=True),
        "use_residual is set; only plain maps",
    ),
    "another activation": (
        lambda f: change(f / "2_Dense" / "config.json", activation_function="builtins.eval"),
        "activation_function is 'builtins.eval'; it can be Identity",
    ),
    "sizes that do not fit": (
        lambda f: change(f / "2_Dense" / "config.json", out_features=2**40),
        "its tensors do not fit its config and the pooling",
    ),
    "a layer for wider vectors": (
        lambda f: change(f / "1_Pooling" / "config.json", word_embedding_dimension=7),
        "its tensors do not fit its config and the pooling",
    ),
    "pickled weights": (
        lambda f: (f / "2_Dense" / "model.safetensors").rename(f / "2_Dense/pytorch_model.bin"),
        "2_Dense/pytorch_model.bin: holds pickled weights, which can run code when they are "
        "opened; convert the folder to safetensors with: bertsmith convert",
    ),
    "a normalisation of something else": (
        lambda f: change(f / "2_Dense" / "config.json", module_input_name="token_embeddings"),
        "module_input_name is 'token_embeddings'",
    ),
    "another task": (
        lambda f: change(f / "sentence_bert_config.json", transformer_task="fill-mask"),
        "transformer_task is set",
    ),
    "options of its tokenizer": (
        lambda f: change(f / "sentence_bert_config.json", tokenizer_args={"model_max_length": 9}),
        "tokenizer_args is {'model_max_length': 9}; it is not supported",
    ),
    "another output": (
        lambda f: change(
            f / "sentence_bert_config.json",
            modality_config={"text": {"method": "forward", "method_output_name": "pooler_output"}},
        ),
        "another output than last_hidden_state is pooled",
    ),
    "an output of another name": (
        lambda f: change(f / "sentence_bert_config.json", module_output_name="sentence_embedding"),
        "another output than last_hidden_state is pooled",
    ),
    "no length": (
        lambda f: change(f / "sentence_bert_config.json", max_seq_length=-1),
        "max_seq_length is '-1'",
    ),
    "no features": (
        lambda f: change(f / "config_sentence_transformers.json", truncate_dim=0),
        "truncate_dim is '0'; it must be at least 1",
    ),
    "a cross-encoder with a prompt": (
        make_prompted_cross_encoder,
        "default_prompt_name is 'query'",
    ),
    "a cross-encoder with a limit of its own": (
        lambda f: make_cross_encoder(f, max_seq_length=9),
        "max_seq_length is 9",
    ),
    "a cross-encoder in lower case": (
        lambda f: make_cross_encoder(f, do_lower_case=True),
        "do_lower_case is True",
    ),
    "a default prompt that is not there": (
        lambda f: change(f / "config_sentence_transformers.json", default_prompt_name="query"),
        "its prompts cannot be understood",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_folders_are_refused(folder: Path, name: str) -> None:
    spoil, message = HOSTILE[name]
    spoil(folder)
    with pytest.raises(ModelFolderError) as raised:
        read_sentence_folder(folder)
    assert message in str(raised.value)


def test_a_folder_that_is_there_is_not_replaced(
    folder: Path, model: Model, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ModelFolderError, match="exists already"):
        save_sentence_folder(folder, model, tokenizer, SentenceSettings(network=HERE))
