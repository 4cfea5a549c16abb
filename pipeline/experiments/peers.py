"""What people would use instead; the only door to cleanlab."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import UsageError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def isolated(X: Floats, y: Floats) -> Flags:
    """Samples that an isolation forest of their class finds normal."""
    from sklearn.ensemble import IsolationForest

    kept = np.ones(len(y), np.bool_)
    for sign in np.unique(y):
        kept[y == sign] = IsolationForest(random_state=0).fit_predict(X[y == sign]) == 1
    return kept


def forest_margins(X: Floats, y: Floats, X_test: Floats) -> Floats:
    """Twice the share of 100 trees for class 1, minus 1."""
    from sklearn.ensemble import RandomForestClassifier

    share = RandomForestClassifier(100, random_state=0).fit(X, y).predict_proba(X_test)[:, 1]
    return np.asarray(2 * share - 1, dtype=np.float64)


def boosted_margins(X: Floats, y: Floats, X_test: Floats) -> Floats:
    """Log-odds of class 1 by gradient-boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    margins = HistGradientBoostingClassifier(random_state=0).fit(X, y).decision_function(X_test)
    return np.asarray(margins, dtype=np.float64)


def clean_learning() -> Any:
    """cleanlab's class."""
    try:
        from cleanlab.classification import CleanLearning
    except ImportError as error:
        raise UsageError("the comparison with cleanlab needs cleanlab; install gemmed[peers]") from error
    return CleanLearning


def cleaned_margins(X: Floats, y: Floats, honest: Floats, X_test: Floats, *, svc: Any) -> Floats:
    """Margins of an SVC trained without what cleanlab calls label issues.

    `honest` are margins by classifiers that did not see the sample; a logistic curve makes probabilities of them.
    """
    from sklearn.linear_model import LogisticRegression

    labels = (y > 0).astype(np.int64)
    believed = LogisticRegression().fit(honest[:, None], labels).predict_proba(honest[:, None])
    model = clean_learning()(_with_probabilities(svc), find_label_issues_kwargs={"n_jobs": 1})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="When X and pred_probs are both provided", category=UserWarning)
        model.fit(X, labels, pred_probs=believed)
    return np.asarray(model.clf.decision_function(X_test), dtype=np.float64)


def _with_probabilities(svc: Any) -> Any:
    """cleanlab insists on the method, though it has no use for it when probabilities are handed over."""
    from sklearn.svm import SVC

    class Insisted(SVC):  # type: ignore[misc]
        def predict_proba(self, X: Any) -> Any:
            raise NotImplementedError("probabilities were made on recordings left out")

    return Insisted(**svc.get_params())
