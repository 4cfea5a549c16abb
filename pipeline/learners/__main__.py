"""Compile the loops of all learners and keep them on disk: `python -m pipeline.learners`.

An installation that does this once spares the first training about 13 seconds. A loop that is not on disk is compiled
when it is first used.
"""

from __future__ import annotations

import warnings

import numpy as np

from pipeline.learners import GEMSVC, ArrayGEMMEDClassifier, GEMDetector, GEMMEDClassifier, MEDClassifier


def compile_loops() -> None:
    """Fit the learners that have compiled loops to few samples."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 6)
    y = groups % 2
    X = rng.normal(size=(120, 4)) + y[:, None]
    for graph in ("bipartite", "leave-one-out"):
        GEMDetector(graph=graph).fit(X, groups=groups).p_values(X)
    for rank in (None, 5):
        MEDClassifier(kernel_rank=rank).fit(X, y).predict_proba(X)
    for options in ({}, {"solver": "gibbs", "max_iter": 20}, {"kernel_rank": 5}):
        GEMMEDClassifier(**options).fit(X, y, groups=groups).p_values(X)
    GEMSVC().fit(X, y)
    ArrayGEMMEDClassifier().fit(X.reshape(120, 2, 2), y, groups=groups)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # solvers that are cut short say so
        compile_loops()
