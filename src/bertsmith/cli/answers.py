"""The verbs that ask a fine-tuned model: each is a function that calls one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bertsmith.cli.command import Verb
from bertsmith.cli.finetune import LABEL_OPTIONS, TEXT_OPTIONS
from bertsmith.core.config import Config
from bertsmith.core.output import print_json

Fit = Literal["head", "tail", "head+tail", "windows"]


def predict(
    model: Path,
    file: str = "-",
    *,
    top: int = 5,
    format: Literal["table", "csv", "jsonl"] = "table",
    longest: int | None = None,
    long: Fit | None = None,
    stride: int | None = None,
    no_answer: float | None = None,
    min_confidence: float | None = None,
    tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    device: str = "auto",
    settings: Config | None = None,
) -> None:
    """Answer for texts, by what the model folder was taught, or fill in [MASK].

    One row out for each row in, blank ones too; csv and jsonl keep the columns of the input. A
    pre-trained model also tells whether the second text of a pair, written with a tab between,
    follows the first; one pre-trained from left to right continues each text.

    Args:
        model: folder of a model, or hub:owner/name, or with @revision
        file: texts, one a line or in the columns of a table, or a file or folder of the model's
            task; - is standard input
        top: answers to show for each text
        format: a table to read; csv, or a JSON object a line (jsonl), for programs
        longest: tokens of a text that are read at once; as in training where not given
        long: what is read of longer texts: head, tail, head+tail, or windows, all of it; as in
            training where not given
        stride: tokens that two windows share, where words or answers are looked for; as in
            training where not given
        no_answer: give no answer to a question where the doubt is over this, in place of what was
            tuned when the model was trained; 1e9 to always answer
        min_confidence: give no class or choice whose probability is below this, in place of what
            was chosen when the model was trained; 0 to always answer
        tokens: tokens to continue each text with, of a left-to-right model; 20 where not given
        temperature: of the same, how much chance there is in them: 0, where not given, takes the
            likeliest token each time, 1 draws as the model says
        seed: of what is drawn; 0 where not given
        device: cpu, cuda or cuda:1; auto is a GPU if there is one
    """
    from bertsmith.engine.continuation import ContinuationConfig
    from bertsmith.recipes.predict.recipe import predict as recipe
    from bertsmith.tasks.answering import AnsweringConfig
    from bertsmith.tasks.reading import Reading

    reading = settings or Reading()
    assert isinstance(reading, Reading)
    given = {"tokens": tokens, "temperature": temperature, "seed": seed}
    said = {name: value for name, value in given.items() if value is not None}
    config = AnsweringConfig(
        top=top, longest=longest, long=long, stride=stride, no_answer=no_answer,
        min_confidence=min_confidence,
        continuation=ContinuationConfig.from_dict(said) if said else None,
    )  # fmt: skip
    recipe(model, file, format=format, reading=reading, config=config, device=device)


def evaluate(
    model: Path,
    file: Path,
    *,
    longest: int | None = None,
    long: Fit | None = None,
    stride: int | None = None,
    device: str = "auto",
    json: bool = False,
    settings: Config | None = None,
) -> None:
    """Score a fine-tuned model on labelled examples, with 95 % intervals.

    Labels are compared by name, whatever the order in which the file has them.

    Args:
        model: folder of a fine-tuned model, or hub:owner/name, or with @revision
        file: labelled examples
        longest: tokens of a text that are read at once; as in training where not given
        long: what is read of longer texts: head, tail, head+tail, or windows, all of it; as in
            training where not given
        stride: tokens that two windows share, where words or answers are looked for; as in
            training where not given
        device: cpu, cuda or cuda:1; auto is a GPU if there is one
        json: print the scores as one JSON object on standard output
    """
    from bertsmith.recipes.predict.evaluate import evaluate as recipe
    from bertsmith.tasks.answering import AnsweringConfig
    from bertsmith.tasks.reading import Reading

    reading = settings or Reading()
    assert isinstance(reading, Reading)
    config = AnsweringConfig(longest=longest, long=long, stride=stride)
    scores = recipe(model, file, reading=reading, config=config, device=device)
    if json:
        print_json(scores)


def _reading() -> type[Config]:
    from bertsmith.tasks.reading import Reading

    return Reading


ANSWERING_VERBS = {
    "predict": Verb(
        function=predict,
        settings=_reading,
        short=TEXT_OPTIONS,
        examples=("spam/model messages.txt", "run/model --top 3 < sentences-with-masks.txt"),
    ),
    "evaluate": Verb(
        function=evaluate,
        settings=_reading,
        short=TEXT_OPTIONS | LABEL_OPTIONS,
        examples=("spam/model test.csv",),
    ),
}


def embed(
    model: Path,
    file: str = "-",
    *,
    out: Path,
    layer: str = "last",
    pool: str = "auto",
    words: Literal["blanks", "marks"] = "blanks",
    normalize: bool = False,
    longest: int | None = None,
    long: Literal["cut", "windows"] = "cut",
    prompt: str | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    header: Literal["auto", "yes", "no"] = "auto",
    encoding: str = "auto",
    device: str = "auto",
) -> None:
    """Write the vectors of texts, of their words or of their tokens, to a file.

    A sentence-transformers folder pools and normalises as its files say; others give the mean, or
    the last token if the model reads from left to right: only that one has seen the others.

    Layers:
      0 to L          by number; 0, or embeddings, is what the first layer reads
      first, last, second-to-last, sum-last-4, concat-last-4, sum-all
      mix:W,W,...     a weight a layer; mix:FILE, learned ones as JSON (Peters et al. 2018)

    Pooling:
      cls, mean, max, mean-sqrt-length, weighted-mean, last-token, or several: cls+mean
      pooler, the model's own, on the last layer; token, a vector a token
      word-mean, word-first, word-sum, a vector a word, of its pieces

    Args:
        model: folder of a model, or hub:owner/name, or with @revision
        file: texts, one a line or in the columns of a table; - is standard input
        out: .npy, .parquet or .jsonl for the vectors; beside an .npy of tokens or words there are
            OUT.offsets.npy (where a text's rows begin) and OUT.spans.npy (characters)
        layer: which hidden states make a vector
        pool: what a vector is of; auto is the folder's own, or as told above
        words: words are parted by blanks, or marks are words too
        normalize: bring every vector to length 1
        longest: tokens of a text that are read, where that is less than the model can
        long: cut what is longer, or read it in windows and average their vectors
        prompt: name of a prompt of a sentence-transformers folder, to be written before each text
        text_column: column of the text: a name or, in CSV and TSV, a position from 0
        text_pair_column: column of the second text, to be read as one with the first
        header: whether the first line of a CSV or TSV names its columns; auto looks
        encoding: of the file; auto is UTF-8, what a byte order mark says, or a guess that is said
        device: cpu, cuda or cuda:1; auto is a GPU if there is one
    """
    from bertsmith.engine.features import FeatureConfig
    from bertsmith.recipes.embed import embed as recipe
    from bertsmith.text.examples.columns import Columns

    config = FeatureConfig(
        layer=layer, pool=pool, words=words, normalize=normalize, longest=longest, long=long
    )
    place = Columns(text=text_column, text_pair=text_pair_column, header=header, encoding=encoding)
    recipe(model, file, out=out, config=config, prompt=prompt, columns=place, device=device)
