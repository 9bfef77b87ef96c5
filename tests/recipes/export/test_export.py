"""Exported folders, asked through the runtimes they are made for and beside `transformers`."""

from __future__ import annotations

import functools
import importlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch.export import ExportedProgram

import bertsmith
from bertsmith.batches.truncation import encode_pair
from bertsmith.cli.main import main
from bertsmith.core.errors import ModelFolderError, UserError
from bertsmith.network.batch import pack
from bertsmith.network.config import Conformal, Fit, ModelConfig, Preprocessing, VectorPooling
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Model, build_model
from bertsmith.network.pooling import UnitLength
from bertsmith.recipes.export import recipe
from bertsmith.recipes.export.card import Described, card
from bertsmith.recipes.export.config import ExportConfig, Target
from bertsmith.recipes.export.graph import PaddedModel
from bertsmith.recipes.export.program import (
    ONNX_FILE,
    OPSET,
    exported_program,
    import_openvino,
    write_onnx,
    write_openvino,
    write_torch,
)
from bertsmith.recipes.export.recipe import Source, adapt_tokenizer, export, other_characters
from bertsmith.recipes.export.runtimes import BOUND, Arrays, Comparison, compare
from bertsmith.tasks.rank import RELEVANCE
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from bertsmith.weights.sentence_folder import SentenceSettings, write_sentence_files
from bounds import close_to_transformers
from families import LABELS, MODELS, TOKENIZERS, WIRINGS

LENGTHS = (13, 1, 23, 7)


