"""`reports/usage` and `reports/pending`: totals of the ledger and of pending workloads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_client import Client
from queue_objects import cluster_queue, local_queue

from admission.model.manifests import parse_manifest
from admission.model.topology import DomainCount, TopologyAssignment
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.audit_log import Author
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock

NOW = 1_750_000_000.0  # 2025-06-15T15:06:40Z
DAY = 86400.0
FIRST = (DAY - NOW % DAY) / DAY
"""The part of the first day that is left then."""


@pytest.fixture
async def used(store: Store, clock: Clock) -> None:
    """Two days of usage of 2 cores and 1 GiB in a flavor without quota in the ClusterQueue: all of it is borrowed."""
    await store.queues.create(parse_manifest(cluster_queue("cq")), author=Author("ada"))
    epoch = await store.lead("test")
    one = Workload("1", "team-a", "job", "main", 5, NOW, (PodSet("main", 1, {}),), user="ada")
    amounts = {"cpu": 2000, "memory": 2**30}
    holds = Admission("elsewhere", (PodSetAssignment("main", dict.fromkeys(amounts, "spot"), amounts, 1),))
    await store.commit(Changes(opened=(Opened(one, holds, NOW),)), epoch=epoch)
    await store.commit(Changes(closed=(Closed("1", NOW + 2 * 86400, "Finished"),)), epoch=epoch)
    clock.now = NOW + 5 * 86400


@pytest.mark.usefixtures("used")
async def test_usage_is_reported_in_core_seconds_and_byte_seconds(api: Client):
    answer = await api.get("reports/usage?by=queue,user&by=flavor,queue&from=2025-06-15T15:06:40.5Z")
    assert answer.status == 200
    assert {key: answer.body[key] for key in ("kind", "apiVersion", "from", "to", "by")} == {
        "kind": "UsageReport",
        "apiVersion": "sluice.dev/v1",
        "from": "2025-06-15T15:06:40.500000Z",
        "to": "2025-06-20T15:06:40Z",
        "by": ["queue", "user", "flavor"],
    }
    seconds = 2 * 86400 - 0.5
    common = {"namespace": "team-a", "queue": "main", "user": "ada", "flavor": "spot", "nominalSeconds": 0.0}
    assert answer.body["items"] == [
        common | {"resource": "cpu", "amountSeconds": 2 * seconds, "borrowedSeconds": 2 * seconds},
        common | {"resource": "memory", "amountSeconds": 2**30 * seconds, "borrowedSeconds": 2**30 * seconds},
    ]


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize(
    ("query", "cores"),
    [
        ("", 2 * 2 * 86400),
        ("from=4d", 2 * 86400),
        ("from=96h&to=2025-06-17", 2 * (8 * 3600 + 53 * 60 + 20)),
        ("from=1w&to=5d", 0),
        ("from=2025-06-17T00:00:00&to=2025-06-17T02:00:00%2B01:00", 2 * 3600),
        ("from=1969-01-01&to=9999-12-31", 2 * 2 * 86400),
        ("from=0001-01-01T00:00:00%2B14:00", 2 * 2 * 86400),
    ],
)
async def test_report_times_may_be_timestamps_dates_or_durations(api: Client, query: str, cores: int):
    answer = await api.get(f"reports/usage?by=resource&{query}")
    assert answer.status == 200, answer.body
    assert sum(item["amountSeconds"] for item in answer.body["items"] if item["resource"] == "cpu") == cores


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("by=team", 'by: usage cannot be grouped by "team"; give one of queue, clusterqueue, user,'),
        ("by=", 'by: usage cannot be grouped by ""'),
        ("from=yesterday", 'from: "yesterday" is not a time; give one such as 2025-06-01T08:00:00Z'),
        ("to=2025-02-30", 'to: "2025-02-30" is not a time'),
        ("from=1d&to=2d", "must be before to"),
        ("top=0", 'top: "0" is not a number from 1 to 999999; give one such as 20'),
        ("top=1.5", "is not a number from"),
        ("period=week", 'period: "week" is not one of day, month'),
        ("from=99999999999999999999d", "is not a time"),
        ("month=2025-13", 'month: "2025-13" is not a month; give one such as 20'),
        ("quarter=2025-5", 'quarter: "2025-5" is not a quarter'),
        ("quarter=2025-Q1&month=this", "give one of these two"),
        ("month=2025-01&to=2025-02-01", "or from and to"),
        ("month=1969-12", "the year must be from 1970"),
        ("month=9998-01", "9998-01 is in the future"),
        ("timezone=Mars", 'timezone: "Mars" is not a time zone; give one such as Europe/Berlin'),
        ("timezone=../etc/passwd", "is not a time zone"),
        ("timezone=Europe/Berlin&period=day&from=1990-01-01", "more than 1000 of them"),
    ],
)
async def test_invalid_report_query_is_a_bad_request_naming_the_parameter(api: Client, query: str, message: str):
    answer = await api.get(f"reports/usage?{query}")
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert message in answer.body["message"]


async def test_usage_by_workload_with_top_sums_up_all_other_workloads(api: Client, store: Store, clock: Clock):
    epoch = await store.lead("test")
    for number in range(5):
        kind = "RayJob" if number % 2 else "Job"
        one = Workload(str(number), "team-a", f"w-{number}", "main", 0, NOW, (PodSet("main", 1, {}),), kind=kind)
        amounts = {"cpu": 1000 * (number + 1)} | ({"memory": 2**30} if number == 0 else {})
        holds = Admission("cq", (PodSetAssignment("main", dict.fromkeys(amounts, "spot"), amounts, 1),))
        record = WorkloadRecord(one, State.FINISHED, NOW, finished_at=NOW + 100)
        await store.commit(Changes(workloads=(record,), opened=(Opened(one, holds, NOW),)), epoch=epoch)
        await store.commit(Changes(closed=(Closed(str(number), NOW + 100, "Finished"),)), epoch=epoch)
    clock.now = NOW + 1000
    times = "from=2025-06-15T15:00:00Z"
    answer = await api.get(f"reports/usage?by=workload&top=2&{times}")
    rest = {"nominalSeconds": 0.0}
    whole = {"namespace": "team-a", "resource": "cpu"} | rest
    assert answer.body["items"] == [
        whole | {"kind": "Job", "workload": "w-0", "resource": "memory"} | both(100 * 2**30),
        whole | {"kind": "Job", "workload": "w-4"} | both(500),
        whole | {"kind": "RayJob", "workload": "w-3"} | both(400),
        {"resource": "cpu", "others": 3} | rest | both(600),
    ]
    parts = await api.get(f"reports/usage?by=workload&top=2&interval=1h&{times}")
    assert [{k: v for k, v in item.items() if k != "from"} for item in parts.body["items"]] == answer.body["items"]
    by_day = await api.get(f"reports/usage?by=workload&top=4&period=day&resource=cpu&{times}")
    covered = {"from": "2025-06-15T15:00:00Z", "to": "2025-06-15T15:23:20Z", "partial": True}
    others = {"period": "2025-06-15", "resource": "cpu", "others": 1}
    assert by_day.body["items"][-1] == others | covered | rest | both(100)
    everything = await api.get(f"reports/usage?by=kind&{times}&resource=cpu")
    assert [(item["kind"], item["amountSeconds"]) for item in everything.body["items"]] == [
        ("Job", 900),
        ("RayJob", 600),
    ]
    rays = await api.get(f"reports/usage?by=workload&kind=RayJob&{times}")
    assert [item["workload"] for item in rays.body["items"]] == ["w-1", "w-3"]


def both(seconds: float) -> dict[str, float]:
    """Equal amount and borrowed amount."""
    return {"amountSeconds": seconds, "borrowedSeconds": seconds}


async def test_usage_by_rack_and_node_is_named_by_the_levels_of_topologies(api: Client, store: Store, clock: Clock):
    levels = [{"nodeLabel": label} for label in ("cloud.example.com/rack", "kubernetes.io/hostname")]
    for name, those in (("one", levels), ("other", [{"nodeLabel": "other.example.com/rack"}])):
        manifest = {"apiVersion": "sluice.dev/v1", "kind": "Topology", "metadata": {"name": name}}
        await store.queues.create(parse_manifest({**manifest, "spec": {"levels": those}}), author=Author("ada"))
    epoch = await store.lead("test")
    placed = TopologyAssignment((*(level["nodeLabel"] for level in levels),), (DomainCount(("r1", "n1"), 1),))
    holds = Admission("cq", (PodSetAssignment("main", {"cpu": "spot"}, {"cpu": 1000}, 1, placed),))
    one = Workload("1", "team-a", "job", "main", 0, NOW, (PodSet("main", 1, {}),))
    await store.commit(Changes(opened=(Opened(one, holds, NOW),)), epoch=epoch)
    clock.now = NOW + 1000
    for by, names in (
        ("node", {"node": "n1"}),
        ("label:cost-center,node", {"node": "n1", "labels": {"cost-center": ""}}),
        ("hostname,cloud.example.com/rack", {"hostname": "n1", "cloud.example.com/rack": "r1"}),
    ):
        answer = await api.get(f"reports/usage?by={by}&from=2025-06-15T15:06:40Z")
        (item,) = answer.body["items"]
        assert item["amountSeconds"] == 1000
        assert {name: item[name] for name in names} == names
    for by, says in (
        ("rack", '"rack"; give one of cloud.example.com/rack, other.example.com/rack'),
        ("block", "resource, cloud.example.com/rack, node, other.example.com/rack"),
    ):
        answer = await api.get(f"reports/usage?by={by}")
        assert (answer.status, says in answer.body["message"]) == (400, True), answer.body


@pytest.mark.usefixtures("used")
async def test_usage_is_reported_by_day(api: Client):
    answer = await api.get("reports/usage?by=user&period=day&resource=cpu&from=2025-06-15")
    assert answer.body["period"] == "day"
    hours = {item["period"]: item["amountSeconds"] / 7200 for item in answer.body["items"]}
    assert hours == pytest.approx({"2025-06-15": 24 - 15.1111111, "2025-06-16": 24, "2025-06-17": 15.1111111})


@pytest.mark.parametrize(
    ("query", "start", "end", "partial"),
    [
        ("month=2024-02", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z", False),
        ("month=2024-10&timezone=Europe/Berlin", "2024-09-30T22:00:00Z", "2024-10-31T23:00:00Z", False),
        ("month=2024-10&timezone=Asia/Kolkata", "2024-09-30T18:30:00Z", "2024-10-31T18:30:00Z", False),
        ("month=last", "2025-05-01T00:00:00Z", "2025-06-01T00:00:00Z", False),
        ("month=this&timezone=Pacific/Auckland", "2025-05-31T12:00:00Z", "2025-06-15T15:06:40Z", True),
        ("quarter=last", "2025-01-01T00:00:00Z", "2025-04-01T00:00:00Z", False),
        ("quarter=2024-q4", "2024-10-01T00:00:00Z", "2025-01-01T00:00:00Z", False),
        ("from=2025-06-01&timezone=America/New_York", "2025-06-01T04:00:00Z", "2025-06-15T15:06:40Z", None),
    ],
)
async def test_months_and_quarters_are_those_of_a_time_zone(api: Client, clock: Clock, query, start, end, partial):
    clock.now = NOW
    answer = await api.get(f"reports/usage?{query}")
    assert (answer.status, answer.body["from"], answer.body["to"]) == (200, start, end)
    assert answer.body.get("partial") is partial


@pytest.mark.usefixtures("used")
async def test_days_of_a_time_zone_say_which_part_of_them_is_reported(api: Client):
    query = "by=user&period=day&resource=cpu&from=2025-06-15T12:00:00Z&to=2025-06-18&timezone=Europe/Berlin"
    answer = await api.get(f"reports/usage?{query}")
    days = [(item["period"], item["partial"], item["amountSeconds"] / 7200) for item in answer.body["items"]]
    assert days == [
        ("2025-06-15", True, pytest.approx(22 - 15.1111111)),
        ("2025-06-16", False, 24),
        ("2025-06-17", False, pytest.approx(17.1111111)),
    ]
    assert answer.body["items"][0]["from"] == "2025-06-15T12:00:00Z"
    assert answer.body["items"][2]["to"] == "2025-06-17T22:00:00Z"


@pytest.mark.usefixtures("used")
async def test_namespace_and_personal_reports_show_no_usage_of_others(api: Client):
    here = await api.get("namespaces/team-a/reports/usage?by=user&from=1w")
    assert {item["user"] for item in here.body["items"]} == {"ada"}
    assert (await api.get("namespaces/team-b/reports/usage?from=1w")).body["items"] == []
    assert (await api.get("reports/mine?from=1w")).body["items"] == []
    for path, field in (
        ("namespaces/team-b/reports/usage?namespace=team-a", "namespace"),
        ("reports/mine?user=ada", "user"),
    ):
        refused = await api.get(path)
        assert refused.status == 400
        assert f"{field}: this report is about" in refused.body["message"]


async def test_pending_report_counts_workloads_by_queue_and_reason_or_by_user(api: Client, store: Store):
    await store.queues.create(parse_manifest(local_queue("main", "team-a", "cq")), author=Author("ada"))
    epoch = await store.lead("test")
    waits = [
        WorkloadRecord(
            Workload(str(n), "team-a", f"job-{n}", "main" if n else "gone", 5, NOW, (), user=user),
            State.PENDING,
            NOW + n,
            reason="WaitingForQuota" if n == 1 else "",
        )
        for n, user in enumerate(("ada", "bob", "ada", ""))
    ]
    over = WorkloadRecord(Workload("over", "team-a", "over", "main", 5, NOW, (), user="eve"), State.FINISHED, NOW)
    await store.commit(Changes(workloads=(*waits, over)), epoch=epoch)
    by_queue = (await api.get("reports/pending")).body["items"]
    assert [(each["clusterQueue"], each["queue"], each["reason"], each["count"]) for each in by_queue] == [
        ("", "gone", "", 1), ("cq", "main", "WaitingForQuota", 1), ("cq", "main", "", 2),
    ]  # fmt: skip
    by_user = (await api.get("reports/pending?by=user")).body["items"]
    assert [(each["user"], each["count"]) for each in by_user] == [("ada", 2), ("bob", 1), ("", 1)]
    assert by_user[0]["oldest"] == "2025-06-15T15:06:40Z"
    refused = await api.get("reports/pending?by=namespace")
    assert (refused.status, "give user" in refused.body["message"]) == (400, True)


async def test_a_user_with_too_many_reports_at_a_time_may_retry_later(api: Client, store: Store):
    """Each with another start is a computation of its own; they wait for one that is under way."""
    async with store.reports.turn:
        requests = [asyncio.create_task(api.get(f"reports/usage?from=2025-06-01T00:00:{n:02}Z")) for n in range(11)]
        (refused,), _ = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
    answer = refused.result()
    assert (answer.status, answer.body["reason"]) == (429, "TooManyRequests")
    assert answer.headers["Retry-After"] == str(answer.body["details"]["retryAfterSeconds"]) == "1"
    assert sorted(task.status for task in await asyncio.gather(*requests)) == [200] * 10 + [429]


@pytest.fixture
async def shared(store: Store, clock: Clock) -> None:
    """Two days of two ClusterQueues: a has 4 cores, and 8 on the second day, for two teams; b has 10 for team-b.

    A workload of team-a holds 2 cores of a on the first day.
    """
    clock.now = NOW
    for document, labels in (
        (cluster_queue("a"), {}),
        (cluster_queue("b", cpu="10"), {"cost-center": "99"}),
        (local_queue("main", "team-a", "a"), {"cost-center": "4711"}),
        (local_queue("side", "team-b", "a"), {}),
        (local_queue("main", "team-b", "b"), {}),
    ):
        document["metadata"]["labels"] = labels
        await store.queues.create(parse_manifest(document), author=Author("ada"))
    epoch = await store.lead("test")
    one = Workload("1", "team-a", "job", "main", 5, NOW, (PodSet("main", 1, {}),), user="ada")
    holds = Admission("a", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 2000}, 1),))
    await store.commit(Changes(opened=(Opened(one, holds, NOW),)), epoch=epoch)
    await store.commit(Changes(closed=(Closed("1", NOW + DAY, "Finished"),)), epoch=epoch)
    clock.now = NOW + DAY
    await store.queues.replace(parse_manifest(cluster_queue("a", cpu="8")), author=Author("ada"))
    clock.now = NOW + 2 * DAY


def quota_days(items: list[dict[str, Any]], *names: str) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return core-days by group: used, quota, idle."""
    amounts = ("amountSeconds", "quotaSeconds", "idleSeconds")
    values = [item | item.get("labels", {}) for item in items]
    return {tuple(item[name] for name in names): tuple(item[name] / DAY for name in amounts) for item in values}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("query", "names", "expected"),
    [
        ("by=clusterqueue", ["clusterQueue"], {("a",): (2, 12, 10), ("b",): (0, 20, 20)}),
        ("by=namespace", ["namespace"], {("team-a",): (2, 12, 10), ("team-b",): (0, 32, 30)}),
        ("by=flavor", ["flavor"], {("default",): (2, 32, 30)}),
        ("by=label:cost-center", ["cost-center"], {("4711",): (2, 12, 10), ("",): (0, 12, 10), ("99",): (0, 20, 20)}),
        ("by=queue&clusterqueue=a", ["namespace", "queue"], {
            ("team-a", "main"): (2, 12, 10), ("team-b", "side"): (0, 12, 10)}),
        ("by=clusterqueue&clusterqueue=a&period=day", ["period"], {
            ("2025-06-15",): (2 * FIRST, 4 * FIRST, 2 * FIRST),
            ("2025-06-16",): (2 * (1 - FIRST), 4 + 4 * FIRST, 2 + 6 * FIRST),
            ("2025-06-17",): (0, 8 * (1 - FIRST), 8 * (1 - FIRST))}),
    ],
)  # fmt: skip
async def test_quota_is_that_of_its_time_and_has_its_users(api: Client, query: str, names: list[str], expected: Any):
    answer = await api.get(f"reports/usage?{query}&quota=true&from=3d")
    assert answer.status == 200, answer.body
    found = quota_days(answer.body["items"], *names)
    assert found.keys() == expected.keys()
    for group, amounts in expected.items():
        assert found[group] == pytest.approx(amounts), group
    whole = (2, 12, 10) if "clusterqueue=a" in query else (2, 32, 30)
    assert quota_days(answer.body["totals"], "resource")["cpu",] == pytest.approx(whole), "no ClusterQueue counts twice"


