"""Hours of sound through the stages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.sizes import size_of
from pipeline.core.events import Block, Views
from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS, TWO_VIEWS
from pipeline.stages import Chain, Mfcc, Viewing, Windowing

pytestmark = pytest.mark.soak
RATE, HOURS = 2000, 12
MINUTE = 60 * RATE


def sound() -> Iterator[np.ndarray]:
    """A minute at a time, loudness wandering; one sensor screams now and then."""
    for number in range(60 * HOURS):
        rng = np.random.default_rng(number)
        minute = 0.05 * rng.standard_normal((4, MINUTE)) * np.exp(rng.normal(0, 1, (4, 1)))
        minute[number % 4] *= 100 if number % 7 == 0 else 1
        yield minute.astype(np.float32)


def digest(chain: Chain, sizes: np.random.Generator | None) -> tuple[str, int, list[int]]:
    """Of all views and windows, how many there were, and how large the chain was every hour."""
    state, n_segments, memory = hashlib.sha256(), 0, []
    for number, minute in enumerate(sound()):
        cuts = [] if sizes is None else np.sort(sizes.integers(0, MINUTE, 50)).tolist()
        for left, right in zip([0, *cuts], [*cuts, MINUTE], strict=True):
            for fact in chain.push(Block(number * MINUTE + left, minute[:, left:right], np.ones(4, bool))):
                assert isinstance(fact, Views)
                state.update(fact.window.start.to_bytes(8) + fact.summary.tobytes() + fact.timing.tobytes())
                n_segments += 1
        if number % 60 == 59:
            memory.append(size_of(chain))
    return state.hexdigest(), n_segments, memory


def test_half_a_day_gives_the_same_bits_in_any_cuts_and_takes_no_more_memory(report):
    """Blocks of a minute and of random lengths: one digest; the state after 12 hours is that after the first."""
    grid = Grid(rate_hz=RATE)

    def stages() -> Chain:
        viewing = Viewing(grid, n_coefficients=N_COEFFICIENTS, features=TWO_VIEWS)
        return Chain(Windowing(grid), Mfcc(grid), viewing)

    whole, n_segments, _ = digest(stages(), None)
    cut, _, memory = digest(stages(), np.random.default_rng(0))
    report(hours=2 * HOURS, segments=2 * n_segments)
    assert whole == cut
    assert n_segments == (HOURS * 3600 * RATE - grid.segment) // grid.stride + 1
    assert max(memory) <= 1.05 * memory[0]
