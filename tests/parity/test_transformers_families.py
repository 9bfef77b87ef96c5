"""Every family with every head gives what transformers gives, whoever saved it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.weights import names
from bertsmith.weights.folder import load_model, save_model
from bertsmith.weights.formats.catalog import FORMATS
from families import ENCODERS, HEADS, MODELS, OTHER_SHAPES, TOKENIZERS
from parity import modern
from parity.comparing import compare, varied

PREFIXES = {
    "bert": "Bert", "albert": "Albert", "roberta": "Roberta", "distilbert": "DistilBert",
    "modernbert": "ModernBert", "electra": "Electra", "xlm-roberta": "XLMRoberta",
}  # fmt: skip
# what it runs with wherever it can
BACKENDS = {"modernbert": "sdpa"}
SUFFIXES = {
    "none": "Model",
    "masked_lm": "ForMaskedLM",
    "pretraining": "ForPreTraining",
    "replaced_tokens": "ForPreTraining",
    "class": "ForSequenceClassification",
    "classes": "ForSequenceClassification",
    "number": "ForSequenceClassification",
    "tags": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
PROBLEMS = {
    "class": "single_label_classification",
    "classes": "multi_label_classification",
    "number": "regression",
}


def their_class(case: str) -> Any:  # noqa: ANN401
    kind, _, head = case.rpartition("-")
    return getattr(transformers, PREFIXES[kind] + SUFFIXES[head])


def their_config(config: ModelConfig) -> Any:  # noqa: ANN401
    """What a user of transformers would write for it."""
    encoder = config.encoder
    settings: dict[str, Any] = {
        "vocab_size": encoder.vocabulary, "hidden_size": encoder.hidden,
        "num_hidden_layers": encoder.layers, "num_attention_heads": encoder.heads,
        "intermediate_size": encoder.feed_forward, "max_position_embeddings": encoder.longest,
        "layer_norm_eps": encoder.norm_epsilon, "attn_implementation": "eager",
    }  # fmt: skip
    if config.labels:
        settings["id2label"] = dict(enumerate(config.labels))
        settings["label2id"] = {label: number for number, label in enumerate(config.labels)}
    if config.predicts in PROBLEMS:
        settings["problem_type"] = PROBLEMS[config.predicts]
    match encoder.family:
        case "albert":
            settings |= {"embedding_size": encoder.embedding, "num_hidden_groups": encoder.groups}
            return transformers.AlbertConfig(**settings)
        case "roberta" | "xlm-roberta":
            settings |= {"max_position_embeddings": 25, "type_vocab_size": 1}
            return getattr(transformers, f"{PREFIXES[encoder.family]}Config")(**settings)
        case "electra":
            return transformers.ElectraConfig(**settings | {"embedding_size": encoder.embedding})
        case "distilbert":
            return transformers.DistilBertConfig(**_as_distilbert(settings))
        case "modernbert":
            del settings["layer_norm_eps"]
            settings |= {"norm_eps": encoder.norm_epsilon, "local_attention": 8, "pad_token_id": 0}
            return modern.ModernBertConfig(**settings | {"attn_implementation": "sdpa"})
        case _:
            return transformers.BertConfig(**settings)


def _as_distilbert(settings: dict[str, Any]) -> dict[str, Any]:
    renamed = {
        "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
    }  # fmt: skip
    del settings["layer_norm_eps"]
    return {renamed.get(name, name): value for name, value in settings.items()}


def shaped(case: str, changes: dict[str, Any]) -> ModelConfig:
    config = MODELS[case]
    return dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, **changes))


# other shapes twice in each family, with another two heads in each
OTHERS = {
    f"{family}-{list(HEADS)[(2 * number + place) % len(HEADS)]}"
    for number, family in enumerate(ENCODERS)
    for place in (0, 5)
}
SHAPED = [
    pytest.param(case, changes, id=f"{case}-{name}", marks=pytest.mark.faults if left else ())
    for name, changes in (("usual", {}), ("other", OTHER_SHAPES))
    for case in MODELS
    for left in (name == "other" and case not in OTHERS,)
]


@pytest.mark.parametrize(("case", "changes"), SHAPED)
def test_what_transformers_saved_gives_its_results_here(
    tmp_path: Path, case: str, changes: dict[str, Any]
) -> None:
    expected = shaped(case, changes)
    theirs = varied(their_class(case)(their_config(expected)))
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer = TOKENIZERS[expected.encoder.family]
    tokenizer.save(tmp_path / "theirs")
    ours, _ = load_model(tmp_path / "theirs")
    assert ours.config == expected
    compare(ours, theirs)
    save_model(tmp_path / "ours", ours, tokenizer)
    again = their_class(case).from_pretrained(tmp_path / "ours")
    state = theirs.state_dict()
    assert again.state_dict().keys() == state.keys()
    for name, value in again.state_dict().items():
        assert torch.equal(value, state[name]), name


@pytest.mark.parametrize(
    "case", ["roberta-masked_lm", "electra-masked_lm", "electra-class", "electra-replaced_tokens"]
)
def test_heads_have_the_gelu_of_transformers_where_the_encoder_has_another(
    tmp_path: Path, case: str
) -> None:
    expected = shaped(case, {"activation": "gelu_tanh"})
    config = their_config(expected)
    config.hidden_act = "gelu_new"
    theirs = varied(their_class(case)(config))
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZERS[expected.encoder.family].save(tmp_path / "theirs")
    ours, _ = load_model(tmp_path / "theirs")
    assert ours.config == expected
    compare(ours, theirs)


@pytest.mark.parametrize("case", MODELS)
def test_what_we_saved_gives_our_results_in_transformers(tmp_path: Path, case: str) -> None:
    config = MODELS[case]
    ours = varied(build_model(config, seed=11))
    save_model(tmp_path / "model", ours, TOKENIZERS[config.encoder.family])
    wanted, kind = their_class(case), config.encoder.family
    name = json.loads((tmp_path / "model" / "config.json").read_text())["architectures"]
    assert name == [wanted.__name__]
    theirs, told = wanted.from_pretrained(
        tmp_path / "model",
        output_loading_info=True,
        attn_implementation=BACKENDS.get(kind, "eager"),
    )
    assert not any(told.values()), told
    if config.labels:
        assert tuple(theirs.config.id2label.values()) == config.labels
    assert theirs.config.problem_type == PROBLEMS.get(config.predicts or "")
    compare(ours, theirs.eval())


@pytest.mark.parametrize("case", MODELS)
def test_the_table_has_the_tensors_of_transformers(case: str) -> None:
    config = MODELS[case]
    with torch.device("meta"):
        ours = Model(config).state_dict()
        theirs = their_class(case)(their_config(config)).state_dict()
    layout = FORMATS[config.encoder.family]
    rows = names.rows(config)
    # a tensor of theirs may hold several of ours, each in a place of its own
    assert len({(row.hub, row.place) for row in rows}) == len({row.ours for row in rows})
    assert sum(1 / row.place[1] for row in rows) == pytest.approx(len({row.hub for row in rows}))
    assert {row.ours: names.shape(row, config) for row in rows} == {
        name: tuple(our.shape) for name, our in ours.items()
    }
    # a bare encoder has no prefix there
    prefix = layout.prefix if case.endswith("-none") else ""
    assert {row.hub.removeprefix(prefix): names.shape_in_file(row, config) for row in rows} == {
        name: tuple(their.shape) for name, their in theirs.items() if name not in layout.tied
    }
