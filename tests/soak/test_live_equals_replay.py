"""An hour of sound through the PCM door, live and by replay."""

from __future__ import annotations

import pytest

from tests.daemon.equality import check_equality

pytestmark = pytest.mark.soak


def test_an_hour_live_equals_its_replay_also_across_two_swaps(model, other_models, tmp_path, report):
    """Identical events, decided live, from the file, and from the daemon's own record."""
    found = check_equality(tmp_path, [model, *other_models], seconds=3600, rate_hz=4000)
    report(hours=1, **found)
    assert found["decisions"] > 7000
    assert found["swaps"] == 2
