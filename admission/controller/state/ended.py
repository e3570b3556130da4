"""Workloads that are over, so that what is told of them late does not queue them once more."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from admission.controller.state.tracked import is_older

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_REMEMBERED: Final = 20_000
"""Ends that are remembered in a lead: more than a watch lags behind."""


class EndedWorkloads:
    """By uid, up to which version of its object each is over.

    A watch may lag behind what other requests were answered, and behind what a former leader has seen: it still tells
    of objects as they were before the end. An object that has changed since may queue again, as one that is run anew.
    """

    def __init__(self, before: Iterable[str] = ()) -> None:
        """`before`: uids of those that had ended before this lead, oldest first, of which no version is known."""
        self._versions = OrderedDict.fromkeys(before, "")

    def add(self, uid: str, version: str) -> None:
        """A workload has ended; `version` is its object's resourceVersion, empty if the object is gone."""
        self._versions[uid] = version
        if len(self._versions) > MOST_REMEMBERED:
            self._versions.popitem(last=False)

    def has(self, uid: str, version: str) -> bool:
        """Whether an object of this resourceVersion belongs to a workload that is over."""
        ended = self._versions.get(uid)
        return ended is not None and not is_older(ended, version)

    def forget(self, uids: Iterable[str]) -> None:
        """They are there after all."""
        for uid in uids:
            self._versions.pop(uid, None)
