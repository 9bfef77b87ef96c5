"""Tables with bad rows."""

from __future__ import annotations

from collections.abc import Iterator

from bad_files.bad import LONG_NUMBER, Bad, csv, jsonl, parquet_of, tsv


def of_csv() -> Iterator[Bad]:
    quote = "',' expected after '\"'"
    yield Bad("short", csv(b"alone"), "class", "1 column where the first row has 2")
    yield Bad("long", csv(b"x,y,a"), "class", "3 columns where the first row has 2")
    yield Bad("two", csv(b"alone\nalone"), "class", "1 column", refused=2)
    yield Bad("semicolon", csv(b"x;a"), "class", "1 column")
    yield Bad("text", csv(b",a"), "class", "the text is empty")
    yield Bad("blank", csv(b"  ,a"), "class", "the text is empty")
    yield Bad("no-break", csv("\u00a0\u2003,a".encode()), "class", "the text is empty")
    yield Bad("quoted-nothing", csv(b'"",a'), "class", "the text is empty")
    yield Bad("label", csv(b"x,"), "class", "no label")
    yield Bad("label-blank", csv(b"x,  "), "class", "no label")
    yield Bad("label-nan", csv(b"x,nan"), "class", "no label")
    yield Bad("label-NaN", csv(b"x,NaN"), "class", "no label")
    yield Bad("zero", csv(b"x\0y,a"), "class", "a zero byte in the text")
    yield Bad("quote", csv(b'"x"y,a'), "class", f"not CSV: {quote}")
    yield Bad("quote-open", csv(b'"x,a'), "class", "not CSV: unexpected end of data")
    yield Bad("quotes-open", csv(b'"x,a\n"y,a'), "class", f"not CSV: {quote}", refused=2)
    yield Bad("quote-late", csv(b'x,"a'), "class", "not CSV: unexpected end of data")
    many = b"x,a\n" * 400
    yield Bad("quote-first", csv(b'"x,a\n' + many), "class", "not CSV", kept=402)
    yield Bad("quote-far", csv(b'"x,a\n' + many * 3), "class", "not CSV", kept=1202)
    yield Bad("latin", csv(b"caf\xe9,a"), "class", "is not UTF-8: byte 0xE9")
    yield Bad("windows", csv(b"it\x92s,a"), "class", "is not UTF-8: byte 0x92")
    yield Bad("half", csv(b"caf\xc3,a"), "class", "is not UTF-8: byte 0xC3")
    yield Bad("surrogate", csv(b"\xed\xa0\x80,a"), "class", "is not UTF-8: byte 0xED")
    yield Bad("latin-inside", csv(b'"x\ncaf\xe9",a'), "class", "byte 0xE9", line=4)
    yield Bad("return", csv(b"x\ry,a"), "class", "1 column", kept=3)
    yield Bad("new-label", csv(b"x,c"), "dev", "the label 'c' is new")
    yield Bad("case-label", csv(b"x,A"), "dev", "the label 'A' is new")
    head = b"id,text,label\n1,x,a\n"
    yield Bad("again", head + b"1,y,a\n2,z,a\n", "id", "the id '1' is used in an earlier row too")
    yield Bad("no-id", head + b",y,a\n2,z,a\n", "id", "no id")


def of_tsv() -> Iterator[Bad]:
    yield Bad("short", tsv(b"alone"), "class", "1 column where the first row has 2")
    yield Bad("long", tsv(b"x\ty\ta"), "class", "3 columns where the first row has 2")
    yield Bad("text", tsv(b"\ta"), "class", "the text is empty")
    yield Bad("label", tsv(b"x\t"), "class", "no label")
    yield Bad("zero", tsv(b"x\0\ta"), "class", "a zero byte in the text")
    yield Bad("latin", tsv(b"caf\xe9\ta"), "class", "is not UTF-8: byte 0xE9")
    yield Bad("cut", tsv(b"x\ta")[:-1] + b"\n\xc3", "class", "in the middle of a char", 5, 3)
    head, good = b"sentence1\tsentence2\tlabel", b"x\ty\ta"
    yield Bad("pair", tsv(b"x\t\ta", head, good), "class", "the second text is empty")
    yield Bad("first", tsv(b"\ty\ta", head, good), "class", "the text is empty")
    yield Bad("ragged", tsv(b"x\ty\tz\ta", head, good), "class", "4 columns")
    for label in ("abc", "1,5,0", ",5", "1 2", "--1", "0x1F", "one"):
        yield Bad(label, tsv(f"x\t{label}".encode(), good=b"x\t1"), "number", "is not a number: ")
    for label in ("1,234", "-20,000"):
        yield Bad(label, tsv(f"x\t{label}".encode(), good=b"x\t1"), "number", f"'{label}' is ")
    for label in ("nan", "NaN", "inf", "-inf", "Infinity", "1e999"):
        yield Bad(label, tsv(f"x\t{label}".encode(), good=b"x\t.5"), "number", "not a finite")
    yield Bad("none", tsv(b"x\t", good=b"x\t1"), "number", "no label")
    for label in ("a||b", "|a", "a|", "a| |b", "|"):
        row = f"x\t{label}".encode()
        yield Bad(label.replace("|", "I"), tsv(row), "classes", "an empty label among several")
    yield Bad("list", tsv(b"x\t[a"), "classes", "the labels are not a list")
    yield Bad("list-of", tsv(b'x\t[["a"]]'), "classes", "neither string nor number")
    flags, good = b"text\trude\tloud", b"x\t0\t1"
    for flag in ("2", "maybe", "x", "", "0.5", "-1"):
        row = f"x\t{flag}\t0".encode()
        yield Bad(f"flag{flag}", tsv(row, flags, good), "flags", "'rude' is ")
    ranked, good = b"query\tpassage\trelevance", b"q\tp\t1"
    yield Bad("passage", tsv(b"q\t\t1", ranked, good), "rank", "the second text is empty")
    yield Bad("query", tsv(b"\tp\t1", ranked, good), "rank", "the text is empty")
    yield Bad("relevance", tsv(b"q\tp\thigh", ranked, good), "rank", "not a number: 'high'")
    yield Bad("relevance-nan", tsv(b"q\tp\tnan", ranked, good), "rank", "not a finite number")
    yield Bad("relevance-below", tsv(b"q\tp\t-1", ranked, good), "rank", "the relevance is -1.0")
    yield Bad("unranked", tsv(b"q\tp\t", ranked, good), "rank", "no label")


