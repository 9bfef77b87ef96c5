"""`--dry-run` of `prepare` and `pretrain`: everything is shown, and nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from bertsmith.batches.config import SampleConfig
from bertsmith.cli.main import main
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, UserError
from bertsmith.core.signals import Interrupted
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.families.bert import BERT
from bertsmith.network.families.family import usual
from bertsmith.network.model import build_model
from bertsmith.recipes import prepare as preparing
from bertsmith.recipes.config import CorpusConfig, PrepareConfig
from bertsmith.recipes.finetune import recipe as finetuning
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.pretrain import recipe as pretraining
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.recipe import dry_run
from bertsmith.store.preparing import prepare_corpus, prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import RUN_FORMAT
from bertsmith.weights.folder import save_model
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]


def test_a_corpus_as_it_is_read(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save(tmp_path / "vocab")
    rows = [f"{n % 3},Ba de {n} gu." for n in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "b.txt").write_text("Ba de gu.\nLo ba.\n\nMi so.\nRa de.\n\n" * 9)
    files = [str(tmp_path / name) for name in ("a.csv", "b.txt")]
    options = ["--vocab", str(tmp_path / "vocab"), "--out", str(tmp_path / "store"), "--dry-run"]
    assert main(["prepare", *files, "--text-column", "1", *options]) == 0
    told = capsys.readouterr().err
    assert "corpus: 2 files (1 .csv, 1 .txt)" in told
    assert "a.csv: CSV without header ('0' in its first line is repeated below): text is c" in told
    assert "b.txt: layout documents (as found)" in told
    assert "document 1 (a.csv, line 1), 1 paragraph:\n  Ba de 0 gu.\n" in told
    reference = AutoTokenizer.from_pretrained(tmp_path / "vocab")
    ids = reference("Ba de 0 gu.", add_special_tokens=False)["input_ids"]
    assert f"  ids:    {' '.join(map(str, ids))}\n" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.txt", "vocab"]
    # what stops the run in a later file of the same kind stops this
    (tmp_path / "z.csv").write_text("id,review\n0,Ba de gu.\n1,Lo ba mi.\n2,So ra de.\n")
    rows = [f"Ba de {n} gu." for n in range(20)]
    (tmp_path / "y.csv").write_text("\n".join(["text", *rows]) + "\n")
    (tmp_path / "z.txt").write_bytes("Ba dé gú.\nLo ba.\n".encode() + b"\xff\n")
    for last, remedy in (("z.csv", "no column 'text'"), ("z.txt", "name its encoding, such as")):
        assert main(["prepare", files[1], str(tmp_path / "y.csv"), str(tmp_path / last), *options])
        assert remedy in capsys.readouterr().err
        (tmp_path / last).unlink()
    (tmp_path / "y.csv").unlink()
    # a column that is not there is refused here already
    assert main(["prepare", files[0], *options]) == 2


def test_names_of_special_tokens_are_shown_as_the_store_holds_them(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save(tmp_path / "vocab")
    (tmp_path / "a.txt").write_text("ba [SEP] de [MASK].\n")
    options = ["--vocab", str(tmp_path / "vocab"), "--out", str(tmp_path / "store")]
    assert main(["prepare", str(tmp_path / "a.txt"), *options, "--dry-run"]) == 0
    told = capsys.readouterr().err
    assert main(["prepare", str(tmp_path / "a.txt"), *options, "--held-out", "0"]) == 0
    store = TokenStore(tmp_path / "store")
    stored = store.read(0, store.tokens).tolist()
    assert f"  ids:    {' '.join(map(str, stored))}\n" in told


def test_layouts_that_differ_from_file_to_file(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file read as many documents among files read as one each shows, before and after."""
    tokenizer.save(tmp_path / "vocab")
    (tmp_path / "texts").mkdir()
    for name in "abc":
        (tmp_path / "texts" / f"{name}.txt").write_text(
            f"Ba de gu {name}.\n\nMi so.\n\nLo ba.\n" * 5
        )
    (tmp_path / "texts" / "d.txt").write_text("Ba de gu.\nLo ba.\n\nMi so.\nRa de.\n\n" * 9)
    command = ["prepare", str(tmp_path / "texts"), "--vocab", str(tmp_path / "vocab")]
    found = (
        "layouts found: prose in 3 files, documents in 1 file (each blank line ends a document); "
        "if all files have the same layout, state it with --layout\n"
    )
    for out, options in (("shown", ["--dry-run"]), ("found", [])):
        assert main([*command, "--out", str(tmp_path / out), *options]) == 0
        assert found in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "stated"), "--layout", "prose"]) == 0
    assert "layouts found" not in capsys.readouterr().err


