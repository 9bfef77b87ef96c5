"""Heads against tags and coreference: against plain loops over the weights of transformers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bertsmith.analysis.heads.best_heads import held_out_share
from bertsmith.analysis.heads.coreference import (
    CoreferenceFigures,
    anaphors,
    coreference_figures,
    passages,
)
from bertsmith.analysis.heads.tag_pairs import SAME, PairFigures, TagCounts, TaggedWords
from bertsmith.analysis.heads.words import split_words
from bertsmith.analysis.inspection import Item, annotation_figures
from bertsmith.network.model import Model, build_model
from bertsmith.text.coreference import (
    MarkedDocument,
    MarkedSentence,
    Mention,
    coreference_layout,
    read_coreference,
)
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from families import MODELS
from parity.comparing import varied

PIECES = ("the", "smith", "##s", "iron", "##work", "she", "he", "it", ".", "'", "old", "her")
TOKENIZER = Tokenizer(
    (*SPECIALS, *PIECES, *(f"word{n}" for n in range(99 - 5 - len(PIECES)))),
    BasicRules(lowercase=True),
)
Weights = NDArray[np.float64]

TAGGED = (
    ("The/O", "old/B-ORG", "ironworks/I-ORG", "word1/I-ORG", "smiths/B-PER", "./O"),
    ("word3/B-PER", "\u200b/I-PER", "smith/I-PER", "word4/B-LOC", "word5/I-LOC"),
    ("She/O", "word7/O", "it/O"),
    ("word1/B-PER", "word2/O", "word9/B-PER", "word8/I-PER", "he/B-ORG"),
    ("word4/B-ORG", "word6/I-ORG"),
    # a word alone, as datelines and cells of tables are, has none to attend to
    ("word2/B-PER",),
    ("\u200b/O", "word7/B-PER"),
)

COLUMNS = """\
#begin document (made/up); part 000
made/up 0 0 The DT (TOP(S(NP* - - - - * (3
made/up 0 1 old JJ * - - - - * -
made/up 0 2 smith NN * - - - - * 3)|(4)
made/up 0 3 of IN * - - - - * -
made/up 0 4 word1 NNP * - - - - (GPE) (5)

made/up 0 0 She PRP * - - - - * (3)
made/up 0 1 word2 VBD * - - - - * -
made/up 0 2 -LRB- -LRB- * - - - - * -
made/up 0 3 her PRP$ * - - - - * (6(3)
made/up 0 4 ironworks NNS * - - - - * 6)

#end document
#begin document (made/up); part 001
made/up 1 0 Word1 NNP * - - - - (ORG* (3
made/up 1 1 Word2 NNP * - - - - *) 3)
made/up 1 2 word1 NNP * - - - - * (3)
made/up 1 3 word5 NNP * - - - - * (7)
made/up 1 4 word1 NNP * - - - - * (3)

#end document
"""

UNIVERSAL = """\
# newdoc id = one
# global.Entity = etype-GRP-minspan
1\tThe\t_\tDET\t_\t_\t3\tdet\t_\tSpaceAfter=No|Entity=(person-9-1,2
2\told\t_\tADJ\t_\t_\t3\tamod\t_\t_
3\tsmith\t_\tNOUN\t_\t_\t4\tnsubj\t_\tBridge=1<2|Entity=9)
4\tword1\t_\tVERB\t_\t_\t0\troot\t_\t_
4.1\tempty\t_\tPRON\t_\t_\t_\t_\t_\tEntity=(person-9-1)
5\tiron\t_\tNOUN\t_\t_\t4\tobj\t_\tEntity=(object-4[1/2]-1)
6\tword2\t_\tNOUN\t_\t_\t4\tobj\t_\tEntity=(object-4[2/2]-1)

1\tHe\t_\tPRON\t_\t_\t2\tnsubj\t_\tEntity=(person-9-1)(place-8-1)
2\tword3\t_\tVERB\t_\t_\t0\troot\t_\t_
3\tit\t_\tPRON\t_\t_\t2\tobj\t_\tEntity=(object-4-1)8)

# newdoc id = two
1\tHe\t_\tPRON\t_\t_\t0\troot\t_\tEntity=(person-9-1)
2\tWord4\t_\tPROPN\t_\t_\t1\tflat\t_\tEntity=(person-9-1)
"""


@pytest.fixture(scope="module")
def model() -> Model:
    made: Model = varied(build_model(MODELS["bert-none"], seed=4))
    return made


@pytest.fixture(scope="module")
def other(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401
    """The same model, opened by transformers."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("model") / "it"
    save_model(folder, model, TOKENIZER)
    opened = transformers.BertModel.from_pretrained(
        folder, attn_implementation="eager", add_pooling_layer=False
    )
    return opened.double().eval()


def word_weights(other: Any, words: tuple[str, ...]) -> Iterator[tuple[int, int, list[Weights]]]:  # noqa: ANN401
    """Layer, head, and for each word its attention to each word; None-like rows are empty."""
    split = split_words(TOKENIZER, words, 23)
    assert split is not None
    ids = torch.from_numpy(split.ids.astype(np.int64))[None]
    with torch.no_grad():
        layers = other(input_ids=ids, output_attentions=True).attentions
    own = [np.flatnonzero(split.owner == word) for word in range(len(words))]
    for layer, heads in enumerate(layers):
        for head, w in enumerate(heads[0].numpy()):
            yield (
                layer,
                head,
                [
                    np.array([w[rows][:, keys].sum(1).mean() if len(keys) else -1 for keys in own])
                    if len(rows)
                    else np.zeros(0)
                    for rows in own
                ],
            )


def items() -> list[Item]:
    found = []
    for number, sentence in enumerate(TAGGED):
        words, tags = zip(*(item.rsplit("/", 1) for item in sentence), strict=True)
        split = split_words(TOKENIZER, words, 23)
        assert split is not None
        tagged = TaggedWords(split, tags, number)
        found.append(Item(ids=split.ids, segments=split.segments, line=1, tagged=tagged))
    return found


def plain_tags(other: Any) -> dict[tuple[str, str], dict[str, Any]]:  # noqa: ANN401
    """By what is asked and wanted: hits by half and head, words, chance, and hits by offset."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for half, sentence in zip(itertools.cycle((0, 1)), TAGGED, strict=False):
        words, tags = zip(*(item.rsplit("/", 1) for item in sentence), strict=True)
        there = [n for n, word in enumerate(words) if word != "\u200b"]
        entity: list[int] = []
        for n, tag in enumerate(tags):
            entity.append(n if tag[0] == "B" else entity[n - 1] if tag[0] == "I" else -1)
        weights = list(word_weights(other, words))

        def count(
            key: tuple[str, str],
            asked: int,
            wanted: list[int],
            there: list[int],
            weights: Any,  # noqa: ANN401
            half: int = half,
        ) -> None:
            if not wanted:
                return
            row = found.setdefault(
                key,
                {
                    "hits": np.zeros((2, 3, 4), np.int64), "words": np.zeros(2, np.int64),
                    "chance": 0.0, "offsets": {},
                },
            )  # fmt: skip
            row["words"][half] += 1
            row["chance"] += len(wanted) / (len(there) - 1)
            for word in wanted:
                row["offsets"][word - asked] = row["offsets"].get(word - asked, 0) + 1
            for layer, head, attended in weights:
                mine = attended[asked].copy()
                mine[asked] = -1
                row["hits"][half, layer, head] += int(mine.argmax()) in wanted

        for asked in there:
            if tags[asked] == "O":
                continue
            for tag in set(tags) - {"O"}:
                wanted = [n for n in there if n != asked and tags[n] == tag]
                count((tags[asked], tag), asked, wanted, there, weights)
            same = [n for n in there if n != asked and entity[n] == entity[asked]]
            for kind in ("all", tags[asked][2:]):
                count((kind, SAME), asked, same, there, weights)
    return found


def test_tag_pairs_are_those_of_a_plain_loop(model: Model, other: Any) -> None:  # noqa: ANN401
    found = annotation_figures(model, items()).tags
    expected = plain_tags(other)
    both: list[PairFigures] = [*found.pairs, *found.entities]
    assert {(item.asked, item.wanted) for item in both} == set(expected)
    for item in both:
        row = expected[item.asked, item.wanted]
        words = row["words"].sum()
        assert item.count == words
        np.testing.assert_allclose(item.accuracy, row["hits"].sum(0) / words, atol=1e-12)
        held_out = held_out_share(row["hits"], row["words"])
        assert item.held_out == pytest.approx(held_out, nan_ok=True)
        assert item.chance == pytest.approx(row["chance"] / words)
        most = max(row["offsets"].values())
        assert item.offset_accuracy == pytest.approx(most / words)
        # the nearest of those that are as good, and the next rather than the previous
        best = [offset for offset, count in row["offsets"].items() if count == most]
        assert item.offset == min(best, key=lambda offset: (abs(offset), -offset))
        assert item.best_accuracy == item.accuracy[item.best[0] - 1, item.best[1] - 1]
    counts = [pair.count for pair in found.pairs]
    assert counts == sorted(counts, reverse=True)
    assert [entity.asked for entity in found.entities] == ["all", "ORG", "PER", "LOC"]
    assert ("LOC", SAME) in expected
    in_both = {item.wanted == SAME for item in both if np.isfinite(item.held_out)}
    assert in_both == {True, False}
    # nothing has tags
    assert annotation_figures(model, [Item(**{**vars_of(items()[0]), "tagged": None})]).tags == (
        [],
        [],
    )


def test_punctuation_takes_no_part(model: Model) -> None:
    words, tags = ("word1", ".", "word2", "'"), ("NOUN", "PUNCT", "NOUN", "''")
    split = split_words(TOKENIZER, words, 23)
    assert split is not None
    tagged = TaggedWords(split, tags, 0)
    item = Item(ids=split.ids, segments=split.segments, line=1, tagged=tagged)
    found = annotation_figures(model, [item]).tags
    (pair,) = found.pairs
    assert (pair.asked, pair.wanted, pair.count) == ("NOUN", "NOUN", 2)
    # it may be attended to, and is among what is drawn from
    assert pair.chance == pytest.approx(1 / 3)
    assert not found.entities


def vars_of(item: Item) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}


def test_columns_and_universal_documents_are_read(tmp_path: Path) -> None:
    columns, universal = tmp_path / "made.v4_gold_conll", tmp_path / "made.conllu"
    columns.write_text(COLUMNS, encoding="utf-8")
    universal.write_text(UNIVERSAL, encoding="utf-8")
    assert coreference_layout(columns) == "conll-2012"
    first, second = read_coreference(columns, "conll-2012")
    assert [sentence.words for sentence in first.sentences] == [
        ("The", "old", "smith", "of", "word1"), ("She", "word2", "(", "her", "ironworks"),
    ]  # fmt: skip
    assert first.sentences[0].tags == ("O", "O", "O", "O", "B-GPE")
    assert second.sentences[0].tags == ("B-ORG", "I-ORG", "O", "O", "O")
    assert first.sentences[1].tags[0] == "PRP"
    assert first.mentions == (
        Mention(0, 3, 2, "3", "nominal"), Mention(2, 3, 2, "4", "nominal"),
        Mention(4, 5, 4, "5", "proper"), Mention(5, 6, 5, "3", "pronoun"),
        Mention(8, 9, 8, "3", "pronoun"), Mention(8, 10, 9, "6", "nominal"),
    )  # fmt: skip
    assert second.mentions[0] == Mention(0, 2, 1, "3", "proper")
    assert coreference_layout(universal) == "conllu"
    one, two = read_coreference(universal, "conllu")
    assert one.mentions == (
        # of what is in several parts the first; brackets around nothing are passed over
        Mention(0, 3, 2, "9", "nominal"), Mention(4, 5, 4, "4", "nominal"),
        Mention(6, 7, 6, "8", "pronoun"), Mention(6, 7, 6, "9", "pronoun"),
        Mention(8, 9, 8, "4", "pronoun"),
    )  # fmt: skip
    assert [mention.begin for mention in two.mentions] == [0, 1]
    plain = tmp_path / "plain.conllu"
    plain.write_text(UNIVERSAL.replace("Entity", "Other"), encoding="utf-8")
    assert coreference_layout(plain) is None


@pytest.mark.parametrize(
    ("tags", "head"),
    [
        (("DT", "JJ", "NN", "IN", "NNP"), 2),
        (("NNP", "NNP", "POS"), 1),
        (("NNP", "POS", "NN"), 2),
        (("DT", "VBG", "NN"), 2),
        (("NNP", "CC", "NNP"), 0),
        (("JJ", "CC", "JJ", "NNS"), 3),
        (("DT", "IN", "PRP"), 0),
        (("DT", "NN", "WDT", "VBD"), 1),
        (("-",), 0),
        (("IN",), 0),
    ],
)
def test_heads_of_noun_phrases(tmp_path: Path, tags: tuple[str, ...], head: int) -> None:
    last = len(tags) - 1
    marks = ["(1)"] if not last else ["(1", *["-"] * (last - 1), "1)"]
    rows = [f"d 0 {n} word{n} {tag} - {marks[n]}" for n, tag in enumerate(tags)]
    file = tmp_path / "made.conll"
    file.write_text("\n".join(["#begin document (d); part 000", *rows, ""]), encoding="utf-8")
    (document,) = read_coreference(file, "conll-2012")
    assert [mention.head for mention in document.mentions] == [head]


@pytest.mark.parametrize("longest", [23, 8])
def test_antecedents_are_those_of_a_plain_loop(
    model: Model,
    other: Any,  # noqa: ANN401
    tmp_path: Path,
    longest: int,
) -> None:
    file = tmp_path / "made.conll"
    file.write_text(COLUMNS, encoding="utf-8")
    read = list(passages(read_coreference(file, "conll-2012"), TOKENIZER, longest))
    found = {
        coreference_figure.name: coreference_figure
        for coreference_figure in coreference_figures(model, [p for p in read if p])
    }
    if longest == 8:
        # a sentence at a time; one is too long
        assert None in read
        (whole,) = (result for name, result in found.items() if name == "all")
        assert whole.count == 2
        return
    # document, asked word, its kind, the words before it, and those that are right
    asked = [
        (0, 5, "pronoun", [2, 4], [2]),
        (0, 8, "pronoun", [2, 4, 5], [2, 5]),
        (1, 2, "proper", [1], [1]),
        (1, 4, "proper", [1, 2, 3], [1, 2]),
    ]
    assert len([anaphor for p in read if p for anaphor in anaphors(p)]) == len(asked)
    documents = [tuple(word for s in item.sentences for word in s.words)
                 for item in read_coreference(file, "conll-2012")]  # fmt: skip
    for name in ("all", "pronoun", "proper"):
        hits, count = np.zeros((2, 3, 4), np.int64), np.zeros(2, np.int64)
        for document, word, kind, candidates, right in asked:
            if name not in ("all", kind):
                continue
            # a passage each
            count[document] += 1
            for layer, head, attended in word_weights(other, documents[document]):
                mine = attended[word][candidates]
                hits[document, layer, head] += candidates[int(mine.argmax())] in right
        np.testing.assert_allclose(found[name].accuracy, hits.sum(0) / count.sum(), atol=1e-12)
        assert found[name].count == count.sum()
        held_out = held_out_share(hits, count)
        assert found[name].held_out == pytest.approx(held_out, nan_ok=True)
        assert np.isnan(held_out) == (name != "all")
    whole = found["all"]
    assert isinstance(whole, CoreferenceFigures)
    # the nearest is right for her and the second word1, the same word for the third too
    assert (whole.nearest, whole.same_word) == (0.5, 0.75)
    assert whole.candidates == pytest.approx(9 / 4)
    assert "nominal" not in found


def marked(words: tuple[str, ...], *mentions: tuple[int, int, int, str]) -> MarkedDocument:
    """A document of sentences of letters, each a word of one piece."""
    sentences = tuple(
        MarkedSentence(words=tuple(f"word{ord(letter) - 97}" for letter in text), tags=(), line=1)
        for text in words
    )
    return MarkedDocument(
        sentences=sentences, mentions=tuple(Mention(*each, "nominal") for each in mentions)
    )


def test_passages_are_whole_sentences_as_many_as_fit() -> None:
    """Eight words fit; a mention across passages is in none, and of others places are counted."""
    first = marked(
        ("abc", "defgh", "ij", "k" * 9, "lm"),
        (1, 3, 2, "one"), (7, 10, 7, "across"), (9, 10, 9, "two"), (20, 21, 20, "one"),
    )  # fmt: skip
    other = marked(("no",), (0, 2, 1, "one"))
    read = list(passages([first, other], TOKENIZER, 10))
    shown = [
        item and ("".join(chr(97 + int(w[4:])) for w in item.words), item.number,
                  [(each[:3], each.entity) for each in item.mentions])
        for item in read
    ]  # fmt: skip
    assert shown == [
        ("abcdefgh", 0, [((1, 3, 2), "one")]),
        ("ij", 1, [((1, 2, 1), "two")]),
        None,
        ("lm", 3, [((1, 2, 1), "one")]),
        ("no", 4, [((0, 2, 1), "one")]),
    ]


def test_the_nearest_mention_with_the_same_word_is_chosen(model: Model) -> None:
    document = marked(("abaa",), *((n, n + 1, n, "xyyy"[n]) for n in range(4)))
    (passage,) = passages([document], TOKENIZER, 23)
    assert passage is not None
    whole, _ = coreference_figures(model, [passage])
    # the third is asked with one a before it, which is another's, the fourth with two
    assert (whole.count, whole.nearest, whole.same_word) == (2, 1, 0.5)
    assert whole.candidates == 2.5


def test_a_type_with_the_name_of_all_is_counted_once() -> None:
    split = split_words(TOKENIZER, ("word1", "word2", "word3"), 20)
    assert split is not None
    counts = TagCounts(1, 1)
    counts.block([TaggedWords(split, ("B-all", "I-all", "O"), 0)])
    assert [(entity.asked, entity.count) for entity in counts.figures().entities] == [
        ("all", 2)
    ] * 2


def test_entities_of_more_types_than_are_counted_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bertsmith.analysis.heads.tag_pairs._MAX_TAGS", 1)
    split = split_words(TOKENIZER, ("word1", "word2", "word3", "word4", "word5"), 20)
    assert split is not None
    counts = TagCounts(1, 1)
    counts.block([TaggedWords(split, ("B-one", "I-one", "O", "B-two", "I-two"), 0)])
    assert [(entity.asked, entity.count) for entity in counts.figures().entities] == [
        ("all", 2), ("one", 2),
    ]  # fmt: skip
