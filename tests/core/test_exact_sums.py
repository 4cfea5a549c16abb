"""Products and powers that are the same on every processor, against rational numbers and the standard library."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from pipeline.core.exact_sums import exponential, on_grid


def rational(vector) -> list[Fraction]:
    return list(map(Fraction, vector.tolist()))


@pytest.mark.parametrize("n", [1, 2, 50, 500])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e12])
def test_products_on_the_grid_are_exact(n, scale):
    """Every product equals that of rational numbers, so no order of additions can change it."""
    rng = np.random.default_rng(n)
    a, b = on_grid(rng.normal(size=(7, n)) * scale), on_grid(rng.lognormal(0, 3, size=(5, n)))
    exact = [[sum(map(Fraction.__mul__, u, v)) for v in map(rational, b)] for u in map(rational, a)]
    assert (a @ b.T).tolist() == [[float(value) for value in row] for row in exact]
    assert (np.einsum("if,jf->ij", a[:, ::-1], b[:, ::-1]) == a @ b.T).all()


def test_a_coordinate_moves_by_a_little_of_the_length_of_its_vector():
    vectors = np.random.default_rng(0).normal(size=(100, 30))
    moved = np.abs(on_grid(vectors) - vectors)
    assert (moved <= np.linalg.norm(vectors, axis=1, keepdims=True) * 2.0**-26).all()
    assert moved.max() > 0


def test_each_vector_has_a_grid_of_its_own():
    """What stands beside it changes nothing; zeros stay, and what is no number stays none."""
    vectors = np.array([[1e-9, 3e-9], [0.0, 0.0], [np.nan, 1.0], [5e9, 0.1]])
    np.testing.assert_array_equal(on_grid(vectors), np.concatenate([on_grid(row[None]) for row in vectors]))
    np.testing.assert_array_equal(on_grid(vectors)[1], 0)
    assert np.isnan(on_grid(vectors)[2, 0])


def test_exponential_is_that_of_the_standard_library_to_an_ulp():
    exponents = -np.concatenate([np.random.default_rng(0).exponential(20, 20_000), [0.0, 1e-300, 1e-17, 0.5, 699.9]])
    expected = np.array([math.exp(value) for value in exponents.tolist()])
    assert (np.abs(exponential(exponents) - expected) <= np.spacing(expected)).all()
    assert exponential(np.array([-1e5, -np.inf])).max() < 1e-300