def test_the_check_before_pretraining_alone(
    tmp_path: Path,
    tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BERT.sizes, "tiny", usual(2, 64))
    prepare_store(invented_documents(20), tokenizer, tmp_path / "store", held_out=0.1)
    settings = PretrainSettings(
        network=NetworkConfig(max_positions=40),
        samples=SampleConfig(max_length=31, tokens_per_batch=190),
    )
    out = tmp_path / "run"
    config = PretrainConfig(
        store=tmp_path / "store", out=out, model="tiny", steps=2, settings=settings, force=True
    )
    found = dry_run(config)
    told = capsys.readouterr().err
    assert all(finding.name in told for finding in found.findings)
    assert told.rstrip().endswith("dry run: nothing was trained, nothing was written")
    assert not out.exists()
    with pytest.raises(ConfigError, match="no store to check; name the folder made by prepare"):
        dry_run(PretrainConfig(store=None, out=tmp_path / "other"))


# what a run refuses before it trains or encodes, its dry run refuses in the same words

Change = Callable[[Path], dict[str, Any]]
"""Makes something at the output and returns settings to change."""


def _a_file(out: Path) -> dict[str, Any]:
    out.write_text("mine")
    return {}


def _other_things(out: Path) -> dict[str, Any]:
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    return {}


def _a_run(kind: str, version: int) -> Change:
    def make(out: Path) -> dict[str, Any]:
        out.mkdir()
        run = {"format": version, "kind": kind, "id": "1", "settings": {}}
        (out / "run.json").write_text(json.dumps(run))
        return {}

    return make


def _places(kind: str) -> dict[str, tuple[Change, str]]:
    return {
        "a file": (_a_file, "out: is a file"),
        "other things": (_other_things, "holds notes.txt and is not a run folder"),
        "another verb": (_a_run("glue", RUN_FORMAT), "belongs to a run of `bertsmith glue`"),
        "another version": (_a_run(kind, 1), "belongs to a run that .* began"),
    }


def _begin(
    run: Callable[[Any], object],
    config: Any,  # noqa: ANN401
    patch: pytest.MonkeyPatch,
    after: str,
) -> None:
    """Leave what a run leaves that is killed before it trains, in the function `after`."""
    kept: list[bytes] = []

    def stop(*_: object, **__: object) -> None:
        kept.append((config.out / "run.json").read_bytes())
        raise Interrupted("stopped")

    with patch.context() as patched:
        patched.setattr(after, stop)
        with pytest.raises(Interrupted):
            run(config)
    config.out.mkdir(exist_ok=True)
    (config.out / "run.json").write_bytes(kept[0])


def _both_refuse(
    config: Config, run: Callable[[Any], object], dry: Callable[[Any], object], folder: Path
) -> str:
    """Check that the dry run says what the run says, and leaves the folder as it is."""
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    with pytest.raises(UserError) as early:
        dry(config)
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before
    with pytest.raises(UserError) as late:
        run(config)
    assert str(early.value) == str(late.value)
    return str(early.value)


FINETUNE: dict[str, tuple[Change, str]] = {
    **_places("finetune"),
    "none at once": (lambda out: {"experiment.side_by_side": 0}, "--side-by-side is 0"),
    "a decay below 0": (lambda out: {"settings.weight_decay": -1.0}, "-decay is -1"),
    "a decay of all": (lambda out: {"settings.weight_decay": 1e308}, "1e.308 at --learning-rate"),
    "fewer seeds": (lambda out: {"experiment.seeds": 3}, "run with other settings .*seeds"),
    "more epochs": (lambda out: {"settings.epochs": 3}, "run with other settings .*epochs"),
}


