"""Failures that single workloads caused: count, messages, and backoff until the object changes.

An object that a user writes may raise an unforeseen exception anywhere between the watch and the database. That is a
defect of Sluice; it must not become an outage for all other workloads.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.model.errors import SluiceError
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

MAX_CAUSE_LENGTH = 300
"""Characters of an exception's text that messages and the log quote at most."""

IMMEDIATE_RETRIES = 2
"""Failures of one workload after which it may be retried immediately, as soon as it changes; then there is a backoff.

Each of these failures makes the leader reload its state, which delays all other workloads.
"""

MAX_BACKOFF = 300.0
"""Seconds for which changes of a workload that fails repeatedly are ignored at most."""


@dataclass(slots=True)
class Fault:
    """The last failure of one workload."""

    version: str
    """resourceVersion of the object that failed; another version is tried again. Empty: not known."""
    message: str
    """Message for the user."""
    is_ignored: bool = False
    """Whether the failure itself could not be recorded either: the workload is then ignored altogether."""
    count: int = 1
    """Number of failures."""
    not_before: float = 0.0
    """Unix time (s) of the end of the backoff: until then it is not retried, even if its object changes."""


class Faults:
    """Failures since the start of the process, which outlast the leader's state. `clock` returns Unix time (s)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        """Number of failures since the start of the process."""
        self._clock = clock
        self.by_uid: dict[str, Fault] = {}
        """Failures of workloads by uid, regardless of the versions of their objects."""
        self._suspects: set[str] = set()
        """Uids passed to `note_suspect` before."""
        self._logged: set[tuple[str, ...]] = set()
        """Exception types and code locations whose traceback was logged: `("KeyError", "/app/x.py:12")`."""

    def __len__(self) -> int:
        return len(self.by_uid)

    def note(self, uid: str, version: str, error: Exception) -> Fault:
        """Store a failure of a workload. If this version of its object has failed before, it is ignored from now on."""
        message = f"Sluice cannot handle it ({cause(error)}); it is tried again when it changes"
        if isinstance(error, SluiceError):
            message = clean(str(error))
        fault = Fault(version, message)
        if (before := self.by_uid.get(uid)) is not None:
            fault.count = before.count + 1
            fault.is_ignored = before.version == version
            fault.not_before = before.not_before
        self.by_uid[uid] = fault
        self.report(f"workload {uid}", error)
        return fault

    def report(self, what: str, error: Exception) -> None:
        """Count and log a failure; with its traceback if it is the first of this type at this code location."""
        self.count += 1
        frames = traceback.extract_tb(error.__traceback__)[-1:]
        place = (type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in frames))
        known = place in self._logged
        self._logged.add(place)
        log.error("%s is left alone: %s%s", what, cause(error), "" if known else f"\n{_traceback(error)}")

    def note_suspect(self, uid: str) -> bool:
        """Note that a workload may have caused a failure; return whether it was suspected before."""
        known = uid in self._suspects
        self._suspects.add(uid)
        return known

    def start_backoff(self, uid: str) -> float:
        """Start the backoff of a workload that made the leader reload its state; return its length in seconds."""
        fault = self.by_uid[uid]
        pause = 0.0 if fault.count <= IMMEDIATE_RETRIES else min(2.0**fault.count, MAX_BACKOFF)
        fault.not_before = self._clock() + pause
        return pause

    def of(self, uid: str, version: str) -> Fault | None:
        """Return the failure because of which this version of an object is not processed; None: it is processed."""
        fault = self.by_uid.get(uid)
        if fault is None or (fault.version != version and self._clock() >= fault.not_before):
            return None
        return fault

    def forget(self, uid: str) -> None:
        """Forget a workload whose object was deleted."""
        self.by_uid.pop(uid, None)
        self._suspects.discard(uid)


def _traceback(error: Exception) -> str:
    """Return the traceback without the text of the exception, which may be as long as a manifest."""
    return "".join(traceback.format_tb(error.__traceback__)).rstrip()


def cause(error: Exception) -> str:
    """Return type and first line of an exception's text: `OverflowError: Python int too large`."""
    lines = str(error).splitlines()
    return clean(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__, longest=MAX_CAUSE_LENGTH)
