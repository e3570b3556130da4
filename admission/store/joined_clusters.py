"""What the leader knows of the clusters that have joined: their status, and by which uid each is recognised."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import delete, select

from admission.store.database.tables import clusters

if TYPE_CHECKING:
    from collections.abc import Collection

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

    async def note(self, cluster: JoinedCluster) -> None:
        """Write a cluster. Raises StoreError."""
        async with self._database.write() as connection:
            await connection.execute(delete(clusters).where(clusters.c.name == cluster.name))
            await connection.execute(clusters.insert(), cluster._asdict())

    async def keep(self, names: Collection[str]) -> None:
        """Delete the clusters of other names. Raises StoreError."""
        async with self._database.write() as connection:
            await connection.execute(delete(clusters).where(clusters.c.name.not_in(list(names))))
