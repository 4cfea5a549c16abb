"""Other detectors of passages on the same sound: STA/LTA with coincidence, half-space trees, everything.

The thresholds of all are chosen as ours is: the lowest at which the background of the training stream starts at most
the configured number of passages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

from benchmarks.health_peers import HalfSpaces
from benchmarks.passages_run import N_SENSORS, RATE_HZ, Floats, Found, Heard, Sound, Trained, say
from benchmarks.passages_score import Figures, Scored, detector_figures, segment_auc
from pipeline.core.events import Samples
from pipeline.core.passages import QUIET_SECONDS
from pipeline.learners.array_presence import SEGMENTS_LOOKED_AT, SEGMENTS_NEEDED
from pipeline.stages.passages import LONGEST_SECONDS
from pipeline.training.examples import NOBODY

ENVELOPE_HZ = 100
BAND_HZ = (100.0, 4000.0)
STA_LTA_SECONDS = ((1.0, 30.0), (1.0, 120.0), (3.0, 30.0), (3.0, 120.0))
SENSORS_NEEDED = 3
_RATIOS = np.geomspace(1.2, 40.0, 24)
_N_LEVELS = 60
_WINDOW_SEGMENTS = 1200
STA_LTA, TREES, EVERYTHING = "STA/LTA, 3 of 4 (obspy)", "HalfSpaceTrees (river)", "every segment is somebody"


class Envelope:
    """Root mean square of the band from 100 to 4000 Hz at 100 Hz, taken piece by piece."""

    def __init__(self) -> None:
        self._sos = butter(4, BAND_HZ, "bandpass", fs=RATE_HZ, output="sos")
        self._state = np.zeros((len(self._sos), N_SENSORS, 2))
        self._parts: list[NDArray[np.float32]] = []

    def __call__(self, samples: Samples) -> None:
        sound, self._state = sosfilt(self._sos, samples, axis=1, zi=self._state)
        frame = RATE_HZ // ENVELOPE_HZ
        assert sound.shape[1] % frame == 0
        power = np.square(sound).reshape(N_SENSORS, -1, frame).mean(axis=2)
        self._parts.append(np.sqrt(power).astype(np.float32))

    @property
    def values(self) -> NDArray[np.float32]:
        return np.concatenate(self._parts, axis=1)


def peer_figures(
    trained: Trained, trained_envelope: Envelope, sound: Sound, heard: Heard, envelope: Envelope, per_day: float
) -> dict[str, Figures | None]:
    """Return the figures of all peers on a stream, at the same configured rate of false passages."""
    found: dict[str, Figures | None] = {STA_LTA: None}
    try:
        found[STA_LTA] = _sta_lta_figures(trained, trained_envelope.values, sound, envelope.values, per_day)
    except ModuleNotFoundError as error:
        say(f"{error.name} is not installed, the STA/LTA peer is left out; pip install 'gemmed[benchmarks]'")
    found[TREES] = _trees_figures(trained, sound, heard, per_day)
    # Cut where the product would close a passage that does not end.
    cuts = np.arange(0.0, sound.seconds, LONGEST_SECONDS)
    found[EVERYTHING] = detector_figures(
        sound, [Found(at, min(at + LONGEST_SECONDS, sound.seconds)) for at in cuts.tolist()]
    )
    return found


def _sta_lta_figures(
    trained: Trained, training_values: Samples, sound: Sound, values: Samples, per_day: float
) -> Figures:
    """Windows by what is found on the training stream, thresholds by its false passages."""
    best: tuple[float, tuple[float, float], float] | None = None
    for seconds in STA_LTA_SECONDS:
        course = _ratios(training_values, *seconds)
        threshold = _lowest(_RATIOS, lambda ratio, c=course: _triggered(c, ratio), trained, per_day)  # type: ignore[misc]
        told = Scored(trained.sound, _triggered(course, threshold)).detection()["found_iou"]
        value = told["value"] if told else 0.0
        if best is None or value > best[0]:
            best = value, seconds, threshold
    assert best is not None
    _, seconds, threshold = best
    figures = detector_figures(sound, _triggered(_ratios(values, *seconds), threshold))
    return figures | {"sta_lta_seconds": list(seconds), "threshold": round(threshold, 3)}


def _ratios(values: Samples, sta_seconds: float, lta_seconds: float) -> list[Floats]:
    from obspy.signal.trigger import recursive_sta_lta

    windows = round(sta_seconds * ENVELOPE_HZ), round(lta_seconds * ENVELOPE_HZ)
    # A dead sensor has a ratio of 0 / 0.
    return [np.nan_to_num(recursive_sta_lta(row.astype(np.float64) + 1e-7, *windows)) for row in values]


def _triggered(ratios: Sequence[Floats], threshold: float) -> list[Found]:
    """Stretches in which enough sensors are triggered, as obspy's network trigger has them."""
    from obspy import Stream, Trace
    from obspy.signal.trigger import coincidence_trigger

    header = {"sampling_rate": float(ENVELOPE_HZ)}
    stream = Stream([Trace(row, header | {"station": f"S{number}"}) for number, row in enumerate(ratios)])
    begin = stream[0].stats.starttime
    events: list[dict[str, Any]] = coincidence_trigger(None, threshold, max(1.0, threshold / 2), stream, SENSORS_NEEDED)
    return [Found(one["time"] - begin, one["time"] - begin + one["duration"]) for one in events]


