"""The identity of the database, and of the cluster whose workloads it has.

Both travel with every copy of it, `sluice export` and `sluice import` included.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select, update

from admission.store.database.tables import head

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database


class Identity(NamedTuple):
    """The identity of a database."""

    database: str
    """A UUID, the same in every copy."""
    cluster: str
    """The identity of the cluster that it decided for last; empty: for none yet."""
    epoch: int
    """The epoch of its last leader. Of two copies, that with the higher one was used later."""
    revision: int
    """How far it has got. Of two copies, that with the higher one was used later; an import begins another epoch."""


async def read(database: Database) -> Identity:
    """The identity, which is made when it is asked for first."""
    async with database.read() as connection:
        found = await _noted(connection)
    if found.database:
        return found
    async with database.write() as connection:
        # Several replicas may start at the same time: the first one gives the name.
        await connection.execute(update(head).where(head.c.identity.is_(None)).values(identity=str(uuid.uuid4())))
        return await _noted(connection)


async def note_cluster(database: Database, cluster: str) -> None:
    """Set the cluster to which the workloads belong."""
    async with database.write() as connection:
        await connection.execute(update(head).values(cluster=cluster))


async def _noted(connection: AsyncConnection) -> Identity:
    columns = select(head.c.identity, head.c.cluster, head.c.epoch, head.c.revision)
    row = (await connection.execute(columns)).one()
    return Identity(row.identity or "", row.cluster or "", row.epoch, row.revision)
