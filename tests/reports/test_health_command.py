"""`gemmed health` as a user runs it: findings against the truth, one file, clear words for wrong input."""

from __future__ import annotations

import csv
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.core.event_json import evidence_numbers
from pipeline.simulation import HUMAN, FaultEpisode, Site, draw_scene
from tests.forked import gemmed

RATE = 4000
SITE = Site(seed=3, rate_hz=RATE, duration_seconds=24.0)
TRUTH = {"r1": (2, "dead"), "r2": (0, "hum"), "r3": (3, "spikes"), "r4": (1, "dc_drift")}
CAUSES = {"dead": {"flat", "silent"}, "hum": {"hum_only"}, "spikes": {"spikes"}, "dc_drift": {"dc_offset"}}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> Path:
    """Five recordings of one place; in four of them a sensor fails from 8 to 16 s."""
    place = tmp_path_factory.mktemp("recordings")
    for number, name in enumerate(["r0", *TRUTH]):
        sensor, fault = TRUTH.get(name, (0, ""))
        episodes = [FaultEpisode(sensor, 8 * RATE, 16 * RATE, fault, 0.5, 0, (number,))] if fault else []
        sound = draw_scene(SITE, number, HUMAN).recorded(episodes).samples
        soundfile.write(place / f"{name}.wav", sound.T, RATE, subtype="PCM_16")
    return place


@pytest.fixture(scope="module")
def found(recordings, tmp_path_factory) -> dict:
    place = tmp_path_factory.mktemp("found")
    done = gemmed("health", str(recordings), "--out", str(place / "h.html"), "--json", str(place / "h.json"))
    assert done.returncode == 0, done.stderr
    return {"json": json.loads((place / "h.json").read_text()), "html": place / "h.html", "told": done.stdout}


def episodes(found: dict) -> dict[tuple[str, int], list[dict]]:
    return {
        (one["recording"], sensor["sensor"]): sensor["episodes"]
        for one in found["json"]["recordings"]
        for sensor in one["sensors"]
    }


def test_the_json_has_the_promised_shape_and_the_truth(found):
    """Sensors from 1; the right cause at the right sensor and time, nothing at the others."""
    every = episodes(found)
    assert len(every) == 5 * 4
    for (name, sensor), own in every.items():
        guilty, fault = TRUTH.get(name, (-1, ""))
        if sensor - 1 != guilty:
            assert own == [], (name, sensor)
            continue
        assert {episode["cause"] for episode in own} <= CAUSES[fault]
        for episode in own:
            assert set(episode) == {"cause", "start_seconds", "end_seconds", "evidence"}
            assert 7 <= episode["start_seconds"] <= 12
            assert 15 <= episode["end_seconds"] <= 22
    healthy = {
        sensor["sensor"]: sensor["availability"]
        for one in found["json"]["recordings"]
        if one["recording"] == "r1"
        for sensor in one["sensors"]
    }
    assert healthy == {1: 1.0, 2: 1.0, 3: pytest.approx(2 / 3, abs=0.05), 4: 1.0}


def test_silence_has_no_level_in_the_evidence():
    """Null, never 0 dB of full scale."""
    assert evidence_numbers({"level_dbfs": -np.inf, "limit": -95}) == {"level_dbfs": None, "limit": -95.0}


def test_the_page_is_one_file_that_asks_for_nothing(found):
    """No script, no address; the picture and the cure are in it."""

    class Page(HTMLParser):
        tags: list[tuple[str, dict]] = []  # noqa: RUF012

        def handle_starttag(self, tag, attrs):
            self.tags.append((tag, dict(attrs)))

    page, text = Page(), found["html"].read_text()
    page.feed(text)
    names = {tag for tag, _ in page.tags}
    assert {"svg", "table", "details"} <= names
    assert not names & {"script", "link", "iframe", "img"}
    assert not [a for _, a in page.tags if str(a.get("href", "#"))[:1] != "#" or "src" in a]
    assert "hum_only" in text
    assert "shield" in text


def test_the_terminal_tells_each_sensor_and_the_rate_of_faults(found):
    assert "availability" in found["told"]
    assert "faults: 4" in found["told"]
    for word in ("flat", "hum_only", "spikes", "dc_offset"):
        assert word in found["told"]


