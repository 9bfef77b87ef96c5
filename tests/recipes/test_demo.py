"""The whole demo, on some of the documentation and with less training."""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer

from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.recipes.config import DemoConfig
from bertsmith.recipes.demo import missing_word, package_task
from bertsmith.recipes.demo import recipe as demo_corpus
from bertsmith.recipes.demo import recipe as demo_fillings
from bertsmith.recipes.demo import recipe as demo_module
from bertsmith.recipes.demo import search as demo_search
from bertsmith.recipes.demo.missing_word import BAG, MODEL, NEIGHBOURS, PLACE, WORD
from bertsmith.recipes.demo.package_task import BASELINE, PRETRAINED, RANDOM
from bertsmith.recipes.demo.search import BM25, BOTH, VECTORS, bm25_scores
from bertsmith.recipes.vocabulary import LearnedVocabulary, learn_from
from bertsmith.text.corpus.documentation import TOPICS, ModuleFile, documentation_files
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import load_model
from documents import page
from verbs import demo

FIGURES = {
    "heldout_loss", "heldout_accuracy", "next_sentence_accuracy", "tokens_per_second", "seconds",
    "finetune", "missing_word", "search", "model", "report",
}  # fmt: skip
PACKAGES = ("asyncio", "email", "json", "logging", "multiprocessing", "unittest", "xml")
CLASSES, LABELS_A_CLASS, DEV_A_CLASS, SEEDS = 4, 6, 5, 2
GAPS_A_WORD = 5


@dataclass(frozen=True)
class Done:
    """A finished demo: its folder, what it returned and what it printed."""

    folder: Path
    figures: dict[str, Any]
    said: str


def some_files() -> list[ModuleFile]:
    """The help topics and some packages of the standard library."""
    wanted = ("pydoc_data", *PACKAGES)
    files = documentation_files()
    kept = [file for file in files if file.module.split(".")[0] in wanted]
    assert kept[0].module == TOPICS
    assert 100 < len(kept) < 300
    return kept


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> None:
    """Draw: this is the page that people see first."""


@pytest.fixture(scope="module")
def small() -> Iterator[pytest.MonkeyPatch]:
    """Less of everything."""
    files = some_files()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_corpus, "documentation_files", lambda: files)
        reading = functools.cache(demo_corpus.read_documentation)
        patch.setattr(demo_corpus, "read_documentation", reading)
        patch.setattr(demo_module, "PIECES", 512)
        patch.setattr(package_task, "CLASSES", CLASSES)
        patch.setattr(package_task, "LABELS_A_CLASS", LABELS_A_CLASS)
        patch.setattr(package_task, "DEV_A_CLASS", DEV_A_CLASS)
        patch.setattr(package_task, "SEEDS", SEEDS)
        patch.setattr(package_task, "SETTINGS", replace(package_task.SETTINGS, epochs=1))
        patch.setattr(missing_word, "TRAIN_A_WORD", 20)
        patch.setattr(missing_word, "DEV_A_WORD", GAPS_A_WORD)
        patch.setattr(demo_search, "QUERIES", 12)
        patch.setattr(demo_search, "TEXTS", 30)
        yield patch


@pytest.fixture(scope="module")
def learned(small: pytest.MonkeyPatch) -> list[LearnedVocabulary]:
    """Vocabularies that demos have learned: the same text gives the same one."""
    kept = list[LearnedVocabulary]()

    def noted(*given: Any, **named: Any) -> LearnedVocabulary:  # noqa: ANN401
        kept.append(learn_from(*given, **named))
        return kept[-1]

    small.setattr(demo_module, "learn_from", noted)
    return kept


@pytest.fixture(scope="module")
def done(
    tmp_path_factory: pytest.TempPathFactory,
    small: pytest.MonkeyPatch,
    learned: list[LearnedVocabulary],
) -> Done:
    folder = tmp_path_factory.mktemp("demo") / "below" / "demo"
    with redirect_stderr(StringIO()) as said:
        figures = demo(minutes=0.03, out=folder)
    return Done(folder=folder, figures=figures, said=said.getvalue())


