"""Finds the workloads whose changes cannot be written, after a transaction was refused for its content.

A value that a column does not take, a constraint that one row violates: the database is well, and all that the others
wanted can be written. The changes are tried in halves, each within a savepoint, until those that fail are alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import IntegrityError

from admission.store.database.driver_errors import is_database_failure
from admission.store.errors import ContradictsLedger, Unwritable
from admission.store.records import Changes
from admission.store.workloads.commit import apply

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from admission.store.workloads.commit import Begun


def write_apart(connection: Connection, changes: Changes, begun: Begun) -> Unwritable | None:
    """Write all that can be written of changes that could not be written as a whole; what could not, or None.

    Raises Unwritable, so that nothing of the transaction is kept, if some of what cannot be written moves quota: then
    others may have been given what is not free.
    """
    faults: dict[str, Exception] = {}
    _write(connection, changes, begun, sorted(_uids(changes)), faults)
    if not faults:
        return None
    first = next(iter(faults.values()))
    message = f"{len(faults)} workloads cannot be written, the first one because of: {_said(first)}"
    movers = {one.uid for one in changes.closed}
    movers |= {one.workload.uid for one in changes.opened} | {one.workload.uid for one in changes.resized}
    if not movers.isdisjoint(faults):
        if all(isinstance(fault, IntegrityError) for fault in faults.values()):
            message = f"the changes contradict what is in the database: {_said(first)}"
            raise ContradictsLedger(message, faults) from first
        raise Unwritable(message, faults) from first
    return Unwritable(message, faults, revision=begun.revision)


def _said(error: Exception) -> str:
    lines = str(getattr(error, "orig", error)).splitlines()
    return lines[0] if lines else type(error).__name__


def _write(
    connection: Connection, changes: Changes, begun: Begun, uids: list[str], faults: dict[str, Exception]
) -> None:
    part = _only(changes, set(uids))
    try:
        with connection.begin_nested():
            apply(connection, part, begun)
    except Exception as error:
        if is_database_failure(error):
            raise
        if len(uids) <= 1:
            faults.update(dict.fromkeys(uids, error))
            return
        middle = len(uids) // 2
        for half in (uids[:middle], uids[middle:]):
            _write(connection, changes, begun, half, faults)


def _uids(changes: Changes) -> set[str]:
    return {
        *(record.workload.uid for record in changes.workloads),
        *(one.workload.uid for one in changes.opened),
        *(one.workload.uid for one in changes.resized),
        *(one.uid for one in changes.closed),
        *(one.uid for one in changes.transitions),
        *(one.uid for one in changes.checks),
        *(uid for uid, _ in changes.dropped_checks),
        *changes.deactivated,
    }


def _only(changes: Changes, uids: set[str]) -> Changes:
    """The changes of these workloads alone."""
    return Changes(
        workloads=tuple(one for one in changes.workloads if one.workload.uid in uids),
        closed=tuple(one for one in changes.closed if one.uid in uids),
        opened=tuple(one for one in changes.opened if one.workload.uid in uids),
        transitions=tuple(one for one in changes.transitions if one.uid in uids),
        checks=tuple(one for one in changes.checks if one.uid in uids),
        dropped_checks=tuple(one for one in changes.dropped_checks if one[0] in uids),
        deactivated=tuple(uid for uid in changes.deactivated if uid in uids),
        resized=tuple(one for one in changes.resized if one.workload.uid in uids),
        known=changes.known,
    )
