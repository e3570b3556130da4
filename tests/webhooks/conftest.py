"""A cluster without controllers, Sluice's client and a user's, and the gate as admission policies."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from policy_examples import SLUICE, standing

from admission.cluster.client import Client
from admission.sandbox import Sandbox, User


@pytest.fixture
def users():
    return {f"{name}-token": User(name, groups=("system:masters",)) for name in (SLUICE, "alice")}


@pytest.fixture
async def sandbox(users):
    async with Sandbox(controllers=False, users=users) as sandbox:
        team = {"metadata": {"name": "team-a", "labels": {"team": "a"}}}
        await sandbox.local("alice").create("namespaces", "", team)
        yield sandbox


@pytest.fixture
def connect(tmp_path):
    @asynccontextmanager
    async def connect(sandbox, user):
        path = tmp_path / f"kubeconfig-{user.rpartition(':')[2]}"
        sandbox.write_kubeconfig(path, user)
        async with Client.from_kubeconfig(str(path)) as client:
            yield client

    return connect


@pytest.fixture
async def sluice(sandbox, connect):
    async with connect(sandbox, SLUICE) as client:
        yield client


@pytest.fixture
async def alice(sandbox, connect):
    async with connect(sandbox, "alice") as client:
        yield client


@pytest.fixture
async def gated(sluice):
    assert await standing(sluice).ensure()
