"""What the leader knows of clusters: their status, by which uid each is recognised, and what their nodes have."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import delete, select, update

from admission.model.capacity import Capacity, SeenCapacity
from admission.model.workload import LOCAL
from admission.store.database.tables import cluster_capacities, clusters, head
from admission.store.errors import StaleEpoch

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database


class JoinedCluster(NamedTuple):
    """A cluster as the leader sees it."""

    name: str
    identity: str
    """Uid of its namespace kube-system; empty: not known yet."""
    state: str
    """Active, Connecting, Lost, Draining or Disabled."""
    since: float
    """Unix time (s) since when it is in this state."""
    message: str
    """Why, for users."""
    key: str | None = None
    """Secret that signs the copies which are sent there; None: there is none yet."""


class JoinedClusters:
    """The rows of `clusters`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> dict[str, JoinedCluster]:
        """Return all by name. Raises StoreError."""
        columns = clusters.c
        statement = select(columns.name, columns.identity, columns.state, columns.since, columns.message, columns.key)
        async with self._database.read() as connection:
            return {row.name: JoinedCluster(*row) for row in await connection.execute(statement)}

    async def known_as(self, identity: str, *, besides: str) -> str:
        """Return the other name than `besides` under which a cluster is known; empty: it is known under none."""
        async with self._database.read() as connection:
            own = await connection.scalar(select(head.c.cluster))
            return await _known_as(connection, identity, besides=besides, own=own)

    async def note(self, cluster: JoinedCluster, *, epoch: int) -> str:
        """Write a cluster, unless it is known under another name: return that name, else an empty string.

        The first name under which an identity was written keeps it; the cluster of the database itself is `local`.
        Raises StoreError, and StaleEpoch if another leader has taken over.
        """
        async with self._database.write() as connection:
            own = await _lock(connection, epoch)
            if other := await _known_as(connection, cluster.identity, besides=cluster.name, own=own):
                return other
            await connection.execute(delete(clusters).where(clusters.c.name == cluster.name))
            await connection.execute(clusters.insert(), cluster._asdict())
        return ""

    async def keep(self, names: Collection[str], *, epoch: int) -> None:
        """Delete the clusters of other names. Raises StoreError, and StaleEpoch as `note` does."""
        async with self._database.write() as connection:
            await _lock(connection, epoch)
            await connection.execute(delete(clusters).where(clusters.c.name.not_in(list(names))))
            # That of `local` is seen as long as there is another one.
            seen = [*names, LOCAL] if set(names) - {LOCAL} else []
            await connection.execute(delete(cluster_capacities).where(cluster_capacities.c.name.not_in(seen)))

    async def capacities(self) -> dict[str, SeenCapacity]:
        """Return what the nodes of clusters have, by name of the cluster; none for one that was never looked at."""
        columns = cluster_capacities.c
        statement = select(columns.name, columns.seen, columns.capacity, columns.failure)
        async with self._database.read() as connection:
            return {
                row.name: SeenCapacity(row.seen, Capacity(**row.capacity), row.failure)
                for row in await connection.execute(statement)
            }

    async def note_capacity(self, name: str, found: SeenCapacity, *, epoch: int) -> None:
        """Write what a look at the nodes of a cluster has found. After a failure, what was seen before stays.

        Raises StoreError, and StaleEpoch as `note` does.
        """
        table = cluster_capacities
        new = {"seen": found.seen, "capacity": asdict(found.capacity), "failure": found.failure}
        changed = {"failure": found.failure} if found.failure else new
        async with self._database.write() as connection:
            await _lock(connection, epoch)
            result = await connection.execute(update(table).where(table.c.name == name).values(changed))
            if not result.rowcount:
                await connection.execute(table.insert(), {"name": name, **new})


async def _known_as(connection: AsyncConnection, identity: str, *, besides: str, own: str | None) -> str:
    """Return the name of a cluster; empty: it has none but `besides`. `own`: identity of the database's own cluster."""
    if not identity:
        return ""
    if identity == own:
        return LOCAL
    same = clusters.c.identity == identity, clusters.c.name != besides
    return str(await connection.scalar(select(clusters.c.name).where(*same)) or "")


async def _lock(connection: AsyncConnection, epoch: int) -> str | None:
    """Lock the row of `head`, and return the identity of the database's own cluster. Raises StaleEpoch."""
    row = (await connection.execute(select(head.c.epoch, head.c.cluster).with_for_update())).one()
    if row.epoch != epoch:
        raise StaleEpoch(f"this Sluice is no longer the leader (its epoch is {epoch}); no cluster was written")
    return None if row.cluster is None else str(row.cluster)
