"""A model that reads from left to right is pooled at the last token, for every head of texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertLMHeadModel,
    BertModel,
)

from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.engine.config import ContinuationConfig, FeatureConfig
from bertsmith.network.batch import pack
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts
from bertsmith.network.model import build_model
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.recipe import dry_run, finetune
from bertsmith.recipes.predict.config import EvaluateConfig, PredictConfig
from bertsmith.recipes.predict.evaluate import evaluate
from bertsmith.recipes.predict.recipe import predict
from bertsmith.tasks.config import AnsweringConfig
from bertsmith.tasks.opening import open_embedder, vectors
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model, start_from
from bounds import close_to_transformers
from parity.other_process import TheirError, Transformers

ENCODER = EncoderConfig(
    vocabulary=37, hidden=24, layers=2, heads=3, feed_forward=48, longest=40, causal=True,
    dropout=0.0, attention_dropout=0.0, initial_std=0.1,
)  # fmt: skip
TEXTS = ["word1 word2 good", "word1 word2 bad", "word3", "word1 word2 word4 good word5"]
NOTE = "transformers refuses and bertsmith loads"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A left-to-right model as pre-training leaves it."""
    folder = tmp_path_factory.mktemp("causal") / "model"
    config = ModelConfig(encoder=ENCODER, pooler=False, masked_lm=True)
    save_model(folder, build_model(config, seed=2), tiny_tokenizer)
    return folder


@pytest.fixture(scope="module")
def learned(base: Path) -> tuple[Path, FinetuneOutcome]:
    """Texts that only their last word tells apart, and a model that was trained on them."""
    random = np.random.default_rng(4)
    rows = ["label\ttext"]
    for _ in range(160):
        words = [f"word{n}" for n in random.integers(0, 30, int(random.integers(3, 9)))]
        last = ["good", "bad"][int(random.integers(2))]
        rows.append(f"{'up' if last == 'good' else 'down'}\t{' '.join([*words, last])}")
    train = base.parent / "train.tsv"
    train.write_text("\n".join(rows) + "\n", encoding="utf-8")
    settings = FinetuneSettings(
        learning_rate=3e-3, epochs=10, batch_size=8, max_length=24, dropout=0.0
    )
    return train, finetune(
        FinetuneConfig(
            model=base,
            train=train,
            out=base.parent / "run",
            settings=settings,
            experiment=ExperimentConfig(seeds=1),
        )
    )


def test_a_classifier_learns_from_the_last_words(learned: tuple[Path, FinetuneOutcome]) -> None:
    train, outcome = learned
    assert not outcome.constant
    assert outcome.best.score >= 0.9
    scores = evaluate(EvaluateConfig(model=outcome.model, file=train))["scores"]
    assert scores["accuracy"]["value"] >= 0.95