def of_jsonl() -> Iterator[Bad]:
    for name, row in {
        "brace": "{",
        "quotes": "{'text': 'x', 'label': 'a'}",
        "comma": '{"text": "x" "label": "a"}',
        "trailing": '{"text": "x", "label": "a"} x',
        "last-comma": '{"text": "x", "label": "a",}',
        "deep": "[" * 100_000,
        "control": '{"text": "a\tb", "label": "a"}',
        "csv": "x,a",
    }.items():
        yield Bad(name, jsonl(row), "class", "not JSON: ", 2)
    digits = '{"text": "x", "label": ' + "9" * 5000 + "}"
    yield Bad("digits", jsonl(digits), "class", f"not JSON: {LONG_NUMBER}", 2)
    for name, row in {
        "list": "[1]",
        "null": "null",
        "number": "3",
        "string": '"x"',
        "NaN": "NaN",
    }.items():
        yield Bad(name, jsonl(row), "class", "not a JSON object", 2)
    for name, text in {"1": "1", "list": '["x"]', "dict": '{"x": 1}', "true": "true"}.items():
        row = f'{{"text": {text}, "label": "a"}}'
        yield Bad(f"text-{name}", jsonl(row), "class", "the text is not a string", 2)
    for name, text in {"null": "null", "empty": '""', "blank": '" \\n"'}.items():
        row = f'{{"text": {text}, "label": "a"}}'
        yield Bad(f"text-{name}", jsonl(row), "class", "the text is empty", 2)
    row = '{"text": {"body": "x"}, "label": "a"}'
    yield Bad("inner", jsonl(row), "class", "is not a string but an object", 2)
    yield Bad("zero", jsonl('{"text": "a\\u0000", "label": "a"}'), "class", "a zero byte", 2)
    yield Bad("key", jsonl('{"Text": "x", "label": "a"}'), "class", "has no 'text'", 2)
    yield Bad("latin", jsonl(b'{"text": "\xe9", "label": "a"}'), "class", "byte 0xE9", 2)
    for name, label in {"null": "null", "NaN": "NaN", "empty": '""'}.items():
        row = f'{{"text": "x", "label": {label}}}'
        yield Bad(f"label-{name}", jsonl(row), "class", "no label", 2)
    yield Bad("no-label", jsonl('{"text": "x"}'), "class", "no label", 2)
    row = '{"text": "x", "label": [1, 2]}'
    yield Bad("label-lists", jsonl(row), "class", "2 labels instead of one", 2)
    for name, label in {"list": "[[1]]", "dict": '{"a": 1}'}.items():
        row = f'{{"text": "x", "label": {label}}}'
        yield Bad(f"label-{name}", jsonl(row), "class", "neither string nor number", 2)
    good = b'{"text": "x", "label": 2.5}'
    for label, message in {
        "true": "is not a number",
        "NaN": "is nan, not a finite number",
        "Infinity": "is inf, not a finite number",
        "[1]": "is not a number",
        '"high"': "is not a number: 'high'",
        "9" + "0" * 400: "is not a number",
        "null": "no label",
    }.items():
        row = f'{{"text": "x", "label": {label}}}'
        yield Bad(f"number-{label[:9].strip('[]')}", jsonl(row, good), "number", message, 2)
    good = b'{"text": "x", "label": ["a", "b"]}'
    for label, message in {
        "null": "no label",
        "[null]": "an empty label",
        '["a", ""]': "an empty label",
        '[["a"]]': "neither string nor number",
        '{"a": 1}': "neither string nor number",
    }.items():
        row = f'{{"text": "x", "label": {label}}}'
        yield Bad(f"classes-{len(label)}", jsonl(row, good), "classes", message, 2)


def of_lines() -> Iterator[Bad]:
    good = b"LOC:city Where is it ?\n"
    for name, line, message in (
        ("alone", b"LOC:city", "the text is empty"),
        ("unnamed", b":city Where ?", "no label"),
        ("latin", b"LOC:city caf\xe9 ?", "is not UTF-8: byte 0xE9"),
        ("zero", b"LOC:city x\0 ?", "a zero byte in the text"),
    ):
        yield Bad(f"{name}.label", good + line + b"\n" + good, "label-first", message, 2)
    yield Bad("empty.label", b"", "label-first", "holds no examples", None, None)


def of_parquet() -> Iterator[Bad]:
    rows = parquet_of(text=["x", None, " ", "y"], label=["a", "a", "a", "b"])
    yield Bad("rows.parquet", rows, "class", "the text is empty", 2, 2, 2)
    numbers = parquet_of(text=["x", "y"], label=[0.5, float("nan")])
    yield Bad("numbers.parquet", numbers, "number", "is nan, not a finite number", 2, 1)
    typed = parquet_of(text=[1, 2], label=["a", "b"])
    yield Bad("typed.parquet", typed, "class", "the text is not a string", 1, None)
