from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertsmith
from bertsmith.analysis.attributions.attribution import Baseline
from bertsmith.core.errors import ConfigError, ExampleError, ModelFolderError
from bertsmith.recipes.config import Attributing, ExplainConfig, ExplainingConfig
from bertsmith.recipes.explain import explain
from bertsmith.tasks.config import TextLength
from bertsmith.tasks.rank import RELEVANCE
from bertsmith.tasks.regression import NUMBER
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model, start_from
from bounds import close_to_transformers
from families import MODELS, TOKENIZERS, varied

METHODS: tuple[Attributing, ...] = (
    "integrated-gradients",
    "gradient-x-input",
    "leave-one-out",
    "rollout",
)


@pytest.fixture(scope="module")
def classifier(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path, tiny_tokenizer: Tokenizer
) -> Path:
    model, _ = start_from(base_folder, labels=("ham", "<spam>"), seed=3)
    folder = tmp_path_factory.mktemp("classifier") / "model"
    save_model(folder, model, tiny_tokenizer)
    return folder


def test_answers_are_explained_tested_and_shown(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("word1 good <script> word2\n\nword3 bad word4 word5\n", encoding="utf-8")
    config: dict[str, Any] = {
        "model": classifier, "file": str(asked), "out": tmp_path / "why.html",
        "explaining": ExplainingConfig(methods=METHODS, deletion=True),
    }  # fmt: skip
    figures = explain(ExplainConfig(**config, json=True))
    printed = capsys.readouterr()
    assert json.loads(printed.out)["deletion"] == figures["deletion"]
    first, second = figures["explanations"]
    # the blank line between the two is counted
    assert (first["text"], second["text"]) == (0, 2)
    assert first["words"] == ["word1", "good", "<", "script", ">", "word2"]
    assert second["words"] == ["word3", "bad", "word4", "word5"]
    for item in (first, second):
        own = item["methods"]["integrated-gradients"]
        # special tokens have no share, so the words' add up
        assert sum(own["shares"]) == pytest.approx(own["difference"], abs=1e-3 + 1e-4)
        assert own["gap"] <= 1e-3
        assert set(item["methods"]) == set(METHODS)
        assert all(len(found["shares"]) == len(item["words"]) for found in item["methods"].values())
    assert set(figures["deletion"]) == set(METHODS)
    for row in (row for rows in figures["deletion"].values() for row in rows):
        low, high = row["difference"]["low"], row["difference"]["high"]
        assert low < row["top"] - row["random"] < high
    assert "shares add up to the logit's difference within" in printed.err
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;" in page
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert page.count("integrated-gradients") >= 2
    # a word that is written from right to left would take its figure along
    figures_of_words = re.findall(r"largest shares: (.*?)</p>", page)
    assert len(figures_of_words) == 2 * len(METHODS)
    assert all(
        re.fullmatch(r"<bdi>[^<]+</bdi> [-+][\d.e-]+", part)
        for line in figures_of_words
        for part in line.split(", ")
    )
    explain(ExplainConfig(**config))
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("    rollout: ") for line in lines) == 2
    # the largest shares first, whether they support the answer or oppose it
    shown = [re.findall(r" ([-+]\d\.\d+)", line) for line in lines if line.startswith("    ")]
    shares = [[abs(float(share)) for share in line] for line in shown]
    assert all(line == sorted(line, reverse=True) for line in shares)
    assert {share[0] for line in shown for share in line} == {"+", "-"}
    # the table of deletion, whose names of methods are whole on a terminal of 80 columns
    rows = [line for line in lines if line.lstrip().startswith(METHODS)]
    table = [line for line in rows if re.search(r"[123] +2 +\d+\.\d\d % ", line)]
    assert len(table) == 3 * len(METHODS)
    assert max(map(len, table)) <= 80
    # words are shown as the text has them, without blanks of ours around signs
    assert any(line.endswith("  word1 good <script> word2") for line in lines)
    assert re.search(r"&lt;</span><span [^>]*>script</span><span [^>]*>&gt;</span> <span", page)


