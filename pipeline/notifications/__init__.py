"""What people are notified of: rules, wording and signed links to clips."""

from __future__ import annotations

from pipeline.notifications.links import Links
from pipeline.notifications.rules import QuietHours, Refusal, Rules, summary_due
from pipeline.notifications.wording import SensorFault, SummaryFacts, Wording, problem_text

__all__ = [
    "Links",
    "QuietHours",
    "Refusal",
    "Rules",
    "SensorFault",
    "SummaryFacts",
    "Wording",
    "problem_text",
    "summary_due",
]
