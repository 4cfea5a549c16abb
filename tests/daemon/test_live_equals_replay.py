"""Half a minute of PCM, live and by replay; an hour of it is in tests/soak."""

from __future__ import annotations

from tests.daemon.equality import check_equality


def test_live_equals_replay_also_across_two_swaps(model, other_models, tmp_path):
    """The same events from the daemon, from a replay of the file, and from the daemon's own record of three models."""
    assert check_equality(tmp_path, [model, *other_models], seconds=30, rate_hz=4000)["decisions"] > 50
