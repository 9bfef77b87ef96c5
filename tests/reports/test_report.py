"""The report page: whole, self-contained, escaped, legible, written all or nothing."""

from __future__ import annotations

import importlib.util
import io
import math
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import precision_score, recall_score

from bertsmith.analysis.heads.statistics import STATISTICS
from bertsmith.core.errors import DiskError, MissingExtra
from bertsmith.evaluation.metrics import confusion_counts
from bertsmith.reports.curves import curves_svg, in_words, smoothed, thinned
from bertsmith.reports.drawing import grouped_bars, heat_map, layer_lines, layer_panels
from bertsmith.reports.page import Report, confusion_html
from browsing.chromium import Page as Tab
from browsing.chromium import Pipes, browser

__all__ = ["browser"]

if importlib.util.find_spec("matplotlib") is None:
    pytest.skip("matplotlib is not installed", allow_module_level=True)

VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Fails unless every element is closed in order; keeps tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.cells: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data


def counts_of(matrix: list[list[int]]) -> dict[tuple[int, int], int]:
    """The counts of a confusion matrix, by true and predicted class."""
    return {(i, j): count for i, row in enumerate(matrix) for j, count in enumerate(row) if count}


def whole_report() -> Report:
    report = Report("A & B", "3 minutes on <2> cores")
    report.text("Summary", ["It went well.", "<script>alert('no')</script>"])
    losses = [(float(i), 9 * math.exp(-i / 100)) for i in range(700)]
    report.curves(
        "Loss",
        {"training $x$": losses, "_held <out>": losses[::100]},
        x_label="step",
        y_label="nats",
    )
    report.table("Scores", ["system", "F1"], [["ours", "0.91 ± 0.02"], ["<theirs>", "0.88 ± 0.01"]])
    report.confusion("Confusion", counts_of([[5, 1], [2, 7]]), ["ham & eggs", '"spam"'])
    report.settings("Settings", {"model": {"layers": 2, "betas": (0.9, 0.98)}, "note": "<none>"})
    return report


