"""Documents as token ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.tokens.chunks import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """Some documents as token ids, without those that have none.

    `ids` (tokens,) end to end; `sentences` (sentences,) lengths in tokens, all above 0;
    `documents` (documents,) numbers of sentences, all above 0; `words` counts what blanks and the
    ends of sentences part, `unknown` the unknown among the ids.
    """

    ids: NDArray[np.int32]
    sentences: Integers
    documents: Integers
    words: int
    unknown: int
