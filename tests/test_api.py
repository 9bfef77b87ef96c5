"""The Python API: its names, and answers equal to those of the command and of transformers."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
import transformers

import bertsmith
from bertsmith.core.errors import ConfigError, ExampleError, ModelFolderError, StoreError
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts
from bertsmith.network.model import build_model
from bertsmith.network.pooling import UnitLength
from bertsmith.network.torch_state import usual_torch_state
from bertsmith.recipes.distil.trainings import DistilOutcome
from bertsmith.recipes.predict.config import PredictConfig
from bertsmith.recipes.predict.recipe import predict
from bertsmith.tasks.answering import answering_of
from bertsmith.tasks.rank import RELEVANCE
from bertsmith.tasks.regression import NUMBER
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import load_model, read_config, save_model, start_from
from bertsmith.weights.sentence_folder import SentenceSettings, write_sentence_files
from bounds import close_unit_vectors

WORDS = tuple(f"word{n}" for n in range(30))
TOKENIZER = Tokenizer((*SPECIALS, *WORDS), BasicRules(lowercase=True))
SIZE: dict[str, Any] = {
    "vocabulary": 35,
    "hidden": 24,
    "layers": 2,
    "heads": 3,
    "feed_forward": 48,
    "longest": 40,
}
TEXTS = ["word1 word2  word3", "Word4", "", "word5 unknown word6 " * 30]
PAIRS = [("word1", "word2 word3"), ("word4 word5", "word6"), ("word7", "word8 " * 50)]
MASKED = ["word1 [MASK] word2", "[MASK] word3 [MASK]"]
QUESTIONS = [
    {"id": "a", "question": "word1 word2", "context": "word3 word4, word5 " * 20},
    {"id": "b", "question": "word6", "context": "word7  word8"},
]
CHOICES = [
    {"text": "word1 word2", "choices": ["word3", "word4 word5"]},
    {"text": "word6", "choices": ["word7", "word8", "word9"]},
]
TOKENS = [{"tokens": ["word1", "word2", "word3"]}, {"tokens": ["word4", "no"]}]
HEADS: dict[str, tuple[Predicts, tuple[str, ...]]] = {
    "class": ("class", ("ham", "spam", "news")),
    "classes": ("classes", ("a", "b", "c")),
    "number": ("number", NUMBER),
    "rank": ("number", RELEVANCE),
    "tags": ("tags", ("O", "B-PER", "I-PER")),
    "words": ("tags", ("NOUN", "VERB")),
    "span": ("span", ()),
    "choice": ("choice", ()),
}
ASKED: dict[str, list[Any]] = {
    "class": TEXTS, "classes": TEXTS, "number": PAIRS, "rank": PAIRS, "tags": TEXTS,
    "words": TOKENS, "span": QUESTIONS, "choice": CHOICES, "pretrained": MASKED,
    "next": PAIRS, "causal": TEXTS[:3],
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each head."""
    place = tmp_path_factory.mktemp("folders")
    encoder = EncoderConfig(**SIZE, dropout=0.0, attention_dropout=0.0, initial_std=0.3)
    both = build_model(ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True), seed=2)
    save_model(place / "pretrained", both, TOKENIZER)
    one_way = EncoderConfig(**{**encoder.to_dict(), "causal": True})
    causal = build_model(ModelConfig(encoder=one_way, pooler=False, masked_lm=True), seed=3)
    save_model(place / "causal", causal, TOKENIZER)
    for name, (predicts, labels) in HEADS.items():
        model, _ = start_from(place / "pretrained", predicts=predicts, labels=labels, seed=4)
        with torch.no_grad():
            for parameter in model.heads.parameters():
                parameter.mul_(10)
        save_model(place / name, model, TOKENIZER)
    return {"next": place / "pretrained"} | {path.name: path for path in place.iterdir()}


