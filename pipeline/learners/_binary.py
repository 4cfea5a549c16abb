"""What every binary classifier here has in common, as a scikit-learn mixin."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.learners._arrays import Floats


class BinaryMixin(ClassifierMixin):
    """`predict` from `decision_function`, the tags, and the check of new samples."""

    kernel: str
    classes_: Any

    def predict(self, X: Any) -> Any:
        """The class of each sample."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def _checked(self, X: Any) -> Floats:
        check_is_fitted(self)
        return np.ascontiguousarray(validate_data(self, X, dtype=np.float64, reset=False))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags
