"""What the API makes of decisions among three classes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.web.api import explanation, review

CLASSES = ("cat", "dog", "human")
SHARES = [{"cat": 0.1, "dog": 0.3, "human": 0.6}, None, {"cat": 0.0, "dog": 0.8, "human": 0.2}]
BODY = {
    "id": 7,
    "time": "2026-01-01T00:00:00Z",
    "label": "human",
    "probability": 0.7,
    "probabilities": {"cat": 0.1, "dog": 0.2, "human": 0.7},
    "reason": None,
    "model": "0123456789ab",
    "roles": ["used", "absent", "used"],
    "weights": [1.0, 0.0, 1.0],
    "p_values": [0.5, None, 0.5],
    "log_odds": [None, None, None],
    "sensor_probabilities": SHARES,
    "without": [{"label": "dog"}, {"label": "human"}, {"label": "human"}],
}


def test_log_odds_compare_the_most_probable_class_with_the_runner_up():
    """Of each sensor from its own probabilities; NaN where it has none."""
    event, model = SimpleNamespace(body=BODY), SimpleNamespace(classes=CLASSES)
    assert explanation._compared(event, model) == (1, 2)
    assert explanation._log_odds(event, model) == pytest.approx([np.log(2), np.nan, -np.log(4)], nan_ok=True)


def test_two_classes_keep_their_order_whatever_is_more_probable():
    body = {"probabilities": {"human": 0.9, "human_animal": 0.1}, "log_odds": [-2.0, None]}
    event, model = SimpleNamespace(body=body), SimpleNamespace(classes=("human", "human_animal"))
    assert explanation._compared(event, model) == (0, 1)
    assert explanation._compared(SimpleNamespace(body={}), model) == (0, 1)
    assert explanation._log_odds(event, model) == pytest.approx([-2.0, np.nan], nan_ok=True)


def test_the_review_names_the_class_of_each_sensor(monkeypatch):
    monkeypatch.setattr(review, "classes_of", lambda journal, model: list(CLASSES))
    found = review._decided(None, BODY)
    assert [one.says for one in found.sensors] == ["human", None, "dog"]
    assert [one.probability for one in found.sensors] == [0.6, None, 0.8]
    earlier = {name: value for name, value in BODY.items() if not name.endswith("probabilities")}
    assert [one.says for one in review._decided(None, earlier).sensors] == [None] * 3
