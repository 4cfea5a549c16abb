"""Which passages people are notified of, and when a summary is due. All times are times of the sound."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from pipeline.core.passages import NO_LABEL, PassageRow


class Suppression(StrEnum):
    """Why a passage is not notified."""

    LABEL = "label"
    PROBABILITY = "probability"
    QUIET_HOURS = "quiet hours"
    COOL_DOWN = "cool-down"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A stretch of every local day in which nobody is notified; over midnight if it ends before it begins."""

    begin: time
    end: time

    def __contains__(self, local: time) -> bool:
        if self.begin <= self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end


@dataclass(frozen=True, slots=True)
class Rules:
    """Which passages are notified; `labels` None means all, and `no label` is one of them."""

    labels: tuple[str, ...] | None = None
    least_probability: float = 0.0
    quiet_hours: QuietHours | None = None
    cool_down_seconds: float = 0.0
    summary_at: time | None = None
    zone: ZoneInfo | None = None
    """None: that of this machine."""

    def local(self, moment: datetime) -> datetime:
        """Return a time as clocks at the array show it."""
        return moment.astimezone(self.zone)

    def refusal(self, passage: PassageRow, notified: datetime | None) -> Suppression | None:
        """Return why a passage that has ended is not notified, None if it is.

        `notified` is the end of the last passage with the same label that people were notified of.
        """
        if self.labels is not None and (passage.label or NO_LABEL) not in self.labels:
            return Suppression.LABEL
        if (passage.probability or 0.0) < self.least_probability:
            return Suppression.PROBABILITY
        end = passage.end_time
        assert end is not None
        if self.quiet_hours is not None and self.local(end).time() in self.quiet_hours:
            return Suppression.QUIET_HOURS
        if notified is not None and timedelta() <= end - notified < timedelta(seconds=self.cool_down_seconds):
            return Suppression.COOL_DOWN
        return None


def summary_due(rules: Rules, after: datetime, now: datetime) -> datetime | None:
    """Return the latest time for a summary that is later than `after` and not later than `now`, if there is one."""
    if rules.summary_at is None:
        return None
    due = _at(rules, now, days_before=0)
    if due > now:
        due = _at(rules, now, days_before=1)
    return due if due > after else None


def day_before(rules: Rules, moment: datetime) -> datetime:
    """Return the same local time of the day before."""
    local = rules.local(moment)
    earlier = datetime.combine(local.date() - timedelta(days=1), local.time(), rules.zone)
    return earlier.astimezone(UTC)


def _at(rules: Rules, now: datetime, *, days_before: int) -> datetime:
    assert rules.summary_at is not None
    day = rules.local(now).date() - timedelta(days=days_before)
    # Without a zone this is the time of this machine, which `astimezone` assumes.
    return datetime.combine(day, rules.summary_at, rules.zone).astimezone(UTC)
