"""Work queue of pod groups to be updated: deduplicates, and delays updates of large and incomplete groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission.controller.state.inbox import Inbox

_LARGE: Final = 200
"""Number of pods of a group above which its updates are rate-limited, as each reads all of its pods."""
_PAUSE: Final = 10.0
"""Minimum pause after the update of a large group, in multiples of the update's duration."""
MAX_WAIT: Final = 1.0
"""Seconds that a new group waits for objects that it refers to: their watch may lag behind the watch of pods."""

_Key = tuple[str, str]
"""Namespace and name of a group."""


class GroupUpdates:
    """Groups that are due now, after a pause, or when an object that they refer to is observed."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.due: dict[_Key, None] = {}
        """Groups to update now, in order of arrival."""
        self._not_before: dict[_Key, float] = {}
        """Time (`loop.time`) before which a large group is not updated again."""
        self._scheduled: set[_Key] = set()
        """Large groups whose update is scheduled for that time."""
        self._waiting: dict[_Key, bool] = {}
        """New groups that refer to unknown objects; the value says whether MAX_WAIT is over."""

    def enqueue(self, key: _Key) -> None:
        """Make a group due now."""
        self.due[key] = None

    def pods_changed(self, key: _Key) -> None:
        """Make a group due now, or after its pause if it is large: its pods change one by one.

        Until then decisions are based on the last update.
        """
        due = self._not_before.get(key, 0.0)
        if not due or due <= (loop := asyncio.get_running_loop()).time():
            self.due[key] = None
        elif key not in self._scheduled:
            self._scheduled.add(key)
            loop.call_at(due, self._pause_ended, key)

    def _pause_ended(self, key: _Key) -> None:
        self._scheduled.discard(key)
        self.due[key] = None
        self._inbox.wake()

    def must_wait(self, key: _Key, *, is_incomplete: bool) -> bool:
        """Return whether to skip the update of a new group: objects that it refers to may be observed within MAX_WAIT.

        `is_incomplete`: there are unknown ones. The group becomes due again when one is observed, or after MAX_WAIT.
        """
        if not is_incomplete:
            self._waiting.pop(key, None)
        elif key not in self._waiting:
            self._waiting[key] = False
            asyncio.get_running_loop().call_later(MAX_WAIT, self._wait_ended, key)
        return is_incomplete and not self._waiting[key]

    def _wait_ended(self, key: _Key) -> None:
        if key in self._waiting:
            self._waiting[key] = True
            self._pause_ended(key)

    def updated(self, key: _Key, pods: int, seconds: float) -> None:
        """Note that a group with this number of pods was updated, and the duration of the update."""
        self._not_before.pop(key, None)
        if not pods:
            self._waiting.pop(key, None)
        if pods > _LARGE:
            self._not_before[key] = asyncio.get_running_loop().time() + _PAUSE * seconds
