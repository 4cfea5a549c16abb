"""Scores of found passages and of segments against the truth about a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.passages_run import Floats, Found, Happening, Heard, Sound, Stretch
from pipeline.model.metrics import rate
from pipeline.training.passage_metrics import (
    LEAST_IOU,
    NEAR_SECONDS,
    Match,
    TimedSpan,
    common_seconds,
    false_passages,
    matches,
    overlap,
    poisson_interval,
    total_seconds,
    union,
)

BANDS: dict[str, tuple[float, float]] = {
    "-5 to 0 dB": (-np.inf, 0.0),
    "0 to 5 dB": (0.0, 5.0),
    "5 to 10 dB": (5.0, 10.0),
    "10 dB and more": (10.0, np.inf),
}
LOUD_DB, LOUDEST_DB = 5.0, 10.0
_STREAM = "stream"
Figures = dict[str, Any]


def share(hits: Sequence[bool] | NDArray[np.bool_]) -> Figures | None:
    """Return a share with its 95 % interval (Wilson), each hit being a unit of its own; None of nothing."""
    found = rate(hits, [str(n) for n in range(len(hits))])
    if found is None:
        return None
    return {"value": round(found.value, 4), "low": round(found.low, 4), "high": round(found.high, 4), "n": found.n}


def per_hour(count: int, hours: float, unit_hours: float = 1.0) -> Figures | None:
    """Return a rate with its exact Poisson interval, per `unit_hours`."""
    if not hours:
        return None
    low, high = poisson_interval(count, hours / unit_hours)
    values = {"value": count / hours * unit_hours, "low": low, "high": high}
    return {name: round(value, 4) for name, value in values.items()} | {"n": count, "hours": round(hours, 3)}


def _span(one: Found | Happening, label: str | None) -> TimedSpan:
    return TimedSpan(_STREAM, one.start, one.end, label)


class Scored:
    """Found passages beside true ones, matched one to one."""

    def __init__(self, sound: Sound, found: Sequence[Found]) -> None:
        self.sound, self.found = sound, list(found)
        self._of = {_span(one, one.label): one for one in found}
        self._truth = {_span(one, one.label): one for one in sound.passages}
        self.pairs = matches(list(self._of), list(self._truth))
        self._iou = {pair.true: pair.iou for pair in self.pairs}
        self._touched = {span for span in self._truth if any(overlap(span, one) for one in self._of)}

    def among(self, band: tuple[float, float]) -> list[TimedSpan]:
        return [span for span, one in self._truth.items() if band[0] <= one.peak_db < band[1]]

    def detection(self, band: tuple[float, float] = (-np.inf, np.inf)) -> Figures:
        """Share found by any overlap, and with enough intersection over union."""
        own = self.among(band)
        return {
            "found": share([span in self._touched for span in own]),
            "found_iou": share([self.is_found(span) for span in own]),
        }

    def is_found(self, span: TimedSpan) -> bool:
        """Return whether a true passage is found with enough intersection over union."""
        return self._iou.get(span, 0.0) >= LEAST_IOU

    def false(self, background: Sequence[Stretch], *, distractors: bool) -> list[TimedSpan]:
        """Passages in stretches of background that overlap no passage, nor a distractor if those are events, too."""
        events = list(self._truth)
        if distractors:
            events += [_span(one, one.label) for one in self.sound.distractors]
        return false_passages(list(self._of), events, {_STREAM: background})

    def background_share(self) -> float | None:
        background = {_STREAM: self.sound.background}
        total = total_seconds(background)
        return round(common_seconds(background, union(self._of)) / total, 5) if total else None

    def errors(self, name: str) -> Figures | None:
        if not self.pairs:
            return None
        errors = np.array([getattr(pair, name) for pair in self.pairs])
        return {
            "median": round(float(np.median(errors)), 3),
            "median_absolute": round(float(np.median(np.abs(errors))), 3),
            "within_2_s": share(np.abs(errors) <= NEAR_SECONDS),
        }

    def latency(self) -> float | None:
        """Median seconds from the true start until the passage was reported."""
        delays = [self._of[pair.found].known_at - pair.true.start for pair in self.pairs]
        known = [delay for delay in delays if np.isfinite(delay)]
        return round(float(np.median(known)), 3) if known else None

    def loud_pairs(self, least_db: float) -> list[Match]:
        return [pair for pair in self.pairs if self._truth[pair.true].peak_db >= least_db]

    def classes(self, heard: Heard, segment_seconds: float, least_db: float) -> Figures:
        """Class of matched passages of at least so many dB, against that of the segments inside them."""
        pairs = self.loud_pairs(least_db)
        passages = [(self._of[pair.found], pair.true.label) for pair in pairs]
        decided = [(one, true) for one, true in passages if one.label is not None]
        starts, ends = heard.segments(segment_seconds)
        labels, leanings = np.array(heard.label, object), np.array(heard.leaning, object)
        right: list[bool] = []
        forced: list[bool] = []
        for pair in pairs:
            inside = (starts >= pair.true.start) & (ends <= pair.true.end)
            right += [label == pair.true.label for label in labels[inside] if label is not None]
            forced += [label == pair.true.label for label in leanings[inside] if label is not None]
        return {
            "class_right": share([one.label == true for one, true in decided]),
            "class_right_forced": share([one.leaning == true for one, true in passages]),
            "class_probability": _mean([one.probability for one, _ in passages if one.probability is not None]),
            "abstained": share([one.label is None for one, _ in passages]),
            "segments_right": _mean(right),
            "segments_right_forced": _mean(forced),
            "segments": len(right),
        }

    def by_distractor(self) -> dict[str, list[int]]:
        """How many distractors of each kind overlap a passage that is none of the true ones, and of how many."""
        true = list(self._truth)
        alarms = [span for span in self._of if not any(overlap(span, other) for other in true)]
        kinds = Counter(one.label for one in self.sound.distractors)
        hit = Counter(
            one.label
            for one in self.sound.distractors
            if any(overlap(_span(one, one.label), alarm) for alarm in alarms)
        )
        return {kind: [hit[kind], kinds[kind]] for kind in sorted(kinds)}

    def reasons(self) -> dict[str, int]:
        return dict(Counter(str(one.reason) for one in self.found if one.reason is not None))


def _mean(hits: Sequence[bool] | Sequence[float]) -> float | None:
    return round(float(np.mean(hits)), 4) if hits else None


def inside_any(starts: Floats, ends: Floats, stretches: Sequence[Stretch]) -> NDArray[np.bool_]:
    """Return which segments lie wholly inside one of the stretches."""
    inside = np.zeros(len(starts), np.bool_)
    for begin, stop in stretches:
        inside |= (starts >= begin) & (ends <= stop)
    return inside


def segment_auc(sound: Sound, scores: Floats, starts: Floats, ends: Floats) -> Figures:
    """Area under the ROC curve of segments inside passages against those of background, by peak of the passage."""
    from sklearn.metrics import roc_auc_score

    known = np.isfinite(scores)
    negative = scores[inside_any(starts, ends, sound.background) & known]
    areas: Figures = {}
    for name, band in {"all": (-np.inf, np.inf), **BANDS}.items():
        spans = [(one.start, one.end) for one in sound.passages if band[0] <= one.peak_db < band[1]]
        positive = scores[inside_any(starts, ends, spans) & known]
        if len(positive) and len(negative):
            truth = np.repeat([1, 0], [len(positive), len(negative)])
            areas[name] = round(float(roc_auc_score(truth, np.concatenate([positive, negative]))), 4)
    return areas


def detector_figures(sound: Sound, found: Sequence[Found]) -> Figures:
    """Return what can be asked of any detector of passages, ours or a peer."""
    scored = Scored(sound, found)
    hours = total_seconds({_STREAM: sound.background}) / 3600
    nobody_hours = total_seconds({_STREAM: sound.nobody}) / 3600
    bands = {name: scored.detection(band) for name, band in BANDS.items() if scored.among(band)}
    return scored.detection() | {
        "passages": len(found),
        "true": len(sound.passages),
        "bands": bands,
        "false_per_hour": per_hour(len(scored.false(sound.background, distractors=True)), hours),
        "false_per_day_with_distractors": per_hour(
            len(scored.false(sound.nobody, distractors=False)), nobody_hours, 24.0
        ),
        "background_share": scored.background_share(),
        "distractors": scored.by_distractor(),
        "onset_error_seconds": scored.errors("onset_error"),
        "end_error_seconds": scored.errors("end_error"),
    }


def product_figures(
    sound: Sound, heard: Heard, found: Sequence[Found], segment_seconds: float, least_db: float
) -> Figures:
    """Return the figures of a detector, and those of classes and segments."""
    scored = Scored(sound, found)
    areas = segment_auc(sound, np.array(heard.presence), *heard.segments(segment_seconds))
    return detector_figures(sound, found) | {
        "latency_seconds": scored.latency(),
        **scored.classes(heard, segment_seconds, least_db),
        "segment_auc": areas,
        "ended": scored.reasons(),
    }
