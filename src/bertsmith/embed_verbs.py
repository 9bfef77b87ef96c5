"""The verb that makes vectors: a function that calls one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


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
    from bertsmith.inference.features import FeatureConfig
    from bertsmith.recipes.embed import embed as recipe
    from bertsmith.text.columns import Columns

    config = FeatureConfig(
        layer=layer, pool=pool, words=words, normalize=normalize, longest=longest, long=long
    )
    place = Columns(text=text_column, text_pair=text_pair_column, header=header, encoding=encoding)
    recipe(model, file, out=out, config=config, prompt=prompt, columns=place, device=device)
