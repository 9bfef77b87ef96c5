"""Replaced-token detection: what the generator samples, and what learns from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from scipy import stats

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.pretraining import (
    PRETRAINING,
    GeneratorLM,
    build_generator,
    generator_config,
    objective_of,
    sample,
)
from families import ENCODERS

CONFIG = ModelConfig(
    encoder=replace(ENCODERS["electra"], dropout=0.0, attention_dropout=0.0),
    pooler=False,
    replaced_tokens=True,
)


def batch(seed: int = 5) -> Batch:
    drawn = np.random.default_rng(seed)
    ids = [drawn.integers(5, 99, length) for length in (13, 7, 22)]
    packed = pack(ids, [id_ * 0 for id_ in ids])
    at = torch.tensor([2, 3, 9, 15, 18, 30, 41])
    masked = packed.ids.clone()
    masked[at] = 4
    targets = {
        "masked_lm": Target(positions=at, labels=packed.ids[at]),
        "replaced_tokens": Target(
            positions=torch.arange(42), labels=torch.zeros(42, dtype=torch.long)
        ),
    }
    given = {"draws": torch.from_numpy(drawn.random(len(at)))}
    return replace(packed, ids=masked, targets=targets, given=given)


def pair(seed: int = 1) -> tuple[Model, Objective, GeneratorLM]:
    objective = objective_of(CONFIG, seed=seed)
    term = objective.terms["masked_lm"]
    assert isinstance(term, GeneratorLM)
    return build_model(CONFIG, seed=seed), objective, term


def test_samples_have_the_distribution_of_the_generator() -> None:
    """Chi-squared of 40,000 samples against the softmax, computed in float64 by itself."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(1, 6, generator=generator)
    table, bias = torch.randn(17, 6, generator=generator), torch.randn(17, generator=generator)
    draws = torch.rand(40_000, generator=generator, dtype=torch.float64)
    drawn = sample(features.expand(40_000, 6), table, bias, draws)
    expected = np.exp((features[0].double() @ table.double().T + bias.double()).numpy())
    counts = np.bincount(drawn.numpy(), minlength=17)
    assert stats.chisquare(counts, 40_000 * expected / expected.sum()).pvalue > 0.01
    assert torch.equal(drawn, sample(features.expand(40_000, 6), table, bias, draws))


def test_a_draw_gives_the_token_at_which_the_probabilities_pass_it() -> None:
    shares = torch.tensor([0.25, 0.5, 0.25])
    draws = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53], dtype=torch.float64)
    drawn = sample(torch.ones(6, 1), shares.log()[:, None], torch.zeros(3), draws)
    assert drawn.tolist() == [0, 0, 1, 1, 2, 2]


def test_what_equals_the_original_counts_as_original() -> None:
    model, _, term = pair()
    with torch.no_grad():
        # one token, whatever the text
        term.own.head.bias[23] = 1e4
    given = batch()
    labels = given.targets["masked_lm"].labels.clone()
    labels[2] = 23
    masked = replace(given.targets["masked_lm"], labels=labels)
    targets = {**given.targets, "masked_lm": masked}
    seen = term.prepare(model, replace(given, targets=targets))
    at = given.targets["masked_lm"].positions
    assert seen.ids[at].tolist() == [23] * 7
    others = torch.ones(42, dtype=torch.bool)
    others[at] = False
    assert torch.equal(seen.ids[others], given.ids[others])
    found = seen.targets["replaced_tokens"].labels
    assert found.nonzero().flatten().tolist() == [2, 3, 15, 18, 30, 41]


def test_losses_are_those_computed_apart() -> None:
    """Both by torch's own functions, of the batch with samples and that with masks."""
    model, objective, term = pair()
    given = batch()
    losses = objective(model, given)
    target = given.targets["masked_lm"]
    with torch.no_grad():
        embeddings = model.encoder.embeddings
        hidden = term.own(embeddings, given).last[target.positions]
        logits = term.own.head(hidden, embeddings.tokens.weight)
        generated = F.cross_entropy(logits, target.labels, reduction="sum")
        seen = term.prepare(model, given)
        found = model.replaced_tokens(model.encoder(seen).last)
        labels = seen.targets["replaced_tokens"].labels
        told = F.binary_cross_entropy_with_logits(found, labels.float(), reduction="sum")
    parts = losses.parts
    torch.testing.assert_close(parts["masked_lm"].sum, generated)
    torch.testing.assert_close(parts["replaced_tokens"].sum, told)
    assert parts["replaced_tokens"].correct == ((found > 0) == (labels > 0)).sum()
    torch.testing.assert_close(losses.total(), generated / 7 + 50 * told / 42)


