"""Tagged sentences and texts with bad tags and places."""

from __future__ import annotations

from collections.abc import Iterator

from bad_files.bad import Bad, jsonl

_GOOD_SENTENCE = b"Ann B-PER\nruns O\n\n"


def _sentences(bad: bytes, good: bytes = _GOOD_SENTENCE) -> bytes:
    return good + bad + b"\n\n" + good


def of_tags() -> Iterator[Bad]:
    for name, sentence, message, line in (
        ("start", b"in O\nRome I-LOC", "'I-LOC' does not follow a tag of its type", 5),
        ("first", b"Rome I-LOC", "'I-LOC' does not follow a tag of its type", 4),
        ("type", b"Ann B-PER\nRome I-LOC", "'I-LOC' does not follow a tag of its type", 5),
        ("ends", b"Rome S-LOC", "'S-LOC' is not a tag of BIO2", 4),
        ("prefix", b"Rome X-LOC", "'X-LOC' is not a tag of BIO2", 4),
        ("lower", b"Rome b-LOC", "'b-LOC' is not a tag of BIO2", 4),
        ("number", b"Rome 3", "'3' is not a tag of BIO2", 4),
        ("ragged", b"Rome NNP B-LOC", "3 columns where the first word has 2", 4),
        ("short", b"is O\nRome", "1 column where the first word has 2", 5),
        ("tab", b"New York\t", "the tag is empty", 4),
        ("no-word", b"\tB-LOC", "the word is empty", 4),
        ("zero", b"Ro\0me B-LOC", "a zero byte", 4),
        ("latin", b"caf\xe9 O", "is not UTF-8: byte 0xE9", 4),
        ("no-break", "\u00a0 B-LOC".encode(), "the word is empty", 4),
    ):
        yield Bad(f"{name}.conll", _sentences(sentence), "bio2", message, line)
    good = b"New B-LOC\nYork E-LOC\nAnn S-PER\n\n"
    for name, sentence, message, line in (
        ("unended", b"New B-LOC\nYork I-LOC", "the sentence ends within 'I-LOC'", 6),
        ("unbegun", b"York E-LOC", "'E-LOC' does not follow a tag of its type", 5),
        ("inside", b"in O\nYork I-LOC\nCity E-LOC", "'I-LOC' does not follow", 6),
        ("left", b"New B-LOC\nruns O", "'O' follows an entity that has not ended", 6),
        ("again", b"New B-LOC\nNew B-LOC", "'B-LOC' follows an entity that has not", 6),
        ("other", b"New B-LOC\nYork E-PER", "'E-PER' does not follow", 6),
    ):
        yield Bad(f"bioes-{name}.conll", _sentences(sentence, good), "tag", message, line)
    row = b"1\tAnn\tAnn\tPROPN\tNNP\t_\t2\tnsubj\t_\t_\n\n"
    for name, sentence, message in (
        ("cells", b"1\tAnn\tAnn\tPROPN", "4 columns where the first word has 10"),
        ("blank", row.strip().replace(b"PROPN", b" "), "the tag is empty"),
        ("form", row.strip().replace(b"\tAnn", b"\t", 1), "the word is empty"),
        ("ranges", row.strip().replace(b"1\t", b"1-2\t", 1), "a sentence without words"),
    ):
        yield Bad(f"ud-{name}.conllu", _sentences(sentence, row), "tag", message, 3)


def of_marked_texts() -> Iterator[Bad]:
    good = b'{"text": "Ann runs.", "entities": [[0, 3, "PER"]]}'
    for name, entities, message in (
        ("beyond", '[[0, 10, "PER"]]', "no characters 0 to 10 in a text of 9"),
        ("negative", '[[-3, 3, "PER"]]', "no characters -3 to 3"),
        ("nothing", '[[3, 3, "PER"]]', "no characters 3 to 3"),
        ("backwards", '[[3, 0, "PER"]]', "no characters 3 to 0"),
        ("float", '[[0.0, 3, "PER"]]', "an entity is not [integer"),
        ("true", '[[true, 3, "PER"]]', "an entity is not [integer"),
        ("string", '[["0", "3", "PER"]]', "an entity is not [integer"),
        ("label", "[[0, 3, 1]]", "an entity is not [integer"),
        ("unnamed", '[[0, 3, " "]]', "the label of the entity at 0 is empty"),
        ("overlap", '[[0, 3, "PER"], [2, 5, "ORG"]]', "entities overlap"),
        ("twice", '[[0, 3, "PER"], [0, 3, "PER"]]', "entities overlap"),
        ("space", '[[0, 4, "PER"]]', "begins or ends with white space"),
        ("no-list", '{"0": 1}', "the entities are not a list"),
        ("null", "null", "the text is empty or not a string"),
        ("two", "[[0, 3]]", "an entity is not a list of three"),
        ("word", '["Ann"]', "an entity is not a list of three"),
        ("keys", '[{"start": 0, "label": "PER"}]', "an entity is not [integer"),
    ):
        row = f'{{"text": "Ann runs.", "entities": {entities}}}'
        if name == "null":
            row = '{"text": null, "entities": []}'
        yield Bad(f"{name}.jsonl", jsonl(row, good), "tag", message, 2)
    good = b'{"tokens": ["Ann", "runs"], "tags": ["B-PER", "O"]}'
    for name, row, message in (
        ("fewer", '{"tokens": ["Ann", "runs"], "tags": ["O"]}', "2 tokens but 1 tag"),
        ("none", '{"tokens": [], "tags": []}', "the tokens are empty"),
        (
            "empty",
            '{"tokens": ["Ann", ""], "tags": ["O", "O"]}',
            "the tokens are empty, or",
        ),
        ("numbers", '{"tokens": ["Ann"], "tags": [1]}', "the tags are numbers"),
        ("text", '{"tokens": "Ann", "tags": ["O"]}', "the tokens are not a list of strings"),
        ("starts", '{"tokens": ["Ann"], "tags": ["I-PER"]}', "'I-PER' does not follow"),
    ):
        yield Bad(f"tokens-{name}.jsonl", jsonl(row, good), "tag", message, 2)
