"""Figures of the ring experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.experiments.report import Results
from pipeline.experiments.ring import METHODS, PRECISION_SETTING, RECALLS, STEP_NAMES, STEP_SETTINGS, draw
from pipeline.experiments.tables import Mean
from pipeline.runtime.plotting import pyplot

_STYLE: dict[str, dict[str, Any]] = {
    "SVM": {"color": "#888888", "marker": "s"},
    "SVM, unit norm": {"color": "#444444", "marker": "D", "linestyle": ":"},
    "MED": {"color": "#bbbbbb", "marker": "v"},
    "ROD-0.02": {"color": "#f4a582", "marker": "x"},
    "ROD-0.2": {"color": "#d6604d", "marker": "x"},
    "ROD-0.6": {"color": "#b2182b", "marker": "x"},
    "ROD keep 0.8": {"color": "#67001f", "marker": "+"},
    "GEM+SVM, true rate": {"color": "#66a61e", "marker": "^"},
    "GEM+SVM, wrong rate": {"color": "#66a61e", "marker": "^", "linestyle": ":"},
    "GEM-MED, true rate": {"color": "#2166ac", "marker": "o", "linestyle": "--"},
    "GEM-MED, wrong rate": {"color": "#2166ac", "marker": "o", "linestyle": ":"},
    "GEM-MED, auto": {"color": "#08306b", "marker": "o", "linewidth": 2.5},
    "GEM-MED Gibbs, true rate": {"color": "#9970ab", "marker": "*"},
    "oracle": {"color": "black", "linestyle": "--", "linewidth": 1},
}


def write_figures(results: Results, out: Path) -> list[Path]:
    """ring.png, step_sizes.png and boundary.png."""
    return [
        _ring_figure(results, out / "ring.png"),
        _step_figure(results, out / "step_sizes.png"),
        boundary_figure(out / "boundary.png", seed=results.plan.seed),
    ]


def _curve(axes: Any, x: Any, means: list[Mean], name: str) -> None:
    axes.errorbar(
        x,
        [100 * mean.value for mean in means],
        yerr=[100 * mean.standard_error for mean in means],
        label=name,
        capsize=2,
        markersize=5,
        **_STYLE[name],
    )


def _ring_figure(results: Results, path: Path) -> Path:
    plt, plan = pyplot(), results.plan
    figure, ((by_noise, by_rate), (curves, ranking)) = plt.subplots(2, 2, figsize=(13, 9.5), layout="constrained")
    rate = plan.rates[0]
    noise_level = PRECISION_SETTING[0]
    for name in _STYLE:
        _curve(by_noise, plan.noise_levels, [results.mean("error", name, r, rate) for r in plan.noise_levels], name)
        _curve(by_rate, plan.rates, [results.mean("error", name, noise_level, ra) for ra in plan.rates], name)
        precision = results.precision(name)
        if precision is not None:
            curves.plot(RECALLS, precision, markersize=4, **_STYLE[name])
        if results.values("auc", name, noise_level, rate):
            means = [results.mean("auc", name, noise_level, ra).value for ra in plan.rates]
            ranking.plot(plan.rates, means, markersize=5, **_STYLE[name])
    by_noise.set(title=f"Error against noise level ({rate:.0%} corrupted)", xlabel="ring radius R", ylabel="error in %")
    by_rate.set(title=f"Error against corruption (R = {noise_level})", xlabel="corrupted share", ylabel="error in %")
    curves.set(
        title=f"Anomaly ranking, R = {noise_level}, {PRECISION_SETTING[1]:.0%} corrupted",
        xlabel="recall",
        ylabel="precision",
        ylim=(0, 1.03),
    )
    ranking.set(title=f"Anomaly ranking (R = {noise_level})", xlabel="corrupted share", ylabel="area under ROC")
    for axes in (by_noise, by_rate, curves, ranking):
        axes.grid(alpha=0.3)
    for axes in (by_rate, ranking):
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    # Most curves lie within a point of the oracle: the lowest points get half of the height.
    for axes in (by_noise, by_rate):
        axes.set_yscale("function", functions=(lambda e: np.log(np.maximum(e - 22.0, 0.1)), lambda t: np.exp(t) + 22.0))
        axes.set_yticks([23.5, 24, 24.5, 25, 26, 28, 32, 40, 50], [23.5, 24, 24.5, 25, 26, 28, 32, 40, 50])
    figure.legend(*by_noise.get_legend_handles_labels(), loc="outside right center", fontsize=9)
    figure.suptitle(f"Ring experiment, {plan.trials} trials; bars are standard errors")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _step_figure(results: Results, path: Path) -> Path:
    plt, plan = pyplot(), results.plan
    figure, panels = plt.subplots(1, 3, figsize=(13, 4), sharey=True, layout="constrained")
    for axes, name in zip(panels, STEP_NAMES, strict=True):
        for setting in STEP_SETTINGS:
            means = [results.step_error(setting, name, size) for size in plan.step_sizes]
            axes.errorbar(
                plan.step_sizes,
                [100 * mean.value for mean in means],
                yerr=[100 * np.nan_to_num(mean.standard_error) for mean in means],
                marker="o",
                capsize=2,
                label=f"R = {setting[0]}, {setting[1]:.0%} corrupted",
            )
        axes.set(
            xscale="log", xlabel=f"initial step of {name}", title=f"other steps at 0.05, {plan.step_trials} trial(s)"
        )
        axes.set_xticks(plan.step_sizes, [f"{size:g}" for size in plan.step_sizes])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("error in %")
    panels[0].legend(fontsize=9)
    figure.suptitle("Sensitivity of the Gibbs solver to its step sizes")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def boundary_figure(path: Path, *, seed: int, noise_level: int = 55, rate: float = 0.4) -> Path:
    """One draw: decision boundaries of SVM and GEM-MED, and the training samples GEM-MED refused."""
    plt = pyplot()
    ring = draw(noise_level, rate, seed=[seed, noise_level, round(100 * rate), 0])
    svm, _ = METHODS["SVM"](ring, rate)
    gem_med, _ = METHODS["GEM-MED, auto"](ring, rate)
    figure, axes = plt.subplots(figsize=(8.5, 6.5), layout="constrained")
    reach = 1.15 * np.abs(ring.X).max()
    grid = np.linspace(-reach, reach, 300)
    points = np.column_stack([part.ravel() for part in np.meshgrid(grid, grid)])
    believed = gem_med.predict_proba(points)[:, 1].reshape(300, 300)
    axes.contourf(grid, grid, believed, levels=np.linspace(0, 1, 11), cmap="RdBu", alpha=0.35)
    axes.contour(grid, grid, believed, levels=[0.5], colors="#08306b", linewidths=2.5)
    other = svm.decision_function(points).reshape(300, 300)
    axes.contour(grid, grid, other, levels=[0.0], colors="#888888", linewidths=1.5, linestyles="--")
    for sign, color in ((-1.0, "#b2182b"), (1.0, "#2166ac")):
        own = ring.y == sign
        axes.scatter(*ring.X[own].T, s=18, color=color, label=f"class {sign:+.0f}")
    refused = gem_med.posterior_ < 0.5
    axes.scatter(*ring.X[refused].T, s=110, facecolor="none", edgecolor="black", label=f"refused ({refused.sum()})")
    axes.plot([], [], color="#08306b", linewidth=2.5, label="GEM-MED")
    axes.plot([], [], color="#888888", linestyle="--", label="SVM")
    correct = int((refused == ring.anomalous).sum())
    errors = [100 * np.mean(model.predict(ring.X_test) != ring.y_test) for model in (gem_med, svm)]
    axes.set(
        xlabel="feature 1, in nominal standard deviations",
        ylabel="feature 2",
        title=f"{rate:.0%} of the training samples are corrupted; {correct} of {len(refused)} judged rightly\n"
        f"test error: GEM-MED {errors[0]:.1f} %, SVM {errors[1]:.1f} %, best possible 24.0 %",
        xlim=(-reach, reach),
        ylim=(-reach, reach),
        aspect="equal",
    )
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
