"""The baseline to beat: screen the training set with GEM, then train a support vector machine."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from pipeline.learners import _checks
from pipeline.learners._binary import BinaryMixin
from pipeline.learners._contamination import coverages
from pipeline.learners._geometry import Neighbourhoods, check_graph, check_kernel, distance_rows
from pipeline.learners._graphs import Flags, Floats, minimal_entropy_set
from pipeline.learners._kernels import fitted_kernel
from pipeline.learners._svm import KernelSVM


class GEMSVC(BinaryMixin, BaseEstimator):
    """Train an SVM on the minimal-entropy set of each class.

    Parameters
    ----------
    kernel, gamma, C
        As in `GEMMEDClassifier`.
    coverage : float in (0, 1] or "auto", default=0.9
        Share of each class to train on; "auto" estimates it from the distances.
    n_neighbors, graph, n_partitions, random_state
        As in `GEMDetector`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    kept_ : ndarray of bool of shape (n_samples,)
        The samples the SVM was trained on.
    edge_lengths_ : ndarray of shape (n_samples,)
        Mean distance of each sample to its neighbours in its class.
    coverage_ : ndarray of shape (2,)

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from pipeline.learners import GEMSVC
    >>> X, y = make_blobs(100, centers=2, random_state=0)
    >>> int(GEMSVC(coverage=0.8).fit(X, y).kept_.sum())
    80
    """

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        gamma: str | float = "median",
        C: float = 1.0,
        coverage: str | float = 0.9,
        n_neighbors: int | None = None,
        graph: str = "bipartite",
        n_partitions: int = 5,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.coverage = coverage
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.n_partitions = n_partitions
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Screen, then train. Arguments as in `GEMMEDClassifier.fit`."""
        check_kernel(self.kernel, self.gamma, None)
        check_graph(self.graph, self.n_partitions, self.n_neighbors)
        _checks.number(self.C, "C", above=0, cure="1.0 is usual")
        _checks.coverage(self.coverage)
        precomputed = self.kernel == "precomputed"
        X, signs, self.classes_ = _checks.binary_problem(self, X, y, precomputed=precomputed)
        weights = _checks.sample_weights(sample_weight, X, signs)
        rng = check_random_state(self.random_state)
        hoods = Neighbourhoods.choose(
            (signs > 0).astype(np.int64),
            _checks.group_numbers(groups, len(X)),
            weights > 0,
            graph=self.graph,
            n_partitions=self.n_partitions,
            n_neighbors=self.n_neighbors,
            rng=rng,
        )
        self.edge_lengths_, _ = hoods.edge_lengths(hoods.graph(distance_rows(X, self.kernel)))
        self.kept_ = self._screened(hoods, weights)
        kernel = fitted_kernel(self.kernel, self.gamma, X[weights > 0], rng)
        self._svm = KernelSVM(kernel, self.C).fit(X, signs, np.where(self.kept_, weights, 0.0))
        return self

    def _screened(self, hoods: Neighbourhoods, weights: Floats) -> Flags:
        used = weights > 0
        if self.coverage == "auto":
            self.coverage_, _ = coverages(self.edge_lengths_[used], hoods.classes[used], hoods.groups[used])
        else:
            self.coverage_ = np.full(2, float(self.coverage))
        kept = np.zeros(len(used), dtype=bool)
        for z in (0, 1):
            members = used & (hoods.classes == z)
            kept[members] = minimal_entropy_set(self.edge_lengths_[members], self.coverage_[z], weights[members])
        return kept

    def decision_function(self, X: Any) -> Floats:
        """Signed distance to the boundary: positive for ``classes_[1]``."""
        X = self._checked(X)
        return self._svm.decision(X)
