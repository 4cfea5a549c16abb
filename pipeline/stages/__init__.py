"""Stages of the pipeline, in the order of the flow."""

from pipeline.stages.anomaly_alarms import Suspicion
from pipeline.stages.background import Background
from pipeline.stages.chain import Chain
from pipeline.stages.classification import Classification
from pipeline.stages.features import Mfcc, Projection
from pipeline.stages.fingerprint import Fingerprint
from pipeline.stages.fusion import Fusion
from pipeline.stages.label_audit import Doubting
from pipeline.stages.label_notice import Labelling
from pipeline.stages.measure import Measuring
from pipeline.stages.operator_mask import Masking
from pipeline.stages.passages import Passages
from pipeline.stages.physical_faults import Inspection
from pipeline.stages.presence import Presence
from pipeline.stages.sample_rate import Pacing
from pipeline.stages.screening import Screening
from pipeline.stages.sensor_state import Health
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
