"""When it is time to learn again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipeline.retraining.schedule import Schedule

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours_ago", "new_labels", "drift", "reason"),
    [
        (None, 0, True, None),
        (None, 1, False, "nothing was learned yet"),
        (1000, 0, True, None),
        (0.1, 50, True, None),
        (1, 19, False, None),
        (1, 20, False, "20 new labels"),
        (1, 1, True, "a sensor has drifted, and there are new labels: 1"),
        (23.9, 1, False, None),
        (24, 1, False, "24 hours have passed, and there are new labels: 1"),
        (-5000, 1, False, "24 hours have passed, and there are new labels: 1"),
    ],
)
def test_labels_drift_and_time(hours_ago, new_labels, drift, reason):
    """Never without a label, never twice in ten minutes, and not put off by a clock that was set back."""
    last = None if hours_ago is None else NOW - timedelta(hours=hours_ago)
    assert Schedule().due(NOW, last, new_labels, drift=drift) == reason


def test_the_pause_can_be_shorter():
    """Who labels in a hurry need not wait ten minutes."""
    minute_ago = NOW - timedelta(minutes=1)
    assert Schedule(pause_seconds=60.0).due(NOW, minute_ago, 20, drift=False) == "20 new labels"
    assert Schedule(pause_seconds=61.0).due(NOW, minute_ago, 20, drift=False) is None


def test_drift_can_be_left_out():
    """Then only labels and time count."""
    hour_ago = NOW - timedelta(hours=1)
    assert Schedule(on_drift=False).due(NOW, hour_ago, 1, drift=True) is None
