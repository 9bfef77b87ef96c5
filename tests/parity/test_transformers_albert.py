"""Shared layers and narrow tables give what transformers' ALBERT gives, whoever saved them."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForPreTraining,
    AlbertForSequenceClassification,
    AlbertModel,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from bertsmith.batches.segments import EXCHANGED, IN_ORDER
from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.network.batch import Target
from bertsmith.network.config import Activation, EncoderConfig, ModelConfig, Positions
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.extend import with_pieces
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights import names
from bertsmith.weights.folder import load_model, save_model
from bertsmith.weights.formats.catalog import FORMATS
from bounds import check, close_gradients, close_losses, close_when_regrouped
from families import LABELS
from parity.comparing import TOKENIZER, compare, sequences, varied

ENCODER = EncoderConfig(
    family="albert", vocabulary=99, embedding=24, hidden=32, layers=6, groups=2, heads=4,
    feed_forward=37, longest=23, activation="gelu_tanh", dropout=0.0, attention_dropout=0.0,
    norm_epsilon=1e-7,
)  # fmt: skip
HEADS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "pretraining": (
        AlbertForPreTraining, AutoModelForPreTraining, {"masked_lm": True, "next_sentence": True},
    ),
    "masked_lm": (AlbertForMaskedLM, AutoModelForMaskedLM, {"masked_lm": True, "pooler": False}),
    "classify": (
        AlbertForSequenceClassification, AutoModelForSequenceClassification,
        {"predicts": "class", "labels": LABELS},
    ),
    "none": (AlbertModel, AutoModel, {}),
}  # fmt: skip


NAMED = {"id2label": dict(enumerate(LABELS)), "label2id": {n: i for i, n in enumerate(LABELS)}}


def there(**changes: Any) -> AlbertConfig:  # noqa: ANN401
    settings = {
        "vocab_size": 99, "embedding_size": 24, "hidden_size": 32, "num_hidden_layers": 6,
        "num_hidden_groups": 2, "num_attention_heads": 4, "intermediate_size": 37,
        "max_position_embeddings": 23, "layer_norm_eps": 1e-7, "attn_implementation": "eager",
    }  # fmt: skip
    return AlbertConfig(**settings | changes)


@pytest.mark.parametrize("kind", ["pretraining", "none"])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_what_transformers_saved_gives_its_results_here(
    tmp_path: Path, kind: str, groups: int, activation: str
) -> None:
    their_class, _, parts = HEADS[kind]
    # its sentence-order head has as many outputs as there are labels
    named = NAMED if kind == "classify" else {}
    config = there(num_hidden_groups=groups, hidden_act=activation, **named)
    theirs = varied(their_class(config))
    theirs.save_pretrained(tmp_path / "model")
    TOKENIZER.save(tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    tanh: Activation = "gelu" if activation == "gelu" else "gelu_tanh"
    shared = None if groups == 6 else groups
    expected = dataclasses.replace(ENCODER, activation=tanh, groups=shared)
    assert ours.config == ModelConfig(encoder=expected, **parts)
    compare(ours, theirs)


@pytest.mark.parametrize("kind", ["pretraining", "none"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@pytest.mark.parametrize("changes", [{}, {"groups": 1}, {"groups": None}, {"embedding": 32}])
def test_what_we_saved_gives_our_results_in_transformers(
    tmp_path: Path, kind: str, positions: Positions, changes: dict[str, Any]
) -> None:
    their_class, auto_class, parts = HEADS[kind]
    encoder = dataclasses.replace(ENCODER, positions=positions, **changes)
    ours = varied(build_model(ModelConfig(encoder=encoder, **parts), seed=11))
    save_model(tmp_path / "model", ours, TOKENIZER)
    theirs, told = auto_class.from_pretrained(
        tmp_path / "model", output_loading_info=True, attn_implementation="eager"
    )
    assert type(theirs) is their_class
    assert not any(told.values()), told
    assert theirs.config.architectures == [their_class.__name__]
    compare(ours, theirs.eval())
    back, _ = load_model(tmp_path / "model")
    assert back.config == ours.config
    assert all(torch.equal(back.state_dict()[n], value) for n, value in ours.state_dict().items())


def test_its_tokenizer_loads_in_transformers(tmp_path: Path) -> None:
    save_model(tmp_path / "model", build_model(ModelConfig(encoder=ENCODER), seed=1), TOKENIZER)
    for fast in (True, False):
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model", use_fast=fast)
        expected = [TOKENIZER.cls_id, *TOKENIZER.encode(["word3 word41"])[0], TOKENIZER.sep_id]
        assert tokenizer("word3 word41")["input_ids"] == expected


def test_the_table_has_the_tensors_of_transformers() -> None:
    config = ModelConfig(
        encoder=ENCODER, masked_lm=True, next_sentence=True, predicts="class", labels=LABELS
    )
    with torch.device("meta"):
        ours = Model(config).state_dict()
        theirs = (
            AlbertForPreTraining(there()).state_dict()
            | AlbertForSequenceClassification(there(**NAMED)).state_dict()
        )
    for copy in FORMATS["albert"].tied:
        del theirs[copy]
    rows = names.rows(config)
    assert len({row.hub for row in rows}) == len({row.ours for row in rows}) == len(rows)
    assert {row.ours: names.shape(row, config) for row in rows} == {
        name: tuple(our.shape) for name, our in ours.items()
    }
    assert {row.hub: names.shape(row, config) for row in rows} == {
        name: tuple(their.shape) for name, their in theirs.items()
    }


def test_losses_and_gradients_are_those_of_transformers(tmp_path: Path) -> None:
    """Sentence order too, whose labels are 0 for in order on both sides."""
    theirs = varied(AlbertForPreTraining(there()))
    theirs.save_pretrained(tmp_path / "model")
    TOKENIZER.save(tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    assert (IN_ORDER, EXCHANGED) == (0, 1)
    packed, padded = sequences()
    real = padded["attention_mask"]
    order = torch.tensor([0, 1, 1, 0, 1, 0])
    at = torch.arange(0, packed.tokens, 3)
    words = torch.randint(5, 99, at.shape, generator=torch.Generator().manual_seed(8))
    packed = dataclasses.replace(
        packed,
        targets={
            "masked_lm": Target(positions=at, labels=words),
            "sentence_order": Target(positions=torch.arange(len(order)), labels=order),
        },
    )
    labels = torch.full(real.shape, -100)
    flat = torch.full((packed.tokens,), -100)
    flat[at] = words
    labels[real] = flat
    theirs.zero_grad()
    expected = theirs(**padded, labels=labels, sentence_order_label=order).loss
    expected.backward()
    found = PRETRAINING(ours, packed).total()
    found.backward()
    close_losses(found, expected)
    gradients = {name: item.grad for name, item in theirs.named_parameters()}
    for row in names.rows(ours.config):
        mine, other = ours.get_parameter(row.ours).grad, gradients[row.hub]
        assert mine is not None
        assert other is not None
        close_gradients(mine, other)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"inner_group_num": 2}, "inner_group_num is 2, which changes the result"),
        (
            {"num_hidden_groups": 4},
            r"layers \(6\) is not a multiple of groups \(4\); .* 1, 2, 3 or 6",
        ),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is"),
        ({"is_decoder": True}, "is_decoder is True, which no ALBERT can be"),
        ({"embedding_size": 0}, "embedding_size is 0"),
        ({"embedding_size": 2**40}, "embedding_size is 1099511627776"),
        ({"embedding_size": 2**20}, "has the shape"),
        ({"num_hidden_groups": 3}, "lacks the tensor albert.encoder.albert_layer_groups.2"),
        ({"num_hidden_groups": 1}, "holds albert.encoder.albert_layer_groups.1"),
        ({"model_type": "bert"}, "lacks the tensor bert"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    folder = tmp_path / "model"
    config = ModelConfig(encoder=ENCODER, masked_lm=True, next_sentence=True)
    save_model(folder, build_model(config, seed=1), TOKENIZER)
    data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(data | changes), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=told):
        load_model(folder)


def test_a_larger_vocabulary_fits_the_narrow_table() -> None:
    config = ModelConfig(encoder=ENCODER, masked_lm=True, pooler=False)
    model = varied(build_model(config, seed=2))
    grown = with_pieces(model, 99, [[7, 9], [11]])
    packed, _ = sequences()
    with torch.no_grad():
        logits = grown.masked_lm(grown.encoder(packed).last)
        before = model.masked_lm(model.encoder(packed).last)
    assert logits.shape == (packed.tokens, 101)
    close_when_regrouped(logits[:, 99], before[:, [7, 9]].mean(1))
    close_when_regrouped(logits[:, 100], before[:, 11])


def test_impossible_wirings_are_refused() -> None:
    wrongs: list[dict[str, Any]] = [{"groups": 4}, {"groups": 0}, {"embedding": 0}]
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            dataclasses.replace(ENCODER, **wrong)


def test_the_real_weights_of_rxnmapper(tmp_path: Path) -> None:
    found = importlib.util.find_spec("rxnmapper")
    if found is None or found.origin is None:
        pytest.skip("the package rxnmapper, which holds a trained ALBERT, is not installed")
    source = Path(found.origin).parent / "models/transformers/albert_heads_8_uspto_all_1310k"
    theirs = AlbertForMaskedLM.from_pretrained(source, attn_implementation="eager").eval()
    theirs.save_pretrained(tmp_path / "model")
    size = theirs.config.vocab_size
    made = Tokenizer((*SPECIALS, *(f"w{n}" for n in range(size - 5))), TOKENIZER.rules)
    made.save(tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    assert ours.config.encoder.groups == 1
    save_model(tmp_path / "again", ours, made)
    back = AutoModelForMaskedLM.from_pretrained(tmp_path / "again").eval()
    # on this nonsense float32 itself is off by more than the bound
    ours = ours.double()
    for item in (theirs, back):
        compare(ours, item.double(), lambda mine, other: check(mine, other, 1e-10))
