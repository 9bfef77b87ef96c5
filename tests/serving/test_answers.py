"""Every family with every head answers over HTTP as the Python API does."""

from __future__ import annotations

import asyncio
import base64
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

pytest.importorskip("starlette")
pytest.importorskip("orjson")

from bertsmith import load
from bertsmith.engine.language_model.fill_mask import Fillings
from bertsmith.engine.language_model.words import Filling
from bertsmith.network.config import Conformal, ModelConfig, Preprocessing
from bertsmith.network.model import build_model
from bertsmith.network.pooling import Truncation
from bertsmith.serving.messages import Input
from bertsmith.serving.models.handlers import present_fillings
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from bertsmith.weights.sentence_folder import SentenceSettings, save_sentence_folder
from bounds import check, close_unit_vectors
from families import ENCODERS, LABELS, MODELS, TOKENIZERS
from serving_inline import serving

TEXT = "word1 word7  word30\tword2 word11"
SECOND = "word5 word8 word61"
RANKING = {
    f"{family}-rank": ModelConfig(
        encoder=encoder, predicts="number", labels=("relevance",), classifier_dropout=0.0
    )
    for family, encoder in ENCODERS.items()
}
CASES = {
    name: config
    for name, config in {**MODELS, **RANKING}.items()
    if not name.endswith(("replaced_tokens", "none"))
}


def saved(folder: Path, config: ModelConfig) -> Path:
    save_model(folder, build_model(config, seed=7), TOKENIZERS[config.encoder.family])
    return folder


def asked(config: ModelConfig) -> tuple[Any, Any]:
    """What is asked over HTTP, and in Python."""
    if config.predicts == "span":
        row = {"question": SECOND, "context": TEXT}
        return row, {"id": "1", **row}
    if config.predicts == "choice":
        question = {"text": TEXT, "choices": [SECOND, "word9"]}
        return question, question
    if config.labels == ("relevance",):
        return {"query": TEXT, "texts": [SECOND, "word4"]}, (TEXT, SECOND)
    if config.predicts is None:
        return "word1 [MASK]  word2 [MASK]", "word1 [MASK]  word2 [MASK]"
    return TEXT, TEXT


def written_short(score: float) -> bool:
    """Whether a number has as many figures as in the answers of `predict`."""
    return len(f"{score}".lstrip("-0.")) <= 8


def compared(config: ModelConfig, answer: dict[str, Any], record: dict[str, Any]) -> None:
    """Check an answer of the server against that of Python."""
    match config.predicts:
        case "class":
            shares = {score["label"]: score["score"] for score in answer["scores"]}
            assert answer["label"] == record["label"]
            assert list(shares) == list(record["probabilities"])
            check(list(shares.values()), list(record["probabilities"].values()), 2e-6)
        case "classes":
            assert answer["labels"] == record["labels"]
            shares = {score["label"]: score["score"] for score in answer["scores"]}
            assert shares == pytest.approx(record["probabilities"], abs=2e-6)
        case "number" if config.labels == ("relevance",):
            check(answer["scores"][0], record["relevance"], 2e-6)
            assert all(map(written_short, answer["scores"]))
        case "number":
            assert written_short(answer["value"])
            check(answer["value"], record["number"], 2e-6)
        case "tags":
            # these tags name no entities: each word has one
            found = [(item["text"], item["label"]) for item in answer["entities"]]
            assert found == [(word["word"], word["tag"]) for word in record["words"]]
            assert all(TEXT[item["start"] : item["end"]] == item["text"]
                       for item in answer["entities"])  # fmt: skip
        case "span":
            assert answer["answer"] == record["answer"]
            assert TEXT[answer["start"] : answer["end"]] == answer["answer"]
            check(answer["score"], record["probability"], 2e-6)
        case "choice":
            assert answer["choice"] == record["choice"]
            check(answer["scores"], record["probabilities"], 2e-6)
        case None:
            assert [(item["start"], item["end"]) for item in answer["masks"]] == [(6, 12), (20, 26)]
            for mine, other in zip(answer["masks"], record["masks"], strict=True):
                assert [item["token"] for item in mine["candidates"]] == [
                    item["piece"] for item in other
                ]
                check([item["score"] for item in mine["candidates"]],
                      [item["probability"] for item in other], 2e-6)  # fmt: skip


