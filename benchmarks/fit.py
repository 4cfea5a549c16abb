"""Time to fit GEM-MED against SVC, Gibbs against mean-field, and p-values one at a time against pyod and LOF.

Run: python -m benchmarks.fit [--quick]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import SVC

from benchmarks.dual_gap import Arena, point_of
from benchmarks.report import finish, interleaved, show
from pipeline.experiments.ring import draw
from pipeline.learners import GEMDetector, GEMMEDClassifier

Floats = NDArray[np.float64]


def two_classes(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """50 features, a curved boundary in two of them, one label in ten wrong."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 50))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.5 > 0, 1.0, -1.0)
    X[:, :2] *= 2.0
    wrong = rng.random(n) < 0.1
    return X, np.where(wrong, -y, y)


def against_svc(sizes: tuple[int, ...]) -> tuple[dict[str, float], list[list[object]]]:
    """Both with their defaults, and the SVC also with GEM-MED's kernel width."""
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    for n in sizes:
        X, y = two_classes(n)
        width = GEMMEDClassifier().fit(X, y)._discriminant.kernel.gamma
        repeats = {200: 40, 1200: 10}.get(n, 3)
        seconds = interleaved(
            {
                "svc": lambda X=X, y=y: SVC().fit(X, y),  # type: ignore[misc]
                "same": lambda X=X, y=y, width=width: SVC(gamma=width).fit(X, y),  # type: ignore[misc]
                "gem_med": lambda X=X, y=y: GEMMEDClassifier().fit(X, y),  # type: ignore[misc]
            },
            repeats,
        )
        figures[f"svc_ratio_{n}"] = round(seconds["gem_med"] / seconds["svc"], 3)
        figures[f"svc_same_width_ratio_{n}"] = round(seconds["gem_med"] / seconds["same"], 3)
        rows.append([n, *(1e3 * seconds[name] for name in ("svc", "same", "gem_med")), figures[f"svc_ratio_{n}"]])
    return figures, rows


def low_rank(n: int) -> dict[str, float]:
    """Seconds and peak memory of the low-rank path, in a process of its own."""
    code = "import benchmarks, sys; from benchmarks.fit import measure_low_rank; measure_low_rank(int(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(n)], capture_output=True, text=True, check=True)
    seconds, gigabytes, accuracy = (float(part) for part in done.stdout.split())
    return {f"low_rank_seconds_{n}": seconds, f"low_rank_gigabytes_{n}": gigabytes, f"low_rank_accuracy_{n}": accuracy}


def measure_low_rank(n: int) -> None:
    X, y = two_classes(n + 2000)
    start = time.perf_counter()
    model = GEMMEDClassifier().fit(X[:n], y[:n])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{seconds:.2f} {peak:.3f} {model.score(X[n:], y[n:]):.4f}")


def gibbs_against_mean_field(quick: bool) -> tuple[dict[str, float], list[list[object]]]:
    """Time for Gibbs to come as close to the optimum of the exact dual as mean-field does.

    The optimum is taken from a long Gibbs run. Gibbs steps double until the gap is no larger than mean-field's.
    """
    arena = Arena.of(draw(35, 0.3, seed=0), coverage=0.7)
    best = arena.gibbs(2000 if quick else 10_000, seed=7)
    mean_field_gap = arena.dual_difference(point_of(arena.mean_field()), best)
    rows: list[list[object]] = []
    steps = 10
    while True:
        gap = arena.dual_difference(arena.gibbs(steps), best)
        seconds = interleaved(
            {"mean-field": arena.mean_field, "gibbs": lambda steps=steps: arena.gibbs(steps)},  # type: ignore[misc]
            5,
        )
        rows.append([f"Gibbs, {steps} steps", 1e3 * seconds["gibbs"], gap])
        if gap <= mean_field_gap or steps > 5000:
            break
        steps *= 2
    rows.insert(0, ["mean-field", 1e3 * seconds["mean-field"], mean_field_gap])
    ratio = round(seconds["gibbs"] / seconds["mean-field"], 2)
    return {"gibbs_ratio": ratio, "mean_field_dual_gap": round(mean_field_gap, 3)}, rows


def p_values_one_at_a_time(repeats: int) -> tuple[dict[str, float], list[list[object]]]:
    """One new sample against 1,200 training samples of 50 features, microseconds.

    Each detector gets a stream of 50 samples, one by one, then the next its own.
    """
    from pyod.models.knn import KNN

    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((1200, 50)), rng.standard_normal((repeats, 50))
    detectors = {
        "GEMDetector, bipartite": GEMDetector().fit(X).p_values,
        "GEMDetector, leave-one-out": GEMDetector(graph="leave-one-out").fit(X).p_values,
        "pyod KNN": KNN(n_neighbors=5).fit(X).decision_function,
        "LocalOutlierFactor": LocalOutlierFactor(novelty=True).fit(X).score_samples,
    }
    seconds: dict[str, list[float]] = {name: [] for name in detectors}
    for stream in np.split(new, repeats // 50):
        for name, score in detectors.items():
            for sample in stream:
                one = sample[None].copy()
                start = time.perf_counter()
                score(one)
                seconds[name].append(time.perf_counter() - start)
    median = {name: 1e6 * float(np.median(values)) for name, values in seconds.items()}
    ours = median["GEMDetector, bipartite"]
    figures = {
        "pyod_speedup": round(median["pyod KNN"] / ours, 2),
        "lof_speedup": round(median["LocalOutlierFactor"] / ours, 2),
    }
    return figures, [[name, value] for name, value in median.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, no low-rank run at N = 20,000")
    quick = parser.parse_args().quick
    figures, rows = against_svc((200, 1200, 5000))
    show(
        "Fit, milliseconds (target: at most 3 times SVC)",
        ("N", "SVC()", "SVC, same width", "GEMMEDClassifier()", "ratio"),
        rows,
    )
    gibbs, rows = gibbs_against_mean_field(quick)
    show("Same problem, ring data, N = 200", ("solver", "milliseconds", "gap of the exact dual, nats"), rows)
    streaming, rows = p_values_one_at_a_time(200 if quick else 2000)
    show("One sample at a time, 1,200 x 50 (target: 10 times faster)", ("detector", "microseconds"), rows)
    figures |= gibbs | streaming
    if not quick:
        large = low_rank(20_000)
        show(
            "Low-rank path (target: under 2 GB)",
            ("N", "seconds", "peak GB", "accuracy (0.9 is possible)"),
            [[20_000, *large.values()]],
        )
        figures |= large
    finish(figures)


if __name__ == "__main__":
    main()
