"""May a new model take the place of the one that decides? Only if nothing says that it is worse.

Both are judged on the same labelled passages, neither by a model that has learned from the passage in question. A right
decision counts 1, none counts what guessing would (one half with two classes), a wrong one 0. The mean over a passage,
one for each of its labels, is its score, and all classes count the same however many passages they have. Were both
models as good, the difference of their scores would be as likely of either sign in every passage: that is tested by
flipping signs.

That is done three times. On all passages, where it must also be certain enough. On those that came with the first
model, whose labels are better known than those of the stream. And on those that are new to the champion, where it is
judged itself; elsewhere models stand in for it that have learned from less than it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.model.metrics import Judged
from pipeline.model.model import Model
from pipeline.training.examples import Examples

_SIGNIFICANT = 0.05
_MOST_EXACT = 16
"""Passages that differ, up to which all flips of signs are tried."""
_DRAWS = 20_000
Floats = NDArray[np.float64]
Unit = tuple[str, int]
"""A passage and one of its labels."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a challenger must keep to."""

    worse: float = 0.01
    """How far its mean score may lie below the champion's."""
    contamination: float = 0.3
    """Largest share of a sensor's segments that it did not deliver."""
    least_passages: int = 5
    """Of each class."""
    wrong_labels: float = 0.2
    """Largest share of passages whose label seems wrong."""
    uncertain: float = 0.1
    """How far it may be worse for all that is known, by the 95 % interval: few or contradictory labels prove little."""

    def missing(self, examples: Examples) -> list[str]:
        """What must be labelled before it is worth while to learn at all."""
        pairs = zip(examples.label.tolist(), examples.recording.tolist(), strict=True)
        counts = Counter(label for label, _ in set(pairs))
        return [
            f"{n} passage{'' if n == 1 else 's'} of {name!r} must be at least {self.least_passages}; label "
            f"{self.least_passages - n} more"
            for name, n in ((name, counts[code]) for code, name in enumerate(examples.classes))
            if n < self.least_passages
        ]

    def judge(
        self,
        challenger: Model,
        honest: Sequence[Judged],
        champion: Model | None,
        opposed: Sequence[Judged],
        *,
        classes_may_change: bool = False,
    ) -> dict[str, Any]:
        """The verdict, ready for JSON: whether it passed, the reasons if not, also by criterion, and the numbers.

        `honest` are decisions about passages by models like the challenger that were learned without them; `opposed`
        are those of the champion, about as many of the same segments as it can say something honest of. With
        `classes_may_change` a challenger of other classes is compared as well: what the champion calls by another
        name is wrong.
        """
        references = {note["recording"] for note in challenger.notes["recordings"] if note.get("reference")}
        learned = {note["recording"] for note in champion.notes["recordings"]} if champion else set()
        n_classes = len(challenger.classes)
        compared = _compared(honest, opposed, n_classes)
        trusted = _compared([one for one in honest if one.recording in references], opposed, n_classes)
        new = _compared([one for one in honest if one.recording not in learned], opposed, n_classes)
        alone = scores(honest, n_classes)
        criteria = {
            "sensors": self._dirty(challenger, champion),
            "labels": self._doubtful(challenger),
            "chance": _not_above_chance(alone, n_classes),
        }
        if champion is not None and champion.decides:
            criteria["classes"] = [] if classes_may_change else _other_classes(challenger, champion)
            if not criteria["classes"]:
                criteria |= {
                    "compared": _worse(compared, "passages", by=self.worse) or self._uncertain(compared),
                    "compared_on_references": _worse(trusted, "passages that came with the first model", by=self.worse),
                    "compared_on_new": _worse(new, "passages that are new to the champion"),
                }
        reasons = [reason for found in criteria.values() for reason in found]
        return {
            "passed": not reasons,
            "reasons": reasons,
            "criteria": criteria,
            "score": _level(alone) if alone else None,
            "compared": compared,
            "compared_on_references": trusted,
            "compared_on_new": new,
            "limits": {
                "worse": self.worse,
                "contamination": self.contamination,
                "wrong_labels": self.wrong_labels,
                "uncertain": self.uncertain,
            },
        }

    def _dirty(self, challenger: Model, champion: Model | None) -> list[str]:
        return [
            f"sensor {s + 1} did not deliver {share:.0%} of the segments, more than {self.contamination:.0%}: "
            "repair it, and label passages without its failures"
            for s, share in enumerate(challenger.notes["contamination"])
            if share > self.contamination and challenger.machines[s] is not None and not _was_so(champion, s, share)
        ]

    def _doubtful(self, challenger: Model) -> list[str]:
        wrong = challenger.notes["wrong_labels"]
        if wrong <= self.wrong_labels:
            return []
        return [
            f"{wrong:.0%} of the labels seem wrong, more than {self.wrong_labels:.0%}: check those of "
            f"{_and(challenger.notes['doubted_recordings'][:5]) or 'the last days'}"
        ]

    def _uncertain(self, compared: Mapping[str, Any] | None) -> list[str]:
        if compared is None:
            return ["there is no passage on which it can be compared with the champion; label some"]
        lowest = compared["difference"]["low"]
        if lowest >= -self.uncertain:
            return []
        return [
            f"its score may be up to {-lowest:.2f} below the champion's for all that {compared['passages']} passages "
            f"say, more than {self.uncertain:g}; label more of them, and check their labels"
        ]


