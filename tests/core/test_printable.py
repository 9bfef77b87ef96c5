"""Strings of strangers, as they are shown: nothing that a terminal obeys or a page interprets."""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console

import bertsmith
from bertsmith.cli.commands import COMMANDS
from bertsmith.core.errors import UserError
from bertsmith.core.log import Table, short_number, table_of
from bertsmith.core.output import print_table
from bertsmith.core.printable import (
    counted,
    display_width,
    fitted,
    html,
    markdown,
    padded,
    printable,
    printable_lines,
    rounded,
    shell_word,
    to_millionths,
)
from bertsmith.evaluation.metrics import percent

ANY = st.text(st.characters(exclude_categories=()), max_size=300)
FAMILY = "\U0001f469\u200d\u2764\ufe0f\u200d\U0001f468"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 100 %", "plain text, 100 %"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nbertsmith: done\r\tb", "a\\nbertsmith: done\\r\\tb"),
        ("\x00\x07\x7f\x9b2J", "\\x00\\x07\\x7f\\x9b2J"),
        ("user\u202egnp.exe\u2066x\u2069", "user\\u202egnp.exe\\u2066x\\u2069"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("ze\u200bro\ufeff \u2060w\xad", "ze\\u200bro\\ufeff \\u2060w\\xad"),
        ("\ud800 \ue000 \U000e0041 \u0378", "\\ud800 \\ue000 \\U000e0041 \\u0378"),
        ("caf\udce9.txt", "caf\\xe9.txt"),
        ("\u3164\u115f\u2800\u034f\U000e0100", "\\u3164\\u115f\\u2800\\u034f\\U000e0100"),
        ("葛" + 2 * "\U000e0100", "葛\U000e0100\\U000e0100"),
        ("a\ufe00か\U000e0100ᠡ\ufe00", "a\\ufe00か\\U000e0100ᠡ\\ufe00"),
        ("Z" + 8 * "\u0301" + "a", "Z" + 6 * "\u0301" + "\\u0301\\u0301a"),
        ("a\u200cb", "a\\u200cb"),
        ("label\u200f \u061cA\u200e \u200fשלום", "label\\u200f \\u061cA\\u200e \\u200fשלום"),
        ("שלום\u202e1", "שלום\\u202e1"),
    ],
)
def test_what_a_terminal_would_obey_is_made_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Grüße, naïve façade",
        "北京\u3000大学",
        "日本語の文章",
        "葛\U000e0100城と辻\U000e0101と﨑\ufe00",
        "ᠮᠣᠩᠭ\u180bᠣᠯ ᠪᠠᠭᠰᠢ\u180eᠠ",
        "한국어",
        "ภาษาไทยที่นี่",
        "العَرَبِيَّة",
        "हिन्दी क्\u200dष",
        "می\u200cخواهم",
        "ರ\u200d್ಕ",
        "ភាសា\u200bខ្មែរ",
        "שלום!\u200f C++\u200e",
        "أهلا (1)\u061c.",
        "prix\u202f: 5\xa0€",
        "e\u0301t\u0302",
        FAMILY,
    ],
)
def test_writing_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(ANY, st.integers(1, 60))
def test_any_string_becomes_one_short_line(text: str, longest: int) -> None:
    shown = printable(text, longest)
    assert len(shown) <= longest
    assert len(shown.splitlines()) <= 1
    for character in shown:
        category = unicodedata.category(character)
        assert category[0] != "C" or character in "\u200b\u200c\u200d\u200e\u200f\u061c", ascii(
            character
        )
        assert category not in ("Zl", "Zp")
    shown.encode("utf-8")
    assert printable(shown, longest) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("中文分词", "中文分词"),
        ("中文分词的", "中文分…"),
        ("a中文分词", "a中文…"),
        ("한국어를 읽는다", "한국어…"),
        ("ｶﾅカナカナ", "ｶﾅカナ…"),
        ("éèàùâêî", "éèàùâêî"),
        ("\x1b中文分词", "\\x1b中…"),
    ],
)
def test_a_wide_letter_takes_two_columns(text: str, shown: str) -> None:
    assert fitted(text, 8 if text != "a中文分词" else 7) == shown


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=0xFFFF), max_size=40), st.integers(1, 30)
)
def test_a_line_fits_into_its_columns(text: str, most: int) -> None:
    shown = fitted(text, most)
    assert cell_len(shown) <= most
    assert display_width(padded(shown, most)) == most
    assert shown == printable(text, most) or shown.endswith("…")


