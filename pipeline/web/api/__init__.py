"""The API, a module for each thing that can be asked about."""

from __future__ import annotations

from pipeline.web.api import (
    activity,
    events,
    explanation,
    labels,
    models,
    monitoring,
    passages,
    review,
    sensors,
    session,
    settings,
    sound,
    status,
    timeline,
)

ROUTERS = (
    status.router,
    events.router,
    explanation.router,
    sound.router,
    timeline.router,
    passages.router,
    activity.router,
    models.router,
    review.router,
    labels.router,
    sensors.router,
    settings.router,
    monitoring.router,
    session.router,
)
