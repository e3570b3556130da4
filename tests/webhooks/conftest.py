"""Fixtures: a sandbox without controllers, clients of Sluice and of a user, certificates, admission policies."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest
from policy_examples import SLUICE, make_reconciler

from admission.cluster.client import Client
from admission.sandbox import Sandbox, User
from webhooks.certificates import Certificates


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
def connect_to(tmp_path):
    """Return a function that connects a user to a sandbox."""

    @asynccontextmanager
    async def connect_to(sandbox, user):
        path = tmp_path / f"kubeconfig-{user.rpartition(':')[2]}"
        sandbox.write_kubeconfig(path, user)
        async with Client.from_kubeconfig(str(path)) as client:
            yield client

    return connect_to


@pytest.fixture
def connect(sandbox, connect_to):
    """Return a function that connects a user to the sandbox of the test."""
    return partial(connect_to, sandbox)


@pytest.fixture
async def sluice(connect):
    async with connect(SLUICE) as client:
        yield client


@pytest.fixture
async def alice(connect):
    async with connect("alice") as client:
        yield client


@pytest.fixture
def certificates(tmp_path):
    certificates = Certificates(tmp_path / "certificates", ["127.0.0.1"], now=lambda: datetime.now(UTC))
    certificates.renew()
    return certificates


@pytest.fixture
async def gated(sluice):
    """Install the admission policies."""
    assert await make_reconciler(sluice).ensure()