@pytest.mark.parametrize("name", ASKED)
def test_answers_are_those_of_the_command(
    name: str, folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ASKED[name]
    file = tmp_path / ("asked.jsonl" if isinstance(asked[0], dict) else "asked.txt")
    if isinstance(asked[0], dict):
        lines = [json.dumps(request) for request in asked]
    else:
        lines = ["\t".join([request] if isinstance(request, str) else request) for request in asked]
    if name in ("number", "rank"):
        # a folder that was not fine-tuned knows nothing of pairs
        file = tmp_path / "asked.jsonl"
        lines = [json.dumps({"text": text, "text_pair": pair}) for text, pair in asked]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    predict(PredictConfig(model=folders[name], file=str(file), format="jsonl"))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = bertsmith.load(str(folders[name])).predict(asked)
    assert len(found) == len(rows) == len(asked)
    for answer, row in zip(found, rows, strict=True):
        assert answer
        assert answer == {key: row[key] for key in answer}
        assert set(row) - set(answer) <= {"text", "text_pair", "question", "context", "id",
                                          "choices", "tokens"}  # fmt: skip
        assert json.loads(json.dumps(answer)) == answer


@pytest.mark.parametrize("name", ["class", "classes", "pretrained", "causal", "words"])
def test_a_blank_text_alone_has_the_keys_of_an_answer(name: str, folders: dict[str, Path]) -> None:
    """A program that asks for one text at a time looked a label up in nothing."""
    asked = [{"text": ""}] if name == "words" else [""]
    whole = "word1 [MASK]" if name == "pretrained" else "word1"
    answered = [{"tokens": ["word1"]}] if name == "words" else [whole]
    model = bertsmith.load(folders[name])
    (found,) = model.predict(asked)
    assert list(found) == list(model.predict(answered)[0])
    assert set(found.values()) == {None}


def test_classes_are_those_of_a_pipeline_of_transformers(folders: dict[str, Path]) -> None:
    texts = [text for text in TEXTS[:2] if text]
    theirs = transformers.pipeline("text-classification", str(folders["class"]), top_k=None)
    found = bertsmith.load(folders["class"], precision="fp32").predict(texts)
    for answer, expected in zip(found, theirs(texts), strict=True):
        shares = {item["label"]: item["score"] for item in expected}
        assert answer["label"] == expected[0]["label"]
        assert answer["probabilities"] == pytest.approx(shares, abs=1e-5)


def test_masks_are_filled_as_by_a_pipeline_of_transformers(folders: dict[str, Path]) -> None:
    theirs = transformers.pipeline("fill-mask", str(folders["pretrained"]), top_k=4)
    found = bertsmith.load(folders["pretrained"], precision="fp32").fill_mask(
        "word1 [MASK] word2", top=4
    )
    assert len(found) == 1
    expected = theirs("word1 [MASK] word2")
    assert [item["piece"] for item in found[0]] == [item["token_str"] for item in expected]
    scores = [item["score"] for item in expected]
    assert [item["probability"] for item in found[0]] == pytest.approx(scores, abs=1e-5)


def test_masks_are_filled_by_choices_and_together(folders: dict[str, Path]) -> None:
    model = bertsmith.load(folders["pretrained"], precision="fp32")
    masks = model.fill_mask("[MASK] word2", choices=["word3", "word4 word5"])
    pieces = {item["word"]: item["pieces"] for item in masks[0]}
    assert pieces == {"word3": 1, "word4 word5": 2}
    joint = model.fill_mask("[MASK] word2 [MASK]", joint=True)
    assert [set(item) for item in joint] == [{"piece", "probability"}] * 2
    (found,) = model.predict(["[MASK] word2 [MASK]"], joint=True)
    assert found["joint"]["fillings"] == joint
    assert sorted(found["joint"]["order"]) == [1, 2]
    with pytest.raises(ConfigError, match="most_pieces is 9; it must be in"):
        model.fill_mask("[MASK]", most_pieces=9)
    with pytest.raises(ConfigError, match="are for a model that fills masks"):
        bertsmith.load(folders["class"]).predict(["word1"], choices=["word2"])


FORKED = """
import os, signal, sys
import torch
torch.set_num_threads(2)
import bertsmith
model, texts = bertsmith.load(sys.argv[1]), ["word1 word2 word3 word4"] * 40
asked = model.predict(texts), model.embed(texts).tolist()
child = os.fork()
if not child:
    signal.alarm(50)
    os._exit(0 if (model.predict(texts), model.embed(texts).tolist()) == asked else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.get_num_threads(), model.engine)
"""


@pytest.mark.parametrize("kernels", ["avx512-bf16", "none"])
def test_a_model_answers_in_a_process_that_was_forked(
    kernels: str, folders: dict[str, Path]
) -> None:
    """As servers fork that load before they do; torch waited for threads that were not there."""
    command = [sys.executable, "-c", FORKED, str(folders["class"])]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "BERTSMITH_KERNELS": kernels},
    )  # fmt: skip
    assert ended.stdout.startswith("0 2 ")
    assert ended.stdout.endswith(" 2 threads\n")


@contextmanager
def default_type(kind: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


STATES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float64": lambda: default_type(torch.float64),
    "meta": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
}


@pytest.mark.parametrize("name", STATES)
def test_answers_do_not_depend_on_the_state_of_torch(name: str, folders: dict[str, Path]) -> None:
    """Vectors were those of other memory, which was written beyond its end, or errors came up."""

    def answers() -> list[Any]:
        model = bertsmith.load(folders["class"], precision="fp32")
        other = bertsmith.load(folders["pretrained"], precision="fp32")
        shares = model.explain(TEXTS[:2])["explanations"]
        return [
            model.embed(TEXTS[:2]).tolist(), model.predict(TEXTS), other.fill_mask(MASKED[0]),
            other.score(TEXTS[:1]), other.write("word1", length=3), shares,
        ]  # fmt: skip

    expected = answers()
    with STATES[name]():
        before = torch.get_default_dtype(), torch.get_default_device()
        assert answers() == expected
        assert (torch.get_default_dtype(), torch.get_default_device()) == before


