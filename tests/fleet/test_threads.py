"""Arrays of one worker share a model: what one of them looks up does not fail because of another."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipeline.learners import array_screen
from pipeline.model.model import Model


@pytest.fixture
def hasty_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_look_up_more_tables_than_are_kept(model, monkeypatch, hasty_threads):
    monkeypatch.setattr(array_screen, "_MOST_TABLES", 2)
    screen = Model.load(model).screen
    n_sensors = len(screen.ready)

    def look_up(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(1000):
            screen._table(int(rng.integers(n_sensors)), rng.random(n_sensors) < 0.5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look_up, range(4)))
