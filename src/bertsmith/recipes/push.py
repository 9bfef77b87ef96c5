"""Pushing a model folder to the hub, with a model card.

bertsmith push spam/model owner/spam --license apache-2.0
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bertsmith.core import VERSION
from bertsmith.core.errors import ConfigError, HubError
from bertsmith.core.log import amount, say
from bertsmith.core.output import print_line
from bertsmith.core.ownership import claimed, new_file
from bertsmith.core.printable import counted, markdown, shell_word
from bertsmith.hub.client import hub_api
from bertsmith.hub.models import PREFIX, hub_name
from bertsmith.hub.transfers import index_file, send, settings_files, weights_files
from bertsmith.network.model import Model
from bertsmith.recipes.config import PushConfig
from bertsmith.reports.model_card import base_of, head_of, read_card, read_head, with_head
from bertsmith.weights.folder import CARD_FILE, check_file, load_model
from bertsmith.weights.sentence_folder import read_sentence_folder

_ASKED_FOR = {"language": "--language en", "license": "--license apache-2.0"}
_BRANCH = re.compile(r"\w[\w./-]{0,200}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Files to send: those of a folder, and its completed card."""

    folder: Path
    files: tuple[str, ...]
    card: str


def push(config: PushConfig) -> str | None:
    """Check a model folder, complete its README.md, and send both to the hub as one commit.

    Only files that belong to the model are sent. Returns the commit's address, None with `dry_run`,
    which writes and sends nothing but lists the files, and prints the card. Raises `UserError`
    children.
    """
    model, repository, revision = config.model, config.repository, config.revision
    name = hub_name(f"{PREFIX}{repository.removeprefix(PREFIX)}")
    if name is None or "/" not in name.repository or "@" in repository:
        raise HubError(
            "is not a repository on the hub", where=repository, remedy="write owner/name"
        )
    if revision is not None and (not _BRANCH.fullmatch(revision) or ".." in revision):
        raise ConfigError(f"--revision is {revision!r}", remedy="it must be the name of a branch")
    if not config.dry_run:
        hub_api()
    metadata = {
        "license": config.license,
        "language": list(config.language),
        "datasets": list(config.datasets),
    }
    sentences = read_sentence_folder(model)
    loaded, _ = load_model(model if sentences is None else sentences.network)
    upload = _prepare_upload(
        model,
        loaded,
        {key: value for key, value in metadata.items() if value},
        sentences=sentences is not None,
    )
    _print_summary(upload)
    if config.dry_run:
        for line in upload.card.replace("\r\n", "\n").removesuffix("\n").split("\n"):
            print_line(line)
        return None
    with claimed(model / CARD_FILE):
        _write_card(upload)
        address = send(
            model,
            upload.files,
            name.repository,
            private=config.private,
            revision=revision,
            message=config.message or f"Model made by bertsmith {VERSION}",
        )
    say(f"sent: {address}")
    destination = f"{PREFIX}{name.repository}{f'@{revision}' if revision else ''}"
    say(f"next: bertsmith predict {shell_word(destination)}")
    return address


def _prepare_upload(
    folder: Path, model: Model, metadata: dict[str, object], *, sentences: bool
) -> Upload:
    listing = {path.relative_to(folder).as_posix() for path in folder.glob("**/*")}
    index = index_file(listing, "model")
    weights = weights_files(listing, "model", folder / index if index else None)
    files = dict.fromkeys([CARD_FILE, *settings_files(listing, "model"), *weights])
    card_path = folder / CARD_FILE
    if card_path.exists():
        check_file(card_path, folder.resolve())
    old = read_card(folder)
    head = read_head(old, card_path)
    for key, value in metadata.items():
        existing = head.get(key)
        if existing is not None and existing not in (value, [value]) and [existing] != value:
            raise ConfigError(
                f"{key} is {existing!r} in its card, not {value!r}",
                where=card_path,
                remedy=f"change it there, or leave --{key} out",
            )
    known = head_of(model.config, base=base_of(folder), sentences=sentences)
    card = with_head(old or _body(folder, model), metadata | known, card_path)
    return Upload(folder=folder, files=tuple(files), card=card)


def _body(folder: Path, model: Model) -> str:
    """Return a card for a folder without one, from the model itself."""
    encoder = model.config.encoder
    size = sum(parameter.numel() for parameter in model.parameters())
    rows = {
        "network": f"{encoder.family.upper()}, {counted(encoder.layers, 'layer')} of "
        f"{encoder.hidden}",
        "parameters": f"{size:,}",
        "vocabulary": counted(encoder.vocabulary, "piece"),
        "longest input": f"{encoder.longest:,} tokens",
    }
    if model.config.labels:
        rows["labels"] = ", ".join(map(markdown, model.config.labels))
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"# {markdown(folder.resolve().name)}\n\n| what | value |\n|---|---|\n{table}\n"


def _print_summary(upload: Upload) -> None:
    sizes = {
        name: len(upload.card.encode())
        if name == CARD_FILE
        else (upload.folder / name).stat().st_size
        for name in upload.files
    }
    for name, size in sizes.items():
        say(f"  {name:<40} {amount(size, 'B')}")
    left_out = sorted(
        path.name for path in upload.folder.iterdir() if path.is_file() and path.name not in sizes
    )
    if left_out:
        say(f"not uploaded, since not part of the model: {', '.join(left_out)[:200]}")
    head = read_head(upload.card, upload.folder / CARD_FILE)
    for key, option in _ASKED_FOR.items():
        if head.get(key) is None:
            say(f"the card has no {key}: add it with {option}")


def _write_card(upload: Upload) -> None:
    path = upload.folder / CARD_FILE
    if upload.card != read_card(upload.folder):
        with new_file(path) as part:
            part.write_text(upload.card, encoding="utf-8")