@pytest.mark.parametrize(
    ("label", "columns"),
    [
        ("العَرَبِيَّة", 7),  # five marks above and below
        ("ภาษาไทยที่นี่", 9),
        ("\u1112\u1161\u11ab", 2),  # a syllable of Hangul in its letters
        ("👨\u200d👩\u200d👧", 2),
        ("❤\ufe0f", 2),
        ("🚀", 2),
        ("👍🏽", 2),
        ("été", 3),
        ("e\u0301te\u0301", 3),
    ],
)
def test_columns_are_those_of_a_terminal(label: str, columns: int) -> None:
    assert padded(label, 12) == label + " " * (12 - columns)
    assert fitted(label * 9, 9 * columns) == label * 9


def test_a_long_string_costs_no_more_than_is_shown_of_it() -> None:
    shown = printable("\x1b" * 10**7)
    assert shown == 49 * "\\x1b" + "\\x1" + "…"
    assert printable("a" * 200) == "a" * 200
    assert printable("a" * 201) == "a" * 199 + "…"


def test_lines_of_ours_stay_lines() -> None:
    assert printable_lines("a\x1b\n\nb\r\n") == "a\\x1b\n\nb\\r\n"


class Text(HTMLParser):
    """What a browser shows, and whether there was any markup."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.tags: list[str] = []

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


@given(ANY | st.text("<>&\"'/ abscript=!-", max_size=80))
def test_a_page_shows_the_string_and_no_markup(text: str) -> None:
    parser = Text()
    parser.feed(f'<p title="{html(text)}">{html(text)}</p>')
    parser.close()
    assert parser.tags == ["p"]
    assert parser.text == printable(text)


MARKUP = st.text("*_`[]()<>!|#&~$\\-+=.1: \n\tabhtps@/", max_size=60)


@given(ANY | MARKUP)
def test_a_card_shows_the_string_and_no_markup(text: str) -> None:
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = reader.parse(f"{markdown(text)} | cell") if text.strip() else []
    for token in tokens:
        assert token.type in ("paragraph_open", "inline", "paragraph_close"), (token.type, text)
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "text_special"}, text
    shown = "".join(child.content for child in inline)
    assert not tokens or shown.strip() == f"{printable(text)} | cell".strip()


def test_a_card_has_no_links_that_were_not_meant() -> None:
    assert markdown("http://a.b www.a.b WWW.a.b") == "http\\://a.b www\\.a.b WWW\\.a.b"


def test_an_error_quotes_what_it_likes() -> None:
    error = UserError(
        "label 'a\x1b]0;owned\x07\u202e'", where="a  \nb\x1b.txt", line=3, remedy="x\x9b\ny"
    )
    assert str(error) == "a  \\nb\\x1b.txt:3: label 'a\\x1b]0;owned\\x07\\u202e'; x\\x9b y"


def test_nothing_is_printed_past_it() -> None:
    """Terminal and pages are reached through the modules that make strings printable."""
    source = Path(bertsmith.__file__).parent
    direct = re.compile(r"sys\.(stdout|stderr)|^\s*(from|import) (rich|html)\b", re.MULTILINE)
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if direct.search(path.read_text(encoding="utf-8"))
    }
    # serving/log.py stands below core/log.py and hands on what that says; markup.py reads the
    # entities of pages, and prints nothing
    assert found <= {
        "core/log.py",
        "core/output.py",
        "core/printable.py",
        "recipes/resources.py",
        "serving/log.py",
        "text/corpus/markup.py",
    }


@pytest.mark.parametrize(
    ("count", "noun", "nouns", "told"),
    [
        (0, "text", "", "0 texts"),
        (1, "text", "", "1 text"),
        (2000, "text", "", "2,000 texts"),
        (1.0, "minute", "", "1 minute"),
        (0.5, "minute", "", "0.5 minutes"),
        (1, "class", "classes", "1 class"),
        (2, "class", "classes", "2 classes"),
    ],
)
def test_a_count_agrees_with_its_noun(count: float, noun: str, nouns: str, told: str) -> None:
    assert counted(count, noun, nouns) == told


PATHS = [
    "run/model", "my run/model", "it's", 'a "b"', "a$HOME`ls`\\x", "~user", "*.txt", "-dash",
    "a  b", " a", "line\nbreak\ttab", "caf\u00e9 1", "caf\udce9", "\x1b[31m", "\u202egnp",
    "a\u00a0b", "#a;b&c|d",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="asks bash")
@pytest.mark.parametrize("number", [-0.0, -1e-9, -0.0004])
def test_zero_is_shown_without_a_sign(number: float) -> None:
    assert short_number(number) in ("0", "-0.0004")
    assert percent(number / 100) == "0.00"
    assert str(rounded(-0.0)) == "0.0"
    assert str(to_millionths(-1e-9)) == "0.0"


def test_signs_are_shown_of_no_zero() -> None:
    files = Path(bertsmith.__file__).parent.rglob("*.py")
    signed = {file.name: re.findall(r":[<>]?\+\d*\.\df", file.read_text("utf-8")) for file in files}
    assert not {name: found for name, found in signed.items() if found}


def test_a_shell_reads_the_paths_of_shown_commands() -> None:
    errors = [str(UserError("no", remedy=f"give {shell_word(path)}")) for path in PATHS]
    words = [error.removeprefix("no; give ") for error in errors]
    assert words[:2] == ["run/model", "'my run/model'"]
    command = f"printf '%s\\0' {' '.join(words)}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    expected = [f"./{path}" if path.startswith("-") else path for path in PATHS]
    assert done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == expected


VERBS = re.compile(rf"bertsmith ({'|'.join(COMMANDS)}) [^;]*$")


def test_every_shown_command_has_its_paths_fit_for_a_shell() -> None:
    """In each f-string with a command, what follows the verb."""
    found = []
    for path in sorted(Path(bertsmith.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "bertsmith " in text else ():
            if not isinstance(node, ast.JoinedStr):
                continue
            before = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                elif isinstance(part, ast.FormattedValue) and VERBS.search(before):
                    found.append((path.name, ast.unparse(part.value)))
    # options that are made of such words, or of none
    known = {"further", "pairs", "vocabulary"}
    wrong = [
        result
        for result in found
        if not (result[1].startswith(("shell_word(", "typed_options(")) or result[1] in known)
    ]
    assert len(found) > 10
    assert not wrong


def test_what_is_wrong_is_no_question() -> None:
    """A remedy follows it, after a semicolon."""
    asked = re.compile(r"(what = |Error\(|fault\()\s*f?(\"[^\"\n]*\?\"|'[^'\n]*\?')")
    folder = Path(bertsmith.__file__).parent
    sources = {path.name: path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    assert not [name for name, source in sources.items() if asked.search(source)]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "utf-16"])
def test_a_table_is_written_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a terminal of the locale C, or in a file that a program opened in another one."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    table = Table("weiß", "東京")
    table.add_row("plain", "é")
    print_table(table)
    sys.stdout.flush()
    shown = written.getvalue().decode(encoding)
    assert "plain" in shown
    assert ("東京" in shown) == encoding.startswith("utf")


@pytest.mark.parametrize("lined", [True, False])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("columns", ["20", "40", "80"])
def test_no_number_of_a_table_is_cut_in_a_narrow_terminal(
    columns: str,
    whole: bool,
    lined: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    numbers = [f"{10 ** (number % 3)}.5{number} %" for number in range(8)]
    names = [f"{'column'[: number % 5 + 1]}{number}." for number in range(8)]
    row = ("とても長い名前" * 9, *numbers)
    table = table_of(("名前の列", *names), [row], numbers=True, lined=lined)
    # as in the table of models
    for column in table.columns if whole else ():
        column.no_wrap = True
    print_table(table)
    # as the console of standard error
    console = Console(file=io.StringIO(), width=int(columns), soft_wrap=True)
    with console.capture() as captured:
        console.print(table)
    for shown in (capsys.readouterr().out, captured.get()):
        assert all(word in shown for cell in (*numbers, *names) for word in cell.split())
        widths = {display_width(line) for line in shown.splitlines()}
        assert len(widths) == 1
