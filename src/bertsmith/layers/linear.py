"""Linear maps of the same values, as one product."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.shapes import AtPlaces


def together(inputs: AtPlaces, *maps: nn.Linear) -> Tensor:
    """What several linear maps of one width make of the same values, (tokens, maps x width).

    One wide product is faster than several; the weights stay apart, as most published folders and
    the orthogonalising optimiser want them.
    """
    weight = torch.cat([each.weight for each in maps])
    bias = None if maps[0].bias is None else torch.cat([each.bias for each in maps])
    return F.linear(inputs, weight, bias)
