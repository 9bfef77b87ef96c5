"""The kernels for training on a GPU against the formulas in float64, and training with them.

With TRITON_INTERPRET=1 the kernels run on a processor, which tells whether they compute what they
should, and nothing else of a GPU.
"""

from __future__ import annotations

import math
import os

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.network.fused.add_norm import add_norm
from bertsmith.network.fused.gelu import bias_gelu
from bertsmith.network.fused.projections import projections
from bertsmith.network.fused.weights import half_copies
from bertsmith.objectives.fused_loss import fused_linear_cross_entropy
from bounds import check

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}

kinds = pytest.mark.parametrize("kind", list(BOUNDS), ids=str)


def drawn(*shape: int, kind: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """The same numbers, exact in `kind`, in float64 and on the device, both with gradients."""
    exact = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(kind)
    return exact.double().requires_grad_(), exact.to(DEVICE).requires_grad_()


def compare(found: Tensor, wanted: Tensor, bound: float, what: str) -> None:
    assert found.dtype != torch.float64
    check(found.detach(), wanted.detach(), bound, what)


def kept_by(share: float, rows: int, width: int, seed: int) -> Tensor:
    """What `add_norm` keeps after a seed, read from where it passes a gradient on."""
    norm = nn.LayerNorm(width).to(DEVICE)
    product = torch.zeros(rows, width, device=DEVICE, requires_grad=True)
    torch.manual_seed(seed)
    residual = torch.randn(rows, width, device=DEVICE)
    torch.manual_seed(seed)
    output, _ = add_norm(product, None, residual, norm, share)
    (output * torch.randn(rows, width, device=DEVICE)).sum().backward()
    assert product.grad is not None
    return product.grad != 0


@kinds
@pytest.mark.parametrize(
    ("rows", "width"), [(37, 768), (5, 312), (67, 128), (3, 1024), (1, 7), (9, 1030)]
)
@pytest.mark.parametrize("share", [0.0, 0.1, 1 - 1e-6])
@pytest.mark.parametrize("biased", [True, False])
def test_add_norm(kind: torch.dtype, rows: int, width: int, share: float, biased: bool) -> None:
    """Outputs and gradients, given what was dropped, which the outputs alone tell."""
    product, mine = drawn(rows, width, kind=kind, seed=1)
    bias, my_bias = drawn(width, kind=torch.float32, seed=2)
    residual, my_residual = drawn(rows, width, kind=torch.float32, seed=3)
    norm = nn.LayerNorm(width, bias=biased, eps=1e-12)
    with torch.no_grad():
        for number, parameter in enumerate(norm.parameters(), 4):
            parameter.copy_(drawn(width, kind=torch.float32, seed=number)[0])
    exact = nn.LayerNorm(width, bias=biased, eps=1e-12).double()
    exact.load_state_dict(norm.state_dict())
    norm = norm.to(DEVICE)
    torch.manual_seed(7)
    output, operand = add_norm(mine, my_bias if biased else None, my_residual, norm, share)
    assert (output.dtype, operand.dtype) == (torch.float32, kind)
    # what has no gradient keeps nothing for it
    torch.manual_seed(7)
    with torch.no_grad():
        alone = add_norm(mine, my_bias if biased else None, my_residual, norm, share)
    assert torch.equal(alone[0], output)
    assert torch.equal(alone[1], operand)
    keep = torch.ones(rows, width)
    if share:
        # the same keys, and no bias or norm that could hide a dropped value
        torch.manual_seed(7)
        plain = nn.LayerNorm(width).to(DEVICE)
        big = torch.full((rows, width), 1.0, device=DEVICE, requires_grad=True)
        output_alone, _ = add_norm(big, None, torch.zeros_like(big).detach(), plain, share)
        (output_alone * torch.randn(rows, width, device=DEVICE)).sum().backward()
        assert big.grad is not None
        keep = (big.grad != 0).float().cpu()
        scale = 1 / (1 - max(1, round(share * 2**32)) / 2**32)
        keep = keep * scale
    total = residual + (product + bias if biased else product) * keep.double()
    wanted = exact(total)
    compare(output, wanted, 1e-5, "output")
    compare(operand, wanted, BOUNDS[kind], "operand")
    slopes = [drawn(rows, width, kind=kind, seed=number)[0].detach() for number in (8, 9)]
    (wanted * slopes[0] + wanted * slopes[1]).sum().backward()
    (
        (output * slopes[0].to(DEVICE, torch.float32)).sum()
        + (operand * slopes[1].to(DEVICE, kind)).sum()
    ).backward()
    pairs = {"product": (mine, product), "residual": (my_residual, residual)}
    if biased:
        pairs["bias"] = (my_bias, bias)
    pairs |= {
        name: (parameter, dict(exact.named_parameters())[name])
        for name, parameter in norm.named_parameters()
    }
    for name, (found, true) in pairs.items():
        assert found.grad is not None
        assert true.grad is not None
        compare(found.grad, true.grad, 2 * BOUNDS[kind], name)


def test_a_gradient_of_one_output_alone_is_enough() -> None:
    norm = nn.LayerNorm(48).to(DEVICE)
    for used in (0, 1):
        exact, mine = drawn(6, 48, kind=torch.bfloat16, seed=1)
        residual, my_residual = drawn(6, 48, kind=torch.float32, seed=2)
        slope = drawn(6, 48, kind=torch.bfloat16, seed=3)[0].detach()
        both = add_norm(mine, None, my_residual, norm, 0.0)
        (both[used].float() * slope.to(DEVICE, torch.float32)).sum().backward()
        (F.layer_norm(exact + residual, (48,)) * slope).sum().backward()
        assert mine.grad is not None
        assert exact.grad is not None
        compare(mine.grad, exact.grad, 2e-2, str(used))


def test_inputs_may_be_views() -> None:
    norm = nn.LayerNorm(48).to(DEVICE)
    _, wide = drawn(48, 6, kind=torch.bfloat16, seed=1)
    _, residual = drawn(6, 96, kind=torch.float32, seed=2)
    product, rest = wide.T, residual[:, ::2]
    found = add_norm(product, None, rest, norm, 0.0)[0]
    wanted = F.layer_norm(product.float() + rest, (48,), norm.weight, norm.bias)
    compare(found, wanted, 1e-5, "output")
    found.sum(0).mul(torch.arange(48, device=DEVICE)).sum().backward()
    assert wide.grad is not None
    assert bool(wide.grad.isfinite().all())


def test_dropout_has_its_rate_and_is_drawn_anew() -> None:
    """By seed and place in the tensor: each, rows and columns and neighbours alike, at its rate."""
    rows, width, share = 400, 768, 0.1
    kept = kept_by(share, rows, width, 3).float().cpu()
    spread = math.sqrt(share * (1 - share) / kept.numel())
    assert abs(1 - float(kept.mean()) - share) < 5 * spread
    for axis, count in ((0, rows), (1, width)):
        means = 1 - kept.mean(axis)
        assert float((means - share).abs().max()) < 5 * math.sqrt(share * (1 - share) / count)
    # both of two are dropped as often as two that are independent are
    for pair in (
        (kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1]),
        (kept, kept_by(share, rows, width, 4).float().cpu()),
    ):  # fmt: skip
        both = float(((1 - pair[0]) * (1 - pair[1])).mean())
        assert abs(both - share**2) < 5 * share / math.sqrt(pair[0].numel())
    assert torch.equal(kept, kept_by(share, rows, width, 3).float().cpu())


