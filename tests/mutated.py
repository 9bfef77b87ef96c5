"""Good files of every kind, and what chance makes of them."""

from __future__ import annotations

import gzip
import io
import json
import random

import pyarrow as pa
from pyarrow import parquet

_WORDS = ("Ann", "runs", "to", "Rome", "caf\u00e9", "\U0001f600", "5'10\"", "a,b", "x|y", "don't")

_STORY = "\tone: Who?\tAnn\tBob\tnone\tboth"


def _texts(number: int) -> list[str]:
    chance = random.Random(number)
    return [" ".join(chance.choices(_WORDS, k=chance.randint(1, 6))) for _ in range(12)]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _squad() -> str:
    context = "Ann runs to Rome. The caf\u00e9 is closed."
    answers = [{"text": "Rome", "answer_start": 12}]
    asked = [{"id": str(n), "question": f"Where {n}?", "answers": answers} for n in range(4)]
    none = {"id": "n", "question": "Why?", "answers": [], "is_impossible": True}
    paragraphs = [{"context": context, "qas": asked}, {"qas": [none], "context": context}]
    data = [{"title": "x", "paragraphs": paragraphs}]
    return json.dumps({"version": "2.0", "data": data}, indent=1)


def _copa() -> str:
    item = '<item id="{}" asks-for="effect" most-plausible-alternative="{}">\n'
    inside = "<p>Ann fell.</p>\n<a1>It hurt.</a1>\n<a2>It rained &amp; snowed.</a2>\n</item>\n"
    items = "".join(item.format(number, 1 + number % 2) + inside for number in range(5))
    return f'<?xml version="1.0"?>\n<!DOCTYPE copa SYSTEM "copa.dtd">\n<copa>\n{items}</copa>\n'


def _records() -> list[dict[str, object]]:
    return [{"text": text, "label": "a"} for text in _texts(3)]


def _rte() -> str:
    pair = '<pair id="{}" value="TRUE">\n<t>Ann fell &amp; lay.</t>\n<h>It hurt.</h></pair>\n'
    return "<all>\n" + "".join(pair.format(number) for number in range(6)) + "</all>\n"


def _asked() -> str:
    answers = "{'text': array(['Rome'], dtype=object), 'answer_start': array([10])}"
    row = '{},"Where, then?","Ann is in Rome.","' + answers.replace("{", "{{").replace("}", "}}")
    rows = "".join(row.format(number) + '"\n' for number in range(6))
    return "id,question,context,answers\n" + rows


def _conll(scheme: str) -> str:
    tags = {
        "bio1": ("I-PER", "O", "I-LOC", "I-LOC", "B-LOC"),
        "bio2": ("B-PER", "O", "B-LOC", "I-LOC", "B-LOC"),
        "bioes": ("S-PER", "O", "B-LOC", "E-LOC", "S-LOC"),
        "plain": ("NNP", "IN", "NNP", "NNP", "NNP"),
    }[scheme]
    words = ("Ann", "in", "Los", "Angeles", "Nevada")
    sentence = "".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True))
    return "-DOCSTART- O\n\n" + f"{sentence}\n" * 4


def _parquet() -> bytes:
    buffer = io.BytesIO()
    table = pa.table({"text": _texts(5), "label": [n % 2 for n in range(12)]})
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _rows(head: str, row: str) -> str:
    """A line for each text, `row` with its text, that in quotes and its number put in."""
    lines = [row.format(t=text, q=_quoted(text), n=n) for n, text in enumerate(_texts(1))]
    return "".join(f"{line}\n" for line in ([head] if head else []) + lines)


def _objects(**keys: object) -> str:
    return "".join(json.dumps({"text": text} | keys) + "\n" for text in _texts(2))


