"""The facts that travel from sources through stages to observers, in the order in which they arise.

Facts are frozen and their arrays are read-only. Arrays of a fact have one row per sensor, always all sensors of the
array in the same order: a sensor that is missing is masked, never left out, so nothing ever shifts. Sample numbers
count from the start of the recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import exp, isnan
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.core.sensor_state import Cause, Liveness, Pattern, State

Samples: TypeAlias = NDArray[np.float32]
Numbers: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Evidence: TypeAlias = Mapping[str, float]
"""Named numbers that speak for a finding; each name tells its unit."""


def _freeze(fact: object, *names: str) -> None:
    """Replace arrays of a fact by read-only views; the owner of the array keeps its right to write."""
    for name in names:
        view: NDArray[Any] = getattr(fact, name).view()
        view.flags.writeable = False
        object.__setattr__(fact, name, view)


def _nothing() -> Samples:
    return np.empty((0, 0), np.float32)


@dataclass(frozen=True, slots=True)
class Span:
    """Samples `start` to `stop`, the latter not included."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class RecordingStarted:
    """Sample 0 of a new recording: what was known of the previous one must not reach into it."""

    recording: str
    rate_hz: int
    sensors: tuple[str, ...]
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RecordingFinished:
    """No more of a recording will come: how long it was, and a fingerprint of its sound."""

    recording: str
    samples: int
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive samples of all sensors; rows of sensors that did not deliver hold no meaning."""

    start: int
    samples: Samples  # (sensors, time)
    delivered: Mask  # (sensors,)

    def __post_init__(self) -> None:
        _freeze(self, "samples", "delivered")

    @property
    def stop(self) -> int:
        return self.start + int(self.samples.shape[1])


@dataclass(frozen=True, slots=True)
class Gap:
    """No sensor delivered these samples. Blocks and gaps together leave no sample out.

    A pause between files is nobody's fault: nothing was recorded, as far as anybody knows.
    """

    start: int
    stop: int
    reason: str
    recorded: bool = True


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes without sound: the next block will begin at `sample`, for which the source has waited so long."""

    sample: int
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class Idle:
    """There is nothing new just now, which says nothing of the sensors: others tell how their time passes."""


@dataclass(frozen=True, slots=True)
class SourceTrouble:
    """A source could not use something it was given, says how to cure it, and goes on."""

    where: str
    message: str


@dataclass(frozen=True, slots=True)
class FileHeard:
    """The end of a file that arrived while listening, and of its recording: whoever knows it need not hear it again."""

    identity: str
    path: str


@dataclass(frozen=True, slots=True)
class RecordingEnded:
    """The source has no more of a recording, and perhaps nothing else for long: what was heard of it counts now."""

    recording: str
    samples: int = 0
    """How many there were, gaps included: who heard less has missed some."""


@dataclass(frozen=True, slots=True)
class Paced:
    """How fast sound came in by the clock of this machine, up to a sample: a device may run at half its rate."""

    sample: int
    seconds: float
    samples: int


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """From this sample on another model decides: about all segments that end behind it."""

    sample: int
    model: str
    """By its name; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the service itself rather than about its sound; `details` are ready for JSON."""

    kind: NoticeKind
    details: Mapping[str, Any] = field(default_factory=dict)
    sample: int | None = None


