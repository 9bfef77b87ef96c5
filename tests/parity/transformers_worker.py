"""Answers questions about one version of transformers, as the process that `Transformers` starts.

A question is a line of JSON with the name of a function of `ANSWERS` and its arguments; the answer
is a line with what it returns, or with the kind and the text of the error that it raises.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file


def version() -> str:
    """The version that answers."""
    return str(transformers.__version__)


def places() -> dict[str, str]:
    """Where the packages that have to fit each other were imported from."""
    packages = (transformers, tokenizers, huggingface_hub)
    return {package.__name__: str(package.__file__) for package in packages}


@cache
def _class(name: str) -> Any:  # noqa: ANN401
    return getattr(transformers, name)


def encode(folder: str, kind: str, texts: list[str], pair: str, **options: Any) -> Any:  # noqa: ANN401
    """The ids of texts with special tokens around them, and of the first in a pair."""
    theirs = _class(kind).from_pretrained(folder, **options)
    return {
        "class": type(theirs).__name__,
        "ids": [theirs(text)["input_ids"] for text in texts],
        "pair": theirs(texts[0], pair)["input_ids"],
    }


def inputs(folder: str, first: str, second: str) -> dict[str, list[int]]:
    """What AutoTokenizer gives the model for a pair of texts."""
    theirs = _class("AutoTokenizer").from_pretrained(folder)
    return {name: list(value) for name, value in theirs(first, second).items()}


def spans(folder: str, kind: str, texts: list[str]) -> Any:  # noqa: ANN401
    """The ids of texts without special tokens around them, and where each stands."""
    theirs = _class(kind).from_pretrained(folder)
    found = [theirs(text, add_special_tokens=False, return_offsets_mapping=True) for text in texts]
    return [[result["input_ids"], result["offset_mapping"]] for result in found]


def save_tokenizer(
    folder: str,
    kind: str,
    to: str,
    add: list[str | dict[str, Any]],
    add_special: list[str],
    **options: Any,  # noqa: ANN401
) -> list[str]:
    """The files of a tokenizer that is loaded, given more tokens, and saved; some with flags."""
    theirs = _class(kind).from_pretrained(folder, **options)
    if add:
        theirs.add_tokens(
            [transformers.AddedToken(**each) if isinstance(each, dict) else each for each in add]
        )
    if add_special:
        theirs.add_special_tokens({"additional_special_tokens": add_special})
    theirs.save_pretrained(to)
    return sorted(path.name for path in Path(to).iterdir())


def make_model(kind: str, config_kind: str, settings: dict[str, Any], to: str) -> None:
    """Save a model none of whose weights is what it starts as."""
    if "id2label" in settings:
        settings["id2label"] = {int(key): name for key, name in settings["id2label"].items()}
    torch.manual_seed(3)
    model = _class(kind)(_class(config_kind)(**settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.1)
    model.save_pretrained(to)


@cache
def _model(folder: str, kind: str, attention: str) -> Any:  # noqa: ANN401
    return _class(kind).from_pretrained(
        folder, output_loading_info=True, attn_implementation=attention
    )


def open_model(folder: str, kind: str, attention: str) -> dict[str, Any]:
    """What a model takes, what its config says, and what was wrong with its weights."""
    model, loading = _model(folder, kind, attention)
    labels = model.config.id2label
    return {
        "loading": {name: sorted(map(str, value)) for name, value in loading.items()},
        "labels": [labels[number] for number in sorted(labels)],
        "problem_type": getattr(model.config, "problem_type", None),
        "taken": sorted(inspect.signature(model.forward).parameters),
    }


def run_model(folder: str, kind: str, attention: str, given: str, results: str) -> int:
    """Save what a model gives for the tensors of a file; returns the number of hidden states.

    Where a family has a norm behind its last layer, the last hidden state has gone through it.
    """
    model, _ = _model(folder, kind, attention)
    model.eval()
    with torch.no_grad():
        out = model(**load_file(given), output_hidden_states=True)
        states = list(out.hidden_states)
        # 5 has it in them already
        if hasattr(model.base_model, "final_norm") and version() < "5":
            states[-1] = model.base_model.final_norm(states[-1])
    found = {f"hidden_states.{place}": state for place, state in enumerate(states)}
    found |= {name: value for name, value in out.items() if isinstance(value, torch.Tensor)}
    save_file({name: result.contiguous().clone() for name, result in found.items()}, results)
    return len(states)


def same_weights(kind: str, one: str, other: str) -> list[str]:
    """Return the names of tensors in which the models of two folders differ."""
    first, second = (_class(kind).from_pretrained(folder).state_dict() for folder in (one, other))
    assert first.keys() == second.keys()
    return [name for name in first if not torch.equal(first[name], second[name])]


ANSWERS: dict[str, Callable[..., Any]] = {
    item.__name__: item
    for item in (
        version,
        places,
        encode,
        inputs,
        spans,
        save_tokenizer,
        make_model,
        open_model,
        run_model,
        same_weights,
    )
}


def main() -> None:
    """Answer until the questions end."""
    warnings.simplefilter("ignore")
    # what anybody prints must not get between the answers
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"answer": ANSWERS[question.pop("ask")](**question)}
        # the compiled tokenizers panic with errors that are no Exception
        except BaseException as error:
            answer = {"error": type(error).__name__, "text": str(error)[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
