"""Learners as scikit-learn estimators; they see samples, labels and groups, and know nothing of audio.

GEMDetector       anomaly detection by nearest-neighbour graphs
MEDClassifier     kernel maximum entropy discrimination
GEMMEDClassifier  both jointly: learns which training samples to refuse while it learns to classify
ArrayGEMMEDClassifier  GEM-MED over an array: which sensor did not deliver, which label is wrong
ArrayPairwiseClassifier  the same for three or more classes, by pairs
RODClassifier     baseline: large margins that may leave samples out
GEMSVC            baseline: screen first, train afterwards
RobustPCA         principal components that failing sensors do not own
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.learners.array import ArrayGEMMEDClassifier
    from pipeline.learners.array_pairs import ArrayPairwiseClassifier
    from pipeline.learners.gem import GEMDetector
    from pipeline.learners.gem_med import GEMMEDClassifier
    from pipeline.learners.med import MEDClassifier
    from pipeline.learners.robust_pca import RobustPCA
    from pipeline.learners.rod import RODClassifier
    from pipeline.learners.two_stage import GEMSVC

__all__ = [
    "GEMSVC",
    "ArrayGEMMEDClassifier",
    "ArrayPairwiseClassifier",
    "GEMDetector",
    "GEMMEDClassifier",
    "MEDClassifier",
    "RODClassifier",
    "RobustPCA",
]

_HOMES = {
    "ArrayGEMMEDClassifier": "array",
    "ArrayPairwiseClassifier": "array_pairs",
    "GEMDetector": "gem",
    "GEMMEDClassifier": "gem_med",
    "GEMSVC": "two_stage",
    "MEDClassifier": "med",
    "RODClassifier": "rod",
    "RobustPCA": "robust_pca",
}


def __getattr__(name: str) -> object:
    """An estimator, loaded when it is first asked for: who only decides needs none, nor scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