class NoticeKind(StrEnum):
    """All that a service has to tell of itself."""

    RUN_STARTED = "run_started"
    RUN_STOPPED = "run_stopped"
    RUN_DIED = "run_died"  # told by the next one
    SOURCE_OPENED = "source_opened"
    CLOCK_JUMPED = "clock_jumped"
    SETTINGS_RELOADED = "settings_reloaded"
    LABEL_GIVEN = "label_given"
    LABEL_REFUSED = "label_refused"
    STORAGE_PRUNED = "storage_pruned"
    STORAGE_LOW = "storage_low"
    STORAGE_READ_ONLY = "storage_read_only"
    STORAGE_RECOVERED = "storage_recovered"
    JOURNAL_REPLACED = "journal_replaced"
    MODEL_UNUSABLE = "model_unusable"
    RETRAINING_STARTED = "retraining_started"
    RETRAINING_FINISHED = "retraining_finished"
    RETRAINING_FAILED = "retraining_failed"
    CHALLENGER_REFUSED = "challenger_refused"
    SHADOW_STARTED = "shadow_started"
    SHADOW_FINISHED = "shadow_finished"
    PROMOTION_ASKED = "promotion_asked"
    MODEL_PROMOTED = "model_promoted"
    MODEL_ROLLED_BACK = "model_rolled_back"
    CHAIN_RESTARTED = "chain_restarted"  # what was known of the sensors could not be taken up
    ROLLOUT_PASSED = "rollout_passed"
    OUTPUT_LINK_DOWN = "output_link_down"
    OUTPUT_LINK_UP = "output_link_up"
    OUTPUT_DROPPED = "output_dropped"


class Authority(StrEnum):
    """Who takes the trust from a sensor: it comes back by itself only from health."""

    OPERATOR = "operator"
    HEALTH = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class TrustChanged:
    """From this sample on the operator, or health, trusts these sensors; a segment trusts those that both trust."""

    sample: int
    trusted: Mask
    by: Authority = Authority.OPERATOR

    def __post_init__(self) -> None:
        _freeze(self, "trusted")


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A stretch of sound and its strongest window; a sensor is present if it delivered all of the stretch.

    Trusted sensors are those that nobody has masked.
    """

    span: Span
    window: Span
    samples: Samples  # (sensors, len(span))
    present: Mask
    trusted: Mask

    def __post_init__(self) -> None:
        _freeze(self, "samples", "present", "trusted")


@dataclass(frozen=True, slots=True, eq=False)
class Cepstra:
    """Mel-frequency cepstra of all frames of a segment in decibels; NaN where a sensor is not present."""

    span: Span
    window: Span
    values: Samples  # (sensors, frames, coefficients)
    present: Mask
    trusted: Mask

    def __post_init__(self) -> None:
        _freeze(self, "values", "present", "trusted")


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """Two descriptions of the cepstra of a segment; NaN where a sensor is not present.

    `summary` does not depend on when something is heard within the segment and serves to tell classes apart. `timing`
    does, and serves to compare sensors with each other. `onsets` are those of the frames that are new in this segment.
    """

    span: Span
    window: Span
    summary: Samples  # (sensors, values)
    timing: Samples  # (sensors, values)
    present: Mask
    trusted: Mask
    onsets: Samples = field(default_factory=_nothing)  # (sensors, frames): how much louder each frame is, in decibels
    background: Samples = field(default_factory=_nothing)  # (sensors, values): median of the summary over some minutes
    background_seconds: float = 0.0

    def __post_init__(self) -> None:
        _freeze(self, "summary", "timing", "present", "trusted", "onsets", "background")


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Principal components of both views of a segment; NaN where a sensor is not present."""

    span: Span
    window: Span
    summary: Samples  # (sensors, components)
    timing: Samples  # (sensors, components)
    present: Mask
    trusted: Mask
    views: Views | None = None
    """What they were made of."""
    presence: Numbers | None = None  # (sensors,): log-odds that somebody is there; None if nothing is known about that
    is_empty: bool = False
    """Whether nobody is there for sure, so that sensors have no sound in common."""

    def __post_init__(self) -> None:
        _freeze(self, "summary", "timing", "present", "trusted")
        if self.presence is not None:
            _freeze(self, "presence")


