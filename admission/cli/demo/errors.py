"""Errors of a demo, other than broken promises.

SluiceError
    DemoError
        BadTrace        the trace file is missing or invalid
        ChildDied       one of the processes of the demo exited unexpectedly
"""

from __future__ import annotations

from admission.model.errors import SluiceError


class DemoError(SluiceError):
    """The demo cannot start or cannot continue."""


class BadTrace(DemoError):
    """A trace file that cannot be replayed."""


class ChildDied(DemoError):
    """A process of the demo exited. The message ends with the last lines of its output."""
