"""Figures of the long tests, for the table that `make soak` prints at its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import SOAK_FIGURE


@pytest.fixture
def report(record_property) -> Callable[..., None]:
    """Record what a test has done, in numbers: `report(kills=100)`."""

    def tell(**figures: float) -> None:
        for name, value in figures.items():
            record_property(SOAK_FIGURE, f"{value:,} {name.replace('_', ' ')}")

    return tell
