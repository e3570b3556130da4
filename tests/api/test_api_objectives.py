"""`reports/objectives`: wished waits of ClusterQueues by week."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from api_client import Client
from one_queue import job, one_queue, submitted
from queue_objects import cluster_queue
from workload_records import NOW

from admission.store.records import State
from admission.store.store import Store
from tests.conftest import Clock

REPORT = "reports/objectives"


@pytest.fixture
async def api(store: Store, clock: Callable[[], float]) -> AsyncIterator[Client]:
    async with one_queue(store, clock) as client:
        yield client


async def test_weeks_of_a_queue_with_an_objective_are_reported(api: Client, store: Store) -> None:
    assert (await api.get(REPORT)).body["items"] == []
    wished = cluster_queue("one", objective={"percentile": 75, "wait": "30m"})
    assert (await api.put("clusterqueues/one", wished)).status == 200
    day = 86400.0
    await submitted(
        store,
        job("prompt", state=State.ADMITTED, admitted_at=NOW, age=60),
        job("slow", state=State.ADMITTED, admitted_at=NOW, age=2 * 3600),
        replace(job("old", age=8 * day), state=State.PENDING),
    )
    found = (await api.get(f"{REPORT}?weeks=3")).body
    weeks = found["items"]
    assert [(each["week"], each["partial"]) for each in weeks] == [
        ("2025-W24", True), ("2025-W23", False), ("2025-W22", False),
    ]  # fmt: skip
    assert [(each["workloads"], each["met"], each["waiting"], each["isMet"]) for each in weeks] == [
        (2, 1, 0, False), (1, 0, 1, False), (0, 0, 0, True),
    ]  # fmt: skip
    assert (weeks[0]["percentile"], weeks[0]["wishedSeconds"], weeks[0]["waitSeconds"]) == (75, 1800, 7200)
    assert weeks[1]["obstacles"] == [{"reason": "PendingEvaluation", "seconds": 8 * day, "workloads": 1}]
    assert (await api.get(f"{REPORT}?clusterqueue=two")).body["items"] == []


async def test_week_is_judged_by_the_objective_that_held_at_its_end(api: Client, store: Store, clock: Clock) -> None:
    def wished(**objective: object) -> dict[str, object]:
        return cluster_queue("one", objective=objective) if objective else cluster_queue("one")

    async def wishes(weeks: int = 4) -> list[tuple[str, float, str, int]]:
        found = (await api.get(f"{REPORT}?weeks={weeks}")).body["items"]
        return [(each["week"], each["wishedSeconds"], each["wishedSince"], each["met"]) for each in found]

    await submitted(store, job("slow", state=State.ADMITTED, admitted_at=NOW, age=2 * 3600))  # in W24
    for monday, objective in ((9, {"wait": "1h"}), (11, {"wait": "3h"}), (16, {"wait": "1h"}), (24, {})):
        clock.now = datetime(2025, 6, monday, tzinfo=UTC).timestamp()
        assert (await api.put("clusterqueues/one", wished(**objective))).status == 200
        if monday == 16:  # by which the objective becomes the present one
            expected = [
                ("2025-W25", 3600, "2025-06-16T00:00:00Z", 0),
                ("2025-W24", 10800, "2025-06-11T00:00:00Z", 1),
                ("2025-W23", 3600, "2025-06-09T00:00:00Z", 0),  # set later
            ]
            assert await wishes(3) == expected
    assert await wishes() == expected  # and W26, at whose end it has none


async def test_weeks_begin_on_monday_at_midnight_also_where_clocks_change(api: Client, clock: Clock) -> None:
    assert (await api.put("clusterqueues/one", cluster_queue("one", objective={"wait": "2h"}))).status == 200
    clock.now = datetime(2026, 4, 1, tzinfo=UTC).timestamp()  # on 29 March clocks were put forward
    found = (await api.get(f"{REPORT}?weeks=2&timezone=Europe/Berlin")).body
    assert [each["from"] for each in found["items"]] == ["2026-03-29T22:00:00Z", "2026-03-22T23:00:00Z"]
    assert found["items"][1]["to"] == "2026-03-29T22:00:00Z"


@pytest.mark.parametrize("query", ["weeks=0", "weeks=54", "weeks=x", "timezone=Mars"])
async def test_wrong_parameters_are_refused(api: Client, query: str) -> None:
    answer = await api.get(f"{REPORT}?{query}")
    assert answer.status == 400
    assert answer.body["message"].startswith(f"{query.split('=')[0]}: ")


@pytest.mark.parametrize("objective", [{}, {"wait": "0h"}, {"wait": "2h", "percentile": 100}, {"wait": 7200}])
async def test_wrong_objectives_are_refused(api: Client, objective: dict[str, object]) -> None:
    answer = await api.put("clusterqueues/one", cluster_queue("one", objective=objective))
    assert answer.status == 422
    assert "spec.objective" in answer.body["message"]
