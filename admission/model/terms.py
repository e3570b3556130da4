"""Terms of admission: what the user of a workload permits, or waits for, beside quota."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one workload; most have `NO_TERMS`."""

    may_borrow: bool = True
    """Whether it may use more than the nominal quota of its ClusterQueue."""
    preempts: bool = True
    """Whether others may be preempted for it."""

    def document(self) -> dict[str, Any] | None:
        """Return the terms as JSON for the database; None: there are none."""
        if self == NO_TERMS:
            return None
        flags = {"cannotBorrow": not self.may_borrow, "cannotPreempt": not self.preempts}
        return {name: True for name, is_set in flags.items() if is_set}

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Terms:
        """Return the terms of a document; those that this version does not know are ignored."""
        if not document:
            return NO_TERMS
        return cls(may_borrow=not document.get("cannotBorrow"), preempts=not document.get("cannotPreempt"))


NO_TERMS: Final = Terms()
