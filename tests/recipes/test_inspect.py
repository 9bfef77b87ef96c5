"""The page, the figures and the JSON of an inspection."""

from __future__ import annotations

import base64
import errno
import html
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.core.errors import ConfigError, DiskError, ExampleError
from bertsmith.core.keywords import python_function
from bertsmith.core.log import Bar, shown_on
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.recipes.config import InspectConfig
from bertsmith.recipes.inspect import _write
from bertsmith.recipes.inspect import inspect as recipe
from bertsmith.reports import annotations as annotated
from bertsmith.reports import drawing, inspection, layers
from bertsmith.reports.drawing import Drawing
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bounds import close_statistics

HOSTILE = "word1 </script><script>alert(1)</script> \u202e word2 good"
DRAWINGS = (
    "grouped_bars", "head_map", "heat_map", "layer_lines", "layer_panels", "use_map",
)  # fmt: skip


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the drawings out: matplotlib takes longer for them than all the rest."""
    for module in (annotated, inspection, layers):
        for name in DRAWINGS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *_, **__: Drawing("<svg></svg>", b"png"))


inspect: Any = python_function("inspect", InspectConfig, recipe)


def data_of(page: Path) -> dict[str, Any]:
    """What the script of a page reads."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


@pytest.mark.usefixtures("unpainted")
def test_a_page_of_texts_and_pairs_stands_alone(base_folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.csv"
    rows = ["a,b", "word1 word2 good,bad word3", f'"{HOSTILE}",word4', "word5,word6 word7"]
    texts.write_text("\n".join(rows) + "\n", encoding="utf-8")
    out = tmp_path / "new" / "page.html"
    found = inspect(base_folder, str(texts), out=out, text_column="a", text_pair_column="b")
    page = out.read_text(encoding="utf-8")
    assert not re.search(r"https?://(?!www\.w3\.org)|src=|@import|url\(", page)
    assert page.count("</script>") == 2
    assert "\u202e" not in page
    assert json.loads(out.with_suffix(".json").read_text(encoding="utf-8")) == found
    assert found["texts"] == 3
    data = data_of(out)
    assert data["statistics"] == {
        name: values for name, values in found["statistics"].items() if values[0][0] is not None
    }
    assert "first_to_second" in data["statistics"]
    text = data["sample"][0]
    weights = np.frombuffer(base64.b64decode(text["weights"]), np.uint8)
    count = len(text["tokens"])
    rows_of_heads = weights.reshape(2, 3, count, count) / 255
    np.testing.assert_allclose(rows_of_heads.sum(-1), 1, atol=0.5 * count / 255)
    assert found["gradients"]["loss"].startswith("masked-LM")
    names = {path.name for path in out.parent.iterdir()}
    assert {"page.html", "page.json", "page-layers.png", "page-map.png"} < names
    assert not [name for name in names if name.startswith(".")]


@pytest.mark.usefixtures("unpainted")
@pytest.mark.usefixtures("unpainted")
def test_a_treebank_has_relations_examples_and_a_control(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trees = tmp_path / "made.conllu"
    words = [("word1", 2, "det"), ("word2", 3, "nsubj"), ("good", 0, "root"), ("word3", 3, "obj")]
    lines = [
        f"{number}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_"
        for number, (word, head, relation) in enumerate(words, 1)
    ]
    trees.write_text("\n".join([*lines, "", *lines, ""]) + "\n", encoding="utf-8")
    out = tmp_path / "page.html"
    found = inspect(base_folder, str(trees), out=out, max_words=4)
    assert [item["name"] for item in found["relations"]] == ["all", "det", "nsubj", "obj"]
    assert [item["name"] for item in found["control_relations"]] == ["all", "det", "nsubj", "obj"]
    assert found["relations"][0]["count"] == 6
    det = found["relations"][1]
    # the table has what a head finds that was chosen on the other half of the sentences
    printed = capsys.readouterr().out
    assert "held out" in printed
    row = next(line for line in printed.splitlines() if "det" in line)
    shares = [float(share) for share in re.findall(r"([\d.]+) %", row)]
    expected = [100 * det[name] for name in ("held_out", "offset_accuracy")]
    assert shares == pytest.approx(expected, abs=0.051)
    assert (det["count"], det["offset"], det["offset_accuracy"]) == (2, 1, 1.0)
    best = np.array([det["heads"]["to head"], det["heads"]["to dependent"]])
    assert det["accuracy"] == best.max()
    examples = data_of(out)["examples"]
    assert {name: len(example) for name, example in examples.items()} == {
        "det": 2,
        "nsubj": 2,
        "obj": 2,
    }
    for item in examples["det"]:
        wanted = (item["dependent"], item["head"])
        asked = wanted[1] if det["direction"] == "to head" else wanted[0]
        assert item["right"] == (item["found"] == asked)
    assert found["probes"] is None
    trees.write_text("\n".join(6 * [*lines, "", *lines, ""]) + "\n", encoding="utf-8")
    probed = inspect(base_folder, str(trees), out=out, control=False, probes=10)["probes"]
    assert (probed["sentences_learned"], probed["sentences_measured"]) == (7, 3)
    assert len(probed["tags_by_layer"]) == len(probed["structure_by_layer"]) == 3
    assert "What probes read" in out.read_text(encoding="utf-8")
    alone = inspect(base_folder, str(trees), out=out, limit=1, control=False)
    assert (alone["texts"], alone["control_relations"]) == (1, [])
    with pytest.raises(ExampleError, match="holds nothing that can be read"):
        inspect(base_folder, str(trees), out=out, max_words=3)


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("name", ["tagged.conll", "tagged.txt"])
def test_words_with_tags_have_pairs_and_entities(
    base_folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = ["word1 B-PER", "word2 I-PER", "good O", "word3 B-<b>", "word4 I-<b>", "word5 I-<b>"]
    file, out = tmp_path / name, tmp_path / "page.html"
    file.write_text("\n".join(["-DOCSTART- O", "", *sentence, "", *sentence, ""]) + "\n", "utf-8")
    found = inspect(base_folder, str(file), out=out)
    pairs = {(item["from"], item["to"]): item for item in found["tag_pairs"]}
    first = pairs["B-PER", "I-PER"]
    # of the five other words one is right, always the next
    assert (first["count"], first["chance"]) == (2, 0.2)
    assert (first["offset"], first["offset_accuracy"]) == (1, 1.0)
    assert np.shape(first["heads"]) == (2, 3)
    assert first["accuracy"] == np.max(first["heads"])
    assert [item["from"] for item in found["same_entity"]] == ["all", "<b>", "PER"]
    assert found["same_entity"][0]["count"] == 10
    assert len(found["control_tag_pairs"]) == len(pairs)
    assert not found["relations"]
    assert not found["coreference"]
    page = out.read_text(encoding="utf-8")
    assert "From tag to tag" in page
    assert "Words of one entity" in page
    assert "B-&lt;b&gt; → I-&lt;b&gt;" in page
    assert "B-<b>" not in page
    assert "B-PER → I-PER" in capsys.readouterr().out
    control = {(item["from"], item["to"]): item for item in found["control_tag_pairs"]}
    gains = {
        f"{key[0]} → {key[1]}": item["accuracy"]
        - max(item["chance"], item["offset_accuracy"], control[key]["accuracy"])
        for key, item in pairs.items()
    }
    led = re.search(r"The largest gain is for (.*?): in head", page)
    assert led is not None
    assert gains[html.unescape(led[1])] == max(gains.values()) > 0
    assert page.count("With random weights the best head finds") == 2
    assert inspect(base_folder, str(file), out=out, control=False)["control_tag_pairs"] == []
    assert "random weights" not in out.read_text(encoding="utf-8")


@pytest.mark.usefixtures("unpainted")
def test_documents_with_mentions_have_coreference(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["word1 NNP (1)", "good JJ -", "word2 NNP (2)"], ["word1 PRP (1)", "bad JJ -"]
    lines = ["#begin document (made); part 000"]
    for sentence in rows:
        lines += [
            f"made 0 0 {word} {tag} - - {mark}" for word, tag, mark in map(str.split, sentence)
        ]
        lines.append("")
    file, out = tmp_path / "made.conll", tmp_path / "page.html"
    file.write_text("\n".join([*lines, "#end document"]) + "\n", encoding="utf-8")
    found = inspect(base_folder, str(file), out=out)
    whole, pronouns = found["coreference"]
    assert (whole["name"], whole["count"], whole["candidates"]) == ("all", 1, 2.0)
    assert (whole["nearest"], whole["same_word"]) == (0.0, 1.0)
    assert pronouns["name"] == "pronoun"
    assert [item["name"] for item in found["control_coreference"]] == ["all", "pronoun"]
    assert {(item["from"], item["to"]) for item in found["tag_pairs"]} >= {("NNP", "JJ")}
    page = out.read_text(encoding="utf-8")
    assert "Coreference" in page
    assert re.search(r"With random weights the best head finds [\d.]+ %\. Clark et al", page)
    assert "same word" in capsys.readouterr().out
    # one sentence has no anaphoric mention
    assert inspect(base_folder, str(file), out=out, limit=1)["coreference"] == []
    file.write_text("\n".join(lines).replace("(2)", "2)"), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"made\.conll:4: '2\)' has a bracket without its other"):
        inspect(base_folder, str(file), out=out)
    # what is no UTF-8 is refused, and read in the encoding that is named
    written = "\n".join(lines).replace("word2", "caf\u00e9").encode("latin-1")
    file.write_bytes(written)
    named = inspect(base_folder, str(file), out=out, encoding="latin-1")["coreference"]
    assert [(item["name"], item["count"]) for item in named] == [("all", 1), ("pronoun", 1)]
    with pytest.raises(ExampleError, match=r"made\.conll:4"):
        inspect(base_folder, str(file), out=out, encoding="utf-8")
    file.write_text("#begin document (made)\n\n#end document\n", encoding="utf-8")
    with pytest.raises(ExampleError, match="holds no sentence"):
        inspect(base_folder, str(file), out=out)


@pytest.mark.usefixtures("unpainted")
def test_letters_without_a_font_are_reported(
    base_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    boxes = Drawing("<svg></svg>", b"png", "\N{KATAKANA LETTER YA}")
    monkeypatch.setattr(inspection, "head_map", lambda *_, **__: boxes)
    file = tmp_path / "texts.txt"
    file.write_text("word1 word2\n" * 3, encoding="utf-8")
    inspect(base_folder, str(file), out=tmp_path / "page.html")
    said = "page-map.png: letters that no installed font has are boxes: \N{KATAKANA LETTER YA}"
    assert said in capsys.readouterr().err.splitlines()


@pytest.mark.usefixtures("unpainted")
def test_another_model_and_the_uses_of_words(base_folder: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    lines = [" ".join(f"word{n}" for n in random.integers(0, 9, 6)) for _ in range(30)]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "page.html"
    found = inspect(
        base_folder, str(tmp_path / "texts.txt"), out=out, against=base_folder,
        words=["Word3", "nowhere"], sample=20,
    )  # fmt: skip
    # the same model has not moved
    for name in ("cka", "rsa"):
        own = np.diag(found["similarity"][name])
        close_statistics(own, np.ones_like(own), name)
    assert np.array(found["similarity"]["cka"]).shape == (3, 3)
    assert found["similarity"]["words"] == 120
    (uses,) = found["words"]
    assert (uses["word"], len(uses["self_similarity"])) == ("Word3", 3)
    assert len(uses["uses"]) == sum("word3" in line.split() for line in lines)
    assert all(use["words"][use["place"]] == "word3" for use in uses["uses"])
    assert len(found["anisotropy"]) == 3
    page = out.read_text(encoding="utf-8")
    assert "Uses of Word3" in page
    assert "What moved" in page


@pytest.mark.usefixtures("unpainted")
def test_long_texts_are_compared_by_the_words_that_are_read(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where each line is a paragraph, most are longer than a model reads."""
    random = np.random.default_rng(5)
    lines = [" ".join(f"word{n}" for n in random.integers(0, 9, 60)) for _ in range(9)]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = inspect(
        base_folder, str(tmp_path / "texts.txt"), out=tmp_path / "page.html", against=base_folder,
        words=["word3"], sample=9,
    )  # fmt: skip
    # 40 tokens, of which two are special
    assert found["similarity"]["words"] == 9 * 38
    (uses,) = found["words"]
    assert len(uses["uses"]) == sum("word3" in line.split()[:38] for line in lines)
    assert all(len(use["words"]) == 38 for use in uses["uses"])
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text,text_pair\n" + "word1 word2,word3\n" * 5, encoding="utf-8")
    found = inspect(base_folder, str(pairs), out=tmp_path / "page.html", against=base_folder)
    assert found["similarity"] is None
    assert "against compares nothing" in capsys.readouterr().err


class Watcher:
    """A screen that keeps what bars are told."""

    def __init__(self) -> None:
        self.bars: list[tuple[str, float | None, list[float]]] = []

    def say(self, line: str) -> None:
        """Keep no line."""

    def bar(self, description: str, total: float | None, unit: str) -> Bar:
        del unit
        self.bars.append((description, total, []))
        return TensorChanges(self.bars[-1][2])


class TensorChanges:
    def __init__(self, moves: list[float]) -> None:
        self._moves = moves

    def advance(self, amount: float = 1) -> None:
        self._moves.append(amount)

    def move_to(self, done: float) -> None:
        raise AssertionError(done)

    def note(self, text: str) -> None:
        raise AssertionError(text)


@pytest.mark.usefixtures("unpainted")
def test_all_that_takes_time_has_a_bar_that_is_true(base_folder: Path, tmp_path: Path) -> None:
    sentence = ["word1 B-PER", "word2 I-PER", "good O", "word3 O", ""]
    (tmp_path / "made.conll").write_text("\n".join(9 * sentence) + "\n", encoding="utf-8")
    watcher = Watcher()
    with shown_on(watcher):
        inspect(
            base_folder, str(tmp_path / "made.conll"), out=tmp_path / "page.html",
            against=base_folder, words=["word1", "good"], sample=5,
        )  # fmt: skip
    done = {name: (total, sum(moves)) for name, total, moves in watcher.bars}
    assert list(done) == [
        "inspecting", "looking closer", "gradients", "random weights", "comparing layers",
        "words in context", "drawing",
    ]  # fmt: skip
    assert all(total in (None, moved) for total, moved in done.values())
    assert done["inspecting"][1] == done["random weights"][1] == 9
    assert done["looking closer"][1] == done["gradients"][1] == 5
    assert done["drawing"][1] == len(list(tmp_path.glob("page-*.png")))


def test_mistakes_are_told_before_the_model_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name a page: page\.html"):
        inspect(tmp_path / "no", "texts.txt", out=tmp_path / "page.json")
    with pytest.raises(ConfigError, match="probes needs a treebank"):
        inspect(tmp_path / "no", "texts.txt", out=tmp_path / "page.html", probes=100)
    treebank, out = str(tmp_path / "a.conllu"), tmp_path / "page.html"
    # the figures were those of the usual columns
    with pytest.raises(ConfigError, match=r"options tags\.\* do not apply to a dep"):
        inspect(tmp_path / "no", treebank, out=out, tags={"tag": 4})
    with pytest.raises(ConfigError, match="text_column does not apply to a dependency tree"):
        inspect(tmp_path / "no", treebank, out=out, text_column="form")
    with pytest.raises(ConfigError, match="sample is 1"):
        inspect(tmp_path / "no", "texts.txt", out=tmp_path / "page.html", sample=1)
    for name in ("page.json", "page.html"):
        with pytest.raises(ConfigError, match=rf"would replace {name}, the file that is read"):
            inspect(tmp_path / "no", str(tmp_path / name), out=tmp_path / "page.html")


@pytest.mark.usefixtures("unpainted")
def test_a_model_without_a_loss_says_so(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    encoder = EncoderConfig(
        vocabulary=37, hidden=24, layers=1, heads=2, feed_forward=48, longest=40
    )
    save_model(tmp_path / "bare", build_model(ModelConfig(encoder=encoder), seed=1), tiny_tokenizer)
    (tmp_path / "texts.txt").write_text("word1 word2\nword3\n", encoding="utf-8")
    out = tmp_path / "page.html"
    found = inspect(tmp_path / "bare", str(tmp_path / "texts.txt"), out=out)
    assert found["gradients"] is None
    assert found["statistics"]["first_to_second"] == [[None, None]]
    assert "there is no loss with a gradient" in out.read_text(encoding="utf-8")


def test_drawings_take_the_colours_of_the_page() -> None:
    values = np.random.default_rng(1).random((2, 3))
    titles = {"self": "Attention to $1", "entropy": "Entropy"}
    drawn = {
        "a": drawing.layer_panels(
            "a", {"self": values, "entropy": values}, titles, frozenset({"self"})
        ),
        "b": drawing.grouped_bars("b", ["det", "$nsubj"], {"x": [0.1, 0.5]}, "share"),
        "d": drawing.head_map("d", np.random.default_rng(2).random((6, 2)), layers=2, heads=3),
    }
    lines = drawing.layer_lines("e", {"_x": [0.1, 0.2], "y$": [0.2, 0.3]}, y_label="mean cosine")
    assert all(f"{word}</text>" in lines.svg for word in ("_x", "y$"))
    # the marks of the first layers would be lost on a dark page without an outline
    marks = re.findall(r'style="fill: #\w+; (.*?)"', drawn["d"].svg)
    assert marks.count("stroke: var(--soft); stroke-width: 0.8") >= 6
    for name, batch in drawn.items():
        assert batch.png.startswith(b"\x89PNG")
        assert batch.svg.startswith("<svg")
        assert "var(--ink)" in batch.svg
        assert set(re.findall(r' id="([^"-]+)', batch.svg)) == {name}
    assert drawing.heat_map("c", values, "A grid", as_svg=False).svg == ""


def test_a_page_that_the_disk_refuses_leaves_no_figures(tmp_path: Path) -> None:
    """They stayed, or replaced those of an earlier page."""

    class Refused(inspection.InspectionPage):
        def __init__(self) -> None:
            self.drawings = {"layers": Drawing(svg="", png=b"new")}

        def html(self) -> str:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "page-layers.png").write_bytes(b"earlier")
    with pytest.raises(DiskError, match="make room"):
        _write(tmp_path / "page.html", Refused(), {})
    assert [path.name for path in tmp_path.iterdir()] == ["page-layers.png"]
    assert (tmp_path / "page-layers.png").read_bytes() == b"earlier"
