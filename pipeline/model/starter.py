"""The model that comes with the package, for the simulated array."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.errors import ModelError
from pipeline.model.archive import identity_in
from pipeline.model.model import Model

STARTER = Path(__file__).parents[1] / "starter"


def starter_model(rate_hz: int, n_sensors: int) -> Model | None:
    """Return the packaged model if it fits an array; None if it does not, or cannot be read."""
    try:
        model = Model.load(STARTER)
    except ModelError:
        return None
    return model if (model.grid.rate_hz, model.n_sensors) == (rate_hz, n_sensors) else None


def is_starter(model: Model) -> bool:
    """Return whether a model is the packaged one."""
    try:
        return identity_in(STARTER) == model.identity
    except ModelError:
        return False