@dataclass(frozen=True, slots=True, eq=False)
class Screened:
    """Conformal p-values of a segment for each sensor; NaN where there is nothing to compare it with.

    Small `p_values` mean a sensor fault, small `p_known` at all sensors mean a sound unlike every class.
    """

    features: Features
    p_own: Numbers  # of the timing among what the sensor delivered before, and of its summary relative to the others'
    p_others: Numbers  # of the timing view, given what the other trusted sensors delivered just now
    p_values: Numbers  # both together
    p_known: Numbers  # of the summary view, among the training segments of all classes
    calibrating: Mask  # sensors that have no reference yet

    def __post_init__(self) -> None:
        _freeze(self, "p_own", "p_others", "p_values", "p_known", "calibrating")


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """What each sensor alone makes of a segment; NaN where it is absent or was never trained."""

    screened: Screened
    margins: Numbers  # (sensors,), positive for the second class; with more than two classes (sensors, pairs of them)
    log_odds: Numbers  # (sensors, classes), against the first class, whose column is 0; calibrated

    def __post_init__(self) -> None:
        _freeze(self, "margins", "log_odds")

    @property
    def presence(self) -> Numbers | None:
        """Log-odds that somebody is there, by each sensor; None if nothing is known about that."""
        return self.screened.features.presence

    def probabilities(self) -> list[tuple[float, ...] | None]:
        """Return the probabilities of the classes by each sensor alone; None where it has no log-odds."""
        return [None if isnan(own[-1]) else class_probabilities(own) for own in self.log_odds.tolist()]


def class_probabilities(log_odds: Iterable[float]) -> tuple[float, ...]:
    """Return the probabilities of classes from their log-odds against any one of them."""
    values = tuple(log_odds)
    # Term after term by the exponential of the C library: the same to the bit on every machine.
    powers = [exp(max(value - max(values), -700.0)) for value in values]
    total = sum(powers)
    return tuple(power / total for power in powers)


class Role(StrEnum):
    """What a sensor contributed to a decision, or why nothing."""

    USED = "used"
    ABSENT = "absent"  # it did not deliver all of the segment
    OFF = "off"  # the operator does not want to hear it
    MASKED = "masked"  # its health is bad
    CALIBRATING = "calibrating"  # it has no reference yet
    UNTRAINED = "untrained"  # training believed too little of it to learn from
    ANOMALOUS = "anomalous"  # the screen refuses this segment of it


UNUSABLE_ROLES = frozenset({Role.ABSENT, Role.OFF, Role.MASKED})
"""Of sensors whose sound says nothing about the scene, whatever it resembles."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A label with its probability; no label if the sensors cannot tell, with the reason."""

    label: str | None
    probability: float | None  # of the label; without one, of the likelier class, if any sensor had a say
    log_odds: float | None  # of the second class; None if there are more than two
    reason: str | None = None
    probabilities: tuple[float, ...] | None = None  # of each class; None if no sensor had a say


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What the array makes of a segment, how far each sensor was believed, and what it would be without each."""

    verdicts: Verdicts
    outcome: Outcome
    weights: Numbers  # 0 to 1
    roles: tuple[Role, ...]
    without: tuple[Outcome, ...]
    classes: tuple[str, ...] = ()
    presence: float | None = None
    """Log-odds that somebody is there, of all usable sensors together."""

    def __post_init__(self) -> None:
        _freeze(self, "weights")

    @property
    def is_somebody(self) -> bool:
        """Whether somebody is there, as far as this segment shows; true if nothing is known about that."""
        return self.presence is None or self.presence > 0

    @property
    def features(self) -> Features:
        return self.verdicts.screened.features

    @property
    def sensors_used(self) -> int:
        return self.roles.count(Role.USED)

    @property
    def degraded(self) -> bool:
        """Whether a sensor of the array had no say."""
        return self.sensors_used < len(self.roles)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Somebody says what is heard in a part of the recording."""

    span: Span
    label: str


