"""A simulated array: who passes, how it sounds at every sensor, and what befalls the sensors."""

from pipeline.simulation.day import Day
from pipeline.simulation.faults import FAULTS, Episode, FaultPlan
from pipeline.simulation.scene import (
    Recording,
    Scene,
    Site,
    array_positions,
    draw_scene,
    record,
)
from pipeline.simulation.subjects import CLASSES, HUMAN, HUMAN_WITH_ANIMAL, NOBODY

__all__ = [
    "CLASSES",
    "FAULTS",
    "HUMAN",
    "HUMAN_WITH_ANIMAL",
    "NOBODY",
    "Day",
    "Episode",
    "FaultPlan",
    "Recording",
    "Scene",
    "Site",
    "array_positions",
    "draw_scene",
    "record",
]
