"""A learned vocabulary against the definition: fewest pieces for its entries.

    BERTSMITH_DATA=data python benchmarks/vocabulary.py [--quick]

`tokenizers`' WordPieceTrainer (BPE with ##) and `bertsmith vocab learn`, which exchanges half of
such pieces for better ones, learn from the same four fifths of the novels; pieces per word are
counted on the others, longest match first. Times are of learning from texts in memory, in turns.
Checked on the way: as many entries, and the pieces of every held-out word join to the word again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer as Trained
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bertsmith.text.corpus.files import Corpus
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.wordpiece import CONTINUES

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_HELD_OUT_EVERY = 5


def main() -> None:
    """Learn with both, in turns, at each size; print the table and the figures."""
    options = parse()
    files = sorted((options.data / "text" / "novels").glob("*.txt"))
    if options.quick:
        files = files[::6]
    held_out = files[_HELD_OUT_EVERY // 2 :: _HELD_OUT_EVERY]
    learn = texts([file for file in files if file not in held_out])
    rules = BasicRules(lowercase=True)
    words = Counter(word for text in texts(held_out) for word in rules.words(text))
    results = [compare(size, learn, words, options.rounds) for size in options.sizes]
    show(results, len(learn), sum(words.values()))
    print(json.dumps({"quick": options.quick, "sizes": results}))


def texts(files: list[Path]) -> list[str]:
    """All paragraphs of some novels."""
    return [paragraph for document in Corpus(files) for paragraph in document.paragraphs]


def compare(size: int, learn: list[str], words: Counter[str], rounds: int) -> dict[str, float]:
    """Pieces a held-out word and median seconds of both at one size."""
    sides: dict[str, Callable[[int, list[str]], list[str]]] = {"rival": rival, "ours": ours}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    pieces: dict[str, float] = {}
    entries: dict[str, int] = {}
    for _ in range(rounds):
        for name, make in sides.items():
            began = time.perf_counter()
            vocabulary = make(size, learn)
            seconds[name].append(time.perf_counter() - began)
            entries[name], pieces[name] = len(vocabulary), pieces_a_word(vocabulary, words)
    assert entries["ours"] <= entries["rival"] == size, entries
    took = {name: statistics.median(second) for name, second in seconds.items()}
    return {
        "entries": size,
        "rival_pieces_per_word": round(pieces["rival"], 4),
        "pieces_per_word": round(pieces["ours"], 4),
        "rival_seconds": round(took["rival"], 1),
        "seconds": round(took["ours"], 1),
        "time_ratio": round(took["ours"] / took["rival"], 2),
    }


def rival(size: int, learn: list[str]) -> list[str]:
    """WordPieceTrainer as its users call it, with BERT's normaliser and pre-tokeniser."""
    trained = Trained(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer(lowercase=True)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=_SPECIAL, show_progress=False
    )
    trained.train_from_iterator(learn, trainer)
    return list(trained.get_vocab())


def ours(size: int, learn: list[str]) -> list[str]:
    """`bertsmith vocab learn`."""
    return list(learn_wordpiece(iter(learn), size=size, lowercase=True).vocabulary)


def pieces_a_word(vocabulary: list[str], words: Counter[str]) -> float:
    """Mean pieces of the words; one that cannot be cut counts as its characters."""
    known = frozenset(vocabulary)
    total = 0
    for word, count in words.items():
        first, *rest = cuts(word, known)
        assert first + "".join(piece.removeprefix(CONTINUES) for piece in rest) == word
        total += count * (1 + len(rest))
    return total / sum(words.values())


def cuts(word: str, known: frozenset[str]) -> Iterator[str]:
    """Longest match first, written here anew so that neither side's cutting is trusted."""
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = (CONTINUES if start else "") + word[start:end]
            if piece in known:
                break
        else:
            end, piece = start + 1, (CONTINUES if start else "") + word[start]
        yield piece
        start = end


def show(results: list[dict[str, float]], learned: int, words: int) -> None:
    """Print the table."""
    title = f"pieces per word, {words:,} held-out words; {learned:,} paragraphs learned"
    shown = Table(title=title)
    for heading in ("entries", "WordPieceTrainer", "bertsmith", "seconds", "seconds", "time"):
        shown.add_column(heading, justify="right")
    for result in results:
        shown.add_row(
            f"{result['entries']:,}", f"{result['rival_pieces_per_word']:.4f}",
            f"{result['pieces_per_word']:.4f}", f"{result['rival_seconds']:.1f}",
            f"{result['seconds']:.1f}", f"{result['time_ratio']:.2f} x",
        )  # fmt: skip
    Console().print(shown)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("BERTSMITH_DATA"), help="BERTSMITH_DATA")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a sixth of the novels, under 5 min")
    options = parser.parse_args()
    if options.data is None:
        parser.error("set BERTSMITH_DATA to the folder of data sets, or give --data")
    options.data = Path(options.data)
    options.sizes = [8000] if options.quick else [8000, 30000]
    return options


if __name__ == "__main__":
    main()