def varied(case: str, **changes: Any) -> Model:  # noqa: ANN401
    """A model none of whose weights is what it starts as."""
    config = (MODELS | WIRINGS)[case]
    config = replace(config, encoder=replace(config.encoder, **changes))
    model, generator = build_model(config, seed=7).eval(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def saved(folder: Path, case: str, **changes: Any) -> None:  # noqa: ANN401
    model = varied(case, **changes)
    save_model(folder, model, TOKENIZERS[model.config.encoder.family])


def example(folder: Path) -> str:
    """The code of a folder's README.md."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.S)
    return str(code)


def ran(code: str) -> dict[str, Any]:
    """The names that Python code leaves behind."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_onnx_gives_the_logits_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = varied("bert-class", layers=1)
    read = Preprocessing(longest=9, long="tail", pairs=False)
    model.config = replace(model.config, preprocessing=read)
    save_model(tmp_path / "model", model, TOKENIZERS["bert"])
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "model"), "--to", "onnx", "--out", str(out)]) == 0
    session = onnxruntime.InferenceSession(out / "model.onnx")
    ids = torch.from_numpy(np.random.default_rng(0).integers(5, 99, (len(LENGTHS), 23)))
    mask = (torch.arange(23) < torch.tensor(LENGTHS)[:, None]).long()
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
    (found,) = session.run(["logits"], {name: item.numpy() for name, item in inputs.items()})
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        close_to_transformers(found, theirs(**inputs).logits)
    settings = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert settings["id2label"]["1"] == "spam"
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert f"Labels, in the order of the outputs: {', '.join(LABELS)}." in readme
    assert [dim for get_input in session.get_inputs() for dim in get_input.shape] == [
        "batch",
        "length",
    ] * 3
    # the lines of its README.md read as much of a text as was read in training
    texts = [f"word{number} " * 3 + "word4 word5 word6 " * 3 for number in (1, 7)]
    code = example(out).replace('["A text.", "Another, longer one."]', repr(texts))
    monkeypatch.chdir(out)
    shares = torch.from_numpy(ran(code)["logits"]).softmax(-1)
    answers = bertsmith.load(tmp_path / "model", precision="fp32").predict(texts)
    for own, answer in zip(shares, answers, strict=True):
        assert dict(zip(LABELS, own.tolist(), strict=True)) == pytest.approx(
            answer["probabilities"], abs=1e-5
        )
    assert main(["predict", str(out), "texts.txt"]) == 2
    assert "out: holds a model for another runtime, model.onnx" in capsys.readouterr().err
    tokenizing = json.loads((out / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert tokenizing["model_max_length"] == 9
    # neither paths of this machine nor a second copy of the weights
    written = (out / "model.onnx").read_bytes()
    assert b".py" not in written
    assert main(["export", str(tmp_path / "model"), "--to", "onnx", "--out", str(out)]) == 2


def test_a_sentence_folder_gives_vectors_whatever_head_its_network_kept(tmp_path: Path) -> None:
    """all-distilroberta-v1 and others name a masked LM as the class of their network."""
    case = "roberta-masked_lm"
    saved(folder := tmp_path / "model", case, layers=1)
    settings = SentenceSettings(network=folder, pool=("mean",), after=(UnitLength(),), longest=9)
    write_sentence_files(folder, settings, MODELS[case].encoder)
    source = Source.read(folder)
    padded = PaddedModel(source.model, source.sentence)
    assert padded.outputs == ["last_hidden_state", "sentence_embedding"]
    ids, mask = torch.tensor([[0, 7, 9, 2, 1], [0, 8, 5, 7, 2]]), torch.ones(2, 5, dtype=torch.long)
    mask[0, -1] = 0
    theirs = transformers.RobertaModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        hidden = theirs(ids, mask).last_hidden_state
        sums = (hidden * mask[:, :, None]).sum(1)
        close_to_transformers(padded(ids, mask)[1], torch.nn.functional.normalize(sums))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("bert-relevance", ["| logits | (batch, 1), before a sigmoid |"]),
        (
            "bert-class",
            ["pipeline('text-classification', \"spam-web\"", 'await ask(spaced("A text."))'],
        ),
        ("bert-classes", ["{ top_k: null }"]),
        # the pipeline would say 1 of any number
        (
            "bert-number",
            [
                "const { logits } = await model(inputs)",
                "max_length: 23",
                "(batch, 1), the numbers themselves",
            ],
        ),
        ("modernbert-span", ['text_pair: ["Ann came home.", ', "{ start_logits, end_logits }"]),
        (
            "bert-span",
            ["pipeline('question-answering'", 'ask(spaced("Who came?"), "Ann came home.")'],
        ),
        ("roberta-masked_lm", ["pipeline('fill-mask'", "A [MASK] text."]),
        (
            "bert-choice",
            ['text_pair: ["One choice.", "Another choice.", ', "= inputs[name].unsqueeze(0);"],
        ),
    ],
)
def test_the_lines_for_node_suit_the_head(case: str, said: list[str]) -> None:
    config = MODELS[case.replace("relevance", "number")]
    if case == "bert-relevance":
        config = replace(config, labels=RELEVANCE)
    comparison = Comparison(difference=1e-7, batches=5, longest=23)

    def written(name: str) -> str:
        about = Described(
            config=config, tokenizer=TOKENIZERS[config.encoder.family], sentence=None,
            target="transformers.js", name=name,
        )  # fmt: skip
        return card(about, comparison)

    assert all(item in written("spam-web") for item in said)
    assert "rename the folder" not in written("spam-web")
    assert "rename the folder" in written("spam--web")


