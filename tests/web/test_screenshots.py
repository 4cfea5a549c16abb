"""A picture of every page, of an array with a past; `make screenshots` keeps them in the documents."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.service.live import simulated_sound
from tests.web.conftest import SIMULATED, Dashboard, until

RATE, SECONDS = 4000, 240
DROPPED = 'kind = "folder"\npath = "drop"\npattern = "{recording}_{time:%Y%m%dT%H%M%S}.wav"\nsettle = "0.2 s"'
PICTURES = {
    "now": ("/", ".sensors", {}),
    "now-phone": ("/", ".sensors", {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}),
    "timeline": ("/timeline", "canvas, svg", {}),
    "timeline-dark": ("/timeline", "canvas, svg", {"color_scheme": "dark"}),
    "review": ("/review", "canvas", {}),
    "models": ("/models", "table", {}),
    "sensor": ("/sensors/2", "canvas, svg", {}),
    "settings": ("/settings", "table", {}),
}
LEAST_COLOURS = 40


@pytest.fixture(scope="module")
def past(tmp_path_factory, model, other_models) -> Iterator[Dashboard]:
    """What was recorded until a minute ago, then a pause, then an array that is heard live."""
    import soundfile

    directory = tmp_path_factory.mktemp("past")
    began = datetime.now(UTC) - timedelta(seconds=SECONDS + 60)
    (directory / "drop").mkdir()
    file = directory / f"field_{began:%Y%m%dT%H%M%S}.wav"
    soundfile.write(file, simulated_sound(SECONDS, rate_hz=RATE), RATE, subtype="PCM_16")
    shutil.move(file, directory / "drop" / file.name)
    made = Dashboard(directory, model, source=DROPPED)
    made.start()
    try:
        until(lambda: made.answer("/api/v1/events?types=recording_finished")["events"], "the recording is heard")
        made.register(*other_models)
        made.stop(signal.SIGTERM)
        made.config.write_text(made.config.read_text().replace(DROPPED, SIMULATED))
        made.start()
        until(lambda: made.status().get("decisions"), "the first decision")
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_every_page(name, browser, past, tmp_path):
    path, drawn, options = PICTURES[name]
    context = browser.new_context(base_url=past.url, **({"viewport": {"width": 1280, "height": 860}} | options))
    try:
        page = context.new_page()
        page.goto(path)
        page.wait_for_selector("#connection[data-state=live]")
        page.wait_for_selector(f"main :is({drawn})")
        page.wait_for_load_state("load")
        until(lambda: not page.query_selector_all("main .loading"), "everything is there")
        page.wait_for_timeout(SETTLE_MS[name])
        picture = tmp_path / f"{name}.png"
        page.screenshot(path=picture)
    finally:
        context.close()
    assert colours(picture) >= LEAST_COLOURS
    if kept := os.environ.get("GEMMED_SCREENSHOTS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, kept)


SETTLE_MS = {name: 6000 if name.startswith("now") else 1500 for name in PICTURES}
"""A live spectrogram needs some seconds to be worth looking at."""


def colours(picture: Path) -> int:
    """How many there are; an empty page has few."""
    import matplotlib.image
    import numpy as np

    pixels = matplotlib.image.imread(picture)
    return len(np.unique((pixels[..., :3] * 255).astype(np.uint8).reshape(-1, 3), axis=0))
