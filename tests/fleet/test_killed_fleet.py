"""Whatever is killed or cut off, every array decides what a local replay of the same sound decides, once.

Ten arrays; `make soak` has twenty, and each kind of death three times.
"""

from __future__ import annotations

from tests.fleet.killing import HAPPENINGS, survives, survives_a_partition


def test_everything_is_killed_one_after_the_other(tmp_path, model):
    survives(tmp_path, model, HAPPENINGS, n_arrays=10, speed=0.6)


def test_a_machine_is_cut_off(tmp_path, model):
    survives_a_partition(tmp_path, model, n_arrays=10)
