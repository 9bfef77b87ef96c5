"""The axes of every array in the program, said once.

    tokens      all tokens of a packed batch, its sequences end to end
    sequences   the sequences of a batch
    targets     the positions of a batch that have something to predict
    selected    some tokens of a batch, in order, or all of them
    hidden      the width of the encoder
    width       that of the embedding tables, the encoder's but in an ALBERT
    heads       attention heads;  head: the width of one
    vocabulary  entries of the vocabulary
    labels      classes of a classifier, or other values that a head gives
    features    the width of what is made of hidden states, several side by side perhaps

Shapes stand in signatures and are checked by the tests only (jaxtyping with beartype), which import
jaxtyping first; without it they are annotations that nothing reads.
"""

import sys
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING or "jaxtyping" not in sys.modules:
    from typing import Annotated as Float
    from typing import Annotated as Int
else:
    from jaxtyping import Float, Int

TokenIds = Int[Tensor, " tokens"]
Offsets = Int[Tensor, " sequences_plus_1"]
Hidden = Float[Tensor, "tokens hidden"]
Heads = Float[Tensor, "tokens heads head"]
SelectedTokens = Int[Tensor, " selected"]
PooledTokens = Int[Tensor, " sequences"]
SelectedStates = Float[Tensor, "selected hidden"]
Queries = Float[Tensor, "selected heads head"]
Pooled = Float[Tensor, "sequences hidden"]
Vectors = Float[Tensor, "sequences features"]
TokenVectors = Float[Tensor, "tokens features"]
AtTargets = Float[Tensor, "targets hidden"]
Logits = Float[Tensor, "targets vocabulary"]
ClassLogits = Float[Tensor, "sequences labels"]
TagLogits = Float[Tensor, "tokens labels"]
SpanLogits = Float[Tensor, "tokens 2"]
Scores = Float[Tensor, " sequences"]
TargetIds = Int[Tensor, " targets"]
Table = Float[Tensor, "vocabulary width"]
