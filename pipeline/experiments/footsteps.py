"""The footstep experiment: an array hears a human pass, alone or with an animal, and sensors fail.

Two parts. *Tables*: the published ones, with the fourth sensor failing in training and in test. *Grid*: training sets
corrupted in every way and to every degree, tested on clean segments of other recordings.
"""

from __future__ import annotations

import hashlib
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS, PAPER, TWO_VIEWS, Summary
from pipeline.experiments.corpus import (
    CorpusEntry,
    OwnRecordings,
    RecordingOrigin,
    SimulatedSubjects,
    loaded,
    split,
    view_slices,
)
from pipeline.experiments.corruption import KINDS, ON_LABELS, CorruptedSet, Flags, Integers, Supplies, Values
from pipeline.experiments.methods import (
    JOINT_PAPER,
    METHODS,
    Floats,
    Machine,
    ResultCache,
    SensorData,
    joint,
    stacked,
    tuned,
)

N_COMPONENTS = 50
N_TRAIN, FEW = 25, 10
RATES = (0.2, 0.4)
MOST_OF_A_WINDOW = 0.5
"""A segment is anomalous at a sensor that failed during more than this share of its window."""
COMBINED = "all"

_SUMMARY = Summary(Grid(rate_hz=16_000), N_COEFFICIENTS)
_projections = ResultCache(16)
_fits = ResultCache(400)


@dataclass(frozen=True, slots=True)
class Cell:
    """One way of corrupting a training set."""

    kind: str
    rate: float
    everywhere: bool = False
    """All sensors are corrupted, not every other one."""
    pair: bool = False
    """The array has only two sensors."""
    few: bool = False
    """Only ten recordings of each class to learn from."""

    @property
    def name(self) -> str:
        parts = ["clean" if self.kind == "nothing" else f"{self.kind} {self.rate:.0%}"]
        parts += ["all sensors"] if self.everywhere else []
        parts += ["array of 2"] if self.pair else []
        parts += [f"{FEW}+{FEW} recordings"] if self.few else []
        return ", ".join(parts)

    def concerned(self, n_sensors: int) -> tuple[int, ...]:
        """Sensors that are corrupted: the first, the third and so on."""
        return tuple(range(0, n_sensors, 1 if self.everywhere else 2))

    def affected(self, n_sensors: int) -> tuple[int, ...]:
        """Sensors whose training set has something wrong in it; all of them if nothing has."""
        whole = self.kind == "nothing" or self.kind in ON_LABELS
        return tuple(range(n_sensors)) if whole else self.concerned(n_sensors)


@dataclass(frozen=True, slots=True)
class FootstepTask:
    """One split of one cell of the grid, or of the tables if there is no cell."""

    split: int
    cell: Cell | None

    @property
    def key(self) -> str:
        return f"{self.cell.name if self.cell else 'tables'}/{self.split}"


@dataclass(frozen=True, slots=True)
class FootstepPlan:
    """What a run measures; two runs with equal plans give equal results."""

    n_human: int
    n_animal: int
    n_train: int
    splits: int
    cells: tuple[Cell, ...]
    tables: bool
    seed: int
    recordings: str = ""

    def tasks(self) -> Iterator[FootstepTask]:
        """Split by split: what a corruption leaves alone is computed once for all cells of a split."""
        for number in range(self.splits):
            yield from (FootstepTask(number, None) for _ in range(self.tables))
            yield from (FootstepTask(number, cell) for cell in self.cells)

    def origin(self) -> RecordingOrigin:
        if self.recordings:
            return OwnRecordings(self.recordings)
        return SimulatedSubjects(self.n_human, self.n_animal, self.seed)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def full_plan(splits: int, seed: int, recordings: str = "", n_train: int = N_TRAIN) -> FootstepPlan:
    grid = [Cell(kind, rate) for kind in KINDS if kind != "nothing" for rate in RATES]
    grid.insert([cell.kind for cell in grid].index("mislabelled") + 1, Cell("mislabelled", 0.3))
    extra = [Cell("nothing", 0.0, few=True), Cell("stale", 0.4, few=True), Cell("mislabelled", 0.2, few=True)]
    extra += [Cell("stale", 0.4, pair=True), Cell("stale", 0.4, everywhere=True)]
    return FootstepPlan(
        84, 66, n_train, splits, (Cell("nothing", 0.0), *grid, *extra), not recordings, seed, recordings
    )


def quick_plan(splits: int, seed: int, recordings: str = "") -> FootstepPlan:
    """Fewer subjects, and one rate of five kinds."""
    rates = {"nothing": 0.0, "loud": 0.4, "stale": 0.4, "mislabelled": 0.2, "polluted": 0.4}
    cells = tuple(Cell(kind, rate) for kind, rate in rates.items())
    return FootstepPlan(28, 22, 12, splits, cells, not recordings, seed, recordings)