def _other_classes(challenger: Model, champion: Model) -> list[str]:
    if champion.classes == challenger.classes:
        return []
    return [
        f"it tells {_and(challenger.classes)} apart, the champion {_and(champion.classes)}: they cannot be compared; "
        "promote it by hand if that is meant"
    ]


def _worse(compared: Mapping[str, Any] | None, which: str, *, by: float = inf) -> list[str]:
    """By more than so much on average, or significantly."""
    if compared is None:
        return []
    difference, p_value = compared["difference"]["value"], compared["p_worse"]
    where = f"on {compared['passages']} {which}"
    if difference < -by:
        return [f"its score is {-difference:.3f} below the champion's {where}, more than {by:g}"]
    if p_value < _SIGNIFICANT:
        return [f"its score is {-difference:.3f} below the champion's {where}, hardly by chance (p = {p_value:.3f})"]
    return []


def _was_so(champion: Model | None, sensor: int, share: float) -> bool:
    """Whether the champion has learned from a sensor that was as bad: then refusing changes nothing for the better."""
    if champion is None or champion.machines[sensor] is None:
        return False
    return bool(champion.notes["contamination"][sensor] >= share)


def scores(judged: Sequence[Judged], n_classes: int = 2) -> dict[Unit, float]:
    """Of every passage and label; no decision counts as much as guessing would."""
    ordered = sorted(judged, key=lambda one: (one.recording, one.truth))
    return {
        unit: float(np.mean([1 / n_classes if one.label is None else one.label == one.truth for one in own]))
        for unit, own in groupby(ordered, key=lambda one: (one.recording, one.truth))
    }


def _compared(honest: Sequence[Judged], opposed: Sequence[Judged], n_classes: int) -> dict[str, Any] | None:
    """Both on the segments that both have decided about; None if there are none."""
    theirs = {(one.recording, one.start_sample) for one in opposed}
    ours = {(one.recording, one.start_sample) for one in honest}
    challenger = scores([one for one in honest if (one.recording, one.start_sample) in theirs], n_classes)
    champion = scores([one for one in opposed if (one.recording, one.start_sample) in ours], n_classes)
    if not challenger:
        return None
    difference = {unit: score - champion[unit] for unit, score in challenger.items()}
    return {
        "passages": len({passage for passage, _ in difference}),
        "champion": _level(champion),
        "challenger": _level(challenger),
        "difference": _level(difference, least=-1.0),
        "p_worse": p_below_zero(*_weighted(difference)),
    }


def _weighted(values: Mapping[Unit, float]) -> tuple[Floats, Floats]:
    """Values with weights by which all classes count the same, which sum up to one."""
    truth = np.array([truth for _, truth in values])
    found, counts = np.unique(truth, return_counts=True)
    weights = 1 / (len(found) * counts[np.searchsorted(found, truth)])
    return np.fromiter(values.values(), np.float64), weights


def _level(values: Mapping[Unit, float], *, least: float = 0.0) -> dict[str, float]:
    """The mean of all classes with its 95 % interval, passages being the independent units."""
    from scipy.special import stdtrit

    x, weights = _weighted(values)
    middle = float(weights @ x)
    spread = float(np.sqrt(np.sum((weights * (x - middle)) ** 2) * len(x) / max(len(x) - 1, 1)))
    half = float(stdtrit(max(len(x) - 1, 1), 0.975)) * spread
    low, high = max(middle - half, least), min(middle + half, 1.0)
    return {"value": round(middle, 6), "low": round(low, 6), "high": round(high, 6)}


def p_below_zero(values: Floats, weights: Floats) -> float:
    """How likely a weighted sum as low as this would be, were every value as likely of either sign."""
    parts = weights * values
    parts = parts[parts != 0]
    if len(parts) <= _MOST_EXACT:
        signs = 1 - 2 * (np.arange(2 ** len(parts))[:, None] >> np.arange(len(parts)) & 1)
        return float(np.mean(signs @ parts <= parts.sum() + 1e-12))
    rng = np.random.default_rng(0)
    sums = rng.choice([-1.0, 1.0], (_DRAWS, len(parts))) @ parts
    return float((1 + np.sum(sums <= parts.sum() + 1e-12)) / (_DRAWS + 1))


def _not_above_chance(score: Mapping[Unit, float], n_classes: int) -> list[str]:
    chance = 1 / n_classes
    short, weights = _weighted({unit: chance - value for unit, value in score.items()})
    if len(short) and p_below_zero(short, weights) < _SIGNIFICANT:
        return []
    told = f"{chance - float(weights @ short):.2f} " if len(short) else ""
    return [
        f"its score {told}on passages it had not seen is no better than chance, {chance:.2g}; label more passages, and "
        "check their labels"
    ]


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
