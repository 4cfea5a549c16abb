"""Anomaly detection on real tables: ranking against pyod's KNN and LOF, and the false-alarm rate.

Run: python -m benchmarks.tables DIRECTORY [--splits 20]

DIRECTORY holds .npz files with X (n_samples, n_features) and y (1 = anomaly), e.g. those of ADBench.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler

from benchmarks.report import finish, show
from pipeline.learners import GEMDetector

Floats = NDArray[np.float64]
ALPHAS = (0.01, 0.05, 0.1)
METHODS = ("GEMDetector", "GEMDetector, leave-one-out", "pyod KNN", "LocalOutlierFactor")


def scores(train: Floats, test: Floats) -> dict[str, Floats]:
    """Anomaly score of each test sample; every detector at its default number of neighbours."""
    from pyod.models.knn import KNN

    return {
        "GEMDetector": -GEMDetector().fit(train).score_samples(test),
        "GEMDetector, leave-one-out": -GEMDetector(graph="leave-one-out").fit(train).score_samples(test),
        "pyod KNN": KNN().fit(train).decision_function(test),
        "LocalOutlierFactor": -LocalOutlierFactor(novelty=True).fit(train).score_samples(test),
    }


def one_split(
    X: Floats, y: NDArray[np.int8], seed: int
) -> tuple[dict[str, float], dict[tuple[str, float], float], int]:
    """Areas under the ROC curve, and false-alarm rates when trained on nominal samples only."""
    train, test = train_test_split(np.arange(len(X)), test_size=0.3, stratify=y, random_state=seed)
    X = StandardScaler().fit(X[train]).transform(X)
    areas = {name: float(roc_auc_score(y[test], s)) for name, s in scores(X[train], X[test]).items()}
    nominal, held_out = train[y[train] == 0], test[y[test] == 0]
    alarms: dict[tuple[str, float], float] = {}
    for graph in ("bipartite", "leave-one-out"):
        p = GEMDetector(graph=graph).fit(X[nominal]).p_values(X[held_out])
        alarms |= {(graph, alpha): float(np.mean(p <= alpha)) for alpha in ALPHAS}
    return areas, alarms, len(held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--splits", type=int, default=20, help="random 70/30 splits of each table")
    options = parser.parse_args()
    files = sorted(options.directory.glob("*.npz"))
    if not files:
        sys.exit(f"{options.directory} holds no .npz file; give the directory of the tables")
    area: dict[str, list[float]] = {name: [] for name in METHODS}
    rows: list[list[object]] = []
    alarm_rows: list[list[object]] = []
    figures: dict[str, Any] = {}
    deviations: dict[str, list[float]] = {"bipartite": [], "leave-one-out": []}
    for file in track(files, description="tables"):
        with np.load(file) as table:
            X, y = table["X"].astype(np.float64), table["y"]
        splits = [one_split(X, y, seed) for seed in range(options.splits)]
        means = {name: float(np.mean([areas[name] for areas, _, _ in splits])) for name in METHODS}
        for name, value in means.items():
            area[name].append(value)
        rows.append([file.stem, *means.values()])
        for graph in deviations:
            cells: list[object] = []
            for alpha in ALPHAS:
                rates = [alarms[graph, alpha] for _, alarms, _ in splits]
                n_test = splits[0][2]
                n_train = n_test * 7 / 3
                # Binomial error of the test samples and, in conformal prediction, of the training samples too.
                error = np.sqrt(alpha * (1 - alpha) * (1 / n_test + 1 / n_train))
                deviations[graph] += [(rate - alpha) / error for rate in rates]
                cells.append(f"{np.mean(rates):.4f} ({error / np.sqrt(options.splits):.4f})")
            alarm_rows.append([f"{file.stem}, {graph}", *cells])
    rows.append(["mean", *(float(np.mean(area[name])) for name in METHODS)])
    show("Area under the ROC curve, standardised features, trained on the contaminated 70 %", ("table", *METHODS), rows)
    show(
        f"False-alarm rate on held-out nominal samples, mean of {options.splits} splits (binomial error)",
        ("table", *(f"alpha {alpha}" for alpha in ALPHAS)),
        alarm_rows,
    )
    for name, key in zip(METHODS, ("gem", "gem_leave_one_out", "knn", "lof"), strict=True):
        figures[f"auc_{key}"] = round(float(np.mean(area[name])), 4)
    for graph, values in deviations.items():
        key = graph.replace("-", "_")
        figures[f"far_mean_z_{key}"] = round(float(np.mean(values)), 3)
        figures[f"far_share_within_2_errors_{key}"] = round(float(np.mean(np.abs(values) <= 2)), 3)
    finish(figures)


if __name__ == "__main__":
    main()