def run_task(
    task: FootstepTask, plan: FootstepPlan, folder: Path, entries: tuple[CorpusEntry, ...]
) -> list[dict[str, Any]]:
    """Fit every method; one record each, or one for each method and sensor of the tables."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # Some baselines stop early on hopeless training sets; their accuracy tells.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if task.cell is None:
            return _table_records(task, plan, folder, entries)
        return _grid_records(task, task.cell, plan, folder, entries)


_load = lru_cache(maxsize=4)(loaded)


# The grid


def _grid_records(
    task: FootstepTask, cell: Cell, plan: FootstepPlan, folder: Path, entries: tuple[CorpusEntry, ...]
) -> list[dict[str, Any]]:
    train, test = split(entries, FEW if cell.few else plan.n_train, np.random.default_rng([plan.seed, task.split]))
    labels = _labels(entries)
    first = slice(2 if cell.pair else None)
    clean, loud = (_load(folder, entries, name)[:, :, first] for name in ("clean", "loud"))
    corrupted = KINDS[cell.kind](
        CorruptedSet.clean(clean[train], labels[train]),
        Supplies(loud[train], _load(folder, entries, "silence")[0]),
        cell.rate,
        cell.concerned(clean.shape[2]),
        np.random.default_rng([plan.seed, task.split, zlib.crc32(cell.name.encode())]),
    )
    sensors, published = (sensors_of(corrupted, clean[test], features) for features in (TWO_VIEWS, PAPER))
    found = {name: method(sensors, _fits) for name, method in METHODS.items()}
    found[JOINT_PAPER] = joint(published, _fits)
    truth = np.repeat(labels[test], clean.shape[1]) > 0
    return [
        {"cell": cell.name, "split": task.split, "method": name, **_accuracies(margins, truth, cell)}
        for name, margins in found.items()
    ]


def _labels(entries: Sequence[CorpusEntry]) -> Integers:
    """0 and 1, in the order of the alphabet."""
    return np.unique([entry.label for entry in entries], return_inverse=True)[1].astype(np.int64)


def _accuracies(margins: Floats, truth: Flags, cell: Cell) -> dict[str, Any]:
    right = ((margins > 0) == truth[:, None]).mean(axis=0)
    return {
        "sensors": right.round(6).tolist(),
        "affected": float(right[list(cell.affected(len(right)))].mean()),
        "every": float(right.mean()),
        "fused": float(np.mean((margins.sum(axis=1) > 0) == truth)),
    }


def sensors_of(training: CorruptedSet, test: Values, features: str) -> list[SensorData]:
    """Components of all sensors together, learned from what there is to learn from, corrupted or not."""
    n_recordings, n_segments, n_sensors, n_values = training.values.shape
    y = np.repeat(np.where(training.labels > 0, 1.0, -1.0), n_segments)
    groups = np.repeat(np.arange(n_recordings), n_segments)
    spoiled = training.spoiled()
    slices = view_slices(n_values)
    if features == PAPER:
        X, X_test = projected(_rows(training.values[..., slices["paper"]]), _rows(test[..., slices["paper"]]))
        timing = X
    else:
        summary, timing_rows = (_rows(training.values[..., slices[name]]) for name in ("summary", "timing"))
        X, X_test = projected(summary, _rows(test[..., slices["summary"]]), weights=_SUMMARY.weights)
        timing = projected(timing_rows, timing_rows[:0])[0]
    return [
        SensorData(X[:, s], timing[:, s], y, groups, X_test[:, s], spoiled[:, :, s].ravel()) for s in range(n_sensors)
    ]


def _rows(values: Values) -> Values:
    """(segments, sensors, values)."""
    return np.ascontiguousarray(values.reshape(-1, *values.shape[2:]))


def projected(X: Values, X_test: Values, *, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Both in the components of the first."""
    content = hashlib.blake2b(X.tobytes())
    content.update(X_test.tobytes())
    content.update(b"" if weights is None else weights.tobytes())
    projection: tuple[Floats, Floats] = _projections.recall(content.digest(), lambda: _project(X, X_test, weights))
    return projection


def _project(X: Values, X_test: Values, weights: Floats | None) -> tuple[Floats, Floats]:
    from pipeline.learners.array_components import ArrayComponents

    components = ArrayComponents.learn(X, np.ones(X.shape[:2], np.bool_), N_COMPONENTS, weights=weights)
    return components.transform(X), components.transform(X_test)


# The published tables

Judged = tuple[Floats, Flags | None]
"""Margins of the test segments, and which training segments are called anomalous, where the method says so."""


def _svm(sensor: SensorData, machine: Machine) -> Judged:
    from sklearn.svm import SVC

    model = SVC(C=machine.C, gamma=machine.gamma).fit(sensor.X, sensor.y)
    return model.decision_function(sensor.X_test), None


def _med(sensor: SensorData, machine: Machine) -> Judged:
    from pipeline.learners import MEDClassifier

    model = MEDClassifier(C=machine.C, gamma=machine.gamma).fit(sensor.X, sensor.y, groups=sensor.groups)
    return model.decision_function(sensor.X_test), None


