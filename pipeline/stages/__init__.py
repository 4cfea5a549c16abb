"""Stages of the pipeline, in the order of the flow."""

from pipeline.stages.background import Background
from pipeline.stages.chain import Chain
from pipeline.stages.classification import Classification
from pipeline.stages.doubting import Doubting
from pipeline.stages.features import Mfcc, Projection
from pipeline.stages.fingerprint import Fingerprint
from pipeline.stages.fusion import Fusion
from pipeline.stages.health import Health
from pipeline.stages.inspection import Inspection
from pipeline.stages.labelling import Labelling
from pipeline.stages.masking import Masking
from pipeline.stages.measuring import Measuring
from pipeline.stages.pacing import Pacing
from pipeline.stages.passages import Passages
from pipeline.stages.presence import Presence
from pipeline.stages.screening import Screening
from pipeline.stages.suspicion import Suspicion
from pipeline.stages.viewing import Viewing
from pipeline.stages.windowing import Windowing

__all__ = [
    "Background",
    "Chain",
    "Classification",
    "Doubting",
    "Fingerprint",
    "Fusion",
    "Health",
    "Inspection",
    "Labelling",
    "Masking",
    "Measuring",
    "Mfcc",
    "Pacing",
    "Passages",
    "Presence",
    "Projection",
    "Screening",
    "Suspicion",
    "Viewing",
    "Windowing",
]
