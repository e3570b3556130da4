"""Rows of admission checks and admins' orders: written by the leader's commit, read into records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select, update

from admission.model.checks import PodSetUpdate
from admission.store.database.dialects import upsert
from admission.store.database.tables import workload_checks, workload_orders, workloads
from admission.store.records import CheckRecord, Order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import ColumnElement, Connection, RowMapping

    from admission.store.records import Changes, Document


def write(connection: Connection, changes: Changes, *, revision: int) -> None:
    """Write the checks, dropped checks and deactivations of `changes`, within the leader's transaction."""
    if changes.dropped_checks:
        connection.execute(_DROP, [{"of": uid, "check": name} for uid, name in changes.dropped_checks])
    if changes.checks:
        statement = upsert(connection.dialect.name, workload_checks)
        connection.execute(statement, [check_row(check, revision) for check in changes.checks])
    if changes.deactivated:
        connection.execute(_CLEAR_ACTIVE, [{"of": uid, "new": revision} for uid in changes.deactivated])


def check_row(check: CheckRecord, revision: int) -> Document:
    """Return the row of a check, as written by `revision`."""
    return {
        "workload_uid": check.uid,
        "name": check.name,
        "revision": revision,
        "state": check.state,
        "message": check.message,
        "at": check.at,
        "requeue_after_seconds": check.requeue_after_seconds,
        "retries": check.retries,
        "pod_set_updates": [
            one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in check.pod_set_updates
        ],
    }


def orders(connection: Connection, condition: ColumnElement[bool]) -> tuple[Order, ...]:
    """Return the orders about workloads that meet `condition`."""
    columns = workload_orders.c
    joined = workload_orders.join(workloads, workloads.c.uid == columns.workload_uid)
    rows = connection.execute(select(workload_orders).select_from(joined).where(condition))
    return tuple(as_order(row) for row in rows.mappings())


def checks(connection: Connection, condition: ColumnElement[bool]) -> tuple[CheckRecord, ...]:
    """Return the checks of workloads that meet `condition`, sorted by workload and name."""
    columns = workload_checks.c
    joined = workload_checks.join(workloads, workloads.c.uid == columns.workload_uid)
    rows = connection.execute(
        select(workload_checks).select_from(joined).where(condition).order_by(columns.workload_uid, columns.name)
    )
    return tuple(_check(row) for row in rows.mappings())


def as_order(row: RowMapping | Document) -> Order:
    """Return the order of a row."""
    return Order(uid=row["workload_uid"], **{name: value for name, value in row.items() if name != "workload_uid"})


def _check(row: RowMapping) -> CheckRecord:
    return CheckRecord(
        uid=row["workload_uid"],
        name=row["name"],
        state=row["state"],
        at=row["at"],
        message=row["message"],
        requeue_after_seconds=row["requeue_after_seconds"],
        retries=row["retries"],
        pod_set_updates=_updates(row["pod_set_updates"]),
        revision=row["revision"],
    )


def _updates(documents: Iterable[Document]) -> tuple[PodSetUpdate, ...]:
    return tuple(PodSetUpdate.model_validate(document) for document in documents)


_OF = workload_checks.c.workload_uid == bindparam("of")
_DROP = workload_checks.delete().where(_OF, workload_checks.c.name == bindparam("check"))
_CLEAR_ACTIVE = (
    update(workload_orders)
    .where(workload_orders.c.workload_uid == bindparam("of"))
    .values(active=None, revision=bindparam("new"))
)
