"""scikit-learn's support vector machine on the kernels of this package, for the baselines."""

from __future__ import annotations

import numpy as np
from sklearn.svm import SVC

from pipeline.learners._arrays import Floats, Integers
from pipeline.learners._checks import TrainingSet
from pipeline.learners.kernel_classifier import Kernel, unit_rows


class KernelSVM:
    """An `SVC` whose input is mapped so that its kernel is ours."""

    def __init__(self, kernel: Kernel, C: float) -> None:
        self._kernel = kernel
        name = kernel.name if kernel.name in ("rbf", "precomputed") else "linear"
        self._svc = SVC(C=C, kernel=name, gamma=kernel.gamma)
        self._columns: Integers = np.empty(0, dtype=np.int64)
        self._support_inputs: Floats = np.empty((0, 0))

    def fit(self, training: TrainingSet, weights: Floats) -> KernelSVM:
        """Train on the samples of positive weight."""
        rows = np.flatnonzero(weights > 0)
        self._columns = np.flatnonzero(training.used)[rows]
        chosen = training.X[np.ix_(rows, rows)] if self._kernel.name == "precomputed" else training.X[rows]
        inputs = self._mapped(chosen)
        self._svc.fit(inputs, training.y[rows], sample_weight=weights[rows])
        self._support_inputs = inputs[self._svc.support_]
        return self

    def decision(self, X: Floats) -> Floats:
        """Decision values; the columns of a precomputed kernel are all samples that were given in training."""
        if self._kernel.name == "precomputed":
            X = X[:, self._columns]
        return np.asarray(self._svc.decision_function(self._mapped(X)), dtype=np.float64)

    def _mapped(self, X: Floats) -> Floats:
        if self._kernel.name == "precomputed":
            return X / self._kernel.scale
        if self._kernel.name == "rbf":
            return X
        X = X - self._kernel.centre
        return unit_rows(X) if self._kernel.name == "cosine" else X / np.sqrt(self._kernel.scale)

    def squared_norm(self) -> float:
        """|f|^2 of the fitted function, offset excluded."""
        svc, y_alpha = self._svc, self._svc.dual_coef_.ravel()
        inner = svc.decision_function(self._support_inputs) - svc.intercept_[0]
        return float(y_alpha @ inner)

    def training_decision(self, training: TrainingSet) -> Floats:
        """Decision values of all samples of the training set."""
        if self._kernel.name != "precomputed":
            return self.decision(training.X)
        given = np.cumsum(training.used) - 1
        return np.asarray(self._svc.decision_function(self._mapped(training.X[:, given[self._columns]])))
