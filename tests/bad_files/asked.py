"""Questions with bad answers, options and labels."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bad_files.bad import Bad, jsonl


def _asked(name: str, **changed: object) -> dict[str, object]:
    answers = [{"text": "Rome", "answer_start": 9}]
    asked = {"id": name, "question": "Where is Ann?", "answers": answers} | changed
    return {key: value for key, value in asked.items() if value is not ...}


def _squad(bad: object, context: object = "Ann is in Rome.") -> bytes:
    """Two good questions and, on line 4, a bad one between them."""
    answers = [{"text": "Rome", "answer_start": 10}]
    good = [json.dumps(_asked(name, answers=answers)) for name in ("1", "2")]
    rows = [f'{{"data": [{{"paragraphs": [{{"context": "Ann is in Rome.", "qas": [\n{good[0]}]}},']
    rows.append(f'{{"context": {json.dumps(context)}, "qas": [')
    rows += [json.dumps(bad) + "]},", f'{{"context": "Ann is in Rome.", "qas": [{good[1]}]}}]}}]}}']
    return "\n".join(rows).encode()


def of_spans() -> Iterator[Bad]:
    for name, answer, message in (
        (
            "before",
            {"text": "Rome", "answer_start": 9},
            "'Rome' is not at 9: there is",
        ),
        ("after", {"text": "Rome", "answer_start": 11}, "is not at 11: there is 'ome.'"),
        ("beyond", {"text": "Rome", "answer_start": 99}, "is not at 99: there is ''"),
        ("negative", {"text": ".", "answer_start": -1}, "is not at -1: there is ''"),
        ("case", {"text": "rome", "answer_start": 10}, "'rome' is not at 10"),
        ("string", {"text": "Rome", "answer_start": "10"}, "an answer without text or"),
        ("float", {"text": "Rome", "answer_start": 10.0}, "an answer without text or"),
        ("true", {"text": "n", "answer_start": True}, "an answer without text or"),
        ("placeless", {"text": "Paris"}, "the answer 'Paris' is not in the context"),
        ("textless", {"answer_start": 10}, "an answer without text or"),
        ("empty", {"text": "", "answer_start": 10}, "an answer without text or"),
        ("word", "Rome", "an answer without text or"),
    ):
        yield Bad(f"{name}.json", _squad(_asked("3", answers=[answer])), "span", message, 4)
    right = [{"text": "Rome", "answer_start": 10}]
    for name, changed, message in (
        ("none", {"answers": []}, "no answer"),
        ("missing", {"answers": ...}, "no answer"),
        ("dict", {"answers": right[0]}, "'answers' is not a list"),
        ("null", {"answers": None}, "'answers' is not a list"),
        ("impossible", {"answers": right, "is_impossible": True}, "impossible, but has answers"),
        ("maybe", {"answers": right, "is_impossible": "no"}, "neither true nor false"),
        ("no-id", {"answers": right, "id": ...}, "no id"),
        ("empty-id", {"answers": right, "id": ""}, "no id"),
        ("true-id", {"answers": right, "id": True}, "no id"),
        ("same-id", {"answers": right, "id": "1"}, "the id '1' is used by an earlier question"),
        ("unasked", {"answers": right, "question": ...}, "the question is empty or not a string"),
        ("blank", {"answers": right, "question": " "}, "the question is empty or not a string"),
        ("list", {"answers": right, "question": ["?"]}, "the question is empty or not a string"),
        ("zero", {"answers": right, "question": "x\0"}, "a zero byte in the question"),
    ):
        yield Bad(f"{name}.json", _squad(_asked("3", **changed)), "span", message, 4)
    asked = _asked("3", answers=right)
    for name, context, message in (
        ("context", "", "the context is empty or not a string"),
        ("context-null", None, "the context is empty or not a string"),
        ("context-list", ["Ann is in Rome."], "the context is empty or not a string"),
        ("context-zero", "Ann is in Rome.\0", "a zero byte in the context"),
        ("context-other", "Bob is in Bonn.", "'Rome' is not at 10: there is 'Bonn'"),
    ):
        yield Bad(f"{name}.json", _squad(asked, context), "span", message, 4)
    yield Bad("no-object.json", _squad("What?"), "span", "a question is not a JSON object", 4)
    good = _squad(asked)
    qas = good.replace(b'"qas": [\n{"id": "3"', b'"questions": [\n{"id": "3"')
    yield Bad("qas.json", qas, "span", "has no list 'qas'", 3)
    articles = good.replace(b'{"data": [', b'{"data": [\n{"title": "x"}, 7,\n')
    yield Bad("articles.json", articles, "span", "has no list 'paragraphs'", 2, 3, 2)
    absent = [{"text": "Paris", "answer_start": 10}]
    yield Bad("mend.json", _squad(_asked("3", answers=absent)), "span", "is not at 10", 4)
    row = {"id": "1", "question": "Where?", "context": "Ann is in Rome."}
    lists = {"text": ["Rome"], "answer_start": [10]}
    rows = [row | {"answers": lists}, row | {"id": "2", "answers": lists | {"answer_start": [9]}}]
    rows += [
        row | {"id": "3", "answers": lists | {"text": []}},
        row | {"id": "4", "answers": lists},
    ]
    table = "\n".join(map(json.dumps, rows)).encode()
    yield Bad("rows.jsonl", table, "span", "is not at 9", 2, 2, 2)


def of_choices() -> Iterator[Bad]:
    good = b'{"question": "Where?", "choices": ["Rome", "Bonn"], "label": 0}'
    for name, rest, message in (
        ("one", '"choices": ["Rome"], "label": 0}', "fewer than two"),
        ("none", '"choices": [], "label": 0}', "fewer than two"),
        ("text", '"choices": "Rome", "label": 0}', "are not a list"),
        ("number", '"choices": 2, "label": 0}', "or not a list"),
        (
            "empty",
            '"choices": ["Rome", ""], "label": 0}',
            "option 1 is empty",
        ),
        (
            "numbers",
            '"choices": [1, 2], "label": 0}',
            "option 0 is not a string",
        ),
        ("high", '"choices": ["a b", "c d"], "label": 2}', "label is '2'"),
        ("letter", '"choices": ["x y", "z"], "label": "C"}', "is 'C'"),
        ("words", '"choices": ["x", "y"], "label": "Paris"}', "is 'Paris'"),
        ("same", '"choices": ["xx", "xx"], "label": "xx"}', "is 'xx'"),
        ("minus", '"choices": ["x", "y"], "label": -1}', "no label"),
        ("null", '"choices": ["x", "y"], "label": null}', "no label"),
        (
            "list",
            '"choices": ["x", "y"], "label": [0]}',
            "neither string nor",
        ),
        ("dict", '"choices": {"text": ["x"]}, "label": 0}', "are not a list"),
    ):
        row = f'{{"question": "Where?", {rest}'
        yield Bad(f"{name}.jsonl", jsonl(row, good), "choice", message, 2)
    row = '{"question": "", "choices": ["x", "y"], "label": 0}'
    yield Bad("unasked.jsonl", jsonl(row, good), "choice", "the question is empty", 2)
    head = b"id,sent1,sent2,ending0,ending1,label\n1,x,He,runs,walks,0\n"
    for name, line, message in (
        ("short", b"2,x,He,runs,walks", "5 columns where the first row has 6"),
        ("ending", b"2,x,He,,walks,0", "option 0 is empty"),
        ("label", b"2,x,He,runs,walks,2", "the label is '2', but there are 2 options"),
        ("unlabelled", b"2,x,He,runs,walks,", "no label"),
        ("first", b"2,,He,runs,walks,0", "the text is empty"),
        ("again", b"1,x,He,runs,walks,0", "the id '1' is used in an earlier row too"),
    ):
        yield Bad(f"swag-{name}.csv", head + line + b"\n3,x,He,runs,walks,1\n", "choice", message)
    yield Bad("names.csv", b"a,b\nx,y\n", "choice", "no columns that look like options", 1, None)
    item = '<item id="{}" asks-for="cause" most-plausible-alternative="{}">{}</item>\n'
    inside = "<p>It rains.</p><a1>Wet.</a1><a2>Dry.</a2>"
    for name, number, label, parts, message in (
        ("high", 2, "3", inside, "the label is '2', but there are 2 options"),
        ("zero", 2, "zero", inside, "the label is 'zero'"),
        ("one", 2, "1", "<p>It rains.</p><a1>Wet.</a1>", "fewer than two options"),
        ("none", 2, "1", "<p>It rains.</p>", "fewer than two options"),
        ("empty", 2, "1", "<p>It rains.</p><a1/><a2>Dry.</a2>", "option 0 is empty"),
        ("premise", 2, "1", "<p> </p><a1>Wet.</a1><a2>Dry.</a2>", "the text is empty"),
        ("again", 1, "1", inside, "the id '1' is used in an earlier row too"),
    ):
        items = (
            item.format(1, 1, inside),
            item.format(number, label, parts),
            item.format(3, 2, inside),
        )
        data = "<copa-corpus>\n" + "".join(items) + "</copa-corpus>\n"
        yield Bad(f"copa-{name}.xml", data.encode(), "choice", message)
