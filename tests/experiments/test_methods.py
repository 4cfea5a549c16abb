"""The competitors, against scikit-learn used directly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import euclidean_distances
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.svm import SVC

from pipeline.experiments import methods
from pipeline.experiments.methods import COSTS, MED_COSTS, MED_WIDTHS, METHODS, WIDTHS, ResultCache, SensorData
from pipeline.experiments.peers import cleaned_margins, isolated
from pipeline.learners import MEDClassifier
from tests.conftest import component


def small(seed: int = 0, n_recordings: int = 12, n_segments: int = 6) -> SensorData:
    """Recordings of two overlapping classes, the first quarter of the first one spoiled."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_recordings), n_segments)
    y = np.where(groups % 2, 1.0, -1.0)
    X = rng.normal(size=(len(y), 3)) + 0.8 * y[:, None]
    return SensorData(X, X[:, :2], y, groups, rng.normal(size=(40, 3)), groups < 3)


def folds_by_hand(sensor: SensorData, n_folds: int) -> np.ndarray:
    """Odd and even recordings are the classes: number within the class, modulo the folds."""
    return (sensor.groups // 2) % n_folds


def test_tuning_is_a_grid_search_over_recordings():
    """The chosen pair has the best score of scikit-learn's search over the same pairs and folds."""
    sensor = small()
    squared = euclidean_distances(sensor.X, squared=True)
    median = np.median(squared[np.triu_indices(len(squared), 1)])
    grid = {"C": COSTS, "gamma": [width / median for width in WIDTHS]}
    search = GridSearchCV(SVC(tol=1e-2), grid, cv=PredefinedSplit(folds_by_hand(sensor, 4))).fit(sensor.X, sensor.y)
    chosen = methods.tuned(sensor.X, sensor.y, sensor.groups)
    scores = {
        (p["C"], round(p["gamma"] * median, 6)): score
        for p, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True)
    }
    assert scores[chosen.C, round(chosen.gamma * median, 6)] == pytest.approx(search.best_score_)


def test_the_oracle_is_an_svc_without_what_is_spoiled():
    """To the bit, and the plain one has everything."""
    sensor = small()
    left = ~sensor.spoiled
    machine = methods.tuned(sensor.X[left], sensor.y[left], sensor.groups[left])
    direct = SVC(C=machine.C, gamma=machine.gamma).fit(sensor.X[left], sensor.y[left])
    np.testing.assert_array_equal(methods.oracle_margins(sensor), direct.decision_function(sensor.X_test))
    plain = SVC(C=sensor.machine.C, gamma=sensor.machine.gamma).fit(sensor.X, sensor.y)
    np.testing.assert_array_equal(methods.svc_margins(sensor), plain.decision_function(sensor.X_test))


def test_losses_of_med_are_those_of_the_estimator_refitted_without_the_fold():
    """One kernel matrix with zero weights gives what separate fits give."""
    sensor = small()
    losses, median = methods.med_losses(sensor.X, sensor.y, sensor.groups)
    folds = folds_by_hand(sensor, 5)
    for i, j in ((0, 0), (1, 2), (3, 3)):
        hinge = np.empty(len(sensor.y))
        for fold in range(5):
            away = folds == fold
            model = MEDClassifier(C=MED_COSTS[j], gamma=MED_WIDTHS[i] / median).fit(sensor.X[~away], sensor.y[~away])
            hinge[away] = np.clip(1 - sensor.y[away] * model.decision_function(sensor.X[away]), 0, 2)
        assert losses[i, j] == pytest.approx(hinge.mean(), abs=0.01)


def test_a_screen_that_leaves_too_little_is_not_used():
    """With one recording of a class left there is nothing to tune on."""
    sensor = small()
    kept = (sensor.y < 0) | (sensor.groups == 1)
    np.testing.assert_array_equal(methods.svc_margins(sensor, kept), methods.svc_margins(sensor))


def test_isolation_is_by_class():
    """A sample of one class in the midst of the other is dropped, also if nothing is odd about it as such."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(-9, 1, (60, 2)), rng.normal(9, 1, (60, 2))])
    y = np.repeat([-1.0, 1.0], 60)
    X[0] = (9, 9)
    assert not isolated(X, y)[0]
    assert isolated(X, y).mean() > 0.5


def test_cleanlab_trains_without_the_labels_it_doubts():
    """Where honest margins contradict eight labels beyond doubt, the rest, somewhat weighted, trains the SVC."""
    component("cleanlab")
    rng = np.random.default_rng(0)
    truth = np.repeat([-1.0, 1.0], 60)
    X = rng.normal(size=(120, 2)) + 2 * truth[:, None]
    wrong = np.arange(120) % 15 == 0
    y = np.where(wrong, -truth, truth)
    X_test = rng.normal(size=(30, 2))
    margins = cleaned_margins(X, y, 3 * truth, X_test, svc=SVC(C=2.0, gamma=0.5))
    direct = SVC(C=2.0, gamma=0.5).fit(X[~wrong], y[~wrong]).decision_function(X_test)
    untreated = SVC(C=2.0, gamma=0.5).fit(X, y).decision_function(X_test)
    np.testing.assert_allclose(margins, direct, atol=0.1)
    assert np.abs(untreated - direct).max() > 0.2


def test_every_method_gives_a_margin_for_every_sensor():
    """And tells two well separated classes apart."""
    component("cleanlab")
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 12)
    y = np.where(groups % 2, 1.0, -1.0)
    scene, scene_test = rng.normal(size=(144, 3)) + 2 * y[:, None], rng.normal(size=(50, 3)) + 2
    sensors = []
    for _ in range(2):
        heard, heard_test = (part + 0.1 * rng.normal(size=part.shape) for part in (scene, scene_test))
        sensors.append(SensorData(heard, heard[:, ::-1], y, groups, heard_test, groups < 2))
    memory = ResultCache(100)
    for name, method in METHODS.items():
        margins = method(sensors, memory)
        assert margins.shape == (50, 2), name
        assert (margins > 0).mean() > 0.95, name


def test_memory_recalls_equal_content_and_forgets_the_oldest():
    """A sensor met again in another cell is not fitted again."""
    made = []
    memory = ResultCache(2)
    for seed in (0, 0, 1, 2, 0):
        memory.recall(small(seed).digest, lambda seed=seed: made.append(seed))
    assert made == [0, 1, 2, 0]
    assert small(0).digest != small(1).digest
    assert replace(small(0), timing=small(0).timing + 1).digest != small(0).digest


def test_the_joint_learner_compares_sensors_by_their_timing():
    """With the timing of another moment at one sensor it learns something else, and other methods do not."""
    one = [replace(small(0), X=small(0).X + 0.1 * small(seed).X) for seed in (1, 2, 3)]
    rolled = np.roll(one[0].timing, 24, axis=0)
    other = [replace(one[0], timing=rolled), *one[1:]]
    assert (methods.joint(one, ResultCache(9)) != methods.joint(other, ResultCache(9))).any()
    for name in ("SVC", "MED"):
        np.testing.assert_array_equal(METHODS[name](one, ResultCache(9)), METHODS[name](other, ResultCache(9)))


def test_boosting_is_that_of_scikit_learn():
    """To the bit."""
    sensor = small()
    direct = HistGradientBoostingClassifier(random_state=0).fit(sensor.X, sensor.y)
    np.testing.assert_array_equal(methods.boosting_margins(sensor), direct.decision_function(sensor.X_test))
