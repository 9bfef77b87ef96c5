"""Parameter counts of the published sizes, on the meta device."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    AlbertModel,
    BertConfig,
    BertForPreTraining,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

from bertsmith.core.errors import ConfigError
from bertsmith.network.config import ModelConfig, encoder_of, preset_config
from bertsmith.network.families.catalog import FAMILIES, presets
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Model
from parity import modern

UNCASED = 30_522


def count(config: ModelConfig) -> int:
    with torch.device("meta"):
        model = Model(config)
    assert all(parameter.is_meta for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters())


def theirs(size: str) -> BertConfig:
    encoder = encoder_of("bert", size, UNCASED)
    return BertConfig(
        vocab_size=UNCASED, hidden_size=encoder.hidden, num_hidden_layers=encoder.layers,
        num_attention_heads=encoder.heads, intermediate_size=encoder.feed_forward, num_labels=5,
    )  # fmt: skip


# millions, of the table that is asked for; the figures of Turc et al. have the masked-LM head
PUBLISHED = {
    "bert-tiny": (4.4, 4.4),
    "bert-mini": (11.3, 11.3),
    "bert-small": (29.1, 29.1),
    "bert-medium": (41.7, 41.7),
    "bert-base-uncased": (108, 110),
    "bert-base-cased": (108, 110),
    "bert-large-uncased": (334, 340),
    "bert-large-cased": (333.5, 340),
    "bert-xlarge": (1270, 1276),
    "tinybert-4-312": (14.3, 14.5),
    "tinybert-6-768": (67, 67),
    "minilm-6-384": (22, 23),
    "minilm-12-384": (33, 33.5),
    "distilbert-base": (66, 66.4),
    "roberta-base": (124.5, 125),
    "roberta-large": (355, 355.4),
    "albert-base": (11.6, 12),
    "albert-large": (17.6, 18),
    "albert-xlarge": (58.7, 59),
    "modernbert-base": (149, 149.1),
    "modernbert-large": (394.7, 395),
    "electra-small": (13.4, 14),
    "electra-base": (108.8, 110),
    "electra-large": (334, 335),
    "xlm-roberta-base": (277.5, 278.5),
    "xlm-roberta-large": (559, 560.5),
}
EXACT = {
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "distilbert-base": 66_362_880,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "minilm-6-384": 22_713_216,
    "albert-base": 11_683_584,
    "albert-large": 17_683_968,
    "albert-xlarge": 58_724_864,
    "modernbert-base": 149_014_272,
    "modernbert-large": 394_781_696,
    "albert-xxlarge": 222_595_584,
}


@pytest.mark.parametrize("name", presets())
def test_presets_have_the_published_counts(name: str) -> None:
    found = count(preset_config(name))
    if name in EXACT:
        assert found == EXACT[name]
    if name == "albert-xxlarge":
        # the paper says 233 M (235 M in its last version) of what comes to 222.6 M in the weights
        # that its authors published; transformers counts as we do
        assert presets()[name][1].published == "233"
        return
    low, high = PUBLISHED[name]
    assert low - 0.05 <= found / 1e6 <= high + 0.05
    told = [float(part) for part in presets()[name][1].published.split("-")]
    assert found / 1e6 == pytest.approx(
        min(told, key=lambda size: abs(size - found / 1e6)), rel=0.035
    )


def test_the_miniatures_are_published_with_their_head() -> None:
    """Without it they would not round to what is told; googles's table has 110.1 M for base too."""
    for name in ("bert-mini", "bert-small", "bert-medium"):
        bare = ModelConfig(encoder=preset_config(name).encoder)
        assert f"{count(bare) / 1e6:.1f}" != presets()[name][1].published
    base = ModelConfig(encoder=encoder_of("bert", "base", UNCASED), masked_lm=True)
    assert f"{count(base) / 1e6:.1f}" == "110.1"


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, marks=pytest.mark.faults if size == "xlarge" else ())
        for size in FAMILIES["bert"].sizes
    ],
)
def test_heads_have_the_counts_of_transformers(size: str) -> None:
    encoder = encoder_of("bert", size, UNCASED)
    pretraining = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    classifying = ModelConfig(encoder=encoder, predicts="class", labels=("a", "b", "c", "d", "e"))
    with torch.device("meta"):
        assert count(pretraining) == BertForPreTraining(theirs(size)).num_parameters()
        assert count(classifying) == BertForSequenceClassification(theirs(size)).num_parameters()