def _lowest(thresholds: Floats, detect: Callable[[float], list[Found]], trained: Trained, per_day: float) -> float:
    """Return the lowest threshold with at most the configured rate of false passages on the training stream."""
    nobody = trained.nobody
    allowed = per_day * sum(end - start for start, end in nobody) / 86_400
    for threshold in thresholds.tolist():
        scored = Scored(trained.sound, detect(threshold))
        if len(scored.false(nobody, distractors=not trained.label_distractors)) <= allowed:
            return float(threshold)
    return float(thresholds[-1])


@dataclass(frozen=True, slots=True, eq=False)
class _Course:
    """Scores of segments, and when they begin."""

    scores: Floats
    starts: Floats


def _trees_figures(trained: Trained, sound: Sound, heard: Heard, per_day: float) -> Figures:
    """Half-space trees that go on learning; 4 of 6 segments above a threshold, as in our own rule."""
    examples = trained.examples
    empty = examples.label == NOBODY
    order = np.lexsort((examples.start[empty], examples.unit[empty]))
    background = np.nanmean(examples.summary[empty], axis=1)[order]
    trees = HalfSpaces(window_seconds=_WINDOW_SEGMENTS, streaming=True)
    say(f"{sound.name}: half-space trees on {len(background)} + {len(heard.summary)} segments")
    trees.fit(background.astype(np.float64))
    # What comes first was scored before the trees had seen a whole window.
    starts = (examples.start[empty] / RATE_HZ + 1e6 * examples.unit[empty])[order][-len(trees.learned) :]
    learned = _Course(trees.learned, starts)
    allowed = per_day * len(learned.scores) * 0.5 / 86_400
    levels = np.quantile(learned.scores, np.linspace(0.5, 1.0, _N_LEVELS))
    counts = [len(_sustained(learned, level)) for level in levels.tolist()]
    admissible = [level for level, count in zip(levels.tolist(), counts, strict=True) if count <= allowed]
    threshold = admissible[0] if admissible else float(levels[-1]) + 1e-6
    summary = np.nan_to_num(np.array(heard.summary, np.float64))
    course = _Course(trees.unusual(summary), np.array(heard.start))
    figures = detector_figures(sound, _sustained(course, threshold))
    areas = segment_auc(sound, course.scores, course.starts, course.starts + 2.0)
    return figures | {"segment_auc": areas, "threshold": round(float(threshold), 5)}


def _sustained(course: _Course, threshold: float) -> list[Found]:
    """Stretches in which enough of the last segments exceed a threshold, with pauses below the quiet time."""
    above = (course.scores >= threshold).astype(np.int64)
    together = np.convolve(above, np.ones(SEGMENTS_LOOKED_AT, np.int64))[: len(above)] >= SEGMENTS_NEEDED
    found: list[Found] = []
    for at in course.starts[together].tolist():
        start, end = at - 1.0, at + 1.5  # the centers of the segments that led to it
        if found and start - found[-1].end < QUIET_SECONDS:
            found[-1] = Found(found[-1].start, end)
        else:
            found.append(Found(start, end))
    return found
