"""A simulated array: who passes, how it sounds at every sensor, and what befalls the sensors."""

from pipeline.simulation.day import Day
from pipeline.simulation.faults import FAULTS, FaultEpisode, FaultPlan
from pipeline.simulation.scene import (
    Scene,
    SimulatedRecording,
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
    "FaultEpisode",
    "FaultPlan",
    "Scene",
    "SimulatedRecording",
    "Site",
    "array_positions",
    "draw_scene",
    "record",
]
