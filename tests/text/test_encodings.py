"""Files in other encodings than UTF-8: named, marked, guessed and said, or refused."""

from __future__ import annotations

import gzip
import json
import os
import random
import threading
from pathlib import Path

import pytest

from bertsmith.core.errors import ConfigError, CorpusError, ExampleError
from bertsmith.text.config import Columns, codec_named
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.encodings import judge
from bertsmith.text.examples.reading import read_examples
from bertsmith.text.opening import TextFile

FRENCH = (
    "Le petit garçon était très fâché : il avait oublié son goûter à l'école. « Où est-il ? » "
    "demanda la maîtresse. L'élève chercha derrière la fenêtre, sous le bureau et près de la forêt."
)
GERMAN = "Die Straßenbahn fährt über die Brücke nach Köln. Die Bürger müssen größere Wege gehen."
SPANISH = "El niño corrió hacia la montaña. ¿Dónde está mi compañero? Mañana será otro día."
POLISH = "Właśnie przyszła wiadomość, że książka będzie w przyszłym miesiącu. Proszę czekać."
CZECH = "Včera večer přišel soused a řekl, že děti už jsou ve škole a všechno je v pořádku."
TURKISH = "Çocuklar bugün okula gitmedi, çünkü yağmur çok şiddetliydi. Öğretmen kapıyı açtı."
RUSSIAN = "Вчера вечером мы долго гуляли по набережной и говорили о том, что будет дальше."
GREEK = "Χθες το βράδυ περπατήσαμε πολλή ώρα στην παραλία και μιλήσαμε για το τι θα γίνει."
HEBREW = "אתמול בערב טיילנו זמן רב על שפת הים ודיברנו על מה שיקרה אחר כך."
ARABIC = "أمس مساء مشينا طويلا على الشاطئ وتحدثنا عما سيحدث بعد ذلك."
POINTED = "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ."
VOCALISED = "قَرَأَ الوَلَدُ الكِتَابَ فِي المَدْرَسَةِ، ثُمَّ عَادَ إِلَى البَيْتِ الكَبِيـــرِ."
THAI = "เมื่อวานตอนเย็นเราเดินเล่นริมทะเลเป็นเวลานานและคุยกันว่าจะเกิดอะไรขึ้นต่อไป"
SIMPLIFIED = "昨天晚上我们在海边走了很久，谈论接下来会发生什么。他说没关系，然后笑了。"
TRADITIONAL = "昨天晚上我們在海邊走了很久，談論接下來會發生什麼。他說沒關係，然後笑了。"
JAPANESE = "昨日の夕方、私たちは海辺を長い間散歩して、これから何が起こるかについて話しました。"
HIRAGANA = "とらのこどもはとてもつよいので、どこへでもひとりでとことこいきました。"
HALF_WIDE = "昨日の夕方、ﾎｯｶｲﾄﾞｳの海辺を長い間散歩しました。"
KOREAN = "어제 저녁에 우리는 바닷가를 오랫동안 걸으며 앞으로 무슨 일이 일어날지 이야기했다."
QUOTES = "“It’s not what you’d expect,” she said – and smiled. They don’t open… until nine."

GUESSED = {
    FRENCH: ("cp1252", "latin-1", "iso8859-15"),
    GERMAN: ("cp1252", "latin-1", "cp1250"),
    SPANISH: ("cp1252", "latin-1"),
    POLISH: ("cp1250", "iso8859-2"),
    CZECH: ("cp1250", "iso8859-2"),
    TURKISH: ("cp1254", "iso8859-9"),
    RUSSIAN: ("cp1251", "koi8-r", "iso8859-5", "cp866", "mac-cyrillic"),
    GREEK: ("cp1253", "iso8859-7"),
    HEBREW: ("cp1255", "iso8859-8"),
    ARABIC: ("cp1256", "iso8859-6"),
    POINTED: ("cp1255",),
    VOCALISED: ("cp1256", "iso8859-6"),
    THAI: ("cp874", "tis-620"),
    SIMPLIFIED: ("gb18030", "gbk", "gb2312"),
    TRADITIONAL: ("big5", "gb18030"),
    JAPANESE: ("shift_jis", "euc_jp", "iso2022_jp"),
    HIRAGANA: ("shift_jis", "euc_jp"),
    HALF_WIDE: ("shift_jis", "euc_jp", "iso2022_jp_ext"),
    KOREAN: ("euc_kr", "cp949", "iso2022_kr"),
    QUOTES: ("cp1252",),
}
NOT_GUESSED = {
    FRENCH: ("mac-roman", "cp850"),
    GERMAN: ("mac-roman", "cp850"),
    SPANISH: ("mac-roman", "cp850"),
    POLISH: ("cp852", "mac-latin2"),
    KOREAN: ("johab",),
    QUOTES: ("mac-roman",),
}


