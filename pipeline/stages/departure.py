"""Which of two groups of sensors that contradict each other departed from its own past."""

from __future__ import annotations

import numpy as np

from pipeline.core.events import Mask, Numbers, Samples

_RECENT = 0.3
"""Weight of the newest segment in what is usual."""
_CALM = 4
"""Consecutive segments in which all agree before a group that departed is trusted again: 2 s of new sound."""


class Departures:
    """Keep what sensors sound like while all agree, and name the group that left it once they do not.

    Two sensors that replay the same moment bear each other out as well as the other two do, and nothing in the segment
    shows which pair is right. Their past does: the pair that replays another moment jumped when it began.
    """

    remembers = ("_usual", "_moved", "_departed", "_agreed")

    def __init__(self) -> None:
        self._usual: Numbers | None = None  # (sensors, features), NaN where nothing is known
        self._moved: Numbers | None = None  # (sensors,): distances to it, summed up since sensors contradict each other
        self._departed: Mask | None = None
        self._agreed = 0

    def take(self, summary: Samples, agree: Mask, usable: Mask) -> Mask:
        """Return the sensors that departed, given which pairs agree (sensors, sensors) and which sensors count."""
        groups = connected(agree, usable)
        if len(groups) > 1:
            self._agreed = 0
            if sum(len(group) > 1 for group in groups) > 1 and self._usual is not None:
                self._blame(summary, self._usual, groups)
        elif groups:
            self._agreed += 1
            if self._agreed >= _CALM:
                self._moved = self._departed = None
            if self._departed is None:
                self._learn(summary, groups[0])
        return np.zeros(len(usable), np.bool_) if self._departed is None else self._departed

    def _learn(self, summary: Samples, group: list[int]) -> None:
        now = np.full(summary.shape, np.nan)
        now[group] = summary[group]
        if self._usual is None:
            self._usual = now
            return
        blend = np.where(np.isnan(self._usual), now, (1 - _RECENT) * self._usual + _RECENT * now)
        self._usual = np.where(np.isnan(now), self._usual, blend)

    def _blame(self, summary: Samples, usual: Numbers, groups: list[list[int]]) -> None:
        """Name the group of several sensors that moved furthest from its own past; none where a past is missing."""
        distance = np.linalg.norm(summary - usual, axis=1)
        self._moved = distance if self._moved is None else self._moved + np.nan_to_num(distance)
        moved = {tuple(group): float(self._moved[group].mean()) for group in groups if len(group) > 1}
        if np.isfinite(list(moved.values())).all():
            self._departed = np.isin(np.arange(len(distance)), max(moved, key=moved.__getitem__))


def connected(agree: Mask, usable: Mask) -> list[list[int]]:
    """Groups of usable sensors that agree with each other, directly or through others."""
    left, groups = np.flatnonzero(usable).tolist(), list[list[int]]()
    while left:
        group, fresh = [], [left.pop(0)]
        while fresh:
            group += fresh
            fresh = [sensor for sensor in left if agree[sensor, group].any() or agree[group, sensor].any()]
            left = [sensor for sensor in left if sensor not in fresh]
        groups.append(sorted(group))
    return groups
