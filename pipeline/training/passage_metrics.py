"""How well passages are found, timed and classified, from plain spans of time; no files are read here.

Scores need found passages, true passages and background: the time in which certainly nobody was there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.model.metrics import rate

LEAST_IOU = 0.3
NEAR_SECONDS = 2.0
_EDGE_SECONDS = 0.1
"""A true passage that reaches so near to an edge of its recording has no known start or end there."""
_LEVEL = 0.95
_DIGITS = 6
Stretches = Mapping[str, Sequence[tuple[float, float]]]
"""Disjoint stretches of each recording, in the order of time."""


@dataclass(frozen=True, slots=True)
class TimedSpan:
    """Seconds `start` to `end` of a recording and their label; a found passage without a label has None."""

    recording: str
    start: float
    end: float
    label: str | None


@dataclass(frozen=True, slots=True)
class Match:
    """A found passage and the true one that it stands for."""

    found: TimedSpan
    true: TimedSpan

    @property
    def iou(self) -> float:
        """Intersection over union."""
        return iou(self.found, self.true)

    @property
    def onset_error(self) -> float:
        """Seconds by which the passage was found too late; negative if too early."""
        return self.found.start - self.true.start

    @property
    def end_error(self) -> float:
        return self.found.end - self.true.end


def overlap(one: TimedSpan, other: TimedSpan) -> float:
    """Return how many seconds two spans have in common."""
    if one.recording != other.recording:
        return 0.0
    return max(0.0, min(one.end, other.end) - max(one.start, other.start))


def iou(one: TimedSpan, other: TimedSpan) -> float:
    """Return intersection over union of two spans."""
    common = overlap(one, other)
    return common / (one.end - one.start + other.end - other.start - common) if common else 0.0


def matches(found: Sequence[TimedSpan], true: Sequence[TimedSpan]) -> list[Match]:
    """Pair found with true passages that overlap, each at most once, with the greatest total overlap."""
    from scipy.optimize import linear_sum_assignment

    pairs = []
    for recording in dict.fromkeys(span.recording for span in true):
        own_true = [span for span in true if span.recording == recording]
        own_found = [span for span in found if span.recording == recording]
        table = np.array([[overlap(one, other) for other in own_true] for one in own_found])
        if table.size:
            for row, column in zip(*linear_sum_assignment(table, maximize=True), strict=True):
                if table[row, column] > 0:
                    pairs.append(Match(own_found[row], own_true[column]))
    return pairs


def joined_labels(spans: Iterable[TimedSpan]) -> list[TimedSpan]:
    """Join spans of one label that touch or overlap: labels of one passage may come in several rows."""
    whole: list[TimedSpan] = []
    for span in sorted(spans, key=lambda span: (span.recording, span.start, span.end)):
        last = whole[-1] if whole else None
        if last and (last.recording, last.label) == (span.recording, span.label) and span.start <= last.end:
            whole[-1] = TimedSpan(last.recording, last.start, max(last.end, span.end), last.label)
        else:
            whole.append(span)
    return whole


def background_of(true: Sequence[TimedSpan], nobody: Sequence[TimedSpan], seconds: Mapping[str, float]) -> Stretches:
    """Return the time of recordings, by their `seconds`, in which nobody was there.

    That is the time labeled nobody, if there is any such label; otherwise all time outside true passages.
    """
    occupied, empty = union(true), union(nobody)
    found = {}
    for recording, length in seconds.items():
        base = empty.get(recording, []) if nobody else [(0.0, length)]
        inside = [(start, min(end, length)) for start, end in base if start < length]
        found[recording] = _minus(inside, occupied.get(recording, []))
    return found


def union(spans: Iterable[TimedSpan]) -> dict[str, list[tuple[float, float]]]:
    """Return the disjoint stretches of each recording that spans cover."""
    covered: dict[str, list[tuple[float, float]]] = {}
    for span in sorted(spans, key=_start):
        own = covered.setdefault(span.recording, [])
        if own and span.start <= own[-1][1]:
            own[-1] = own[-1][0], max(own[-1][1], span.end)
        else:
            own.append((span.start, span.end))
    return covered


def _minus(
    stretches: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    left = list(stretches)
    for begin, stop in others:
        left = [
            piece
            for start, end in left
            for piece in ((start, min(end, begin)), (max(start, stop), end))
            if piece[0] < piece[1]
        ]
    return left


def total_seconds(stretches: Stretches) -> float:
    """Return the length of all stretches."""
    return sum(end - start for own in stretches.values() for start, end in own)


def common_seconds(one: Stretches, other: Stretches) -> float:
    """Return the length of what two sets of stretches have in common."""
    return sum(
        max(0.0, min(end, stop) - max(start, begin))
        for recording, own in one.items()
        for start, end in own
        for begin, stop in other.get(recording, ())
    )


def false_passages(found: Sequence[TimedSpan], true: Sequence[TimedSpan], background: Stretches) -> list[TimedSpan]:
    """Return the found passages that overlap no true one and whose middle lies in the background."""
    return [
        span
        for span in found
        if not any(overlap(span, other) for other in true)
        and any(start <= (span.start + span.end) / 2 < end for start, end in background.get(span.recording, ()))
    ]


def poisson_interval(count: int, exposure: float) -> tuple[float, float]:
    """Return the exact 95 % interval (Garwood) of a rate of which `count` events were seen during `exposure`."""
    from scipy.special import gammaincinv

    tail = (1 - _LEVEL) / 2
    low = float(gammaincinv(count, tail)) if count else 0.0
    return low / exposure, float(gammaincinv(count + 1, 1 - tail)) / exposure


class _Decisions:
    """Labeled segments of each recording by their start, so that those of a passage are found at once."""

    def __init__(self, segments: Iterable[TimedSpan]) -> None:
        self._of: dict[str, list[TimedSpan]] = {}
        for segment in sorted(segments, key=_start):
            if segment.label is not None:
                self._of.setdefault(segment.recording, []).append(segment)

    def inside(self, span: TimedSpan) -> list[TimedSpan]:
        """Return the segments that lie wholly inside a span."""
        own = self._of.get(span.recording, [])
        first, last = bisect_left(own, span.start, key=_start), bisect_right(own, span.end, key=_start)
        return [segment for segment in own[first:last] if segment.end <= span.end]


def _start(span: TimedSpan) -> float:
    return span.start


def passage_scores(
    found: Sequence[TimedSpan],
    true: Sequence[TimedSpan],
    nobody: Sequence[TimedSpan],
    seconds: Mapping[str, float],
    *,
    classes: Sequence[str] = (),
    segments: Sequence[TimedSpan] = (),
) -> dict[str, Any]:
    """Score found passages against true ones, ready for JSON; `seconds` are the lengths of all scored recordings.

    A true passage is found if any passage overlaps it; all other scores are of pairs that match one to one. `segments`
    are decisions with their labels, for comparison. Intervals take recordings as independent units: cut a long stream
    into several.
    """
    found, true, nobody, segments = (
        [span for span in spans if span.recording in seconds]
        for spans in (found, joined_labels(true), nobody, segments)
    )
    pairs = matches(found, true)
    iou_of = {pair.true: pair.iou for pair in pairs}
    background = background_of(true, nobody, seconds)
    hours = total_seconds(background) / 3600
    alarms = false_passages(found, true, background)
    decided = [pair for pair in pairs if pair.found.label is not None]
    names = list(dict.fromkeys([*classes, *sorted(_labels(true)), *sorted(_labels(found))]))
    decisions = _Decisions(segments)
    inside = [(segment, pair.true) for pair in pairs for segment in decisions.inside(pair.true)]
    touched = {span for span in true if any(overlap(span, one) for one in found)}
    return {
        "recordings": len(seconds),
        "true": len(true),
        "passages": len(found),
        "matched": len(pairs),
        "false": len(alarms),
        "background_hours": round(hours, _DIGITS),
        "found": _share(true, lambda span: span in touched),
        "found_iou": _share(true, lambda span: iou_of.get(span, 0.0) >= LEAST_IOU),
        "false_per_hour": _rate_per_hour(len(alarms), hours),
        "background_share": _ratio(common_seconds(background, union(found)), total_seconds(background)),
        "class_right": _share(decided, lambda pair: pair.found.label == pair.true.label),
        "segments_right": _share(inside, lambda pair: pair[0].label == pair[1].label),
        "abstained": _share(pairs, lambda pair: pair.found.label is None),
        "onset_error_seconds": _error([pair for pair in pairs if pair.true.start > _EDGE_SECONDS], "onset_error"),
        "end_error_seconds": _error(
            [pair for pair in pairs if pair.true.end < seconds[pair.true.recording] - _EDGE_SECONDS], "end_error"
        ),
        "classes": names,
        "confusion": confusion(pairs, names),
        "confusion_shares": _confusion_shares(pairs, names),
        "found_by_class": {
            name: _share([span for span in true if span.label == name], lambda span: span in touched)
            for name in sorted(_labels(true))
        },
    }


def confusion(pairs: Sequence[Match], classes: Sequence[str]) -> list[list[int]]:
    """Count matched passages. Rows: the true class. Columns: the classes, and no label."""
    table = np.zeros((len(classes), len(classes) + 1), np.int64)
    for pair in pairs:
        column = len(classes) if pair.found.label is None else classes.index(pair.found.label)
        table[classes.index(str(pair.true.label)), column] += 1
    return [[int(n) for n in row] for row in table]


def _confusion_shares(pairs: Sequence[Match], classes: Sequence[str]) -> list[list[dict[str, Any] | None]]:
    """Return the same as shares of each row."""
    rows = []
    for true in classes:
        own = [pair for pair in pairs if pair.true.label == true]
        rows.append([_share(own, _labeled(label)) for label in (*classes, None)])
    return rows


def _labeled(label: str | None) -> Callable[[Match], bool]:
    return lambda pair: pair.found.label == label


def _labels(spans: Iterable[TimedSpan]) -> set[str]:
    return {span.label for span in spans if span.label is not None}


def _share(items: Sequence[Any], hit: Callable[[Any], bool]) -> dict[str, Any] | None:
    found = rate([hit(item) for item in items], _units(items))
    if found is None:
        return None
    told = found.as_dict()
    return told | {"n": told.pop("segments")}


def _units(items: Sequence[Any]) -> list[str]:
    """Name what is independent: recordings, or the true passages if all are of one recording."""
    spans = [_true(item) for item in items]
    if len({span.recording for span in spans}) > 1:
        return [span.recording for span in spans]
    return [f"{span.recording}@{span.start}" for span in spans]


def _true(item: TimedSpan | Match | tuple[TimedSpan, TimedSpan]) -> TimedSpan:
    if isinstance(item, Match):
        return item.true
    return item if isinstance(item, TimedSpan) else item[0]


def _rate_per_hour(count: int, hours: float) -> dict[str, Any] | None:
    if not hours:
        return None
    low, high = poisson_interval(count, hours)
    return {
        "value": round(count / hours, _DIGITS),
        "low": round(low, _DIGITS),
        "high": round(high, _DIGITS),
        "n": count,
        "hours": round(hours, _DIGITS),
    }


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, _DIGITS) if whole else None


def _error(pairs: Sequence[Match], name: str) -> dict[str, Any] | None:
    """Return the median of a signed error and how often it is within two seconds."""
    if not pairs:
        return None
    errors = [getattr(pair, name) for pair in pairs]
    near = _share(pairs, lambda pair: abs(getattr(pair, name)) <= NEAR_SECONDS)
    return {"median": round(float(np.median(errors)), _DIGITS), "within_2_s": near, "n": len(errors)}
