"""Files of GLUE with bad rows."""

from __future__ import annotations

from collections.abc import Iterator

from bad_files.bad import Bad


def of_glue() -> Iterator[Bad]:
    def table(head: str, good: str, bad: str) -> bytes:
        rows = [head, good, bad, good] if head else [good, bad, good]
        return "".join(f"{row}\n" for row in rows).encode()

    good = "gj04\t1\t\tGood."
    for name, row, message in (
        ("2", "gj04\t2\t\tBad.", "the label '2' is not one of CoLA's: 0, 1"),
        ("word", "gj04\tacceptable\t\tBad.", "'acceptable' is not one of"),
        ("none", "gj04\t\t\tBad.", "no label"),
        ("short", "gj04\t1\tBad.", "3 columns where the first row has 4"),
        ("empty", "gj04\t1\t\t", "the text is empty"),
    ):
        yield Bad(f"cola-{name}.tsv", table("", good, row), "CoLA", message, 2)
    head, good = "index\tsentence", "0\tGood."
    again = table(head, good, "0\tBad.").replace(b"0\tGood.\n", b"5\tGood.\n", 1)
    yield Bad("cola-test.tsv", again, "CoLA test", "the id '0' is used in an earlier row too", 4)
    yield Bad("cola-index.tsv", b"index\tsentence\n0\tx\n\ty\n1\tz\n", "CoLA test", "no id")
    yield Bad("cola-nothing.tsv", b"", "CoLA", "holds no examples", None, None)
    yield Bad("sst.tsv", table("sentence\tlabel", "x\t1", "y\tpos"), "SST-2", "the label 'pos'")
    yield Bad("sst-head.tsv", b"text\tlabel\nx\t1\n", "SST-2", "no column 'sentence'", 1, None)
    yield Bad("sst-empty.tsv", b"sentence\tlabel\n", "SST-2", "holds no examples", None, None)
    head, good = "index\tsentence1\tsentence2\tscore", "0\tx\ty\t5.000"
    for score, message in {
        "5.1": "the score 5.1 is not from 0 to 5",
        "-0.2": "the score -0.2 is not from 0 to 5",
        "nan": "not a finite number",
        "high": "not a number: 'high'",
        "": "no label",
    }.items():
        data = table(head, good, f"1\tx\ty\t{score}")
        yield Bad(f"sts{score}.tsv", data, "STS-B", message)
    head, good = "index\tsentence1\tsentence2\tlabel1\tgold_label", "0\tx\ty\tneutral\tneutral"
    yield Bad("mnli.tsv", table(head, good, "1\tx\ty\tneutral\t-"), "MNLI", "'-' is not one of")
    head, good = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t1\t2\tx\ty\t0"
    yield Bad("qqp.tsv", table(head, good, "1\t1\t2\tx"), "QQP", "4 columns where the first row")
    yield Bad("qqp-blank.tsv", table(head, good, "1\t1\t2\tx\t\t0"), "QQP", "second text is empty")
    head, good = "index\tsentence1\tsentence2\tlabel", "0\tx\ty\tentailment"
    yield Bad("rte.tsv", table(head, good, "1\tx\ty\tEntailment"), "RTE", "'Entailment' is not one")
    head, good = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t1\t2\tx\ty"
    yield Bad("mrpc.tsv", table(head, good, "1\t1\t2\tx y"), "MRPC", "4 columns where the first")
