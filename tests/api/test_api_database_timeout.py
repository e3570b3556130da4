"""Requests while the database keeps its connections open but does not respond: an error instead of an endless wait."""

from __future__ import annotations

import asyncio
import re

import pytest
from api_client import Client
from queue_objects import flavor

from admission.api.http import database_timeout
from admission.store.store import Store
from tests.postgresql_server import PostgreSQL

pytestmark = pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)


async def test_requests_to_a_frozen_database_get_503_and_watches_continue(
    api: Client, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database_timeout, "CHECK_SECONDS", 0.0)
    async with api.watch("resourceflavors") as events:
        with postgresql.frozen():
            asked = (api.get("resourceflavors"), api.post("resourceflavors", flavor("default")))
            for answer in await asyncio.gather(*asked):
                assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")
                # A request that finds no free connection opens a new one, and gets the other message.
                told = (
                    r"(does not answer: 1\.5 s were not enough|cannot be reached \(TimeoutError\)); check that it runs"
                )
                assert re.search(told, answer.body["message"])
                assert answer.headers["Retry-After"] == "1"
        while (answer := await api.post("resourceflavors", flavor("default"))).status == 503:
            pass
        assert answer.status in (201, 409), "409: what was under way came to its end when the server thawed"
        assert (await events.next())["object"]["metadata"]["name"] == "default"


async def test_slow_query_of_a_working_database_is_not_aborted(
    api: Client, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database_timeout, "CHECK_SECONDS", 0.01)
    async with store._database.write() as connection:
        await connection.exec_driver_sql("LOCK TABLE admissions")
        asking = asyncio.create_task(api.get("reports/usage"))
        done, _ = await asyncio.wait({asking}, timeout=0.3)
        assert not done, "it was looked often meanwhile"
    assert (await asking).status == 200
