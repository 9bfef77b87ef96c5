"""Text written by a pre-trained model, and the passes that it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.output import print_json, print_line
from bertsmith.core.printable import counted, printable
from bertsmith.engine.config import WritingConfig
from bertsmith.engine.devices import device_named
from bertsmith.engine.language_model.generation import TextWriting, Written
from bertsmith.engine.prepared import Prepared, prepare_model
from bertsmith.hub.models import model_folder
from bertsmith.recipes.predict.config import WriteConfig
from bertsmith.text.examples.example import Example
from bertsmith.text.white_space import tidy
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model

_MAX_SHOWN_LENGTH = 100_000


def write(config: WriteConfig) -> dict[str, Any]:
    """Write texts to standard output, and return them with the passes and seconds they took.

    Raises `ModelFolderError`, `ConfigError` and `ExampleError`.
    """
    device = device_named(config.device)
    loaded, tokenizer = load_model(model_folder(config.model))
    prepared = prepare_model(loaded.to(device), config.engine)
    started = time.perf_counter()
    texts = written_texts(
        prepared, tokenizer, config.prompt, config.samples, config.writing, where=config.model
    )
    seconds = time.perf_counter() - started
    passes = sum(text.passes for text in texts)
    figures = {
        "texts": [text.text for text in texts],
        "passes": passes,
        "tokens": sum(len(text.ids) for text in texts),
        "seconds": round(seconds, 3),
        "engine": prepared.to_dict(),
    }
    if config.json:
        print_json(figures)
    else:
        for text in texts:
            print_line(printable(text.text, _MAX_SHOWN_LENGTH))
        say(
            f"{counted(passes, 'pass', 'passes')} for {counted(config.writing.length, 'token')} of "
            f"{counted(config.samples, 'text')}, {seconds:.1f} seconds"
        )
    say(f"engine: {prepared}")
    return figures


def written_texts(
    prepared: Prepared,
    tokenizer: Tokenizer,
    prompt: str,
    samples: int,
    config: WritingConfig,
    *,
    where: str | Path,
) -> Sequence[Written]:
    """Return texts written by the model of a folder, `where`."""
    if not prepared.model.config.masked_lm:
        raise ModelFolderError(
            "has no head that predicts tokens", where=where, remedy="name a pre-trained model"
        )
    answering = TextWriting(prepared.model, tokenizer, config)
    example = Example(text=tidy(prompt), text_pair=None, label=None, source="prompt", line=1)
    return list(prepared.predictor(answering)([example] * samples))
