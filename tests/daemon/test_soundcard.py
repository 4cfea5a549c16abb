"""A whole daemon on a sound card: a virtual one of four channels, through ALSA and PortAudio."""

from __future__ import annotations

import pytest

from tests.conftest import component, library
from tests.daemon.live import Running, settings
from tests.daemon.test_faulty_source import require_replayable, stored
from tests.sources.test_soundcard import PERIOD, Card, numbered

# The virtual card knows periods of 512 frames only, and the daemon asks for a tenth of a second.
RATE = 10 * PERIOD


@pytest.fixture
def card(tmp_path):
    component("sounddevice")
    library("portaudio", "libportaudio2")
    (tmp_path / "card").mkdir()
    made = Card(tmp_path / "card")
    with made.opened:
        yield made


def test_what_a_sound_card_hears_is_stored_bit_by_bit(card, tmp_path):
    """Some seconds; then the driver hangs in reading, with the last few periods, which is told from outside.

    It does not keep the daemon from stopping.
    """
    source = 'kind = "soundcard"\ndevice = "array"\ntick = "0.2 s"'
    config = settings(tmp_path, model=None, rate_hz=RATE, source=source)
    # No more than the queue of five seconds holds: a daemon that is kept waiting loses nothing.
    heard = numbered(48)
    with Running(config, environment={"ALSA_CONFIG_PATH": str(card.conf)}) as daemon:
        card.feed(heard)
        daemon.until(lambda event: event["type"] == "tick" and event["start_sample"] >= 40 * PERIOD)
        daemon.process.terminate()
        assert daemon.wait() == 0
    (sound,) = stored(tmp_path)
    assert len(sound) >= 40 * PERIOD
    assert (sound == heard[: len(sound)]).all()
    require_replayable(tmp_path)
