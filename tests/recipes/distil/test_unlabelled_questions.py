"""Questions without answers: which are read, what the teacher makes of them, and who learns it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    pipeline,
)

from bertsmith.core.errors import UserError
from bertsmith.network.encoded import NO_TAPS
from bertsmith.objectives.distillation import LOGITS
from bertsmith.recipes.distil.config import DistilConfig, StudentConfig, TeachingConfig
from bertsmith.recipes.distil.recipe import distil
from bertsmith.recipes.distil.teacher import TeacherOutputs, TeacherRows
from bertsmith.recipes.distil.trainings import DistilOutcome
from bertsmith.recipes.distil.transfer_set import read_unlabelled, with_teacher_answers
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, prepare
from bertsmith.tasks.config import Reading
from bertsmith.tasks.rows import task_named
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.config import Columns
from bertsmith.text.examples.formats.squad import Question
from bertsmith.weights.folder import load_model, save_model, start_from

# what a window has of a context beside a question of two words, and what two windows share
ROOM = ReadingLimits(longest=40, long="head", stride=13)
MAX_ANSWER_LENGTH = 30
GapScores = tuple[str, str]


def context_of(words: int, seed: int) -> str:
    random = np.random.default_rng(seed)
    return " ".join(f"word{number}" for number in random.integers(0, 30, words))


# two windows of a context have 57 words, three 79: the last is as full as the others
QUESTIONS: list[GapScores] = [
    (f"word{n} {'good' if n % 2 else 'bad'}", context_of((7, 19, 57, 35, 79)[n % 5], n))
    for n in range(20)
]


def squad(rows: Sequence[GapScores], answers: Sequence[tuple[str, int] | None] = ()) -> str:
    """The text of a file in SQuAD's layout, an article a question; without answers if none."""
    articles = []
    for number, (question, context) in enumerate(rows):
        asked: dict[str, Any] = {"id": f"q{number}", "question": question}
        if answers and (answer := answers[number]) is not None:
            asked["answers"] = [{"text": answer[0], "answer_start": answer[1]}]
        elif answers:
            asked |= {"answers": [], "is_impossible": True}
        articles.append({"title": "", "paragraphs": [{"context": context, "qas": [asked]}]})
    return json.dumps({"data": articles})


LABELLED: list[GapScores] = [("word1 good", context_of(12, 100 + number)) for number in range(16)]
ANSWERS: list[tuple[str, int] | None] = [(context.split()[0], 0) for _, context in LABELLED]


