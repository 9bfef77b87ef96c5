from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.corpus.files import Corpus
from bertsmith.text.corpus.sentences import CJK_STOPS, split_sentences, stop_of

# the bar marks where sentences end
CASES = """
It rained.| We stayed at home.
Mr. Smith met Mrs. Jones and Dr. No at St. Paul's.| They left.
J. R. R. Tolkien wrote it.| T. S. Eliot did not.
Pi is 3.14 and e is 2.718.| Both are irrational.
Use a list, e.g. This one, i.e. That.| Then go on.
Is it?| Yes!| No.| Well...| Perhaps.
He stopped...| Then he went on.
He stopped... then he went on.
"Stop!" he said.| "Why?"| She ran.
He said, "Go."| She went.
'What is it?' asked Tom.
(It was late.)| Nobody came.
It was late (very late.)| Nobody came.
See Fig. 3 and Eq. 4, No. 5 on p. 17.| No.| Yes.
The U.S. Army came at 5 p.m.| The guests left.
Apples, pears, etc. are fruit.| So are plums, etc.| The rest is not.
Smith et al. Nature of things.
It was I.| He knew.
1. First item.| 2. Second item.
IV. The fourth chapter.
Version 2.0 is out.| Get it at www.example.com.| Or not.
os.path.join joins.| file.read() reads.
the film is good .| i liked it .
The film is good.i liked it.
As shown before.[12]| Later work agrees.[3][4]| So do we.
Really?!| Yes!!!| Good.
“Come in.”| “No,” he said.| ‘Why?’
Das ist z. B. gut.| Ja.
¿Qué?| ¡Hola!| ¿Cómo está?
これは文です。|次の文です！|「はい。」|終わり
一。| 二？| Three.
यह एक वाक्य है।| यह दूसरा है।
He left - at last. - She stayed.
Costs $5.| $6 is more.| 7 is most.
It is by Acme Inc. and others.| He is at Acme Inc.| The firm pays.
She has a Ph.D. in law.| He has an M.A.| They work.
Wait . . .| Then go.
One sentence without an end
„Komm herein.“| „Nein“, sagte sie.| ‚Warum?‘| Er ging.
»Komm herein.«| »Nein«, sagte er.| ›Warum?‹| Sie ging.
«Entrez. »| Il dit.| « Non. »| « Pourquoi ? »| Elle partit.
ეს არის BERT.| ის კითხულობს.| მეტი არაფერი.
Τι κάνεις;| Καλά.| Γιατί;| Η εντολή `a; b` τρέχει.
これは文です．|π は 3．14 です．|次の文．
확인할 것.| 다음 것.| 네, 알겠습니다.
가. 첫째 항목.| 나. 둘째 항목.
دخل د. محمد.| خرج.
"""


@pytest.mark.parametrize("case", CASES.strip().split("\n"))
def test_cases(case: str) -> None:
    expected = [sentence.strip() for sentence in case.split("|")]
    assert split_sentences(case.replace("|", "")) == expected


def test_nothing_comes_of_nothing() -> None:
    assert split_sentences("") == split_sentences(" \n\t") == []


PIECES = st.sampled_from(
    [
        ".",
        "!",
        "?",
        "...",
        '"',
        "'",
        ")",
        "(",
        " ",
        "  ",
        "\n",
        "Mr",
        "I",
        "e.g",
        "a",
        "B",
        "3",
        "[1]",
    ]
)
NO_CJK = st.text(st.characters(exclude_characters=CJK_STOPS), max_size=30)


@given(st.lists(PIECES | NO_CJK, max_size=40).map("".join))
def test_sentences_joined_are_the_paragraph(text: str) -> None:
    sentences = split_sentences(text)
    assert " ".join(sentences) == " ".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@given(st.text())
def test_nothing_but_white_space_is_lost(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_real_novels_come_apart(data_folder: Path) -> None:
    corpus = Corpus([data_folder / "text" / "novels" / "Conrad_Rover_1923.txt"])
    paragraphs = [paragraph for document in corpus for paragraph in document.paragraphs]
    sentences = [sentence for text in paragraphs for sentence in split_sentences(text)]
    assert " ".join(sentences) == " ".join(paragraphs)
    assert 60 < sum(map(len, sentences)) / len(sentences) < 130
    assert sum(sentence[0].islower() for sentence in sentences) < 0.01 * len(sentences)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("वह घर गया। वहाँ कोई न था॥ क्यों? पता नहीं।", 4),
        ("ذهب إلى البيت. لماذا؟ لا أحد يعلم.", 3),
        ("وہ گھر گیا۔ وہاں کوئی نہ تھا۔", 2),
        ("他回家了。家里没有人！为什么？没人知道。", 4),
        ("သူ အိမ်ပြန်သည်။ ဘယ်သူမှ မရှိပါ။", 2),
        ("គាត់ទៅផ្ទះ។ គ្មាននរណាទេ។", 2),
        ("እሱ ወደ ቤት ሄደ። ማንም አልነበረም።", 2),
        ("እሱ የት ሄደ፧ አላውቅም።", 2),
        ("དང་པོ། གཉིས་པ། གསུམ་པ།", 3),
        ("הוא הלך הביתה.\u200f איש לא היה שם.\u200f ולמה?\u200f", 3),
        ("بیت.\u200e \u200fکتاب؟ \u061cنعم.", 3),
        ("בראשית ברא׃ והארץ היתה׃", 2),
        ("เขากลับบ้าน ไม่มีใครอยู่", 1),
    ],
)
def test_stops_of_other_scripts(text: str, count: int) -> None:
    found = split_sentences(text)
    assert len(found) == count
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


def test_runs_of_stops_are_read_in_time() -> None:
    """Tables of contents have hundreds of dots in a line, files of the web as many as they like."""
    began = time.process_time()
    for stops in (".", "?!", "。", "．", "．。"):
        run = stops * 20_000
        assert split_sentences(f"One{run} Two{run}x{run}")[0] == f"One{run}"
        stop_of(f"{run}x.")
    assert time.process_time() - began < 5  # what grew with the square would take minutes
