"""The verb that tells of published models: a function that calls its recipe."""

from __future__ import annotations

from bertsmith.output import print_json


def list_models(*, json: bool = False) -> None:
    """List published models, with their parameters and the memory they take.

    The sizes are those of pretrain --model; the memory is that of a whole process, to run the
    encoder on a batch of 4,096 tokens, or to pre-train it with such batches and AdamW.

    Args:
        json: print one JSON object on standard output, memory in bytes
    """
    from bertsmith.recipes.models import as_json, models, show

    facts = models()
    if json:
        print_json(as_json(facts))
    else:
        show(facts)
