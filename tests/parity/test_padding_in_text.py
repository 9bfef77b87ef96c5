"""A padding token that a text contains, which the positions of a RoBERTa do not count.

transformers gives it the row of its id, and the token after it the position that it would have had
without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import bertsmith
from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.kernels import instruction_set
from bertsmith.engine.native import NativeEncoder
from bertsmith.engine.prepacked import PackedEncoder
from bertsmith.network.batch import Batch, pack
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Model
from bertsmith.recipes.export.graph import PaddedModel
from bertsmith.recipes.finetune.trial import trimmed_embeddings
from bertsmith.weights.folder import save_model
from bounds import close_to_transformers
from families import MODELS, TOKENIZERS, varied

# the padding has the id 1
SEQUENCES = ([0, 9, 1, 1, 7, 2], [1, 5, 6, 2], [0, 8, 2], [0, 1], [1], [0, 1, 30, 1, 31, 32, 1])


def packed(sequences: tuple[list[int], ...] = SEQUENCES) -> Batch:
    ids = [torch.tensor(sequence).numpy() for sequence in sequences]
    return pack(ids, [each * 0 for each in ids])


def hidden_states(theirs: Any) -> Tensor:  # noqa: ANN401
    """What transformers gives for each sequence alone, end to end."""
    rows = [theirs(torch.tensor([ids])).last_hidden_state[0] for ids in SEQUENCES]
    return torch.cat(rows)


@contextmanager
def both(family: FamilyName, folder: Path) -> Iterator[tuple[Model, Any]]:
    ours = varied(MODELS[f"{family}-none"])
    save_model(folder, ours, TOKENIZERS[family])
    with torch.no_grad():
        yield ours, transformers.AutoModel.from_pretrained(folder).eval()


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_hidden_states_are_those_of_transformers(family: FamilyName, tmp_path: Path) -> None:
    with both(family, tmp_path / "model") as (ours, theirs):
        expected = hidden_states(theirs)
        close_to_transformers(ours.encoder(packed()).last, expected)
        if instruction_set() is not None:
            native = NativeEncoder(ours.encoder, precision="fp32", threads=1)
            close_to_transformers(native(packed()).last, expected, "native")
        graph, longest = PaddedModel(ours), max(map(len, SEQUENCES))
        rows = [ids + [1] * (longest - len(ids)) for ids in SEQUENCES]
        mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in SEQUENCES])
        close_to_transformers(graph(torch.tensor(rows), mask)[0][mask.bool()], expected, "exported")
        close_to_transformers(
            PackedEncoder(ours.encoder, precision="fp32")(packed()).last, expected, "prepacked"
        )


def test_ids_of_a_trimmed_table_are_counted_as_before(tmp_path: Path) -> None:
    with both("roberta", tmp_path / "model") as (ours, theirs):
        ids = [np.array(sequence, np.int32) for sequence in SEQUENCES]
        examples = EncodedExamples.of(ids)
        with trimmed_embeddings(ours, examples) as trimmed:
            assert ours.encoder.embeddings.tokens.num_embeddings < 99
            batch = packed(tuple(each.tolist() for each in trimmed.ids))
            found = ours.encoder(batch).last
        close_to_transformers(found, hidden_states(theirs))
        close_to_transformers(ours.encoder(packed()).last, hidden_states(theirs))


def test_vectors_of_texts_that_contain_it(tmp_path: Path) -> None:
    texts = ["word3 [PAD] word4 word5", "[PAD]word6", "[PAD]", "word7 [PAD][PAD] [PAD] word8"]
    with both("roberta", tmp_path / "model") as (_, theirs):
        tokenizer = TOKENIZERS["roberta"]
        found = bertsmith.load(tmp_path / "model", precision="fp32").embed(texts)
        for text, vector in zip(texts, found, strict=True):
            ids = [0, *tokenizer.encode([text])[0].tolist(), 2]
            assert 1 in ids
            expected = theirs(torch.tensor([ids])).last_hidden_state[0].mean(0)
            close_to_transformers(torch.from_numpy(vector), expected, text)
