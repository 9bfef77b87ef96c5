"""Folders that others made: old names and copies are read, what cannot be is told in one line."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import bertsmith
from bertsmith.core.errors import ModelFolderError, UserError
from bertsmith.network.config import Conformal, Fit, Preprocessing
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model, start_from
from bounds import close_to_transformers
from verbs import convert

Tensors = dict[str, Tensor]
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
WORDS = "bert.embeddings.word_embeddings.weight"


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    tensors = change(load_file(folder / "model.safetensors"))
    copies = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(copies, folder / "model.safetensors")


def set_config(folder: Path, **changes: object) -> None:
    data = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(data))


def without(*prefixes: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {k: v for k, v in tensors.items() if not k.startswith(prefixes)}


def renamed(old: str, new: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


def same_weights(folder: Path, model: Model) -> bool:
    state = load_model(folder)[0].state_dict()
    return all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_names_of_old_versions_are_read(saved: Path, model: Model) -> None:
    rewrite(saved, renamed("LayerNorm.weight", "LayerNorm.gamma"))
    rewrite(saved, renamed("LayerNorm.bias", "LayerNorm.beta"))
    rewrite(saved, renamed("bert.", ""))
    rewrite(saved, lambda tensors: tensors | {"embeddings.position_ids": torch.arange(23)[None]})
    assert same_weights(saved, model)


def test_equal_copies_of_tied_tensors_are_dropped(saved: Path, model: Model) -> None:
    def add(tensors: Tensors) -> Tensors:
        decoder = {
            "cls.predictions.decoder.weight": tensors[WORDS],
            "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
        }
        return tensors | decoder

    rewrite(saved, add)
    assert same_weights(saved, model)
    rewrite(saved, without("cls.predictions.bias"))
    assert same_weights(saved, model)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_model_with_an_untied_decoder_is_opened_without_that_head(
    saved: Path, model: Model, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    original = {"weight": WORDS, "bias": "cls.predictions.bias"}[name]
    copy = f"cls.predictions.decoder.{name}"
    rewrite(saved, lambda tensors: tensors | {copy: tensors[original] + 1e-3})
    loaded = load_model(saved)[0]
    assert (loaded.config.masked_lm, loaded.config.next_sentence) == (False, True)
    assert loaded.config.predicts == "class"
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in loaded.state_dict().items())
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the masked-LM head is left out, as {copy} differs from {original}" in line


def test_vectors_of_a_model_with_an_untied_decoder(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    theirs = transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=99, hidden_size=32, tie_word_embeddings=False, **sizes)
    ).eval()
    theirs.save_pretrained(tmp_path / "in")
    tokenizer.save(tmp_path / "in", longest=32)
    text = "word7 word3 word90"
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode([text])[0], tokenizer.sep_id]])
    with torch.no_grad():
        expected = theirs.bert(ids).last_hidden_state[0].mean(0)
    (vector,) = bertsmith.load(tmp_path / "in", precision="fp32").embed([text])
    close_to_transformers(torch.as_tensor(vector), expected)
    assert "the masked-LM head is left out" in capsys.readouterr().err


def test_half_precision_is_read(saved: Path, model: Model) -> None:
    rewrite(saved, lambda tensors: {name: tensor.bfloat16() for name, tensor in tensors.items()})
    state = load_model(saved)[0].state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(state[name], value.bfloat16().float())


def test_a_text_is_cut_where_the_tokenizer_says(saved: Path) -> None:
    def probabilities(text: str, **options: int) -> Tensor:
        model = bertsmith.load(saved, precision="fp32")
        (answer,) = model.predict([text], top=5, **options)
        return torch.tensor([answer["probabilities"][label] for label in model.labels])

    settings = saved / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 11}))
    text = " ".join(f"word{number}" for number in range(15))
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(saved).eval()
    for options, read in (({}, {}), ({"max_length": 16}, {"max_length": 16})):
        encoded = tokenizer(text, truncation=True, return_tensors="pt", **read)
        with torch.no_grad():
            expected = theirs(**encoded).logits[0].softmax(0)
        close_to_transformers(probabilities(text, **options), expected)


@pytest.mark.parametrize("long", ["head", "windows"])
def test_other_programs_read_as_much_as_the_model_was_fine_tuned_on(
    tmp_path: Path, model: Model, tokenizer: Tokenizer, long: Fit
) -> None:
    saved, read = tmp_path / "model", Preprocessing(longest=11, long=long, stride=3)
    save_model(saved, Model(dataclasses.replace(model.config, preprocessing=read)), tokenizer)
    text = " ".join(f"word{number}" for number in range(15))
    theirs = transformers.AutoTokenizer.from_pretrained(saved)
    encoded = theirs(text, truncation=True, return_tensors="pt")
    ours = bertsmith.load(saved, precision="fp32")
    if long == "head":
        classifier = transformers.AutoModelForSequenceClassification.from_pretrained(saved).eval()
        with torch.no_grad():
            expected = classifier(**encoded).logits[0].softmax(0)
        (answer,) = ours.predict([text], top=5)
        probabilities = [answer["probabilities"][label] for label in ours.labels]
        close_to_transformers(torch.tensor(probabilities), expected)
    # windows read all of a text, and so does a vector of it
    assert encoded["input_ids"].shape[1] == (11 if long == "head" else 17)
    encoder = transformers.AutoModel.from_pretrained(saved).eval()
    with torch.no_grad():
        mean = encoder(**theirs(text, return_tensors="pt")).last_hidden_state[0].mean(0)
    close_to_transformers(torch.from_numpy(ours.embed([text])[0]), mean)


def test_heads_of_other_kinds_are_told_and_left_out(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(saved, lambda tensors: tensors | {"qa_outputs.weight": torch.zeros(2, 32)})
    set_config(saved, architectures=["BertForObjectDetection"])
    config = load_model(saved)[0].config
    assert config.labels == ()
    assert config.predicts is None
    assert config.masked_lm
    told = capsys.readouterr().err
    assert "classifier.bias, classifier.weight, qa_outputs.weight" in told
    assert started_labels(saved) == ("x", "y")


def test_a_head_that_the_config_names_and_the_file_lacks_is_told(
    saved: Path, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(saved, without("classifier."))
    config = load_model(saved)[0].config
    assert config == dataclasses.replace(model.config, predicts=None, labels=())
    told = capsys.readouterr().err
    assert "are missing: classify of BertForSequenceClassification" in told
    rewrite(saved, without("bert.pooler."))
    config = load_model(saved)[0].config
    assert (config.pooler, config.next_sentence, config.masked_lm) == (False, False, True)


def test_a_classifier_without_its_pooler_is_told_and_left_out(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(saved, without("bert.pooler."))
    assert load_model(saved)[0].config.predicts is None
    assert "the pooler's are missing: classify" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "predicts"),
    [
        (None, "class"),
        ("single_label_classification", "class"),
        ("multi_label_classification", "classes"),
        ("regression", "number"),
    ],
)
def test_the_problem_tells_what_outputs_mean(
    saved: Path, problem: str | None, predicts: str
) -> None:
    set_config(saved, problem_type=problem)
    assert load_model(saved)[0].config.predicts == predicts
    set_config(saved, problem_type="guessing")
    with pytest.raises(ModelFolderError, match="problem_type is 'guessing'; it can be single"):
        load_model(saved)


def test_a_classifier_of_one_class_is_refused(saved: Path) -> None:
    """transformers 5 refuses it, too; it had the probability 1 for every text."""
    rows = ("classifier.weight", "classifier.bias")
    rewrite(saved, lambda tensors: tensors | {name: tensors[name][:1] for name in rows})
    one = {"id2label": {"0": "it"}, "label2id": {"it": 0}, "num_labels": 1}
    set_config(saved, **one, problem_type="single_label_classification")
    with pytest.raises(ModelFolderError, match=r"one class .* set \"problem_type\" in config.json"):
        load_model(saved)
    set_config(saved, problem_type="multi_label_classification")
    assert load_model(saved)[0].config.predicts == "classes"


@pytest.mark.parametrize("value", ["1", True, [0.5], math.nan, math.inf, 10**400])
def test_a_threshold_that_is_no_number_is_refused(
    saved: Path, tmp_path: Path, value: object
) -> None:
    spans = tmp_path / "spans"
    model, tokenizer = start_from(saved, predicts="span")
    model.config = dataclasses.replace(model.config, no_answer=-1.5)
    save_model(spans, model, tokenizer)
    assert load_model(spans)[0].config.no_answer == -1.5
    set_config(spans, bertsmith_no_answer=value)
    with pytest.raises(ModelFolderError, match="bertsmith_no_answer"):
        load_model(spans)


@pytest.mark.parametrize(
    "changes",
    [
        {"examples": 0},
        {"thresholds": [0.5]},
        {"thresholds": [1.5, 0.2]},
        {"thresholds": [math.nan, 0.2]},
        {"coverages": [0.9, 0.5]},
        {"coverages": [], "thresholds": []},
        {"more": 1},
    ],
)
def test_prediction_sets_that_cannot_be_are_refused(
    saved: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    classes = tmp_path / "classes"
    model, tokenizer = start_from(saved, labels=("a", "b"))
    kept = Conformal(examples=9, coverages=(0.5, 0.9), thresholds=(0.7, 0.2))
    model.config = dataclasses.replace(model.config, conformal=kept)
    save_model(classes, model, tokenizer)
    assert load_model(classes)[0].config.conformal == kept
    set_config(classes, bertsmith_conformal=kept.to_dict() | changes)
    with pytest.raises(ModelFolderError, match="bertsmith_conformal"):
        load_model(classes)


def started_labels(folder: Path) -> tuple[str, ...]:
    return start_from(folder, labels=("x", "y"))[0].config.labels


def test_labels_of_a_head_that_is_not_wanted_do_not_matter(saved: Path) -> None:
    set_config(saved, id2label={"0": "only"})
    with pytest.raises(ModelFolderError, match="5 outputs"):
        load_model(saved)
    assert started_labels(saved) == ("x", "y")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without("bert.encoder.layer.2."), r"lacks the tensor .*layer\.2\..* and 15 more"),
        (without("bert.pooler.dense.bias"), "lacks the tensor bert.pooler.dense.bias"),
        (without("cls.predictions.transform"), "cls.predictions.transform.dense.weight and 3 more"),
        (without("classifier.weight"), "lacks the tensor classifier.weight"),
        (without("bert."), "lacks"),
        (lambda t: t | {QUERY: t[QUERY][:31]}, r"query.weight has the shape \(31, 32\)"),
        (lambda t: t | {WORDS: torch.zeros(98, 32)}, r"asks for \(99, 32\)"),
        (lambda t: t | {"classifier.bias": torch.zeros(4)}, "4 outputs"),
        (lambda t: t | {"classifier.bias": torch.zeros(5, 1)}, r"shape \(5, 1\)"),
        (lambda t: t | {WORDS: torch.zeros(99, 32).int()}, "of type I32"),
        (lambda t: t | {"embeddings.LayerNorm.bias": torch.zeros(32)}, "holds both"),
        (lambda t: t | {"encoder.layer.3.output.x": torch.zeros(3)}, "layer.3.output.x, which"),
        (lambda t: t | {QUERY.replace("query", "distance"): t[WORDS]}, "distance.weight, which"),
    ],
)
def test_weights_that_do_not_fit_the_config_are_refused(
    saved: Path, change: Callable[[Tensors], Tensors], told: str
) -> None:
    rewrite(saved, change)
    with pytest.raises(ModelFolderError, match=told) as caught:
        load_model(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**12},
        {"vocab_size": 10**15},
        {"hidden_size": 4 * 10**15},
        {"max_position_embeddings": 10**15},
    ],
)
def test_a_huge_config_costs_nothing(saved: Path, change: dict[str, int]) -> None:
    set_config(saved, **change)
    with pytest.raises(ModelFolderError):
        load_model(saved)


def test_a_huge_padding_id_asks_for_no_table_of_positions(saved: Path) -> None:
    """The rows before the first position are made with the others where the file has none."""
    tensors = load_file(saved / "model.safetensors")
    encoder = {
        name.replace("bert.", "roberta.", 1): tensor
        for name, tensor in tensors.items()
        if name.startswith(("bert.embeddings.", "bert.encoder."))
        and not name.endswith("position_embeddings.weight")
    }
    rewrite(saved, lambda _: encoder)
    set_config(
        saved, model_type="roberta", architectures=["RobertaModel"], pad_token_id=10**6,
        max_position_embeddings=10**6 + 24, bertsmith_positions="sinusoidal",
    )  # fmt: skip
    with pytest.raises(ModelFolderError, match=r"lacks the tensor .* of 1,000,024 positions"):
        load_model(saved)


def test_new_heads_of_a_model_whose_weights_started_at_zero(saved: Path) -> None:
    set_config(saved, initializer_range=0)
    started, _ = start_from(saved, labels=("a", "b"))
    assert not started.get_parameter("heads.classify.weight").any()


def test_spare_rows_of_the_table_are_read_but_not_a_strange_vocabulary(
    saved: Path, tmp_path: Path
) -> None:
    lines = (saved / "vocab.txt").read_text().split()
    (saved / "tokenizer.json").unlink()
    (saved / "vocab.txt").write_text("\n".join(lines[:91]) + "\n")
    model, tokenizer = load_model(saved)
    assert (model.config.encoder.vocabulary, tokenizer.size) == (99, 91)
    (saved / "vocab.txt").write_text("\n".join([*lines, "more"]) + "\n")
    with pytest.raises(ModelFolderError, match="100 pieces, its token table 99 rows"):
        load_model(saved)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("config.json", "not a model folder: it has no config.json"),
        ("model.safetensors", "not a model folder: it has no model.safetensors"),
    ],
)
def test_a_folder_that_is_no_model_is_told(saved: Path, missing: str, told: str) -> None:
    (saved / missing).unlink()
    with pytest.raises(ModelFolderError, match=told):
        load_model(saved)


def test_the_model_inside_what_people_have_at_hand_is_named(saved: Path, tmp_path: Path) -> None:
    trainer, cached = tmp_path / "trainer", tmp_path / "models--owner--name"
    for step in (9, 500, 1000):
        shutil.copytree(saved, trainer / f"checkpoint-{step}")
    (trainer / "checkpoint-1001").mkdir()
    for commit in ("aa", "bb"):
        shutil.copytree(saved, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("bb")
    for place, inner in ((trainer, "checkpoint-1000"), (cached, "snapshots/bb")):
        with pytest.raises(ModelFolderError, match=f"has no config.json; name {place / inner}$"):
            load_model(place)
        with pytest.raises(ModelFolderError, match=f"of a known kind; name {place / inner}$"):
            convert(place, tmp_path / "out")


def test_an_adapter_is_refused_with_a_remedy(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "adapter_model.safetensors")
    (saved / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="an adapter, which is added to a model; merge it"):
        load_model(saved)


def test_an_adapter_beside_a_model_is_told(
    saved: Path, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    """With peft installed, transformers would add it to the model that it names."""
    (saved / "adapter_config.json").write_text("{}")
    assert same_weights(saved, model)
    assert "adapter_config.json: the adapter is not added to the" in capsys.readouterr().err


def test_thresholds_that_transformers_copied_with_other_weights_are_told(
    saved: Path, tmp_path: Path, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, trained = tmp_path / "ours", tmp_path / "trained"
    labelled, tokenizer = load_model(saved)
    labelled.config = dataclasses.replace(labelled.config, min_confidence=0.9)
    save_model(ours, labelled, tokenizer)
    assert load_model(ours)[0].config.min_confidence == 0.9
    assert "saved the model again" not in capsys.readouterr().err
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(ours)
    theirs.classifier.weight.data += 1
    theirs.save_pretrained(trained)
    tokenizer.save(trained)
    assert load_model(trained)[0].config.min_confidence == 0.9
    (line,) = [told for told in capsys.readouterr().err.splitlines() if "saved the model" in told]
    assert line.endswith("chosen for its earlier weights: bertsmith_min_confidence")


def test_places_that_are_no_folder_are_told(saved: Path) -> None:
    with pytest.raises(ModelFolderError, match="no such folder"):
        load_model(saved / "nowhere")
    with pytest.raises(ModelFolderError, match="is a file; name the model folder"):
        load_model(saved / "model.safetensors")


def test_a_tokenizer_that_is_missing_is_told(saved: Path) -> None:
    (saved / "vocab.txt").unlink()
    (saved / "tokenizer.json").unlink()
    with pytest.raises(UserError):
        load_model(saved)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "model.pt", "best.pth", "last.ckpt", "model.ckpt.data-00000-of-00001"],
)
def test_pickled_weights_are_refused_and_never_opened(saved: Path, name: str) -> None:
    (saved / "model.safetensors").unlink()
    (saved / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    for place in (saved, saved / name):
        with pytest.raises(ModelFolderError, match="bertsmith convert"):
            load_model(place)


def test_pickled_weights_beside_whole_ones_do_not_matter(saved: Path, model: Model) -> None:
    (saved / "training_args.bin").write_bytes(b"x")
    assert same_weights(saved, model)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
def test_links_that_lead_out_of_the_folder_are_refused(
    saved: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    (saved / name).rename(outside)
    (saved / name).symlink_to("../outside")
    with pytest.raises(ModelFolderError, match=f"{name}: is a link that leads out"):
        load_model(saved)


def test_links_of_the_hubs_cache_are_followed(saved: Path, tmp_path: Path, model: Model) -> None:
    blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(saved.iterdir()):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert same_weights(snapshot, model)


def test_a_folder_in_the_place_of_a_file_is_told(saved: Path) -> None:
    (saved / "config.json").unlink()
    (saved / "config.json").mkdir()
    with pytest.raises(ModelFolderError, match="is not a file"):
        load_model(saved)


def test_a_file_with_holes_that_is_larger_than_memory_costs_nothing(saved: Path) -> None:
    """Config and header agree on its sizes, and nearly all of it is nothing."""
    hidden, end, header = 2**17, 0, {}
    for name, value in load_file(saved / "model.safetensors").items():
        shape = [hidden if size == 32 else size for size in value.shape]
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (saved / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    set_config(saved, hidden_size=hidden)
    with pytest.raises(ModelFolderError, match="GiB of memory where this machine has"):
        load_model(saved)


def test_a_head_of_very_many_outputs_is_refused(saved: Path) -> None:
    rewrite(saved, lambda t: t | {"classifier.bias": torch.zeros(100_001)})
    with pytest.raises(ModelFolderError, match="100,001 outputs; at most 100,000"):
        load_model(saved)
