"""Direction, speed and nearest point of a straight path, from the levels of sensors of known positions."""

from __future__ import annotations

from math import atan2, degrees, hypot, sqrt

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Mask, Movement, Numbers

_LEAST_DB = 3.0
"""Levels closer to the background than this say little about a distance."""
_FEWEST_LEVELS = 12
_STEPS = 200
_SIDES_M = (0.5, -0.5, 3.0, -3.0)
"""Distances of the first guesses from the center of the array."""
_SPEEDS_MPS = (0.3, 30.0)
_LARGEST_ERROR = 0.5
"""Relative standard error of the speed above which a path is not reported."""


def movement(seconds: Numbers, levels_db: Numbers, positions_m: Numbers) -> Movement | None:
    """Fit ``level = source - 20 log10 distance`` with a source that moves on a straight line at constant speed.

    `levels_db` (times, sensors) are above the background, NaN where a sensor has no part; positions (sensors, 2).
    Returns None if too little is known, or if no path explains the levels better than a source that stands still.
    """
    heard = np.isfinite(levels_db) & (levels_db > _LEAST_DB)
    if heard.sum() < _FEWEST_LEVELS or (heard.sum(axis=0) >= 3).sum() < 3:
        return None
    peaks = np.where(heard, levels_db, -np.inf).argmax(axis=0)
    begins = [_start(seconds, levels_db, heard, peaks, positions_m, side) for side in _SIDES_M]
    fits = [_fitted(begin, seconds, levels_db, heard, positions_m) for begin in begins]
    parameters, covariance, loss = min(fits, key=lambda fit: fit[2])
    x, y, vx, vy, _ = parameters.tolist()
    speed = hypot(vx, vy)
    if not _SPEEDS_MPS[0] <= speed <= _SPEEDS_MPS[1]:
        return None
    along = np.array([vx, vy]) / speed
    speed_error = sqrt(max(float(along @ covariance[2:4, 2:4] @ along), 0.0))
    across = np.array([-along[1], along[0]])
    direction_error = degrees(sqrt(max(float(across @ covariance[2:4, 2:4] @ across), 0.0)) / speed)
    nearest_error = sqrt(max(float(across @ covariance[:2, :2] @ across), 0.0))
    if not np.isfinite(loss) or speed_error > _LARGEST_ERROR * speed:
        return None
    center = positions_m[heard.any(axis=0)].mean(axis=0)
    offset = float(across @ (np.array([x, y]) - center))
    nearest = center + offset * across
    return Movement(
        degrees(atan2(vy, vx)) % 360,
        direction_error,
        speed,
        speed_error,
        (float(nearest[0]), float(nearest[1])),
        nearest_error,
    )


def _start(
    seconds: Numbers, levels_db: Numbers, heard: Mask, peaks: NDArray[np.int64], positions_m: Numbers, side: float
) -> Numbers:
    """Slowness from the times of the peaks, and a path beside the center of the array."""
    used = heard.any(axis=0)
    times, places = seconds[peaks[used]], positions_m[used]
    center = places.mean(axis=0)
    about = places - center
    # A ridge of one meter: positions on one line say nothing about the other direction.
    slowness = np.linalg.solve(about.T @ about + np.eye(2), about.T @ (times - times.mean()))
    velocity = slowness / max(float(slowness @ slowness), 1e-4)
    speed = max(hypot(*velocity.tolist()), _SPEEDS_MPS[0])
    across = np.array([-velocity[1], velocity[0]]) / speed
    loudest = float(np.nanmax(np.where(heard, levels_db, np.nan)))
    middle = float(times.mean()) - float(seconds.mean())
    return np.array([*(center + side * across - velocity * middle), *velocity, loudest + 10])


def _fitted(
    parameters: Numbers, seconds: Numbers, levels_db: Numbers, heard: Mask, positions_m: Numbers
) -> tuple[Numbers, Numbers, float]:
    """Levenberg and Marquardt; parameters, their covariance, and the mean squared residual."""
    at, sensor = np.nonzero(heard)
    t, wanted, places = (seconds - seconds.mean())[at], levels_db[at, sensor], positions_m[sensor]
    damping = 1e-2
    residual, jacobian = _residual(parameters, t, wanted, places)
    loss = float(residual @ residual)
    for _ in range(_STEPS):
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -(jacobian.T @ residual))
        tried = parameters + step
        new_residual, new_jacobian = _residual(tried, t, wanted, places)
        new_loss = float(new_residual @ new_residual)
        if new_loss < loss:
            done = loss - new_loss < 1e-9 * loss + 1e-12
            parameters, residual, jacobian, loss, damping = tried, new_residual, new_jacobian, new_loss, damping / 5
            if done:
                break
        else:
            damping *= 5
    # Levels of neighboring segments repeat each other: only one in four is new.
    freedom = max(len(residual) / 4 - len(parameters), 1.0)
    covariance: Numbers = np.asarray(np.linalg.pinv(jacobian.T @ jacobian) * loss / freedom, np.float64)
    return parameters, covariance, loss / len(residual)


def _residual(parameters: Numbers, t: Numbers, wanted: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
    """Differences in decibels, and their derivatives by position, velocity and level of the source."""
    x, y, vx, vy, level = parameters.tolist()
    dx, dy = x + vx * t - places[:, 0], y + vy * t - places[:, 1]
    squared = dx**2 + dy**2 + 0.25  # nobody walks through a microphone
    residual = level - 10 * np.log10(squared) - wanted
    slope = -20 / np.log(10) / squared
    jacobian = np.column_stack([slope * dx, slope * dy, slope * dx * t, slope * dy * t, np.ones(len(t))])
    return residual, jacobian
