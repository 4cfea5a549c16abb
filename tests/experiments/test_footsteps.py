"""The footstep experiment: its plan, its report, and a tiny run from end to end."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

from pipeline.core.segment_views import PAPER, TWO_VIEWS
from pipeline.experiments.corpus import view_slices
from pipeline.experiments.corruption import KINDS, CorruptedSet
from pipeline.experiments.footsteps import Cell, FootstepPlan, FootstepTask, full_plan, quick_plan, sensors_of
from pipeline.experiments.footsteps_report import FootstepResults, markdown, write_tables
from pipeline.experiments.methods import COLUMNS, JOINT, JOINT_PAPER, ORACLE
from pipeline.runtime.process_pool import LocalEngine
from tests.conftest import component


def test_plans_have_the_published_numbers():
    """84 and 66 subjects, 25 of each for training; every kind at every rate; the quick one is smaller."""
    plan = full_plan(6, seed=1)
    assert (plan.n_human, plan.n_animal, plan.n_train) == (84, 66, 25)
    tasks = list(plan.tasks())
    assert len({task.key for task in tasks}) == len(tasks) == 6 * (1 + len(plan.cells))
    assert {(cell.kind, cell.rate) for cell in plan.cells} >= {
        (kind, rate) for kind in KINDS if kind != "nothing" for rate in (0.2, 0.4)
    }
    assert not full_plan(6, 1, recordings="somewhere").tables
    assert len(list(quick_plan(2, seed=1).tasks())) == 12


def test_cells_know_whom_they_concern():
    """Every other sensor, or all; wrong labels concern everybody."""
    assert Cell("stale", 0.4).affected(4) == (0, 2)
    assert Cell("stale", 0.4, everywhere=True).affected(4) == (0, 1, 2, 3)
    assert Cell("stale", 0.4, pair=True).affected(2) == (0,)
    assert Cell("mislabelled", 0.2).affected(4) == Cell("nothing", 0.0).affected(4) == (0, 1, 2, 3)
    assert Cell("stale", 0.4, pair=True, few=True).name == "stale 40%, array of 2, 10+10 recordings"


def test_each_view_is_looked_at_by_whom_it_is_made_for():
    """Classes by the summary, sensors by the timing; both by the published features alone if these are asked for."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 8, 2, 2224)).astype(np.float32)
    looked = {}
    for features in (TWO_VIEWS, PAPER):
        for view, place in (None, slice(0)), *view_slices(2224).items():
            moved = values.copy()
            moved[..., place] **= 3
            training = CorruptedSet.clean(moved[:4], np.arange(4) % 2)
            looked[features, view] = sensors_of(training, moved[4:], features)
    for (features, view), sensors in looked.items():
        for one, other in zip(sensors, looked[features, None], strict=True):
            changed = [name for name in ("X", "timing", "X_test") if (getattr(one, name) != getattr(other, name)).any()]
            assert changed == {
                (TWO_VIEWS, "summary"): ["X", "X_test"],
                (TWO_VIEWS, "timing"): ["timing"],
                (PAPER, "paper"): ["X", "timing", "X_test"],
            }.get((features, view), [])
    assert (looked[PAPER, None][0].timing == looked[PAPER, None][0].X).all()


CELLS = (Cell("nothing", 0.0), Cell("stale", 0.4), Cell("loud", 0.2))


def fake_results(published: float = 0.8, **accuracy: float) -> FootstepResults:
    """Everybody has 0.8 but SVC with 0.85 and the oracle with 0.95, which is 0.85 if nothing is stale."""
    plan = FootstepPlan(6, 6, 2, 3, CELLS, False, 0)
    records = []
    for cell in CELLS:
        for place, method in enumerate(COLUMNS):
            for split in range(3):
                value = {"SVC": 0.85, ORACLE: 0.95 if cell.kind == "stale" else 0.85}.get(method, 0.8)
                if method == JOINT_PAPER:
                    value = published
                if method == JOINT:
                    value = accuracy[cell.kind] + 0.001 * split
                record = {"cell": cell.name, "split": split, "method": method, "sensors": [value] * 4}
                records.append(record | {"affected": value, "every": value, "fused": value - 0.0001 * place})
    return FootstepResults(plan, records)


def test_report_states_where_targets_are_missed():
    """More than half a point below the best other, or less than 80 % of the gap closed."""
    report = markdown(fake_results(nothing=0.84, stale=0.92, loud=0.847))
    assert "- clean, sensors concerned: -0.90 ± 0.06 points against SVC" in report
    assert "- stale 40%, sensors concerned: 71% of the gap to the oracle closed" in report
    assert "loud 20%, sensors concerned" not in report
    assert "| 71% |" in report


