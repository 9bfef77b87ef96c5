"""XLM-RoBERTa and ELECTRA by command: fine-tuned, and asked, as any other family."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from bertsmith.cli.main import main
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import build_model
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model
from families import ENCODERS, MODELS

TEXTS = ["Bada ke lomi fu.", "Lomi ra bada so ke.", "Fu so ra ke lomi bada."] * 20


def vocabulary(family: str, tiny_tokenizer: Tokenizer) -> Tokenizer:
    if family == "electra":
        return tiny_tokenizer
    return learn_unigram(TEXTS, size=60, min_frequency=1, plain=True)


def saved(folder: Path, config: ModelConfig, tokenizer: Tokenizer) -> Path:
    encoder = replace(config.encoder, vocabulary=tokenizer.size, longest=40, initial_std=0.1)
    save_model(folder, build_model(replace(config, encoder=encoder), seed=2), tokenizer)
    return folder


def asked(model: Path, text: str, folder: Path) -> None:
    (folder / "asked.txt").write_text(text + "\n", encoding="utf-8")
    assert main(["predict", str(model), str(folder / "asked.txt"), "--format", "jsonl"]) == 0


@pytest.mark.parametrize("case", ["electra-replaced_tokens", "xlm-roberta-masked_lm"])
def test_it_is_fine_tuned(
    case: str,
    tmp_path: Path,
    tiny_tokenizer: Tokenizer,
    labelled_rows: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    family = case.rpartition("-")[0]
    base = saved(tmp_path / "base", MODELS[case], vocabulary(family, tiny_tokenizer))
    rows, out = tmp_path / "rows.tsv", tmp_path / "run"
    rows.write_text("\n".join(labelled_rows[:41]) + "\n", encoding="utf-8")
    command = ["finetune", str(base), str(rows), "--dev", str(rows), "--out", str(out)]
    more = ["--seeds", "1", "--epochs", "1", "--no-baseline", "--side-by-side", "1"]
    assert main([*command, *more]) == 0
    theirs, told = transformers.AutoModelForSequenceClassification.from_pretrained(
        out / "model", output_loading_info=True
    )
    assert theirs.config.model_type == family
    assert not any(told.values()), told
    model, _ = load_model(out / "model")
    assert model.config.labels == ("down", "up")
    capsys.readouterr()
    asked(out / "model", "word1 good", tmp_path)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["label"] in ("down", "up")


def test_fill_mask_answers_as_transformers(
    tmp_path: Path, tiny_tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A generator's folder, and an XLM-RoBERTa whose mask is written <mask>."""
    for family, mask in (("electra", "[MASK]"), ("xlm-roberta", "<mask>")):
        tokenizer = vocabulary(family, tiny_tokenizer)
        config = MODELS[f"{family}-masked_lm"]
        folder = saved(tmp_path / family, config, tokenizer)
        asked(folder, f"word3 {mask} ke", tmp_path)
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        reader = transformers.AutoTokenizer.from_pretrained(folder)
        given = reader(f"word3 {mask} ke", return_tensors="pt")
        at = (given["input_ids"][0] == tokenizer.mask_id).nonzero()[0, 0]
        with torch.no_grad():
            shares = theirs(**given).logits[0, at].softmax(-1)
        found = json.dumps(answer)
        assert ENCODERS[config.encoder.family].family == family
        best = tokenizer.shown(int(shares.argmax()))
        assert best in found, (best, found)


def test_a_discriminator_says_what_it_is_for(
    tmp_path: Path, tiny_tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path / "model", MODELS["electra-replaced_tokens"], tiny_tokenizer)
    assert main(["predict", str(folder), "word3 [MASK] word4"]) == 2
    assert "fine-tune it first (bertsmith finetune" in capsys.readouterr().err


def test_a_folder_with_a_sentencepiece_model_is_replaced(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    """All its files are a model's, as the second saving sees."""
    tokenizer = vocabulary("xlm-roberta", tiny_tokenizer)
    for _ in range(2):
        folder = saved(tmp_path / "model", MODELS["xlm-roberta-masked_lm"], tokenizer)
    model, again = load_model(folder)
    assert (folder / "sentencepiece.bpe.model").is_file()
    assert again.fingerprint == tokenizer.fingerprint
    assert model.config.encoder.position_offset == again.pad_id + 1
