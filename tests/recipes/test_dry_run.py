"""`--dry-run` of `prepare` and `pretrain`: everything is shown, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from bertsmith.batches.config import SampleConfig
from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError
from bertsmith.network.families.bert import BERT
from bertsmith.network.families.family import usual
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.recipe import look
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
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
    # a column that is not there is refused here already
    assert main(["prepare", files[0], *options]) == 2


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
    found = look(config)
    told = capsys.readouterr().err
    assert all(finding.name in told for finding in found.findings)
    assert told.rstrip().endswith("dry run: nothing was trained, nothing was written")
    assert not out.exists()
    with pytest.raises(ConfigError, match="no store to look at; name the folder made by prepare"):
        look(PretrainConfig(store=None, out=tmp_path / "other"))
