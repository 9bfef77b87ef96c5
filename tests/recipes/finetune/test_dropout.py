"""The dropout that fine-tuning asks for, seen from outside in every family: what a layer is given
and what it gives, never what an attribute says.

Where a branch of a residual sum is dropped the sum equals the residual, entry by entry. A token
alone in its sequence gives its only attention weight to itself, so that attention gives zeros for
each head whose weight is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bertsmith.cli.main import main
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.trial import prepare_model
from bertsmith.weights.folder import load_as, save_model, start_from
from bounds import close_when_regrouped
from families import ENCODERS, LABELS, TOKENIZERS

CAUSAL = "left-to-right"
PARENTS: dict[str, EncoderConfig] = {
    **{str(name): encoder for name, encoder in ENCODERS.items()},
    CAUSAL: replace(ENCODERS["bert"], causal=True),
}
# half of what a head of a task is given is dropped, but before the head for spans there is no
# dropout in any family's published fine-tuning code
TASKS: tuple[Predicts, ...] = ("class", "classes", "number", "choice", "tags")
# longer than the window of the modernbert among them, and many tokens on their own
LENGTHS = (1,) * 150 + (23, 2, 2, 7) * 20 + (1,) * 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of pre-trained models with weights large enough that no branch rounds to nothing."""
    root, made = tmp_path_factory.mktemp("parents"), set[str]()

    def of(parent: str) -> Path:
        if parent not in made:
            config = ModelConfig(
                encoder=replace(PARENTS[parent], initial_std=0.2), pooler=False, masked_lm=True
            )
            tokenizer = TOKENIZERS["bert" if parent == CAUSAL else parent]  # type: ignore[index]
            save_model(root / parent, build_model(config, seed=3), tokenizer)
            made.add(parent)
        return root / parent

    return of


def started(folder: Path, dropout: float, predicts: Predicts = "class") -> Model:
    """A folder's model as fine-tuning trains it."""
    labels = LABELS[:3] if predicts in ("class", "classes", "number", "tags") else ()
    model, _ = start_from(folder, predicts=predicts, labels=labels, seed=1)
    prepare_model(model, FinetuneSettings(dropout=dropout), 1)
    return model.train()


def batch() -> Batch:
    random = np.random.default_rng(8)
    ids = [random.integers(5, 99, length) for length in LENGTHS]
    return pack(ids, [id_ % 2 * (len(id_) > 1) for id_ in ids])


@dataclass
class Seen:
    """Shares of entries dropped, by their place; `sums` of a layer in the order of its calls."""

    embeddings: list[float] = field(default_factory=list)
    sums: dict[str, list[float]] = field(default_factory=dict)
    alone: list[float] = field(default_factory=list)
    """Of attention weights, from tokens that are alone in their sequence."""