def _paired(texts: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(text, codec) for text, codecs in texts.items() for codec in codecs]


def _read(path: Path, **options: str) -> list[tuple[str, ...]]:
    return [document.paragraphs for document in Corpus([path], **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "codec"), _paired(GUESSED))
def test_a_guess_gives_the_text_and_is_said_once(
    tmp_path: Path, text: str, codec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(f"A line.\n\n{text}\n".encode(codec, "ignore"))
    whole = path.read_bytes().decode(codec).split("\n")[2]
    for _ in range(2):
        assert _read(path, layout="documents") == [("A line.",), (whole,)]
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("read as") == 1
    assert "--encoding names another" in said


@pytest.mark.parametrize("codec", ["shift_jis", "euc_jp"])
def test_lines_longer_than_the_sample_are_cut_between_characters(codec: str) -> None:
    line = HIRAGANA * 400
    for begins in ("", "a"):
        whole = "\n".join([begins + line] * 3).encode(codec)
        assert judge([whole]).codec == {"shift_jis": "cp932"}.get(codec, codec)


def test_marks_that_switch_alphabets_count_wherever_they_begin(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for before in (2**20 - 2, 3 * 2**20):  # across two blocks, and beyond the first
        filler = f"{'x' * 99}\n" * (before // 100) + "y" * (before % 100)
        path.write_bytes(f"{filler}{JAPANESE}".encode("iso2022_jp"))
        assert judge(TextFile(path, CorpusError, "utf-8").blocks()).codec == "iso2022_jp"
    coloured = b"\x1b[32mgreen\x1b[m \x1b$x \x1b(B"
    assert judge([coloured]).codec == judge([JAPANESE.encode("iso2022_jp"), b"\xff"]).codec
    # a terminal's log with text of its own
    mixed = JAPANESE.encode("iso2022_jp") + JAPANESE.encode()
    assert judge([coloured]).codec == judge([mixed]).codec == "utf-8"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [JAPANESE, SIMPLIFIED, KOREAN, RUSSIAN, HEBREW, THAI])
def test_utf_16_without_a_mark_or_ascii(tmp_path: Path, text: str, codec: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(f"{text}\n{text}\n".encode(codec))
    assert _read(path, layout="prose") == [(text, text)]
    assert judge([b"\x00" + text.encode() + b"\x01\x02"]).codec == "utf-8"


def _french(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    text = f"L'élève a déjà mangé à la forêt près du château, où {name} a été très gâté.\n"
    path.write_bytes(text.encode("cp1252"))
    return path


def test_guesses_about_a_folder_of_classes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(60):
        _french(tmp_path, f"{'ab'[number % 2]}/{number:02}.txt")
    (tmp_path / "a" / "plain.txt").write_text("Rien.")
    for _ in range(2):
        rows = list(read_examples(tmp_path, need_label=True))
        assert len(rows) == 61
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path}/a/00.txt and 59 more files: read as cp1252: ")
    assert line.endswith("--encoding names another")


def test_guesses_about_a_corpus_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        _french(tmp_path, f"{number:02}.txt")
    for document in Corpus([tmp_path]):
        assert "élève" in document.paragraphs[0]
        if "00.txt" in document.paragraphs[0]:
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"{tmp_path}/00.txt: read as cp1252: ")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path}/01.txt and 18 more files: read as cp1252: ")


def test_an_encoding_named_for_files_of_utf8_is_doubted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in "ab":
        _french(tmp_path, f"{folder}/0.txt")
        (tmp_path / folder / "1.txt").write_text(GERMAN, encoding="utf-8")
        (tmp_path / folder / "2.txt").write_text("ASCII, which is the same in both.")
    for _ in range(2):
        documents = list(Corpus([tmp_path], encoding="cp1252"))
        assert ["élève" in document.paragraphs[0] for document in documents][::3] == [True, True]
    (first, line) = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{tmp_path}/a/1.txt: read as cp1252: --encoding says so")
    assert line.startswith(f"{tmp_path}/b/1.txt: read as cp1252: --encoding says so")
    assert line.endswith("valid UTF-8; save the others as UTF-8")
    columns = Columns(encoding="latin-1")
    assert len(list(read_examples(tmp_path, columns, need_label=True))) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path}/a/1.txt and 1 more file: read as ")


