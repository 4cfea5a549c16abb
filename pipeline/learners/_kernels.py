"""Kernels, and the two shapes in which a Gram matrix reaches the solvers: dense or low rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pipeline.learners._arrays import Floats
from pipeline.learners._graphs import DistanceRows, EuclideanRows, TableBuilder, row_blocks
from pipeline.learners._weighted_med import (
    MEDProblem,
    MEDSolution,
    solve_dense,
    solve_low_rank,
)
from pipeline.learners.kernel_classifier import Kernel

KERNELS = ("rbf", "linear", "cosine", "precomputed")


def fitted_kernel(name: str, gamma: str | float, X: Floats, rng: np.random.RandomState) -> Kernel:
    """Resolve the data-dependent parts of a kernel on the training samples."""
    if name == "precomputed":
        return Kernel(name, scale=float(np.median(np.diag(X))))
    if name == "rbf":
        return Kernel(name, gamma=_width(gamma, X, rng))
    centre = np.median(X, axis=0)
    if name == "cosine":
        return Kernel(name, centre=centre)
    norms = ((X - centre) ** 2).sum(axis=1)
    scale = float(np.median(norms)) or float(norms.mean())
    return Kernel(name, centre=centre, scale=scale)


def _width(gamma: str | float, X: Floats, rng: np.random.RandomState) -> float:
    if gamma == "scale":
        return 1.0 / (X.shape[1] * X.var())
    if gamma == "median":
        some = X if len(X) <= 128 else X[np.sort(rng.permutation(len(X))[:128])]
        square = EuclideanRows(some).block(0, len(some))
        # All entries but the diagonal, which lies every n + 1 places.
        squared = square.ravel()[1:].reshape(len(some) - 1, len(some) + 1)[:, :-1]
        return 1.0 / (float(np.median(squared)) or float(squared.mean()))
    return float(gamma)


class Gram(Protocol):
    """What a solver needs to know of the training samples' kernel matrix."""

    diagonal: Floats

    def solve(self, problem: MEDProblem, *, start: Floats | None = None, tolerance: float = 1e-3) -> MEDSolution: ...

    def factor(self) -> Floats: ...


class DenseGram:
    """The full matrix, in single precision: half the memory traffic, and that is what a step costs."""

    def __init__(self, matrix: NDArray[np.float32]) -> None:
        self.matrix = matrix
        self.diagonal: Floats = np.diag(matrix).astype(np.float64)

    def solve(self, problem: MEDProblem, *, start: Floats | None = None, tolerance: float = 1e-3) -> MEDSolution:
        return solve_dense(self.matrix, problem, start=start, tolerance=tolerance)

    def factor(self) -> Floats:
        """Some Z with ``K = Z Z'`` to single precision."""
        values, vectors = linalg.eigh(self.matrix.astype(np.float64))
        if values[0] < -1e-3 * values[-1]:
            raise ValueError(
                f"kernel='precomputed' has the eigenvalue {values[0]:.3g}, a kernel matrix has none below 0; "
                "add a constant to its diagonal or use another kernel"
            )
        kept = values > 1e-9 * values[-1]
        return vectors[:, kept] * np.sqrt(values[kept])


class LowRankGram:
    """``K ~ Z Z'`` through a subset of landmark samples (Nyström)."""

    def __init__(self, factor: Floats) -> None:
        self._factor = factor
        self.diagonal: Floats = np.einsum("ij,ij->i", factor, factor)

    def solve(self, problem: MEDProblem, *, start: Floats | None = None, tolerance: float = 1e-3) -> MEDSolution:
        return solve_low_rank(self._factor, problem, start=start, tolerance=tolerance)

    def factor(self) -> Floats:
        return self._factor


@dataclass(frozen=True, slots=True)
class Nystroem:
    """Landmarks and the map that turns kernel values against them into features."""

    landmarks: NDArray[np.int64]
    whitening: Floats

    @classmethod
    def choose(cls, kernel: Kernel, X: Floats, rank: int, rng: np.random.RandomState) -> Nystroem:
        landmarks = np.sort(rng.permutation(len(X))[:rank])
        block = (
            kernel(X[np.ix_(landmarks, landmarks)], X)
            if kernel.name == "precomputed"
            else kernel(X[landmarks], X[landmarks])
        )
        values, vectors = linalg.eigh(block)
        kept = values > max(1e-10 * values[-1], 1e-14)
        if not kept.any():
            raise ValueError(
                f"kernel_rank={rank} drew landmarks whose kernel is zero; raise kernel_rank or use kernel='rbf'"
            )
        return cls(landmarks, vectors[:, kept] / np.sqrt(values[kept]))

    def factor(self, kernel: Kernel, X: Floats) -> Floats:
        columns = kernel(X[:, self.landmarks], X) if kernel.name == "precomputed" else kernel(X, X[self.landmarks])
        return columns @ self.whitening


def dense_gram(kernel: Kernel, X: Floats, rows: DistanceRows, table: TableBuilder | None) -> DenseGram:
    """The Gram matrix and, from the same pass over the distances, the neighbour table."""
    matrix = np.empty((len(X), len(X)), dtype=np.float32)
    if kernel.name != "rbf":
        matrix[:] = kernel(X, X)
    if kernel.name == "rbf" or table is not None:
        for start, squared in row_blocks(rows):
            if table is not None:
                table.add(start, squared)
            if kernel.name == "rbf":
                block = matrix[start : start + len(squared)]
                with np.errstate(over="ignore"):  # too far to matter in single precision: exp(-inf) is zero
                    np.multiply(squared, -kernel.gamma, out=block, casting="same_kind")
                np.exp(block, out=block)
    return DenseGram(matrix)
