"""The API on a real store and a real socket."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import workload_records
from api_and_cluster import ApiAndCluster, serving_with_cluster
from api_client import Client, serving
from api_thread import fill
from oidc_browser import Browser, client_of

from admission.store.store import Store
from tests.conftest import Clock
from tests.event_loop import run
from tests.oidc_issuer import Issuer, issuer


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture(scope="session")
def filled_database(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SQLite file with the objects and workloads of `api_thread.fill`, to be copied, which is cheaper."""
    path = tmp_path_factory.mktemp("filled") / "sluice.db"
    shutil.copyfile(sqlite_template, path)
    run(fill(f"sqlite:///{path}"))
    return path


@pytest.fixture
async def commit(store: Store) -> Callable[..., Awaitable[int]]:
    """Commit as the leading controller does: `await commit(record, ..., closed=...)`."""
    return partial(workload_records.commit, store, await store.lead("tests"))


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Client]:
    async with serving(store) as client:
        yield client


@pytest.fixture
async def accounts(tmp_path: Path) -> AsyncIterator[Issuer]:
    async with issuer(tmp_path) as found:
        yield found


@pytest.fixture
async def server_with_oidc(
    store: Store, tmp_path: Path, clock: Clock, accounts: Issuer
) -> AsyncIterator[ApiAndCluster]:
    async with serving_with_cluster(store, tmp_path, clock=clock, oidc=client_of(accounts)) as opened:
        yield opened


@pytest.fixture
def browser(server_with_oidc: ApiAndCluster, accounts: Issuer) -> Browser:
    return Browser(server_with_oidc, accounts, {})
