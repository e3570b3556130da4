"""Isolation of the workloads whose changes the database rejects, so that the changes of all others can be written.

For data errors, such as a value that a column cannot store or a violated constraint. The changes are bisected by
workload, each part within a savepoint, until the failing workloads are alone.
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


def write_separately(connection: Connection, changes: Changes, begun: Begun) -> Unwritable | None:
    """Write the changes of all workloads that the database accepts; return the error of the others, or None.

    Raises Unwritable or ContradictsLedger, which rolls the transaction back, if a rejected change starts, ends or
    resizes an admission: other changes may depend on the quota that it moves.
    """
    faults: dict[str, Exception] = {}
    _write(connection, changes, begun, sorted(_uids(changes)), faults)
    if not faults:
        return None
    first = next(iter(faults.values()))
    message = f"{len(faults)} workloads cannot be written, the first one because of: {_first_line(first)}"
    moving_quota = {one.uid for one in changes.closed}
    moving_quota |= {one.workload.uid for one in changes.opened} | {one.workload.uid for one in changes.resized}
    if not moving_quota.isdisjoint(faults):
        if all(isinstance(fault, IntegrityError) for fault in faults.values()):
            message = f"the changes contradict what is in the database: {_first_line(first)}"
            raise ContradictsLedger(message, faults) from first
        raise Unwritable(message, faults) from first
    return Unwritable(message, faults, revision=begun.revision)


def _first_line(error: Exception) -> str:
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
    """Return the part of the changes that concerns these workloads."""
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
