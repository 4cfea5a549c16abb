"""Few numbers for each sensor of an array: principal components of all sensors together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.learners._arrays import Flags, Floats
from pipeline.learners._robust import robust_spread

_MOST_ROWS = 3000
"""Of which components are found; more would cost minutes and change little."""
_FEWEST_ROWS = 20
_LARGEST = 8.0
"""Robust standard deviations beyond which a scaled value is clipped."""
_SMALLEST_SCALE = 1e-6


@dataclass(frozen=True, slots=True)
class ArrayComponents:
    """Principal components of the values of every sensor: ``axes @ clip((values - means) / scales, ±limits)``.

    Each sensor has its own means; scales and axes are common to all, so a sensor that fails half of the time cannot
    claim axes for its failures. A sensor that was hardly ever present has axes of zeros.
    """

    means: Floats  # (sensors, values)
    scales: Floats  # (values,)
    limits: Floats  # (values,): infinite where values are not clipped
    axes: Floats  # (sensors, components, values)

    @classmethod
    def learn(
        cls, X: NDArray[Any], present: Flags, n_components: int, *, weights: NDArray[np.float64] | None = None
    ) -> Self:
        """From values (segments, sensors, values); fewer components if the segments have no more.

        With `weights`, one for each value, values are divided by their robust standard deviation, pooled over the
        sensors, clipped, and multiplied by their weight. Without, they are taken as they are.
        """
        _, n_sensors, n_values = X.shape
        there = present & (present.sum(axis=0) >= _FEWEST_ROWS)
        n_components = min(n_components, n_values, int(there.sum()) - 1)
        if n_components < 1:
            raise ValueError(
                f"{len(X)} segments are too few to learn from, at least {_FEWEST_ROWS} of a sensor are needed"
            )
        used = there.any(axis=0)
        means = np.zeros((n_sensors, n_values))
        for s in np.flatnonzero(used):
            means[s] = np.median(X[there[:, s], s], axis=0)
        scales, limits = np.ones(n_values), np.full(n_values, np.inf)
        if weights is not None:
            rows, columns = np.nonzero(there)
            spread = robust_spread(X[rows, columns] - means[columns])
            scales, limits = (spread + _SMALLEST_SCALE) / weights, _LARGEST * weights
        axes = np.zeros((n_sensors, n_components, n_values))
        components = cls(means, scales, limits, axes)
        from pipeline.learners.robust_pca import RobustPCA  # loads scikit-learn, which deciding does not need

        rows, columns = _some_of(there)
        scaled = components.scaled(X[rows, columns], columns)
        axes[used] = RobustPCA(n_components=n_components).fit(scaled).components_
        return components

    def divided(self, scales: NDArray[np.float64]) -> Self:
        """The same with every component of a sensor divided by the scale of the sensor."""
        return replace(self, axes=self.axes / scales[:, None, None])

    def as_arrays(self) -> dict[str, NDArray[np.float32]]:
        return {field.name: getattr(self, field.name).astype(np.float32) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(**arrays)

    def scaled(self, values: NDArray[Any], sensors: Any) -> Floats:
        """Values of one sensor, or of one sensor for each row, as the axes expect them."""
        clipped: Floats = np.clip((values - self.means[sensors]) / self.scales, -self.limits, self.limits)
        return clipped

    def transform(self, X: NDArray[Any]) -> Floats:
        """(segments, sensors, components), NaN where a sensor is absent or has no axes."""
        found = np.stack([self.scaled(X[:, s], s) @ self.axes[s].T for s in range(len(self.means))], axis=1)
        found[:, ~self.axes.any(axis=(1, 2))] = np.nan
        return found

    def power_kept(self, X: NDArray[Any], present: Flags) -> list[float | None]:
        """Typical share of a segment's power that the components of a sensor hold."""
        shares: list[float | None] = []
        for s, axes in enumerate(self.axes):
            about = self.scaled(X[present[:, s], s], s)
            kept, whole = (np.einsum("ij,ij->i", x, x) for x in (about @ axes.T, about))
            shares.append(float(np.median(kept / np.maximum(whole, 1e-12))) if axes.any() else None)
        return shares


def _some_of(there: Flags) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Segments and sensors of at most `_MOST_ROWS` rows, evenly spread."""
    rows, columns = np.nonzero(there)
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(np.int64))
    return rows[chosen], columns[chosen]
