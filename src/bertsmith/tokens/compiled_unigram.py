"""Unigram encoding as the compiled tokenizers do it, for folders that have a tokenizer.json alone.

It differs from SentencePiece's (`unigram`) in these points:

- An accent is any mark; capitals become small letters one by one.
- Characters are replaced cluster by cluster (Unicode Standard Annex 29): a letter and its marks, of
  less than six bytes together, become what the shortest match at its beginning becomes; of other
  clusters each character is replaced alone.
- White space at the end of a text may stay, and so may several blanks, or they become a marker.
- Every word is segmented alone, with sums in 64 bits.
- A literal mask may be found after replacement, and what replacement makes of a text may be a
  special token too: neither where special tokens in texts are not wanted, as in corpora.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from bertsmith.tokens.added import (
    AddedText,
    AddedToken,
    AddedTokens,
    Finder,
    finders,
    learned_pieces,
)
from bertsmith.tokens.basic import code_ranges
from bertsmith.tokens.normalisation import SPACE, UnigramRules, original_span
from bertsmith.tokens.unigram import Unigram, joined_unknowns
from bertsmith.tokens.vocabulary import (
    WHITE_SPACE,
    BoundedCache,
    Pieces,
    TextEncoder,
    TextRun,
    Traced,
)

_WORD = re.compile(f"[^{WHITE_SPACE}]+")
_BLANK = re.compile(f"[{WHITE_SPACE}]")
_GAP = re.compile(" {2,}")
_MARKED = re.compile(f"{SPACE}?[^{SPACE}]+|{SPACE}")
_QUOTED = re.compile("(``|'')|.", re.DOTALL)
# of ASCII, what is not always replaced by itself
_APART = "\r`'"
_MAX_CLUSTER_LENGTH = 5


class CompiledUnigramText:
    """Encodes texts by the rules of a tokenizer.json, in which early tokens have been matched."""

    def __init__(
        self,
        vocabulary: Pieces,
        rules: UnigramRules,
        unknown_id: int,
        characters: Characters,
        late: Finder,
    ) -> None:
        ids = learned_pieces(vocabulary, rules.added).ids
        self._between = cache(
            lambda wanted: _Between(ids, rules, unknown_id, characters, late, wanted)
        )

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts; `inside` if it continues a paragraph."""
        return self._between(specials_in_text).ids(text, continues_word=inside)

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces, without the blanks before them."""
        between = self._between(specials_in_text)
        for word, number in between.words(text, continues_word=False):
            if number is not None:
                yield TextRun(0, (number,), word.starts[:1], word.ends[-1:])
                continue
            done = 0
            for piece, size in zip(*between.pieces[word.text], strict=True):
                first, last = original_span(word, done, done + size, text)
                yield TextRun(0, (piece,), (first,), (last,))
                done += size


def compiled_unigram_text(vocabulary: Pieces, rules: UnigramRules, unknown_id: int) -> TextEncoder:
    """Return the encoder of texts by the rules, with their added tokens or special tokens alone."""
    tokens = rules.added or AddedTokens(tokens=_special_tokens(rules), learned=len(vocabulary))
    characters = Characters(rules)
    early, late = finders(tokens, vocabulary.ids, rules.specials, characters.normalised)
    between = CompiledUnigramText(vocabulary, rules, unknown_id, characters, late)
    return AddedText(early, between)


def _special_tokens(rules: UnigramRules) -> tuple[AddedToken, ...]:
    mask, compiled = rules.specials[-1], rules.compiled
    assert compiled is not None
    return tuple(
        AddedToken(
            piece=piece,
            special=True,
            normalized=piece == mask and compiled.late_mask,
            lstrip=piece == mask and rules.mask_takes_blank,
        )
        for piece in rules.specials
    )


class _Between:
    """Encodes the text between special tokens.

    Where they are wanted, replacement may make others of it, as in the compiled tokenizers.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        rules: UnigramRules,
        unknown_id: int,
        characters: Characters,
        late: Finder,
        wanted: bool,
    ) -> None:
        self._ids = {piece: n for piece, n in ids.items() if wanted or piece not in rules.specials}
        self._unigram = Unigram(list(self._ids), [rules.scores[n] for n in self._ids.values()])
        self._rules, self._unknown, self._characters = rules, unknown_id, characters
        self._late, self._wanted = late, wanted
        self._stretches = BoundedCache(self._stretch)
        self.pieces = BoundedCache(self._segmented)
        """The ids of the pieces of each marked word, and their numbers of characters."""

    def ids(self, text: str, *, continues_word: bool) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts; it `continues_word` if no blank is put before it."""
        if self._rules.prefix_space and not continues_word and not self._crosses_blanks(text):
            apart = [self._stretches[stretch] for stretch in text.split(" ")]
            if None not in apart:
                yield from (ids for ids in apart if ids is not None)
                return
        for word, number in self.words(text, continues_word=continues_word):
            yield self.pieces[word.text][0] if number is None else (number,)

    def _crosses_blanks(self, text: str) -> bool:
        """Return whether a token that is found after replacement may contain blanks of a text."""
        return self._late.has_blanks and self._late.matches(self._characters.normalised(text))

    def _stretch(self, stretch: str) -> tuple[int, ...] | None:
        """Return the ids of a text without blanks, None where those around it matter."""
        if not stretch or not self._characters.stands_alone(stretch):
            return None
        new = self._characters.exchanged(stretch).text
        if not new or SPACE in new or self._late.matches(new) or _BLANK.search(new):
            return None
        return self.pieces[SPACE + new][0]

    def words(self, text: str, *, continues_word: bool) -> Iterator[tuple[Traced, int | None]]:
        """Yield the words of a text after replacement, each with the marker of its blank.

        With an added token that is found there comes its id.
        """
        whole = self._characters.traced(text)
        for start, end, number in self._late.parts(whole.text, self._wanted):
            part = whole.part(start, end)
            if number is not None:
                yield part, number
                continue
            for word in self._marked(part, continues_word=continues_word and not start):
                yield word, None

    def _marked(self, whole: Traced, *, continues_word: bool) -> Iterator[Traced]:
        words = [whole]
        if self._rules.remove_space:
            words = [whole.part(*match.span()) for match in _WORD.finditer(whole.text)]
        for number, word in enumerate(words):
            marked = Traced(word.text.replace(" ", SPACE), word.starts, word.ends)
            prefix = self._rules.prefix_space and not (continues_word and number == 0)
            if prefix and marked.text[:1] not in ("", SPACE):
                at = marked.starts[0]
                marked = Traced(SPACE + marked.text, [at, *marked.starts], [at, *marked.ends])
            for match in _MARKED.finditer(marked.text):
                yield marked.part(*match.span())

    def _segmented(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        pieces = joined_unknowns(self._unigram.cut(word).pieces, self._is_unknown)
        ids = tuple(self._ids.get(piece, self._unknown) for piece in pieces)
        return ids, tuple(map(len, pieces))

    def _is_unknown(self, piece: str) -> bool:
        # its own name is one of them
        return self._ids.get(piece, self._unknown) == self._unknown


def _with_gaps(whole: Traced, content: str) -> Traced:
    """Return a text in which one character stands for several blanks in a row."""
    text, starts, ends = "", list[int](), list[int]()
    done = 0
    for gap in _GAP.finditer(whole.text):
        text += whole.text[done : gap.start()] + content
        starts += [*whole.starts[done : gap.start()], whole.starts[gap.end() - 1]]
        ends += [*whole.ends[done : gap.start()], whole.ends[gap.end() - 1]]
        done = gap.end()
    return Traced(
        text + whole.text[done:], [*starts, *whole.starts[done:]], [*ends, *whole.ends[done:]]
    )


class Characters:
    """The replacement of characters: quotes, accents and capitals first, then by clusters."""

    def __init__(self, rules: UnigramRules) -> None:
        assert rules.compiled is not None
        self._rules, self._compiled, self._exchanges = rules, rules.compiled, rules.exchanges
        self._replaced = BoundedCache(self._replacement)
        self._keeps_blank = not self._exchanges or not self._exchanged(" ")[1]
        letters = set(map(chr, range(128))) - set(_APART)
        kept = [c for c in letters if not self._exchanged(c.lower() if rules.lowercase else c)[1]]
        self._plain = re.compile(f"[{re.escape(''.join(kept))}]*")

    def normalised(self, text: str) -> str:
        """Return a text as words are split off."""
        return self.traced(text).text

    def traced(self, text: str) -> Traced:
        """Return a text as words are split off, with positions in the original."""
        whole, compiled = self.exchanged(text), self._compiled
        if compiled.strips_end:
            whole = whole.part(0, len(whole.text.rstrip(WHITE_SPACE)))
        return whole if compiled.gaps is None else _with_gaps(whole, compiled.gaps)

    def stands_alone(self, stretch: str) -> bool:
        """Return whether the clusters of a text are the same with a blank on either side."""
        if not self._exchanges or self._plain.fullmatch(stretch):
            return self._keeps_blank
        clusters = _clusters().findall(f" {self._prepared(stretch).text} ")
        return self._keeps_blank and clusters[0] == clusters[-1] == " "

    def exchanged(self, text: str) -> Traced:
        """Return a text after replacement, with positions in the original."""
        if self._plain.fullmatch(text):
            new = text.lower() if self._rules.lowercase else text
            return Traced(new, range(len(text)), range(1, len(text) + 1))
        whole = self._prepared(text)
        if not self._exchanges:
            return whole
        parts: list[tuple[str, int, int]] = []
        for cluster in _clusters().finditer(whole.text):
            position = cluster.start()
            for new, size in self._replaced[cluster[0]]:
                parts.append((new, whole.starts[position], whole.ends[position + size - 1]))
                position += size
        return _traced(parts)

    def _prepared(self, text: str) -> Traced:
        """Return a text with the replacements of ALBERT, in the order of its normalizers."""
        rules = self._rules
        parts = [(letter, position, position + 1) for position, letter in enumerate(text)]
        if rules.joins_quotes:
            parts = [('"' if m[1] else m[0], m.start(), m.end()) for m in _QUOTED.finditer(text)]
        if not rules.keep_accents:
            # all marks that would be reordered are removed
            parts = [
                (letter, start, end)
                for part, start, end in parts
                for letter in unicodedata.normalize("NFKD", part)
                if unicodedata.category(letter)[0] != "M"
            ]
        if rules.lowercase:
            parts = [(part.lower(), start, end) for part, start, end in parts]
        return _traced(parts)

    def _replacement(self, cluster: str) -> list[tuple[str, int]]:
        """Return the replacements of a cluster's parts, with their numbers of characters."""
        if len(cluster.encode("utf-8", "surrogatepass")) <= _MAX_CLUSTER_LENGTH:
            new, size = self._exchanged(cluster)
            if size:
                return [(new, len(cluster))]
        result = ((letter, *self._exchanged(letter)) for letter in cluster)
        return [(new if size else letter, 1) for letter, new, size in result]

    def _exchanged(self, text: str) -> tuple[str, int]:
        return self._exchanges.exchange(text.encode("utf-8", "surrogatepass"), 0, shortest=True)


