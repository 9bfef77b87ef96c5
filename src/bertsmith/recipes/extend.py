"""Extension of a model's vocabulary with the pieces that are frequent in a domain.

bertsmith vocab extend model notes/ --add 1000 --out extended
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from torch import Tensor, nn

from bertsmith.core import VERSION
from bertsmith.core.errors import ModelFolderError, VocabularyError
from bertsmith.core.files import name_is_taken
from bertsmith.core.log import progress, say
from bertsmith.core.options import typed_options
from bertsmith.core.ownership import claimed_output
from bertsmith.core.printable import counted, shell_word
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.config import ModelConfig
from bertsmith.network.heads import MaskedLMHead
from bertsmith.network.model import Model
from bertsmith.recipes.config import ExtendConfig
from bertsmith.recipes.prepare import open_corpus
from bertsmith.recipes.vocabulary import left_out_note, watched_learning
from bertsmith.reports.model_card import base_of, head_of, written
from bertsmith.text.corpus.documents import Document
from bertsmith.text.corpus.files import Corpus
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.counting import VocabularyFit, WordCounter, measure_words
from bertsmith.tokens.learning.extension import Extension, extend_vocabulary
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from bertsmith.weights.sentence_folder import save_like


def with_pieces(model: Model, size: int, replaced: Sequence[Sequence[int]]) -> Model:
    """Return a copy of a model with rows for the new pieces `size`, `size` + 1, ...

    `replaced[i]` are the ids that the piece `size` + i replaces. Its row of the token table is the
    mean of theirs, and so is its bias in the masked-LM head: with both, its logit starts as the
    mean of theirs, whatever the hidden state. Unused padding rows of the table are filled first.
    """
    grown = copy.deepcopy(model)
    tokens = grown.encoder.embeddings.tokens
    table = _grown(tokens.weight.detach(), size, replaced)
    encoder = dataclasses.replace(model.config.encoder, vocabulary=len(table))
    grown.config = dataclasses.replace(model.config, encoder=encoder)
    grown.encoder.config = encoder
    tokens.num_embeddings, tokens.weight = len(table), nn.Parameter(table)
    if "masked_lm" in grown.heads:
        head = grown.heads["masked_lm"]
        assert isinstance(head, MaskedLMHead)
        head.bias = nn.Parameter(_grown(head.bias.detach(), size, replaced))
    return grown


def _grown(old: Tensor, size: int, replaced: Sequence[Sequence[int]]) -> Tensor:
    new = old.new_zeros((max(len(old), size + len(replaced)), *old.shape[1:]))
    new[: len(old)] = old
    for number, ids in enumerate(replaced, start=size):
        new[number] = old[list(ids)].mean(dim=0)
    return new


_HELD_OUT = 20
_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class ExtendOutcome:
    """The result of an extension; the fits are measured on held-out text."""

    folder: Path
    extension: Extension
    before: VocabularyFit
    after: VocabularyFit
    held_out: str


def extend(config: ExtendConfig) -> ExtendOutcome:
    """Add the `add` pieces to a model's vocabulary that save most in a corpus; save it in `out`.

    A twentieth of the corpus is held out to measure with: documents, or paragraphs if there are
    fewer than twenty documents. Each new row of the token table, and of the masked-LM bias, starts
    as the mean of those it replaces. Raises `UserError` children.
    """
    out = config.out
    with claimed_output(out):
        if name_is_taken(out):
            raise ModelFolderError("exists already", where=out, remedy="choose another --out")
        outcome = _extended(config.model, open_corpus(config.text), config.add, out)
    _print_summary(outcome, config)
    return outcome


def _extended(model: str | Path, opened: Corpus, add: int, out: Path) -> ExtendOutcome:
    parent = model_folder(model)
    network, tokenizer = load_model(parent)
    if not isinstance(tokenizer.rules, BasicRules):
        raise VocabularyError(
            f"its vocabulary is of the kind {tokenizer.kind}",
            where=model,
            remedy="pieces can be added to WordPiece vocabularies only",
        )
    if tokenizer.rules.added is not None:
        raise VocabularyError(
            "tokens were added to its vocabulary, whose ids pieces would take",
            where=model,
            remedy="extend the vocabulary of a model without them, and add them afterwards",
        )
    counted = _Counted(tokenizer.rules)
    with progress("reading", opened.total_bytes, "B") as bar:
        for _ in counted.reading(opened):
            bar.move_to(opened.bytes_read)
    with watched_learning() as observer:
        mined = counted.mined.words(tokenizer.rules, observer)
        extension = extend_vocabulary(tokenizer, mined, count=add, observer=observer)
    if note := left_out_note(counted.mined.forgotten_share()):
        say(note)
    words = counted.measured.stretches
    outcome = ExtendOutcome(
        folder=out,
        extension=extension,
        before=measure_words(tokenizer, words),
        after=measure_words(extension.tokenizer, words),
        held_out=counted.held_out,
    )
    grown = with_pieces(network, tokenizer.size, extension.replaced)
    card = _card(parent, network.config, tokenizer, outcome)
    save_like(parent, out, grown, extension.tokenizer, card=card)
    return outcome


class _Counted:
    """Word counts for mining and for measuring, and the unit in which the latter are held out."""

    def __init__(self, rules: BasicRules) -> None:
        self.mined = WordCounter(ideographs=rules.space_cjk)
        self.measured = WordCounter(ideographs=False)
        self.held_out = ""

    def reading(self, documents: Iterable[Document]) -> Iterator[str]:
        """Count and yield every paragraph."""
        stream = iter(documents)
        first = list(islice(stream, _HELD_OUT))
        by_document = len(first) == _HELD_OUT
        self.held_out = "documents" if by_document else "paragraphs"
        paragraph = 0
        for number, document in enumerate(chain(first, stream), start=1):
            for text in document.paragraphs:
                paragraph += 1
                aside = (number if by_document else paragraph) % _HELD_OUT == 0
                (self.measured if aside else self.mined).add(text)
                yield text


def describe(outcome: ExtendOutcome) -> str:
    """Return one line on the effect of the new pieces on held-out text."""
    loss_before, loss_after = outcome.before, outcome.after
    if not loss_before.pieces:
        return "pieces per word: the corpus is too small to hold text out for measuring"
    saved = 1 - loss_after.pieces / loss_before.pieces
    # words that were one [UNK] may be split now
    direction = "fewer" if saved >= 0 else "more"
    line = (
        f"pieces per {loss_before.size.unit} on held-out {outcome.held_out} "
        f"({counted(loss_before.size.words, 'word')}): {loss_before.pieces_per_unit:.3f} before, "
        f"{loss_after.pieces_per_unit:.3f} after, {abs(100 * saved):.1f} % {direction}"
    )
    if loss_before.unknown:
        line += (
            f"; {100 * loss_before.unknown_share:.2f} % of the pieces [UNK] before, "
            f"{100 * loss_after.unknown_share:.2f} % after"
        )
    return line


def _print_summary(outcome: ExtendOutcome, config: ExtendConfig) -> None:
    added, size = outcome.extension.added, outcome.extension.tokenizer.size
    best = ", ".join(item.piece for item in added[:_SHOWN])
    say(f"vocabulary: {counted(len(added), 'piece')} added, now {size:,}; best: {best}")
    if len(added) < config.add:
        say(
            "no other piece is frequent enough to be learned and saves any; "
            f"{config.add:,} were requested"
        )
    say(describe(outcome))
    vocabulary = f"--vocab {shell_word(outcome.folder)}"
    say(f"next: bertsmith prepare CORPUS{typed_options(config.text)} {vocabulary} --out store")
    further = f"--from {shell_word(outcome.folder)} --out run --minutes 60"
    say(f"then: bertsmith pretrain store {further}")


def _card(parent: Path, config: ModelConfig, tokenizer: Tokenizer, outcome: ExtendOutcome) -> str:
    added = outcome.extension.added
    best = " ".join(f"`{item.piece}`" for item in added[: 5 * _SHOWN]).replace("|", "\\|")
    name, head = origin(parent) or parent.resolve().name, head_of(config, base=base_of(parent))
    return f"""{written(head)}
# {name} with more vocabulary

The weights of `{name}`, its vocabulary of {tokenizer.size:,} pieces extended by
{len(added):,} with bertsmith {VERSION}. Old pieces keep their ids. Each new piece starts as the
mean of the pieces it replaces, so train the model further on text of the domain before you use it.

| what | value |
|---|---|
| parent's vocabulary | {tokenizer.fingerprint[:16]} |
| measured | {describe(outcome)} |
| best new pieces | {best} |
"""
