"""Geometric entropy minimisation: anomaly detection by nearest-neighbour graphs."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import gammaln
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.core.blas_threads import one_thread
from pipeline.learners import _checks
from pipeline.learners._arrays import Flags, Floats
from pipeline.learners._conformal import Bipartite, LeaveOneOut, Scan, half_codes
from pipeline.learners._geometry import Neighbourhoods, check_graph, distance_rows
from pipeline.learners._graphs import minimal_entropy_set


class GEMDetector(OutlierMixin, BaseEstimator):
    """Detect samples outside the minimal-entropy set of the training distribution.

    The edge length of a sample is its mean distance to its `n_neighbors` nearest neighbours in the
    graph. The `coverage` share of the training samples with the shortest edges estimates the set of least
    entropy that holds this probability; a new sample is tested by the rank of its
    edge length among those of the training samples.

    Parameters
    ----------
    coverage : float in (0, 1), default=0.95
        Probability content of the minimal-entropy set; one minus the false-alarm rate of `predict`.
    n_neighbors : int or None, default=None
        None means 5, or as many as a small training set has.
    graph : {"bipartite", "leave-one-out"}, default="bipartite"
        Bipartite: a sample's neighbours come from the other half of a random partition, and the
        result is averaged over partitions in which each half serves the other. Leave-one-out: from all other samples.
    n_partitions : int, default=5
        Random partitions of the bipartite graph, at most 10.
    random_state : int, RandomState or None, default=0
        Seed of the partitions.

    Attributes
    ----------
    edge_lengths_ : ndarray of shape (n_samples,)
        Mean neighbour distance of each training sample, itself excluded; NaN for samples of weight zero.
    minimal_entropy_set_ : ndarray of bool of shape (n_samples,)
        The training samples inside the set.
    local_entropy_ : ndarray of shape (n_samples,)
        Estimate of ``-log p(x_n)``.
    offset_ : float
        Threshold on `score_samples` used by `predict`.
    n_neighbors_ : int

    Notes
    -----
    Higher scores are more normal, as everywhere in scikit-learn. `p_values` are conformal: on new samples of
    the training distribution ``p <= alpha`` has probability at most alpha, in finite samples, with the leave-one-out
    graph; with the bipartite graph (cross-conformal) at most 2 alpha, and alpha in all that was measured. `predict`
    compares scores with one threshold, the paper's rule, which is only approximately of that level. All of these take a
    sample for a new one: of training samples ask `edge_lengths_` or `minimal_entropy_set_`. Few or very uneven groups
    leave few neighbours and cost power. Cost: O(n^2) to fit, O(n) per new sample.

    References
    ----------
    A. Hero: Geometric entropy minimization for anomaly detection and localization.
    K. Sricharan, A. Hero: Efficient anomaly detection using bipartite k-NN graphs.

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.learners import GEMDetector
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> detector = GEMDetector(coverage=0.95).fit(X)
    >>> detector.predict([[0.0, 0.0, 0.0], [6.0, 6.0, 6.0]])
    array([ 1, -1])
    >>> bool(detector.p_values([[6.0, 6.0, 6.0]])[0] < 0.01)
    True
    """

    def __init__(
        self,
        *,
        coverage: float = 0.95,
        n_neighbors: int | None = None,
        graph: str = "bipartite",
        n_partitions: int = 5,
        random_state: Any = 0,
    ) -> None:
        self.coverage = coverage
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.n_partitions = n_partitions
        self.random_state = random_state

    @one_thread
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Measure the graph of the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Counts towards the coverage of `minimal_entropy_set_`, not in p-values or `predict`; a weight of zero
            leaves a sample out.
        groups : array-like of shape (n_samples,), optional
            Samples of one group (a recording) are never each other's neighbours.
        """
        _checks.number(self.coverage, "coverage", above=0, below=1, cure="0.95 lets one nominal sample in twenty alarm")
        check_graph(self.graph, self.n_partitions, self.n_neighbors)
        X = _checks.samples(self, X)
        weights = _checks.sample_weights(sample_weight, X)
        used = weights > 0
        hoods = Neighbourhoods.choose(
            np.zeros(int(used.sum()), dtype=np.int64),
            _checks.group_numbers(groups, len(X))[used],
            graph=self.graph,
            n_partitions=self.n_partitions,
            n_neighbors=self.n_neighbors,
            rng=check_random_state(self.random_state),
        )
        self.n_neighbors_ = hoods.n_neighbors
        lengths, radii = hoods.edge_lengths(hoods.graph(distance_rows(X[used], "euclidean")))
        self.edge_lengths_, self._radii = np.full(len(X), np.nan), np.full(len(X), np.nan)
        self.edge_lengths_[used], self._radii[used] = lengths, radii
        self.minimal_entropy_set_: Flags = np.zeros(len(X), dtype=bool)
        self.minimal_entropy_set_[used] = minimal_entropy_set(lengths, self.coverage, weights[used])
        self.offset_ = -_conformal_quantile(lengths, self.coverage)
        self._calibrate(X[used], lengths, radii, hoods)
        return self

    def _calibrate(self, X: Floats, lengths: Floats, radii: Floats, hoods: Neighbourhoods) -> None:
        """Keep what p-values of new samples compare with."""
        self._reference: Bipartite | LeaveOneOut
        if hoods.halves is None:
            self._reference = LeaveOneOut(Scan.of(X), lengths, radii, self.n_neighbors_)
            self._n_reference = len(X) - 1
        else:
            codes = half_codes(hoods.halves)
            self._reference = Bipartite(Scan.of(X), lengths, codes, self.n_partitions, self.n_neighbors_)
            self._n_reference = len(X) // 2

    @property
    def local_entropy_(self) -> Floats:
        """``d log r_k - log((k - 1) / (M c_d))``: minus the log of the k-nearest-neighbour density estimate.

        r_k is the distance to the k-th neighbour among M reference samples, c_d the volume of the
        d-dimensional unit ball.
        """
        check_is_fitted(self, "edge_lengths_")
        if self.n_neighbors_ < 2:
            raise ValueError(
                f"n_neighbors={self.n_neighbors_} must be at least 2 for local_entropy_, "
                "whose estimate divides by n_neighbors - 1; fit with more neighbours"
            )
        dimension, k = self.n_features_in_, self.n_neighbors_
        log_ball = 0.5 * dimension * np.log(np.pi) - gammaln(0.5 * dimension + 1.0)
        with np.errstate(divide="ignore"):
            radii = np.log(self._radii)
        entropy: Floats = dimension * radii - np.log(k - 1) + np.log(self._n_reference) + log_ball
        return entropy

    def score_samples(self, X: Any) -> Floats:
        """Minus the edge length of each sample: higher is more normal."""
        X = self._checked(X)
        return -self._reference.lengths_of(X)

    def decision_function(self, X: Any) -> Floats:
        """`score_samples` above the threshold: negative for anomalies."""
        scores = self.score_samples(X)
        return scores - self.offset_

    def predict(self, X: Any) -> Any:
        """1 for samples inside the minimal-entropy set, -1 for anomalies."""
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def p_values(self, X: Any) -> Floats:
        """Conformal p-value of each sample: small means anomalous."""
        X = self._checked(X)
        return self._reference.p_values(X)

    def _checked(self, X: Any) -> Floats:
        # One sample at a time is the streaming case: a plain finite array needs no further looking at.
        if (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and X.flags.c_contiguous
            and X.shape[0] > 0
            and hasattr(self, "_reference")
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and np.isfinite(X.sum())
        ):
            return X
        check_is_fitted(self)
        return np.ascontiguousarray(validate_data(self, X, dtype=np.float64, reset=False))


def _conformal_quantile(lengths: Floats, coverage: float) -> float:
    """The smallest training length that at least ``coverage (n + 1)`` lengths do not exceed."""
    rank = int(np.ceil(coverage * (len(lengths) + 1))) - 1
    return float(np.sort(lengths)[min(rank, len(lengths) - 1)])
