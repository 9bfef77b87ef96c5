"""From your own text to your own served BERT, on one machine, inside a time budget you set.

    import bertsmith

    bertsmith.prepare(["corpus.txt"], vocab="vocab", out="store")
    bertsmith.pretrain("store", out="run", minutes=30)
    bertsmith.finetune("run/model", "labelled.csv", out="task")
    model = bertsmith.load("task/model")
    model.predict(["How late is the train?"])

Nothing is imported with the package but the version: the functions bring what they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.core import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from bertsmith.core.errors import UserError
    from bertsmith.recipes.finetune.recipe import finetune
    from bertsmith.recipes.loaded import LoadedModel, load
    from bertsmith.recipes.prepare import prepare
    from bertsmith.recipes.pretrain.recipe import pretrain

__all__ = [
    "LoadedModel",
    "UserError",
    "__version__",
    "finetune",
    "load",
    "prepare",
    "pretrain",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _imported(name)
    globals()[name] = found
    return found


def _imported(name: str) -> Any:  # noqa: ANN401
    if name == "UserError":
        from bertsmith.core import errors

        return errors.UserError
    from bertsmith.recipes import loaded

    if name == "finetune":
        from bertsmith.recipes.finetune import recipe as finetuning

        return loaded.checked(finetuning.finetune)
    if name == "pretrain":
        from bertsmith.recipes.pretrain import recipe as pretraining

        return loaded.checked(pretraining.pretrain)
    if name == "prepare":
        from bertsmith.recipes import prepare as preparing

        return loaded.checked(preparing.prepare)
    return getattr(loaded, name)
