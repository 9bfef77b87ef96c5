from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer

from bertsmith.batches.pairs import encode_pair

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> BertTokenizer:
    path: Path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join([*SPECIALS, *"abcdefg"]), encoding="utf-8")
    return BertTokenizer(str(path))


@pytest.mark.parametrize("longest", [5, 6, 11, 16])
def test_pairs_are_cut_as_transformers_cuts_them(reference: BertTokenizer, longest: int) -> None:
    for first in range(14):
        for second in (None, *range(14)):
            texts = [np.arange(first) + 5]
            if second is not None:
                texts.append(np.arange(second) + 105)
            ids, segments = encode_pair(
                texts[0],
                texts[1] if second is not None else None,
                cls_id=2,
                sep_id=3,
                longest=longest,
            )
            expected = reference.prepare_for_model(
                *(text.tolist() for text in texts),
                truncation="longest_first",
                max_length=longest,
            )
            assert ids.tolist() == expected["input_ids"]
            assert segments.tolist() == expected["token_type_ids"]
            assert len(ids) <= longest
