"""A model folder as a worker serves it: its kind, and its handlers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch

from bertsmith.core.errors import ConfigError
from bertsmith.engine.answers import text_outputs
from bertsmith.engine.config import FeatureConfig
from bertsmith.engine.devices import device_named
from bertsmith.engine.prepared import Prepared
from bertsmith.hub.models import model_folder
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.messages import Input, Inputs, Kind, ModelFacts, Outcome
from bertsmith.serving.models.handlers import (
    EXAMPLES,
    KINDS,
    MAX_CANDIDATES,
    PairAnswering,
    ServedFilling,
    TaskHandler,
    blank_text_of,
    calibrated,
    masked_of,
    pair_of,
    present_fillings,
    present_for_task,
    present_logits,
    present_score,
    present_vector,
    text_of,
)
from bertsmith.tasks.answering import TaskAnswering, answering_of, continues
from bertsmith.tasks.config import AnsweringConfig
from bertsmith.tasks.opening import open_embedder, open_model
from bertsmith.tasks.task import first_output
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.sentence_folder import read_sentence_folder
from bertsmith.weights.versions import FolderVersion


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """An opened model: what is known of it, and its handlers, by kind."""

    facts: ModelFacts
    handlers: dict[Kind, TaskHandler]
    tokenizer: Tokenizer

    def tokens(self, request_input: Input, number: int) -> Outcome:
        """Return the tokens of a text with their characters, and the special tokens around them.

        These are (id, text, special, start, end), as text-embeddings-inference has them: of a token
        of the text, `text` is what it stands for there, and `special` is false.
        """
        tokenizer, text = self.tokenizer, request_input.text
        encoded = tokenizer.encode_spans(text)
        rows = [
            (token, text[start:end], False, start, end)
            for token, start, end in zip(
                encoded.ids.tolist(), encoded.starts.tolist(), encoded.ends.tolist(), strict=True
            )
        ]
        begin, end = (
            [(token, tokenizer.vocabulary[token], True, None, None) for token in ids]
            for ids in (tokenizer.begin, tokenizer.end)
        )
        return Outcome(number, answer=[*begin, *rows, *end], tokens=len(rows))


def open_models(config: ServeConfig, threads: int | None) -> list[ServedModel]:
    """Open all models of a server; raises what opening a model raises."""
    device = device_named(config.device)
    return [
        open_served(model, name, device, config, threads)
        for model, name in zip(config.models, config.names, strict=True)
    ]


def open_served(
    model: str, name: str, device: torch.device, config: ServeConfig, threads: int | None
) -> ServedModel:
    """Open a model folder to be served; raises what `open_model` raises."""
    folder = model_folder(model)
    version = FolderVersion.of(folder)
    engine = config.engine.override(threads=threads)
    prepared, tokenizer = open_model(folder, device, engine)
    network = prepared.model.config
    handlers: dict[Kind, TaskHandler] = {}
    width = token_width = 0
    if network.predicts is not None:
        handlers = _task_handlers(prepared, tokenizer, name, config)
    else:
        vectors, width, token_width = _vector_handlers(prepared, tokenizer, model)
        other = _pretraining_handlers(prepared, tokenizer)
        is_sentences = read_sentence_folder(folder) is not None
        handlers = vectors | other if is_sentences or not other else other | vectors
    kinds = [kind for kind in handlers if kind not in ("token-vectors", "logits")]
    first = handlers[kinds[0]]
    trained = network.preprocessing
    facts = ModelFacts(
        name=name,
        kind=kinds[0],
        can=tuple(kinds),
        labels=network.labels,
        max_input_length=first.limit,
        precision=prepared.precision,
        backend=prepared.backend,
        family=network.encoder.family,
        width=width,
        pairs=bool(trained and trained.pairs) or kinds[0] == "ranking",
        mask=tokenizer.vocabulary[tokenizer.mask_id] if "fill-mask" in handlers else None,
        token_width=token_width,
        files=version.files,
    )
    version.check()
    return ServedModel(facts=facts, handlers=handlers, tokenizer=tokenizer)


def _task_handlers(
    prepared: Prepared, tokenizer: Tokenizer, name: str, config: ServeConfig
) -> dict[Kind, TaskHandler]:
    """Return the handlers of a model with a head for a task; of whole texts, bare outputs too."""
    network = prepared.model.config
    answering = answering_of(prepared.model, tokenizer, AnsweringConfig(), where=name)
    assert isinstance(answering, TaskAnswering)
    kind = KINDS[answering.task.name]
    windowed = (
        answering.task.answers.windowed or kind == "tags" or answering.limits.long == "windows"
    )
    trained = network.preprocessing
    pairs = True if kind == "ranking" else trained.pairs if trained else None
    handler = TaskHandler(
        predictor=prepared.predictor(answering),
        example=partial(
            calibrated, EXAMPLES.get(kind, partial(text_of, pairs=pairs)), network.conformal
        ),
        present=partial(present_for_task, answering, network.conformal),
        tokenizer=tokenizer,
        limit=config.limits.max_tokens if windowed else answering.limits.longest,
        windowed=windowed,
    )
    handlers = {kind: handler}
    if network.head == "classify":
        answers = replace(answering.task.answers, outputs=text_outputs, decode=first_output)
        bare = replace(answering, task=replace(answering.task, answers=answers))
        handlers["logits"] = replace(
            handler, predictor=prepared.predictor(bare), present=present_logits
        )
    return handlers


def _pretraining_handlers(prepared: Prepared, tokenizer: Tokenizer) -> dict[Kind, TaskHandler]:
    """Return the handlers of the heads of pre-training."""
    model = prepared.model
    network, limit = model.config, model.config.encoder.longest
    handlers: dict[Kind, TaskHandler] = {}
    if network.masked_lm and not continues(network):
        handlers["fill-mask"] = TaskHandler(
            predictor=prepared.predictor(ServedFilling(model, tokenizer, top=MAX_CANDIDATES)),
            example=partial(masked_of, tokenizer),
            present=partial(present_fillings, tokenizer),
            tokenizer=tokenizer,
            limit=limit,
        )
    if network.next_sentence:
        handlers["next-sentence"] = TaskHandler(
            predictor=prepared.predictor(PairAnswering(tokenizer, limit)),
            example=pair_of,
            present=present_score,
            tokenizer=tokenizer,
            limit=limit,
        )
    return handlers


def _vector_handlers(
    prepared: Prepared, tokenizer: Tokenizer, model: str
) -> tuple[dict[Kind, TaskHandler], int, int]:
    """Return the handlers for vectors of texts and of tokens, if there are any; and both widths."""
    handlers: dict[Kind, TaskHandler] = {}
    widths: dict[Kind, int] = {}
    pools: tuple[tuple[Kind, str], ...] = (("vectors", "auto"), ("token-vectors", "token"))
    for kind, pool in pools:
        try:
            embedder = open_embedder(model, FeatureConfig(pool=pool), loaded=(prepared, tokenizer))
            predictor = embedder.predictor
        except ConfigError:
            # a prompt, or lower-casing by the folder: tokens have no vectors of their own
            if kind == "vectors":
                raise
            continue
        widths[kind] = embedder.width
        longest = prepared.model.config.encoder.longest
        handlers[kind] = TaskHandler(
            predictor=predictor,
            example=blank_text_of,
            present=present_vector,
            tokenizer=tokenizer,
            limit=min(embedder.config.max_length or longest, longest),
        )
    return handlers, widths["vectors"], widths.get("token-vectors", 0)


def sample(facts: ModelFacts) -> Inputs:
    """Return an example to try a model with."""
    text = "The train to the coast leaves at nine."
    second = "It arrives in the evening."
    match facts.kind:
        case "classes" | "multi-label" | "regression" if not facts.pairs:
            return Inputs([text])
        case "classes" | "multi-label" | "regression" | "ranking" | "next-sentence":
            return Inputs([text], [second])
        case "spans":
            return Inputs(["When does the train leave?"], [text])
        case "choices":
            return Inputs([text], choices=[(second, "Fish have no feet.")])
        case "fill-mask":
            return Inputs([f"The train leaves at {facts.mask}."], top=5)
        case _:
            return Inputs([text])
