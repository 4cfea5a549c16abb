"""The ring experiment: its draw, its plan, and its report."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

from pipeline.experiments.report import Results, markdown, write_tables
from pipeline.experiments.ring import METHODS, RECALLS, RingPlan, RingTask, draw, full_plan, quick_plan, run_task
from pipeline.experiments.tables import Mean


def test_draw_has_the_published_shape():
    """100 per class, the exact share on the ring, means at plus and minus (3, 3)."""
    ring = draw(35, 0.2, seed=0)
    assert ring.X.shape == (200, 2)
    assert ring.X_test.shape == (4000, 2)
    assert ring.anomalous.sum() == 40
    radius = np.linalg.norm(ring.X * math.sqrt(20), axis=1)
    assert ((radius >= 35) & (radius <= 36)).sum() == 40
    for sign in (-1, 1):
        own = ring.X_test[ring.y_test == sign] * math.sqrt(20)
        np.testing.assert_allclose(own.mean(axis=0), -3 * sign, atol=0.4)
        np.testing.assert_allclose(np.cov(own.T), [[20, 16], [16, 20]], atol=2.5)


def test_the_best_possible_error_is_24_percent():
    """The boundary x + y = 0 is optimal; its error is Phi(-1/sqrt 2)."""
    ring = draw(15, 0.2, seed=1, n_test=200_000)
    error = np.mean(np.sign(-ring.X_test.sum(axis=1)) != ring.y_test)
    assert error == pytest.approx(0.5 * math.erfc(0.5), abs=0.002)


def test_draws_repeat_and_differ():
    """Same seed, same bits; another trial, other bits."""
    assert draw(15, 0.2, seed=[1, 2]).X.tobytes() == draw(15, 0.2, seed=[1, 2]).X.tobytes()
    assert draw(15, 0.2, seed=[1, 2]).X.tobytes() != draw(15, 0.2, seed=[1, 3]).X.tobytes()


def test_a_task_measures_every_method():
    """One record per method, with an anomaly ranking where the method has one."""
    records = run_task(RingTask(55, 0.2, 0), seed=1)
    assert [record["method"] for record in records] == list(METHODS)
    by_name = {record["method"]: record for record in records}
    assert by_name["oracle"]["error"] < 0.27
    assert by_name["GEM-MED, auto"]["error"] < 0.27
    assert by_name["GEM-MED, auto"]["auc"] > 0.99
    assert len(by_name["GEM-MED, auto"]["precision"]) == len(RECALLS)
    assert "auc" not in by_name["SVM"]


def test_plans_have_the_published_settings():
    """Four noise levels, four rates, fifty trials; the quick one is a part of it."""
    plan = full_plan(50, seed=1)
    tasks = list(plan.tasks())
    assert sum(not task.step_name for task in tasks) == 16 * 50
    assert {task.noise_level for task in tasks} == {15, 35, 55, 75}
    assert len({task.key for task in tasks}) == len(tasks)
    quick = quick_plan(5, seed=1)
    assert sum(not task.step_name for task in quick.tasks()) == 4 * 5


def fake_results() -> Results:
    """Errors that are simple functions of method, setting and trial."""
    plan = RingPlan(3, (15, 55), (0.2, 0.5), (0.1,), 2, 0)
    records = []
    for task in plan.tasks():
        names = ["GEM-MED Gibbs, true rate"] if task.step_name else list(METHODS)
        for place, name in enumerate(names):
            record = {
                "key": task.key,
                "noise_level": task.noise_level,
                "rate": task.rate,
                "trial": task.trial,
                "step_name": task.step_name,
                "step_size": task.step_size,
                "method": name,
                "error": 0.2 + 0.01 * place + 0.001 * task.trial,
                "converged": name != "GEM-MED Gibbs, auto",
            }
            if "GEM" in name:
                record |= {"auc": 0.9}
                if (task.noise_level, task.rate) == (55, 0.2):
                    record["precision"] = [1.0] * len(RECALLS)
            records.append(record)
    return Results(plan, records)


def test_means_carry_their_standard_error():
    """Against the textbook formula."""
    mean = Mean.of([1.0, 2.0, 4.0])
    assert mean.value == pytest.approx(7 / 3)
    assert mean.standard_error == pytest.approx(np.std([1, 2, 4], ddof=1) / math.sqrt(3))


def test_report_states_what_was_measured(tmp_path):
    """Tables, paired differences, the best baseline by name, and the fits that did not converge."""
    results = fake_results()
    written = {path.name for path in write_tables(results, tmp_path)}
    assert written == {"errors.csv", "anomalies.csv", "precision_recall.csv", "step_sizes.csv", "report.md"}
    with (tmp_path / "errors.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(METHODS) * 4
    assert float(rows[0]["mean"]) == pytest.approx(0.201)
    report = markdown(results)
    assert "| SVM | 20.1 ± 0.1 |" in report
    assert "- GEM-MED Gibbs, auto: 12 of 12" in report
    assert results.best_baseline(15, 0.2) == "SVM"
    against = results.difference("GEM-MED, auto", "SVM", 15, 0.2)
    assert against.value == pytest.approx(0.01 * list(METHODS).index("GEM-MED, auto"))
    assert against.standard_error == pytest.approx(0.0, abs=1e-9)
