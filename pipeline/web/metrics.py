"""What Prometheus is told, from the latest that the daemon told; `docs/metrics.md` names all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from math import isfinite
from typing import Any

from pipeline.core.events import Role
from pipeline.core.sensor_state import Cause, Liveness, State
from pipeline.daemon.meters import P_VALUE_EDGES
from pipeline.daemon.readiness import reasons_not_heard
from pipeline.health.measures import BANDS_HZ
from pipeline.retraining.history import DURATION_EDGES

PREFIX = "gemmed_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Status = Mapping[str, Any]
Row = tuple[tuple[str, ...], Any]
"""The values of the labels, and the number; none if it cannot be told."""


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name with all its series, and how they are read from a status."""

    name: str
    kind: MetricKind
    told: str
    rows: Callable[[Status], Iterable[Row]]
    labels: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    """Of a histogram, whose rows have the number in each bin, and the sum."""

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


def exposition(status: Status | None, *, healthy: bool) -> bytes:
    """All metrics as text; if the daemon never told anything, only that it is not up."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families({"healthy": healthy, **(status or {})}, METRICS if status is not None else (UP,)))
    return generate_latest(registry)


class _Families:
    def __init__(self, status: Status, metrics: Sequence[Metric]) -> None:
        self._status, self._metrics = status, metrics

    def collect(self) -> Iterator[Any]:
        for metric in self._metrics:
            rows = [(labels, value) for labels, value in metric.rows(self._status) if value is not None]
            if rows:
                yield _family(metric, rows)


def _family(metric: Metric, rows: Sequence[Row]) -> Any:
    from prometheus_client import core

    if metric.kind is MetricKind.HISTOGRAM:
        family = core.HistogramMetricFamily(metric.full_name, metric.told, labels=metric.labels)
        for labels, value in rows:
            family.add_metric(labels, _buckets(metric.edges, value["counts"]), value["sum"])
        return family
    of_kind = {MetricKind.GAUGE: core.GaugeMetricFamily, MetricKind.COUNTER: core.CounterMetricFamily}[metric.kind]
    family = of_kind(metric.full_name, metric.told, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, float(value))
    return family


def _buckets(edges: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Those of Prometheus count all up to their edge, and the last one everything."""
    sums = [float(total) for total in accumulate(counts)]
    named = [(str(edge), total) for edge, total in zip(edges, sums, strict=True) if isfinite(edge)]
    return [*named, ("+Inf", sums[-1])]