def watch(model: Model) -> Seen:
    """Follow a model's passes from now on, by the inputs and outputs of its modules alone."""
    seen, encoder = Seen(), model.encoder
    wide = encoder.embeddings.widen

    def embedded(_: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        # an ALBERT drops before it widens its vectors
        read = made if wide is None else given[0]
        seen.embeddings.append(share(read == 0))

    (encoder.embeddings if wide is None else wide).register_forward_hook(embedded)
    for number, block in enumerate(encoder.blocks):
        _watch_block(block, f"layer {number}", seen)
    return seen


def _watch_block(block: nn.Module, name: str, seen: Seen) -> None:
    given: dict[str, Tensor] = {}

    def note(place: str, dropped: Tensor) -> None:
        seen.sums.setdefault(f"{name}, {place}", []).append(share(dropped))

    def begins(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        inputs, spans, request = arguments[:3]
        at = request.selected
        given["residual"] = inputs if at is None else inputs[at]
        alone = (spans.offsets.diff() == 1).repeat_interleave(spans.offsets.diff())
        given["alone"] = alone if at is None else alone[at]

    def attended(attention: Any, arguments: tuple[Tensor, ...]) -> None:  # noqa: ANN401
        heads = arguments[0].unflatten(-1, (attention_heads(block), -1))[given["alone"]]
        seen.alone.append(share((heads == 0).all(-1)))

    def ends(_: nn.Module, __: object, made: tuple[Tensor, object]) -> None:
        if before:
            note("feed-forward", made[0] == given["middle"])

    def first_norm(_: nn.Module, arguments: tuple[Tensor, ...], made: Tensor) -> None:
        if not before:
            note("attention", arguments[0] == given["residual"])
            given["middle"] = made

    def second_norm(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        if before:
            note("attention", arguments[0] == given["residual"])
            given["middle"] = arguments[0]
        else:
            note("feed-forward", arguments[0] == given["middle"])

    before = block.norm == "before"
    block.register_forward_pre_hook(begins)
    block.register_forward_hook(ends)
    block.get_submodule("attention.output").register_forward_pre_hook(attended)
    block.get_submodule("attention_norm").register_forward_hook(first_norm)
    block.get_submodule("feed_forward_norm").register_forward_pre_hook(second_norm)


def attention_heads(block: nn.Module) -> int:
    heads = block.get_submodule("attention").heads
    assert isinstance(heads, int)
    return heads


def share(dropped: Tensor) -> float:
    return float(dropped.double().mean())


def about_half(shares: list[float], calls: int, what: str) -> None:
    """Each within five standard deviations of the fewest draws there are, 300 tokens' heads."""
    assert len(shares) == calls, what
    assert all(abs(item - 0.5) < 5 * 0.5 / (300 * 4) ** 0.5 for item in shares), (what, shares)


@pytest.mark.parametrize("read", ["all", "first"])
@pytest.mark.parametrize("parent", PARENTS)
def test_half_of_every_sum_is_dropped(
    folder: Callable[[str], Path], parent: str, read: str
) -> None:
    model, packed = started(folder(parent), 0.5), batch()
    seen, config = watch(model), PARENTS[parent]
    torch.manual_seed(6)
    model.encoder(packed, selected=packed.offsets[:-1] if read == "first" else None)
    about_half(seen.embeddings, 1, "embeddings")
    about_half(seen.alone, config.layers, "attention weights")
    blocks = config.groups or config.layers
    assert len(seen.sums) == 2 * blocks
    for place, shares in seen.sums.items():
        about_half(shares, config.layers // blocks, place)


@pytest.mark.parametrize("parent", PARENTS)
def test_a_dropout_of_zero_leaves_nothing_to_chance(
    folder: Callable[[str], Path], parent: str
) -> None:
    model, packed = started(folder(parent), 0.0), batch()
    random = torch.get_rng_state()
    logits = [model.classify(model.encoder(packed), packed) for _ in range(2)]
    assert torch.equal(*logits)
    assert torch.equal(torch.get_rng_state(), random)
    with torch.no_grad():
        answered = model.eval().classify(model.encoder(packed), packed)
    close_when_regrouped(logits[0].detach(), answered)


@pytest.mark.parametrize("predicts", TASKS)
@pytest.mark.parametrize("parent", PARENTS)
def test_half_of_what_a_classifier_reads_is_dropped(
    folder: Callable[[str], Path], parent: str, predicts: Predicts
) -> None:
    model, packed = started(folder(parent), 0.5, predicts), batch()
    read: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            read[name] = arguments[0]

        return hook

    head = {"choice": "choose", "tags": "tag"}.get(predicts, "classify")
    model.heads[head].register_forward_pre_hook(keep("head"))
    if model.pooler is not None:
        model.pooler.dense.register_forward_pre_hook(keep("pooler"))
    torch.manual_seed(6)
    encoded = model.encoder(packed)
    if head == "tag":
        model.tag(encoded.last)
    else:
        {"choose": model.choose, "classify": model.classify}[head](encoded, packed)
    given = read["head"]
    if parent == "distilbert" and head != "tag":
        # below it half of the values are zero by themselves: its ReLU
        assert abs(share(given == 0) - 0.75) < 0.05
    else:
        about_half([share(given == 0)], 1, "the head's input")
    if "pooler" in read:
        # the classifiers of these drop before both of their layers, the others before the last only
        before = parent in ("roberta", "xlm-roberta", "electra") and head == "classify"
        dropped = 0.5 if before else 0.0
        assert abs(share(read["pooler"] == 0) - dropped) < 0.05


@pytest.mark.parametrize("parent", PARENTS)
def test_a_model_built_with_another_dropout_drops_so_much(
    folder: Callable[[str], Path], parent: str
) -> None:
    # the way of going on with pre-training: the folder's weights in a network of one's own
    encoder = replace(PARENTS[parent], initial_std=0.2, dropout=0.5, attention_dropout=0.5)
    config = ModelConfig(encoder=encoder, pooler=False, masked_lm=True)
    model = load_as(folder(parent), config, seed=1)[0].train()
    seen = watch(model)
    torch.manual_seed(6)
    model.encoder(batch())
    places = {"embeddings": seen.embeddings, "attention weights": seen.alone, **seen.sums}
    for place, shares in places.items():
        about_half(shares, len(shares), place)


def test_the_option_reaches_the_steps_of_a_training(
    folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{'yes' if n % 2 else 'no'}\tword{n} word{n % 7} word{n % 5}" for n in range(40)]
    (tmp_path / "rows.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n", encoding="utf-8")
    dropped: list[float] = []

    def dry_run(module: nn.Module, _: object, made: Any) -> None:  # noqa: ANN401
        if module.training and isinstance(made, Tensor) and module._get_name() == "Embeddings":
            dropped.append(share(made == 0))

    hook = nn.modules.module.register_module_forward_hook(dry_run)
    try:
        status = main(
            ["finetune", str(folder("bert")), str(tmp_path / "rows.tsv"), "--out",
             str(tmp_path / "run"), "--seeds", "1", "--epochs", "1", "--dropout", "0.5",
             "--no-baseline"]
        )  # fmt: skip
    finally:
        hook.remove()
    assert status == 0, capsys.readouterr().err
    assert dropped
    assert all(0.4 < item < 0.6 for item in dropped)
