"""The verbs of the command line: each is a function that calls one recipe.

Nothing slow is imported before a verb is known, so that help comes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bertsmith.cli.answers import ANSWERING_VERBS, embed
from bertsmith.cli.command import Verb
from bertsmith.cli.finetune import FINETUNE_VERBS
from bertsmith.cli.models import convert, list_models, push
from bertsmith.cli.pretrain import DATA_VERBS
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.core.output import print_json

Size = Literal["tiny", "mini", "small", "medium", "base", "large", "xlarge", "xxlarge"]
RecipeName = Literal["quick", "paper", "roberta", "albert", "modern", "electra"]


def pretrain(
    store: Path | None = None,
    *,
    out: Path,
    model: Size | None = None,
    recipe: RecipeName | None = None,
    from_: Path | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    device: str = "auto",
    workers: int = 0,
    tensorboard: bool = False,
    shard: bool = False,
    force: bool = False,
    dry_run: bool = False,
    settings: Config | None = None,
) -> None:
    """Pre-train a BERT on a store, or go on with a run that was interrupted.

    Recipes, whose settings --help shows (pretrain --recipe roberta --help):
      quick    Ours, for minutes and hours: the most learned in a small budget
      paper    BERT as published: Devlin et al. 2018
      roberta  RoBERTa as published, on your vocabulary: Liu et al. 2019
      albert   ALBERT as published, on your vocabulary: Lan et al. 2019
      modern   ModernBERT as published, on your vocabulary: Warner et al. 2024
      electra  ELECTRA as published: Clark et al. 2020

    Args:
        store: folder made by prepare; may be left out where OUT holds a run, which is resumed
        out: folder of the run: checkpoints, log, report, and the model in it when done
        model: size of the network, from 2 layers of 128 (tiny) to 24 of 1024 (large), of an ALBERT
            to 12 of 4096 (xxlarge); if not given, tiny to base, by text and budget, which is said
        recipe: what all settings below are before you change any; quick where none is given
        from_: folder of a model, or hub:owner/name, to train further; the store must have its
            vocabulary. Network, dropout and pairs are its own, the optimiser AdamW at 1e-4
        minutes: time on the clock from this command, or from its resumption, to the saved model
        steps: updates to train, in place of minutes; the learning rate decays to zero over either
        device: cpu, cuda or cuda:1; auto is a GPU if there is one, and that of a run that goes on
        workers: processes that draw batches ahead of training; the result is the same
        tensorboard: write the log for TensorBoard too, to be read by tensorboard --logdir OUT
        shard: below torchrun, each process holds a share of the weights (docs/many-machines.md)
        force: go on whatever the check before training finds
        dry_run: print what the check before training finds, and stop; OUT is left as it is
    """
    from bertsmith.core.clock import Clock, command_start
    from bertsmith.recipes.pretrain.preview import Wanted, begin, look
    from bertsmith.recipes.pretrain.settings import PretrainConfig

    given = {"model": model, "recipe": recipe, "from": from_, "minutes": minutes, "steps": steps}
    _check_given(given | {"settings": settings}, goes_on=store is None)
    assert settings is None or isinstance(settings, PretrainConfig)
    wanted = Wanted(
        store=store, out=out, model=model, parent=from_, recipe=recipe or "quick", device=device,
        minutes=minutes, steps=steps, settings=settings, clock=Clock(began=command_start()),
    )  # fmt: skip
    if dry_run:
        look(wanted, force=force)
    else:
        begin(wanted, workers=workers, tensorboard=tensorboard, shard=shard, force=force)


def _check_given(given: Mapping[str, object], *, goes_on: bool) -> None:
    """Check that the options of `pretrain` agree with each other; raises `ConfigError`."""
    named = {name for name, value in given.items() if value is not None}
    if goes_on and named:
        raise ConfigError(
            "a run that goes on keeps its settings", remedy="leave them out, or name a store"
        )
    for name in ("model", "recipe"):
        if {name, "from"} <= named:
            raise ConfigError(
                f"--{name} and --from exclude each other", remedy="leave one of them out"
            )


def demo(
    *, minutes: float = 3.0, out: Path = Path("demo"), seed: int = 0, json: bool = False
) -> None:
    """Train a small BERT on the documentation of this machine's Python, and use it.

    Args:
        minutes: time for pre-training; the rest takes two or three more
        out: folder for everything made
        seed: another seed is another run
        json: print the figures as one JSON object on standard output
    """
    from bertsmith.recipes.demo.recipe import demo as recipe

    figures = recipe(minutes=minutes, out=out, seed=seed)
    if json:
        print_json(figures)


def _pretrain_settings() -> type[Config]:
    from bertsmith.recipes.pretrain.settings import PretrainConfig

    return PretrainConfig


def _pretrain_defaults(given: Mapping[str, Any]) -> Config:
    from bertsmith.recipes.pretrain.published import default_settings
    from bertsmith.training.schedule import Budget

    spent = {name: given[name] for name in ("minutes", "steps") if name in given}
    # help needs none, and a run without any is refused when it is resolved
    budget = Budget(**spent or {"minutes": 30.0})
    model, recipe = given.get("model", "small"), given.get("recipe", "quick")
    return default_settings(recipe, model, budget, given.get("from_"))


VERBS = {
    "demo": Verb(function=demo, examples=("", "--minutes 2 --out /tmp/demo --json")),
    **DATA_VERBS,
    "pretrain": Verb(
        function=pretrain,
        settings=_pretrain_settings,
        defaults=_pretrain_defaults,
        examples=(
            "store --out run --model mini --minutes 60",
            "store --out run --recipe roberta --model tiny --minutes 20 --accumulate 2",
            "--out run",
            "store --from model --out run --minutes 60",
        ),
    ),
    "models": Verb(function=list_models, examples=("", "--json")),
    **FINETUNE_VERBS,
    **ANSWERING_VERBS,
    "convert": Verb(
        function=convert,
        examples=(
            "downloaded/ bert",
            "hub:google-bert/bert-base-uncased bert",
            "uncased_L-2_H-128_A-2/bert_model.ckpt bert-tiny",
            "bert-tiny checkpoint --to tensorflow",
        ),
    ),
    "push": Verb(
        function=push,
        examples=("spam/model owner/spam --license mit", "run/model owner/bert --dry-run"),
    ),
    "embed": Verb(
        function=embed,
        examples=(
            "minilm questions.txt --out questions.npy",
            "run/model reviews.csv --out reviews.parquet --layer second-to-last --pool cls+mean",
            "run/model lines.txt --out words.npy --layer concat-last-4 --pool word-mean",
        ),
    ),
}
