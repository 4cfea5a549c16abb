"""Sites, classes and days from what a user types."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.errors import UsageError
from pipeline.simulation.clips import Clips
from pipeline.simulation.day import Day
from pipeline.simulation.day_files import DayFiles
from pipeline.simulation.faults import FaultPlan, parse_kinds
from pipeline.simulation.scene import Site, array_positions
from pipeline.simulation.subjects import CLASSES, NOBODY


def site_of(
    *,
    seed: int,
    rate_hz: int,
    seconds: float,
    n_sensors: int,
    spacing_m: float,
    surface: str,
    faults: str,
    fault_share: str,
    fault_seconds: float,
    clips: Path | None,
) -> Site:
    """Checked in the order in which a user would look for a mistake."""
    if not 0 < spacing_m < 1000:
        raise UsageError(f"spacing {spacing_m} m must be above 0 and below 1000; for example 5")
    kinds = parse_kinds(faults, n_sensors=n_sensors)
    plan = FaultPlan(kinds, _shares(fault_share, n_sensors), fault_seconds)
    return Site(
        seed=seed,
        rate_hz=rate_hz,
        duration_seconds=seconds,
        sensors_m=array_positions(n_sensors, spacing_m),
        surface=surface,
        faults=plan if kinds else None,
        clips=Clips(clips, rate_hz) if clips else None,
    )


def day_files_of(
    site: Site,
    *,
    hours: float,
    start_hour: float,
    passages: float,
    distractors: float,
    classes: str | None,
    piece_seconds: int,
    file_format: str,
) -> DayFiles:
    """Return a day at a site, as files; passages and distractors are mean numbers in 24 hours."""
    if not 0 <= start_hour < 24:
        raise UsageError(f"start hour {start_hour} must be at least 0 and below 24; for example 6")
    named = classes_of(classes) or CLASSES
    if NOBODY in named:
        raise UsageError(f"class {NOBODY!r} cannot pass the array; leave it out, a day has plenty of it")
    day = Day(
        site,
        hours=hours,
        passages_per_day=passages,
        distractors_per_day=distractors,
        classes=named,
        start_hour=start_hour,
    )
    return DayFiles(day, piece_seconds, file_format)


def classes_of(text: str | None) -> tuple[str, ...] | None:
    """Return the classes in a list with commas, None if there is no list."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = (*CLASSES, NOBODY)
    wrong = [name for name in names if name not in known]
    if wrong or not names or len(set(names)) < len(names):
        problem = f"class {wrong[0]!r} is not known" if wrong else f"classes {text!r} must be different names"
        raise UsageError(f"{problem}; choose some of {', '.join(known)}")
    return names


def _shares(text: str, n_sensors: int) -> tuple[float, ...]:
    """One share for all sensors, or one for each."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"fault share {text!r} must be a number, or {n_sensors} with commas; for example 0.1"
        ) from error
    return shares * n_sensors if len(shares) == 1 else shares