def seconds_of(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _one(*keys: str) -> Callable[[Status], list[Row]]:
    """A number of the array, found by its keys."""

    def rows(status: Status) -> list[Row]:
        value: Any = status
        for key in keys:
            value = None if value is None else value.get(key)
        return [((), seconds_of(value) if isinstance(value, str) else value)]

    return rows


def _each(key: str) -> Callable[[Status], list[Row]]:
    """A number of each sensor."""
    return lambda status: [((str(one["sensor"]),), one[key]) for one in status["sensors"]]


def _listed(key: str) -> Callable[[Status], list[Row]]:
    """The same from a list of the model, which has one number for each sensor."""
    return lambda status: [((str(place),), value) for place, value in enumerate(status[key] or (), start=1)]


def _words(key: str, words: type[StrEnum]) -> Callable[[Status], list[Row]]:
    """1 for each word that is true of a sensor, 0 for all the others."""

    def rows(status: Status) -> list[Row]:
        return [
            ((str(sensor["sensor"]), str(word)), word in sensor[key] if key == "causes" else word == sensor[key])
            for sensor in status["sensors"]
            for word in words
        ]

    return rows


def _up(status: Status) -> list[Row]:
    return [((str(one["sensor"]),), one["liveness"] == Liveness.HEALTHY) for one in status["sensors"]]


def _floors(status: Status) -> list[Row]:
    return [
        ((str(sensor["sensor"]), f"{low:g}-{high:g}"), floor)
        for sensor in status["sensors"]
        for (low, high), floor in zip(BANDS_HZ, sensor["floor_dbfs"], strict=True)
    ]


def _availability(status: Status) -> list[Row]:
    return [((str(sensor["sensor"]), "1h"), sensor["availability_1h"]) for sensor in status["sensors"]]


def _queue(status: Status) -> list[Row]:
    return [((), status["backlog_seconds"] / status["buffer_seconds"])]


def _seconds_left(status: Status) -> list[Row]:
    hours = status["storage"] and status["storage"]["hours_left"]
    return [((), None if hours is None else 3600 * hours)]


def _build(status: Status) -> list[Row]:
    return [((status["version"], status["source"]), 1)]


def _model(status: Status) -> list[Row]:
    return [((status["model"], status["model_origin"] or ""), 1)] if status["model"] else []


def _labels(status: Status) -> list[Row]:
    return [((label,), count) for label, count in sorted(status["labels"].items())]


def _passages(status: Status) -> list[Row]:
    return [((label,), count) for label, count in sorted(status.get("passages_total", {}).items())]


def _presence(key: str) -> Callable[[Status], list[Row]]:
    """Read whether somebody is there, which nobody can say while nothing is heard."""
    return lambda status: [] if reasons_not_heard(status) else _one("presence", key)(status)


def _estimated(status: Status) -> list[Row]:
    rates = (status.get("false_passages") or {}).get("estimated_per_day")
    return [((bound,), rate) for bound, rate in zip(("estimate", "lower", "upper"), rates or (), strict=False)]


def _memory(status: Status) -> list[Row]:
    return [((), 1e6 * status["resident_mb"])]


def _outputs(key: str) -> Callable[[Status], list[Row]]:
    return lambda status: [((output["target"],), output[key]) for output in status["outputs"]]


def _results(status: Status) -> list[Row]:
    return [((result,), count) for result, count in status["rounds"]["results"].items()]


_G, _C, _H = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM
_S = ("sensor",)
UP = Metric("up", _G, "Whether facts pass through all stages of the daemon.", _one("healthy"))
METRICS = (
    UP,
    Metric("build_info", _G, "The daemon that runs.", _build, ("version", "source")),
    Metric("heartbeat_timestamp_seconds", _G, "When a fact last went all the way.", _one("time")),
    Metric("sensor_up", _G, "Whether a sensor is alive and well.", _up, _S),
    Metric("sensor_state", _G, "1 for its state.", _words("state", State), ("sensor", "state")),
    Metric("sensor_liveness", _G, "1 for its liveness.", _words("liveness", Liveness), ("sensor", "liveness")),
    Metric("sensor_fault_active", _G, "1 for what is the matter.", _words("causes", Cause), ("sensor", "cause")),
    Metric("sensor_last_frame_timestamp_seconds", _G, "When its last sound arrived.", _each("last_frame"), _S),
    Metric("sensor_availability_ratio", _G, "Share of a time that it delivered.", _availability, ("sensor", "window")),
    Metric("sensor_samples", _C, "Samples that arrived.", _each("samples"), _S),
    Metric("sensor_samples_lost", _C, "Samples that did not arrive or were dropped.", _each("samples_lost"), _S),
    Metric("sensor_gaps", _C, "How often its sound broke off.", _each("gaps"), _S),
    Metric("sensor_sample_rate_error_ratio", _G, "Rate over the nominal one, minus 1.", _each("rate_error"), _S),
    Metric("sensor_level_dbfs", _G, "Level of a second; none in silence.", _each("level_dbfs"), _S),
    Metric("sensor_silent", _G, "Whether it delivers, but no sound.", _each("silent"), _S),
    Metric("sensor_silence_ratio", _G, "Share of five minutes in which it was silent.", _each("silence_ratio"), _S),
    Metric("sensor_noise_floor_dbfs", _G, "Lowest level of a band in the last minute.", _floors, ("sensor", "band")),
    Metric("sensor_gain_ratio_db", _G, "Its noise floor above the median of the array.", _each("gain_db"), _S),
    Metric("sensor_hum_ratio", _G, "Power of mains harmonics in parts of the rest.", _each("hum_to_rest"), _S),
    Metric("sensor_unique_values", _G, "Distinct values in a second, counted up to 16.", _each("distinct_values"), _S),
    Metric("sensor_dc_offset_ratio", _G, "Magnitude of the mean, of full scale.", _each("offset_of_full_scale"), _S),
    Metric("sensor_clipped_samples", _C, "Samples at full scale, some in a row.", _each("samples_clipped"), _S),
    Metric("sensor_spikes", _C, "Single samples far off their neighbours.", _each("spikes"), _S),
    Metric("sensor_polarity", _G, "Signed correlation with the other sensors.", _each("polarity"), _S),
    Metric("sensor_coherence_ratio", _G, "Largest correlation over all delays.", _each("coherence"), _S),
    Metric("sensor_crosstalk_ratio", _G, "Largest correlation at no delay.", _each("crosstalk"), _S),
    Metric("windows", _C, "Windows that have a p-value.", _each("windows"), _S),
    Metric("gem_rejections", _C, "Windows with a p-value of at most alpha.", _each("refused"), _S),
    Metric("gem_alpha_ratio", _G, "Share of false alarms that is asked for.", _one("alpha")),
    Metric("gem_p_value", _H, "p-values of windows, uniform while all is well.", _each("p_values"), _S, P_VALUE_EDGES),
    Metric("gem_false_alarm_ratio", _G, "Share of windows refused while it was good.", _each("false_alarms"), _S),
    Metric("gem_calibration_lost", _G, "Whether that is too many for sure.", _each("calibration_lost"), _S),
    Metric("gem_reference_windows", _G, "Windows that it is compared with.", _listed("reference_windows"), _S),
    Metric("fusion_weight", _G, "How far it was believed in the last decision.", _each("weight"), _S),
    Metric("fusion_role", _G, "1 for its part in the last decision.", _words("role", Role), ("sensor", "role")),
    Metric("fusion_sensors_used", _G, "Sensors that had a say in the last decision.", _one("sensors_used")),
    Metric("decisions", _C, "Decisions by label.", _labels, ("label",)),
    Metric("passages", _C, "Passages that ended, by label.", _passages, ("label",)),
    Metric("somebody", _G, "Whether a passage is going on.", _presence("somebody")),
    Metric("presence_probability", _G, "That somebody is there, latest segment.", _presence("probability")),
    Metric("sound_timestamp_seconds", _G, "When the last sound of any sensor arrived.", _one("sound_time")),
    Metric("usable_sensors", _G, "Sensors that deliver and are neither bad nor off.", _one("usable_sensors")),
    Metric("false_passages_configured_per_day", _G, "Rate that the settings allow.",
           _one("false_passages", "configured_per_day")),
    Metric("false_passages_guaranteed_per_day", _G, "Rate that the background in training guarantees.",
           _one("false_passages", "guaranteed_per_day")),
    Metric("false_passages_estimated_per_day", _G, "Rate estimated from the background of a week.", _estimated,
           ("bound",)),
    Metric("anomalies", _C, "Faults and events that were judged.", _one("anomalies")),
    Metric("train_contamination_ratio", _G, "Share of training sound that was refused.", _listed("contamination"), _S),
    Metric("model_decides", _G, "Whether a model tells classes apart.", _one("model_decides")),
    Metric("model_info", _G, "The model that decides.", _model, ("model", "origin")),
    Metric("model_trained_timestamp_seconds", _G, "When it was made.", _one("model_trained")),
    Metric("retrain_runs", _C, "Rounds of learning by result.", _results, ("result",)),
    Metric("retrain_duration_seconds", _H, "How long they took.", _one("rounds", "seconds"), (), DURATION_EDGES),
    Metric("retrain_interval_seconds", _G, "How often learning is due.", _one("training_interval_seconds")),
    Metric("pipeline_real_time_factor", _G, "Time to decide over time of sound.", _one("real_time_factor")),
    Metric("pipeline_queue_ratio", _G, "Fill of the buffer before deciding.", _queue),
    Metric("pipeline_frames_dropped", _C, "Samples of all sensors dropped for want of time.", _one("samples_lost")),
    Metric("source_restarts", _C, "How often the source was opened again.", _one("source_restarts")),
    Metric("storage_writable", _G, "Whether events can be stored.", _one("journal_writable")),
    Metric("storage_not_kept_samples", _C, "Samples that were heard but not kept.", _one("samples_not_kept")),
    Metric("storage_free_bytes", _G, "Free on the disk.", _one("storage", "free_bytes")),
    Metric("storage_used_bytes", _G, "Used by this array.", _one("storage", "used_bytes")),
    Metric("storage_budget_bytes", _G, "What it may use.", _one("storage", "budget_bytes")),
    Metric("storage_over_bytes", _G, "What should go and cannot.", _one("storage", "over_bytes")),
    Metric("storage_left_seconds", _G, "Until the oldest sound begins to go.", _seconds_left),
    Metric("storage_oldest_sound_timestamp_seconds", _G, "When it was kept.", _one("storage", "oldest_sound")),
    Metric("output_queue_messages", _G, "Events that wait for a target.", _outputs("queued"), ("target",)),
    Metric("output_dropped_messages", _C, "Events that it will never get.", _outputs("dropped"), ("target",)),
    Metric("process_memory_bytes", _G, "Resident memory of the daemon.", _memory),
    Metric("process_cpu_seconds", _C, "Computing time of the daemon.", _one("cpu_seconds")),
)  # fmt: skip
