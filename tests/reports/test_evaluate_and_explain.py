"""Evaluation against figures recomputed by hand; explanations against the decision they explain."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from tests.arrays import ALPHA, ARRAY, rows
from tests.conftest import component
from tests.forked import gemmed
from tests.reports.test_replay import decided


@pytest.fixture(scope="module")
def evaluated(decisions, model, unseen, tmp_path_factory):
    component("matplotlib")
    out = tmp_path_factory.mktemp("evaluated")
    done = gemmed(
        "evaluate", str(decisions), "--labels", str(unseen / "labels.csv"), "--truth", str(unseen / "truth.csv"),
        "--out", str(out), "--json", str(out / "figures.json"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out, json.loads((out / "figures.json").read_text()), done.stdout


def test_accuracy_is_that_of_the_lines(evaluated, decisions, unseen):
    """Counted again from the decisions and the labels."""
    _, found, _ = evaluated
    label = {row["recording"]: row["label"] for row in rows(unseen / "labels.csv")}
    told = decided(decisions)
    sure = [event for event in told if event["label"]]
    assert found["segments"] == len(told) == sum(map(sum, found["confusion"]))
    expected = accuracy_score([label[e["recording"]] for e in sure], [e["label"] for e in sure])
    assert found["accuracy"]["value"] == pytest.approx(expected, abs=1e-6)
    for s in range(4):
        heard = [e for e in told if e["log_odds"][s] is not None]
        right = [(e["log_odds"][s] > 0) == (label[e["recording"]] == "human_animal") for e in heard]
        assert found["sensors"][s]["accuracy"]["value"] == pytest.approx(np.mean(right), abs=1e-6)
    assert found["decided"]["value"] == pytest.approx(len(sure) / len(told), abs=1e-6)


def test_detection_is_that_of_the_truth(evaluated, decisions, unseen):
    """Faulty for half of a segment or more, clean if for none of it; the area under the curve by scikit-learn."""
    _, found, _ = evaluated
    faults = rows(unseen / "truth.csv")
    p, faulty = [], []
    for event in decided(decisions):
        start, stop = event["start_sample"] / 4000, event["stop_sample"] / 4000
        for s in range(4):
            share = sum(
                max(0.0, min(float(f["end_seconds"]), stop) - max(float(f["start_seconds"]), start)) / 2
                for f in faults
                if f["recording"] == event["recording"] and int(f["sensor"]) == s + 1
            )
            if share == 0 or share >= 0.5:
                p.append(event["p_values"][s])
                faulty.append(share > 0)
    p, faulty = np.array(p), np.array(faulty)
    assert found["anomalies"]["all"]["auc"] == pytest.approx(roc_auc_score(faulty, -p), abs=1e-6)
    assert found["anomalies"]["all"]["detected"]["value"] == pytest.approx((p[faulty] <= ALPHA).mean(), abs=1e-6)
    assert found["anomalies"]["all"]["false_alarms"]["value"] == pytest.approx((p[~faulty] <= ALPHA).mean(), abs=1e-6)
    assert set(found["anomalies"]["faults"]) <= {f["fault"] for f in faults}


def test_tables_and_figure_are_there(evaluated):
    """Something to look at."""
    out, _, told = evaluated
    assert (out / "evaluation.png").stat().st_size > 20_000
    for words in ("true / decided", "sensor 4", "fused, whole recordings", "Failing sensors"):
        assert words in told


def test_sound_is_replayed_and_what_was_trained_on_is_judged_by_models_without_it(model, tmp_path):
    """Recordings of the training set: the validated decisions, not those of the model that knows them."""
    done = gemmed(
        "evaluate", str(ARRAY), "--model", str(model), "--labels", str(ARRAY / "labels.csv"),
        "--out", str(tmp_path), "--json", str(tmp_path / "f.json"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "8 recordings were trained on; models that were trained without them decided" in done.stdout
    found = json.loads((tmp_path / "f.json").read_text())
    validation = json.loads((model / "model.json").read_text())["metadata"]["notes"]["validation"]
    for name in ("confusion", "accuracy", "calibration", "sensors"):
        assert found[name] == validation[name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{decisions}", "--labels", "{array}/truth.csv"), "has no column"),
        (("{decisions}", "--labels", "{tmp}/none.csv"), "none.csv"),
        (("{array}", "--labels", "{array}/labels.csv"), "sound needs a model"),
        (("{array}/labels.jsonl", "--labels", "{array}/labels.csv"), "cannot be read"),
    ],
)
def test_wrong_input_of_an_evaluation_is_named(arguments, message, decisions, tmp_path):
    """One line, and the cure."""
    filled = [text.format(decisions=decisions, array=ARRAY, tmp=tmp_path) for text in arguments]
    done = gemmed("evaluate", *filled, "--out", str(tmp_path / "o"))
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unfinished_replay_is_not_evaluated(decisions, unseen, tmp_path):
    """Half of the recordings would be half of the truth."""
    part = tmp_path / "part.jsonl"
    part.write_bytes(b"".join(decisions.read_bytes().splitlines(keepends=True)[:20]))
    done = gemmed("evaluate", str(part), "--labels", str(unseen / "labels.csv"), "--out", str(tmp_path))
    assert done.returncode == 1
    assert "the replay is not finished" in done.stderr


def test_an_explanation_repeats_the_decision_to_the_last_digit(decisions, model, unseen, tmp_path):
    """From a line of the file; names every sensor, its nearest training segments and what training refused."""
    component("matplotlib")
    lines = decisions.read_text().splitlines()
    number = next(n for n, text in enumerate(lines, start=1) if '"anomalous"' in text and '"type":"decision"' in text)
    event = json.loads(lines[number - 1])
    done = gemmed(
        "explain", f"{decisions}:{number}", "--recordings", str(unseen), "--model", str(model),
        "--out", str(tmp_path / "e.png"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.replace("│", " ").split())
    assert "the same to the last digit" in told
    assert f"{event['recording']} from {event['start_sample'] / 4000:g} s" in told
    assert "not used:" in told
    assert "Nearest training segments" in told
    assert "Segments excluded from training" in told
    assert (tmp_path / "e.png").stat().st_size > 50_000


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("r001", "must name a decision"),
        ("r001@soon", "must name a decision"),
        ("r001@99", "r001 has no decision there; its last one ends at 6.5 s"),
        ("r099@1", "recording 'r099' is not among the 6 given"),
        ("{decisions}:1", "line 1 is not a decision"),
        ("{decisions}:99999", "is not a decision"),
        ("{tmp}/none.jsonl:3", "cannot be read"),
    ],
)
def test_a_decision_that_is_not_there_is_named(place, message, decisions, model, unseen, tmp_path):
    """One line, and how to name one."""
    place = place.format(decisions=decisions, tmp=tmp_path)
    done = gemmed(
        "explain", place, "--recordings", str(unseen), "--model", str(model), "--out", str(tmp_path / "e.png")
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_decisions_are_evaluated_with_the_model_that_made_them(decisions, model, unseen, tmp_path):
    """Another model would answer for recordings that it knows."""
    other = tmp_path / "other"
    options = ("--labels", str(ARRAY / "labels.csv"), "--model", str(other), "--folds", "0", "--components", "9")
    assert gemmed("train", str(ARRAY), *options).returncode == 0
    done = gemmed(
        "evaluate",
        str(decisions),
        "--labels",
        str(unseen / "labels.csv"),
        "--model",
        str(other),
        "--out",
        str(tmp_path),
    )
    assert done.returncode == 1
    assert "made these decisions, not" in done.stderr


def test_other_choices_are_not_those_of_the_validation(model, tmp_path):
    """The validation knows nothing of a mask: recordings that were trained on are left out then."""
    out = tmp_path / "masked.jsonl"
    assert gemmed("replay", str(ARRAY), "--model", str(model), "--out", str(out), "--mask", "2").returncode == 0
    done = gemmed(
        "evaluate", str(out), "--labels", str(ARRAY / "labels.csv"), "--model", str(model), "--out", str(tmp_path)
    )
    assert done.returncode == 1
    assert "the model was trained on 8 of the 8 recordings" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "recording,sensor,start_seconds,end_seconds,fault\nr001,7,0,1,dead\n",
            "names sensor 7 in",
        ),
        ("recording,sensor,start_seconds,end_seconds,fault\nR1,1,0,1,dead\n", "names 'R1', and no recording that was"),
    ],
)
def test_failures_of_other_arrays_are_refused(text, message, decisions, unseen, tmp_path):
    """A wrong table would call every failure a false alarm."""
    (tmp_path / "truth.csv").write_text(text)
    truth = ("--truth", str(tmp_path / "truth.csv"), "--out", str(tmp_path))
    done = gemmed("evaluate", str(decisions), "--labels", str(unseen / "labels.csv"), *truth)
    assert done.returncode == 1
    assert message in done.stderr
