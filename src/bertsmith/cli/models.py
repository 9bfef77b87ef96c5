"""The verb that brings models to the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bertsmith.core.output import print_json


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


def push(
    model: Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str = "",
    license: str | None = None,
    language: str | None = None,
    datasets: str | None = None,
    dry_run: bool = False,
) -> None:
    """Send a model folder to the hub, with a model card.

    The folder is loaded first, to see that it can be. Its README.md gets the head that the hub
    reads, as far as it is missing; what you wrote there stays. Only the model's files are sent: no
    checkpoints, logs or data. You must be signed in: set HF_TOKEN, or run: hf auth login.

    Args:
        model: folder of a model
        repository: where to, as owner/name; made if it is not there
        private: let nobody else see it
        revision: branch to send to, made if it is not there; main where none is given
        message: what the commit is called
        license: the license's name on the hub, as apache-2.0, mit or cc-by-4.0
        language: language of its text, as en, or several with commas between
        datasets: data sets of the hub that it was trained on, with commas between
        dry_run: send and write nothing; tell the files and print the card
    """
    from bertsmith.recipes.push import push as recipe

    recipe(
        model,
        repository,
        private=private,
        revision=revision,
        message=message,
        license=license,
        language=_words(language),
        datasets=_words(datasets),
        dry_run=dry_run,
    )


def _words(value: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (value or "").split(",") if word.strip())


def list_models(*, json: bool = False) -> None:
    """List published models, with their parameters and the memory they take.

    The sizes are those of pretrain --model; the memory is that of a whole process, to run the
    encoder on a batch of 4,096 tokens, or to pre-train it with such batches and AdamW.

    Args:
        json: print one JSON object on standard output, memory in bytes
    """
    from bertsmith.recipes.models import as_json, models, show

    facts = models()
    if json:
        print_json(as_json(facts))
    else:
        show(facts)