def test_a_size_can_be_changed_and_must_be_known() -> None:
    changed = encoder_of("bert", "mini", 99, longest=23, dropout=0.0)
    assert (changed.layers, changed.hidden, changed.heads, changed.feed_forward) == (
        4,
        256,
        4,
        1024,
    )
    assert (changed.vocabulary, changed.longest, changed.dropout) == (99, 23, 0.0)


@pytest.mark.parametrize("size", FAMILIES["albert"].sizes)
def test_alberts_have_the_counts_of_transformers(size: str) -> None:
    encoder = encoder_of("albert", size, 30_000)
    there = AlbertConfig(
        vocab_size=30_000, hidden_size=encoder.hidden, num_hidden_layers=encoder.layers,
        num_attention_heads=encoder.heads, intermediate_size=encoder.feed_forward,
    )  # fmt: skip
    pretraining = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    with torch.device("meta"):
        assert count(ModelConfig(encoder=encoder)) == AlbertModel(there).num_parameters()
        assert count(pretraining) == AlbertForPreTraining(there).num_parameters()


@pytest.mark.parametrize("size", FAMILIES["roberta"].sizes)
def test_robertas_have_the_counts_of_transformers(size: str) -> None:
    encoder = encoder_of("roberta", size, 50_265)
    there = RobertaConfig(
        vocab_size=50_265, hidden_size=encoder.hidden, num_hidden_layers=encoder.layers,
        num_attention_heads=encoder.heads, intermediate_size=encoder.feed_forward,
        max_position_embeddings=514, type_vocab_size=1,
    )  # fmt: skip
    masked = ModelConfig(encoder=encoder, pooler=False, masked_lm=True)
    with torch.device("meta"):
        assert count(ModelConfig(encoder=encoder)) == RobertaModel(there).num_parameters()
        assert count(masked) == RobertaForMaskedLM(there).num_parameters()


@pytest.mark.parametrize("size", FAMILIES["distilbert"].sizes)
def test_distilberts_have_the_counts_of_transformers(size: str) -> None:
    encoder = encoder_of("distilbert", size, UNCASED)
    there = DistilBertConfig(
        vocab_size=UNCASED, dim=encoder.hidden, n_layers=encoder.layers, n_heads=encoder.heads,
        hidden_dim=encoder.feed_forward,
    )  # fmt: skip
    masked = ModelConfig(encoder=encoder, pooler=False, masked_lm=True)
    with torch.device("meta"):
        assert count(masked) == DistilBertForMaskedLM(there).num_parameters()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_size_is_told(family: FamilyName) -> None:
    with pytest.raises(ConfigError, match=f"(?i)no {family} of the size 'huge'; sizes are tiny"):
        encoder_of(family, "huge", 99)


@pytest.mark.parametrize("size", FAMILIES["modernbert"].sizes)
def test_modernberts_have_the_counts_of_transformers(size: str) -> None:
    encoder = encoder_of("modernbert", size, 50_368)
    there = modern.ModernBertConfig(
        hidden_size=encoder.hidden, num_hidden_layers=encoder.layers,
        num_attention_heads=encoder.heads, intermediate_size=encoder.feed_forward,
    )  # fmt: skip
    with torch.device("meta"):
        bare = count(ModelConfig(encoder=encoder, pooler=False))
        assert bare == modern.ModernBertModel(there).num_parameters()


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_layers_and_width_are_a_size(family: FamilyName) -> None:
    encoder = encoder_of(family, "3/192", 1000)
    found = (encoder.layers, encoder.hidden, encoder.heads, encoder.feed_forward)
    assert found == (3, 192, 3, 768)


@pytest.mark.parametrize(
    "name", ["3/100", "0/128", "3/0", "03/128", "3/", "/64", "-1/64", "3/640000"]
)
def test_other_layers_and_widths_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no BERT of the size .*; sizes are tiny, .* as 4/192"):
        encoder_of("bert", name, 1000)
