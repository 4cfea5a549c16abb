"""scikit-learn's support vector machine on the kernels of this package, for the baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.svm import SVC

from pipeline.learners._graphs import Floats
from pipeline.learners._kernels import Kernel, unit_rows


class KernelSVM:
    """An `SVC` whose input is mapped so that its kernel is ours."""

    def __init__(self, kernel: Kernel, C: float) -> None:
        self._kernel = kernel
        name = kernel.name if kernel.name in ("rbf", "precomputed") else "linear"
        self._svc = SVC(C=C, kernel=name, gamma=kernel.gamma)
        self._rows: Any = slice(None)
        self._support_inputs: Floats = np.empty((0, 0))

    def fit(self, X: Floats, y: Floats, weights: Floats) -> KernelSVM:
        """Train on the samples of positive weight."""
        self._rows = np.flatnonzero(weights > 0)
        chosen = self._mapped(X)[self._rows]
        self._svc.fit(chosen, y[self._rows], sample_weight=weights[self._rows])
        self._support_inputs = chosen[self._svc.support_]
        return self

    def decision(self, X: Floats) -> Floats:
        mapped = self._mapped(X)
        return np.asarray(self._svc.decision_function(mapped), dtype=np.float64)

    def _mapped(self, X: Floats) -> Floats:
        if self._kernel.name == "precomputed":
            return X[:, self._rows]
        if self._kernel.name == "rbf":
            return X
        X = X - self._kernel.centre
        return unit_rows(X) if self._kernel.name == "cosine" else X / np.sqrt(self._kernel.scale)

    def squared_norm(self) -> float:
        """|f|^2 of the fitted function, offset excluded."""
        svc, y_alpha = self._svc, self._svc.dual_coef_.ravel()
        inner = svc.decision_function(self._support_inputs) - svc.intercept_[0]
        return float(y_alpha @ inner)
