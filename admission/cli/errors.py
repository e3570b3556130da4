"""What can go wrong at the command line, apart from what the parts below report.

CommandError
    InvalidSettings     a flag, environment variable or configuration file of `sluice serve`
    Unreachable         no answer from the Sluice that a command talks to
        NotReady        it answered, and was not ready in time
    Refused             it answered, and the answer was no
"""

from __future__ import annotations

from admission.model.errors import SluiceError


class CommandError(SluiceError):
    """A command cannot do what was asked."""


class InvalidSettings(CommandError):
    """A setting that cannot be used; the message names it and where it was given."""


class Unreachable(CommandError):
    """Sluice does not answer."""


class NotReady(Unreachable):
    """Sluice did not become ready in time."""


class Refused(CommandError):
    """Sluice refused a request. `code` is the HTTP status, `reason` that of the Kubernetes Status."""

    def __init__(self, message: str, *, code: int, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(message)