@pytest.mark.parametrize(("text", "codec"), _paired(NOT_GUESSED))
def test_what_is_not_certain_is_refused(tmp_path: Path, text: str, codec: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"A line.\n" + text.encode(codec, "ignore"))
    with pytest.raises(CorpusError, match=r"a\.txt:2: is not UTF-8: byte 0x.*--encoding") as caught:
        _read(path)
    assert caught.value.line == 2
    whole = path.read_bytes().decode(codec).split("\n")[1]
    assert _read(path, encoding=codec, layout="documents") == [("A line.", whole)]


@pytest.mark.parametrize("text", [*GUESSED, "caf\u00e9", "\u20ac", "na\u00efve \U0001f600"])
def test_utf8_stays_utf8(text: str) -> None:
    assert judge([text.encode()]).codec == "utf-8"
    damaged = (text * 9).encode() + b"\xff" + text.encode()
    assert judge([damaged]).codec == "utf-8"
    assert judge([text.encode()[:-1]]).codec == "utf-8" or text.isascii()


def test_chance_is_hardly_ever_taken_for_text() -> None:
    chance = random.Random(7)
    taken = [judge([bytes(chance.choices(range(1, 256), k=200))]).guessed for _ in range(100)]
    assert not any(taken)


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_wide_characters(tmp_path: Path, codec: str, packed: str) -> None:
    path = tmp_path / f"a.txt{packed}"
    data = "First.\r\nSecond, caf\u00e9.\r\n".encode(codec)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert _read(path) == [("First.", "Second, caf\u00e9.")]
    assert _read(path, encoding=codec) == [("First.", "Second, caf\u00e9.")]


def test_a_character_across_two_blocks_and_the_line_of_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    line = SIMPLIFIED + "\r\n"
    count = 40_000
    data = ("x" + line * count).encode("gb18030")
    assert len(data) > 2 << 20
    path.write_bytes(data)
    file = TextFile(path, CorpusError)
    assert [text for _, text in file.lines()] == ["x" + SIMPLIFIED] + [SIMPLIFIED] * (count - 1)
    assert b"".join(TextFile(path, CorpusError).blocks()) == data.decode("gb18030").encode()
    path.write_bytes(data + b"\xff\xff")
    with pytest.raises(CorpusError, match=rf":{count + 1}: is not gb18030, the encoding guessed"):
        list(TextFile(path, CorpusError).lines())


def test_reading_goes_on_at_a_place_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes((f"{RUSSIAN}\n\n" * 10_000).encode("koi8-r"))
    corpus = Corpus([path], layout="documents")
    sections = list(corpus.sections())
    assert len(sections) > 1
    again = list(corpus.sections(sections[0].end))
    assert [list(item.documents()) for item in again] == [
        list(section.documents()) for section in sections[1:]
    ]
    assert sections[0].end.line > 1000


def test_a_pipe_is_judged_by_its_first_block(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(FRENCH.encode("cp1252"),))
    writer.start()
    assert _read(path) == [(FRENCH,)]
    writer.join()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("encoding", ["auto", "cp1252"])