def test_its_folder_says_how_it_is_pooled_and_loads_again(
    learned: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    _, outcome = learned
    said = json.loads((outcome.model / "config.json").read_text(encoding="utf-8"))
    assert said["model_type"] == "bertsmith"
    assert said["bertsmith_encoder"]["pooled"] == "last"
    assert said["bertsmith_encoder"]["family"] == "bert"
    card = (outcome.model / "README.md").read_text(encoding="utf-8")
    assert NOTE in card
    assert "library_name: bertsmith" in card
    model, tokenizer = load_model(outcome.model)
    save_model(tmp_path / "again", model, tokenizer)
    again, _ = load_model(tmp_path / "again")
    assert again.config == model.config
    state = again.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_transformers_refuses_it_however_it_is_asked(
    learned: tuple[Path, FinetuneOutcome], transformers5: Transformers
) -> None:
    folder = learned[1].model
    with pytest.raises(ValueError, match="model type `bertsmith`"):
        AutoModelForSequenceClassification.from_pretrained(folder)
    for kind in (BertForSequenceClassification, BertModel):
        with pytest.raises(KeyError, match="bertsmith_gelu"):
            kind.from_pretrained(folder)
    for name, told in (
        ("AutoModelForSequenceClassification", "model type `bertsmith`"),
        ("BertForSequenceClassification", "bertsmith_gelu"),
    ):
        with pytest.raises(TheirError, match=told):
            transformers5.ask("open_model", folder=str(folder), kind=name, attention="eager")


@pytest.mark.parametrize("predicts", ["class", "classes", "number", "choice"])
@torch.no_grad()
def test_every_head_of_texts_reads_the_last_token(base: Path, predicts: Predicts) -> None:
    labels = () if predicts == "choice" else ("score",) if predicts == "number" else ("a", "b")
    model, tokenizer = start_from(base, predicts=predicts, labels=labels, seed=1)
    ids = [np.array([tokenizer.cls_id, *own, tokenizer.sep_id]) for own in tokenizer.encode(TEXTS)]
    batch = pack(ids, [np.zeros(len(own), np.int8) for own in ids])
    encoded = model.encoder(batch)
    assert model.pooler is not None
    last = torch.stack([encoded.last[end - 1] for end in batch.offsets[1:].tolist()])
    head = model.heads["choose" if predicts == "choice" else "classify"]
    expected = head(model.pooler.dense(last).tanh())
    found = (model.choose if predicts == "choice" else model.classify)(encoded, batch)
    close_to_transformers(found.reshape(expected.shape), expected)
    assert len(set(found.flatten().tolist())) > len(TEXTS) - 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pooled": "middle"}, "pooled is 'middle'; it must be one of first"),
        ({"family": "gpt"}, "family is 'gpt'; it must be one of bert"),
        ({"causal": False}, "the encoder does not read from left to right"),
        ({"layers": 2**40}, "layers is 1099511627776"),
        ({"longest": 31}, "has the shape"),
        ({"theta": 1e400}, "theta is inf"),
        ({"color": 3}, "unknown setting 'color'"),
        (None, "bertsmith_encoder is None"),
        ("without", "has no bertsmith_encoder: an earlier version saved it; train or convert"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(
    learned: tuple[Path, FinetuneOutcome],
    tmp_path: Path,
    change: dict[str, object] | str | None,
    told: str,
) -> None:
    for name in ("model.safetensors", "vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((learned[1].model / name).read_bytes())
    said = json.loads((learned[1].model / "config.json").read_text(encoding="utf-8"))
    if isinstance(change, str):
        del said["bertsmith_encoder"]
    else:
        said["bertsmith_encoder"] = change and said["bertsmith_encoder"] | change
    (tmp_path / "config.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=told):
        load_model(tmp_path)


def test_it_is_said_before_any_training(
    base: Path, base_folder: Path, labelled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry_run(FinetuneConfig(model=base, train=labelled, out=labelled.parent / "out"))
    assert " ".join(capsys.readouterr().err.split()).count(NOTE) == 1
    dry_run(FinetuneConfig(model=base_folder, train=labelled, out=labelled.parent / "out"))
    assert NOTE not in " ".join(capsys.readouterr().err.split())


@torch.no_grad()
def test_a_classifier_of_transformers_is_computed_as_there_and_that_is_told(
    tmp_path: Path, tiny_tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=37, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=48, max_position_embeddings=40, is_decoder=True,
        initializer_range=0.3,
    )  # fmt: skip
    theirs = BertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path / "model")
    tiny_tokenizer.save(tmp_path / "model")
    model, _ = load_model(tmp_path / "model")
    assert "gives the same answer for every text" in " ".join(capsys.readouterr().err.split())
    ids = [np.array([2, *own, 3]) for own in tiny_tokenizer.encode(TEXTS)]
    batch = pack(ids, [np.zeros(len(own), np.int8) for own in ids])
    expected = torch.cat([theirs(torch.tensor(own[None])).logits for own in ids])
    close_to_transformers(model.classify(model.encoder(batch), batch), expected)
    # fine-tuned again, it has a head that reads the last token
    assert start_from(tmp_path / "model", labels=("a", "b"))[0].config.encoder.pooled == "last"


@pytest.mark.parametrize("predicts", ["tags", "span"])
def test_heads_of_tokens_are_still_those_of_transformers(
    base: Path, tmp_path: Path, tiny_tokenizer: Tokenizer, predicts: Predicts
) -> None:
    labels = ("O", "B-X") if predicts == "tags" else ()
    model, _ = start_from(base, predicts=predicts, labels=labels)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    said = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert said["model_type"] == "bert"
    assert BertModel.from_pretrained(tmp_path / "model").config.is_decoder


def test_vectors_are_those_of_the_last_token(base: Path) -> None:
    found = vectors(open_embedder(base), TEXTS)
    expected = vectors(open_embedder(base, FeatureConfig(pool="last-token")), TEXTS)
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(
        found, vectors(open_embedder(base, FeatureConfig(pool="mean")), TEXTS)
    )


def test_an_encoder_that_reads_both_ways_is_not_pooled_at_its_last_token() -> None:
    with pytest.raises(ConfigError, match="does not read from left to right"):
        replace(ENCODER, causal=False, pooled="last")


def test_predict_continues_the_texts_of_a_file(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_tokenizer: Tokenizer
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("word1 word2\n\nword3 good\n", encoding="utf-8")
    five = ContinuationConfig(max_new_tokens=5)
    predict(
        PredictConfig(
            model=base, file=str(file), format="jsonl", answering=AnsweringConfig(continuation=five)
        )
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    theirs = BertLMHeadModel.from_pretrained(base).eval()
    for number, text in ((0, "word1 word2"), (2, "word3 good")):
        ids = torch.tensor([[2, *tiny_tokenizer.encode([text])[0].tolist()]])
        expected = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=5,
            suppress_tokens=sorted(tiny_tokenizer.special_ids),
        )  # fmt: skip
        whole = tiny_tokenizer.decode(expected[0, 1:].tolist())
        assert rows[number] == {"text": text, "continuation": whole.removeprefix(text)}
    assert rows[1] == {"text": "", "continuation": None}
    predict(PredictConfig(model=base, file=str(file), answering=AnsweringConfig(continuation=five)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["word1 word2", f"    {rows[0]['continuation'].strip()}"]
    predict(
        PredictConfig(
            model=base, file=str(file), format="csv", answering=AnsweringConfig(continuation=five)
        )
    )
    assert capsys.readouterr().out.splitlines()[0] == "text,continuation"


def test_options_of_continuing_are_refused_where_nothing_is_continued(
    base_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("word1 [MASK]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="--max-new-tokens, --temperature and --seed are for"):
        predict(
            PredictConfig(
                model=base_folder,
                file=str(file),
                answering=AnsweringConfig(continuation=ContinuationConfig(max_new_tokens=5)),
            )
        )
