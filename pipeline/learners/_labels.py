"""Is the label of a recording right? Margins and their mirror image say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from pipeline.learners._arrays import Flags, Floats
from pipeline.learners._robust import robust_spread

_STEPS = 100
_LARGEST_LLR = 8.0
_PRIOR_RECORDINGS = 2.0
_MANY_WRONG = 0.3
_MOST_WRONG = 0.4


@dataclass(frozen=True, slots=True)
class LabelEvidence:
    """What the margins say about the labels."""

    log_odds: Floats
    """That each label is right."""
    wrong: float
    """Share of wrong labels."""
    likelier: bool
    """Whether the margins are better explained with wrong labels among them than without, by the Bayesian information
    criterion."""


def label_evidence(margins: Floats, known: Flags, prior: float) -> LabelEvidence:
    """Judge each label by the mean margin of its recording.

    Were a label wrong, its margin would have the other sign: margins of right labels are taken as normal about a
    positive mean, of wrong ones as their mirror image, and both with the share of wrong ones are found by EM. On a hard
    problem the two overlap, and a recording that is merely difficult is not refused. Recordings that nobody heard have
    the odds of the share found.
    """
    m = margins[known]
    mirror = _fitted(m, prior) if len(m) else _Mirror(1 - prior, 1e-3, 1.0)
    log_odds = np.full(len(margins), float(logit(1 - mirror.wrong)))
    log_odds[known] += np.clip(mirror.log_likelihood_ratio(m), -_LARGEST_LLR, _LARGEST_LLR)
    likelier = len(m) > 0 and mirror.log_likelihood(m) - _without_wrong(m) > 0.5 * np.log(len(m))
    return LabelEvidence(log_odds, mirror.wrong, bool(likelier))


@dataclass(frozen=True, slots=True)
class _Mirror:
    """A normal density and its mirror image, with the share of the latter."""

    wrong: float
    mean: float
    spread: float

    def log_likelihood_ratio(self, m: Floats) -> Floats:
        llr: Floats = 2 * self.mean * m / self.spread**2
        return llr

    def improved(self, m: Floats, prior: float) -> _Mirror:
        """One step of EM; the prior counts as a few recordings more."""
        right = expit(logit(1 - self.wrong) + self.log_likelihood_ratio(m))
        mean = max(float(np.mean((2 * right - 1) * m)), 1e-3)
        variance = np.mean(right * (m - mean) ** 2 + (1 - right) * (m + mean) ** 2)
        share = (np.sum(1 - right) + _PRIOR_RECORDINGS * (1 - prior)) / (len(m) + _PRIOR_RECORDINGS)
        return _Mirror(float(np.clip(share, 1e-3, _MOST_WRONG)), mean, max(float(np.sqrt(variance)), 1e-3))

    def log_likelihood(self, m: Floats) -> float:
        """Up to a constant."""
        right = np.log1p(-self.wrong) - 0.5 * ((m - self.mean) / self.spread) ** 2
        wrong = np.log(self.wrong) - 0.5 * ((m + self.mean) / self.spread) ** 2
        return float(np.sum(np.logaddexp(right, wrong) - np.log(self.spread)))

    def log_posterior(self, m: Floats, prior: float) -> float:
        """Up to a constant: what EM climbs."""
        log_prior = (1 - prior) * np.log(self.wrong) + prior * np.log1p(-self.wrong)
        return self.log_likelihood(m) + _PRIOR_RECORDINGS * float(log_prior)


def _without_wrong(m: Floats) -> float:
    """Log-likelihood, up to the same constant, of one normal density with a positive mean and no wrong labels."""
    mean, spread = max(float(m.mean()), 1e-3), max(float(m.std()), 1e-3)
    return float(np.sum(-0.5 * ((m - mean) / spread) ** 2 - np.log(spread)))


def _fitted(m: Floats, prior: float) -> _Mirror:
    """The likelier of two ends of EM: begun with few wrong labels, and with many.

    One wide density explains margins of many wrong labels nearly as well as two narrow ones, and EM stays with it.
    """
    apart = np.abs(m)
    few = _Mirror(1 - prior, max(float(np.median(m)), 1e-3), max(float(robust_spread(m)), 1e-3))
    many = _Mirror(_MANY_WRONG, max(float(apart.mean()), 1e-3), max(float(apart.std()), 1e-3))
    ends = []
    for mirror in (few, many):
        for _ in range(_STEPS):
            before, mirror = mirror, mirror.improved(m, prior)
            if mirror == before:
                break
        ends.append(mirror)
    return max(ends, key=lambda mirror: mirror.log_posterior(m, prior))
