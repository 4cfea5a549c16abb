"""Stages of the pipeline, in the order of the flow."""

from pipeline.stages.chain import Chain
from pipeline.stages.classification import Classification
from pipeline.stages.features import Mfcc, Projection
from pipeline.stages.fingerprint import Fingerprint
from pipeline.stages.fusion import Fusion
from pipeline.stages.masking import Masking
from pipeline.stages.screening import Screening
from pipeline.stages.windowing import Windowing

__all__ = [
    "Chain",
    "Classification",
    "Fingerprint",
    "Fusion",
    "Masking",
    "Mfcc",
    "Projection",
    "Screening",
    "Windowing",
]
