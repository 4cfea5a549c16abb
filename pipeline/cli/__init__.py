"""The command `gemmed`. Everything heavy is imported inside the commands, so that help is instant."""

from pipeline.cli import service, passages, offline, edge, fleet, experiments  # isort: skip  # noqa: F401 (they add commands)
from pipeline.cli.app import app

__all__ = ["app"]