def test_page_is_well_formed_and_stands_alone() -> None:
    html = whole_report().html()
    page = Page(html)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "img", "object", "base")
        for name in ("src", "href", "xlink:href", "data", "action"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", html)
    # names of things inside the page are there once, and what is pointed to exists
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert links == {f"#section-{number}" for number in range(1, 6)}


def test_user_text_is_shown_as_it_is() -> None:
    page = Page(whole_report().html())
    for text in (
        "A & B",
        "3 minutes on <2> cores",
        "<script>alert('no')</script>",
        "training $x$, moving average: ",
        "_held <out>",
        "<theirs>",
        "ham & eggs",
        '"spam"',
        "<none>",
        "model.betas",
        "0.9, 0.98",
    ):
        assert text in page.words
    assert ("html", {"lang": "en"}) in page.tags


def test_same_figures_make_the_same_page() -> None:
    assert whole_report().html() == whole_report().html()


@pytest.mark.parametrize("dark", [False, True])
def test_everything_can_be_read(dark: bool, browser: Pipes, tmp_path: Path) -> None:
    """Texts, numbers of the figures, and cells of every shade, in both colours."""
    report = whole_report()
    counts = counts_of([[100, 20, 3], [40, 60, 0], [1, 9, 90]])
    report.section("Confusion", confusion_html(counts, ["ham", "spam", "else"]))
    report.write(tmp_path / "report.html")
    page = Tab(browser)
    page.look(width=900, height=800, dark=dark)
    page.ask("Page.navigate", url=(tmp_path / "report.html").as_uri())
    page.wait("document.readyState === 'complete' && document.querySelector('svg text')")
    assert page.pale() == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark


def test_letters_of_figures_are_legible_on_a_telephone(browser: Pipes, tmp_path: Path) -> None:
    whole_report().write(tmp_path / "report.html")
    page = Tab(browser)
    page.look(width=380, height=700)
    page.ask("Page.navigate", url=(tmp_path / "report.html").as_uri())
    page.wait("document.readyState === 'complete' && document.querySelector('svg text')")
    # those of an axis may be turned
    height = "(({a, b}) => each.getBBox().height * Math.hypot(a, b))(each.getScreenCTM())"
    letters = f"[...document.querySelectorAll('svg text')].map((each) => {height})"
    assert page.evaluate(f"Math.min(...{letters})") >= 8
    # and the page itself is no wider than the window
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_names_of_axes_and_classes_are_whole(browser: Pipes, tmp_path: Path) -> None:
    report = Report("Whole")
    points = [(float(x), 0.999 + 1e-5 * x) for x in range(9)]
    report.curves("Accuracy", {"a": points}, x_label="step", y_label="accuracy", percent=True)
    for classes in (12, 17):
        labels = [f"a rather long name of a class, whose end tells it: {i}" for i in range(classes)]
        report.confusion("Confusion", {(i, i): 50 for i in range(classes)}, labels)
    report.write(tmp_path / "report.html")
    page = Tab(browser)
    page.look(width=1200, height=800)
    page.ask("Page.navigate", url=(tmp_path / "report.html").as_uri())
    page.wait("document.readyState === 'complete' && document.querySelector('svg text')")
    begins = "({0}.getBoundingClientRect().left)"
    axis = "[...document.querySelectorAll('svg text')].find(each => each.textContent == 'accuracy')"
    drawing = begins.format("document.querySelector('svg')")
    assert page.evaluate(f"{begins.format(axis)} >= {drawing}")
    names = "[...document.querySelectorAll('.confusion tbody th')]"
    assert page.evaluate(f"{names}.every(each => each.scrollWidth <= each.clientWidth)")
    # and not of a word a line
    assert page.evaluate(f"Math.max(...{names}.map(each => each.clientHeight))") < 70


def test_two_drawings_do_not_share_names() -> None:
    report = Report("Two")
    for y_label in ("loss", "accuracy"):
        line = {"training": [(0.0, 0.25), (1.0, 0.5)]}
        report.curves(y_label, line, x_label="step", y_label=y_label, percent=True)
    page = Page(report.html())
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert "%" in page.words


def test_axes_write_shares_as_texts_do() -> None:
    """The sign of per cent has a space before it (ISO 80000-1), in text and figures alike."""
    series = {"accuracy": [(1.0, 0.043), (2.0, 0.051)]}
    svg = curves_svg(series, name="a", x_label="step", y_label="accuracy", percent=True)
    bars = grouped_bars("b", ["x"], {"first": [0.25]}, "share").svg
    lines = layer_lines("c", {"first": [0.2, 0.4]}, y_label="share", percent=True).svg
    for figure in (svg, bars, lines):
        shown = re.findall(r">([\d.]+[^<\d]*%)<", figure)
        assert len(shown) > 2
        assert all(re.fullmatch(r"[\d.]+ %", text) for text in shown)


def test_a_logarithmic_axis_of_less_than_two_powers_of_ten_has_a_scale() -> None:
    svg = layer_lines("made", {"to [SEP]": [0.0195, 0.0068]}, y_label="mean", logarithmic=True).svg
    # each power of ten is raised in an element of its own
    assert svg.count(">−</tspan>") >= 5


def test_curves_of_any_length() -> None:
    report = Report("Curves")
    series = {
        "none": [],
        "one": [(3.0, 0.5)],
        "gap": [(1.0, 2.0), (2.0, math.nan), (3.0, math.inf), (4.0, 1.0)],
        "long": [(float(i), math.nan if i == 77 else 1 / (i + 1)) for i in range(30_000)],
    }
    report.curves("All", series, x_label="step", y_label="loss")
    html = report.html()
    assert "none: no values" in html
    assert "gap: 1 at step 4 (lowest 1, highest 2)" in html
    assert len(html) < 200_000


def test_words_tell_last_lowest_and_highest() -> None:
    series = {"accuracy": [(10.0, 0.1), (20.0, 0.5), (30.0, 0.375)]}
    words = in_words(series, x_label="step", percent=True)
    assert words == "accuracy: 37.5 % at step 30 (lowest 10.0 %, highest 50.0 %)."
    assert " at layer 30 " in in_words(series, x_label="layer (0: embeddings)", percent=True)
    # of a single point, as of a model's score and speed, there is nothing else to tell
    alone = in_words({"one": [(4.0, 0.5)]}, x_label="texts a second", percent=True)
    assert alone == "one: 50.0 % at 4 texts a second."
    # of many points the line that is drawn strongest, by its name: none of them may be there
    long = {"loss": [(float(x), float(x % 2)) for x in range(1001)]}
    words = in_words(long, x_label="step", percent=False)
    assert re.fullmatch(r"loss, moving average: 0\.\d+ at step 1k \(lowest .*\)\.", words)


@pytest.mark.parametrize(("last", "ticks"), [(2.0, ["0", "1", "2"]), (1.5, ["0", "0.5", "1"])])
def test_whole_numbers_have_no_ticks_between_them(last: float, ticks: list[str]) -> None:
    svg = curves_svg(
        {"one": [(0.0, 5.25), (1.0, 5.25), (last, 7.75)]},
        name="layers", x_label="layer", y_label="score", percent=False,
    )  # fmt: skip
    assert re.findall(r"<text[^>]*>([\d.]+)</text>", svg)[: len(ticks)] == ticks


def test_smoothing_keeps_lines_straight_and_levels_noise() -> None:
    line = [(float(x), 2.0 * x + 1) for x in range(301)]
    kept = smoothed(line)
    assert [x for x, _ in kept] == [x for x, _ in line]
    # straight lines stay where the window has two sides; at the end it has one
    heights = [y for _, y in kept[:295]]
    assert heights == pytest.approx([y for _, y in line[:295]])
    noise = [(float(x), 5.0 + (-1) ** x) for x in range(301)]
    assert all(abs(y - 5) < 0.35 for _, y in smoothed(noise)[5:])


def test_thinning_keeps_the_mean_and_the_order() -> None:
    points = [(float(x), float(x % 7)) for x in range(1003)]
    few = thinned(points, 100)
    assert len(few) <= 100
    assert few == sorted(few)
    assert few[0] == (5.0, sum(x % 7 for x in range(11)) / 11)


def test_columns_of_numbers_are_aligned_right() -> None:
    report = Report("Tables")
    report.table(
        "Mixed",
        ["name", "mean ± spread", "count", "share", "size", "speed", "mostly numbers"],
        [
            ["b", "0.5 ± 0.1", 12_345, "3.2 %", "0.16 M", "1.00 x", 4],
            ["a", "–", None, "10 %", "", "12.5 x", "4 apples"],
        ],
    )
    page = Page(report.html())
    kinds = [attributes.get("class") for tag, attributes in page.tags if tag == "td"]
    assert kinds == [None, *["number"] * 5, None] * 2
    assert page.cells[7:] == [
        *("b", "0.5 ± 0.1", "12,345", "3.2 %", "0.16 M", "1.00 x", "4"),
        *("a", "–", "–", "10 %", "", "12.5 x", "4 apples"),
    ]


def test_texts_begin_on_the_side_of_their_script() -> None:
    page = Report("Right to left")
    page.table("texts", ("text", "share"), [("ذهب إلى البيت.", 3), ("It rained.", 4)])
    text = page.html()
    assert '<td dir="auto">ذهب إلى البيت.</td><td class="number">3</td>' in text
    assert '<td dir="auto">It rained.</td>' in text
    # side by side they would change places
    page.settings("labels", {"labels": ("אדם", "מקום")})
    assert "<dd><bdi>אדם</bdi>, <bdi>מקום</bdi></dd>" in page.html()


def test_every_column_of_panels_names_its_axis() -> None:
    titles = dict.fromkeys(("a", "b", "c", "d"), "share")
    values = dict.fromkeys(titles, np.ones((2, 3)))
    svg = layer_panels("made", values, titles, frozenset(titles)).svg
    assert svg.count(">layer</text>") == 3


@pytest.mark.parametrize("columns", [2, 4])
def test_no_title_of_a_narrow_map_is_cut(columns: int) -> None:
    from matplotlib.image import imread

    longest = max(STATISTICS.values(), key=len)
    for title in (STATISTICS["distance"], longest):
        png = heat_map("a", np.ones((2, columns)), title, as_svg=False).png
        # letters that are cut reach the edge
        assert imread(io.BytesIO(png))[:, -4:, :3].min() == 1, title


def test_a_map_tells_negative_numbers_apart() -> None:
    """Correlations may be negative; all of them had the colour of 0."""
    from matplotlib.image import imread

    column = np.array([[-0.8], [-0.1], [0.0], [0.6]])
    png = heat_map("a", np.repeat(column, 3, axis=1), "RSA", as_svg=False).png
    pixels = imread(io.BytesIO(png))[:, :, :3]
    # down through the cells, beside their numbers
    seen = Counter(tuple(pixel) for pixel in pixels[:, pixels.shape[1] // 4].tolist())
    assert len([colour for colour, count in seen.items() if count > 20 and min(colour) < 1]) == 4


def light(colour: NDArray[np.float64]) -> float:
    """The relative luminance of red, green and blue from 0 to 1 (WCAG 2.2)."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_numbers_of_a_map_are_read_on_every_shade() -> None:
    """White on the middle of the colours had a contrast of 3 (WCAG 2.2, 1.4.3, asks for 4.5)."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    shares = np.linspace(0, 1, 101)
    svg = heat_map("a", shares[:, None], "Shades", labels=("a", "b")).svg
    styles = re.findall(r"<text style=\"([^\"]*)\"[^>]*>[01]\.\d\d</text>", svg)
    inks = ["white" if "#ffffff" in style else "black" for style in styles]
    assert len(inks) == 101
    for share, ink in zip(shares.tolist(), inks, strict=True):
        seen = to_rgb(ink), colormaps["viridis"](share)[:3]
        dark, bright = sorted(light(np.array(colour)) for colour in seen)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, share


@pytest.mark.parametrize("paper", ["#ffffff", "#0d1117"])
def test_heads_of_panels_are_seen_on_both_papers(paper: str) -> None:
    """A mark that tells something has a contrast of 3 or more (WCAG 2.2, 1.4.11)."""
    from matplotlib.colors import to_rgb

    titles = {"self": "Attention to the token itself"}
    svg = layer_panels("made", {"self": np.ones((2, 3))}, titles, frozenset(titles)).svg
    marks = svg[svg.index("PathCollection_1") :]
    style = re.search(r'<use[^>]*style="([^"]*)', marks[: marks.index("</g>")])
    assert style is not None
    fill = re.search(r"fill: (#\w+)", style[1])
    assert fill is not None
    opacity = re.search(r"fill-opacity: ([\d.]+)", style[1])
    share = 1.0 if opacity is None else float(opacity[1])
    seen = share * np.array(to_rgb(fill[1])) + (1 - share) * np.array(to_rgb(paper))
    dark, bright = sorted((light(seen), light(np.array(to_rgb(paper)))))
    assert (bright + 0.05) / (dark + 0.05) >= 3


def test_heads_that_are_all_zero_stand_whole_on_an_axis_of_shares() -> None:
    titles = {"punctuation": "Attention to punctuation"}
    svg = layer_panels("made", {"punctuation": np.zeros((2, 3))}, titles, frozenset(titles)).svg
    assert ">100 %</text>" in svg
    marks = svg[svg.index("PathCollection_1") :]
    assert "clip-path" not in marks[: marks.index("</g>")]


def test_confusion_tells_recall_by_row_and_precision_by_column() -> None:
    matrix = [[50, 3, 0], [10, 20, 5], [1, 2, 9]]
    true = [i for i, row in enumerate(matrix) for count in row for _ in range(count)]
    predicted = [j for row in matrix for j, count in enumerate(row) for _ in range(count)]
    cells = Page(confusion_html(counts_of(matrix), ["a", "b", "c"])).cells
    rows = [cells[i : i + 5] for i in range(len(cells) - 20, len(cells), 5)]
    recalls = recall_score(true, predicted, average=None)
    assert [row[0] for row in rows] == ["a", "b", "c", "precision"]
    assert [row[1:4] for row in rows[:3]] == [[str(count) for count in row] for row in matrix]
    assert [row[4] for row in rows[:3]] == [f"{100 * recall:.1f} %" for recall in recalls]
    precisions = precision_score(true, predicted, average=None)
    assert rows[3][1:4] == [f"{100 * precision:.1f} %" for precision in precisions]


def test_confusion_of_classes_that_never_occur() -> None:
    cells = Page(confusion_html(counts_of([[4, 0], [0, 0]]), ["seen", "unseen"])).cells
    assert cells[-4:] == ["precision", "100.0 %", "–", ""]


def test_many_classes_stay_legible() -> None:
    labels = [f"a rather long name of class {i}" for i in range(17)]
    matrix = [[i + 20 if i == j else 0 for j in range(17)] for i in range(17)]
    page = Page(confusion_html(counts_of(matrix), labels))
    assert ("table", {"class": "confusion compact"}) in page.tags
    assert "17 a rather long name of class 16" in page.cells
    labels = [f"class {i}" for i in range(90)]
    matrix = [[100 if i == j else int((i, j) == (7, 8)) * 25 for j in range(90)] for i in range(90)]
    page = Page(confusion_html(counts_of(matrix), labels))
    assert page.cells == [
        "true",
        "predicted",
        "times",
        "of the true class",
        "class 7",
        "class 8",
        "25",
        "20.0 %",
    ]
    assert "9,000 of 9,025 right (99.7 %) in 90 classes" in page.words


def test_many_classes_without_a_confusion_have_no_table() -> None:
    labels = [f"class {i}" for i in range(21)]
    page = Page(confusion_html({(i, i): 3 for i in range(21)}, labels))
    assert page.tags == [("p", {})]
    assert page.words == "63 of 63 right (100.0 %) in 21 classes"


@pytest.mark.parametrize("classes", [2, 13, 21])
def test_classes_begin_on_the_side_of_their_script(classes: int) -> None:
    """A name from right to left would lose its beginning where there is no room for all of it."""
    labels = ["שלום", *(f"class {i}" for i in range(1, classes))]
    page = Page(confusion_html({(0, 1): 1, (1, 0): 2}, labels))
    named = [attributes for tag, attributes in page.tags if tag in ("th", "td", "span")]
    assert sum(attributes.get("dir") == "auto" for attributes in named) == {
        2: 4, 13: 13, 21: 4,
    }[classes]  # fmt: skip


def test_a_confusion_of_hundreds_of_thousands_of_classes_has_no_matrix() -> None:
    """It would have 9e10 cells."""
    labels = [f"class {i}" for i in range(300_000)]
    true, predicted = np.array([0, 7, 299_999, 299_999]), np.array([0, 8, 8, 8])
    page = Page(confusion_html(confusion_counts(true, predicted), labels))
    assert page.cells[4:8] == ["class 299999", "class 8", "2", "100.0 %"]
    assert page.cells[8:] == ["class 7", "class 8", "1", "100.0 %"]
    assert "1 of 4 right (25.0 %) in 300,000 classes" in page.words


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    report = whole_report()
    report.text("Surrogate", ["lone \ud800 half"])
    report.write(target)
    assert "lone \\ud800 half" in target.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["report.html"]
    assert target.stat().st_mode & 0o777 == 0o666 & ~_mask()
    (tmp_path / "folder").mkdir()
    with pytest.raises(DiskError, match="folder"):
        report.write(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "report.html"]


def test_without_matplotlib_the_extra_is_named() -> None:
    # in a process of its own, where matplotlib is as good as absent
    script = """
import sys, importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "matplotlib" else find(name, *rest)
from bertsmith.reports.page import Report
Report("none")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    expected = str(MissingExtra("matplotlib", "report", "the report"))
    assert "bertsmith[report]" in expected
    assert done.stderr.strip().endswith(expected)


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
