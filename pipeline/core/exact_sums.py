"""Arithmetic whose results depend on nothing but its operands.

The sum of a matrix product depends on the order of its additions: on the processor, on the library and on the number of
rows. Vectors on a grid so coarse that double precision holds every partial sum leave nothing to be rounded, so that
every order gives the same bits. And numpy's exponential function is another one on every processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_BITS = 26
"""By Cauchy and Schwarz no partial sum of products needs more than twice as many, and a double holds 53."""
_LOWEST = -700.0
_TAYLOR = np.cumprod([1.0, *(1 / n for n in range(1, 14))])


def on_grid(vectors: ArrayLike) -> NDArray[np.float64]:
    """Return vectors, along the last axis, each rounded to a grid of its own on which inner products are exact.

    A coordinate moves by at most the length of its vector / 2**26.
    """
    vectors = np.asarray(vectors, np.float64)
    length = np.sqrt(np.add.reduce(np.square(vectors), axis=-1, keepdims=True))
    step = np.ldexp(1.0, np.frexp(length)[1] - _BITS)
    return np.asarray(np.rint(vectors / step) * step)


def exponential(exponents: NDArray[Any]) -> NDArray[np.float64]:
    """Return e to the power of values of at most 0, to within an ulp, by additions and products only."""
    exponents = np.maximum(exponents, _LOWEST)
    powers = np.rint(exponents / np.log(2))
    rest = exponents - powers * _LN2_HIGH
    rest -= powers * _LN2_LOW
    values = np.full_like(rest, _TAYLOR[-1])
    for coefficient in _TAYLOR[-2::-1]:
        values *= rest
        values += coefficient
    return np.asarray(np.ldexp(values, powers.astype(np.int32)))
