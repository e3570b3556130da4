"""What can go wrong with a demo that is not a broken promise.

SluiceError
    DemoError
        BadTrace        the trace file is missing, or is not such a file
        ChildDied       one of the processes that make up the demo ended by itself, or did not start
"""

from __future__ import annotations

from admission.model.errors import SluiceError


class DemoError(SluiceError):
    """The demo cannot be run, or cannot go on."""


class BadTrace(DemoError):
    """A trace file that cannot be replayed."""


class ChildDied(DemoError):
    """A process of the demo is gone. The message ends with the last lines that it wrote."""