def test_the_beginning_of_long_texts_is_read_and_limits_hold(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("word1 " * 50 + "\nword2\nword3\n", encoding="utf-8")
    how = ExplainingConfig(length=TextLength(max_length=12))
    config = ExplainConfig(model=classifier, file=str(asked), limit=2, explaining=how)
    figures = explain(config)
    assert figures["texts"] == 2
    (own,) = figures["explanations"][0]["methods"].values()
    assert [share != 0 for share in own["shares"]] == [True] * 10 + [False] * 40
    assert "of 1 text only the beginning was read" in capsys.readouterr().err


@pytest.mark.parametrize(("baseline", "token"), [("mask", "[MASK]"), ("pad", "[PAD]")])
def test_gradients_are_integrated_from_the_baseline_that_is_chosen(
    classifier: Path, tiny_tokenizer: Tokenizer, tmp_path: Path, baseline: Baseline, token: str
) -> None:
    theirs = transformers.BertForSequenceClassification.from_pretrained(classifier).eval()
    model = bertsmith.load(classifier, device="cpu", precision="fp32")
    (found,) = model.explain(["word1 good word2"], baseline=baseline)["explanations"]
    (pieces,) = tiny_tokenizer.encode(["word1 good word2"])
    other = tiny_tokenizer.vocabulary.index(token)
    rows = [
        [tiny_tokenizer.cls_id, *inner, tiny_tokenizer.sep_id]
        for inner in (pieces.tolist(), [other] * len(pieces))
    ]
    with torch.no_grad():
        whole, empty = theirs(torch.tensor(rows)).logits
    label = int(whole.argmax())
    own = found["methods"]["integrated-gradients"]
    close_to_transformers(own["difference"], float(whole[label] - empty[label]))
    (tmp_path / "asked.txt").write_text("word1 good word2\n", encoding="utf-8")
    page = tmp_path / "why.html"
    how = ExplainingConfig(baseline=baseline)
    config = ExplainConfig(
        model=classifier, file=str(tmp_path / "asked.txt"), out=page, explaining=how
    )
    explain(config)
    side = "above" if whole[label] >= empty[label] else "below"
    text = f"{side} that of a text of {'masks' if baseline == 'mask' else 'padding'}; the shares"
    # small ones with their figures, too
    assert f" {abs(own['difference']):.3g} {text}" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("baseline", ["mask", "pad"])
def test_the_padding_that_a_text_contains_is_no_position_of_a_roberta(
    tmp_path: Path, baseline: Baseline
) -> None:
    ours = varied(MODELS["roberta-class"])
    save_model(tmp_path / "model", ours, TOKENIZERS["roberta"])
    theirs = transformers.RobertaForSequenceClassification.from_pretrained(tmp_path / "model")
    text, tokenizer = "word3 [PAD] word4 word5", TOKENIZERS["roberta"]
    model = bertsmith.load(tmp_path / "model", device="cpu", precision="fp32")
    (found,) = model.explain([text], baseline=baseline)["explanations"]
    (pieces,) = tokenizer.encode([text])
    neutral = tokenizer.mask_id if baseline == "mask" else tokenizer.pad_id
    ids = torch.tensor([[0, *pieces.tolist(), 2], [0, *[neutral] * len(pieces), 2]])
    assert tokenizer.pad_id in ids[0]
    counted = ids[0] != tokenizer.pad_id
    positions = torch.where(counted, counted.cumsum(0) + tokenizer.pad_id, tokenizer.pad_id)
    with torch.no_grad():
        whole, empty = theirs.eval()(ids, position_ids=positions.expand(2, -1)).logits
        alone = theirs(ids[:1]).logits[0]
    close_to_transformers(whole, alone)
    label = int(whole.argmax())
    own = found["methods"]["integrated-gradients"]
    close_to_transformers(own["difference"], float(whole[label] - empty[label]))
    assert sum(own["shares"]) == pytest.approx(own["difference"], abs=1e-3 + 1e-4)


@pytest.mark.parametrize(
    ("part", "read"), [("tail", range(40, 50)), ("head+tail", [0, 1, *range(42, 50)])]
)
def test_the_part_of_long_texts_is_explained_that_is_answered_for(
    classifier: Path, part: str, read: Sequence[int]
) -> None:
    text = " ".join(f"word{number % 7}" for number in range(50))
    model = bertsmith.load(classifier, device="cpu", precision="fp32")
    options: dict[str, Any] = {"max_length": 12, "truncation": part}
    (record,) = model.predict([text], **options)
    (found,) = model.explain([text], methods="leave-one-out", **options)["explanations"]
    assert found["answer"] == record["label"]
    own = np.flatnonzero(found["methods"]["leave-one-out"]["shares"])
    assert own.tolist() == list(read)


def test_answers_that_predict_withholds_are_marked(
    classifier: Path,
    base_folder: Path,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, _ = start_from(base_folder, labels=(), seed=3, predicts="span")
    asked = [{"question": "word1", "context": f"good word{n} word{n + 3} " * 12} for n in range(4)]
    save_model(tmp_path / "open", model, tiny_tokenizer)
    options: dict[str, Any] = {"max_length": 32, "stride": 4}
    doubts = [row["doubt"] for row in bertsmith.load(tmp_path / "open").predict(asked, **options)]
    # two of the four are over it
    model.config = replace(model.config, no_answer=sum(sorted(doubts)[1:3]) / 2)
    save_model(tmp_path / "span", model, tiny_tokenizer)
    predicted = bertsmith.load(tmp_path / "span", precision="fp32").predict(asked, **options)
    rows = tmp_path / "asked.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in asked))
    how = ExplainingConfig(methods=("rollout",), length=TextLength(**options))
    config = ExplainConfig(model=tmp_path / "span", file=str(rows), explaining=how)
    found = explain(replace(config, out=tmp_path / "why.html"))["explanations"]
    assert [item["withheld"] for item in found] == [not row["answer"] for row in predicted]
    assert sum(item["withheld"] for item in found) == 2
    assert all(item["answer"] for item in found)
    told = capsys.readouterr()
    assert told.out.count(" (withheld)") == 2
    assert "of 2 texts an answer is explained that predict withholds" in told.err
    assert (tmp_path / "why.html").read_text().count("(withheld by predict)") == 2
    sure, tokenizer = load_model(classifier)
    sure.config = replace(sure.config, min_confidence=1.0)
    save_model(tmp_path / "sure", sure, tokenizer)
    (item,) = bertsmith.load(tmp_path / "sure").explain(["word1"], methods="rollout")[
        "explanations"
    ]
    assert (item["answer"] in sure.config.labels, item["withheld"]) == (True, True)


def test_a_context_without_tokens_has_no_answer_to_explain(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, labels=(), seed=3, predicts="span")
    save_model(tmp_path / "span", model, tiny_tokenizer)
    # a zero-width space is all of it
    asked = [{"question": "word1", "context": "\u200b"}]
    found = bertsmith.load(tmp_path / "span").explain(asked)
    assert found == {"texts": 1, "explanations": [], "deletion": {}}


def test_what_cannot_be_explained_is_named(
    classifier: Path, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    asked = tmp_path / "asked.txt"
    asked.write_text("\n\n", encoding="utf-8")
    with pytest.raises(ExampleError, match="holds no text"):
        explain(ExplainConfig(model=classifier, file=str(asked)))
    asked.write_text("word1\n", encoding="utf-8")
    with pytest.raises(ModelFolderError, match="has no head for a task"):
        explain(ExplainConfig(model=base_folder, file=str(asked)))
    with pytest.raises(ConfigError, match=r"ends in \.html"):
        ExplainConfig(model=classifier, out=tmp_path / "page.txt")
    page = tmp_path / "page.html"
    with pytest.raises(ConfigError, match=r"would replace page\.html, the file that is read"):
        explain(ExplainConfig(model=classifier, file=str(page), out=page))
    model, _ = start_from(base_folder, labels=NUMBER, seed=3, predicts="number")
    save_model(tmp_path / "number", model, tiny_tokenizer)
    with pytest.raises(ConfigError, match="--deletion counts answers that change"):
        explain(
            ExplainConfig(
                model=tmp_path / "number",
                file=str(asked),
                explaining=ExplainingConfig(deletion=True),
            )
        )
    figures = explain(ExplainConfig(model=tmp_path / "number", file=str(asked)))
    assert len(figures["explanations"]) == 1


def test_python_explains_as_the_command_does(
    classifier: Path, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    texts = ["word1 good word2", "", "word3 bad word4 word5"]
    asked = tmp_path / "asked.txt"
    asked.write_text("\n".join(texts) + "\n", encoding="utf-8")
    how = ExplainingConfig(methods=METHODS, deletion=True, seed=3)
    told = explain(ExplainConfig(model=classifier, file=str(asked), explaining=how))
    model = bertsmith.load(classifier, device="cpu")
    found = model.explain(texts, methods=list(METHODS), deletion=True, seed=3)
    assert found == told
    assert [item["text"] for item in found["explanations"]] == [0, 2]
    (alone,) = model.explain([{"text": texts[2]}])["explanations"]
    own, again = (
        item["methods"]["integrated-gradients"] for item in (found["explanations"][1], alone)
    )
    assert own["shares"] == pytest.approx(again["shares"], abs=1e-5)
    # what was opened to answer still does
    assert model.predict(texts[:1])[0]["label"] in ("ham", "<spam>")
    assert model.explain([]) == {"texts": 0, "explanations": [], "deletion": {}}
    short = model.explain([texts[2]], max_length=8, methods="rollout")["explanations"][0]
    assert len(short["words"]) == 4
    with pytest.raises(ConfigError, match="tolerance is 2"):
        model.explain(texts, tolerance=2.0)
    with pytest.raises(ConfigError, match="examples are of type str"):
        model.explain("word1")
    with pytest.raises(ModelFolderError, match="has no head for a task"):
        bertsmith.load(base_folder).explain(texts)
    regression, _ = start_from(base_folder, labels=NUMBER, seed=3, predicts="number")
    save_model(tmp_path / "number", regression, tiny_tokenizer)
    with pytest.raises(ConfigError, match=r"^deletion counts answers that change"):
        bertsmith.load(tmp_path / "number").explain(texts, deletion=True)


def test_a_tag_from_right_to_left_does_not_change_places_with_its_word(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    # without O each word is tagged
    model, _ = start_from(base_folder, predicts="tags", labels=("B-אדם", "B-מקום"), seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    (tmp_path / "asked.txt").write_text("word1\n", encoding="utf-8")
    out, how = tmp_path / "why.html", ExplainingConfig(methods=("gradient-x-input",))
    file = str(tmp_path / "asked.txt")
    explain(ExplainConfig(model=tmp_path / "model", file=file, out=out, explaining=how))
    answer = re.compile("<h3>1: <bdi>B-(אדם|מקום)</bdi>: <bdi>word1</bdi></h3>")
    assert answer.search(out.read_text(encoding="utf-8"))


def test_an_entity_with_an_invisible_sign_is_explained_once(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, predicts="tags", labels=("O", "B-X", "I-X"), seed=3)
    with torch.no_grad():
        # each word goes on with an entity
        model.get_parameter("heads.tag.bias").copy_(torch.tensor([0.0, 0.0, 50.0]))
    save_model(tmp_path / "tags", model, tiny_tokenizer)
    opened = bertsmith.load(tmp_path / "tags", device="cpu")
    text = "word1 \u200e word2"
    ((entity,),) = (answer["entities"] for answer in opened.predict([text]))
    (item,) = opened.explain([text], methods="rollout")["explanations"]
    assert (entity["text"], item["answer"]) == (text, "I-X: word1")


@pytest.mark.parametrize(("labels", "name"), [(NUMBER, "number"), (RELEVANCE, "relevance")])
def test_a_number_is_explained_as_it_is_predicted(
    labels: tuple[str, ...], name: str, base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, predicts="number", labels=labels, seed=3)
    with torch.no_grad():
        # smaller than three decimals show, and of a relevance a logit that is no probability
        model.get_parameter("heads.classify.weight").mul_(1e-4)
        model.get_parameter("heads.classify.bias").fill_(1e-5 if name == "number" else -2)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    opened = bertsmith.load(tmp_path / "model", device="cpu", precision="fp32")
    row = {"text": "word1 word2"} | ({} if name == "number" else {"text_pair": "word3"})
    (answer,) = opened.predict([row])
    (item,) = opened.explain([row], methods="rollout")["explanations"]
    assert item["answer"].startswith(f"{name} ")
    shown = float(item["answer"].removeprefix(f"{name} "))
    assert shown == pytest.approx(answer[name], rel=1e-3)
    assert shown != 0


def test_a_label_that_is_not_predicted_is_withheld(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, _ = start_from(base_folder, predicts="classes", labels=("one", "two"), seed=3)
    for bias, withheld in ((-50.0, [True]), (50.0, [False, False])):
        with torch.no_grad():
            model.get_parameter("heads.classify.bias").fill_(bias)
        save_model(tmp_path / f"model{bias}", model, tiny_tokenizer)
        opened = bertsmith.load(tmp_path / f"model{bias}", device="cpu")
        (answer,) = opened.predict(["word1 word2"])
        items = opened.explain(["word1 word2"], methods="rollout")["explanations"]
        assert len(answer["labels"]) == withheld.count(False)
        assert [item["withheld"] for item in items] == withheld


def test_labels_of_windows_are_withheld_as_predict_withholds_them(
    base_folder: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """The first window is explained, and the mean of all of them is the answer."""
    texts = [" ".join(f"word{(first + n * n) % 29}" for n in range(15)) for first in range(12)]
    reading: dict[str, Any] = {"max_length": 8, "truncation": "windows"}
    model, _ = start_from(base_folder, predicts="classes", labels=("one", "two"), seed=3)
    save_model(tmp_path / "first", model, tiny_tokenizer)
    answers = bertsmith.load(tmp_path / "first", precision="fp32").predict(texts, **reading)
    shares = torch.tensor(
        [[row["probabilities"][name] for name in ("one", "two")] for row in answers]
    )
    with torch.no_grad():
        # of both labels half of the texts
        model.get_parameter("heads.classify.bias").sub_(shares.logit().median(0).values)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    opened = bertsmith.load(tmp_path / "model", device="cpu", precision="fp32")
    given = [row["labels"] for row in opened.predict(texts, **reading)]
    items = opened.explain(texts, methods="rollout", **reading)["explanations"]
    withheld = [item["answer"] not in given[item["text"]] for item in items]
    assert [item["withheld"] for item in items] == withheld
    # one that is withheld beside another that is given, and some that are given
    assert any(given[item["text"]] for item, hidden in zip(items, withheld, strict=True) if hidden)
    assert not all(withheld)