def test_training_leaves_the_random_numbers_of_torch_alone(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that drew after it drew the same numbers at every call, whatever its seed."""

    def drawing(loss: torch.Tensor, *inputs: Any, **options: Any) -> None:  # noqa: ANN401
        drawn.append(torch.rand(1))
        backward(loss, *inputs, **options)

    drawn: list[torch.Tensor] = []
    backward: Any = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", drawing)
    labelled = tmp_path / "a.csv"
    rows = (f"word{n % 20} text,{'ab'[n % 2]}\n" for n in range(40))
    labelled.write_text("text,label\n" + "".join(rows), encoding="utf-8")
    torch.manual_seed(8)
    expected = torch.rand(5)
    torch.manual_seed(8)
    bertsmith.finetune(folders["class"], labelled, out=tmp_path / "task", epochs=1, seeds=1)
    assert drawn
    assert torch.equal(torch.rand(5), expected)


def test_a_default_type_is_restored_when_the_last_thread_has_its_answer() -> None:
    with default_type(torch.float64), ExitStack() as first:
        first.enter_context(usual_torch_state())
        with usual_torch_state():
            first.close()
            assert torch.get_default_dtype() == torch.float32
        assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize("hand_over", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_model_that_cannot_be_handed_over_says_what_can(
    hand_over: Callable[[object], object], folders: dict[str, Path]
) -> None:
    """It was a TypeError of an object in it."""
    model = bertsmith.load(folders["class"])
    with pytest.raises(ConfigError, match=r"pickled; hand over the name of its folder"):
        hand_over(model)


def test_functions_are_handed_to_other_processes() -> None:
    """As by `pool.submit(bertsmith.finetune, ...)`; pickle did not find them."""
    for name in bertsmith.__all__:
        public = getattr(bertsmith, name)
        assert pickle.loads(pickle.dumps(public)) == public


def test_no_choices_are_not_all_words(folders: dict[str, Path]) -> None:
    model = bertsmith.load(folders["pretrained"])
    with pytest.raises(ConfigError, match="choices is empty; give words, or leave it out"):
        model.fill_mask("[MASK] word2", choices=[])
    with pytest.raises(ConfigError, match="choices is empty"):
        model.predict(["[MASK] word2"], choices=())


def test_a_model_asked_in_many_ways_keeps_few_of_them(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[weakref.ref[object]] = []

    def opening(*values: object, **named: object) -> object:
        found = answering_of(*values, **named)  # type: ignore[arg-type]
        opened.append(weakref.ref(found))
        return found

    monkeypatch.setattr("bertsmith.recipes.loaded.answering_of", opening)
    model = bertsmith.load(folders["class"])
    for number in range(60):
        model.predict([], min_confidence=number / 100)
    gc.collect()
    assert len(opened) == 60
    assert sum(item() is not None for item in opened) < 40
    # the latest are kept
    model.predict([], min_confidence=0.59)
    assert len(opened) == 60


def test_vectors_are_means_over_the_tokens_of_transformers(folders: dict[str, Path]) -> None:
    theirs = transformers.AutoModel.from_pretrained(folders["pretrained"]).eval()
    model = bertsmith.load(folders["pretrained"], precision="fp32")
    found = model.embed(["word1 word2", ("word3", "word4 word5")])
    assert found.shape == (2, 24)
    assert found.dtype == np.float32
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["pretrained"])
    for vector, texts in zip(found, [("word1 word2",), ("word3", "word4 word5")], strict=True):
        with torch.no_grad():
            expected = theirs(**tokenizer(*texts, return_tensors="pt")).last_hidden_state[0].mean(0)
        close_unit_vectors(
            vector / np.linalg.norm(vector), expected / torch.linalg.vector_norm(expected)
        )
    assert model.embed([]).shape == (0, 24)
    lengths = np.linalg.norm(model.embed(TEXTS, normalize=True), axis=1)
    assert lengths == pytest.approx([1] * len(TEXTS), abs=1e-5)


def test_vectors_and_answers_have_the_precision_of_the_model(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders["number"].parent)
    model, half = (bertsmith.load("number", precision=item) for item in ("fp32", "bf16"))
    # a relative name is that of the folder in which the model was opened
    monkeypatch.chdir(tmp_path)
    texts = ["word1 word2", "word3"]
    for ask in (
        lambda one: one.embed(texts, normalize=True),
        lambda one: [answer["number"] for answer in one.predict(texts)],
    ):
        exact, rounded = np.array(ask(model)), np.array(ask(half))
        assert 1e-6 < np.abs(exact - rounded).max() < 0.1 * np.abs(exact).max()
    pair = model.embed([("word1", " "), ("word1", "word2")])
    assert not np.array_equal(pair[0], pair[1])


def test_a_model_gives_the_vectors_of_the_folder_that_it_was_opened_from(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Where the folder was gone, vectors were means, neither mapped nor of length 1, in silence."""
    folder = shutil.copytree(folders["pretrained"], tmp_path / "folder")
    settings = SentenceSettings(
        network=folder, pool=("cls",), after=(UnitLength(),), longest=9,
        prompts={"query": "word7 word8 "}, default_prompt="query",
    )  # fmt: skip
    write_sentence_files(folder, settings, read_config(folder).encoder)
    expected = bertsmith.load(folder, precision="fp32").embed(TEXTS)
    model = bertsmith.load(folder, precision="fp32")
    shutil.rmtree(folder)
    assert np.array_equal(model.embed(TEXTS), expected)


def test_another_model_is_not_taken_for_the_one_that_was_opened(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Explanations need the folder once more, as do scores in another precision."""
    folder = shutil.copytree(folders["class"], tmp_path / "folder")
    model, text = bertsmith.load(folder), ["word1 word2 word3"]
    answer = model.predict(text)
    retrained, tokenizer = load_model(folder)
    with torch.no_grad():
        retrained.get_parameter("heads.classify.weight").neg_()
    save_model(folder, retrained, tokenizer)
    assert model.predict(text) == answer
    with pytest.raises(ModelFolderError, match="was changed while it was in use"):
        model.explain(text)


def test_rows_and_files_are_scored_alike(folders: dict[str, Path], tmp_path: Path) -> None:
    model = bertsmith.load(folders["class"])
    texts = [f"word{n} word{n + 1}" for n in range(20)]
    answers = model.predict(texts)
    labels = [("ham", "spam")[number % 2] for number in range(len(texts))]
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    said = [answer["label"] for answer in answers]
    right = float(np.mean(np.array(said) == np.array(labels)))
    file = tmp_path / "labelled.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    for data in (rows, file, str(file)):
        found = model.evaluate(data)
        assert found["scores"]["accuracy"]["value"] == pytest.approx(right)
        assert found["rows"] == 20


def test_a_stream_is_asked_and_options_are_those_of_the_command(folders: dict[str, Path]) -> None:
    model = bertsmith.load(folders["class"], threads=1)
    found = model.predict((text for text in TEXTS), top=2)
    assert [len(result["probabilities"] or "--") for result in found] == [2] * 4
    causal = bertsmith.load(folders["causal"])
    assert len(causal.predict(["word1"], max_new_tokens=3)[0]["continuation"].split()) == 3
    # it ends where the model's positions do, and went on for nothing
    whole = causal.predict(["word1"], max_new_tokens=SIZE["longest"])
    assert causal.predict(["word1"], max_new_tokens=10**18 - 1) == whole
    drawn = [causal.predict(["word1"] * 4, temperature=9.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_half_a_surrogate_is_read_in_dictionaries_too(folders: dict[str, Path]) -> None:
    text = "word1 \ud800 word2"
    for name in ("class", "tags"):
        model = bertsmith.load(folders[name], threads=1)
        (one,), (other,) = model.predict([text]), model.predict([{"text": text}])
        assert one["probability"] == other["probability"]
    (found,) = bertsmith.load(folders["span"]).predict([{"question": text, "context": "word3"}])
    assert found["answer"] == "word3"


def test_a_model_says_what_it_is(folders: dict[str, Path]) -> None:
    said = repr(bertsmith.load(folders["class"]))
    assert "class, 3 labels" in said
    assert "2 layers of 24" in said
    assert bertsmith.load(folders["class"]).labels == ("ham", "spam", "news")
    assert "fill-mask, next-sentence" in repr(bertsmith.load(folders["pretrained"]))


def test_what_functions_return_is_shown_in_a_short_line(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    corpus, labelled = tmp_path / "a.txt", tmp_path / "a.csv"
    corpus.write_text("word1 word2 word3.\n\nword4 word5 word6.\n" * 30, encoding="utf-8")
    rows = (f"word{n % 20} text,{'ab'[n % 2]}\n" for n in range(40))
    labelled.write_text("text,label\n" + "".join(rows), encoding="utf-8")
    tokenizer = bertsmith.learn_vocabulary(corpus, out=tmp_path / "vocab", size=60)
    store = bertsmith.prepare(corpus, vocab=tmp_path / "vocab", out=tmp_path / "store")
    tuned = bertsmith.finetune(
        folders["class"], labelled, out=tmp_path / "task", epochs=1, seeds=1, baseline=False
    )
    model = bertsmith.load(folders["class"])
    shown = [
        (tokenizer, "<Tokenizer: wordpiece, "),
        (store, f"<TokenStore {str(tmp_path / 'store')!r}: "),
        (model.tokenizer, "<Tokenizer: wordpiece, 35 pieces, lower case>"),
        (model.engine, "<Prepared: "),
        (tuned, f"<FinetuneOutcome {str(tmp_path / 'task')!r}: classify, accuracy "),
        (tuned.best, "TrialResult(seed="),
    ]
    for figures, begins in shown:
        assert repr(figures).startswith(begins)
        assert len(repr(figures)) < 250
    assert repr(tuned.data) == (
        "<LabelledData: classify, 36 and 4 examples to train and measure, 2 labels>"
    )
    with pytest.raises(ConfigError, match="name is 'f1'; it must be one of accuracy, macro_f1"):
        tuned.values("f1")


class Frame:
    """As a table of pandas: what it yields are the names of its columns."""

    columns = ("text", "label")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


MISTAKES: dict[str, tuple[str, Callable[[Any], Any], type[Exception], str]] = {
    "a text": ("class", lambda m: m.predict("word1"), ConfigError, "give a list"),
    "a number": ("class", lambda m: m.predict(5), ConfigError, "give a list"),
    "numbers": ("class", lambda m: m.predict(["word1", 2]), ConfigError, "1 is of type int"),
    "nan": ("class", lambda m: m.predict([float("nan")]), ConfigError, "of type float"),
    "three": ("class", lambda m: m.predict([("a", "b", "c")]), ConfigError, "pairs of strings"),
    "no dimension": ("class", lambda m: m.predict(np.array("word1")), ConfigError, "give a list"),
    "mixture": ("class", lambda m: m.predict([{"text": "a"}, "b"]), ConfigError, "example 1"),
    "table": ("class", lambda m: m.predict(Frame()), ConfigError, "are a Frame, a table; give its"),
    "no json": ("class", lambda m: m.predict([{"text": {1, 2}}]), ConfigError, "as JSON"),
    "no text": ("class", lambda m: m.predict([{"other": "a"}]), ExampleError, "example 0"),
    "option": ("class", lambda m: m.predict(["a"], topp=2), ConfigError, "did you mean top"),
    "type": ("class", lambda m: m.predict(["a"], top="2"), ConfigError, "a whole number"),
    "span": ("span", lambda m: m.predict(["word1"]), ConfigError, "give dictionaries"),
    "tag pair": ("tags", lambda m: m.predict([("a", "b")]), ConfigError, "give dictionaries"),
    "mask": ("pretrained", lambda m: m.fill_mask(5), ConfigError, "text is 5"),
    "masks": ("pretrained", lambda m: m.fill_mask("word1"), ExampleError, "no .MASK. in the text"),
    "no head": ("class", lambda m: m.fill_mask("[MASK]"), ModelFolderError, "cannot fill masks"),
    "no task": ("pretrained", lambda m: m.evaluate([]), ModelFolderError, "no head for a task"),
    "several": ("class", lambda m: m.embed(["a"], pool="token"), ConfigError, "several vectors"),
    "texts alone": (
        "class", lambda m: m.embed([{"text": "a"}]), ConfigError, "type dict; .* as tuples$",
    ),
    "column": (
        "pretrained", lambda m: m.score(Frame()), ConfigError, "a table; give the texts",
    ),
    "unlabelled": (
        "class", lambda m: m.evaluate(["a"]), ConfigError, "0 is .*; give dictionaries only, or na",
    ),
    "label": (
        "class", lambda m: m.evaluate([{"text": "a", "label": "x"}]), ExampleError, "none of the",
    ),
}  # fmt: skip


def test_of_dictionaries_no_file_is_named_and_they_are_counted_as_in_python(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user wrote no `examples.jsonl`, nor does the file of bad rows beside it stay."""
    model = bertsmith.load(folders["class"])
    rows = [{"text": "word1", "label": "ham"}, {"label": "spam"}, {"text": "", "label": "spam"}]
    asked: list[tuple[int, Callable[[], Any]]] = [
        (1, lambda: model.evaluate(rows)),
        (0, lambda: model.evaluate([{"text": "word1", "label": "other"}])),
        (1, lambda: model.predict([{"text": "word1"}, {"other": "word1"}])),
        (1, lambda: bertsmith.load(folders["pretrained"]).predict([MASKED[0], "word1"])),
        (1, lambda: bertsmith.load(folders["pretrained"]).score(["word1", "word2 " * 500])),
    ]
    for number, ask in asked:
        capsys.readouterr()
        with pytest.raises(ExampleError, match=rf"^example {number}: ") as caught:
            ask()
        assert (caught.value.where, caught.value.line) == (f"example {number}", None)
        assert "jsonl" not in capsys.readouterr().err + str(caught.value).lower()
    assert model.evaluate(rows, on_bad="skip")["rows"] == 1
    shown = capsys.readouterr().err
    assert shown.startswith("examples: text is 'text', label is 'label'\n  example 0   text ")
    assert "2 bad rows left out; the first: example 1: has no 'text'; " in shown
    with pytest.raises(ConfigError, match=r"^bad rows are written beside their file, .*on_bad="):
        model.evaluate(rows, on_bad="quarantine")
    # the lines of a file are those of an editor, whatever its name
    file = tmp_path / "examples.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"examples\.jsonl:2: has no 'text'"):
        model.evaluate(file)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_in_our_errors(name: str, folders: dict[str, Path]) -> None:
    folder, ask, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        ask(bertsmith.load(folders[folder]))


def test_values_of_numpy_are_what_they_are(folders: dict[str, Path]) -> None:
    model = bertsmith.load(folders["class"], threads=np.int64(1))  # type: ignore[arg-type]
    expected = model.predict(["word1", "word2 word3"], top=2)
    assert model.predict(np.array(["word1", "word2 word3"]), top=np.int32(2)) == expected
    day = np.datetime64("2026-11-25").astype(object)
    rows = [{"text": np.str_("word1"), "day": day}, {"text": "word2 word3", "day": np.float32(2)}]
    assert model.predict(rows, top=2) == expected
    confident = model.predict(["word1"], min_confidence=np.float32(1))
    assert confident[0]["label"] is None
    exact = bertsmith.load(folders["class"], reproducible=np.bool_(True))  # type: ignore[arg-type]
    assert exact.predict(["word1"]) == bertsmith.load(folders["class"], reproducible=True).predict(
        ["word1"]
    )
    tags = bertsmith.load(folders["tags"])
    tokens = [{"tokens": np.array(["word1", "word2"])}]
    assert tags.predict(tokens) == tags.predict([{"tokens": ["word1", "word2"]}])
    with pytest.raises(ConfigError, match="top is True; it must be a whole number"):
        model.predict(["word1"], top=True)
    with pytest.raises(ConfigError, match=r"min_confidence is (not a number|nan)"):
        model.predict(["word1"], min_confidence=np.float32("nan"))


def test_columns_of_arrow_are_what_they_hold(folders: dict[str, Path]) -> None:
    """Each value was refused, as of type StringScalar, and a table as no list."""
    texts, pairs = ["word1 word2", "word3"], [["word1", "word2"], ["word3", "word4"]]
    model, two = bertsmith.load(folders["class"]), bertsmith.load(folders["number"])
    columns: list[Any] = [
        pyarrow.array(texts),
        pyarrow.array(texts, pyarrow.large_string()),
        pyarrow.array(texts).dictionary_encode(),
        pyarrow.chunked_array([texts[:1], texts[1:]]),
    ]
    for column in columns:
        assert model.predict(column) == model.predict(texts)
        assert np.array_equal(model.embed(column), model.embed(texts))
    assert two.predict(pyarrow.array(pairs)) == two.predict(pairs)
    with pytest.raises(ConfigError, match="example 1 is of type NoneType"):
        model.predict(pyarrow.array(["word1", None]))
    table = pyarrow.table({"text": texts})
    assert model.predict(table.to_pylist()) == model.predict(texts)
    with pytest.raises(ConfigError, match=r"train is of type Table; it must be a path"):
        bertsmith.finetune("model", table, out="run")
    for whole in (table, table.to_batches()[0]):
        with pytest.raises(ConfigError, match=r"a table; give its rows, .*table\.to_pylist\(\)"):
            model.predict(whole)
        with pytest.raises(ConfigError, match=r"a table; give the texts of a column"):
            model.embed(whole)


def test_whole_numbers_may_stand_for_their_digits(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = bertsmith.load(folders["class"])
    for layer in (0, 1):
        vectors = model.embed(["word1 word2"], layer=layer)
        assert np.array_equal(vectors, model.embed(["word1 word2"], layer=str(layer)))
    with pytest.raises(ConfigError, match="there is no layer '-1'"):
        model.embed(["word1"], layer=-1)
    for refused in (True, 1.5):
        with pytest.raises(ConfigError, match=f"layer is {refused}; it must be text"):
            model.embed(["word1"], layer=refused)
    table = tmp_path / "train.csv"
    table.write_text("".join(f"{n % 3},word{n} word\n" for n in range(30)), encoding="utf-8")
    columns = {"text_column": 1, "label_column": 0, "header": "no", "classes": [1, 2]}
    bertsmith.finetune(folders["class"], table, out=tmp_path / "run", dry_run=True, **columns)
    assert "(1 9, 2 9)" in capsys.readouterr().err


def test_numbers_beyond_all_use_are_refused(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    for name in ("minutes", "steps"):
        with pytest.raises(ConfigError, match=rf"{name} is too large; .*below 10\^18"):
            bertsmith.pretrain(store, out=out, **{name: 10**400})
    for minutes in (0, float("inf")):
        with pytest.raises(ConfigError, match=f"{minutes}.*; it must be above 0, and finite"):
            bertsmith.pretrain(store, out=out, minutes=minutes)


def test_numbers_of_thousands_of_digits_are_refused_too(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Python refuses to write them, and that was the error."""
    for huge in (10**5000, -(10**5000), Fraction(10**5000, 3)):
        with pytest.raises(ConfigError, match=r"steps is "):
            bertsmith.pretrain(tmp_path, out=tmp_path, steps=huge)
    with pytest.raises(ConfigError, match=r"minutes is too large"):
        bertsmith.pretrain(tmp_path, out=tmp_path, minutes=Fraction(10**5000, 3))
    with pytest.raises(ConfigError, match=r"out is of type list; it must be a path"):
        bertsmith.pretrain(tmp_path, out=[[10**5000]])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"model is of type list; it must be text or a path"):
        bertsmith.load([[10**5000]])  # type: ignore[arg-type]
    circle: list[Any] = []
    circle.append(circle)
    for classes, problem in (([[10**5000]], "of type list"), (circle, "nested too deeply")):
        with pytest.raises(ConfigError, match=f"classes is {problem}"):
            bertsmith.finetune(tmp_path, "a.csv", out=tmp_path, classes=classes)
    with pytest.raises(ConfigError, match="threads is too large"):
        bertsmith.load(folders["class"], threads=10**5000)
    model, filling = bertsmith.load(folders["class"]), bertsmith.load(folders["pretrained"])
    asked: list[Callable[[], Any]] = [
        lambda: model.predict(["word1"], top=10**5000),
        lambda: model.embed(["word1"], max_length=10**5000),
        lambda: filling.fill_mask("[MASK]", top=10**5000),
        lambda: filling.write(samples=10**5000),
    ]
    for ask in asked:
        with pytest.raises(ConfigError, match=r"(top|max_length|samples) is too large"):
            ask()


def test_links_that_form_a_loop_end_in_our_errors(folders: dict[str, Path], tmp_path: Path) -> None:
    """Older versions of Python have an error of their own for them, which was a fault of ours."""
    loop, table, out = tmp_path / "loop", tmp_path / "a.csv", tmp_path / "out"
    loop.symlink_to(loop)
    rows = (f"word{n} text,{'ab'[n % 2]}\n" for n in range(20))
    table.write_text("text,label\n" + "".join(rows), encoding="utf-8")
    for ask in (
        lambda: bertsmith.load(loop),
        lambda: bertsmith.finetune(loop, table, out=out),
        lambda: bertsmith.distil(loop, table, student="1/16", out=out),
    ):
        with pytest.raises(ModelFolderError, match=r"loop: cannot be read: .*loop"):
            ask()
    with pytest.raises(ExampleError, match=r"loop: cannot be read: .* form a loop"):
        bertsmith.finetune(folders["class"], loop, out=out)


def test_digits_that_are_no_number_of_use_end_in_our_errors(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    table, out = tmp_path / "a.csv", tmp_path / "out"
    table.write_text("text,label\nword1,a\nword2,b\n", encoding="utf-8")
    for student in ("²", "9" * 5000):
        with pytest.raises(ModelFolderError, match="no such folder"):
            bertsmith.distil("nothing", table, student=student, out=out)
    model = bertsmith.load(folders["class"])
    with pytest.raises(ConfigError, match="there is no layer '999"):
        model.embed(["word1"], layer="9" * 5000)
    with pytest.raises(ConfigError, match="a weight of a layer is too large; it must be at m"):
        model.embed(["word1"], layer="mix:1e39,1,1")
    for workers in (0, 2**31):
        with pytest.raises(ConfigError, match=rf"workers is {workers}; it must be in \[1, 1024\]"):
            bertsmith.prepare("a.txt", vocab="vocab", out=out, workers=workers)


def test_arguments_of_wrong_types_end_in_our_errors(tmp_path: Path) -> None:
    load, finetune, prepare, pretrain = (
        getattr(bertsmith, name) for name in ("load", "finetune", "prepare", "pretrain")
    )
    with pytest.raises(ConfigError, match="model is 5"):
        load(5)
    with pytest.raises(ModelFolderError, match="no such folder"):
        load(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="model holds a zero byte"):
        load("a\0b")
    for nothing in ("", " "):
        # the working folder was opened
        with pytest.raises(ConfigError, match=r"^model is empty; name it; a variable of the shell"):
            load(nothing)
    with pytest.raises(ConfigError, match="out holds a zero byte"):
        finetune("model", "train.csv", out="a\0b")
    with pytest.raises(ConfigError, match="train is"):
        finetune(str(tmp_path), 3, out=str(tmp_path / "out"))
    rows = [{"text": f"word{n}", "label": "a"} for n in range(500)]
    with pytest.raises(
        ConfigError, match=r"^train is \[\{'text': 'word0', .{9,70}…; it must be a p"
    ):
        finetune(str(tmp_path), rows, out=str(tmp_path / "out"))
    with pytest.raises(ConfigError, match=r"missing: out; add it$"):
        finetune(str(tmp_path), "x.csv")
    with pytest.raises(ConfigError, match=r"missing: vocab, out; add them$"):
        prepare(str(tmp_path))
    with pytest.raises(ConfigError, match="no option epoch; did you mean epochs"):
        finetune(str(tmp_path), "x.csv", out=str(tmp_path / "out"), epoch=2)
    with pytest.raises(ConfigError, match="precision is array"):
        load(str(tmp_path), precision=np.array(["fp32", "bf16"]))
    with pytest.raises(ConfigError, match="vocab is"):
        prepare(["x.txt"], vocab=None, out="store")
    with pytest.raises(ConfigError, match="minutes is 'long'"):
        pretrain("store", out="run", minutes="long")


def test_recipes_take_paths_as_strings(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    lines = [" ".join(random.choice(WORDS, 9)) + "." for _ in range(60)]
    texts = "\n\n".join("\n".join(lines[n : n + 2]) for n in range(0, 60, 2))
    Path("corpus.txt").write_text(texts, encoding="utf-8")
    labelled = [f"{line},{'ab'[n % 2]}" for n, line in enumerate(lines[:40])]
    Path("labelled.csv").write_text("text,label\n" + "\n".join(labelled), encoding="utf-8")
    folder = str(folders["pretrained"])
    store = bertsmith.prepare("corpus.txt", vocab=folder, out="store", workers=1)
    assert store.index.documents > 20
    with pytest.raises(StoreError):
        bertsmith.pretrain("nothing", out="run", minutes=1)
    outcome = bertsmith.finetune(
        folder,
        "labelled.csv",
        out="task",
        seeds=1,
        epochs=1,
        max_length=16,
        baseline=False,
        side_by_side=1,
    )
    assert 0 <= outcome.values("accuracy")[0] <= 1
    (answer,) = bertsmith.load("task/model").predict(["word1 word2"])
    assert answer["label"] in ("a", "b")
    small = bertsmith.distil(
        "task/model",
        "labelled.csv",
        student="1/16",
        out="small",
        method="minilm",
        seeds=1,
        epochs=1,
        max_length=16,
        baseline=False,
        side_by_side=1,
    )
    assert isinstance(small, DistilOutcome)
    assert small.methods == ("minilm",)
    (answer,) = bertsmith.load("small/model").predict(["word1 word2"])
    assert answer["label"] in ("a", "b")
    with pytest.raises(ConfigError, match=r"^target is '1x'"):
        bertsmith.distil("task/model", "labelled.csv", student="1/16", out="other", target="1x")


def test_the_package_is_light_and_shows_its_names() -> None:
    program = """
import sys
import bertsmith
assert "torch" not in sys.modules and "numpy" not in sys.modules
ours = [name for name in sys.modules if name.startswith("bertsmith")]
assert sorted(ours) == ["bertsmith", "bertsmith.core"], ours
print(dir(bertsmith))
bertsmith.load
assert not [name for name in sys.modules if name.startswith("bertsmith.training")]
assert bertsmith.UserError.__name__ == "UserError"
try:
    bertsmith.nothing
except AttributeError as error:
    print(error)
print(dir(bertsmith) == sorted(bertsmith.__all__))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    names, missing, same = done.stdout.splitlines()
    functions = ["distil", "finetune", "learn_vocabulary", "load", "prepare", "pretrain"]
    assert names == str(["LoadedModel", "UserError", "__version__", *functions])
    assert missing == "module 'bertsmith' has no attribute 'nothing'"
    assert same == "True"
    for name in bertsmith.__all__:
        assert getattr(bertsmith, name)
        assert getattr(bertsmith, name).__doc__


def test_help_names_options_as_keywords_with_those_of_groups() -> None:
    _, _, described = str(bertsmith.pretrain.__doc__).partition("Args:")
    assert re.findall(r"--\w\S*", described.replace("tensorboard --logdir", "")) == []
    assert "\n    masking: a dictionary of\n" in described
    assert "\n        as_mask: Share of these that is replaced by [MASK]." in described


def test_a_type_checker_finds_a_misspelt_name(tmp_path: Path) -> None:
    """A module with `__getattr__` had every name."""
    program = tmp_path / "program.py"
    program.write_text("import bertsmith\nbertsmith.finetune\nbertsmith.fintune\n", "utf-8")
    options = ("--follow-imports=skip", f"--cache-dir={os.devnull}")
    files = (str(bertsmith.__file__), str(program))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.startswith('program.py:3: error: Module has no attribute "fintune"')


def test_errors_name_keywords(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^minutes are for grid; leave them out, or give grid "):
        bertsmith.finetune(folders["pretrained"], "x.tsv", out=tmp_path / "run", minutes=3.0)
    with pytest.raises(ConfigError, match=r"^min_confidence is for classes and choices, "):
        bertsmith.load(folders["number"]).predict(PAIRS, min_confidence=0.5)
    with pytest.raises(ConfigError, match=r"^conformal is for classes and choices, "):
        bertsmith.load(folders["number"]).predict(PAIRS, conformal=0.5)
    for name in ("no_answer", "min_confidence", "conformal"):
        with pytest.raises(ConfigError, match=rf"^{name} is for .* not fine-tuned for a task"):
            bertsmith.load(folders["pretrained"]).predict(["word1 [MASK]"], **{name: 0.5})
    with pytest.raises(ConfigError, match=r"^conformal needs a model that was calibrated on dev"):
        bertsmith.load(folders["class"]).predict(["word1"], conformal=0.5)


def test_columns_of_labelled_rows_are_named_as_in_the_command(folders: dict[str, Path]) -> None:
    model = bertsmith.load(folders["class"])
    rows = [{"a": "word1", "b": "ham"}, {"a": "word2", "b": "spam"}]
    with pytest.raises(ExampleError, match=r" text_column"):
        model.evaluate([{"c": 1, "d": 2}] * 2)
    found = model.evaluate(rows, text_column="a", label_column="b", max_length=16)
    assert found["rows"] == 2
    with pytest.raises(ConfigError, match=r"no option text_colum; did you mean text_column\?"):
        model.evaluate(rows, text_colum="a")
