"""Continued pre-training of an existing model on other text (Gururangan et al. 2020)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bertsmith.batches.config import SampleConfig, Text
from bertsmith.core.errors import ConfigError, RunFolderError, StoreError
from bertsmith.core.files import file_hash, text_hash
from bertsmith.core.log import say
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model, ModelConfig
from bertsmith.recipes.pretrain.config import (
    WIRING,
    NetworkConfig,
    Parent,
    PretrainRun,
    PretrainSettings,
)
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import OptimiserConfig, ScheduleConfig
from bertsmith.weights.folder import CONFIG_FILE, load_as, read_config
from bertsmith.weights.tensors import weights_hash

_OF_THE_MODEL = ("family", "activation", "max_positions", *WIRING)


def continued(folder: Path) -> PretrainSettings:
    """Return settings for continued pre-training: the model's network, and AdamW at a low rate.

    Samples are pairs if the model has a head for them: of sentence order for an ALBERT, of next
    sentences otherwise. Raises `ModelFolderError`.
    """
    config = read_config(folder)
    pairs: Text = FAMILIES[config.encoder.family].pairs or "within_documents"
    longest = min(SampleConfig().max_length, config.encoder.longest)
    return PretrainSettings(
        network=_network(config),
        samples=SampleConfig(
            max_length=longest,
            text=pairs if config.next_sentence else "within_documents",
            left_to_right=config.encoder.causal,
            replaced_tokens=config.replaced_tokens,
        ),
        optimiser=OptimiserConfig(learning_rate=1e-4),
        schedule=ScheduleConfig(warmup=0.05),
    )


def identify(folder: Path) -> Parent:
    """Return the path of a model folder and the hash of its contents."""
    read_config(folder)
    parts = [file_hash(folder / CONFIG_FILE), weights_hash(folder)]
    parts.append(Tokenizer.load(folder).fingerprint)
    digest = text_hash(" ".join(parts))
    return Parent(folder=folder.resolve(), files_hash=digest, origin=origin(folder))


def size_of(folder: Path) -> str:
    """Return layers and hidden size of a model: ``6/384``."""
    encoder = read_config(folder).encoder
    return f"{encoder.layers}/{encoder.hidden}"


def check_parent(run: PretrainRun, store: TokenStore) -> None:
    """Check that the parent model of a run is unchanged, and fits the store and the settings.

    Raises `RunFolderError`, `StoreError` or `ConfigError`; does nothing for a run without a parent.
    """
    if run.parent is None:
        return
    folder = run.parent.folder
    if run.parent.origin is not None and not folder.exists():
        model_folder(run.parent.origin)
    if identify(folder) != run.parent:
        raise RunFolderError(
            "is no longer the model that the run was started from",
            where=folder,
            remedy="choose another --out",
        )
    if Tokenizer.load(folder).fingerprint != store.index.fingerprint:
        raise StoreError(
            f"was prepared with another vocabulary than that of {folder}",
            where=store.folder,
            remedy=f"prepare it again: bertsmith prepare CORPUS --vocab {folder} --out NEW",
        )
    network = run.settings.network
    own = _network(read_config(folder))
    for name in (*_OF_THE_MODEL, "position_initialisation"):
        if getattr(network, name) != getattr(own, name):
            raise ConfigError(
                f"--{name.replace('_', '-')} is {getattr(network, name)!r}, and the parent has "
                f"{getattr(own, name)!r}",
                remedy="leave that setting out",
            )


def start_from_parent(parent: Parent, settings: PretrainSettings) -> Model:
    """Return the parent with the heads that the settings train, a pure function of both."""
    model, _ = load_as(parent.folder, wanted_network(parent, settings), seed=settings.seed)
    if new := new_parts(parent, settings):
        say(f"{parent.folder}: has no {', no '.join(new)}: new, from random weights")
    if left := _left_out(parent, settings):
        say(f"{parent.folder}: left out, as it is not trained here: {', '.join(left)}")
    if model.pooler is not None and not settings.samples.pairs:
        # unused by the objectives; kept unchanged for fine-tuning
        model.pooler.requires_grad_(False)
    return model


def new_parts(parent: Parent, settings: PretrainSettings) -> list[str]:
    """Return a description of the heads that the settings train and the parent lacks."""
    wanted, has = _parts(wanted_network(parent, settings)), _parts(read_config(parent.folder))
    return [name for name in wanted if wanted[name] and not has[name]]


def _left_out(parent: Parent, settings: PretrainSettings) -> list[str]:
    wanted, has = _parts(wanted_network(parent, settings)), _parts(read_config(parent.folder))
    return [name for name in has if has[name] and not wanted[name]]


def _parts(config: ModelConfig) -> dict[str, bool]:
    return {
        "masked-LM head": config.masked_lm,
        "pooler": config.pooler,
        "next-sentence head": config.next_sentence,
        "head for replaced tokens": config.replaced_tokens,
        "classifier": config.predicts is not None,
    }


def wanted_network(parent: Parent, settings: PretrainSettings) -> ModelConfig:
    """Return the config of the parent with the heads that the settings train."""
    has, network, pairs = read_config(parent.folder), settings.network, settings.samples.pairs
    encoder = replace(
        has.encoder,
        dropout=network.hidden_dropout,
        attention_dropout=network.attention_dropout,
        causal=settings.samples.left_to_right,
        # the pooling of a classifier is not continued
        pooled="first" if has.encoder.pooled == "last" else has.encoder.pooled,
    )
    return ModelConfig(
        encoder=encoder,
        # in the other families the pooler belongs to a classifier
        pooler=pairs or (has.pooler and FAMILIES[has.encoder.family].pairs is not None),
        masked_lm=not settings.samples.replaced_tokens,
        next_sentence=pairs,
        replaced_tokens=settings.samples.replaced_tokens,
        classifier_dropout=has.classifier_dropout,
    )


def _network(config: ModelConfig) -> NetworkConfig:
    encoder = config.encoder
    return NetworkConfig(
        family=encoder.family,
        position_initialisation="parent",
        activation=encoder.activation,
        max_positions=encoder.longest,
        hidden_dropout=encoder.dropout,
        attention_dropout=encoder.attention_dropout,
        **{name: getattr(encoder, name) for name in WIRING},
    )