# every head of one family and every family with one head; all of them among the faults
_FEW = [name for name in CASES if name.startswith("bert-") or name.endswith("-class")]
_REST = [pytest.param(name, marks=pytest.mark.faults) for name in CASES if name not in _FEW]


@pytest.mark.parametrize("case", [*_FEW, *_REST])
def test_every_head_answers_as_in_python(case: str, tmp_path: Path) -> None:
    config = CASES[case]
    folder = saved(tmp_path / "it", config)
    request, example = asked(config)
    (record,) = load(folder, precision="fp32", threads=1, device="cpu").predict([example])

    async def run() -> None:
        async with serving(folder) as rig:
            response = await rig.post("/answer", {"inputs": [request, request]})
            assert response.status_code == 200, response.text
            for answer in response.json()["answers"]:
                compared(config, answer, record)

    asyncio.run(run())


@pytest.mark.parametrize(
    "case", ["bert-class", pytest.param("bert-choice", marks=pytest.mark.faults)]
)
def test_prediction_sets_are_those_of_python(case: str, tmp_path: Path) -> None:
    conformal = Conformal(examples=19, coverages=(0.5, 0.95), thresholds=(0.9, 0.0))
    calibrated = saved(tmp_path / "it", replace(CASES[case], conformal=conformal))
    plain = saved(tmp_path / "plain", CASES[case])
    ranks = saved(tmp_path / "ranks", RANKING["bert-rank"])
    request, example = asked(CASES[case])
    model = load(calibrated, precision="fp32", threads=1, device="cpu")
    assert model.model.config.conformal == conformal

    async def run() -> None:
        async with serving(calibrated, plain, ranks) as rig:
            for coverage in (0.5, 0.9):
                (record,) = model.predict([example], conformal=coverage)
                body = {"inputs": [request], "model": "it", "conformal": coverage}
                (answer,) = (await rig.post("/answer", body)).json()["answers"]
                compared(CASES[case], answer, record)
                assert answer["prediction_set"] == record["prediction_set"]
            assert len(record["prediction_set"]) == len(record["probabilities"])
            (answer,) = (await rig.post("/answer", body | {"conformal": None})).json()["answers"]
            assert "prediction_set" not in answer
            for refused, model_name, words in (
                (0.99, "it", "too few"),
                (0.9, "plain", "calibrated on dev"),
                (0.9, "ranks", "is for classes and choices"),
                (0.3, "it", "conformal"),
            ):
                other = request if model_name != "ranks" else asked(RANKING["bert-rank"])[0]
                body = {"inputs": [other], "model": model_name, "conformal": refused}
                response = await rig.post("/answer", body)
                assert response.status_code in (400, 422)
                assert words in response.text

    asyncio.run(run())


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_vectors_are_those_of_python(family: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", MODELS[f"{family}-masked_lm"])
    texts = [TEXT, SECOND, "word3", ""]
    expected = load(folder, precision="fp32", threads=1, device="cpu").embed(texts)
    units = load(folder, precision="fp32", threads=1, device="cpu").embed(texts, normalize=True)

    async def run() -> None:
        async with serving(folder) as rig:
            answers = (await rig.post("/answer", {"inputs": texts, "task": "vectors"})).json()
            check([item["vector"] for item in answers["answers"]], expected, 2e-6)
            plain = await rig.post("/embed", {"inputs": texts, "normalize": False})
            check(plain.json(), expected, 2e-6)
            close_unit_vectors((await rig.post("/embed", {"inputs": texts})).json(), units)
            one = await rig.post("/embed", {"inputs": TEXT})
            close_unit_vectors(one.json(), units[:1])
            for form in ("float", "base64", None):
                body = {"input": texts, "encoding_format": form, "model": "it"}
                found = (await rig.post("/v1/embeddings", body)).json()
                vectors = [item["embedding"] for item in found["data"]]
                if form == "base64":
                    vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
                close_unit_vectors(np.array(vectors), units)
            tokens = (await rig.post("/embed_all", {"inputs": [TEXT]})).json()
            assert np.array(tokens).shape == (1, 7, 32)
            asked = {"inputs": {"source_sentence": TEXT, "sentences": texts}}
            near = (await rig.post("/similarity", asked)).json()
            check(near, units @ units[0], 2e-6)
            assert max(near) <= 1
            pieces = (await rig.post("/tokenize", {"inputs": TEXT})).json()[0]
            assert [TEXT[piece["start"] : piece["stop"]] for piece in pieces[1:-1]] == TEXT.split()

    asyncio.run(run())


def test_vectors_are_as_wide_as_the_folder_says(tmp_path: Path) -> None:
    network = MODELS["bert-none"]
    settings = SentenceSettings(network=tmp_path, after=(Truncation(5),))
    tokenizer = TOKENIZERS[network.encoder.family]
    save_sentence_folder(tmp_path / "it", build_model(network, seed=7), tokenizer, settings)
    expected = load(tmp_path / "it", precision="fp32", threads=1, device="cpu").embed([TEXT])
    assert expected.shape == (1, 5)

    async def run() -> None:
        async with serving(tmp_path / "it") as rig:
            plain = await rig.post("/embed", {"inputs": [TEXT], "normalize": False})
            check(plain.json(), expected, 2e-6)
            body = {"input": TEXT, "dimensions": 5}
            (found,) = (await rig.post("/v1/embeddings", body)).json()["data"]
            close_unit_vectors(np.array([found["embedding"]]), expected / np.linalg.norm(expected))
            for wrong in (0, 6):
                for path, key, status in (
                    ("/v1/embeddings", "input", 400),
                    ("/embed", "inputs", 422),
                ):
                    refused = await rig.post(path, {key: TEXT, "dimensions": wrong})
                    assert refused.status_code == status
                    assert f"dimensions is {wrong}, and the vectors have 5" in refused.text

    asyncio.run(run())


def test_vectors_have_the_first_dimensions_that_a_request_wants(tmp_path: Path) -> None:
    saved(tmp_path / "it", replace(MODELS["bert-none"], pooler=False))
    texts = [TEXT, SECOND, "word3"]
    whole = load(tmp_path / "it", precision="fp32", threads=1, device="cpu").embed(texts)
    first = whole[:, :7]
    expected = first / np.linalg.norm(first, axis=1, keepdims=True)

    async def run() -> None:
        async with serving(tmp_path / "it") as rig:
            for form in ("float", "base64"):
                body = {"input": texts, "dimensions": 7, "encoding_format": form}
                items = (await rig.post("/v1/embeddings", body)).json()["data"]
                vectors = [item["embedding"] for item in items]
                if form == "base64":
                    vectors = [np.frombuffer(base64.b64decode(v), np.float32) for v in vectors]
                close_unit_vectors(np.array(vectors), expected)
            body = {"inputs": texts, "dimensions": 7}
            close_unit_vectors(np.array((await rig.post("/embed", body)).json()), expected)
            plain = (await rig.post("/embed", {**body, "normalize": False})).json()
            check(plain, first, 2e-6)
            refused = await rig.post("/embed_all", body)
            assert refused.status_code == 422

    asyncio.run(run())


def test_vectors_of_tokens_are_refused_where_there_are_none(tmp_path: Path) -> None:
    network = ModelConfig(encoder=ENCODERS["bert"], pooler=False)
    tokenizer = Tokenizer((*SPECIALS, "Word", "word"), BasicRules(lowercase=False))
    # texts are lower-cased by the folder, so that a token's place is not known
    settings = SentenceSettings(network=Path("."), lowercase=True)
    save_sentence_folder(tmp_path / "it", build_model(network, seed=7), tokenizer, settings)

    async def run() -> None:
        async with serving(tmp_path / "it") as rig:
            assert (await rig.post("/embed", {"inputs": "Word"})).status_code == 200
            response = await rig.post("/embed_all", {"inputs": "Word"})
            assert response.status_code == 422
            assert "no model answers with token-vectors" in response.json()["error"]

    asyncio.run(run())


def test_places_of_masks_are_unknown_where_both_texts_have_some() -> None:
    """Of truncated texts nobody knows which masks of the first were read."""
    answer = Fillings(masks=[[Filling("word1", 0.5)], [Filling("word2", 0.5)]])
    text = "[MASK] word1 [MASK]"
    for second, places in ((None, [(0, 6), (13, 19)]), ("[MASK]", [(None, None)] * 2)):
        asked = Input(text, second, truncate=True)
        masks = present_fillings(TOKENIZERS["bert"], answer, asked)["masks"]
        assert [(mask["start"], mask["end"]) for mask in masks] == places


def test_masks_are_filled_whatever_the_vocabulary_calls_them(tmp_path: Path) -> None:
    tokenizer = learn_byte_bpe(["the smith heats the iron"] * 9, size=280)
    assert tokenizer.vocabulary[tokenizer.mask_id] == "<mask>"
    config = MODELS["roberta-masked_lm"]
    encoder = replace(config.encoder, vocabulary=tokenizer.size, longest=40)
    save_model(tmp_path / "it", build_model(replace(config, encoder=encoder), seed=7), tokenizer)
    model = load(tmp_path / "it", precision="fp32", threads=1, device="cpu")
    single, pair = model.predict(["<mask> heats <mask>", ("the smith", "heats <mask> iron")], top=3)
    asked: list[tuple[Any, dict[str, Any], list[tuple[int | None, int | None]]]] = [
        ("[MASK] heats [MASK]", single, [(0, 6), (13, 19)]),
        ("[MASK] heats <mask>", single, [(0, 6), (13, 19)]),
        ({"text": "the smith", "text_pair": "heats [MASK] iron"}, pair, [(None, None)]),
    ]

    async def run() -> None:
        async with serving(tmp_path / "it") as rig:
            for given, record, places in asked:
                response = await rig.post("/answer", {"inputs": [given], "top": 3})
                assert response.status_code == 200, response.text
                (answer,) = response.json()["answers"]
                assert [(mask["start"], mask["end"]) for mask in answer["masks"]] == places
                assert [
                    [item["token"] for item in mask["candidates"]] for mask in answer["masks"]
                ] == [[item["piece"] for item in mask] for mask in record["masks"]]

    asyncio.run(run())


def test_a_candidate_that_continues_a_word_is_shown_without_its_mark() -> None:
    answer = Fillings(masks=[[Filling("##ing", 0.5), Filling("#", 0.25)]])
    (mask,) = present_fillings(TOKENIZERS["bert"], answer, Input("heat[MASK]"))["masks"]
    assert [(item["token"], item["text"]) for item in mask["candidates"]] == [
        ("##ing", "ing"), ("#", "#"),
    ]  # fmt: skip


def test_as_many_classes_are_answered_as_are_asked_for(tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", MODELS["bert-class"])
    (record,) = load(folder, precision="fp32", threads=1, device="cpu").predict([TEXT])
    likeliest = sorted(record["probabilities"], key=record["probabilities"].__getitem__)[::-1]

    async def run() -> None:
        async with serving(folder) as rig:
            for top, count in ((1, 1), (2, 2), (9, len(LABELS))):
                response = await rig.post("/answer", {"inputs": [TEXT], "top": top})
                (answer,) = response.json()["answers"]
                assert [item["label"] for item in answer["scores"]] == likeliest[:count]

    asyncio.run(run())


def test_inputs_that_a_model_was_not_made_for_are_refused(tmp_path: Path) -> None:
    choices, follows = MODELS["bert-choice"], MODELS["bert-pretraining"]
    folders = [saved(tmp_path / "choices", choices), saved(tmp_path / "follows", follows)]
    folders.append(saved(tmp_path / "questions", MODELS["bert-span"]))
    for name, pairs in (("pairs", True), ("singles", False)):
        read = Preprocessing(longest=20, pairs=pairs)
        folders.append(saved(tmp_path / name, replace(MODELS["bert-class"], preprocessing=read)))
    pair = {"text": TEXT, "text_pair": SECOND}
    wrong: list[tuple[str, str, Any, str]] = [
        ("choices", "choices", {"text": TEXT, "choices": [SECOND]}, "fewer than two choices"),
        ("choices", "choices", {"text": TEXT, "choices": [SECOND, " "]}, "a text is blank"),
        ("choices", "choices", {"text": "\t", "choices": [SECOND, "word9"]}, "a text is blank"),
        ("questions", "spans", {"question": " ", "context": TEXT}, "a text is blank"),
        ("questions", "spans", {"question": TEXT, "context": "\t"}, "a text is blank"),
        ("follows", "next-sentence", TEXT, "the input is a single text"),
        ("follows", "next-sentence", pair | {"text_pair": " "}, "a text is blank"),
        ("pairs", "classes", TEXT, "the model was trained on pairs"),
        ("singles", "classes", pair, "the model was trained on single texts"),
        ("singles", "classes", " ", "a text is blank"),
    ]

    async def run() -> None:
        async with serving(*folders) as rig:
            for model, task, given, said in wrong:
                body = {"model": model, "task": task, "inputs": [given]}
                response = await rig.post("/answer", body)
                assert response.status_code == 400, (given, response.text)
                assert said in response.json()["error"]["message"]
            for model, given in (("pairs", pair), ("singles", TEXT)):
                response = await rig.post("/answer", {"model": model, "inputs": [given]})
                assert response.status_code == 200

    asyncio.run(run())


def test_a_word_that_is_not_read_has_no_tag(tmp_path: Path) -> None:
    folder, text = saved(tmp_path / "it", MODELS["bert-tags"]), "word1 \u200b word9"

    async def run() -> None:
        async with serving(folder) as rig:
            (answer,) = (await rig.post("/answer", {"inputs": [text]})).json()["answers"]
            assert [item["text"] for item in answer["entities"]] == ["word1", "word9"]
            assert all(item["label"] in LABELS for item in answer["entities"])

    asyncio.run(run())


def test_a_question_without_an_answer_has_none(tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", replace(MODELS["bert-span"], no_answer=-1e6))
    asked = {"question": SECOND, "context": TEXT}
    (record,) = load(folder, precision="fp32", threads=1, device="cpu").predict([asked])
    assert not record["answer"]

    async def run() -> None:
        async with serving(folder) as rig:
            (answer,) = (await rig.post("/answer", {"inputs": [asked]})).json()["answers"]
            nothing = dict.fromkeys(("answer", "start", "end", "score"))
            assert answer == {**nothing, "truncated": False}

    asyncio.run(run())


def test_next_sentence_is_that_of_python(tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", MODELS["bert-pretraining"])
    (record,) = load(folder, precision="fp32", threads=1, device="cpu").predict([(TEXT, SECOND)])

    async def run() -> None:
        async with serving(folder) as rig:
            info = (await rig.client.get("/info")).json()["models"][0]
            assert info["can"] == ["fill-mask", "next-sentence", "vectors"]
            pair = {"text": TEXT, "text_pair": SECOND}
            found = await rig.post("/answer", {"inputs": [pair], "task": "next-sentence"})
            check(found.json()["answers"][0]["score"], record["probability"], 2e-6)

    asyncio.run(run())


def test_predict_and_rerank_have_the_shapes_of_text_embeddings_inference(tmp_path: Path) -> None:
    classes = saved(tmp_path / "classes", MODELS["bert-class"])
    ranks = saved(tmp_path / "ranks", RANKING["bert-rank"])

    async def run() -> None:
        async with serving(classes, ranks) as rig:
            one = (await rig.post("/predict", {"inputs": TEXT})).json()
            assert {item["label"] for item in one} == set(LABELS)
            assert [item["score"] for item in one] == sorted(
                (item["score"] for item in one), reverse=True
            )
            several = (await rig.post("/predict", {"inputs": [[TEXT], [TEXT, SECOND]]})).json()
            assert several[0] == one
            pair = (await rig.post("/predict", {"inputs": [TEXT, SECOND]})).json()
            assert several[1] == pair != one
            body: dict[str, Any] = {
                "query": TEXT,
                "texts": [SECOND, "word9", TEXT],
                "return_text": True,
            }
            ranked = (await rig.post("/rerank", body)).json()
            scores = [item["score"] for item in ranked]
            assert scores == sorted(scores, reverse=True)
            assert all(map(written_short, scores))
            assert all(body["texts"][item["index"]] == item["text"] for item in ranked)
            plain = (await rig.post("/rerank", body | {"return_text": False})).json()
            assert plain == [{k: item[k] for k in ("index", "score")} for item in ranked]
            raw = (await rig.post("/rerank", body | {"raw_scores": True})).json()
            logits = np.array([item["score"] for item in raw])
            check(1 / (1 + np.exp(-logits)), scores, 2e-6)

    asyncio.run(run())


def test_documents_are_ranked_in_the_shape_of_cohere_and_jina(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ranks", RANKING["bert-rank"])
    documents: list[Any] = [SECOND, {"text": "word9", "title": "not read"}, TEXT]
    texts = [SECOND, "word9", TEXT]
    records = load(folder, precision="fp32", threads=1, device="cpu").predict(
        [(TEXT, text) for text in texts]
    )
    relevance = [record["relevance"] for record in records]
    order = sorted(range(3), key=lambda index: -relevance[index])

    async def run() -> None:
        async with serving(folder) as rig:
            body = {"model": "ranks", "query": TEXT, "documents": documents}
            found = (await rig.post("/v1/rerank", body)).json()
            assert found.keys() == {"model", "results", "usage"}
            assert [item["index"] for item in found["results"]] == order
            assert all(item.keys() == {"index", "relevance_score"} for item in found["results"])
            scores = [item["relevance_score"] for item in found["results"]]
            check(scores, [relevance[index] for index in order], 2e-6)
            assert all(map(written_short, scores))
            # of each document the query too, and three special tokens
            tokens = sum(5 + len(text.split()) + 3 for text in texts)
            assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
            best = await rig.post("/v1/rerank", body | {"top_n": 2, "return_documents": True})
            assert best.json()["results"] == [
                {**item, "document": {"text": texts[item["index"]]}}
                for item in found["results"][:2]
            ]
            many = await rig.post("/v1/rerank", body | {"top_n": 9})
            assert many.json() == found

    asyncio.run(run())


@pytest.mark.parametrize("head", ["class", "classes", "number"])
def test_raw_scores_are_the_logits_of_transformers(head: str, tmp_path: Path) -> None:
    config = MODELS[f"bert-{head}"]
    folder = saved(tmp_path / "it", config)
    tokenizer = TOKENIZERS["bert"]
    ids = torch.tensor([[*tokenizer.begin, *tokenizer.encode([TEXT])[0].tolist(), *tokenizer.end]])
    theirs = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        (expected,) = theirs(ids).logits.tolist()

    async def run() -> None:
        async with serving(folder) as rig:
            asked = {"inputs": TEXT, "raw_scores": True}
            found = (await rig.post("/predict", asked)).json()
            scores = [result["score"] for result in found]
            assert scores == sorted(scores, reverse=True)
            by_label = {result["label"]: result["score"] for result in found}
            logits = dict(zip(config.labels, expected, strict=True))
            assert by_label == pytest.approx(logits, abs=1e-5)
            # a list of one text is that text there
            assert (await rig.post("/predict", asked | {"inputs": [TEXT]})).json() == found
            (row,) = (await rig.post("/predict", asked | {"inputs": [[TEXT]]})).json()
            assert row == found
            shares = (await rig.post("/predict", {"inputs": TEXT})).json()
            assert [share["label"] for share in shares] == list(by_label)
            sigmoid = [1 / (1 + math.exp(-score)) for score in scores]
            softmax = np.exp(scores) / np.exp(scores).sum()
            known = {"class": softmax, "classes": sigmoid, "number": scores}
            check([share["score"] for share in shares], list(known[head]), 2e-6)

    asyncio.run(run())


def test_several_models_are_asked_by_name(tmp_path: Path) -> None:
    folders = [saved(tmp_path / name, MODELS[f"bert-{name}"]) for name in ("class", "tags")]

    async def run() -> None:
        async with serving(*folders) as rig:
            first = (await rig.post("/answer", {"inputs": [TEXT]})).json()
            named = (await rig.post("/answer", {"inputs": [TEXT], "model": "tags"})).json()
            by_task = (await rig.post("/answer", {"inputs": [TEXT], "task": "tags"})).json()
            assert (first["model"], named["model"], by_task["model"]) == ("class", "tags", "tags")
            assert named["answers"] == by_task["answers"]
            missing = await rig.post("/answer", {"inputs": [TEXT], "model": "/etc/\x1b[1m"})
            assert missing.status_code == 404
            # escaped once
            assert r"no model '/etc/\x1b[1m'" in missing.json()["error"]["message"]
            unable = await rig.post("/answer", {"inputs": [TEXT], "task": "spans"})
            assert unable.status_code == 400

    asyncio.run(run())


# too long: alike everywhere

LONG = " ".join(["word1"] * 40)


TOO_LONG: dict[str, tuple[dict[str, Any], int]] = {
    "/answer": ({"inputs": ["word2", LONG]}, 400),
    "/v1/embeddings": ({"input": ["word2", LONG], "model": "vectors"}, 400),
    "/embed": ({"inputs": ["word2", LONG]}, 422),
    "/embed_all": ({"inputs": ["word2", LONG]}, 422),
    "/predict": ({"inputs": [["word2"], [LONG]]}, 422),
    "/rerank": ({"query": "word2", "texts": ["word2", LONG]}, 422),
    "/v1/rerank": ({"query": "word2", "documents": ["word2", LONG]}, 400),
}


def test_what_is_too_long_is_refused_or_truncated_and_marked(tmp_path: Path) -> None:
    parts = {"classes": MODELS["bert-class"], "vectors": MODELS["bert-masked_lm"]}
    folders = [saved(tmp_path / name, config) for name, config in parts.items()]
    folders.append(saved(tmp_path / "ranks", RANKING["bert-rank"]))

    async def run() -> None:
        async with serving(*folders) as rig:
            for path, (body, status) in TOO_LONG.items():
                refused = await rig.post(path, body)
                assert refused.status_code == status, refused.text
                tokens = 44 if path.endswith("/rerank") else 42
                told = f"input 1: the input has {tokens} tokens, and the model reads 23; "
                assert told in refused.text
                assert "truncate" in refused.text
                cut = await rig.post(path, body | {"truncate": True})
                assert cut.status_code == 200, cut.text
                assert cut.headers["x-truncated"] == "1"
                if path == "/answer":
                    marks = [item["truncated"] for item in cut.json()["answers"]]
                    assert marks == [False, True]
            body = {"inputs": {"source_sentence": "word2", "sentences": [LONG]}}
            assert (await rig.post("/similarity", body)).status_code == 422
            cut = await rig.post("/similarity", body | {"parameters": {"truncate": True}})
            assert (cut.status_code, cut.headers["x-truncated"]) == (200, "1")

    asyncio.run(run())


def test_texts_of_rankings_are_named_by_the_number_of_their_input(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ranks", RANKING["bert-rank"])
    short = {"query": "word1", "texts": ["word2", "word3", "word4"]}
    asked: dict[str, Any] = {"inputs": [short, {"query": "word1", "texts": ["word2", LONG]}, short]}

    async def run() -> None:
        async with serving(folder, max_characters=1000) as rig:
            refused = await rig.post("/answer", asked)
            assert refused.status_code == 400
            assert "input 1: the input has 44 tokens" in refused.json()["error"]["message"]
            cut = await rig.post("/answer", asked | {"truncate": True})
            assert [item["truncated"] for item in cut.json()["answers"]] == [False, True, False]
            assert cut.headers["x-truncated"] == "1"
            longer = {"query": "word1", "texts": ["word2", LONG * 5]}
            refused = await rig.post("/answer", {"inputs": [short, longer]})
            assert "input 1 has 1,195 characters" in refused.json()["error"]["message"]

    asyncio.run(run())


def test_a_text_whose_mask_is_not_read_is_too_long_and_not_without_one(tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", MODELS["bert-masked_lm"])
    asked = {"inputs": [f"{LONG} [MASK]"], "task": "fill-mask"}

    async def run() -> None:
        async with serving(folder) as rig:
            refused = await rig.post("/answer", asked)
            assert refused.status_code == 400
            error = refused.json()["error"]
            assert error["code"] == "context_length_exceeded"
            long = "the input has 43 tokens, and the model reads 23; "
            # "truncate" would be no remedy
            unread = "no [MASK] in what is read of the text; shorten what stands before it"
            assert error["message"] == long + unread
            read = await rig.post("/answer", asked | {"inputs": [f"[MASK] {LONG}"]})
            remedy = '"truncate": true reads its beginning'
            assert read.json()["error"]["message"] == long + remedy
            cut = await rig.post("/answer", asked | {"truncate": True})
            assert cut.status_code == 400
            assert "no [MASK] in what is read of the text" in cut.json()["error"]["message"]
            none = await rig.post("/answer", asked | {"inputs": ["word1"]})
            assert "no [MASK] in the text" in none.json()["error"]["message"]

    asyncio.run(run())


def test_a_choice_with_a_second_text_is_refused_and_not_ignored(tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", MODELS["bert-choice"])
    asked = {"text": TEXT, "text_pair": SECOND, "choices": ["word2", "word3"]}

    async def run() -> None:
        async with serving(folder) as rig:
            refused = await rig.post("/answer", {"inputs": [asked]})
            assert refused.status_code == 400
            message = refused.json()["error"]["message"]
            assert message == (
                'input 0 is not of the form {"text": ..., "choices": [...]}, or '
                '{"question": ..., "context": ..., "choices": [...]}'
            )

    asyncio.run(run())


def test_a_question_with_choices_is_read_behind_its_context_as_in_python(tmp_path: Path) -> None:
    """Of a long context with its question the context is truncated; COPA's questions are words."""
    config = MODELS["bert-choice"]
    folder = saved(
        tmp_path / "it", replace(config, encoder=replace(config.encoder, initial_std=0.5))
    )
    choices = ["word2", "word3 word9"]
    rows = [
        {"context": context, "question": question, "choices": choices}
        for context in (f" {TEXT}", LONG)
        for question in (SECOND, "word7\tword5", "cause")
    ]
    records = load(folder, precision="fp32", threads=1, device="cpu").predict(rows)
    assert len({tuple(record["probabilities"]) for record in records}) == len(rows)

    async def run() -> None:
        async with serving(folder) as rig:
            refused = await rig.post("/answer", {"inputs": rows})
            assert "input 3: the input has 48 tokens, and the model reads 23" in refused.text
            found = (await rig.post("/answer", {"inputs": rows, "truncate": True})).json()
            for answer, record in zip(found["answers"], records, strict=True):
                compared(config, answer, record)
            marks = [answer["truncated"] for answer in found["answers"]]
            assert marks == [False] * 3 + [True] * 3
            for wrong in ({"context": " "}, {"question": "\n"}):
                refused = await rig.post("/answer", {"inputs": [rows[0] | wrong]})
                assert "a text is blank" in refused.text

    asyncio.run(run())


def test_tokens_have_the_form_of_text_embeddings_inference(tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", MODELS["bert-none"])
    text = "word1 WORD2  Unknown, [SEP] ü"

    async def run() -> None:
        async with serving(folder) as rig:
            (tokens,) = (await rig.post("/tokenize", {"inputs": text})).json()
            around = [(token["text"], token["start"], token["stop"]) for token in tokens[::7]]
            assert around == [("[CLS]", None, None), ("[SEP]", None, None)]
            assert [token["special"] for token in tokens] == [True, *6 * [False], True]
            # what stands in the text, not the pieces of the vocabulary
            inside = tokens[1:-1]
            assert [token["text"] for token in inside] == [
                "word1", "WORD2", "Unknown", ",", "[SEP]", "ü",
            ]  # fmt: skip
            assert all(text[token["start"] : token["stop"]] == token["text"] for token in inside)
            asked = {"inputs": text, "add_special_tokens": False}
            assert (await rig.post("/tokenize", asked)).json() == [inside]

    asyncio.run(run())


def test_a_question_that_is_too_long_is_told_what_would_be_read(tmp_path: Path) -> None:
    folder = saved(tmp_path / "it", MODELS["bert-span"])
    asked = {"question": LONG, "context": "word3"}

    async def run() -> None:
        async with serving(folder) as rig:
            refused = await rig.post("/answer", {"inputs": [asked]})
            assert refused.status_code == 400
            said = "the question has 40 tokens, of which the first 12 are read"
            assert said in refused.json()["error"]["message"]
            cut = await rig.post("/answer", {"inputs": [asked], "truncate": True})
            assert cut.json()["answers"][0]["truncated"]

    asyncio.run(run())


IN_WINDOWS: list[tuple[str, Any]] = [
    ("tags", LONG),
    ("span", {"question": "word3", "context": LONG}),
    ("class", {"text": "word3 word4", "text_pair": LONG}),
    ("class", {"text": LONG, "text_pair": "word3 word4"}),
]


@pytest.mark.parametrize(("head", "asked"), IN_WINDOWS)
def test_texts_are_read_in_windows_up_to_a_limit(head: str, asked: Any, tmp_path: Path) -> None:  # noqa: ANN401
    config = MODELS[f"bert-{head}"]
    if head == "class":
        read = Preprocessing(longest=23, pairs=True, long="windows")
        config = replace(config, preprocessing=read)
    folder = saved(tmp_path / "it", config)

    async def run() -> None:
        async with serving(folder) as rig:
            whole = await rig.post("/answer", {"inputs": [asked]})
            assert whole.status_code == 200
            assert whole.json()["tokens"] > 42
        async with serving(folder, max_tokens=40) as rig:
            refused = await rig.post("/answer", {"inputs": [asked]})
            assert refused.status_code == 400
            assert "the model reads 40" in refused.text
            cut = await rig.post("/answer", {"inputs": [asked], "truncate": True})
            assert cut.json()["answers"][0]["truncated"]
            assert 8 < cut.json()["tokens"] <= 40

    asyncio.run(run())
