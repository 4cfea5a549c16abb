"""Metrics as Prometheus reads them, against what the journal says and what is documented."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.storage.journal import Journal
from pipeline.web.metrics import METRICS, MetricKind, exposition, seconds_of
from tests.conftest import TIMEOUT, component, eventually, free_port, program
from tests.daemon.live import Running, settings, simulated_sound

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: bytes) -> Series:
    parser = component("prometheus_client.parser")
    families = parser.text_string_to_metric_families(text.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float:
    return series[name, frozenset(labels.items())]


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a daemon told last, that has heard a minute of failing sensors; and all its events."""
    component("prometheus_client")
    directory = tmp_path_factory.mktemp("finished")
    with Running(settings(directory, model=model, more="[decisions]\nalpha = 0.05")) as daemon:
        daemon.feed(simulated_sound(60).tobytes())
        assert daemon.end() == 0
    with Journal(directory / "state" / "journal.sqlite", read_only=True) as journal:
        (beat,) = journal.rows("SELECT body FROM heartbeat")
        return json.loads(beat["body"]), [event.as_dict() for event in journal.events()]


@pytest.fixture
def series(finished) -> Series:
    return parsed(exposition(finished[0], healthy=True))


def test_promtool_has_nothing_to_find_fault_with(finished):
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=exposition(finished[0], healthy=True), capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_counters_are_what_the_journal_tells(finished, series):
    decisions = [event for event in finished[1] if event["type"] == "decision"]
    labels = Counter(
        event["label"] or ("nobody" if event["reason"] == "nobody" else "undecided") for event in decisions
    )
    assert {label: value(series, "gemmed_decisions_total", label=label) for label in labels} == labels
    for sensor in range(4):
        name = str(sensor + 1)
        p_values = [event["p_values"][sensor] for event in decisions if event["p_values"][sensor] is not None]
        assert value(series, "gemmed_windows_total", sensor=name) == len(p_values) > 0
        assert value(series, "gemmed_gem_p_value_count", sensor=name) == len(p_values)
        assert value(series, "gemmed_gem_p_value_sum", sensor=name) == pytest.approx(sum(p_values), abs=0.001)
        refused = sum(p <= 0.05 for p in p_values)
        assert value(series, "gemmed_gem_rejections_total", sensor=name) == refused
        # To six digits, as events are told.
        assert value(series, "gemmed_gem_p_value_bucket", sensor=name, le="0.05") == refused
        assert value(series, "gemmed_sensor_samples_total", sensor=name) == 60 * 4000
    judged = {"fault_suspected", "event_noticed", "common_fault", "label_doubted"}
    assert value(series, "gemmed_anomalies_total") == sum(event["type"] in judged for event in finished[1])


def test_gauges_are_those_of_the_last_events(finished, series):
    status, events = finished
    last = [event for event in events if event["type"] == "decision"][-1]
    assert value(series, "gemmed_fusion_sensors_used") == last["sensors_used"]
    assert value(series, "gemmed_model_info", model=last["model"], origin="given") == 1
    for sensor in range(4):
        name = str(sensor + 1)
        assert value(series, "gemmed_fusion_weight", sensor=name) == pytest.approx(last["weights"][sensor], abs=0.001)
        assert value(series, "gemmed_fusion_role", sensor=name, role=last["roles"][sensor]) == 1
        state = [event for event in events if event["type"] == "state_changed" and event["sensor"] == sensor + 1][-1]
        assert value(series, "gemmed_sensor_state", sensor=name, state=state["to"]) == 1
        assert value(series, "gemmed_sensor_up", sensor=name) == (state["liveness"] == "healthy")
        active = {dict(labels)["cause"] for (metric, labels), on in series.items()
                  if metric == "gemmed_sensor_fault_active" and on and ("sensor", name) in labels}  # fmt: skip
        assert active == set(state["causes"])
    assert value(series, "gemmed_heartbeat_timestamp_seconds") == pytest.approx(seconds_of(status["time"]))


@pytest.mark.parametrize(("metric", "label"), [("sensor_state", "state"), ("sensor_liveness", "liveness")])
def test_exactly_one_word_is_true(series, metric, label):
    found = Counter(
        dict(labels)["sensor"] for (name, labels), on in series.items() if name == f"gemmed_{metric}" and on == 1
    )
    assert found == dict.fromkeys("1234", 1)


def test_the_bins_of_a_histogram_grow_up_to_its_count(series):
    for sensor in "1234":
        bins = sorted(
            (float(dict(labels)["le"]), count)
            for (name, labels), count in series.items()
            if name == "gemmed_gem_p_value_bucket" and ("sensor", sensor) in labels
        )
        counts = [count for _, count in bins]
        assert counts == sorted(counts)
        assert bins[-1] == (float("inf"), value(series, "gemmed_gem_p_value_count", sensor=sensor))