def test_the_number_of_processes_changes_nothing(recordings, found, tmp_path):
    out = tmp_path / "again.json"
    done = gemmed("health", str(recordings), "--out", str(tmp_path / "h.html"), "--json", str(out), "--jobs", "2")
    assert done.returncode == 0
    assert json.loads(out.read_text()) == found["json"]
    assert (tmp_path / "h.html").read_bytes() == found["html"].read_bytes()


def test_with_a_model_p_values_count_too(model, unseen, tmp_path):
    """p-values are drawn, the states are those of a replay, and labels can be given."""
    labels = unseen / "labels.csv"
    out, page = tmp_path / "m.json", tmp_path / "m.html"
    options = ("--labels", str(labels), "--out", str(page), "--json", str(out), "--mask", "2")
    done = gemmed("health", str(unseen), "--model", str(model), *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert {sensor["state"] for one in found["recordings"] for sensor in one["sensors"][1:2]} <= {
        "off",
        "bad",
        "degraded",
    }
    assert "p-value" in page.read_text()


def test_a_model_carries_what_is_usual(model):
    """Training stores the floor of every sensor and where sound comes from."""
    from pipeline.model.model import Model

    usual = Model.load(model).usual
    assert usual is not None
    assert usual.floor_db.shape == (4, 2)
    assert np.isfinite(usual.floor_db).all()
    assert np.abs(usual.offset_db).max() < 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--labels", "x.csv"], "give --model, too"),
        (["--out", "."], "is a directory"),
        (["--json", "nowhere/h.json"], "no directory"),
        (["--mask", "9"], "must name sensors from 1 to 4"),
        (["--model", "nowhere"], "nowhere"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_heard(options, words, recordings, tmp_path):
    done = gemmed("health", str(recordings), "--out", str(tmp_path / "h.html"), *options)
    assert done.returncode != 0
    assert words in " ".join((done.stderr + done.stdout).split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "h.html").exists()


def test_files_that_cannot_be_used_are_named_and_the_rest_is_examined(recordings, tmp_path):
    place = tmp_path / "mixed"
    place.mkdir()
    shutil.copy(recordings / "r1.wav", place)
    (place / "text.wav").write_text("not audio")
    soundfile.write(place / "short.wav", np.zeros((400, 4)), RATE)
    out = tmp_path / "h.json"
    done = gemmed("health", str(place), "--out", str(tmp_path / "h.html"), "--json", str(out))
    assert done.returncode == 3
    assert "text.wav" in done.stdout
    found = {one["recording"]: one for one in json.loads(out.read_text())["recordings"]}
    assert found["r1"]["sensors"][2]["episodes"]
    assert found["short"]["sensors"][0]["availability"] is None
    assert found["text"]["sensors"] == []


def test_the_truth_of_a_simulation_is_what_the_tests_compare_with(tmp_path):
    """The command on what `gemmed simulate` wrote: whatever it finds lies at a sensor with a fault of that time."""
    shape = ("--rate", "4000", "--seconds", "30", "--recordings", "2", "--seed", "5", "--fault-seconds", "12")
    assert (
        gemmed(
            "simulate", str(tmp_path / "s"), "--no-picture", *shape, "--faults", "dead,hum", "--fault-share", "0.2"
        ).returncode
        == 0
    )
    out = tmp_path / "h.json"
    assert gemmed("health", str(tmp_path / "s"), "--json", str(out), "--out", str(tmp_path / "h.html")).returncode == 0
    with (tmp_path / "s" / "truth.csv").open() as file:
        truth = list(csv.DictReader(file))
    for one in json.loads(out.read_text())["recordings"]:
        for sensor in one["sensors"]:
            for episode in sensor["episodes"]:
                own = [
                    row
                    for row in truth
                    if (row["recording"], int(row["sensor"])) == (one["recording"], sensor["sensor"])
                    and float(row["start_seconds"]) - 1 < episode["end_seconds"]
                    and float(row["end_seconds"]) + 4 > episode["start_seconds"]
                ]
                assert own, (one["recording"], sensor["sensor"], episode)
