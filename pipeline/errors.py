"""Errors a user can cure. Each message names the thing, its value, the rule and the cure.

GemmedError
├── UsageError      a command or a file that cannot be used as given
├── SettingsError   a setting outside its range
├── SourceError     sound that cannot be had
└── ModelError      a model that cannot be loaded or stored
"""


class GemmedError(Exception):
    """Anything gemmed reports in one line instead of a traceback."""


class UsageError(GemmedError):
    """A command or a file that cannot be used as given."""


class SettingsError(GemmedError):
    """A setting outside its range."""


class SourceError(GemmedError):
    """Sound that cannot be had."""


class ModelError(GemmedError):
    """A model that cannot be loaded or stored."""
