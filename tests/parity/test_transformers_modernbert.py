"""ModernBERT on what is its own: long texts, training, means, and what its files may say."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig, encoder_of
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.objectives.tasks import Classify
from bertsmith.weights import names
from bertsmith.weights.folder import load_model, save_model, start_from
from bounds import close_gradients, close_losses, close_to_transformers, close_when_regrouped
from families import ENCODERS, LABELS
from parity import modern
from parity.comparing import TOKENIZER, compare, every_state, sequences, varied
from parity.modern import there

# whose weights of attention are too many to be computed at once
LONGEST = [900, pytest.param(2100, marks=pytest.mark.faults)]


def loaded(theirs: Any, folder: Path) -> Model:  # noqa: ANN401
    theirs.save_pretrained(folder)
    TOKENIZER.save(folder)
    return load_model(folder)[0]


def long_batch(longest: int) -> tuple[Batch, Tensor, Tensor]:
    """Packed, and padded with a mask."""
    lengths = (longest, 1, 300, 17)
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, 99, (len(lengths), longest), generator=generator)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    rows = [row[:n].numpy() for row, n in zip(ids, lengths, strict=True)]
    return pack(rows, [np.zeros_like(row) for row in rows]), ids * mask, mask


@pytest.mark.parametrize("longest", LONGEST)
@pytest.mark.parametrize("changes", [{}, {"global_attn_every_n_layers": 2, "local_attention": 50}])
@torch.no_grad()
def test_long_texts_give_the_hidden_states_of_transformers(
    tmp_path: Path, changes: dict[str, Any], longest: int
) -> None:
    theirs = varied(modern.ModernBertModel(there(**changes)))
    ours = loaded(theirs, tmp_path)
    packed, ids, mask = long_batch(longest)
    out = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    *states, last = ours.encoder(packed, taps=every_state(ours)).states.values()
    for mine, other in zip(states, out.hidden_states, strict=False):
        close_to_transformers(mine, other[mask])
    close_to_transformers(last, out.last_hidden_state[mask])
    # alone, and in training, with the last layer at some tokens only
    begin = longest + 1
    alone = pack([ids[2, :300].numpy()], [np.zeros(300, np.int64)])
    close_when_regrouped(ours.encoder(alone).last, last[begin : begin + 300])
    read = torch.arange(0, packed.tokens, 7)
    with torch.enable_grad():
        trained = ours.encoder(packed, selected=read).last.detach()
    close_when_regrouped(trained, last[read])


@pytest.mark.parametrize("longest", LONGEST)
def test_a_masked_lm_step_has_the_gradients_of_transformers(tmp_path: Path, longest: int) -> None:
    theirs = varied(modern.ModernBertForMaskedLM(there())).train()
    ours = loaded(theirs, tmp_path).train()
    packed, ids, mask = long_batch(longest)
    chosen = (torch.rand(ids.shape, generator=torch.Generator().manual_seed(6)) < 0.3) & mask
    words = torch.randint(5, 99, ids.shape, generator=torch.Generator().manual_seed(8))
    target = Target(positions=chosen[mask].nonzero().flatten(), labels=words[chosen])
    packed = dataclasses.replace(packed, targets={"masked_lm": target})
    expected = theirs(
        input_ids=ids, attention_mask=mask, labels=words.masked_fill(~chosen, -100)
    ).loss
    expected.backward()
    found = PRETRAINING(ours, packed).total()
    found.backward()
    close_losses(found, expected)
    gradients = {name: item.grad for name, item in theirs.named_parameters()}
    rows = names.rows(ours.config)
    assert {row.hub for row in rows} == gradients.keys()
    for row in rows:
        mine, other = ours.get_parameter(row.ours).grad, gradients[row.hub]
        assert mine is not None
        assert other is not None
        number, count = row.place
        part = other.chunk(count)[number]
        assert float(part.abs().max()) > 0
        close_gradients(mine, part, row.ours)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_sequences_may_be_the_mean_of_their_tokens(tmp_path: Path, activation: str) -> None:
    named = {"id2label": dict(enumerate(LABELS)), "label2id": {n: i for i, n in enumerate(LABELS)}}
    config = there(
        classifier_pooling="mean", hidden_activation=activation, classifier_activation=activation,
        **named,
    )  # fmt: skip
    theirs = varied(modern.ModernBertForSequenceClassification(config))
    ours = loaded(theirs, tmp_path / "theirs")
    assert ours.config.encoder.pooled == "mean"
    compare(ours, theirs)
    save_model(tmp_path / "ours", ours, TOKENIZER)
    again = modern.ModernBertForSequenceClassification.from_pretrained(tmp_path / "ours")
    compare(ours, again.eval())
    # the whole of the last layer is computed, whoever asks for less
    packed, _ = sequences()
    target = Target(positions=torch.arange(6), labels=torch.tensor([0, 1, 2, 3, 4, 0]))
    packed = dataclasses.replace(packed, targets={"classify": target})

    objective = Objective({"classify": Classify()})
    assert objective.selected_tokens(ours, packed) is None
    with_mean = ours.classify(ours.encoder(packed), packed)
    expected = torch.nn.functional.cross_entropy(with_mean, target.labels, reduction="sum")
    close_losses(objective(ours, packed).parts["classify"].sum, expected)


def test_a_new_head_begins_with_the_layer_of_masked_lm_as_in_transformers(tmp_path: Path) -> None:
    theirs = varied(modern.ModernBertForMaskedLM(there()))
    theirs.save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    ours, _ = start_from(tmp_path, predicts="class", labels=LABELS)
    again = modern.ModernBertForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    assert ours.pooler is not None
    state = again.state_dict()
    for name, value in ours.pooler.state_dict().items():
        assert torch.equal(value, state[f"head.{name}"])
    found = ours.state_dict()["encoder.final_norm.weight"]
    assert torch.equal(found, state["model.final_norm.weight"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"norm_bias": True}, "norm_bias is True, which changes the result"),
    ({"attention_bias": True}, "attention_bias is True"),
    ({"mlp_bias": True}, "mlp_bias is True"),
    ({"classifier_bias": True}, "classifier_bias is True"),
    ({"decoder_bias": False}, "decoder_bias is False"),
    ({"classifier_pooling": "max"}, "classifier_pooling is 'max'; it can be cls or mean"),
    ({"classifier_pooling": ["cls"]}, "classifier_pooling is "),
    ({"classifier_activation": "relu"}, "classifier_activation is 'relu'"),
    ({"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
    ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is "),
    ({"layer_types": ["full_attention"]}, "layer_types is "),
    ({"embedding_dropout": 0.3}, "embedding_dropout is 0.3"),
    ({"local_attention": 0}, "local_attention is 0"),
    ({"global_attn_every_n_layers": None}, "global_attn_every_n_layers is None"),
    ({"global_rope_theta": 0.5}, "theta is 0.5; it must exceed 1"),
    ({"num_attention_heads": 32}, "heads are 1 wide"),
]


@pytest.mark.parametrize(("change", "told"), REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    model = build_model(ModelConfig(encoder=ENCODERS["modernbert"], pooler=False), seed=1)
    save_model(tmp_path / "model", model, TOKENIZER)
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelFolderError, match=told):
        load_model(tmp_path / "model")


def test_local_positions_are_the_global_ones_where_nothing_is_said(tmp_path: Path) -> None:
    theirs = varied(modern.ModernBertModel(there(local_rope_theta=None, global_rope_theta=500.0)))
    ours = loaded(theirs, tmp_path)
    assert (ours.config.encoder.theta, ours.config.encoder.local_theta) == (500.0, 500.0)
    compare(ours, theirs)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"causal": True}, "attention from left to right cannot have a window"),
        ({"heads": 32}, "heads are 1 wide"),
        ({"theta": 1.0}, "theta is 1.0"),
        ({"global_every": 0}, "global_every is 0"),
    ],
)
def test_a_wiring_that_cannot_be_computed_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        dataclasses.replace(ENCODERS["modernbert"], **change)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"next_sentence": True, "pooler": True}, "has no next-sentence head"),
        ({"masked_lm": True, "pooler": True}, "has a pooler below heads that read it"),
        ({"predicts": "span", "pooler": False}, "has a pooler below heads that read it"),
        ({"predicts": "span", "masked_lm": True}, "has one head"),
    ],
)
def test_heads_that_it_has_not_are_refused(parts: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ModelConfig(encoder=ENCODERS["modernbert"], **parts)


def test_sums_of_layers_start_small() -> None:
    encoder: EncoderConfig = encoder_of("modernbert", "tiny", 99)
    model = build_model(ModelConfig(encoder=encoder, pooler=False, masked_lm=True), seed=1)
    for name, parameter in model.encoder.blocks.named_parameters():
        if parameter.dim() == 2:
            narrow = name.endswith(("output.weight", "down.weight"))
            # a normal cut at two deviations has 0.88 of its deviation
            expected = 0.02 * 0.88 / math.sqrt(6 if narrow else 1)
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.05), name
