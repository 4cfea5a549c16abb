"""What was found in a sensor, in words: evidence, durations, moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from pipeline.core.sensor_state import Pattern
from pipeline.health.checks import CHECKS

PATTERNS = {
    Pattern.FAULT: "one sensor against the others",
    Pattern.EVENT: "something new out there",
    Pattern.COMMON_FAULT: "the same with all sensors",
    Pattern.DOUBTED_LABEL: "all sensors against the label",
}
_NO_SOUND = "no sound"
_UNTOLD = "cannot be told"
_LIMITS = {(check.evidence, float(check.enter)) for check in CHECKS}


def number(value: float) -> str:
    """Three digits, or all those before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}".replace("e-0", "e-")


def percent(share: float) -> str:
    return f"{number(100 * share)} %"


def honest_percent(share: float, decimals: int = 0) -> str:
    """Rounded, but never to 0 for what there is, nor to 100 if something is lacking."""
    least = 10.0**-decimals
    if 0 < 100 * share < least:
        return f"< {least:.{decimals}f} %"
    if 100 - least < 100 * share < 100:
        return f"> {100 - least:.{decimals}f} %"
    return f"{100 * share:.{decimals}f} %"


def _decibel(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") + " dB"


def _full_scale(value: float) -> str:
    return _decibel(value) + "FS"


def _seconds(value: float) -> str:
    return f"{number(value)} s"


def _milliseconds(value: float) -> str:
    return f"{number(1000 * value)} ms"


_NAMES: dict[str, tuple[str, Callable[[float], str]]] = {
    "seconds_without_sound": ("nothing came for", _seconds),
    "delivered_share": ("sound came in so much of the time", percent),
    "distinct_values": ("different values", number),
    "level_dbfs": ("level", _full_scale),
    "share_at_rail": ("samples at full scale", percent),
    "missing_share": ("missing", percent),
    "offset_of_full_scale": ("zero line off, of full scale", percent),
    "hum_to_rest": ("mains hum in parts of the rest", number),
    "clipped_share": ("clipped", percent),
    "spikes_in_5_s": ("spikes in 5 s", number),
    "above_array_db": ("noise floor above the others", _decibel),
    "above_own_db": ("noise floor above its usual one", _decibel),
    "rumble_above_array_db": ("rumble above the others", _decibel),
    "alone_share": ("crackles alone", percent),
    "with_sensor": ("together with sensor", number),
    "correlation": ("correlation", number),
    "misfit": ("misfit", number),
    "weakness": ("weakness", number),
    "agreement": ("agreement of sign", number),
    "with_sensors": ("sensors compared", number),
    "others_heard": ("sounds that others heard", number),
    "heard": ("of them heard", number),
    "activity_db": ("activity", _decibel),
    "improvement": ("improvement if exchanged", number),
    "events": ("sounds", number),
    "rate_error": ("clock off by", percent),
    "late_seconds": ("late by", _milliseconds),
    "p_value": ("p", number),
    "p_combined": ("p of all sensors", number),
    "log_likelihood_ratio": ("log likelihood ratio", number),
    "mean_log_p": ("mean log p", number),
    "refused_share_of_training": ("of its training sound refused", percent),
    "log_odds_against": ("log odds against the label", number),
    "segments": ("segments", number),
    "times_fallen_ill": ("times fallen ill", number),
    "within_seconds": ("within", _seconds),
}


def evidence_words(evidence: Mapping[str, float | None]) -> str:
    """For example "level: no sound (limit -95 dBFS)"; names nobody knows are shown as they are."""
    measured = {name: value for name, value in evidence.items() if name != "limit"}
    limit = evidence.get("limit")
    limited = None if limit is None else _whose_limit(measured, limit)
    said = [_said(name, value, limit if name == limited else None) for name, value in measured.items()]
    if limit is not None and limited is None:
        said.append(f"limit: {number(limit)}")
    return "; ".join(said)


def _whose_limit(measured: Mapping[str, float | None], limit: float) -> str | None:
    """If several checks found the same cause, there is only one limit: which check has it?"""
    return next((name for name in measured if (name, limit) in _LIMITS), next(iter(measured), None))


def _said(name: str, value: float | None, limit: float | None) -> str:
    label, written = _NAMES.get(name, (name, number))
    missing = _NO_SOUND if name == "level_dbfs" else _UNTOLD
    bounded = "" if limit is None else f" (limit {written(limit)})"
    return f"{label}: {missing if value is None else written(value)}{bounded}"


def duration_words(seconds: float) -> str:
    """The two largest units."""
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    minutes = round(seconds / 60)
    return _two(minutes // 60, "h", minutes % 60, "min")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit}" + (f" {small} {small_unit}" if small else "")


def clock(started_at: str | None) -> datetime | None:
    """When a recording began, if that is known and a time."""
    try:
        return datetime.fromisoformat(started_at) if started_at else None
    except ValueError:
        return None


def moment(seconds: float, began: datetime | None) -> str:
    """For example "12:30", or with the time of day "06:42:30 (12:30)"."""
    since = elapsed(seconds)
    if began is None:
        return since
    try:
        return f"{began + timedelta(seconds=seconds):%H:%M:%S} ({since})"
    except OverflowError:
        return since


def elapsed(seconds: float) -> str:
    """Seconds, then minutes:seconds, then hours:minutes:seconds."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d}" if whole < 3600 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
