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

from pipeline.model.starter import STARTER
from pipeline.simulation import Site
from pipeline.simulation.day import Day
from pipeline.simulation.faults import FaultPlan, parse_kinds
from pipeline.storage.journal import Journal
from pipeline.storage.labels import LabelSpan, LabelSubmission, give
from pipeline.storage.passage_table import stored_passages
from tests.arrays import ARRAY
from tests.conftest import eventually
from tests.daemon.live import simulated_sound
from tests.web.conftest import SIMULATED, Dashboard

pytestmark = pytest.mark.soak  # what is on each page is tested by itself

RATE, SECONDS = 4000, 240
DROPPED = 'kind = "folder"\npath = "drop"\npattern = "{recording}_{time:%Y%m%dT%H%M%S}.wav"\nsettle = "0.2 s"'
LEARNED = '[training]\nrecordings = "recordings"\nlabels = "recordings/labels.csv"'
DESK, TALL, PHONE = (1280, 860), (1280, 1500), (390, 780)
DAY_RATE, NIGHT_SECONDS, RECENT_SECONDS = 16_000, 300, 420
WATCHED = 'kind = "simulated"\nseed = 4\nfault_share = 0.02\nfault_length = "60 s"'
LEARNED_PICTURES = {
    "models": ("/models", "table", TALL, "light"),
    "sensor": ("/sensors/2", ".neighbours canvas", TALL, "light"),
    "settings": ("/settings", "table", DESK, "light"),
}
"""By name: the address, what must be there, the size, and the colours."""
PASSED, PASSES = ".presence-head[data-kind=nobody]", ".presence-head[data-kind=passage] .number"
DAY_PICTURES = {
    "now-passage": ("/", PASSES, DESK, "light"),
    "now": ("/", PASSED, DESK, "light"),
    "now-phone": ("/", PASSED, PHONE, "dark"),
    "history": ("/history", ".passage-rows li", DESK, "light"),
    "timeline": ("/timeline", ".timeline-chart", DESK, "light"),
    "timeline-dark": ("/timeline", ".timeline-chart", DESK, "dark"),
    "review": ("/review", "canvas", DESK, "light"),
    "activity": ("/activity", ".activity .entry", DESK, "light"),
}
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


@pytest.fixture(scope="module")
def day() -> Iterator[Dashboard]:
    """An array with the packaged model that heard parts of a night and the last minutes, and is heard live now."""
    with TemporaryDirectory(prefix="gemmed-") as directory:
        made = Dashboard(Path(directory), STARTER, source=DROPPED, rate_hz=DAY_RATE)
        try:
            drop_nights(Path(directory) / "drop")
            made.start()
            finished = "/api/v1/events?types=recording_finished"
            eventually(lambda: len(made.answer(finished).get("events", ())) == 3, "all of it is heard")
            label_some(made)
            made.stop(signal.SIGTERM)
            made.config.write_text(made.config.read_text().replace(DROPPED, WATCHED))
            made.start()
            yield made
        finally:
            made.close()


def drop_nights(folder: Path) -> None:
    """Write what was recorded in the last night and until a minute ago, with sensors that fail now and then."""
    import soundfile

    folder.mkdir()
    now = datetime.now().astimezone()
    evening = (now - timedelta(days=1)).replace(hour=22, minute=40, second=0)
    times = [
        (evening, NIGHT_SECONDS),
        (evening + timedelta(hours=5, minutes=27), NIGHT_SECONDS),
        (now - timedelta(seconds=RECENT_SECONDS + 60), RECENT_SECONDS),
    ]
    faults = FaultPlan(parse_kinds("flat,clipping,spikes,dropouts", n_sensors=4), (0.01, 0.05, 0.02, 0.1), 30.0)
    for number, (begin, seconds) in enumerate(times):
        site = Site(seed=4, rate_hz=DAY_RATE, faults=faults)
        day = Day(site, hours=seconds / 3600, passages_per_day=960, distractors_per_day=200, number=number)
        sound = day.read(0, min(seconds * DAY_RATE, day.length)).T
        file = folder / f"field_{begin.astimezone(UTC):%Y%m%dT%H%M%S}.wav"
        soundfile.write(file, sound, DAY_RATE, subtype="PCM_16")


def label_some(dashboard: Dashboard) -> None:
    with Journal(dashboard.state.journal) as journal:
        for row in stored_passages(journal)[::3]:
            (part,) = row.parts
            is_sure = row.label is not None and (row.probability or 0.0) > 0.8
            moment = LabelSpan(part.recording, part.start_sample, part.stop_sample)
            give(journal, moment, LabelSubmission(row.label if is_sure else "nobody", "ada"))


@pytest.mark.parametrize("name", DAY_PICTURES)
def test_a_picture_of_every_page_about_passages(name, browser, day, tmp_path):
    take(browser, day, tmp_path, name, *DAY_PICTURES[name])


@pytest.mark.parametrize("name", LEARNED_PICTURES)
def test_a_picture_of_every_page_about_models_and_sensors(name, browser, past, tmp_path):
    take(browser, past, tmp_path, name, *LEARNED_PICTURES[name])


def take(browser, dashboard, directory, name, path, drawn, size, scheme):
    """Open a page as it is after the first visit, and keep its picture."""
    width, height = size
    context = browser.new_context(
        base_url=dashboard.url,
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.add_init_script("localStorage.setItem('gemmed-simulated-note', 'small')")
        page.goto(path)
        page.wait_for_selector("#connection[data-state=live]")
        if path == "/timeline":
            page.click("button:has-text('10 min')")
        page.wait_for_selector(f"main :is({drawn})")
        eventually(lambda: not page.query_selector_all("main .loading"), "everything is there")
        page.wait_for_timeout(LISTEN_MS if path == "/" else DRAW_MS)
        picture = directory / f"{name}.png"
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
