"""Each kind of death by itself, three times during the work of twenty arrays."""

from __future__ import annotations

import pytest

from tests.fleet.killing import HAPPENINGS, survives

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("happening", HAPPENINGS)
def test_killed_three_times(happening, tmp_path, model):
    survives(tmp_path, model, [happening] * 3, speed=0.5)
