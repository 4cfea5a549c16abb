"""Transforms against numpy's in double precision, with ducc0 and without it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pipeline.core import fourier
from pipeline.core.fourier import fast_length, irfft, rfft

LENGTHS = (1, 2, 7, 256, 800, 4000)
PRECISIONS = [(np.float32, 1e-6), (np.float64, 1e-14)]


@pytest.fixture(params=["ducc0", "scipy"], autouse=True)
def library(request, monkeypatch):
    if request.param == "scipy":
        monkeypatch.setattr(fourier, "r2c", None)
    elif fourier.r2c is None:
        pytest.skip("ducc0 is not installed")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_spectra_are_those_of_numpy(length, precision, tolerance):
    values = np.random.default_rng(length).normal(size=(3, 5, length)).astype(precision)
    spectra, exact = rfft(values), np.fft.rfft(values.astype(np.float64))
    assert spectra.shape == exact.shape
    assert spectra.real.dtype == precision
    assert np.abs(spectra - exact).max() <= tolerance * np.abs(exact).max()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_inverse_returns_the_values(length, precision, tolerance):
    values = np.random.default_rng(length).normal(size=(3, 5, length)).astype(precision)
    back = irfft(rfft(values), length)
    assert back.shape == values.shape
    assert back.dtype == precision
    assert np.abs(back - values).max() <= tolerance * np.abs(values).max()


@pytest.mark.parametrize("n", [64, 65, 300])
def test_inverse_takes_fewer_and_more_frequencies(n):
    spectra = np.fft.rfft(np.random.default_rng(n).normal(size=(4, 128)))
    assert np.allclose(irfft(spectra, n), np.fft.irfft(spectra, n), atol=1e-14)


@pytest.mark.parametrize("length", [800, 4000])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_a_row_does_not_depend_on_those_beside_it(length, precision):
    """Otherwise results would depend on how the sound is cut into blocks."""
    values = np.random.default_rng(0).normal(size=(64, length)).astype(precision)
    spectra = rfft(values)
    for first, last in [(0, 1), (0, 3), (5, 18), (1, 64), (63, 64)]:
        assert np.array_equal(rfft(values[first:last]), spectra[first:last])
        assert np.array_equal(irfft(spectra[first:last], length), irfft(spectra, length)[first:last])


def test_values_need_not_be_contiguous():
    values = np.random.default_rng(0).normal(size=(800, 16)).astype(np.float32)
    assert np.array_equal(rfft(values.T), rfft(np.ascontiguousarray(values.T)))


def test_no_row_at_all():
    assert rfft(np.zeros((0, 8))).shape == (0, 5)
    assert rfft(np.zeros((3, 0, 8), np.float32)).shape == (3, 0, 5)
    assert irfft(np.zeros((0, 5), np.complex64), 8).shape == (0, 8)


def test_scipy_is_not_imported_where_ducc0_is_installed():
    """It takes 18 MB."""
    program = """
import sys
import numpy as np
from pipeline.core.fourier import fast_length, irfft, r2c, rfft
for rows in (0, 3):
    irfft(rfft(np.zeros((rows, 16), np.float32)), fast_length(16))
print(r2c is None or "scipy" not in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_fast_lengths_have_small_factors_only():
    def is_fast(n: int) -> bool:
        for factor in (2, 3, 5):
            while n % factor == 0:
                n //= factor
        return n == 1

    for n in range(1, 3000):
        assert fast_length(n) == next(length for length in range(n, 2 * n + 1) if is_fast(length))
