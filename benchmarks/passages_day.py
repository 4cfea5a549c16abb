"""A simulated day: a model of one site decides about another one."""

from __future__ import annotations

import numpy as np

from benchmarks.passages_peers import Envelope, peer_figures
from benchmarks.passages_run import Heard, Sound, Trained
from benchmarks.passages_score import Figures, product_figures
from benchmarks.passages_streams import by_rate, show_classes, show_detectors
from pipeline.simulation.day import Day
from pipeline.simulation.faults import FAULTS, FaultPlan
from pipeline.simulation.scene import Site

PER_DAY = 24.0
PASSAGES_PER_DAY, DISTRACTORS_PER_DAY = 40.0, 60.0
TRAINING_PER_HOUR = 15.0
"""Passages; distractors are as rare as on the day that is decided about, for the threshold depends on them."""
FAILING_SHARES = (0.0, 0.1, 0.0, 0.0)


def training_day(seed: int, hours: float) -> Sound:
    """A day of one site with many passages."""
    per_day = 24 * TRAINING_PER_HOUR
    day = Day(Site(seed=seed), hours=hours, passages_per_day=per_day, distractors_per_day=DISTRACTORS_PER_DAY)
    return Sound.of_day(f"day at site {seed} (training)", day)


def test_day(seed: int, hours: float) -> Sound:
    """A day of another site, one of whose sensors fails a tenth of the time."""
    site = Site(seed=seed, faults=FaultPlan(tuple(FAULTS), FAILING_SHARES))
    day = Day(site, hours=hours, passages_per_day=PASSAGES_PER_DAY, distractors_per_day=DISTRACTORS_PER_DAY)
    return Sound.of_day(f"day at site {seed}", day)


def measure_day(trained: Trained, envelopes: tuple[Envelope, Envelope], sound: Sound, heard: Heard) -> Figures:
    """Passages of all classes at the usual rate of false ones."""
    segment_seconds = trained.model.grid.segment_seconds
    ours = product_figures(sound, heard, heard.passages[PER_DAY], segment_seconds, -np.inf)
    peers = peer_figures(trained, envelopes[0], sound, heard, envelopes[1], PER_DAY)
    title = f"{sound.name}: {len(sound.passages)} passages, {len(sound.distractors)} distractors in {sound.hours:g} h"
    show_detectors(title, {"gemmed": ours, **peers})
    show_classes(sound, ours)
    presence = trained.model.presence
    assert presence is not None
    return ours | {
        "configured_per_day": PER_DAY,
        "guaranteed_per_day": round(presence.guaranteed_per_day(PER_DAY), 3),
        "background_hours_learned": round(float(presence.hours[0]), 3),
        "threshold": presence.threshold(PER_DAY),
        "by_rate": by_rate(sound, heard),
        "peers": peers,
    }
