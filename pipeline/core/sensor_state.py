"""The words for how a sensor is: its state, its liveness, and what is the matter with it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What an operator needs to know of a sensor."""

    GOOD = "good"
    DEGRADED = "degraded"  # it counts for less
    BAD = "bad"  # it has no say until it is well again
    OFF = "off"  # the operator does not want to hear it
    UNKNOWN = "unknown"  # nobody has heard it yet


class Liveness(StrEnum):
    """Where a sensor is between its first sound, its faults and its recovery."""

    INITIALISING = "initialising"  # not heard yet
    HEALTHY = "healthy"
    ALARMED = "alarmed"  # a fault has just opened
    ESCALATED = "escalated"  # the fault stays
    FAILED = "failed"  # it has stayed so long that somebody must go there
    RECOVERING = "recovering"  # no fault is left, but not for long yet
    MUTED = "muted"  # the operator does not want to hear it; it is measured all the same


class Cause(StrEnum):
    """What is the matter with a sensor."""

    NO_FRAMES = "no_frames"
    STALLED_RATE = "stalled_rate"
    RATE_ERROR = "rate_error"
    GAP = "gap"
    FLAT = "flat"
    SILENT = "silent"
    HUM_ONLY = "hum_only"
    LOW_GAIN = "low_gain"
    HIGH_GAIN = "high_gain"
    DC_OFFSET = "dc_offset"
    PEGGED = "pegged"
    CLIPPING = "clipping"
    SPIKES = "spikes"
    POLARITY = "polarity"
    CROSSTALK = "crosstalk"
    SWAPPED = "swapped"
    INCOHERENT = "incoherent"
    STALE = "stale"
    ANOMALOUS = "anomalous"
    DRIFT = "drift"
    CONTAMINATED = "contaminated"
    FLAPPING = "flapping"

    @property
    def state(self) -> State:
        """What a sensor is while this is the matter with it."""
        return State.BAD if self in _FATAL else State.DEGRADED

    @property
    def meaning(self) -> str:
        return _WORDS[self][0]

    @property
    def cure(self) -> str:
        """What somebody can do about it."""
        return _WORDS[self][1]


_FATAL = frozenset({
    Cause.NO_FRAMES, Cause.FLAT, Cause.SILENT, Cause.PEGGED, Cause.POLARITY, Cause.SWAPPED, Cause.STALE,
})  # fmt: skip

_WORDS = {
    Cause.NO_FRAMES: ("delivers nothing", "check that it is plugged in and has power, then the driver"),
    Cause.STALLED_RATE: ("far too few samples a second", "check the driver and the load of the machine"),
    Cause.RATE_ERROR: ("its clock runs off", "give all sensors one clock, or resample this one"),
    Cause.GAP: ("pieces are missing", "check cable, connectors and buffers"),
    Cause.FLAT: ("one value, or hardly more", "check cable, supply and converter"),
    Cause.SILENT: ("no sound at all", "check microphone, supply and gain"),
    Cause.HUM_ONLY: ("mains hum covers the sound", "check shield and ground of the cable"),
    Cause.LOW_GAIN: ("too quiet", "check for water or dirt in the microphone, then the gain"),
    Cause.HIGH_GAIN: ("too loud", "check windscreen and contacts, then the gain"),
    Cause.DC_OFFSET: ("the zero line has moved", "check supply and input capacitor"),
    Cause.PEGGED: ("stuck at full scale", "check the amplifier and its supply"),
    Cause.CLIPPING: ("overdriven", "lower the gain"),
    Cause.SPIKES: ("single samples far out", "check contacts and digital line"),
    Cause.POLARITY: ("wires exchanged", "exchange the two wires of the cable"),
    Cause.CROSSTALK: ("hears another sensor's signal", "check the cables for contact with each other"),
    Cause.SWAPPED: ("stands in another sensor's place", "exchange the two plugs"),
    Cause.INCOHERENT: ("hears nothing of what the others hear", "check where it stands and what covers it"),
    Cause.STALE: ("plays sound of another time", "restart its driver; check that buffers are cleared"),
    Cause.ANOMALOUS: ("unlike itself and the others", "listen to it; if the place has changed, train anew"),
    Cause.DRIFT: ("changes slowly", "listen to it; if the place has changed, train anew"),
    Cause.CONTAMINATED: ("much of its training sound was refused", "train on recordings from when it was well"),
    Cause.FLAPPING: ("state keeps toggling", "look for a loose contact"),
}


class Pattern(StrEnum):
    """Fault or event: what the sensors together say of an anomaly."""

    FAULT = "fault"  # one sensor against the others
    EVENT = "event"  # all of them together: something new happens out there
    COMMON_FAULT = "common_fault"  # the same thing is the matter with all of them
    DOUBTED_LABEL = "doubted_label"  # all of them together against what somebody said