def test_tables_of_examples(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / name
    row = json.dumps({"text": FRENCH, "label": "a"}, ensure_ascii=False)
    sign = "\t" if name.endswith("tsv") else ","
    cells = f'"{FRENCH}"' if name.endswith("csv") else FRENCH
    table = f"{row}\n" if name.endswith("jsonl") else f"text{sign}label\n{cells}{sign}a\n"
    path.write_bytes(table.encode("cp1252"))
    found = list(read_examples(path, Columns(encoding=encoding), need_label=True))
    assert [(result.text, result.label) for result in found] == [(FRENCH, "a")]


def test_a_row_that_is_not_in_the_encoding_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"text\tlabel\nx\ta\nb\x81\tb\n")
    with pytest.raises(ExampleError, match=r"a\.tsv:3: is not cp1252: byte 0x81"):
        list(read_examples(path, Columns(encoding="windows-1252"), need_label=True))


def test_a_declaration_is_believed(tmp_path: Path) -> None:
    head = b'<?xml version="1.0" encoding="cp437"?>\n'
    assert judge([head + "<p>caf\u00e9</p>".encode("cp437")]).codec == "cp437"
    assert judge([head + "<p>caf\u00e9</p>".encode()]).codec == "utf-8"
    page = b"<html><head><meta charset=iso-8859-1></head><p>it\x92s</p>"
    assert judge([page]).codec == "cp1252"
    assert judge([b"see: <meta charset=koi8-r> it\x92s"]).codec == "utf-8"


@pytest.mark.parametrize(
    ("label", "codec", "word"),
    [
        ("x-sjis", "cp932", "①"),
        ("windows-31j", "cp932", "①"),
        ("x-euc-jp", "euc_jp", "字"),
        ("windows-949", "cp949", "똠"),
        ("ks_c_5601-1987", "cp949", "똠"),
        ("x-gbk", "gb18030", "镕"),
        ("windows-874", "cp874", "ก…"),
        ("TIS-620", "cp874", "ก…"),
        ("iso-8859-8-i", "iso8859-8", "א"),
        ("windows-1255", "cp1255", "אָ"),
        ("x-mac-cyrillic", "mac-cyrillic", "я"),
    ],
)
def test_declarations_mean_what_browsers_read(label: str, codec: str, word: str) -> None:
    # a word alone is too little for a guess
    page = f'<html><meta content="text/html; charset={label}">{word}</html>'.encode(codec)
    verdict = judge([page])
    assert verdict.codec is not None
    assert not verdict.guessed
    assert word in page.decode(verdict.codec)
    assert codec_named(label)


def test_a_name_that_is_often_meant_for_a_larger_one_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("これは第①章です。\n".encode("cp932"))
    with pytest.raises(CorpusError, match=r"not shift_jis: .*--encoding cp932, which has more"):
        list(Corpus([path], encoding="shift_jis"))
    assert _read(path, encoding="windows-31j") == [("これは第①章です。",)]


def test_names_of_encodings() -> None:
    assert codec_named("Latin-1") == "iso8859-1"
    assert codec_named("UTF8") == codec_named("utf-8-sig") == "utf-8"
    for name in ("latin-11", "hex", "idna", "", "rot13", "unicode_escape", "a\0b"):
        with pytest.raises(ConfigError, match="unknown text encoding"):
            Columns(encoding=name)
    with pytest.raises(ConfigError, match="unknown text encoding 'x'"):
        Corpus(["a.txt"], encoding="x")


def test_half_characters_of_utf_7_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"half +2AA- of one\n")
    (document,) = Corpus([path], encoding="utf-7")
    assert document.paragraphs == ("half ? of one",)


def test_a_file_that_is_deleted_may_be_closed(tmp_path: Path) -> None:
    """Else whoever leaves off reading, as after a bad row, sees an error that nobody catches."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\n")
    blocks = TextFile(path, CorpusError).blocks()
    assert next(blocks) == b"one\ntwo\n"
    path.unlink()
    blocks.close()
