"""From your own text to your own served BERT, on one machine, inside a time budget you set.

    import bertsmith

    bertsmith.learn_vocabulary("corpus.txt", out="vocab")
    bertsmith.prepare("corpus.txt", vocab="vocab", out="store")
    bertsmith.pretrain("store", out="run", minutes=30)
    bertsmith.finetune("run/model", "labelled.csv", out="task")
    bertsmith.distil("task/model", "labelled.csv", student="2/128", out="small")
    model = bertsmith.load("task/model")
    model.predict(["How late is the train?"])

Nothing is imported with the package but the version: the functions bring what they need.
"""

from __future__ import annotations

from bertsmith.core import VERSION as __version__  # noqa: N811

# the module typing takes longer to import than all else here
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from bertsmith.core.errors import UserError
    from bertsmith.recipes.distil.static import StaticOutcome
    from bertsmith.recipes.distil.trainings import DistilOutcome
    from bertsmith.recipes.finetune.outcome import FinetuneOutcome
    from bertsmith.recipes.loaded import LoadedModel, load
    from bertsmith.recipes.pretrain.recipe import PretrainOutcome
    from bertsmith.store.store import TokenStore
    from bertsmith.tokens.tokenizer import Tokenizer

    def learn_vocabulary(
        corpus: Paths,
        *,
        out: str | Path,
        **options: Any,  # noqa: ANN401
    ) -> Tokenizer:
        """Learn a vocabulary from a corpus; the options are those of `bertsmith vocab learn`."""

    def prepare(
        corpus: Paths,
        *,
        vocab: str | Path,
        out: str | Path,
        **options: Any,  # noqa: ANN401
    ) -> TokenStore:
        """Encode a corpus into a store; the options are those of `bertsmith prepare`."""

    def pretrain(
        store: str | Path | None = None,
        *,
        out: str | Path,
        **options: Any,  # noqa: ANN401
    ) -> PretrainOutcome:
        """Pre-train on a store; the options are those of `bertsmith pretrain`."""

    def finetune(
        model: str | Path,
        train: str | Path,
        *,
        out: str | Path,
        **options: Any,  # noqa: ANN401
    ) -> FinetuneOutcome:
        """Fine-tune a model; the options are those of `bertsmith finetune`."""

    def distil(
        teacher: str | Path,
        data: str | Path,
        *,
        student: str,
        out: str | Path,
        **options: Any,  # noqa: ANN401
    ) -> DistilOutcome | PretrainOutcome | StaticOutcome:
        """Teach a small student; the options are those of `bertsmith distil`.

        The outcome is a `PretrainOutcome` for a store, and a `StaticOutcome` for static vectors.
        """

    Paths = str | Path | Sequence[str | Path]

__all__ = [
    "LoadedModel",
    "UserError",
    "__version__",
    "distil",
    "finetune",
    "learn_vocabulary",
    "load",
    "prepare",
    "pretrain",
]

_VERBS = {
    "distil": "distil",
    "finetune": "finetune",
    "learn_vocabulary": "vocab learn",
    "prepare": "prepare",
    "pretrain": "pretrain",
}
"""Verbs of the command line by the names of their functions, which have the same options."""


def __dir__() -> list[str]:
    return sorted(__all__)


def _public(name: str) -> Any:  # noqa: ANN401
    """Import a public name on first access (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    result = _imported(name)
    globals()[name] = result
    return result


# to a type checker, a module that has it has every name
if not TYPE_CHECKING:
    __getattr__ = _public


def _imported(name: str) -> Any:  # noqa: ANN401
    if name == "UserError":
        from bertsmith.core import errors

        return errors.UserError
    if name in _VERBS:
        from bertsmith.cli.commands import COMMANDS
        from bertsmith.core.keywords import python_function

        command = COMMANDS[_VERBS[name]]
        function = python_function(
            name, command.config, command.run, command.defaults, description=command.description
        )
        # where pickle looks for it, to hand it to another process
        function.__module__ = __name__
        return function
    from bertsmith.recipes import loaded

    return getattr(loaded, name)
