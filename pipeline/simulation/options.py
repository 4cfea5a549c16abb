"""A site from what a user types."""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import UsageError
from pipeline.simulation.clips import Clips
from pipeline.simulation.faults import FaultPlan, parse_kinds
from pipeline.simulation.scene import Site, array_positions


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


def _shares(text: str, n_sensors: int) -> tuple[float, ...]:
    """One share for all sensors, or one for each."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"fault share {text!r} must be a number, or {n_sensors} with commas; for example 0.1"
        ) from error
    return shares * n_sensors if len(shares) == 1 else shares
