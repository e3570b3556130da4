"""Lifecycle of a release with the chart and the built wheel; `make release-scene` plays a longer form."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest
from containers import may_unshare, next_release
from postgresql_server import PostgreSQL
from release_scene import play

from admission.store.database.tables import SCHEMA_VERSION


@pytest.mark.costly
@pytest.mark.postgres
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not may_unshare(), reason="needs the right to make mount namespaces, which root has")
async def test_release_is_installed_rotated_upgraded_rolled_back_and_removed_under_load(
    tmp_path: Path, tree: Path, postgresql: PostgreSQL
):
    trees = {"0.1.0": tree, "after": next_release(tree, tmp_path / "after")}
    name = f"release_{secrets.token_hex(6)}"
    await _execute(postgresql, f"CREATE DATABASE {name}")
    try:
        # A leader and a follower: each further replica would start four more processes.
        await play(tmp_path, trees, database_url=postgresql.url(name), schema=SCHEMA_VERSION, replicas=2)
    finally:
        await _execute(postgresql, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(server: PostgreSQL, statement: str) -> None:
    await asyncio.to_thread(server.execute, statement)