@pytest.mark.parametrize("family", ["roberta", "bert"])
@pytest.mark.parametrize("head", ["class", "span"])
def test_the_lines_of_python_read_white_space_as_the_engine(
    family: FamilyName, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte-pair tokenizers have tokens for white space; WordPiece's remove form feeds."""
    config = MODELS[f"{family}-{head}"]
    config = replace(config, encoder=replace(config.encoder, longest=64))
    words = learn_byte_bpe(["word1 word2 word3 word4"] * 9, size=280)
    tokenizer = words if family == "roberta" else TOKENIZERS["bert"]
    tokenizer.save(tmp_path)

    def written(target: Target) -> str:
        about = Described(
            config=config, tokenizer=tokenizer, sentence=None, target=target, name="out"
        )
        return card(about, Comparison(difference=1e-7, batches=5, longest=23))

    code = written("onnx")
    in_node = written("transformers.js")
    assert "const spaced = (text) => text.split(" in in_node
    asked = '"Who came?"), "Ann' if head == "span" else '"A text."))'
    assert f"await ask(spaced({asked}" in in_node
    code, _, _ = code.partition("```python\n")[2].partition("inputs = {")
    odd: Any = [" word1  word2\n", "word1\u3000\tword2", "word1\fword2", "word1\x85word2"]
    count = len(odd)
    if head == "span":
        odd = [(text, "word3  word4") for text in odd]
    monkeypatch.chdir(tmp_path)
    asked = re.sub("texts = .*", lambda _: f"texts = {odd!r}", code, count=1)
    found = [text.ids for text in ran(asked)["encoded"]]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    # the context of a question is read as it is
    both = ("word1 word2", "word3  word4") if head == "span" else ("word1 word2",)
    assert found == [theirs(*both).input_ids] * count


def test_the_tokenizer_of_an_exported_cased_model_composes_text(tmp_path: Path) -> None:
    """As the slow tokenizer does, which a model folder follows."""
    pieces = (*SPECIALS, "caf\u00e9", "caf", "##\u00e9", "e", "\u0301", "a")
    tokenizer = Tokenizer(pieces, BasicRules(lowercase=False))
    tokenizer.save(tmp_path)
    adapt_tokenizer(tmp_path, tokenizer, "onnx")
    compiled = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("a cafe\u0301 e\u0301", "caf\u00e9"):
        assert (
            compiled.encode(text).ids
            == transformers.BertTokenizer.from_pretrained(tmp_path)(text)["input_ids"]
        )


@pytest.mark.parametrize("segments", [True, False])
def test_an_exported_tokenizer_gives_the_segments_of_the_engine(
    tmp_path: Path, segments: bool
) -> None:
    pieces = (*SPECIALS, "first", "second")
    tokenizer = Tokenizer(pieces, BasicRules(lowercase=True, segments=segments))
    tokenizer.save(tmp_path)
    adapt_tokenizer(tmp_path, tokenizer, "onnx")
    compiled = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert compiled.encode("first", "second").type_ids == [0, 0, 0, *[int(segments)] * 2]


def test_transformers_js_is_given_no_replacement_rules_it_takes_for_others(tmp_path: Path) -> None:
    """It replaces by NFKC, whatever the rules are: an ellipsis by three dots."""
    tokenizer = learn_unigram(["wait\u2026 and see..."] * 9, size=60, plain=True)
    tokenizer.save(tmp_path)
    before = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    adapt_tokenizer(tmp_path, tokenizer, "transformers.js")
    assert "Precompiled" not in (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    after = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = ["wait\u2026", "wait ...", "see\u3000and\tsee\n", "see\x85and \x1c see"]
    for text in texts:
        assert after.encode(text).ids == before.encode(text).ids


def card_of(config: ModelConfig, other_characters: str = "", *, target: Target = "onnx") -> str:
    about = Described(
        config=config, tokenizer=TOKENIZERS["bert"], sentence=None, target=target, name="out",
        other_characters=other_characters,
    )  # fmt: skip
    return card(about, Comparison(difference=1e-7, batches=5, longest=23))


@pytest.mark.parametrize(
    ("case", "changes", "said"),
    [
        ("bert-class", {"min_confidence": 0.8125}, "the largest probability is below 0.8125 ("),
        ("bert-span", {"no_answer": -1.5}, "is more than -1.5 above that of the best span ("),
    ],
)
def test_the_card_states_the_threshold_of_answers(
    case: str, changes: dict[str, Any], said: str
) -> None:
    assert said in card_of(replace(MODELS[case], **changes))
    assert "gives no answer" not in card_of(MODELS[case])


@pytest.mark.parametrize(
    ("case", "changes", "said"),
    [
        ("bert-tags", {}, "a word has the tag of its first token."),
        ("bert-span", {}, "is the span of at most 30 tokens of the second text whose two logits"),
        ("bert-classes", {}, "gives the labels whose probability is above 0.5."),
        (
            "bert-choice",
            {"conformal": Conformal(examples=9, coverages=(0.8,), thresholds=(0.25,))},
            "For each coverage, `bertsmith_conformal` in `config.json` has the least probability",
        ),
    ],
)
def test_the_card_says_how_outputs_become_answers(
    case: str, changes: dict[str, Any], said: str
) -> None:
    assert said in card_of(replace(MODELS[case], **changes))


@pytest.mark.parametrize(
    ("long", "target", "said"),
    [("head", "onnx", True), ("tail", "onnx", False), ("tail", "transformers.js", True)],
)
def test_the_card_says_where_questions_after_contexts_are_cut_off(
    long: Fit, target: Target, said: bool
) -> None:
    """Tokenizers know one text alone, and cut it at one end; of others the context is cut."""
    config = replace(MODELS["bert-choice"], preprocessing=Preprocessing(longest=16, long=long))
    assert ("shortens the context and keeps the question" in card_of(config, target=target)) == said


@pytest.mark.parametrize(("default", "listed"), [(None, True), ("query", False)])
def test_the_card_lists_prompts_that_its_code_does_not_write(
    default: str | None, listed: bool
) -> None:
    """As `embed` does: without one the vectors of such a folder are of little use."""
    sentence = SentenceSettings(
        network=Path(), prompts={"query": "query: ", "none": ""}, default_prompt=default
    )
    about = Described(
        config=MODELS["bert-none"], tokenizer=TOKENIZERS["bert"], sentence=sentence,
        target="onnx", name="out",
    )  # fmt: skip
    written = card(about, Comparison(difference=1e-7, batches=5, longest=23))
    assert (r'the folder has these: query\: "query\: ".' in written) == listed
    assert ('("query: " + text)' in written) == (not listed)


def test_the_card_says_for_which_characters_the_tokenizer_gives_other_ids(tmp_path: Path) -> None:
    """U+0378 is assigned in no version of Unicode; U+09FD, a mark of punctuation, since 11."""
    tokenizer = Tokenizer((*SPECIALS, "a", "b", "##b"), BasicRules(lowercase=True))
    tokenizer.save(tmp_path)
    adapt_tokenizer(tmp_path, tokenizer, "onnx")
    compiled = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("a\u0378b", "a\u09fdb"):
        assert compiled.encode(text, add_special_tokens=False).tokens != tokenizer.pieces(text)
    said = card_of(MODELS["bert-class"])
    assert "gives the ids of bertsmith, but for rare characters" in said
    assert "The vocabulary has none." in said
    assert other_characters(tmp_path, tokenizer) == ""
    # a symbol that was punctuation, and an ideograph beyond a range of the compiled tokenizers
    characters = ("\u4e2d", "\u166d", "\U0002b820")
    tokenizer = Tokenizer((*SPECIALS, "a", "##a", *characters), BasicRules(lowercase=True))
    tokenizer.save(tmp_path / "more")
    found = other_characters(tmp_path / "more", tokenizer)
    assert found == "\u166d\U0002b820"
    assert "The vocabulary has these: U+166D, U+2B820." in card_of(MODELS["bert-class"], found)


def test_the_lines_of_python_give_a_text_with_its_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TOKENIZERS["bert"].save(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = card_of(MODELS["bert-choice"]).partition("```python\n")[2]
    inputs = ran(f"{code.partition('session = ')[0]}")["inputs"]
    # padded to the longest of three
    assert {item.shape for item in inputs.values()} == {(1, 3, 9)}
    both = transformers.AutoTokenizer.from_pretrained(tmp_path)("A text.", "Another choice.")
    for name, item in inputs.items():
        assert item[0, 1, : len(both[name])].tolist() == both[name]


def test_the_card_of_a_model_that_continues_texts_says_from_which_token() -> None:
    assert "To continue a text, leave out that token" in card_of(WIRINGS["causal-masked_lm"])
    assert "To continue a text" not in card_of(MODELS["bert-masked_lm"])


@pytest.mark.parametrize(
    ("long", "target", "warned"),
    [
        ("head", "onnx", False),
        ("tail", "onnx", False),
        ("head+tail", "onnx", True),
        ("head", "transformers.js", False),
        ("tail", "transformers.js", True),
        ("head+tail", "transformers.js", True),
    ],
)
def test_code_that_reads_another_part_of_long_texts_says_so(
    long: Fit, target: Target, warned: bool
) -> None:
    read = Preprocessing(longest=9, long=long, pairs=False)
    config = replace(MODELS["bert-class"], preprocessing=read)
    about = Described(
        config=config, tokenizer=TOKENIZERS["bert"], sentence=None, target=target, name="web"
    )
    written = card(about, Comparison(difference=1e-7, batches=5, longest=23))
    assert "At most 9 tokens of a text are read, as in training" in written
    assert ("The code below reads the beginning alone" in written) == warned
    assert ('direction="left"' in written) == (long == "tail" and target == "onnx")


@pytest.mark.parametrize(
    ("case", "target", "warned"),
    [
        ("bert-choice", "transformers.js", True),
        ("bert-choice", "onnx", False),
        ("bert-class", "transformers.js", False),
        ("bert-span", "transformers.js", False),
    ],
)
def test_the_card_says_that_node_cuts_the_second_text_of_a_pair(
    case: str, target: Target, warned: bool
) -> None:
    about = Described(
        config=MODELS[case], tokenizer=TOKENIZERS["bert"], sentence=None, target=target, name="web"
    )
    written = card(about, Comparison(difference=1e-7, batches=5, longest=23))
    assert ("shortens a long pair at its end" in written) == warned


@pytest.mark.parametrize(("longest", "warned"), [(16, True), (15, False)])
def test_the_card_says_where_compiled_tokenizers_cut_pairs_otherwise(
    longest: int, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Preprocessing(longest=longest, pairs=True)
    config, tokenizer = replace(MODELS["bert-class"], preprocessing=read), TOKENIZERS["bert"]
    tokenizer.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    written = card_of(config)
    assert ("reads a token more of the second" in written) == warned
    pair = ("word1 " * 9, "word2 " * 9)
    code = written.partition("```python\n")[2].partition("inputs = {")[0]
    (found,) = ran(re.sub("texts = .*", f"texts = [{pair!r}]", code, count=1))["encoded"]
    # BERT's own code removes tokens one by one from the longer text, or else from the second
    slow = transformers.BertTokenizer.from_pretrained(tmp_path)
    theirs = slow(*pair, truncation="longest_first", max_length=longest).input_ids
    assert (found.ids != theirs) == warned
    first, second = tokenizer.encode(list(pair))
    assert encode_pair(tokenizer, first, second, longest=longest)[0].tolist() == theirs


def save_lookup(path: Path) -> None:
    """Save a graph that gives rows of a table of three."""
    onnx = pytest.importorskip("onnx")
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "n"])
    rows = onnx.helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["batch", "n", 1])
    table = onnx.numpy_helper.from_array(np.ones((3, 1), np.float32), "table")
    nodes = [onnx.helper.make_node("Gather", ["table", "input_ids"], ["rows"])]
    graph = onnx.helper.make_graph(nodes, "graph", [ids], [rows], [table])
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets)
    onnx.save(model, path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("target", ["torch-export", "openvino"])
def test_a_full_disk_is_an_error_of_the_disk(target: Target, tmp_path: Path) -> None:
    """torch ends the process, and OpenVINO speaks of a stream."""
    if target == "torch-export":
        example = (torch.ones(2),)
        program = torch.export.export(torch.nn.Linear(2, 9000), example)
        with pytest.raises(OSError, match="No space left"):
            write_torch(program, Path("/dev/full"))
        return
    pytest.importorskip("openvino")
    save_lookup(tmp_path / "model.onnx")
    (tmp_path / "model.xml").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_openvino(tmp_path / "model.onnx", tmp_path / "model.xml", longest=3)


def test_openvino_reports_nothing_to_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its telemetry, which comes with it, sends what it does where it can be imported."""
    (tmp_path / "openvino_telemetry.py").write_text("")
    (tmp_path / "openvino.py").write_text(
        "try:\n    import openvino_telemetry\n    reports = True\n"
        "except ImportError:\n    reports = False\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("openvino", "openvino_telemetry"):
        # at the end what was there is there again
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]
    assert not import_openvino().reports
    # the caller may import it
    assert importlib.import_module("openvino_telemetry")


def test_openvino_refuses_texts_that_are_too_long(tmp_path: Path) -> None:
    """It would take zeros for rows of a table that there are not, where others refuse."""
    openvino = pytest.importorskip("openvino")
    save_lookup(tmp_path / "model.onnx")
    write_openvino(tmp_path / "model.onnx", tmp_path / "model.xml", longest=3)
    compiled = openvino.Core().compile_model(tmp_path / "model.xml", "CPU")
    for batch, length in ((1, 1), (2, 3)):
        (found,) = compiled({"input_ids": np.zeros((batch, length), np.int64)}).values()
        assert found.shape == (batch, length, 1)
    with pytest.raises(RuntimeError, match="incompatible"):
        compiled({"input_ids": np.zeros((2, 4), np.int64)})


def test_what_differs_from_the_engine_is_refused() -> None:
    model = varied("bert-class")

    def wrong(inputs: Any) -> Arrays:  # noqa: ANN401
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        rows = [row[own > 0] for row, own in zip(ids, mask, strict=True)]
        with torch.no_grad():
            # the segments are left out
            batch = pack(rows, [np.zeros_like(row) for row in rows])
            return {"logits": model.classify(model.encoder(batch), batch).numpy()}

    with pytest.raises(ModelFolderError, match="the exported logits differ from the engine"):
        compare(wrong, model, TOKENIZERS["bert"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "onnx", "--precision", "int8"], "give --calibrate TEXTS, and --dev LABELLED"),
        (["--to", "onnx", "--dev", "dev.csv"], "add --precision int8"),
        (["--to", "onnx", "--threads", "3"], "--threads is for int8; leave it out, or add --pre"),
        (["--to", "onnx", "--max-length", "16"], "--max-length is for int8; leave it out"),
        (["--to", "openvino", "--text-column=a"], "--text-column is for int8; leave it out"),
        (["--to", "torch-export", "--on-bad", "skip"], "--on-bad is for int8; leave it out"),
        (["--to", "openvino", "--precision", "int8"], "--precision int8 is not for openvino"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "model", "--out", "out", *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("folder", "name"), [("in-ascii", "lat\udce9in"), ("lat\udce9in", "out")])
def test_a_path_that_the_libraries_cannot_open_is_refused(
    folder: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / folder)
    assert main(["export", "model", "--out", name, "--to", "onnx"]) == 2
    assert "which is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("bert-masked_lm", "has no head for a task"),
        ("bert-class", "cannot be read"),
        ("bert-none", "dev.csv: cannot be read"),
    ],
)
def test_what_int8_cannot_be_judged_by_is_told_before_anything_is_written(
    case: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    saved(tmp_path / "model", case)

    def unwritten(*_: object) -> None:
        raise AssertionError("the model is written first")

    monkeypatch.setattr(recipe, "_write", unwritten)
    config = ExportConfig(
        model=tmp_path / "model", to="onnx", out=tmp_path / "out", precision="int8",
        calibrate=tmp_path / "texts.txt", dev=tmp_path / "dev.csv",
    )  # fmt: skip
    with pytest.raises(UserError, match=said):
        export(config)


RUNTIMES: dict[Target, str] = {
    "onnx": "onnxruntime", "openvino": "openvino", "torch-export": "torch",
}  # fmt: skip


class Made:
    """A model folder, whose program and ONNX file are made once for all targets."""

    def __init__(self, folder: Path, case: str, pool: VectorPooling | None) -> None:
        # few layers, of each kind two where there are kinds: what is exported unrolls them
        family = (MODELS | WIRINGS)[case].encoder.family
        layers = 3 if case == "window" else 4 if family in ("albert", "modernbert") else 2
        self.model = folder / "model"
        saved(self.model, case, layers=layers)
        if pool is not None:
            settings = SentenceSettings(
                network=Path(), pool=(pool,), after=(UnitLength(),), longest=7,
                prompts={"query": "word3 word4 "}, default_prompt="query",
            )  # fmt: skip
            write_sentence_files(self.model, settings, (MODELS | WIRINGS)[case].encoder)
        self._program: ExportedProgram | None = None
        self._onnx = folder / ONNX_FILE

    def exported_program(self, padded: PaddedModel) -> ExportedProgram:
        if self._program is None:
            self._program = exported_program(padded)
        return self._program

    def write_onnx(self, program: ExportedProgram, padded: PaddedModel, path: Path) -> bool:
        if not self._onnx.exists():
            assert not write_onnx(program, padded, self._onnx)
        shutil.copyfile(self._onnx, path)
        return False

    def export(self, target: Target, out: Path) -> dict[str, Any]:
        """Export the folder as the command does."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recipe, "exported_program", self.exported_program)
            patch.setattr(recipe, "write_onnx", self.write_onnx)
            return export(ExportConfig(model=self.model, to=target, out=out))


Make = Callable[[str, VectorPooling | None], Made]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Make a case, or return the last one again: its targets follow one another."""

    @functools.lru_cache(maxsize=1)
    def made(case: str, pool: VectorPooling | None) -> Made:
        return Made(tmp_path_factory.mktemp("made"), case, pool)

    return made


@pytest.mark.faults
@pytest.mark.parametrize("target", RUNTIMES)
@pytest.mark.parametrize("case", [*MODELS, *WIRINGS])
def test_every_family_and_head_in_every_runtime(
    tmp_path: Path, case: str, target: Target, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(RUNTIMES[target])
    figures = make(case, None).export(target, tmp_path / "out")
    assert figures["difference"] <= BOUND
    monkeypatch.chdir(tmp_path / "out")
    names = ran(example(Path()))
    rows = 1 if (MODELS | WIRINGS)[case].predicts == "choice" else 2
    assert {len(names[name]) for name in figures["outputs"]} == {rows}


@pytest.mark.faults
@pytest.mark.parametrize("target", RUNTIMES)
@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
def test_sentence_folders_in_every_runtime(
    tmp_path: Path,
    pool: VectorPooling,
    target: Target,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip(RUNTIMES[target])
    made = make("bert-none", pool)
    figures = made.export(target, tmp_path / "out")
    assert figures["outputs"] == ["last_hidden_state", "sentence_embedding"]
    assert figures["difference"] <= BOUND
    texts = ["word1 word2", "word5 word6 word7 word8 word9"]
    code = example(tmp_path / "out").replace('["A text.", "Another, longer one."]', repr(texts))
    monkeypatch.chdir(tmp_path / "out")
    expected = bertsmith.load(made.model, precision="fp32").embed(texts)
    close_to_transformers(ran(code)["sentence_embedding"], expected)
