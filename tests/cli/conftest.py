"""The commands as a user runs them, against the API on a real store and a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from command_runner import TOKEN, Sluice

from admission.api.application import create_app, listening
from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store


@pytest.fixture
def database_kind() -> str:
    return "sqlite"  # the commands do not depend on the API's database


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVER", "TOKEN", "CA", "ADMIN_TOKEN", "CONFIG", "DATABASE_URL", "KUBECONFIG"):
        monkeypatch.delenv(f"SLUICE_{name}", raising=False)
    # Without this, the commands would use the cluster of the user who runs the tests.
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")


@pytest.fixture
def app(store: Store) -> web.Application:
    return create_app(store, token=TOKEN, checks={"database": store.health})


@pytest.fixture
async def sluice(app: web.Application) -> AsyncIterator[Sluice]:
    async with listening(app, "127.0.0.1", 0) as url:
        yield Sluice({"SLUICE_SERVER": url, "SLUICE_ADMIN_TOKEN": TOKEN})


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    """Function that writes the configuration file and returns its path."""
    path = tmp_path / "sluice.yaml"

    def write(text: str) -> Path:
        path.write_text(text)
        return path

    return write


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A cluster without nodes, and the kubeconfig of `sluice serve` in the folder of the test."""
    async with Sandbox(speed=60) as opened:
        opened.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield opened
