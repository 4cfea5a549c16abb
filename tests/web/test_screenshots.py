"""A picture of every page, of an array with a past; `make screenshots` keeps them in the documents."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import ARRAY, eventually
from tests.service.live import simulated_sound
from tests.web.conftest import SIMULATED, Dashboard

pytestmark = pytest.mark.soak  # what is on each page is tested by itself

RATE, SECONDS = 4000, 240
DROPPED = 'kind = "folder"\npath = "drop"\npattern = "{recording}_{time:%Y%m%dT%H%M%S}.wav"\nsettle = "0.2 s"'
LEARNED = '[training]\nrecordings = "recordings"\nlabels = "recordings/labels.csv"'
DESK, TALL, PHONE = (1280, 860), (1280, 1500), (360, 740)
PICTURES = {
    "now": ("/", ".sensors", DESK, "light"),
    "now-phone": ("/", ".sensors", PHONE, "dark"),
    "timeline": ("/timeline", ".timeline-chart", DESK, "light"),
    "timeline-dark": ("/timeline", ".timeline-chart", DESK, "dark"),
    "review": ("/review", "canvas", DESK, "light"),
    "models": ("/models", "table", TALL, "light"),
    "sensor": ("/sensors/2", ".neighbours canvas", TALL, "light"),
    "settings": ("/settings", "table", DESK, "light"),
}
"""By name: the address, what must be there, the size, and the colours."""
LEAST_COLOURS = 40
LISTEN_MS, DRAW_MS = 5000, 1000
"""A live spectrogram needs some seconds to be worth looking at."""


@pytest.fixture(scope="module")
def past(other_models) -> Iterator[Dashboard]:
    """What was recorded until a minute ago, then a pause, then an array that is heard live."""
    with TemporaryDirectory(prefix="gemmed-") as directory:
        made = heard(Path(directory))
        try:
            made.register(*other_models)
            made.stop(signal.SIGTERM)
            made.config.write_text(made.config.read_text().replace(DROPPED, SIMULATED))
            made.start()
            eventually(lambda: made.status().get("decisions"), "the first decision")
            yield made
        finally:
            made.close()


def heard(directory: Path) -> Dashboard:
    """A daemon that has learned from recordings, and then heard another one of some minutes."""
    import soundfile

    shutil.copytree(ARRAY, directory / "recordings")
    began = datetime.now(UTC) - timedelta(seconds=SECONDS + 60)
    (directory / "drop").mkdir()
    file = directory / f"field_{began:%Y%m%dT%H%M%S}.wav"
    soundfile.write(file, simulated_sound(SECONDS, rate_hz=RATE), RATE, subtype="PCM_16")
    made = Dashboard(directory, None, source=DROPPED, more=LEARNED)
    try:
        made.start()
        # What learns has only the time that others leave.
        eventually(lambda: made.status().get("model"), "the first model")
        shutil.move(file, directory / "drop" / file.name)
        finished = "/api/v1/events?types=recording_finished"
        eventually(lambda: made.answer(finished).get("events"), "the recording is heard")
    except BaseException:
        made.close()
        raise
    return made


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_every_page(name, browser, past, tmp_path):
    path, drawn, (width, height), scheme = PICTURES[name]
    context = browser.new_context(
        base_url=past.url, viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        page = context.new_page()
        page.goto(path)
        page.wait_for_selector("#connection[data-state=live]")
        if path == "/timeline":
            page.click("button:has-text('10 min')")
        page.wait_for_selector(f"main :is({drawn})")
        eventually(lambda: not page.query_selector_all("main .loading"), "everything is there")
        page.wait_for_timeout(LISTEN_MS if path == "/" else DRAW_MS)
        picture = tmp_path / f"{name}.png"
        page.screenshot(path=picture)
    finally:
        context.close()
    assert colours(picture) >= LEAST_COLOURS
    if kept := os.environ.get("GEMMED_SCREENSHOTS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, kept)


def colours(picture: Path) -> int:
    """How many there are; an empty page has few."""
    import matplotlib.image
    import numpy as np

    pixels = matplotlib.image.imread(picture)
    return len(np.unique((pixels[..., :3] * 255).astype(np.uint8).reshape(-1, 3), axis=0))