@dataclass(frozen=True, slots=True)
class FaultOpened:
    """Something is the matter with a sensor (counted from 0): known at `sample`, seen first at `since`."""

    sample: int
    since: int
    sensor: int
    cause: Cause
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FaultClosed:
    """It is over: known at `sample`, seen last before `until`; the evidence is that of its worst moment."""

    sample: int
    since: int
    until: int
    sensor: int
    cause: Cause
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A sensor is in another state or liveness than before; causes are those open now."""

    sample: int
    since: int
    """The sample from which on this is so: where the fault was seen first, or last."""
    sensor: int
    before: State
    state: State
    liveness: Liveness
    causes: tuple[Cause, ...]
    evidence: Mapping[Cause, Evidence] = field(default_factory=dict)
    notify: bool = True
    """Whether somebody should hear of it: not again and again while a sensor flaps."""

    @property
    def cures(self) -> tuple[str, ...]:
        """What to do about it."""
        return tuple(cause.cure for cause in self.causes)


@dataclass(frozen=True, slots=True)
class AnomalyJudged:
    """Fault or event: which pattern across the sensors an anomaly has, told once when it begins."""

    sample: int
    pattern: Pattern
    sensors: tuple[int, ...]
    evidence: Evidence
    reason: str


@dataclass(frozen=True, slots=True)
class CalibrationChanged:
    """A sensor's false alarms left the rate that was asked for, or came back to it."""

    sample: int
    sensor: int
    lost: bool
    nominal: float
    realised: float
    low: float
    high: float


class PassageEnd(StrEnum):
    """Why a passage ended."""

    QUIET = "quiet"  # nobody was there for the quiet time
    BACKGROUND_CHANGED = "background changed"  # it lasted too long for somebody who passes by
    RECORDING_ENDED = "recording ended"  # somebody was still there; it may continue in the next recording


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a sensor (counted from 0) had no part in a share of the segments of a passage."""

    sensor: int
    role: Role
    share: float


@dataclass(frozen=True, slots=True)
class Peak:
    """When a sensor (counted from 0) was loudest during a passage, and how far above its background."""

    sensor: int
    sample: int
    level_db: float


@dataclass(frozen=True, slots=True)
class Movement:
    """Straight path past sensors of known positions, with standard errors."""

    direction_degrees: float
    """Of the motion, counterclockwise from the x axis of the positions."""
    direction_error_degrees: float
    speed_mps: float
    speed_error_mps: float
    nearest_m: tuple[float, float]
    """Point of the path nearest to the center of the array."""
    nearest_error_m: float


@dataclass(frozen=True, slots=True)
class Passage:
    """What is known of a passage so far: somebody goes by, from the first to the last segment of one event."""

    id: str
    start: int
    stop: int
    outcome: Outcome
    evidence: Mapping[str, float]
    """Log-probability of each class, summed over segments; passages that are joined add theirs."""
    presence: float
    """Mean probability that somebody was there."""
    segments: int
    decided: int
    """Segments with a label."""
    sensors_used: tuple[int, ...]
    excluded: tuple[Exclusion, ...]
    peaks: tuple[Peak, ...]
    """In the order of time."""
    p_known: float | None
    """Mean p-value of the sound among all classes: small means a sound unlike every class."""
    cadence_per_minute: float | None = None
    cadence_confidence: float | None = None
    movement: Movement | None = None


@dataclass(frozen=True, slots=True)
class PassageStarted:
    """Somebody is there: known at `sample`."""

    sample: int
    passage: Passage


@dataclass(frozen=True, slots=True)
class PassageUpdated:
    """A passage goes on: its verdict changed, or ten seconds went by."""

    sample: int
    passage: Passage


@dataclass(frozen=True, slots=True)
class PassageEnded:
    """A passage is over: known at `sample`."""

    sample: int
    passage: Passage
    reason: PassageEnd


@dataclass(frozen=True, slots=True)
class PresenceAudited:
    """How often background alone exceeded thresholds in `seconds` of time without a passage, known at `sample`."""

    sample: int
    seconds: float
    threshold: float
    """At which passages start."""
    starts: tuple[int, ...]
    """Rises to each of `thresholds` that started no passage."""
    thresholds: tuple[float, ...]
