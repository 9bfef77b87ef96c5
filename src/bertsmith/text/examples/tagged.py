"""Tagged sentences, entities and tag schemes, and their reading from JSON and Parquet."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from bertsmith.core.errors import BlankText, ExampleError, UserError
from bertsmith.core.lazy import CharacterTable
from bertsmith.core.printable import counted
from bertsmith.text.config import Columns
from bertsmith.text.examples.columns import first_of, given_columns
from bertsmith.text.examples.example import check_accepted, written_by_prodigy
from bertsmith.text.headers import NAMED, listed
from bertsmith.text.opening import TextFile
from bertsmith.text.tables import ColumnSelection, Table, TableHead
from bertsmith.text.white_space import UNSPACED, tidy, without_surrogates

Scheme = Literal["bio1", "bio2", "bioes", "ioe", "plain"]

_TAG = re.compile(r"O|[BI]|[BIESLUMW]-.+", re.DOTALL)
# letters of BILOU, BMES and BMEWO
_LIKE_BIOES = {"L": "E", "U": "S", "M": "I", "W": "S"}
_LETTERS: dict[Scheme, str] = {
    "bio1": "BIO", "bio2": "BIO", "ioe": "IOE", "bioes": "BIOESLUMW"
}  # fmt: skip
_INSIDE = frozenset("BIES")


class BadTag(ValueError):
    """An invalid tag, the `index`-th of its sentence."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index, self.problem = index, problem


def recognise_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Detect the scheme of the tags of sentences.

    Any S, L or U, or an E beside a B, means BIOES, whose M and W are I and S. An E without any B
    means IOE (IOE1 and IOE2 are read alike). An entity that begins with I, and no B except between
    two entities of the same type, means BIO1; otherwise it is BIO2.
    """
    letters = set[str]()
    inside_begins = begin_alone = False
    for tags in sentences:
        before = ("O", "")
        for tag in tags:
            if not _TAG.fullmatch(tag):
                return "plain"
            letters.add(tag[0])
            if not letters.isdisjoint("SLU") or letters >= {"B", "E"}:
                return "bioes" if all(_TAG.fullmatch(other) for other in tags) else "plain"
            now = parted(tag)
            follows = before[0] != "O" and before[1] == now[1]
            inside_begins |= now[0] == "I" and not follows
            begin_alone |= now[0] == "B" and not follows
            before = now
    if not letters.isdisjoint("MW"):
        return "plain"
    if "E" in letters:
        return "ioe"
    return "bio1" if inside_begins and not begin_alone else "bio2"


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag belongs to a scheme of entities, such as O and B-PER."""
    return _TAG.fullmatch(tag) is not None


def may_be_tagged(words: Sequence[str], tags: Sequence[str], sizes: Sequence[int]) -> bool:
    """Return whether cells may be words and their tags, in sentences of these sizes.

    Only types of entities have spaces, tags recur, and most sentences have several words, which
    are not all the same, as the second column of TREC's judgements of passages is.
    """
    spaced = any(" " in word for word in words) or not all(
        " " not in tag or is_entity_tag(tag) for tag in tags
    )
    several = sum(size > 1 for size in sizes)
    differ = len(set(words)) > 1
    return differ and not spaced and 2 * len(set(tags)) <= len(words) and 2 * several >= len(sizes)


def parted(tag: str) -> tuple[str, str]:
    """Return the letter of a tag (B, I, O, E or S) and its type, which may be empty."""
    letter, _, kind = tag.partition("-")
    return _LIKE_BIOES.get(letter, letter), kind