def test_report_without_misses_says_so():
    """None is a statement too."""
    report = markdown(fake_results(nothing=0.85, stale=0.94, loud=0.85, published=0.84))
    assert "Targets missed" in report
    assert "\nNone.\n" in report


def test_report_states_where_published_features_are_better():
    """By any amount: the same learner on other features, whose column is shown."""
    report = markdown(fake_results(nothing=0.85, stale=0.94, loud=0.85, published=0.86))
    assert "- clean, sensors concerned: -0.90 ± 0.06 points against published features" in report
    assert "- loud 20%, sensors concerned: -0.90 ± 0.06 points against published features" in report
    assert "stale 40%, sensors concerned" not in report
    assert "| joint, published features |" in report


def test_best_other_and_gap_by_hand():
    """Paired differences; the oracle and the joint learner are no candidates."""
    results = fake_results(nothing=0.84, stale=0.92, loud=0.8)
    against, best = results.against_best("affected", "stale 40%")
    assert best == "SVC"
    assert against.value == pytest.approx(0.071)
    assert results.gap_closed("affected", "stale 40%") == pytest.approx(0.71)
    assert results.gap_closed("affected", "clean") is None
    assert results.gap_closed("affected", "loud 20%") is None


def test_tables_are_written(tmp_path):
    """A line for every quantity, method and training set; no published tables without their tasks."""
    written = {path.name for path in write_tables(fake_results(nothing=0.84, stale=0.9, loud=0.8), tmp_path)}
    assert written == {"grid.csv", "report.md"}
    with (tmp_path / "grid.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(COLUMNS) * len(CELLS)
    assert float(rows[0]["mean"]) == pytest.approx(0.85)


def test_keys_tell_tasks_apart():
    assert FootstepTask(1, None).key == "tables/1"
    assert FootstepTask(0, Cell("stale", 0.4)).key == "stale 40%/0"


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """Three subjects of each class, two of them for training; one cell, and the tables."""
    component("matplotlib")
    component("cleanlab")
    from pipeline.experiments.footsteps_run import run_footsteps

    plan = FootstepPlan(3, 3, 2, 1, (Cell("stale", 0.4),), True, 1)
    out = tmp_path_factory.mktemp("footsteps")
    with LocalEngine(1) as engine:
        run_footsteps(plan, out, engine=engine, restart=False)
    return plan, out


def test_a_tiny_run_writes_everything(tiny_run):
    """Tables, figure, finished tasks; every method everywhere, with a decision about anomalies where it has one."""
    _, out = tiny_run
    assert (out / "grid.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with (out / "classification.csv").open() as file:
        accuracy = {(row["method"], row["sensor"]) for row in csv.DictReader(file) if row["quantity"] == "accuracy"}
    with (out / "anomalies.csv").open() as file:
        called = {row["method"] for row in csv.DictReader(file)}
    assert {sensor for _, sensor in accuracy} == {"1", "2", "3", "4", "all"}
    assert len(accuracy) == 5 * len({method for method, _ in accuracy})
    assert not called & {"kernel SVM", "kernel MED"}
    with (out / "grid.csv").open() as file:
        assert {row["method"] for row in csv.DictReader(file)} == set(COLUMNS)
    assert called >= {"ROD-0.02", "ROD-0.2", "GEM-MED", "GEM-MED, joint"}
    assert "| 1, 2, 3, 4 |" in (out / "report.md").read_text()


def test_a_run_that_was_cut_off_ends_with_the_same_bytes(tiny_run, tmp_path):
    """One task and a part of another's line are left: that one is measured again, after the first."""
    from pipeline.experiments.footsteps_run import run_footsteps

    plan, out = tiny_run
    again = tmp_path / "again"
    shutil.copytree(out, again)
    lines = (out / "trials.jsonl").read_text().splitlines(keepends=True)
    (again / "trials.jsonl").write_text("".join([lines[0], lines[-1], lines[1][:100]]))
    with LocalEngine(1) as engine:
        run_footsteps(plan, again, engine=engine, restart=False)
    for name in ("classification.csv", "anomalies.csv", "grid.csv", "report.md"):
        assert (again / name).read_bytes() == (out / name).read_bytes()
    keys = [json.loads(line)["key"] for line in (again / "trials.jsonl").read_text().splitlines()[1:]]
    assert sorted(keys) == sorted(task.key for task in plan.tasks())
