"""Errors a user can cure. Each message names the thing, its value, the rule and the cure.

GemmedError
├── UsageError      a command or a file that cannot be used as given
│   └── NotFound    something that is named and not there
├── SettingsError   a setting outside its range
├── SourceError     sound that cannot be had
├── ModelError      a model that cannot be loaded or stored
├── StorageError    a journal or a disk that cannot be written to or read
├── StateError      a stored state that cannot be taken up
└── LinkError       another machine that cannot be reached, or does not take what it is sent
"""


class GemmedError(Exception):
    """Anything gemmed reports in one line instead of a traceback."""


class UsageError(GemmedError):
    """A command or a file that cannot be used as given."""


class NotFound(UsageError):
    """Something that is named and not there."""


class SettingsError(GemmedError):
    """A setting outside its range."""


class SourceError(GemmedError):
    """Sound that cannot be had."""


class ModelError(GemmedError):
    """A model that cannot be loaded or stored."""


class StorageError(GemmedError):
    """A journal or a disk that cannot be written to or read."""

    def __init__(self, message: str, *, damaged: bool = False) -> None:
        super().__init__(message)
        self.damaged = damaged
        """Whether what is stored is no longer what was written; else there may be space again later."""


class StateError(GemmedError):
    """A stored state that cannot be taken up."""


class LinkError(GemmedError):
    """Another machine that cannot be reached, or does not take what it is sent."""

    def __init__(self, message: str, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        """Before then it does not want to hear of us again."""
