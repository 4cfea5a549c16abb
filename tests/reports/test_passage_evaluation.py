"""Passages in an evaluation: a real replay with hand-made passages in it, against labels of parts of recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.core.event_json import line
from pipeline.core.events import PassageEnd
from pipeline.core.passages import PASSAGE_EVENTS
from pipeline.reports.passage_evaluation import passage_evaluation
from pipeline.training.labels import Label, Labels, read_labels
from tests.conftest import component
from tests.forked import gemmed
from tests.passages import events, facts, passage

RATE = 4000
HEADER = "recording,start_seconds,end_seconds,label\n"
LIKELY = {"human": {"human": -0.1, "human_animal": -3.0}, "human_animal": {"human": -3.0, "human_animal": -0.1}}
UNCLEAR = {"human": -0.7, "human_animal": -0.7}


def with_passages(decisions: Path, out: Path, found: dict[str, list]) -> Path:
    """The same replay, in which other passages were found."""
    lines = []
    for text in decisions.read_text().splitlines():
        event = json.loads(text)
        if event["type"] in PASSAGE_EVENTS:
            continue
        if event["type"] == "recording_finished":
            own = [passage(event["recording"], *span, rate_hz=RATE) for span in found.get(event["recording"], [])]
            told = events(facts(event["recording"], *own, rate_hz=RATE, last_end=PassageEnd.QUIET))
            lines += [line(one) for one in told if one["type"] in PASSAGE_EVENTS]
            event["passages"] = told[-1]["passages"]
        lines.append(line(event))
    out.write_text("".join(lines))
    return out


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("passages")


@pytest.fixture(scope="module")
def table(unseen, place) -> Path:
    """Somebody from 2 s on for 2.5 s, nobody before and after; the last recording is not labeled."""
    rows = [text.split(",") for text in (unseen / "labels.csv").read_text().splitlines()[1:]]
    spans = [
        f"{name},{span},{word}\n"
        for name, *_, label in rows[:-1]
        for span, word in (("0,2", "nobody"), ("2,4.5", label), ("4.5,6.5", "Background"))
    ]
    (place / "labels.csv").write_text(HEADER + "".join(spans))
    return place / "labels.csv"


@pytest.fixture(scope="module")
def labels(table) -> dict[str, str]:
    """The class of each labeled recording."""
    return {label.recording: label.label for label in read_labels(table) if label.start_seconds == 2}


@pytest.fixture(scope="module")
def replayed(decisions, labels, place) -> Path:
    """Four of five found: right, wrong, without a label, right but late; and a false one; one where nobody labeled."""
    (a, first), (b, second), (c, third), (d, fourth), (_, _) = labels.items()
    other = {"human": "human_animal", "human_animal": "human"}
    found = {
        a: [(2.5, 5.0, LIKELY[first])],
        b: [(2.0, 4.5, LIKELY[other[second]]), (5.0, 6.0, LIKELY[third])],
        c: [(2.25, 4.0, UNCLEAR)],
        d: [(4.0, 6.5, LIKELY[fourth])],
        "r006": [(1.0, 5.0, LIKELY[first])],
    }
    assert "r006" not in labels
    return with_passages(decisions, place / "decisions.jsonl", found)


@pytest.fixture(scope="module")
def evaluated(replayed, table, place):
    component("matplotlib")
    done = gemmed("evaluate", str(replayed), "--labels", str(table), "--out", str(place / "out"), "--json",
                  str(place / "figures.json"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((place / "figures.json").read_text()), done.stdout


def test_scores_are_those_of_the_passages(evaluated):
    scores = evaluated[0]["passages"]
    assert (scores["recordings"], scores["true"], scores["passages"], scores["matched"]) == (5, 5, 5, 4)
    assert scores["found"]["value"] == 0.8
    assert scores["found_iou"]["value"] == 0.6
    assert scores["false"] == 1
    assert scores["background_hours"] == pytest.approx(5 * 4 / 3600, abs=1e-6)
    assert scores["false_per_hour"]["value"] == pytest.approx(180, abs=0.1)
    assert scores["background_share"] == pytest.approx((0.5 + 1.0 + 2.0) / 20)
    assert scores["class_right"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert scores["abstained"]["value"] == 0.25
    assert scores["onset_error_seconds"]["median"] == pytest.approx(0.375)
    assert scores["end_error_seconds"]["median"] == pytest.approx(0.25)
    assert sum(map(sum, scores["confusion"])) == 4


def test_segments_are_compared_and_scored_as_before(evaluated, replayed, labels, decisions, table, place):
    """Of the found passages; and all else stays as it is without passages."""
    told, _ = evaluated
    found = set(list(labels)[:4])
    inside = [
        event
        for event in map(json.loads, replayed.read_text().splitlines())
        if event["type"] == "decision"
        and event["recording"] in found
        and event["start_seconds"] >= 2
        and event["stop_sample"] <= 4.5 * RATE
        and event["label"]
    ]
    right = sum(event["label"] == labels[event["recording"]] for event in inside)
    assert told["passages"]["segments_right"]["n"] == len(inside)
    assert told["passages"]["segments_right"]["value"] == pytest.approx(right / len(inside), abs=1e-6)
    plain = place / "plain.json"
    done = gemmed("evaluate", str(decisions), "--labels", str(table), "--out", str(place / "p"), "--json", str(plain))
    assert done.returncode == 0, done.stderr
    before = json.loads(plain.read_text())
    assert {**before, "passages": None} == {**told, "passages": None}


def test_tables_and_figure_show_them(evaluated, place):
    _, told = evaluated
    text = " ".join(told.split())
    for words in (
        "5 passages found, 5 labeled, 5 recordings", "found, any overlap, %", "80.0 (", "IoU at least 0.3",
        "false passages per hour of background", "onset error, median s", "+0.4", "Passages by class",
    ):  # fmt: skip
        assert words in text, words
    assert (place / "out" / "evaluation.png").stat().st_size > 30_000


def test_only_background_is_scored_by_passages_alone(replayed, place):
    """Hours of nobody have no segments of a class."""
    component("matplotlib")
    table = place / "nobody.csv"
    table.write_text(HEADER + "r006,0,6.5,nobody\nr001,0,2,nobody\n")
    done = gemmed("evaluate", str(replayed), "--labels", str(table), "--out", str(place / "n"), "--json",
                  str(place / "n.json"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "segments are not scored: none of the decisions" in done.stdout
    (only,) = json.loads((place / "n.json").read_text()).items()
    assert only[0] == "passages"
    assert (only[1]["false"], only[1]["true"], only[1]["found"]) == (1, 0, None)
    assert (place / "n" / "evaluation.png").exists()


def test_recordings_that_were_trained_on_are_left_out(replayed):
    told = [json.loads(text) for text in replayed.read_text().splitlines()]
    known = [event | ({"trained_on": event["recording"] != "r003"} if "trained_on" in event else {}) for event in told]
    labels = Labels(Label(name, 2.0, 4.5, "human") for name in ("r001", "r002", "r003"))
    scores = passage_evaluation(known, labels)
    assert scores is not None
    assert scores["recordings"] == scores["true"] == 1
    assert len(scores["left_out"]) == 5
    assert passage_evaluation([event | {"trained_on": True} for event in told], labels) is None


def test_a_replay_that_looked_for_no_passages_has_no_scores_of_them(decisions, unseen):
    """One that looked and found none has found none of those that are labeled."""
    events = [json.loads(text) for text in decisions.read_text().splitlines()]
    without = [event for event in events if event["type"] not in PASSAGE_EVENTS]
    labels = read_labels(unseen / "labels.csv")
    assert passage_evaluation([without[0] | {"finds_passages": False}, *without[1:]], labels) is None
    looked = passage_evaluation([without[0] | {"finds_passages": True}, *without[1:]], labels)
    assert looked is not None
    assert looked["found"]["value"] == 0


def test_labels_of_whole_recordings_still_say_whether_somebody_was_found(replayed, unseen):
    told = (json.loads(text) for text in replayed.read_text().splitlines())
    scores = passage_evaluation(told, read_labels(unseen / "labels.csv"))
    assert scores is not None
    assert (scores["true"], scores["matched"]) == (6, 5)
    assert scores["found"]["value"] == pytest.approx(5 / 6, abs=1e-6)
    assert scores["false_per_hour"] is None


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (lambda lines: lines[:-30], "the replay is not finished"),
        (lambda lines: [lines[0].replace('"schema":1', '"schema":0'), *lines[1:]], "of another version"),
    ],
)
def test_a_replay_that_cannot_be_used_is_named_although_it_has_passages(replayed, table, tmp_path, spoiled, message):
    file = tmp_path / "spoiled.jsonl"
    file.write_text("".join(spoiled(replayed.read_text().splitlines(keepends=True))))
    done = gemmed("evaluate", str(file), "--labels", str(table), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert message in done.stderr
