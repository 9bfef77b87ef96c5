"""Text out of HTML and XML: what is kept, where paragraphs end, and hostile files."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from bertsmith.core.errors import CorpusError
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.corpus.markup import documents_of_markup
from bertsmith.text.opening import TextFile

PAGE = """<!DOCTYPE html>
<html lang=en><head><meta charset="utf-8" /><style>p > a { color: red }</style>
<title>A &amp; B</title>
<style>p { color: red } </style><script>if (a < b && c > d) { x = "</p>"; }</script></head>
<body class='a>b'><!-- not <b>this</b> --><!-->
<h1>Head<i>ing</i></h1><p>One <st1:City w:st="on"><b>bold</b>
line</st1:City>, 3 < 4 &lt;3&nbsp;caf&eacute;.<br/>Next<p>Third
<ul><li>one<li>two</ul><SCRIPT type=x>no</SCRIPT >
<table><tr><td>cell<?XML:NAMESPACE PREFIX = O /></td><td>other<?a > b?></td></tr></table>
</body></html>
"""
PARAGRAPHS = (
    *("A & B", "Heading", "One bold line, 3 < 4 <3 caf\u00e9.", "Next", "Third"),
    *("one", "two", "cell", "other"),
)
DUMP = """<?xml version="1.0"?>
<!DOCTYPE dump [ <!ENTITY big "aaaaaaaaaa"> <!ENTITY file SYSTEM "file:///etc/passwd"> ]>
<tei:dump xmlns:tei="http://x"><doc id="1"><title>First</title><text>Some <hi>text</hi> &big;</text>
<text><![CDATA[<raw> & kept]]></text><text>&gtk; &section; &eacute;</text></doc>
<doc id="2"/><doc id="3"><text>Second &file; &#x41;&amp;</text></doc></tei:dump>
"""


def _read(path: Path) -> list[tuple[str, ...]]:
    return [document.paragraphs for document in Corpus([path])]


@pytest.mark.parametrize("name", ["a.html", "a.HTM", "a.xhtml"])
def test_a_page(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(PAGE, encoding="utf-8")
    assert _read(path) == [PARAGRAPHS]


def test_records_of_xml_are_documents_and_entities_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(DUMP, encoding="utf-8")
    found = list(Corpus([path]))
    assert [document.paragraphs for document in found] == [
        ("First", "Some text &big;", "<raw> & kept", "&gtk; &section; \u00e9"),
        ("Second &file; A&",),
    ]
    assert [document.line for document in found] == [3, 5]


def test_a_document_begins_in_the_line_of_its_first_word(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("\n<!-- a -->\n\n<p>\n<b>\nOne</b>\ntwo</p>", encoding="utf-8")
    (document,) = Corpus([path])
    assert (document.line, document.paragraphs) == (6, ("One two",))


READINGS = (
    "<p><ruby><rb>漢字</rb><rp>（</rp><rt>かんじ</rt><rp>）</rp></ruby>と"
    "<ruby>東<rt>とう</rt>京<rt>きょう</ruby>の<ruby>語<rt>ご<p>次</ruby>の文"
)


def test_readings_over_characters_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text(READINGS, encoding="utf-8")
    assert _read(path) == [("漢字と東京の語", "次の文")]


INLINE = """<p>Energy is <math><semantics><mrow><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup></mrow>
<annotation encoding="application/x-tex">mc^{2}</annotation></semantics></math>, and
<img src=a alt=b> a smile, <svg/>an <svg:svg><svg:title>icon</svg:title></svg:svg>icon,
<picture><source srcset=a><img src=b></picture>all in one.</p><annotation>Other</annotation>
"""


def test_pictures_and_formulas_end_no_paragraph(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text(INLINE, encoding="utf-8")
    assert _read(path) == [("Energy is mc2 , and a smile, an icon, all in one.", "Other")]


DOCBOOK = """<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "" [
<!ENTITY ver "1">
] >
<article><title>ls</title><para>Run <indexterm><primary>files, <tag>list</tag></primary></indexterm>
<command>ls</command><indexterm startref="i"/> with <option>-l</option>.</para>
<table><tgroup cols="2"><tbody><row><entry>-a</entry><entry>all</entry></row></tbody></tgroup>
</table><para>See <ulink url="u">there</ulink>.</para></article>
"""
TEI = """<TEI xmlns="http://www.tei-c.org/ns/1.0"><text><body>
<p>In <date when="1843">1843</date> <persName>Ada</persName> wrote<lb/>letters.</p><p>She had
read <title>The Bridgewater Treatise</title> before.</p>
<table/><table><row><cell>A</cell></row></table><list><item>one</item></list><p>Last.</p>
</body></text></TEI>
"""
JATS = """<article xmlns:mml="http://www.w3.org/1998/Math/MathML"><body>
<p>Of <italic>E. coli</italic>
(<xref rid="b1">1</xref>), <inline-formula><alternatives><mml:math><mml:mi>x</mml:mi></mml:math>
<tex-math>\\usepackage{amsmath}</tex-math></alternatives></inline-formula> holds.</p>
</body></article>
"""


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        (DOCBOOK, ("ls", "Run ls with -l.", "-a", "all", "See there.")),
        (
            TEI,
            (
                "In 1843 Ada wrote letters.",
                "She had read The Bridgewater Treatise before.",
                *("A", "one", "Last."),
            ),
        ),
        (JATS, ("Of E. coli (1), x holds.",)),
    ],
)
def test_articles_are_documents_and_words_in_them_no_paragraphs(
    tmp_path: Path, text: str, paragraphs: tuple[str, ...]
) -> None:
    path = tmp_path / "a.xml"
    path.write_text(text, encoding="utf-8")
    assert _read(path) == [paragraphs]


FEED = """<rss><channel><item><title>A &amp;amp; B</title>
<description>&lt;p&gt;One &lt;b&gt;word&lt;/b&gt;&lt;/p&gt;
&lt;p&gt;Two &amp;lt;3&lt;/p&gt;</description>
<encoded><![CDATA[<!-- x --><p>Three<br />four</p><style>p {}</style>]]></encoded></item>
<item><description>3 &lt; 4 and &lt;b&gt; is bold</description></item>
<item><description>&lt;p&gt;Cut&lt;/p&gt; &lt;!-- off</description></item></channel></rss>
"""


def test_html_inside_xml_is_read_as_html(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(FEED, encoding="utf-8")
    assert _read(path) == [
        ("A &amp; B", "One word", "Two <3", "Three", "four"),
        ("3 < 4 and <b> is bold",),
        ("<p>Cut</p> <!-- off",),
    ]
    path.write_text("<article><para>Write &lt;p&gt;a&lt;/p&gt;.</para></article>")
    assert _read(path) == [("Write <p>a</p>.",)]


def test_a_record_of_pubmed_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    record = "<PubmedArticle><PMID>7</PMID><Article><T>On genes.</T></Article></PubmedArticle>"
    path.write_text(f"<PubmedArticleSet>{record}{record}</PubmedArticleSet>")
    assert _read(path) == [("7", "On genes.")] * 2


def test_markup_of_a_wiki_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.xml"
    path.write_text('<mediawiki xmlns="x"><page><text>[[a]]</text></page></mediawiki>')
    assert _read(path) == [("[[a]]",)]
    assert "markup of MediaWiki stays" in capsys.readouterr().err.replace("\n", " ")


def test_the_names_of_words_in_articles_are_those_of_fields_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    items = "".join(f"<item><quote>Quote {n}</quote><link>a</link></item>" for n in range(2))
    for root in ("list", "quotes"):
        path.write_text(f"<{root}>{items}</{root}>", encoding="utf-8")
        assert _read(path) == [("Quote 0", "a"), ("Quote 1", "a")]


def test_blank_lines_part_paragraphs_of_xml(tmp_path: Path) -> None:
    path = tmp_path / "wiki.xml"
    path.write_text(
        '<doc id="1" title="A">\nA title\n\nOne line,\nand its end.\n \t\nOther.\n</doc>\n'
        '<doc id="2" title="B">\nB title\n\nThird.\n\n</doc>\n'
    )
    expected = [("A title", "One line, and its end.", "Other."), ("B title", "Third.")]
    assert _read(path) == expected
    # a browser shows no blank lines
    path.rename(path.with_suffix(".html"))
    assert len(_read(path.with_suffix(".html"))[0]) == 2
    for name, patterns in (("wiki.txt", ()), ("wiki_00", ("wiki_*",))):
        (tmp_path / name).write_bytes(path.with_suffix(".html").read_bytes())
        found = Corpus([tmp_path / name], markup_files=patterns)
        assert [each.paragraphs for each in found] == expected


# a comment ends at the first -->, so that the end of the condition is one of its own
OFFICE = """<html><body><!--[if IE]><p>no</p><!-- nor this --><p>One</p><![endif]--><p>Two</p>
<![if !supportLists]><p>Three<![endif]><script>a = [b[0]>1];</script><! [a note] ><p>Four</p>
</body></html>
"""


def test_the_conditions_of_office_end_at_their_bracket(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text(OFFICE, encoding="utf-8")
    assert _read(path) == [("One", "Two", "Three", "Four")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("text", [OFFICE, PAGE, DUMP, READINGS, INLINE, DOCBOOK, TEI, JATS, FEED])
def test_blocks_may_end_anywhere(tmp_path: Path, text: str, size: int) -> None:
    file = TextFile(tmp_path / "a.xml", CorpusError)
    whole = list(documents_of_markup(file, [text], records=True))
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(documents_of_markup(file, blocks, records=True)) == whole
    assert len(whole) > 0


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("<p>a</p>\n<!-- b", "a comment", 2),
        ("<p>a</p>\n\n<script>b < c", "<script>", 3),
        ("<p>a\n<![CDATA[b", "a CDATA section", 2),
        ("<p>a\n<b class='x>y", "a tag <b>", 2),
        ("\n<!DOCTYPE x [ <!ENTITY a 'b'>", "a declaration", 2),
    ],
)
def test_what_is_never_closed(tmp_path: Path, text: str, what: str, line: int) -> None:
    path = tmp_path / "a.html"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=f"ends within {what}.* that begins here; ") as caught:
        _read(path)
    assert (caught.value.where, caught.value.line) == (path, line)
    assert caught.value.remedy


def test_a_page_without_text(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<html><script>var a = 1</script></html>", encoding="utf-8")
    with pytest.raises(CorpusError, match="holds no text"):
        _read(path)


@pytest.mark.parametrize(
    "text",
    [
        "<div>" * 20_000 + "deep",
        "<" * 50_000,
        "<a " * 30_000 + ">deep",
        "&" * 50_000,
        "<!" * 30_000 + ">deep",
        "<!doctype" * 20_000 + ">deep",
        "<!doctype>" * 20_000 + "deep",
        '<a b="' * 10_000 + '">',
        "<a b='" + "x" * 10_000 + "'>deep",
        "<script></script" * 10_000 + "></script>deep",
        "&lt;" * 20_000,
        "<p>deep</p>" + "</p>" * 20_000,
    ],
    ids=range(12),
)
def test_hostile_pages_take_no_time(tmp_path: Path, text: str) -> None:
    file = TextFile(tmp_path / "a.html", CorpusError)
    began = time.process_time()
    with suppress(CorpusError):
        list(documents_of_markup(file, [text[:40_000], text[40_000:]], records=False))
    assert time.process_time() - began < 5  # what grew with the square would take minutes


def test_a_long_text_is_cut_between_words(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(f"<doc>\n{'letters ' * 300_000}\n\n<p>End.</p></doc>", encoding="utf-8")
    paragraphs = [part for document in Corpus([path]) for part in document.paragraphs]
    assert len(paragraphs) > 2
    assert " ".join(paragraphs).split() == ["letters"] * 300_000 + ["End."]


def test_reading_goes_on_at_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    docs = "".join(f"<doc><p>{'word ' * 2000}{number}.</p></doc>\n" for number in range(250))
    path.write_text(f"<all>{docs}</all>", encoding="utf-8")
    corpus = Corpus([path])
    sections = list(corpus.sections())
    assert len(sections) == 3
    again = [list(section.documents()) for section in corpus.sections(sections[0].end)]
    assert again == [list(section.documents()) for section in sections[1:]]
    assert sections[-1].end.offset == 250


@pytest.mark.parametrize("name", ["a.html", "a.xml"])
def test_a_number_of_thousands_of_digits_is_no_character(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(f"<html><p>a &#{'9' * 5000}; b &#x{'9' * 5000}; c &#65;</p></html>")
    (document,) = Corpus([path])
    text = " ".join(document.paragraphs)
    assert text.startswith("a ")
    assert text.endswith(" c A")