@pytest.mark.usefixtures("shared")
async def test_quota_of_an_empty_ledger_and_before_its_creation(api: Client):
    unused = await api.get("reports/usage?by=clusterqueue&quota=true&clusterqueue=b&user=nobody&from=1d")
    assert quota_days(unused.body["items"], "clusterQueue") == {("b",): (0, 10, 10)}
    before = await api.get("reports/usage?by=clusterqueue&quota=true&month=2024-02")
    assert (before.body["items"], before.body["totals"], before.body["partial"]) == ([], [], False)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("quota=true&by=user", "quota: no quota is that of a user; group by clusterqueue, queue"),
        ("quota=true&top=3", "quota: cannot be combined with top"),
        ("quota=yes", 'quota: "yes" is neither true nor false'),
        ("quota=true&period=day&from=2000-01-01", "period: more than 400 of them"),
        ("by=label:", 'by: usage cannot be grouped by "label:"'),
        ("by=label:=cmd|x", "usage cannot be grouped by"),
    ],
)
async def test_what_has_no_quota_is_a_bad_request(api: Client, query: str, message: str):
    answer = await api.get(f"reports/usage?{query}")
    assert answer.status == 400
    assert message in answer.body["message"]


@pytest.mark.usefixtures("shared")
async def test_usage_over_time_is_grouped_by_labels(api: Client):
    answer = await api.get("reports/usage?by=label:cost-center,user&interval=1d&from=3d")
    found = [(item["labels"], item["user"]) for item in answer.body["items"]]
    assert found == [({"cost-center": "4711"}, "ada")] * 2


