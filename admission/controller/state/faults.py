"""Workloads that made Sluice fail: remembered, so that each is left alone until it changes, and counted.

What a user writes may raise what nobody has thought of, anywhere between the watch and the database. That is a defect
of Sluice's; it must not become an outage for all others.
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

LONGEST_CAUSE = 300
"""Characters of an exception's text that are quoted in messages and in the log."""

PATIENCE = 2
"""Failures of one workload that may cost the others a new beginning at once; after further ones it has to wait."""

LONGEST_PAUSE = 300.0
"""Seconds, at most, for which changes of a workload that fails again and again are not looked at."""


@dataclass(slots=True)
class Fault:
    """What is known of one workload that failed."""

    version: str
    """The resourceVersion of the object that failed; another one is tried again. Empty: it was not known."""
    message: str
    """For its user."""
    is_ignored: bool = False
    """Whether not even its failure could be recorded: then it is as if it were not there."""
    count: int = 1
    """How often it failed."""
    not_before: float = 0.0
    """It is not tried again before then, whatever changes."""


class Faults:
    """The memory of them; it lasts as long as the process. `clock` gives seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        """How often something failed since the start."""
        self._clock = clock
        self.by_uid: dict[str, Fault] = {}
        """What is known of workloads, whatever the versions of their objects."""
        self._suspects: set[str] = set()
        self._logged: set[tuple[str, ...]] = set()

    def __len__(self) -> int:
        return len(self.by_uid)

    def note(self, uid: str, version: str, error: Exception) -> Fault:
        """A workload failed. If it had failed at this version before, it is ignored from now on."""
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
        """Count and log a failure, with its traceback the first time that it happens in this place."""
        self.count += 1
        frames = traceback.extract_tb(error.__traceback__)[-1:]
        place = (type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in frames))
        known = place in self._logged
        self._logged.add(place)
        log.error("%s is left alone: %s%s", what, cause(error), "" if known else f"\n{_where(error)}")

    def suspect(self, uid: str) -> bool:
        """Whether this is not the first time that it is suspected of being at fault."""
        known = uid in self._suspects
        self._suspects.add(uid)
        return known

    def postpone(self, uid: str) -> float:
        """It cost the others a new beginning: the seconds that it has to wait before it is tried again."""
        fault = self.by_uid[uid]
        pause = 0.0 if fault.count <= PATIENCE else min(2.0**fault.count, LONGEST_PAUSE)
        fault.not_before = self._clock() + pause
        return pause

    def of(self, uid: str, version: str) -> Fault | None:
        """Why a version of an object is left alone; None if it is not."""
        fault = self.by_uid.get(uid)
        if fault is None or (fault.version != version and self._clock() >= fault.not_before):
            return None
        return fault

    def forget(self, uid: str) -> None:
        """It is gone."""
        self.by_uid.pop(uid, None)
        self._suspects.discard(uid)


def _where(error: Exception) -> str:
    """The traceback, without the text of the exception, which may be as long as what a user wrote."""
    return "".join(traceback.format_tb(error.__traceback__)).rstrip()


def cause(error: Exception) -> str:
    """What went wrong, on one line: `OverflowError: Python int too large`."""
    lines = str(error).splitlines()
    return clean(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__, longest=LONGEST_CAUSE)
