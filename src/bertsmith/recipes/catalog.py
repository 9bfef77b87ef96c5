"""The recipes of pre-training by name: what was published, and what learns most in little time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bertsmith.errors import ConfigError
from bertsmith.recipes.continuing import continued
from bertsmith.recipes.pretrain_settings import PretrainConfig
from bertsmith.recipes.published import albert, modern, paper, roberta
from bertsmith.recipes.quick import quick
from bertsmith.training.schedule import Budget
from bertsmith.weights.hub import model_folder

Recipe = Callable[[str, Budget], PretrainConfig]
"""The settings for a size of model and a budget."""

RECIPES: dict[str, Recipe] = {
    "quick": quick,
    "paper": paper,
    "roberta": roberta,
    "albert": albert,
    "modern": modern,
}


def default_settings(
    recipe: str, model: str, budget: Budget, parent: str | Path | None = None
) -> PretrainConfig:
    """What a run is before anything is changed: the recipe's settings, or those that suit `parent`.

    Raises `ConfigError` for a recipe that is not there, `ModelFolderError` for the parent.
    """
    if parent is not None:
        return continued(model_folder(parent))
    if recipe not in RECIPES:
        raise ConfigError(f"no recipe {recipe!r}", remedy=f"recipes are {', '.join(RECIPES)}")
    return RECIPES[recipe](model, budget)
