"""Dropout: its share, its expectation, its independence, its gradient."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from bertsmith.core import kernels
from bertsmith.network import openmp
from bertsmith.network.dropout import Dropout, apply_mask, dropout_mask, dropout_scale, random_words
from bounds import close_to_float64

KINDS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.fixture(params=[*kernels.instruction_sets(), None])
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Masks by the kernels of an instruction set, or by torch."""
    chosen: str | None = request.param
    monkeypatch.setattr(kernels, "instruction_set", lambda: chosen)
    return chosen


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.9999])
def test_masks_have_the_same_bits_whatever_makes_them(share: float, kind: torch.dtype) -> None:
    # within a vector, at its end and beyond it; beyond a thread's part
    for count in (0, 1, 3, 5, 63, 64, 65, 2**16 - 1, 2**16 + 7):
        torch.manual_seed(count)
        mask = dropout_mask(torch.empty(count, dtype=kind), share)
        torch.manual_seed(count)
        drawn = random_words(-(-count // 4)).view(torch.int8)[:count].to(torch.int64)
        kept = drawn < 128 - min(255, max(1, round(256 * share)))
        assert mask.dtype == {2: torch.int16, 4: torch.int32}[kind.itemsize]
        assert torch.equal(mask, -kept.to(mask.dtype))


@pytest.mark.skipif(kernels.library() is None, reason="there are no kernels")
@pytest.mark.parametrize("lent", [True, False])
def test_masks_do_not_depend_on_threads(lent: bool) -> None:
    library, instructions = kernels.library(), kernels.instruction_set()
    assert library is not None
    assert instructions is not None
    # as much as two threads are woken up for
    made = torch.zeros(2, 2**22 + 5, dtype=torch.int16)
    for threads, mask in zip((1, 2), made, strict=True):
        call = kernels.MaskCall(
            mask=mask.data_ptr(), count=len(mask), first=3, second=-7, dropped=26, bytes=2,
            parallel=openmp.torch_parallel() if lent else None, threads=threads,
            instruction_set=kernels.NUMBERS[instructions],
        )  # fmt: skip
        kernels.check(library.bs_dropout_masks(call))
    assert torch.equal(*made)
    assert int((made[0] == 0).sum()) == pytest.approx(2**22 * 26 / 256, rel=0.01)
    call.bytes = 8
    with pytest.raises(TypeError):
        kernels.check(library.bs_dropout_masks(call))


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_the_share_dropped_and_the_expectation(share: float, kind: torch.dtype) -> None:
    torch.manual_seed(4)
    ones = torch.ones(1000, 1001, dtype=kind)
    kept = apply_mask(ones, dropout_mask(ones, share)).double()
    assert kept.unique().tolist() == [0.0, 1.0]
    dropped = float((kept == 0).double().mean())
    grain = max(1, round(share * 256)) / 256
    assert abs(grain - share) <= 1 / 256
    # five standard deviations of a million draws
    assert abs(dropped - grain) < 5 * (grain * (1 - grain) / 1_001_000) ** 0.5
    assert dropout_scale(share) == pytest.approx(1 / (1 - grain), rel=1e-12)


def test_bytes_are_uniform_and_neighbours_independent() -> None:
    torch.manual_seed(3)
    drawn = random_words(2**18).view(torch.uint8).to(torch.int64)
    assert stats.chisquare(drawn.bincount(minlength=256).numpy()).pvalue > 1e-4
    # pairs at distances that rows, heads and the four bytes of a word have; twelve tests
    for distance in (1, 2, 3, 4, 8, 64, 127, 128, 256, 768, 1024, 16384):
        coarse = drawn // 16
        pairs = (coarse[:-distance] * 16 + coarse[distance:]).bincount(minlength=256)
        assert stats.chisquare(pairs.numpy()).pvalue > 1e-4, distance


def test_every_bit_of_a_word_is_fair_and_masks_drawn_in_turn_are_independent() -> None:
    torch.manual_seed(2)
    words = torch.stack([random_words(2**16) for _ in range(8)])
    bits = (words[..., None] >> torch.arange(32)) & 1
    share = bits.double().mean(1)
    assert float((share - 0.5).abs().max()) < 5 * 0.5 / 2**8
    flat = (bits - 0.5).flatten(1).double()
    correlation = (flat @ flat.T / flat.shape[1] * 4).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 5 / flat.shape[1] ** 0.5


def test_the_same_seed_drops_the_same() -> None:
    def drawn(seed: int, count: int) -> Tensor:
        torch.manual_seed(seed)
        return random_words(count)

    assert torch.equal(drawn(7, 5000), drawn(7, 5000))
    assert not torch.equal(drawn(7, 5000), drawn(8, 5000))
    # whatever is drawn at once, a word depends on its place only
    assert torch.equal(drawn(7, 300_000)[:5000], drawn(7, 5000))


def test_kept_values_are_scaled_and_nothing_happens_outside_training() -> None:
    torch.manual_seed(3)
    layer, inputs = Dropout(0.25), torch.randn(64, 48)
    found = layer(inputs)
    assert torch.equal(found[found != 0], (inputs * dropout_scale(0.25))[found != 0])
    assert 0.2 < float((found == 0).double().mean()) < 0.3
    assert layer.eval()(inputs) is inputs
    assert Dropout(0.0)(inputs) is inputs


def test_the_backward_pass_is_the_derivative_of_the_forward_pass() -> None:
    inputs = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    layer = Dropout(0.3)

    def alone(inputs: Tensor) -> Tensor:
        torch.manual_seed(6)
        return layer(inputs)  # type: ignore[no-any-return]

    def added(residual: Tensor, inputs: Tensor) -> Tensor:
        torch.manual_seed(6)
        return layer.add(residual, inputs)

    assert torch.autograd.gradcheck(alone, (inputs,))
    assert torch.autograd.gradcheck(alone, (inputs.T,))
    assert torch.autograd.gradcheck(added, (residual, inputs))
    torch.testing.assert_close(added(residual, inputs), residual + alone(inputs))


def test_half_precision_is_added_to_single() -> None:
    torch.manual_seed(5)
    residual = torch.randn(40, 24, requires_grad=True)
    branch = torch.randn(40, 24).bfloat16().requires_grad_()
    total = Dropout(0.1).add(residual, branch)
    assert total.dtype == torch.float32
    kept = total != residual
    expected = residual + branch.float() * dropout_scale(0.1)
    close_to_float64(total[kept], expected[kept])
    total.sum().backward()
    assert residual.grad is not None
    assert branch.grad is not None
    assert branch.grad.dtype == torch.bfloat16
    assert torch.equal(branch.grad != 0, kept)
    assert torch.equal(residual.grad, torch.ones(40, 24))
