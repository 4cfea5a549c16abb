"""What a shadow run says of a challenger."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from pipeline.core.events import Decision, Features, Outcome, Role, Screened, Span, Verdicts
from pipeline.model.shadow import Pairs, Shadow


def decision(start: int, label: str | None, p_values, *, length: int = 100) -> Decision:
    n = len(p_values)
    there, numbers = np.ones(n, np.bool_), np.zeros(n)
    span = Span(start, start + length)
    nothing = np.zeros((n, 1), np.float32)
    features = Features(span, span, nothing, nothing, there, there)
    screened = Screened(features, numbers, numbers, np.array(p_values, float), numbers, ~there)
    outcome = Outcome(label, None, None)
    return Decision(Verdicts(screened, numbers, np.zeros((n, 2))), outcome, numbers, (Role.USED,) * n, (outcome,) * n)


def told(champion, challenger, *, segments: int = 200) -> dict:
    """The verdict after both were heard about segments beside each other; each is (label, p-values) by number."""
    shadow = Shadow(segments=segments)
    for n in range(segments):
        assert not shadow.done
        shadow.compare(decision(100 * n, *champion(n)), decision(100 * n, *challenger(n)))
    assert shadow.done
    return shadow.verdict()


def well(n):
    return "human", [0.5, 0.005 if n % 100 == 0 else 0.5]


def test_a_challenger_that_does_the_same_passes():
    """Also if both refuse a sensor now and then."""
    verdict = told(well, well)
    assert verdict["passed"]
    assert verdict["agreement"] == 1
    assert verdict["refused"]["2"]["challenger"] == verdict["refused"]["2"]["champion"] == 0.01


def test_a_challenger_that_refuses_a_sensor_more_often_is_refused():
    """And the sensor is named."""
    verdict = told(well, lambda n: ("human", [0.5, 0.005 if n % 10 == 0 else 0.5]))
    assert verdict["reasons"] == ["it refuses 10.0% of sensor 2, the champion 1.0%"]


def test_a_challenger_that_decides_less_is_refused():
    """Whatever it would have decided."""
    verdict = told(well, lambda n: (None if n % 5 == 0 else "human", well(n)[1]))
    assert verdict["reasons"] == ["it decides nothing in 20.0% of the segments, the champion in 0.0%"]


def test_a_challenger_that_decides_more_passes():
    """Such as the first one with a classifier."""
    assert told(lambda n: (None, well(n)[1]), well)["passed"]


def test_overlapping_segments_count_once_and_another_recording_begins_anew():
    """Segments every quarter of their length are a quarter as many."""
    shadow = Shadow(segments=1000)
    for stop in (4000, 2000, 25, 75, 125):
        shadow.begin_recording()
        for start in range(0, stop, 25):
            shadow.compare(decision(start, "human", [0.5]), decision(start, "human", [0.5]))
    assert shadow.verdict()["segments"] == 40 + 20 + 1 + 1 + 2


def test_a_sensor_that_one_of_them_does_not_know_is_not_compared():
    """NaN stands for no p-value."""
    assert told(well, lambda n: ("human", [np.nan, well(n)[1][1]]))["refused"].keys() == {"2"}


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
def test_a_challenger_within_the_margin_is_seldom_refused(share):
    """At most one of a hundred is meant to be, where it is the margin worse; here with all that can be drawn."""
    n, refused = 300, 0.0
    for more, chance in enumerate(binom.pmf(range(n + 1), n, share + 0.02)):
        if chance < 1e-9:
            continue
        for less, of_these in enumerate(binom.pmf(range(n - more + 1), n - more, share / (0.98 - share))):
            if of_these > 1e-9 and Pairs(0, less, more, n - more - less).p_no_more() < 0.01:
                refused += chance * of_these
    assert refused < 0.02
