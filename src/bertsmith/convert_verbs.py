"""The verb that brings models in from other formats, and back: a function that calls its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def convert(
    source: Path,
    out: Path,
    *,
    to: Literal["bertsmith", "tensorflow"] = "bertsmith",
    reference: Path | None = None,
) -> None:
    """Make a model folder of weights in another format, or Google's format of a model folder.

    What SOURCE is, its files tell:
      pickled     pytorch_model.bin (or any .bin, .pt, .pth), one file or several with an index;
                  opened in a process that has limits and runs nothing it reads
      safetensors model.fp16.safetensors and the like, one file or several with an index, and
                  model.safetensors whose vocabulary lies one folder up
      fairseq     a RoBERTa's model.pt with dict.txt, encoder.json and vocab.bpe beside it
      TensorFlow  bert_model.ckpt.index and .data-... of google-research/bert or /albert with
                  bert_config.json and vocab.txt beside them; TensorFlow is not needed
    config.json and the vocabulary lie beside the weights, or one folder up.
    OUT/conversion.json tells what became of every tensor.

    Args:
        source: folder or file of the model; of a TensorFlow checkpoint also the files' prefix
        out: folder to write, which must not exist
        to: bertsmith for a model folder, which transformers reads too; tensorflow for a checkpoint
            that google-research/bert reads, made of a model folder
        reference: folder of the same model, to compare the answers of the two
    """
    from bertsmith.recipes.convert import convert as recipe

    recipe(source, out, to=to, reference=reference)
