"""Learners as scikit-learn estimators; they see samples, labels and groups, and know nothing of audio.

GEMDetector       anomaly detection by nearest-neighbour graphs
MEDClassifier     kernel maximum entropy discrimination
GEMMEDClassifier  both jointly: learns which training samples to refuse while it learns to classify
ArrayGEMMEDClassifier  GEM-MED over an array: which sensor did not deliver, which label is wrong
RODClassifier     baseline: large margins that may leave samples out
GEMSVC            baseline: screen first, train afterwards
RobustPCA         principal components that failing sensors do not own
"""

from pipeline.learners.array import ArrayGEMMEDClassifier
from pipeline.learners.gem import GEMDetector
from pipeline.learners.gem_med import GEMMEDClassifier
from pipeline.learners.med import MEDClassifier
from pipeline.learners.robust_pca import RobustPCA
from pipeline.learners.rod import RODClassifier
from pipeline.learners.two_stage import GEMSVC

__all__ = [
    "GEMSVC",
    "ArrayGEMMEDClassifier",
    "GEMDetector",
    "GEMMEDClassifier",
    "MEDClassifier",
    "RODClassifier",
    "RobustPCA",
]