def test_the_discriminator_teaches_the_generator_nothing() -> None:
    """Its loss reaches the shared table, and nothing that belongs to the generator."""
    model, objective, term = pair()
    parts = objective(model, batch()).parts
    parts["replaced_tokens"].sum.backward(retain_graph=True)
    assert all(parameter.grad is None for parameter in term.own.parameters())
    table = model.encoder.embeddings.tokens.weight
    assert table.grad is not None
    before = table.grad.clone()
    parts["masked_lm"].sum.backward()
    assert all(parameter.grad is not None for parameter in term.own.parameters())
    assert not torch.equal(table.grad, before)
    # the generator's loss reaches the tables alone
    blocks = build_model(CONFIG, seed=1)
    objective(blocks, batch()).parts["masked_lm"].sum.backward()
    learned = {name for name, item in blocks.named_parameters() if item.grad is not None}
    tables = {"tokens.weight", "segments.weight", "positions.weight", "norm.weight", "norm.bias"}
    assert learned == {f"encoder.embeddings.{name}" for name in tables}


def test_the_generator_is_a_quarter_as_wide_and_has_no_table() -> None:
    _, objective, term = pair()
    small = generator_config(CONFIG.encoder)
    assert (small.hidden, small.heads, small.layers, small.feed_forward) == (8, 1, 3, 9)
    assert list(objective.own) == ["masked_lm"]
    assert not [name for name, _ in term.own.named_parameters() if "embeddings" in name]
    wide = generator_config(replace(CONFIG.encoder, embedding=None, hidden=48, heads=12))
    assert (wide.hidden, wide.heads, wide.embedding) == (12, 3, 48)


def test_other_models_have_the_usual_objective() -> None:
    config = ModelConfig(encoder=ENCODERS["electra"], pooler=False, masked_lm=True)
    assert objective_of(config, seed=1) is PRETRAINING


@pytest.mark.parametrize("seed", [1, 2])
def test_weights_of_the_generator_are_a_pure_function_of_the_seed(seed: int) -> None:
    states = [pair(item)[2].own.state_dict() for item in (seed, seed, seed + 1)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_sums_of_the_generator_start_as_small_as_those_of_a_model() -> None:
    """What layers add to the stream, where norms come before (Shoeybi et al. 2019, section 4)."""
    encoder = replace(CONFIG.encoder, hidden=256, heads=8, feed_forward=512, norm="before")
    generator = build_generator(encoder, seed=1)
    layers = generator_config(encoder).layers
    for name, parameter in generator.encoder.blocks.named_parameters():
        if parameter.dim() > 1:
            narrow = name.endswith(("output.weight", "down.weight"))
            # a normal cut at two deviations has 0.88 of its deviation
            expected = encoder.initial_std * 0.88 / (2 * layers if narrow else 1) ** 0.5
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.05), name


def repeated(step: int, rows: int = 16, length: int = 12) -> Batch:
    """Sequences of one word each, so that the others give away the masked and the replaced ones."""
    drawn = np.random.default_rng(step)
    ids = [np.full(length, word) for word in drawn.integers(5, 25, rows)]
    packed = pack(ids, [id_ * 0 for id_ in ids])
    tokens = rows * length
    at = torch.from_numpy(np.sort(drawn.choice(tokens, tokens * 3 // 20, replace=False)))
    masked = packed.ids.clone()
    masked[at] = 4
    zeros = torch.zeros(tokens, dtype=torch.long)
    targets = {
        "masked_lm": Target(positions=at, labels=packed.ids[at]),
        "replaced_tokens": Target(positions=torch.arange(tokens), labels=zeros),
    }
    given = {"draws": torch.from_numpy(drawn.random(len(at)))}
    return replace(packed, ids=masked, targets=targets, given=given)


def test_both_learn_what_the_neighbours_give_away() -> None:
    """Better than the share of replaced tokens alone allows, while the generator gets better."""
    encoder = replace(CONFIG.encoder, layers=2, initial_std=0.1)
    config = replace(CONFIG, encoder=encoder)
    model, objective = build_model(config, seed=1), objective_of(config, seed=1)
    optimiser = torch.optim.AdamW([*model.parameters(), *objective.own.parameters()], lr=0.01)
    rows = []
    for step in range(160):
        losses = objective(model, repeated(step))
        rows.append({name: loss.sum.item() / loss.count for name, loss in losses.parts.items()})
        optimiser.zero_grad()
        losses.total().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    figures = {name: np.mean([row[name] for row in rows[-20:]]) for name in rows[0]}
    share = 0.15
    knowing_the_share = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert figures["replaced_tokens"] < 0.8 * knowing_the_share
    assert figures["masked_lm"] < 0.7 * np.log(20)
