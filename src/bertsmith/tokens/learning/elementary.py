"""Exponential, logarithm and digamma function with the same bits on every chip.

Those of numpy and scipy come from whatever library suits the processor, and differ in the last
bits; where a vocabulary hangs on a comparison, so would the vocabulary. Here are only operations
that IEEE 754 rounds correctly (+, -, *, / and exact scaling), each a separate pass over the
array, so that no compiler fuses two of them. Relative errors are a few units of the last place.
"""

from __future__ import annotations

from math import factorial, sqrt

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_LN2 = 0.6931471805599453
# of ln 2 the first 32 bits, whose product with an exponent is exact, and the rest
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_EXP = tuple(1 / factorial(power) for power in range(14))
_ATANH = tuple(2 / (2 * power + 1) for power in range(11))
# B(2k) / 2k with B the Bernoulli numbers (Abramowitz & Stegun 1964, 6.3.18)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
_STEPS = 10  # upwards, to where the series has converged


def exp(values: Numbers) -> Numbers:
    """Return e to the power of each value; values are above -700 and below 700."""
    exponents = np.rint(values / _LN2)
    rest = (values - exponents * _LN2_HIGH) - exponents * _LN2_LOW
    return np.ldexp(_polynomial(_EXP, rest), exponents.astype(np.int32))


def log(values: Numbers) -> Numbers:
    """Return the natural logarithm of each value; values are positive and finite."""
    mantissas, exponents = np.frexp(values)
    small = mantissas < sqrt(0.5)
    mantissas, exponents = np.where(small, 2 * mantissas, mantissas), exponents - small
    ratio = (mantissas - 1) / (mantissas + 1)
    near_one = ratio * _polynomial(_ATANH, ratio * ratio)
    return np.asarray(exponents * _LN2_HIGH + (exponents * _LN2_LOW + near_one))


def digamma(values: Numbers) -> Numbers:
    """Return the derivative of log gamma at each value; values are positive."""
    below = np.zeros_like(values)
    for step in range(_STEPS):
        below += 1 / (values + step)
    high = values + _STEPS
    square = 1 / (high * high)
    return log(high) - 0.5 / high - square * _polynomial(_DIGAMMA, square) - below


def _polynomial(coefficients: tuple[float, ...], values: Numbers) -> Numbers:
    """Return the sum of coefficients[n] * values**n, by Horner's rule."""
    total = np.full_like(values, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total *= values
        total += coefficient
    return total
