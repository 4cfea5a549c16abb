"""Which optional packages are installed."""

from __future__ import annotations

from importlib.util import find_spec


def without_web() -> str | None:
    """What to do where the packages are missing that serve pages."""
    if all(find_spec(name) for name in ("fastapi", "uvicorn", "prometheus_client")):
        return None
    return "the packages for a dashboard are not installed; pip install 'gemmed[web]', or set web.enabled = false"