def _rod(keep_fraction: float) -> Callable[[SensorData, Machine], Judged]:
    def judge(sensor: SensorData, machine: Machine) -> Judged:
        from pipeline.learners import RODClassifier

        model = RODClassifier(C=machine.C, gamma=machine.gamma, keep_fraction=keep_fraction).fit(sensor.X, sensor.y)
        return model.decision_function(sensor.X_test), model.eta_ < 0.5

    return judge


def _gem_svm(sensor: SensorData, machine: Machine) -> Judged:
    from pipeline.learners import GEMSVC

    model = GEMSVC(C=machine.C, gamma=machine.gamma, coverage="auto").fit(sensor.X, sensor.y, groups=sensor.groups)
    return model.decision_function(sensor.X_test), ~model.kept_


def _gem_med(sensor: SensorData, machine: Machine) -> Judged:
    from pipeline.learners import GEMMEDClassifier

    model = GEMMEDClassifier(C=machine.C, gamma=machine.gamma).fit(sensor.X, sensor.y, groups=sensor.groups)
    return model.decision_function(sensor.X_test), model.posterior_ < 0.5


SINGLE: dict[str, Callable[[SensorData, Machine], Judged]] = {
    "kernel SVM": _svm,
    "kernel MED": _med,
    "ROD-0.02": _rod(0.02),
    "ROD-0.2": _rod(0.2),
    "ROD keep 0.8": _rod(0.8),
    "GEM+SVM": _gem_svm,
    "GEM-MED": _gem_med,
}
JOINT_TABLE = "GEM-MED, joint"
NOTHING_CALLED = "nothing called anomalous"


def _table_records(
    task: FootstepTask, plan: FootstepPlan, folder: Path, entries: tuple[CorpusEntry, ...]
) -> list[dict[str, Any]]:
    train, test = split(entries, plan.n_train, np.random.default_rng([plan.seed, task.split]))
    labels = _labels(entries)
    values = _load(folder, entries, "failing")
    failed = _load(folder, entries, "failed") > MOST_OF_A_WINDOW
    sensors = sensors_of(CorruptedSet.clean(values[train], labels[train]), values[test], PAPER)
    judge = _Judge(task.split, failed[train], failed[test], np.repeat(labels[test], values.shape[1]) > 0)
    records = []
    for s, sensor in enumerate(sensors):
        records += _single(sensor, judge.of(str(s + 1), s))
    records += _single(_concatenated(sensors), judge.of(COMBINED, None))
    return records + _joint(sensors, judge)


@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    """How judgements of one sensor, or of all together, are measured."""

    split: int
    place: str
    anomalous: Flags
    nominal_test: Flags
    truth: Flags

    def record(self, method: str, margins: Floats | None, called: Flags | None) -> dict[str, Any]:
        out: dict[str, Any] = {"table": self.place, "split": self.split, "method": method}
        if margins is not None:
            right = (margins > 0) == self.truth
            out |= {"accuracy": float(right.mean()), "nominal_accuracy": float(right[self.nominal_test].mean())}
        if called is not None:
            out["detection"] = float(np.mean(called == self.anomalous))
        return out


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    split: int
    failed_train: Flags
    failed_test: Flags
    truth: Flags

    def of(self, place: str, sensor: int | None) -> _Scale:
        """Combined, a segment is anomalous if it is so at any sensor."""
        train, test = (
            (failed.any(axis=2) if sensor is None else failed[:, :, sensor]).ravel()
            for failed in (self.failed_train, self.failed_test)
        )
        return _Scale(self.split, place, train, ~test, self.truth)


def _single(sensor: SensorData, scale: _Scale) -> list[dict[str, Any]]:
    """All have the width and C that suit the SVM best."""
    machine = tuned(sensor.X, sensor.y, sensor.groups)
    records = [scale.record(name, *judge(sensor, machine)) for name, judge in SINGLE.items()]
    return [*records, scale.record(NOTHING_CALLED, None, np.zeros(len(sensor.y), np.bool_))]


def _concatenated(sensors: Sequence[SensorData]) -> SensorData:
    """One sensor with the features of all."""
    first = sensors[0]
    X, timing, X_test = (
        np.concatenate([getattr(s, name) for s in sensors], axis=1) for name in ("X", "timing", "X_test")
    )
    return SensorData(X, timing, first.y, first.groups, X_test, first.spoiled)


def _joint(sensors: Sequence[SensorData], judge: _Judge) -> list[dict[str, Any]]:
    """Anomalous is what a sensor did not deliver; labels are right here and not asked about."""
    from pipeline.learners import ArrayGEMMEDClassifier

    model = ArrayGEMMEDClassifier().fit(stacked(sensors, "X"), sensors[0].y, groups=sensors[0].groups)
    margins = np.nan_to_num(model.sensor_margins(stacked(sensors, "X_test")), nan=0.0)
    called: Flags = model.delivered_ < 0.5
    alone = [judge.of(str(s + 1), s).record(JOINT_TABLE, margins[:, s], called[:, s]) for s in range(len(sensors))]
    return [*alone, judge.of(COMBINED, None).record(JOINT_TABLE, margins.sum(axis=1), np.asarray(called.any(axis=1)))]
