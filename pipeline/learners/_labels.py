"""Is the label of a recording right? Margins and their mirror image say."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from pipeline.learners._graphs import Flags, Floats
from pipeline.learners._robust import robust_spread

_STEPS = 100
_LARGEST_LLR = 8.0
_PRIOR_RECORDINGS = 2.0
_MOST_WRONG = 0.4


def label_evidence(margins: Floats, known: Flags, prior: float) -> tuple[Floats, float]:
    """Log odds that each label is right, and the share of wrong ones.

    Were a label wrong, its margin would have the other sign: margins of right labels are taken as normal about a
    positive mean, of wrong ones as their mirror image, and both with the share of wrong ones are found by EM. On a hard
    problem the two overlap, and a recording that is merely difficult is not refused. Recordings that nobody heard have
    the odds of the share found.
    """
    m = margins[known]
    wrong, mean, spread = 1 - prior, 1e-3, 1.0
    if len(m):
        mean, spread = max(float(np.median(m)), 1e-3), max(float(robust_spread(m)), 1e-3)
    for _ in range(_STEPS if len(m) else 0):
        right = expit(logit(1 - wrong) + 2 * mean * m / spread**2)
        mean = max(float(np.mean((2 * right - 1) * m)), 1e-3)
        variance = np.mean(right * (m - mean) ** 2 + (1 - right) * (m + mean) ** 2)
        spread = max(float(np.sqrt(variance)), 1e-3)
        share = (np.sum(1 - right) + _PRIOR_RECORDINGS * (1 - prior)) / (len(m) + _PRIOR_RECORDINGS)
        wrong = float(np.clip(share, 1e-3, _MOST_WRONG))
    log_odds = np.full(len(margins), float(logit(1 - wrong)))
    log_odds[known] += np.clip(2 * mean * m / spread**2, -_LARGEST_LLR, _LARGEST_LLR)
    return log_odds, wrong
