"""Few numbers for each sensor of an array: principal components of all sensors together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.learners._arrays import Flags, Floats
from pipeline.learners.robust_pca import RobustPCA

_MOST_ROWS = 3000
"""Of which components are found; more would cost minutes and change little."""
_FEWEST_ROWS = 20


@dataclass(frozen=True, slots=True)
class ArrayComponents:
    """Each sensor has a middle of its own, all have the same axes.

    Sensors of one kind hear the same kind of sound. One that fails half of the time would own axes that were made for
    it alone; here the sound sensors outvote it. A sensor that was hardly ever there has neither.
    """

    means: Floats  # (sensors, values)
    axes: Floats  # (sensors, components, values)

    @classmethod
    def learn(cls, X: NDArray[Any], present: Flags, n_components: int) -> Self:
        """From values (segments, sensors, values); fewer components if the segments have no more."""
        _, n_sensors, n_values = X.shape
        there = present & (present.sum(axis=0) >= _FEWEST_ROWS)
        n_components = min(n_components, n_values, int(there.sum()) - 1)
        if n_components < 1:
            raise ValueError(
                f"{len(X)} segments are too few to learn from, at least {_FEWEST_ROWS} of a sensor are needed"
            )
        means, axes = np.zeros((n_sensors, n_values)), np.zeros((n_sensors, n_components, n_values))
        for s in np.flatnonzero(there.any(axis=0)):
            means[s] = np.median(X[there[:, s], s], axis=0)
        rows, columns = np.nonzero(there)
        chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(np.int64))
        rows, columns = rows[chosen], columns[chosen]
        axes[there.any(axis=0)] = (
            RobustPCA(n_components=n_components).fit(X[rows, columns] - means[columns]).components_
        )
        return cls(means, axes)

    def transform(self, X: NDArray[Any]) -> Floats:
        """(segments, sensors, components), NaN where a sensor is absent or has no axes."""
        found = np.stack([(X[:, s] - self.means[s]) @ self.axes[s].T for s in range(len(self.means))], axis=1)
        found[:, ~self.axes.any(axis=(1, 2))] = np.nan
        return found

    def power_kept(self, X: NDArray[Any], present: Flags) -> list[float | None]:
        """Typical share of a segment's power that the components of a sensor hold."""
        shares: list[float | None] = []
        for s, (mean, axes) in enumerate(zip(self.means, self.axes, strict=True)):
            about = X[present[:, s], s] - mean
            kept, whole = (np.einsum("ij,ij->i", x, x) for x in (about @ axes.T, about))
            shares.append(float(np.median(kept / np.maximum(whole, 1e-12))) if axes.any() else None)
        return shares
