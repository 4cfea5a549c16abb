"""Stages of the pipeline, in the order of the flow."""

from pipeline.stages.chain import Chain
from pipeline.stages.features import Mfcc, Projection
from pipeline.stages.windowing import Windowing

__all__ = ["Chain", "Mfcc", "Projection", "Windowing"]