NOBODY = {"somebody": False, "probability": 0.02, "since": None, "passage": None}
AUDIT = {"configured_per_day": 24.0, "guaranteed_per_day": None, "estimated_per_day": [30.0, 10.0, 90.0]}


def test_passages_and_the_rates_of_false_ones(finished):
    """A number that is not known is left out."""
    more = {"passages_total": {"human": 2, "no label": 1}, "false_passages": AUDIT, "presence": NOBODY}
    found = parsed(exposition(finished[0] | more, healthy=True))
    assert value(found, "gemmed_passages_total", label="human") == 2
    assert value(found, "gemmed_passages_total", label="no label") == 1
    assert value(found, "gemmed_somebody") == 0
    assert value(found, "gemmed_presence_probability") == 0.02
    assert value(found, "gemmed_false_passages_configured_per_day") == 24
    bounds = {bound: value(found, "gemmed_false_passages_estimated_per_day", bound=bound)
              for bound in ("estimate", "lower", "upper")}  # fmt: skip
    assert bounds == {"estimate": 30, "lower": 10, "upper": 90}
    assert not any(name == "gemmed_false_passages_guaranteed_per_day" for name, _ in found)


def test_nobody_is_not_claimed_while_nothing_is_heard(finished):
    """Neither after sound has stopped nor while no sensor is usable; a decision says whether somebody is there."""
    for silent in (
        {"sound_time": "2026-05-01T12:00:00.000Z"},
        {"usable_sensors": 0, "sound_time": finished[0]["time"]},
    ):
        found = parsed(exposition(finished[0] | {"presence": NOBODY} | silent, healthy=True))
        assert not {"gemmed_somebody", "gemmed_presence_probability"} & {name for name, _ in found}
        assert value(found, "gemmed_usable_sensors") == silent.get("usable_sensors", finished[0]["usable_sensors"])


def test_the_metrics_of_an_older_status_are_those_that_it_has(finished):
    new = ("started", "sound_time", "usable_sensors", "presence", "passages_total", "false_passages")
    older = {name: value for name, value in finished[0].items() if name not in new}
    found = {name for name, _ in parsed(exposition(older, healthy=True))}
    assert "gemmed_decisions_total" in found
    assert not {name for name in found if re.search("passages|usable|sound_timestamp", name)}


def test_silence_has_no_level(finished):
    status = json.loads(json.dumps(finished[0]))
    status["sensors"][1] |= {"level_dbfs": None, "silent": True}
    found = parsed(exposition(status, healthy=True))
    assert ("gemmed_sensor_level_dbfs", frozenset({("sensor", "2")})) not in found
    assert value(found, "gemmed_sensor_silent", sensor="2") == 1
    assert value(found, "gemmed_sensor_silent", sensor="1") == 0


def test_a_daemon_that_never_told_anything_is_not_up():
    component("prometheus_client")
    assert parsed(exposition(None, healthy=False)) == {("gemmed_up", frozenset()): 0.0}


def test_the_status_stays_small(finished):
    assert len(json.dumps(finished[0])) < 8000