def test_all_figures_are_there_and_can_be_written_as_json(done: Done) -> None:
    assert done.figures.keys() == FIGURES
    written = json.loads((done.folder / "demo.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(done.figures)) == done.figures
    assert 3 < done.figures["heldout_loss"] < 7.5
    for name in ("heldout_accuracy", "next_sentence_accuracy"):
        assert 0 <= done.figures[name] <= 1
    assert done.figures["tokens_per_second"] > 0
    assert done.figures["model"] == str(done.folder / "pretraining" / "model")
    assert done.figures["report"] == str(done.folder / "report.html")


def test_three_contestants_are_told_with_their_spread(done: Done) -> None:
    found = done.figures["finetune"]
    assert found["labels"] == CLASSES * LABELS_A_CLASS
    assert found["dev"] == CLASSES * DEV_A_CLASS
    assert set(found) == {"labels", "dev", PRETRAINED, RANDOM, BASELINE}
    for name in (PRETRAINED, RANDOM, BASELINE):
        assert 0 <= found[name]["mean"] <= 1
        assert (found[name]["spread"] is None) == (name == BASELINE)


def test_words_are_searched_as_the_formula_says() -> None:
    """BM25 of a few texts, by the formula of Robertson and Zaragoza (2009) word by word."""
    texts = ["a file is opened", "the file of a file", "nothing here at all", "opened and closed"]
    queries = ["file opened", "nothing else"]
    tokens = [text.split() for text in texts]
    mean = sum(map(len, tokens)) / len(tokens)
    for query, scores in zip(queries, bm25_scores(queries, texts), strict=True):
        for words, score in zip(tokens, scores, strict=True):
            expected = 0.0
            for word in query.split():
                containing = sum(word in other for other in tokens)
                rarity = math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
                count = words.count(word)
                norm = 1.2 * (0.25 + 0.75 * len(words) / mean)
                expected += rarity * count * 2.2 / (count + norm) if count else 0.0
            assert score == pytest.approx(expected, abs=1e-9)


def test_ranks_of_the_search_are_those_of_its_scores(done: Done) -> None:
    found = done.figures["search"]
    assert set(found) == {BM25, VECTORS, BOTH}
    for figures in found.values():
        assert 0 <= figures["first"] <= figures["among_ten"] <= 1
        assert figures["first"] <= figures["mean_reciprocal_rank"] <= 1
    # by words nearly every text of so few is found, by chance a third would be
    assert found[BM25]["among_ten"] > 0.5


def test_what_is_concluded_follows_from_the_figures() -> None:
    """It was one sentence whatever the figures were."""
    texts = [str(number) for number in range(100)]

    def searched(words: int, vectors: int) -> str:
        """Return the conclusion where every right text has this rank."""
        search = demo_search.Search(queries=texts, texts=texts)
        ranks = {BM25: np.full(100, words), VECTORS: np.full(100, vectors)}
        outcome = demo_search.SearchOutcome(search=search, ranks=ranks, top_texts={})
        return outcome.conclusion()

    assert "are the better hint" in searched(words=1, vectors=2)
    assert "more of it than the words" in searched(words=2, vectors=1)
    assert "no more than chance" in searched(words=2, vectors=50)

    def fine_tuned(pretrained: float, words: float) -> str:
        task = replace(package_task.make_task([]), dev=["text"] * 1000)
        scores = {PRETRAINED: [pretrained], BASELINE: [words]}
        outcome = package_task.TaskOutcome(task=task, accuracies=scores, confusion={})
        return outcome.conclusion()

    assert fine_tuned(0.5, 0.6).endswith("words are what TF-IDF counts")
    assert fine_tuned(0.6, 0.5).endswith("has learned more than these from the same labels")
    # the verdict calls this a draw
    assert fine_tuned(0.6, 0.59).endswith("words are what TF-IDF counts")


def test_missing_words_are_told_with_both_questions(done: Done) -> None:
    found = done.figures["missing_word"]
    assert set(found["candidates"]) <= set(missing_word.PREPOSITIONS)
    assert 0 < found["dev"] <= 4 * GAPS_A_WORD
    for name in (BAG, NEIGHBOURS, MODEL):
        assert 0 <= found[name][WORD] <= 1
        assert 0 <= found[name][PLACE] <= 1
        assert f"│ {name} " in done.said
    assert found[BAG][PLACE] == 0.25
    assert "which place: the model" in done.said


def test_every_stage_says_a_line(done: Done) -> None:
    lines = done.said.splitlines()
    numbered = [line for line in lines if re.match(r"\d\. ", line)]
    stages = (
        "corpus: ", "vocabulary: 512 pieces", "pre-training", "fill-mask",
        "fine-tuning: which of", "the missing word: ", "search: which of",
    )  # fmt: skip
    for number, (line, stage) in enumerate(zip(numbered, stages, strict=True), 1):
        assert line.startswith(f"{number}. {stage}")
    assert "after training" in done.said
    assert any("leads" in line for line in lines)
    assert f"bertsmith predict {done.figures['model']}" in done.said


def test_its_page_names_the_findings_that_it_prints(done: Done) -> None:
    shown, printed = (
        re.findall(r"^  (\S.*?)  ", text.partition("before training:\n")[2], re.MULTILINE)
        for text in (page("docs/demo.md").partition("\n4. fill-mask")[0], done.said)
    )
    assert shown[-1] == "model folder"
    assert printed[: len(shown)] == shown


def test_the_model_folder_loads_elsewhere(done: Done) -> None:
    folder = Path(done.figures["model"])
    theirs = AutoModelForPreTraining.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(demo_fillings.SENTENCES[0], return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**inputs).prediction_logits[0]
    at = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    piece = tokenizer.convert_ids_to_tokens(int(logits[at].argmax()))
    ours, own_tokenizer = load_model(folder)
    (likeliest,) = demo_fillings.fill(ours, own_tokenizer)[0][:1]
    assert likeliest.piece == piece


def test_the_report_holds_all_and_needs_nothing(done: Done) -> None:
    page = (done.folder / "report.html").read_text(encoding="utf-8")
    for title in (
        "In short", "Held-out documents", "Fill-mask, before and after", "Fine-tuning: which",
        "The missing word", "Some sentences", "Search", "Confusion",
        "Loss", "Accuracy", "Speed", "Utilisation", "Settings of pre-training",
    ):  # fmt: skip
        assert title in page, title
    for contestant in (PRETRAINED, RANDOM, BASELINE):
        assert contestant in page
    assert "optimiser.muon_learning_rate" in page
    # nothing is fetched: no script, no address but those of the page's own parts and of XML
    assert "<script" not in page
    assert "<link" not in page
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', page) == []
    assert re.findall(r"url\((?!#)[^)]*\)", page) == []


def test_nothing_is_left_over(done: Done) -> None:
    names = {path.name for path in done.folder.iterdir()}
    assert names == {"store", "pretraining", "report.html", "demo.json"}
    settings = RunFolder(done.folder / "pretraining").settings("pretrain")
    assert settings is not None
    assert settings["budget"]["minutes"] == 0.03


def test_a_second_demo_takes_the_place_of_the_first(
    done: Done, small: pytest.MonkeyPatch, learned: list[LearnedVocabulary], tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    shutil.copytree(done.folder, folder)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    small.setattr(package_task, "SEEDS", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_module, "fitting_minutes", lambda seconds: 0.01 if seconds > 0.1 else 9)
        # of the same documentation
        patch.setattr(demo_module, "learn_from", lambda *_, **__: learned[0])
        for module in ("reports.page", "recipes.pretrain.planning"):
            patch.setattr(f"bertsmith.{module}.curves_svg", lambda *_, **__: "<svg></svg>")
        figures = demo(out=folder, seed=3)
    small.setattr(package_task, "SEEDS", SEEDS)
    settings = RunFolder(folder / "pretraining").settings("pretrain")
    assert settings is not None
    assert settings["settings"]["seed"] == 3
    assert settings["budget"]["minutes"] == 0.01
    assert figures["finetune"][PRETRAINED]["spread"] is None
    assert json.loads((folder / "demo.json").read_text(encoding="utf-8")) == figures
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("seconds", "minutes"), [(0.1, 3.0), (46, 3.0), (70, 2.5), (81, 2.0), (10_000, 2.0)]
)
def test_a_slow_machine_pre_trains_for_fewer_minutes(seconds: float, minutes: float) -> None:
    """With the tasks, which take 1.8 times as long as what came before, six minutes are enough."""
    assert demo_module.fitting_minutes(seconds) == minutes
    assert seconds > 81 or 2.8 * seconds + 60 * minutes < 360


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for out in (tmp_path, tmp_path / "file"):
        with pytest.raises(RunFolderError, match="not an earlier demo; choose another out"):
            demo(out=out)
    assert (tmp_path / "store" / "thesis.txt").read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "store"]


@pytest.mark.parametrize("wrong", [{"minutes": -1.0}, {"minutes": math.inf}, {"seed": -1}])
def test_nothing_is_cleared_for_a_demo_that_cannot_begin(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="it must be"):
        DemoConfig(**wrong)
