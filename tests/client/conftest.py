"""The client of the API on a real store and a real socket, or of a server with scripted responses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from client_script import Pauses, Script

from admission.api.application import create_app, listening
from admission.client import Sluice
from admission.store.store import Store

TOKEN = "a-token"


@pytest.fixture
def database_kind() -> str:
    return "sqlite"  # the client does not depend on the database


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    async with listening(create_app(store, token=TOKEN, checks={}), "127.0.0.1", 0) as address:
        yield address


@pytest.fixture
async def sluice(url: str) -> AsyncIterator[Sluice]:
    async with Sluice(url, token=TOKEN) as client:
        yield client


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    made = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    async with listening(app, "127.0.0.1", 0) as address:
        made.url = address
        yield made


@pytest.fixture
async def scripted(script: Script) -> AsyncIterator[tuple[Sluice, Pauses, list[str]]]:
    """A client of the scripted server, its pauses, and its warnings."""
    pauses = Pauses()
    warnings: list[str] = []
    async with Sluice(script.url, token=TOKEN, warn=warnings.append, sleep=pauses) as client:
        yield client, pauses, warnings