def names_with_ends() -> set[str]:
    """As they may stand in a query."""
    ends = {
        MetricKind.GAUGE: ("",),
        MetricKind.COUNTER: ("_total",),
        MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"),
    }
    return {metric.full_name + end for metric in METRICS for end in ends[metric.kind]}


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(gemmed_\w+)` \| (\w+) \| ([^|]*)\|", text, re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_every_metric_is_documented_and_no_other():
    known = {
        metric.full_name + ("_total" if metric.kind is MetricKind.COUNTER else ""): (str(metric.kind), metric.labels)
        for metric in METRICS
    }
    assert documented() == known


def test_what_a_daemon_tells_has_the_labels_that_are_documented(series):
    """Only what nothing can be told of at the end of a minute of played sound may be missing."""
    ends = re.compile(r"_(bucket|sum|count)$")
    found = {(ends.sub("", name), frozenset(label for label, _ in labels if label != "le")) for name, labels in series}
    promised = {(name, frozenset(labels)) for name, (_, labels) in documented().items()}
    assert found <= promised
    assert {name for name, _ in promised - found} <= {
        "gemmed_sensor_sample_rate_error_ratio",
        "gemmed_sensor_polarity",
        "gemmed_passages_total",
        "gemmed_false_passages_configured_per_day",
        "gemmed_false_passages_guaranteed_per_day",
        "gemmed_false_passages_estimated_per_day",
        "gemmed_retrain_interval_seconds",
        "gemmed_storage_left_seconds",
        "gemmed_storage_oldest_sound_timestamp_seconds",
        "gemmed_output_queue_messages",
        "gemmed_output_dropped_messages_total",
    }


def used(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Metrics of a query with what it asks of their labels."""
    for name, labels in re.findall(r"\b(gemmed_\w+)(?:\{([^}]*)\})?", expression):
        yield name, dict(re.findall(r'(\w+)\s*=~?\s*"([^"]*)"', labels))


def expressions() -> dict[str, str]:
    board = json.loads((DEPLOY / "grafana" / "gemmed.json").read_text())
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel.get("targets", [])
    }
    rules = {rule["alert"]: rule["expr"] for rule in alerts()}
    return panels | rules


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "gemmed.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("expression", expressions().values(), ids=expressions().keys())
def test_queries_ask_for_metrics_and_labels_that_exist(expression, finished):
    series = parsed(exposition(finished[0] | {"false_passages": AUDIT}, healthy=True))
    labels_of = {name: set(labels) for name, (_, labels) in documented().items()}
    values = {(label, word) for (_, labels) in series for label, word in labels}
    asked = list(used(expression))
    assert asked
    for name, labels in asked:
        assert name in names_with_ends(), name
        known = labels_of[re.sub(r"_(bucket|sum|count)$", "", name)] | {"instance", "le"}
        assert set(labels) <= known, (name, labels)
        for label, word in labels.items():
            assert label in ("instance", "source") or (label, word) in values, (name, label, word)


def test_panels_have_places_of_their_own():
    board = json.loads((DEPLOY / "grafana" / "gemmed.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        places = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= places
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    "command",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "gemmed.rules.yml"),
        ("test", "rules", "gemmed.rules.test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_passes_what_is_deployed(command):
    done = subprocess.run([program("promtool"), *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_firing_and_not_firing_and_says_what_to_do():
    tests = yaml.safe_load((DEPLOY / "prometheus" / "gemmed.rules.test.yml").read_text())["tests"]
    cases = [case for one in tests for case in one["alert_rule_test"]]
    fired = {case["alertname"] for case in cases if case.get("exp_alerts")}
    quiet = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    names = {rule["alert"] for rule in alerts()}
    assert fired == quiet == names
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "cure"}
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert set(re.findall(r"`(Gemmed\w+)`", text)) == names


def test_cures_name_settings_that_exist():
    example = (DEPLOY / "gemmed.toml").read_text()
    tables = {part.split("]", 1)[0]: part for part in re.split(r"^\[", example, flags=re.MULTILINE)[1:]}
    told = (DEPLOY / "prometheus" / "gemmed.rules.yml").read_text()
    named = set(re.findall(rf"(?<![\w$])({'|'.join(tables)})\.(\w+)", told))
    assert len(named) > 5
    for table, setting in named:
        assert re.search(rf"^#? ?{setting} = ", tables[table], re.MULTILINE), f"{table}.{setting}"


@pytest.fixture
def prometheus(tmp_path, dashboard) -> Iterator[str]:
    """Debian's, with what is deployed, but asking the daemon of this test more often; its address."""
    port = free_port()
    for name in ("prometheus.yml", "gemmed.rules.yml"):
        text = (DEPLOY / "prometheus" / name).read_text().replace(": 15s", ": 5s")
        (tmp_path / name).write_text(text.replace("127.0.0.1:8780", f"127.0.0.1:{dashboard.port}"))
    command = [
        program("prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(TIMEOUT)


def asked(address: str, path: str, **query: str) -> Any:
    try:
        with urllib.request.urlopen(
            f"{address}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=TIMEOUT
        ) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def test_prometheus_scrapes_a_daemon(prometheus, dashboard):
    """All series arrive, the numbers are those of the daemon, and the rules are at work."""

    def scraped() -> Any:
        found = asked(prometheus, "query", query="gemmed_decisions_total")
        return found and found["result"]

    def targets() -> Any:
        return (asked(prometheus, "targets") or {}).get("activeTargets", [])

    results = eventually(scraped, "a scrape")
    counted = sum(float(one["value"][1]) for one in results)
    assert 0 < counted <= dashboard.status()["decisions"]
    # One scrape of many may be late.
    eventually(lambda: [(one["health"], one["lastError"]) for one in targets()] == [("up", "")], "all is well")
    names = asked(prometheus, "label/__name__/values")
    assert {"gemmed_up", "gemmed_sensor_samples_total", "gemmed_gem_p_value_bucket"} <= set(names)
    assert {name for name in names if name.startswith("gemmed_")} <= names_with_ends()
    loaded = [rule for group in asked(prometheus, "rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in loaded} == {rule["alert"] for rule in alerts()}
    evaluated = eventually(
        lambda: [rule["health"] for group in asked(prometheus, "rules")["groups"] for rule in group["rules"]
                 if rule["health"] != "unknown"],
        "rules are evaluated",
    )  # fmt: skip
    assert set(evaluated) == {"ok"}