@pytest.fixture(scope="module")
def teacher(base_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher of random weights that is of opinions."""
    model, tokenizer = start_from(base_folder, predicts="span", labels=(), seed=3)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.mul_(3)
        for parameter in model.heads.parameters():
            parameter.mul_(20)
    folder = tmp_path_factory.mktemp("spans") / "model"
    save_model(folder, model, tokenizer)
    return folder


def labelled(
    folder: Path, teacher: Path, answers: Sequence[tuple[str, int] | None] = ANSWERS
) -> Prepared:
    file, task = folder / "train.json", task_named("span")
    file.write_text(squad(LABELLED, answers))
    rows = list(task.reader.labelled(file, Reading()))
    data = LabelledData(task=task, labels=(), train=rows[2:], dev=rows[:2], dev_is_cut=False)
    return prepare(data, load_model(teacher)[1], ROOM)


def sample_requests(rows: Sequence[Question]) -> list[GapScores]:
    return [(row.question, row.context) for row in rows]


@dataclass(frozen=True)
class Theirs:
    """What transformers' model answers: the logits of each window, the best span, the doubt."""

    ids: list[list[int]]
    logits: list[np.ndarray[Any, np.dtype[np.float32]]]
    words: tuple[int, int]
    doubt: float


@torch.no_grad()
def theirs_of(folder: Path, question: str, context: str) -> Theirs:
    """The answer by the rules of SQuAD's original code, of windows that transformers cuts."""
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    given = AutoTokenizer.from_pretrained(folder)(
        question, context, truncation="only_second", max_length=ROOM.longest, stride=ROOM.overlap,
        return_overflowing_tokens=True,
    )  # fmt: skip
    logits, places, count = [], [], len(context.split())
    for number, ids in enumerate(given["input_ids"]):
        segments = torch.tensor([given["token_type_ids"][number]])
        out = model(input_ids=torch.tensor([ids]), token_type_ids=segments)
        logits.append(torch.stack([out.start_logits[0], out.end_logits[0]], 1).numpy())
        # each word is one token
        own = given.sequence_ids(number)
        first = given.token_to_chars(number, own.index(1)).start
        begin = context[:first].count(" ")
        places.append((begin, own.index(1), own.count(1)))
    best, span = -np.inf, (0, 0)
    for logit, (begin, offset, length) in zip(logits, places, strict=True):
        for start in range(length):
            if best_seen(begin + start, [(b, n) for b, _, n in places]) != begin:
                continue
            for end in range(start, min(length, start + MAX_ANSWER_LENGTH)):
                score = logit[offset + start, 0] + logit[offset + end, 1]
                if score > best:
                    best, span = float(score), (begin + start, begin + end)
    assert span[1] < count
    none = min(float(logit[0].sum()) for logit in logits)
    return Theirs(given["input_ids"], logits, span, none - best)


def best_seen(word: int, windows: list[tuple[int, int]]) -> int:
    """The beginning of the window in which a word has most context ("max context")."""
    held = [(begin, size) for begin, size in windows if begin <= word < begin + size]
    return max(held, key=lambda w: (min(word - w[0], w[0] + w[1] - 1 - word), -w[0]))[0]


# transformers' pipeline makes arrays of tensors in a way that numpy warns of
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_answers_and_soft_targets_are_those_of_transformers(teacher: Path, tmp_path: Path) -> None:
    rows, file = labelled(tmp_path, teacher), tmp_path / "more.json"
    file.write_text(squad(QUESTIONS))
    read = read_unlabelled(file, rows.data, Reading(), tmp_path / "train.json")
    assert sample_requests(read) == QUESTIONS
    found = with_teacher_answers(load_model(teacher)[0], rows, read)
    encoded = prepare(replace(rows.data, train=found), rows.tokenizer, ROOM).train
    wanted = TeacherOutputs(taps=NO_TAPS, answer="span", precision="fp32")
    taught = TeacherRows(teacher, encoded, wanted, torch.device("cpu"))
    unit, answers, cut = 0, set(), 0
    ask = pipeline("question-answering", model=str(teacher), tokenizer=str(teacher), device="cpu")
    for row in found:
        theirs = theirs_of(teacher, row.question, row.context)
        first, last = theirs.words
        (answer,) = row.answers
        assert answer.text == " ".join(row.context.split()[first : last + 1])
        assert row.context[: answer.start].count(" ") == first
        if len(theirs.ids) == 1:
            told = ask(
                question=row.question, context=row.context, max_answer_len=30, align_to_words=False
            )
            assert (told["answer"], told["start"]) == (answer.text, answer.start)
        assert not row.impossible
        answers.add(answer.text)
        for ids, logits in zip(theirs.ids, theirs.logits, strict=True):
            assert encoded.ids[unit].tolist() == ids
            soft = taught.of(np.array([unit]))[LOGITS].numpy()
            assert soft == pytest.approx(logits, abs=1e-4)
            assert encoded.labels is not None
            start, end = encoded.labels[unit].tolist()
            if start:
                pieces = [rows.tokenizer.vocabulary[id_] for id_ in ids[start : end + 1]]
                assert " ".join(pieces) == answer.text
            else:
                # not whole in this window: there is none in it, as in training
                assert end == 0
                cut += 1
            unit += 1
    assert unit == len(encoded) > len(found)
    assert len(answers) > 5
    assert cut


@pytest.mark.parametrize("kept", [True, False])
def test_no_answer_is_a_label_where_the_teacher_knows_of_it(
    teacher: Path, tmp_path: Path, *, kept: bool
) -> None:
    """By its threshold, or where none is likelier if it keeps none and labelled rows lack some."""
    answers = list(ANSWERS)
    answers[5] = None
    rows, file = labelled(tmp_path, teacher, ANSWERS if kept else answers), tmp_path / "more.json"
    # of a teacher of random weights none is likeliest where there is little to choose from
    asked = [(q, c if kept else " ".join(c.split()[:2])) for q, c in QUESTIONS]
    file.write_text(squad(asked))
    doubts = [theirs_of(teacher, *request).doubt for request in asked]
    threshold, model = 0.0, load_model(teacher)[0]
    if kept:
        ordered = sorted(doubts)
        threshold = (ordered[8] + ordered[9]) / 2
        model.config = replace(model.config, no_answer=threshold)
    read = read_unlabelled(file, rows.data, Reading(), tmp_path / "train.json")
    found = with_teacher_answers(model, rows, read)
    assert [row.impossible for row in found] == [doubt > threshold for doubt in doubts]
    assert [bool(row.answers) for row in found] == [doubt <= threshold for doubt in doubts]
    encoded = prepare(replace(rows.data, train=found), rows.tokenizer, ROOM).train
    assert encoded.labels is not None
    assert encoded.owners is not None
    silent = [row for row, result in enumerate(found) if result.impossible]
    assert not np.asarray(encoded.labels)[np.isin(encoded.owners, silent)].any()
    assert 0 < len(silent) < len(found)


def table(rows: Sequence[GapScores], names: tuple[str, str]) -> str:
    return "".join(",".join((q, c)) + "\n" for q, c in [names, *rows])


LAYOUTS = {
    "SQuAD's JSON": ("more.json", squad(QUESTIONS)),
    "a table": ("more.csv", table(QUESTIONS, ("question", "context"))),
    "records": (
        "more.jsonl",
        "".join(json.dumps({"question": q, "context": c}) + "\n" for q, c in QUESTIONS),
    ),
    "a list of records": (
        "more.json", json.dumps([{"id": c[:30], "question": q, "context": c} for q, c in QUESTIONS])
    ),
    "other answers, which are not read": (
        "more.json", squad(QUESTIONS, [(c.split()[0], 0) for _, c in QUESTIONS])
    ),
    "SQuAD's JSON beside named columns": ("more.json", squad(QUESTIONS)),
    "named columns": ("more.csv", table(QUESTIONS, ("asked", "passage of text"))),
    "a blank question": ("more.csv", table([("", "word2"), *QUESTIONS], ("question", "context"))),
}  # fmt: skip


@pytest.mark.parametrize("case", LAYOUTS)
def test_files_are_read_as_predict_reads_them(teacher: Path, tmp_path: Path, case: str) -> None:
    rows, (name, text) = labelled(tmp_path, teacher), LAYOUTS[case]
    (tmp_path / name).write_text(text)
    named = Columns(text="passage of text", text_pair="asked", id="number")
    reading = Reading(columns=named) if "named columns" in case else Reading()
    read = read_unlabelled(tmp_path / name, rows.data, reading, tmp_path / "train.csv")
    assert sample_requests(read) == QUESTIONS


def test_questions_that_are_labelled_and_texts_to_measure_with_are_left_out(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, file = labelled(tmp_path, teacher), tmp_path / "more.json"
    measured, known = LABELLED[0][1], LABELLED[7]
    asked = [known, ("word2 bad", known[1]), ("word2 bad", measured), QUESTIONS[0]]
    file.write_text(squad(asked))
    read = read_unlabelled(file, rows.data, Reading(), tmp_path / "train.json")
    # another question about a text to train with is none of the labelled ones
    assert sample_requests(read) == [asked[1], asked[3]]
    told = " ".join(capsys.readouterr().err.split())
    assert "unlabelled: 2 questions of" in told
    assert "; 2 left out that are among the labelled ones, or of the same text as one to" in told


BAD = {
    "no question": ("more.csv", "context,answer\nword1 word2,word1\n", "has no 'question'"),
    "no context": ("more.jsonl", '{"question": "word1"}\n', "has no 'context'"),
    "not JSON": ("more.json", '{"data": [', "more.json"),
    "lines": ("more.txt", "word1 word2\n", "more.txt"),
    "a second id": (
        "more.csv", "id,question,context\n1,word1,word2\n1,word2,word2\n", "used by an earlier"
    ),
    "labelled ones alone": ("more.json", squad(LABELLED), "has no questions that are not among"),
    "an empty file": ("more.json", "", "more.json"),
    "nothing in it": ("more.json", '{"data": []}', "more.json"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_refused_in_a_line(teacher: Path, tmp_path: Path, case: str) -> None:
    rows, (name, text, said) = labelled(tmp_path, teacher), BAD[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as refused:
        read_unlabelled(tmp_path / name, rows.data, Reading(), tmp_path / "train.json")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_students_learn_from_them_and_the_plain_one_makes_as_many_steps(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.json").write_text(squad(LABELLED[:8], ANSWERS[:8]))
    (tmp_path / "dev.json").write_text(squad(LABELLED[8:], ANSWERS[8:]))
    (tmp_path / "more.jsonl").write_text(
        "".join(json.dumps({"question": q, "context": c}) + "\n" for q, c in QUESTIONS)
    )
    outcome = distil(
        DistilConfig(
            teacher=teacher, data=tmp_path / "train.json", dev=tmp_path / "dev.json",
            out=tmp_path / "out", method=("distilbert", "tinybert", "minilm"), seeds=1,
            student=StudentConfig(student="1/24"), side_by_side=1,
            teaching=TeachingConfig(unlabelled=tmp_path / "more.jsonl"),
            settings=FinetuneSettings(
                epochs=2, batch_size=4, learning_rate=3e-3, precision="fp32", max_length=40,
                stride=13, baseline=False,
            ),
        )
    )  # fmt: skip
    assert isinstance(outcome, DistilOutcome)
    assert "unlabelled: 20 questions of" in " ".join(capsys.readouterr().err.split())
    assert outcome.contenders[0].scores[0].keys() == {"f1", "exact_match"}
    steps = {
        name: json.loads((tmp_path / f"out/{name}/seed-0/result.json").read_text())["losses"][-1][0]
        for name in ("distilbert", "tinybert", "minilm", "plain")
    }
    # 8 windows of labelled questions, 12 + 4 x 2 + 4 x 3 of the others, by fours, twice; as many
    # of the labelled ones are 10 epochs of 2 steps
    assert steps == {"distilbert": 20, "tinybert": 20, "minilm": 20, "plain": 20}


def test_options_are_chosen_by_the_teacher_as_by_transformers(
    base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(2)
    rows = [
        {
            "question": context_of(4, int(seed)),
            "choices": [context_of(3, int(seed) + n) for n in range(1, 4)],
        }
        for seed in random.integers(0, 10_000, 30)
    ]
    train = "".join(json.dumps(row | {"label": n % 3}) + "\n" for n, row in enumerate(rows[:10]))
    (tmp_path / "train.jsonl").write_text(train)
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[9:]))
    task = task_named("choice")
    model, tokenizer = start_from(base_folder, predicts="choice", labels=(), seed=3)
    with torch.no_grad():
        for parameter in (*model.encoder.parameters(), *model.heads.parameters()):
            parameter.mul_(3)
    save_model(tmp_path / "model", model, tokenizer)
    read = list(task.reader.labelled(tmp_path / "train.jsonl", Reading()))
    data = LabelledData(task=task, labels=(), train=read, dev=read[:2], dev_is_cut=False)
    prepared = prepare(data, tokenizer, ReadingLimits(longest=40, long="head"))
    more = read_unlabelled(tmp_path / "more.jsonl", data, Reading(), tmp_path / "train.jsonl")
    assert [list(row.choices) for row in more] == [row["choices"] for row in rows[10:]]
    found = with_teacher_answers(load_model(tmp_path / "model")[0], prepared, more)
    theirs = AutoModelForMultipleChoice.from_pretrained(tmp_path / "model").eval()
    words = AutoTokenizer.from_pretrained(tmp_path / "model")
    best = []
    for row in more:
        given = words([row.text] * 3, list(row.choices), padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = theirs(**{name: value[None] for name, value in given.items()}).logits
        best.append(int(logits.argmax()))
    assert [row.label for row in found] == best
    assert len(set(best)) > 1
    outcome = distil(
        DistilConfig(
            teacher=tmp_path / "model", data=tmp_path / "train.jsonl", out=tmp_path / "out",
            dev=tmp_path / "train.jsonl", method=("minilm",), seeds=1, side_by_side=1,
            student=StudentConfig(student="1/24"),
            teaching=TeachingConfig(unlabelled=tmp_path / "more.jsonl"),
            settings=FinetuneSettings(
                epochs=1, batch_size=5, learning_rate=3e-3, precision="fp32", max_length=40,
                baseline=False,
            ),
        )
    )  # fmt: skip
    assert isinstance(outcome, DistilOutcome)
    assert "unlabelled: 20 questions of" in " ".join(capsys.readouterr().err.split())
