"""A simulated array: who passes, how it sounds at every sensor, and what befalls the sensors."""

from pipeline.simulation.faults import FAULTS, Episode, FaultPlan
from pipeline.simulation.scene import (
    HUMAN,
    HUMAN_WITH_ANIMAL,
    Recording,
    Scene,
    Site,
    array_positions,
    draw_scene,
    record,
)

__all__ = [
    "FAULTS",
    "HUMAN",
    "HUMAN_WITH_ANIMAL",
    "Episode",
    "FaultPlan",
    "Recording",
    "Scene",
    "Site",
    "array_positions",
    "draw_scene",
    "record",
]