def entity_spans(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the first word, the word after the last, and the type of each entity of a sentence.

    Tags may be of any scheme, and as predicted by a model: as in conlleval, an entity also begins
    with an I or E that does not follow its type, and ends where another begins. A tag of no scheme
    is outside of entities.
    """
    begin, before, kind = 0, "O", ""
    for index, tag in enumerate((*tags, "O")):
        letter, label = parted(tag)
        letter = letter if letter in _INSIDE else "O"
        begins = letter in "BS" or before in "OES" or label != kind
        if before != "O" and (letter == "O" or begins):
            yield begin, index, kind
        if letter != "O" and begins:
            begin = index
        before, kind = letter, label


def names_entities(labels: Sequence[str]) -> bool:
    """Return whether a model's tags are those of entities, not, say, of parts of speech.

    One tag with a type suffices: published models also have tags of no scheme, such as X.
    """
    typed = any(tag[:2] in ("B-", "I-") for tag in labels)
    return typed or recognise_scheme([labels]) != "plain"


def to_bio2(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """Convert the tags of a sentence to BIO2. Raises `BadTag` for a tag that its scheme forbids."""
    if scheme == "plain":
        return tuple(tags)
    converted: list[str] = []
    before = ("O", "")
    for index, tag in enumerate(tags):
        if not _TAG.fullmatch(tag) or tag[0] not in _LETTERS[scheme]:
            raise BadTag(index, f"{tag!r} is not a tag of {scheme.upper()}")
        letter, kind = parted(tag)
        follows = before[0] in "BI" and before[1] == kind
        if scheme == "bioes":
            _check_bioes(index, tag, before, follows=follows)
        elif scheme == "bio2" and letter == "I" and not follows:
            raise BadTag(index, f"{tag!r} does not follow a tag of its type, so nothing starts it")
        if letter in "BS" or (letter in "IE" and not follows):
            converted.append(f"B-{kind}" if kind else "B")
        elif letter == "O":
            converted.append("O")
        else:
            converted.append(f"I-{kind}" if kind else "I")
        before = letter, kind
    if scheme == "bioes" and before[0] in "BI":
        raise BadTag(len(tags) - 1, f"the sentence ends within {tags[-1]!r}; E ends, S is single")
    return tuple(converted)


def in_scheme_of(labels: Sequence[str], tags: Sequence[str]) -> tuple[str, ...]:
    """Convert BIO2 tags to the scheme of a model's labels, which published models differ in.

    It is BIOES, BILOU, BMES, BMEWO or IOE2 where labels have their letters, BIO1 where an entity
    can only begin with I, or the types alone. A tag that the labels lack in their scheme stays as
    it is.
    """
    known, (first, inside, last, single), ends, bio1 = _scheme_of(tuple(labels))
    converted, ended = list(tags), (0, "")
    for begin, end, kind in entity_spans(tags):
        entity = [first, *inside * (end - begin - 1)]
        if ends:
            entity[-1] = single if len(entity) == 1 else last
        elif bio1 and (f"B-{kind}" not in known or ended != (begin, kind)):
            entity[0] = "I"
        for word, letter in enumerate(entity, begin):
            candidates = (f"{letter}-{kind}", converted[word], kind)
            converted[word] = next((tag for tag in candidates if tag in known), converted[word])
        ended = end, kind
    return tuple(converted)


# the same labels for every sentence
@lru_cache(maxsize=1)
def _scheme_of(
    labels: tuple[str, ...],
) -> tuple[frozenset[str], tuple[str, str, str, str], bool, bool]:
    """Return a model's labels, their letters, whether last words have their own, and if of BIO1."""
    known = frozenset(labels)
    present = {tag[:1] for tag in known if _TAG.fullmatch(tag)}
    letters = _letters_of(present)
    bio1 = any(tag.startswith("I-") and f"B{tag[1:]}" not in known for tag in known)
    return known, letters, not present.isdisjoint(letters[2:]), bio1


def _letters_of(letters: AbstractSet[str]) -> tuple[str, str, str, str]:
    """Return the letters of the first, inner, last and only words of entities, of those given."""
    if letters & set("UL"):
        return "B", "I", "L", "U"
    if "E" in letters and not letters & set("BSW"):
        return "I", "I", "E", "E"
    return "B", "M" if "M" in letters else "I", "E", "W" if "W" in letters else "S"


def _check_bioes(index: int, tag: str, before: tuple[str, str], *, follows: bool) -> None:
    if parted(tag)[0] in "IE":
        if not follows:
            problem = f"{tag!r} does not follow a tag of its type, so nothing starts it"
            raise BadTag(index, problem)
    elif before[0] in "BI":
        raise BadTag(index, f"{tag!r} follows an entity that has not ended; E ends it")


_ASCII_WORD = re.compile(r"\w+|[^\w\s]")
# of classes of characters: a word, a character that is one, signs joined to one, or marks alone
_WORD = re.compile("l[lmj]*|u[mj]*|sm*(?:j+s?m*)*|[mj]+")
_JOINED = frozenset("\u00ad\u200c\u200d\u2060")
# marks by use that are letters or symbols by category: of half-width kana, skin tones
_ALSO_MARKS = frozenset("\uff9e\uff9f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")

Spans = tuple[tuple[int, int], ...]
"""Start and end of words in characters, the end exclusive."""


class Entity(NamedTuple):
    """An entity: characters `start` to `end` of a text, the end exclusive, and its label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A sentence or text, the spans of its words, and their tags if known.

    Tags are in BIO2, or as written in another scheme. `entities` are exactly those given, even if
    they begin or end inside a word; None for plain tags and without tags. `document` counts the
    documents of the file; `source` and `line` locate the beginning of the sentence. `written` is a
    raw text as it was in the input, None where that is `text`.
    """

    text: str
    words: Spans
    tags: tuple[str, ...] | None
    entities: tuple[Entity, ...] | None
    document: int
    source: str
    line: int
    written: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A sentence as in a file: each word with its line and its tag as written."""

    words: list[str]
    tags: list[str] | None
    lines: list[int]
    document: int
    row: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSentence:
    """A sentence that cannot be read, with its error."""

    error: UserError
    row: str


def words_of(text: str) -> Spans:
    """Return the spans of the words and punctuation marks of a raw text.

    Combining marks and joiners belong to what they follow. In scripts without blanks between words,
    such as Han, kana, Thai and Khmer, each character is a word.
    """
    if text.isascii():
        return tuple(match.span() for match in _ASCII_WORD.finditer(text))
    return tuple(match.span() for match in _WORD.finditer(text.translate(_CLASSES)))


def _class_of(character: str) -> str:
    """Return the class of a character as a letter."""
    if character in _JOINED:
        return "j"
    if character in _ALSO_MARKS or unicodedata.category(character).startswith("M"):
        return "m"
    if UNSPACED.match(character):
        return "u"
    if character.isalnum() or character == "_":
        return "l"
    return " " if character.isspace() else "s"


_CLASSES = CharacterTable(_class_of)


def joined(words: Sequence[str]) -> tuple[str, Spans]:
    """Join words with spaces; return the text and their spans."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(words), tuple(spans)


def entities_of(words: Spans, tags: Sequence[str]) -> tuple[Entity, ...]:
    """Return the entities of the tags of words, in characters (see `entity_spans`)."""
    assert len(words) == len(tags)
    return tuple(
        Entity(words[begin][0], words[end - 1][1], label)
        for begin, end, label in entity_spans(tags)
    )


def tags_of(words: Spans, entities: Sequence[Entity]) -> tuple[str, ...]:
    """Return BIO2 tags: a word gets that of the first entity with which it shares a character."""
    ordered = sorted(entities)
    tags, index, started = [], 0, -1
    for start, end in words:
        while index < len(ordered) and ordered[index].end <= start:
            index += 1
        if index == len(ordered) or ordered[index].start >= end:
            tags.append("O")
        else:
            tags.append(f"{'I' if started == index else 'B'}-{ordered[index].label}")
            started = index
    return tuple(tags)


TEXTS = ("text", "sentence", "content")
ENTITIES = ("entities", "spans", "labels", "label", "ents")
TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels", "pos_tags", "ner")
_MARKS = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels"))
"""Keys of an entity, and what doccano or Label Studio call them."""
_SPAN = "write [start, end, label], in characters of the text from 0, the end exclusive"


def has_tokens(path: Path, columns: Columns) -> bool:
    """Return whether a table whose values have names may hold lists of tokens, not texts alone."""
    head = Table(path, ExampleError, encoding=columns.encoding).head()
    tokens = head is not None and first_of(head.names, TOKENS) is not None
    return columns.text is not None or tokens


def record_sentences(
    path: Path, columns: Columns, *, need_tags: bool
) -> Iterator[Words | Tagged | BadSentence]:
    """Yield the sentences of a JSON or Parquet file, its keys being detected from the first rows.

    `columns.text` is the key of the text or tokens, `columns.label` that of the entities or tags.
    Texts are kept verbatim: positions of entities are characters of the original.
    """
    columns.check_read(path, "tags in JSON and Parquet", "text", "label", "header")
    refused: list[BadSentence] = []

    def refuse(error: UserError, row: str) -> None:
        refused.append(BadSentence(error=error, row=row))

    table = Table(path, ExampleError, encoding=columns.encoding, refuse=refuse)
    known: list[str] = []

    def select_columns(head: TableHead) -> ColumnSelection:
        named = _named_columns(head, columns, table.file)
        main = named.get("text", _main_key(head.names))
        if main is None:
            remedy = (
                "give a text and its entities, or name its key with --text-column; the keys are: "
                f"{listed(head.names)}"
            )
            raise table.file.fault("no key that looks like a text", 1, remedy)
        known.append(head.names[main].strip().casefold())
        usual = TAGS if known[0] in TOKENS else (*ENTITIES, *TAGS)
        marks = named.get("label", first_of(head.names, usual))
        if marks is None and need_tags:
            remedy = (
                "give entities as [start, end, label], or name their key with --label-column; the "
                f"keys are: {listed(head.names)}"
            )
            raise table.file.fault("no key that looks like entities or tags", 1, remedy)
        return ColumnSelection(columns=(main,) if marks is None else (main, marks))

    for line, (main, *marks) in table.rows(select_columns):
        yield from refused
        refused.clear()
        # the content of a key given by the user is detected in each row
        tokens = known[0] in TOKENS or (isinstance(main, list) and known[0] not in TEXTS)
        read = _tokens if tokens else _marked_text
        try:
            if need_tags:
                check_accepted(table.file, line, table.record())
            yield read(table.file, line, main, marks[0] if marks else None, table.row())
        except UserError as error:
            yield BadSentence(error=error, row=table.row())
    yield from refused


def _main_key(names: Sequence[str]) -> int | None:
    """Return the position of the key of the tokens, or of the text where entities are marked in it.

    Prodigy writes tokens beside a text and its spans: objects, without tags.
    """
    text = first_of(names, TEXTS)
    marked = first_of(names, ENTITIES) is not None or written_by_prodigy(names)
    if text is not None and marked and first_of(names, TAGS) is None:
        return text
    return first_of(names, (*TOKENS, *TEXTS))


def _named_columns(head: TableHead, columns: Columns, file: TextFile) -> dict[str, int]:
    """Return the positions of the given keys."""
    columns.check_named(file.path)
    named = given_columns(columns, ("text", "label"), head.names, NAMED, file)
    if len(set(named.values())) < len(named):
        problem = f"the key {columns.text!r} is named for the text and for the label"
        raise file.fault(problem, 1, "name a different key for each")
    return named


def _tokens(file: TextFile, line: int, main: object, marks: object, row: str) -> Words:
    words = _strings(file, line, "tokens", main)
    tags = None if marks is None else _strings(file, line, "tags", marks)
    if tags is not None and len(tags) != len(words):
        problem = f"{counted(len(words), 'token')} but {counted(len(tags), 'tag')}"
        raise file.fault(problem, line, "give every token one tag")
    return Words(words=words, tags=tags, lines=[line] * len(words), document=line, row=row)


def _strings(file: TextFile, line: int, role: str, value: object) -> list[str]:
    if role == "tags" and isinstance(value, list) and any(type(item) is int for item in value):
        remedy = f'write what they stand for, as in ["O", "B-PER"], in place of {value[:2]}'
        raise file.fault("the tags are numbers", line, remedy)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise file.fault(f"the {role} are not a list of strings", line, 'write ["O", "B-PER"]')
    strings = [tidy(item) for item in value]
    if not strings or not all(strings):
        raise file.fault(f"the {role} are empty, or contain an empty string", line, "fill them in")
    return strings


def _marked_text(file: TextFile, line: int, main: object, marks: object, row: str) -> Tagged:
    del row
    if not isinstance(main, str) or not main.strip():
        problem, remedy = "the text is empty or not a string", "remove the line or fill it in"
        if main is None or isinstance(main, str):
            raise BlankText(problem, where=file.path, line=line, remedy=remedy)
        raise file.fault(problem, line, remedy)
    if "\0" in main:
        raise file.fault("a zero byte in the text", line, "remove it")
    text = without_surrogates(main)
    words = words_of(text)
    entities = None if marks is None else _entities(file, line, text, marks)
    return Tagged(
        text=text,
        words=words,
        tags=None if entities is None else tags_of(words, entities),
        entities=entities,
        document=line,
        source=str(file.path),
        line=line,
    )


def _entities(file: TextFile, line: int, text: str, marks: object) -> tuple[Entity, ...]:
    if not isinstance(marks, list):
        raise file.fault("the entities are not a list", line, _SPAN)
    entities = sorted(_entity(file, line, text, mark) for mark in marks)
    for first, second in pairwise(entities):
        if second.start < first.end:
            problem = f"entities overlap: {list(first)} and {list(second)}"
            raise file.fault(problem, line, "keep one of them: a word has one tag")
    return tuple(entities)


def _letters(text: str) -> str:
    """Return letters and digits alone; Label Studio writes line ends as two characters."""
    return "".join(filter(str.isalnum, text.replace("\\n", " ")))


def _entity(file: TextFile, line: int, text: str, mark: object) -> Entity:
    written = mark.get("text") if isinstance(mark, dict) else None
    if isinstance(mark, dict):
        mark = [mark.get(key, mark.get(other)) for key, other in _MARKS]
        # Label Studio gives each span a list
        if isinstance(mark[-1], list) and len(mark[-1]) == 1:
            mark[-1] = mark[-1][0]
    if not isinstance(mark, list) or len(mark) != 3:
        raise file.fault("an entity is not a list of three", line, _SPAN)
    start, end, label = mark
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        raise file.fault("an entity is not [integer, integer, string]", line, _SPAN)
    if not 0 <= start < end <= len(text):
        problem = f"no characters {start} to {end} in a text of {len(text)}"
        raise file.fault(problem, line, _SPAN)
    if isinstance(written, str) and _letters(written) != _letters(text[start:end]):
        what = f"the entity at {start} to {end} is {text[start:end][:40]!r}, not {written[:40]!r}"
        remedy = "count characters from 0; some programs count an emoji as two"
        raise file.fault(what, line, remedy)
    if text[start].isspace() or text[end - 1].isspace():
        problem = f"the entity at {start} to {end} begins or ends with white space"
        raise file.fault(problem, line, "exclude the white space")
    if not tidy(label):
        raise file.fault(f"the label of the entity at {start} is empty", line, _SPAN)
    return Entity(start, end, tidy(label))
