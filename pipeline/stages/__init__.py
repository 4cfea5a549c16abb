"""Stages of the pipeline, in the order of the flow."""

from pipeline.stages.anomaly_alarms import AnomalyAlarms
from pipeline.stages.background import Background
from pipeline.stages.chain import Chain
from pipeline.stages.classification import Classification
from pipeline.stages.features import Mfcc, Projection
from pipeline.stages.fingerprint import Fingerprint
from pipeline.stages.fusion import Fusion
from pipeline.stages.label_audit import LabelAudit
from pipeline.stages.label_notice import LabelNotice
from pipeline.stages.measure import Measure
from pipeline.stages.operator_mask import OperatorMask
from pipeline.stages.passages import Passages
from pipeline.stages.physical_faults import PhysicalFaults
from pipeline.stages.presence import Presence
from pipeline.stages.sample_rate import SampleRate
from pipeline.stages.screening import Screening
from pipeline.stages.sensor_state import SensorStates
from pipeline.stages.viewing import Viewing
from pipeline.stages.windowing import Windowing

__all__ = [
    "AnomalyAlarms",
    "Background",
    "Chain",
    "Classification",
    "Fingerprint",
    "Fusion",
    "LabelAudit",
    "LabelNotice",
    "Measure",
    "Mfcc",
    "OperatorMask",
    "Passages",
    "PhysicalFaults",
    "Presence",
    "Projection",
    "SampleRate",
    "Screening",
    "SensorStates",
    "Viewing",
    "Windowing",
]