def good_files() -> dict[str, tuple[bytes, str]]:
    """Content and reader of a good file of each kind, by its name."""
    swag = "id,sent1,sent2,ending0,ending1,label"
    tokens = {"tokens": ["Ann", "runs"], "tags": ["B-PER", "O"]}
    files = {
        "class.csv": (_rows("text,label", "{q},{n}"), "class"),
        "pair.tsv": (_rows("sentence1\tsentence2\tlabel", "{t}\t{t}\ta"), "class"),
        "class.jsonl": (_objects(label="a"), "class"),
        "several.jsonl": (_objects(labels=["a", "b"]), "classes"),
        "flags.tsv": (_rows("text\trude\tloud", "{t}\t0\t1"), "flags"),
        "number.tsv": (_rows("text\tscore", "{t}\t{n}.5"), "number"),
        "rank.tsv": (_rows("query\tpassage\tlabel", "q\t{t}\t1"), "rank"),
        "id.csv": (_rows("id,text,label", "{n},{q},b"), "id"),
        "lines.label": (_rows("", "LOC:city {t}"), "label-first"),
        "squad.json": (_squad(), "span"),
        "records.json": (json.dumps(_records(), indent=1), "class"),
        "data.json": (json.dumps({"v": 1, "data": _records()}), "class"),
        "fast.txt": (_rows("", "__label__a __label__b {t}"), "classes"),
        "rte.xml": (_rte(), "class"),
        "asked.csv": (_asked(), "span"),
        "copa.xml": (_copa(), "choice"),
        "choice.jsonl": (_objects(choices=["yes", "no", "so"], label=3), "choice"),
        "swag.csv": (_rows(swag, "{n},{q},She,runs,walks,1"), "choice"),
        "marked.jsonl": (_objects(entities=[[0, 1, "X"]]), "tag"),
        "tokens.jsonl": (f"{json.dumps(tokens)}\n" * 6, "tag"),
        "stories.tsv": (_rows("", f"s{{n}}\tx\t{{t}}\\newline{{t}}{_STORY * 4}"), "stories"),
        "joined.txt": (_rows("", "Ann_NNP runs_VB to_IN Rome_NNP"), "tag"),
        "lettered.tsv": (_rows("question\tA\tB\tC\tanswer", "{t}\tyes\tno\t{n}\tB"), "choice"),
        "cola.tsv": (_rows("", "gj04\t1\t\t{t}"), "CoLA"),
        "cola-test.tsv": (_rows("index\tsentence", "{n}\t{t}"), "CoLA test"),
        "ud.conllu": ("# newdoc\n" + "1\tAnn\tAnn\tPROPN\tNNP\t_\t0\troot\t_\t_\n\n" * 4, "tag"),
        **{f"{name}.conll": (_conll(name), "tag") for name in ("bio1", "bio2", "bioes", "plain")},
    }
    found = {name: (text.encode(), reader) for name, (text, reader) in files.items()}
    packed = gzip.compress(found["class.csv"][0], mtime=0)
    return found | {"table.parquet": (_parquet(), "class"), "class.csv.gz": (packed, "class")}


_PIECES = (
    *(b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\r\n", b"\n\n", b"\t", b",", b'"', b'""', b"|"),
    *(b"{", b"}", b"[", b"]", b"null", b"NaN", b"-1", b"1e999", b"9" * 30, b"\\ud800", b"\\u0000"),
    *(b"I-LOC", b"E-X", b"O", b"-DOCSTART-", b"\xe9", b"\xc3", b"\xed\xa0\x80", b"<a>", b"</p>"),
    *(
        b"&x;",
        b"<!ENTITY x 'y'>",
        b'"answer_start": 3',
        b'"id": "1"',
        b" ",
        "\u2028\u00a0".encode(),
    ),
)


def mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The data with one to four things done to it: bytes changed, cut, doubled, moved, put in."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.choice((1, 1, 2, 8, 60, 500)))
        part = data[start:end]
        lines = data.split(b"\n")
        one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
        other = chance.choice(others)
        place = chance.randint(0, len(other))
        match chance.randrange(9):
            case 0:
                data = data[:start] + bytes([chance.randrange(256)]) + data[start + 1 :]
            case 1:
                data = data[:start] + data[end:]
            case 2:
                data = data[:start] + part * chance.choice((2, 3, 50)) + data[end:]
            case 3:
                data = data[:start]
            case 4 | 5:
                data = data[:start] + chance.choice(_PIECES) + data[start:]
            case 6:
                lines[one], lines[two] = lines[two], lines[one]
                data = b"\n".join(lines)
            case 7:
                data = data[:start] + other[place : place + 80] + data[end:]
            case 8:
                lines.insert(one, lines[two])
                data = b"\n".join(lines)
    return data
