"""A simulated array: who passes, how it sounds at every sensor, and what befalls the sensors."""

from pipeline.simulation.faults import FAULTS, Episode, FaultPlan
from pipeline.simulation.scene import HUMAN, HUMAN_WITH_ANIMAL, Recording, Site, array_positions, record

__all__ = [
    "FAULTS",
    "HUMAN",
    "HUMAN_WITH_ANIMAL",
    "Episode",
    "FaultPlan",
    "Recording",
    "Site",
    "array_positions",
    "record",
]