@pytest.mark.parametrize("case", FINETUNE)
def test_what_finetune_refuses_its_dry_run_refuses(
    case: str,
    base_folder: Path,
    labelled_rows: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change, message = FINETUNE[case]
    (tmp_path / "train.tsv").write_text("\n".join(labelled_rows[:40]) + "\n")
    plain = FinetuneConfig(
        model=base_folder,
        train=tmp_path / "train.tsv",
        out=tmp_path / "out",
        settings=FinetuneSettings(baseline=False, epochs=1, max_length=16, precision="fp32"),
        experiment=ExperimentConfig(seeds=4, side_by_side=1),
    )
    if "other settings" in message:
        after = "bertsmith.recipes.finetune.recipe._run_experiment"
        _begin(finetuning.finetune, plain, monkeypatch, after)
    config = plain.override(**change(plain.out))
    said = _both_refuse(config, finetuning.finetune, finetuning.dry_run, tmp_path)
    assert re.search(message, said)


def _parent(out: Path, tokenizer: Tokenizer, pieces: Sequence[str]) -> str:
    encoder = encoder_of("bert", "tiny", len(pieces), longest=40)
    folder = out.with_name("parent")
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    save_model(folder, build_model(config, seed=1), Tokenizer(tuple(pieces), tokenizer.rules))
    return str(folder)


PRETRAIN: dict[str, tuple[Change, str]] = {
    **_places("pretrain"),
    "no checkpoint": (lambda out: {"settings.keep_checkpoints": 0}, "-checkpoints is 0"),
    "processes below 0": (lambda out: {"workers": -1}, "-workers is -1"),
    "more steps": (lambda out: {"steps": 3}, "run with other settings .*steps"),
    "other settings": (lambda out: {"settings.seed": 3}, "run with other settings .*seed"),
    "another vocabulary": (lambda out: {"model": None}, "was prepared with another vocabulary"),
    "another network": (
        lambda out: {"model": None, "settings.network.activation": "gelu_tanh"},
        "--activation is 'gelu_tanh', and the parent has 'gelu'",
    ),
    "a start of new models": (
        lambda out: {"model": None, "settings.network.initialisation": "neighbours"},
        "--initialisation neighbours is for new models, and --from names one",
    ),
    "long texts": (
        lambda out: {"settings.samples.max_length": 99}, "exceeds --max-positions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PRETRAIN)
def test_what_pretrain_refuses_its_dry_run_refuses(
    case: str, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, message = PRETRAIN[case]
    monkeypatch.setitem(BERT.sizes, "tiny", usual(2, 64))
    prepare_store(invented_documents(9), tokenizer, tmp_path / "store")
    settings = PretrainSettings(
        network=NetworkConfig(max_positions=40),
        samples=SampleConfig(max_length=31, tokens_per_batch=190),
    )
    plain = PretrainConfig(
        store=tmp_path / "store", out=tmp_path / "out", model="tiny", steps=2, settings=settings,
        force=True,
    )  # fmt: skip
    if "other settings" in message:
        after = "bertsmith.recipes.pretrain.recipe.run_training"
        _begin(pretraining.pretrain, plain, monkeypatch, after)
    changes = change(plain.out)
    if "model" in changes:
        pieces = tokenizer.vocabulary
        other = (*pieces[:5], *reversed(pieces[5:])) if "vocabulary" in message else pieces
        changes |= {"from_": _parent(plain.out, tokenizer, other)}
    said = _both_refuse(plain.override(**changes), pretraining.pretrain, dry_run, tmp_path)
    assert re.search(message, said)


def _begun(out: Path) -> dict[str, Any]:
    """Leave what an interrupted `prepare` leaves."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        for name in ("text.corpus.sections.SECTION_BYTES", "store.preparing.GROUP_BYTES"):
            patch.setattr(f"bertsmith.{name}", 100)
        corpus = preparing.open_corpus(CorpusConfig(corpus=(out.with_name("a.txt"),)))
        prepare_corpus(corpus, Tokenizer.load(out.with_name("vocab")), out, moved=stop)
    assert out.with_name("out.partial").exists()
    return {"held_out": 0.3}


PREPARE: dict[str, tuple[Change, str]] = {
    "a file": (_a_file, "out: exists already"),
    "a store": (_other_things, "out: exists already"),
    "begun otherwise": (_begun, "unfinished store that was begun with another --held-out"),
    "no vocabulary": (lambda out: {"vocab": str(out)}, "out: no such folder"),
}


@pytest.mark.parametrize("case", PREPARE)
def test_what_prepare_refuses_its_dry_run_refuses(
    case: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    change, message = PREPARE[case]
    tokenizer.save(tmp_path / "vocab")
    (tmp_path / "a.txt").write_text("Ba de gu.\nLo ba.\n\nMi so.\nRa de.\n\n" * 9)
    plain = PrepareConfig(
        text=CorpusConfig(corpus=(tmp_path / "a.txt",)),
        vocab=tmp_path / "vocab",
        out=tmp_path / "out",
        workers=1,
    )
    config = plain.override(**change(plain.out))
    said = _both_refuse(config, preparing.prepare, preparing.dry_run, tmp_path)
    assert re.search(message, said)