@pytest.mark.usefixtures("shared")
async def test_quota_over_time_has_its_steps_and_the_events_that_explain_them(api: Client, store: Store, clock: Clock):
    stopped = cluster_queue("a", cpu="8", stopPolicy="Hold")
    await store.queues.replace(parse_manifest(stopped), author=Author("ada"))
    clock.advance(3600)
    cohort = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "spare"}}
    spare = cohort | {"spec": {"resourceGroups": cluster_queue("x", cpu="100")["spec"]["resourceGroups"]}}
    await store.queues.create(parse_manifest(spare), author=Author("ada"))
    clock.advance(3600)
    answer = await api.get("reports/usage?by=user&interval=1h&from=36h&quota=true&clusterqueue=a")
    (quota,) = answer.body["quotas"]
    start = answer.body["from"]
    assert [(step["from"], step["amount"]) for step in quota["steps"]] == [(start, "4"), ("2025-06-16T15:06:40Z", "8")]
    changed, hold = answer.body["events"]
    assert changed["changes"] == [{"flavor": "default", "resource": "cpu", "from": "4", "to": "8"}]
    assert (hold["type"], hold["kind"], hold["name"], hold["time"]) == (
        "Stopped",
        "ClusterQueue",
        "a",
        "2025-06-17T15:06:40Z",
    )
    team = await api.get("namespaces/team-b/reports/usage?interval=1h&quota=true&queue=main&from=1h")
    assert [step["amount"] for step in team.body["quotas"][0]["steps"]] == ["10"]
    assert team.body["events"] == []
    everybody = await api.get("reports/usage?interval=1h&quota=true&from=90m")
    assert [step["amount"] for step in everybody.body["quotas"][0]["steps"]] == ["18", "118"]
    assert [(event["kind"], event["type"]) for event in everybody.body["events"]] == [
        ("ClusterQueue", "Stopped"), ("Cohort", "Created"),
    ]  # fmt: skip
    assert (await api.get("reports/mine?interval=1h&quota=true")).status == 400
    await store.note_outage(clock() - 1200, clock() - 600, "The database did not answer")
    outage = {"kind": "Outage", "name": "", "type": "Outage", "message": "The database did not answer"}
    times = {"time": "2025-06-17T16:46:40Z", "until": "2025-06-17T16:56:40Z"}
    assert (await api.get("reports/usage?interval=1h&quota=true&from=30m")).body["events"][-1] == outage | times
