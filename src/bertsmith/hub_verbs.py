"""The verb that brings models to the hub."""

from __future__ import annotations

from pathlib import Path


def push(
    model: Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str = "",
    license: str | None = None,
    language: str | None = None,
    datasets: str | None = None,
    dry_run: bool = False,
) -> None:
    """Send a model folder to the hub, with a model card.

    The folder is loaded first, to see that it can be. Its README.md gets the head that the hub
    reads, as far as it is missing; what you wrote there stays. Only the model's files are sent: no
    checkpoints, logs or data. You must be signed in: set HF_TOKEN, or run: hf auth login.

    Args:
        model: folder of a model
        repository: where to, as owner/name; made if it is not there
        private: let nobody else see it
        revision: branch to send to, made if it is not there; main where none is given
        message: what the commit is called
        license: the license's name on the hub, as apache-2.0, mit or cc-by-4.0
        language: language of its text, as en, or several with commas between
        datasets: data sets of the hub that it was trained on, with commas between
        dry_run: send and write nothing; tell the files and print the card
    """
    from bertsmith.recipes.push import push as recipe

    recipe(
        model,
        repository,
        private=private,
        revision=revision,
        message=message,
        license=license,
        language=_words(language),
        datasets=_words(datasets),
        dry_run=dry_run,
    )


def _words(value: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (value or "").split(",") if word.strip())
