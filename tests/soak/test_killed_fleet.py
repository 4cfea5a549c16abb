"""Each kind of death by itself, three times during the work of twenty arrays."""

from __future__ import annotations

import pytest

from tests.fleet.killing import HAPPENINGS, survives, survives_a_partition

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("happening", HAPPENINGS)
def test_killed_three_times(happening, tmp_path, model):
    survives(tmp_path, model, [happening] * 3, n_arrays=20, speed=0.5)


def test_a_machine_is_cut_off(tmp_path, model):
    survives_a_partition(tmp_path, model, n_arrays=20)