def _traced(parts: Sequence[tuple[str, int, int]]) -> Traced:
    """Return the text that parts make, with the positions that they have in the original."""
    return Traced(
        "".join(new for new, _, _ in parts),
        [start for new, start, _ in parts for _ in new],
        [end for new, _, end in parts for _ in new],
    )


# where Unicode's property Grapheme_Cluster_Break is not what the category says
_ALSO_JOINED = "\u200c\u200d\uff9e\uff9f\u0e33\u0eb3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
_NOT_JOINED = frozenset(
    "\u102b\u102c\u1038\u1083\u108f\u1a61\u1a63\u1a64\uaa7b\uaa7d\U00011720\U00011721"
    "\u1062\u1063\u1064\u1067\u1068\u1069\u106a\u106b\u106c\u106d"
    "\u1087\u1088\u1089\u108a\u108b\u108c\u109a\u109b\u109c"
)
_BEFORE = (
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3"
    "\U0001193f\U00011941\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02"
)
_EMOJI = """
    00A9 00AE 203C 2049 2122 2139 2194-2199 21A9-21AA 231A-231B 2328 2388 23CF 23E9-23F3
    23F8-23FA 24C2 25AA-25AB 25B6 25C0 25FB-25FE 2600-2605 2607-2612 2614-2685 2690-2705
    2708-2712 2714 2716 271D 2721 2728 2733-2734 2744 2747 274C 274E 2753-2755 2757 2763-2767
    2795-2797 27A1 27B0 27BF 2934-2935 2B05-2B07 2B1B-2B1C 2B50 2B55 3030 303D 3297 3299
    1F000-1F0FF 1F10D-1F10F 1F12F 1F16C-1F171 1F17E-1F17F 1F18E 1F191-1F19A 1F1AD-1F1E5
    1F201-1F20F 1F21A 1F22F 1F232-1F23A 1F23C-1F23F 1F249-1F3FA 1F400-1F53D 1F546-1F64F
    1F680-1F6FF 1F774-1F77F 1F7D5-1F7FF 1F80C-1F80F 1F848-1F84F 1F85A-1F85F 1F888-1F88F
    1F8AE-1F8FF 1F90C-1F93A 1F93C-1F945 1F947-1FAFF 1FC00-1FFFD
"""
"""Code points with the property Extended_Pictographic."""
_L, _V, _T = (
    "\u1100-\u115f\ua960-\ua97c",
    "\u1160-\u11a7\ud7b0-\ud7c6",
    "\u11a8-\u11ff\ud7cb-\ud7fb",
)
_SYLLABLE = f"[{_L}]*(?:[\uac00-\ud7a3][{_V}]*|[{_V}]+)[{_T}]*|[{_L}]+|[{_T}]+"


@cache
def _clusters() -> re.Pattern[str]:
    """Return the pattern of a grapheme cluster.

    Consonants of India joined by a virama, and flags, are left apart: each has six bytes or more.
    """
    joined, single = [], ["\u2028\u2029"]
    for code in range(0x110000):
        kind = unicodedata.category(chr(code))
        if kind in ("Mn", "Me") or (kind == "Mc" and chr(code) not in _NOT_JOINED):
            joined.append(code)
        elif kind in ("Cc", "Cf", "Cs"):
            single.append(chr(code))
    marks = f"{code_ranges(joined)}{_ALSO_JOINED}"
    alone = re.sub(f"[{_ALSO_JOINED}{_BEFORE}]", "", "".join(single))
    control = code_ranges(sorted(map(ord, alone)))
    emoji = "".join(re.sub(r"\w+", lambda code: f"\\U{code[0]:0>8}", _EMOJI).split())
    core = f"{_SYLLABLE}|[{emoji}](?:[{marks}]*\u200d[{emoji}])*|[^{control}]"
    return re.compile(f"\r\n|[{control}]|[{_BEFORE}]*(?:{core})[{marks}]*|[{_BEFORE}]+[{marks}]*")
