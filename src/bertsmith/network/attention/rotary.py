"""Rotary positions: queries and keys turned by their place in the sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertsmith.core.shapes import Queries, SelectedTokens, TokenIds


@dataclass(frozen=True, slots=True)
class Rotation:
    """The turns of the tokens of a batch: `cosine` and `sine`, each (tokens, 1, head / 2).

    Entry i of a head and entry i + head / 2 are the two coordinates of a plane, which is turned by
    the token's position times theta ** (-2 i / head): what a query and a key make together then
    depends on how far they are apart alone (Su et al. 2021, section 3.2).
    """

    cosine: Tensor
    sine: Tensor

    def rotate(self, values: Queries, selected: SelectedTokens | None = None) -> Queries:
        """Rotate queries or keys (tokens, heads, head), or those of the tokens `selected`."""
        cosine, sine = self.cosine, self.sine
        if selected is not None:
            cosine, sine = cosine.index_select(0, selected), sine.index_select(0, selected)
        turned: Tensor = _Rotate.apply(values, cosine, sine)  # type: ignore[no-untyped-call]
        return turned


def rotation(positions: TokenIds, width: int, theta: float) -> Rotation:
    """Return the turns of tokens at these positions for heads of an even `width`.

    Angles are float32, as everywhere else: far into a long text another precision is another model.
    """
    index = torch.arange(0, width, 2, dtype=torch.int64, device=positions.device)
    frequency = 1.0 / theta ** (index.float() / width)
    angle = (positions[:, None].float() * frequency)[:, None]
    return Rotation(angle.cos(), angle.sin())


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:  # noqa: ANN401
        context.save_for_backward(cosine, sine)
        return _rotate(values, cosine, sine)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        cosine, sine = context.saved_tensors
        return _rotate(gradient, cosine, -sine), None, None


def _rotate(values: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    exact = values if values.dtype in (torch.float32, torch.float64) else values.float()
    first, second = exact.chunk(2, -1)
    turned = exact.new_empty(exact.shape)
    left, right = turned.chunk(2, -1)
    torch.mul(first, cosine, out=left).addcmul_(second, sine.to(exact.dtype), value=-1)
    torch.mul(second, cosine, out=right).addcmul_(first, sine.to(exact.dtype))
    return turned.to(values.dtype)
