"""A challenger decides in the shadow of the champion: about live sound without labels, and without consequences.

Nobody knows here who is right. But a model to which healthy sensors look strange, or which hardly ever decides, shows
it. Only segments that do not overlap are counted, for others are not independent; the same segments for both models,
so what counts is where they differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import erfc, sqrt
from typing import Any

from pipeline.core.checkpoint import value
from pipeline.core.events import Decision

_MARGIN = 0.02
_SIGNIFICANT = 0.01


@value
@dataclass(slots=True)
class Pairs:
    """Of segments that both models have looked at: in how many something was so for one of them, and for both."""

    both: int = 0
    champion_only: int = 0
    challenger_only: int = 0
    neither: int = 0

    def count(self, champion: bool, challenger: bool) -> None:
        name = ("neither", "challenger_only", "champion_only", "both")[2 * champion + challenger]
        setattr(self, name, getattr(self, name) + 1)

    def __len__(self) -> int:
        return self.both + self.champion_only + self.challenger_only + self.neither

    def p_no_more(self) -> float:
        """How likely so many more for the challenger would be, were it a margin more often at most.

        By the normal approximation for paired shares, with half a segment added to either side (Agresti and Min).
        """
        more, less, n = self.challenger_only + 0.5, self.champion_only + 0.5, len(self) + 2
        difference = (more - less) / n
        spread = sqrt(more + less - (more - less) ** 2 / n) / n
        return erfc((difference - _MARGIN) / spread / sqrt(2)) / 2

    def as_dict(self) -> dict[str, Any]:
        n = max(len(self), 1)
        return {
            "segments": len(self),
            "champion": round((self.both + self.champion_only) / n, 6),
            "challenger": round((self.both + self.challenger_only) / n, 6),
            "p_no_more": round(self.p_no_more(), 6),
        }


@value
@dataclass(slots=True)
class Shadow:
    """Counts until `segments` were compared; a sensor is refused where its p-value is at most `alpha`.

    If it is `turned`, the challenger decides already, and the champion of before is in its shadow.
    """

    segments: int = 300
    alpha: float = 0.01
    turned: bool = False
    _abstained: Pairs = field(default_factory=Pairs)
    _refused: dict[int, Pairs] = field(default_factory=dict)
    _agreed: int = 0
    _last: tuple[int, int] = (0, 0)

    def begin_recording(self) -> None:
        """Samples are counted anew: what comes now overlaps with nothing before it."""
        self._last = 0, 0

    def compare(self, champion: Decision, challenger: Decision) -> None:
        """Two decisions about the same segment."""
        if self.turned:
            champion, challenger = challenger, champion
        span = champion.features.span
        if span.start < self._last[1] or self.done:
            return
        self._last = span.start, span.stop
        labels = champion.outcome.label, challenger.outcome.label
        self._abstained.count(labels[0] is None, labels[1] is None)
        self._agreed += labels[0] is not None and labels[0] == labels[1]
        values = (one.verdicts.screened.p_values.tolist() for one in (champion, challenger))
        for sensor, (before, now) in enumerate(zip(*values, strict=True)):
            if before == before and now == now:  # both know the sensor, and it was present
                self._refused.setdefault(sensor, Pairs()).count(before <= self.alpha, now <= self.alpha)

    @property
    def done(self) -> bool:
        return len(self._abstained) >= self.segments

    def verdict(self) -> dict[str, Any]:
        """Ready for JSON: whether it passed, the reasons if not, and the numbers."""
        reasons = [
            f"it refuses {pairs.as_dict()['challenger']:.1%} of sensor {sensor + 1}, the champion "
            f"{pairs.as_dict()['champion']:.1%}"
            for sensor, pairs in sorted(self._refused.items())
            if pairs.p_no_more() < _SIGNIFICANT
        ]
        if self._abstained.p_no_more() < _SIGNIFICANT:
            shares = self._abstained.as_dict()
            reasons.append(
                f"it decides nothing in {shares['challenger']:.1%} of the segments, the champion in "
                f"{shares['champion']:.1%}"
            )
        return {
            "passed": not reasons,
            "reasons": reasons,
            "segments": len(self._abstained),
            "agreement": round(self._agreed / max(self._abstained.neither, 1), 6),
            "abstained": self._abstained.as_dict(),
            "refused": {str(sensor + 1): pairs.as_dict() for sensor, pairs in sorted(self._refused.items())},
        }