@kinds
@pytest.mark.parametrize(("rows", "width"), [(131, 312), (3, 1000), (260, 7), (128, 256)])
@pytest.mark.parametrize("tanh", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_bias_gelu(kind: torch.dtype, rows: int, width: int, tanh: bool, biased: bool) -> None:
    product, mine = drawn(rows, width, kind=kind, seed=1)
    bias, my_bias = drawn(width, kind=torch.float32, seed=2)
    with torch.no_grad():
        # the far ends
        product[0, :4] = mine[0, :4] = torch.tensor([-60.0, 60.0, -5.0, 5.0])
    found = bias_gelu(mine, my_bias if biased else None, tanh=tanh)
    wanted = F.gelu(product + bias if biased else product, approximate="tanh" if tanh else "none")
    assert found.dtype == kind
    compare(found, wanted, BOUNDS[kind], "output")
    slope = drawn(rows, width, kind=kind, seed=3)[0].detach()
    (wanted * slope).sum().backward()
    (found * slope.to(DEVICE, kind)).sum().backward()
    assert mine.grad is not None
    assert product.grad is not None
    compare(mine.grad, product.grad, 2 * BOUNDS[kind], "product")
    if biased:
        assert my_bias.grad is not None
        assert bias.grad is not None
        compare(my_bias.grad, bias.grad, BOUNDS[kind], "bias")


@kinds
@pytest.mark.parametrize(("rows", "heads", "head"), [(131, 3, 20), (7, 12, 64), (200, 1, 8)])
@pytest.mark.parametrize("biased", [True, False])
def test_projections(kind: torch.dtype, rows: int, heads: int, head: int, biased: bool) -> None:
    width = heads * head
    inputs, mine = drawn(rows, width, kind=kind, seed=1)
    weight, my_weight = drawn(3 * width, width, kind=kind, seed=2)
    bias, my_bias = drawn(3 * width, kind=kind, seed=3)
    found = projections(mine, my_weight, my_bias if biased else None, heads)
    wanted = F.linear(inputs, weight, bias if biased else None)
    wanted_parts = wanted.unflatten(-1, (3, heads, head)).unbind(1)
    slopes = [drawn(rows, heads, head, kind=kind, seed=n)[0].detach() for n in (4, 5, 6)]
    for part, own in zip(found, wanted_parts, strict=True):
        compare(part, own, BOUNDS[kind], "part")
    # the last is no stretch of memory
    given = [slope.to(DEVICE, kind) for slope in slopes]
    given[2] = given[2].mT.contiguous().mT
    torch.autograd.backward(found, given)
    torch.autograd.backward(wanted_parts, slopes)
    for name, one, other in (("inputs", mine, inputs), ("weight", my_weight, weight)):
        assert one.grad is not None
        assert other.grad is not None
        compare(one.grad, other.grad, BOUNDS[kind], name)
    if biased:
        assert my_bias.grad is not None
        assert bias.grad is not None
        compare(my_bias.grad, bias.grad, BOUNDS[kind], "bias")


def test_half_copies() -> None:
    shapes = [(4, 6), (4, 6), (8, 6), (4,), (4,)]
    tensors = [drawn(*shape, kind=torch.float32, seed=n)[1] for n, shape in enumerate(shapes)]
    groups = [tensors[:2], tensors[2:3], tensors[3:]]
    copies = half_copies(groups, torch.bfloat16)
    for copy, group in zip(copies, groups, strict=True):
        assert torch.equal(copy, torch.cat(group).bfloat16())
    # a matrix that nothing reads has no gradient
    slopes = [torch.randn(copies[0].T.shape, device=DEVICE).bfloat16().T, copies[2].detach() + 1]
    torch.autograd.backward([copies[0], copies[2]], slopes)
    assert tensors[2].grad is None
    for slope, group in zip(slopes, (groups[0], groups[2]), strict=True):
        found = torch.cat([tensor.grad for tensor in group if tensor.grad is not None])
        assert found.dtype == torch.float32
        assert torch.equal(found, slope.float())


@pytest.mark.parametrize("kind", list(BOUNDS), ids=str)
@pytest.mark.parametrize("classes", [50, 64, 4200, 8193])
def test_linear_cross_entropy(kind: torch.dtype, classes: int) -> None:
    rows, width = 13, 40
    features, mine = drawn(rows, width, kind=kind, seed=1)
    table, my_table = drawn(classes, width, kind=torch.bfloat16, seed=2)
    table, my_table = table.detach().requires_grad_(), my_table.detach().float().requires_grad_()
    bias, my_bias = drawn(classes, kind=torch.float32, seed=3)
    labels = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(4))
    labels[0], labels[1] = 0, classes - 1
    read = features.to(torch.bfloat16).double()
    logits = F.linear(read, table, bias)
    wanted = F.cross_entropy(logits, labels, reduction="sum")
    found, correct = fused_linear_cross_entropy(mine, my_table, my_bias, labels.to(DEVICE))
    assert found.detach().item() == pytest.approx(wanted.detach().item(), rel=1e-2)
    assert int(correct) == int((logits.argmax(-1) == labels).sum())
    (wanted / 3).backward()
    (found / 3).backward()
    for name, one, other in (("table", my_table, table), ("bias", my_bias, bias)):
        assert one.grad is not None
        assert other.grad is not None
        assert one.grad.dtype == torch.float32
        compare(one.grad, other.grad, 2e-2, name)
    probabilities = (logits.softmax(-1) - F.one_hot(labels, classes)) / 3
    assert mine.grad is not None
    compare(mine.grad, probabilities @ table, 3e-2, "features")
