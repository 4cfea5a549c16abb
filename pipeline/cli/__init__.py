"""The command `gemmed`. Everything heavy is imported inside the commands, so that help is instant."""

from pipeline.cli import daemon, passages, offline, publish, fleet, reproduce  # isort: skip  # noqa: F401 (they add commands)
from pipeline.cli.main import app

__all__ = ["app"]
