"""The baseline to beat: screen the training set with GEM, then train a support vector machine."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from pipeline.core.blas_threads import one_thread
from pipeline.learners import _checks
from pipeline.learners._arrays import Flags, Floats
from pipeline.learners._binary import BinaryMixin
from pipeline.learners._contamination import coverages
from pipeline.learners._geometry import Neighbourhoods, check_graph, check_kernel, distance_rows
from pipeline.learners._graphs import minimal_entropy_set
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

    @one_thread
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Screen, then train. Arguments as in `GEMMEDClassifier.fit`."""
        check_kernel(self.kernel, self.gamma, None)
        check_graph(self.graph, self.n_partitions, self.n_neighbors)
        _checks.number(self.C, "C", above=0, cure="1.0 is usual")
        _checks.coverage(self.coverage)
        training = _checks.training_set(self, X, y, sample_weight, groups, precomputed=self.kernel == "precomputed")
        self.classes_ = training.class_names
        rng = check_random_state(self.random_state)
        hoods = Neighbourhoods.choose(
            training.classes,
            training.groups,
            graph=self.graph,
            n_partitions=self.n_partitions,
            n_neighbors=self.n_neighbors,
            rng=rng,
        )
        lengths, _ = hoods.edge_lengths(hoods.graph(distance_rows(training.X, self.kernel)))
        kept = self._screened(lengths, training)
        kernel = fitted_kernel(self.kernel, self.gamma, training.X, rng)
        self._svm = KernelSVM(kernel, self.C).fit(training, np.where(kept, training.weights, 0.0))
        self.edge_lengths_ = training.scatter(lengths)
        self.kept_ = training.scatter(kept, False)
        return self

    def _screened(self, lengths: Floats, training: _checks.TrainingSet) -> Flags:
        if self.coverage == "auto":
            self.coverage_, _ = coverages(lengths, training.classes, training.groups)
        else:
            self.coverage_ = np.full(2, float(self.coverage))
        kept = np.zeros(len(lengths), dtype=bool)
        for z in (0, 1):
            members = training.classes == z
            kept[members] = minimal_entropy_set(lengths[members], self.coverage_[z], training.weights[members])
        return kept

    @one_thread
    def decision_function(self, X: Any) -> Floats:
        """Signed distance to the boundary: positive for ``classes_[1]``."""
        X = self._checked(X)
        return self._svm.decision(X)
