"""`auditrecords`: author, reason and change of every write through the API, with pages and field selectors."""

from __future__ import annotations

import pytest
from api_and_cluster import ADMIN_TOKEN, serving_with_cluster
from api_client import on_both_databases


def cohort(name: str, **annotations: str) -> dict:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Cohort",
        "metadata": {"name": name, "annotations": {f"sluice.dev/{key}": value for key, value in annotations.items()}},
    }


@pytest.fixture
async def server(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as opened:
        await opened.grant("alice", [{"apiGroups": ["sluice.dev"], "resources": ["*"], "verbs": ["*"]}])
        yield opened


async def records(server, query: str = "") -> list[dict]:
    answer = await server.send("GET", f"auditrecords{query}", token=ADMIN_TOKEN)
    assert answer.status == 200, answer.body
    return answer.body["items"]


@on_both_databases
async def test_audit_records_list_each_write_with_author_and_reason_newest_first(server):
    created = await server.as_user("alice", "POST", "cohorts", cohort("a"), headers={"X-Change-Reason": "new team"})
    assert created.status == 201
    changed = created.body | {"metadata": created.body["metadata"] | {"labels": {"a": "b"}}}
    assert (await server.as_user("alice", "PUT", "cohorts/a?reason=a%20label", changed)).status == 200
    assert (await server.send("DELETE", "cohorts/a", token=ADMIN_TOKEN)).status == 200
    deleted, updated, first = await records(server)
    assert [record["verb"] for record in (deleted, updated, first)] == ["delete", "update", "create"]
    assert [record["reason"] for record in (deleted, updated, first)] == ["", "a label", "new team"]
    assert (first["user"], first["groups"], first["source"]) == (
        "alice",
        ["team-a", "system:authenticated"],
        "127.0.0.1",
    )
    assert deleted["user"] == "sluice:admin"
    assert first["object"] == {"kind": "Cohort", "namespace": "", "name": "a"}
    assert first["before"] is None
    assert deleted["after"] is None
    assert updated["before"] == first["after"]
    assert updated["after"]["metadata"]["labels"] == {"a": "b"}
    assert first["kind"] == "AuditRecord"
    assert first["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]
    assert first["metadata"]["creationTimestamp"] == "2025-06-15T15:06:40Z"
    assert first["at"] == "2025-06-15T15:06:40.000000Z"


@on_both_databases
async def test_change_reason_may_be_given_as_an_annotation(server, store):
    assert (await server.as_user("alice", "POST", "cohorts", cohort("a", **{"change-reason": "because"}))).status == 201
    assert [record["reason"] for record in await records(server)] == ["because"]
    (version,) = await store.queues.versions("Cohort", "a")
    assert (version.author, version.reason) == ("alice", "because")


async def test_refused_writes_and_dry_runs_leave_no_audit_record(server):
    assert (await server.as_user("bob", "POST", "cohorts", cohort("a"))).status == 403
    assert (await server.as_user("alice", "POST", "cohorts", cohort("A B"))).status == 422
    assert (await server.as_user("alice", "POST", "cohorts?dryRun=All", cohort("a"))).status == 201
    assert (await server.as_user("alice", "DELETE", "cohorts/a")).status == 404
    assert await records(server) == []


async def test_audit_records_are_paginated_newest_first(server):
    for n in range(5):
        await server.as_user("alice", "POST", "cohorts", cohort(f"c{n}"))
    names, query, remaining = [], "?limit=2", []
    while True:
        answer = await server.send("GET", f"auditrecords{query}", token=ADMIN_TOKEN)
        names.append([item["object"]["name"] for item in answer.body["items"]])
        remaining.append(answer.body["metadata"].get("remainingItemCount"))
        if "continue" not in answer.body["metadata"]:
            break
        query = f"?limit=2&continue={answer.body['metadata']['continue']}"
    assert names == [["c4", "c3"], ["c2", "c1"], ["c0"]]
    assert remaining == [3, 1, None]


async def test_field_selectors_filter_audit_records(server):
    await server.as_user("alice", "POST", "cohorts", cohort("a"))
    await server.send("POST", "cohorts", cohort("b"), token=ADMIN_TOKEN)
    for selector, names in (
        ("user%3Dalice", ["a"]),
        ("kind%3DCohort", ["b", "a"]),
        ("kind%3DCohort,name%3D%3Db", ["b"]),
        ("verb%3Ddelete", []),
        ("namespace%3D", ["b", "a"]),
    ):
        found = await records(server, f"?fieldSelector={selector}")
        assert [record["object"]["name"] for record in found] == names, selector


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("fieldSelector=reason%3Dx", "fieldSelector: field label not supported: reason"),
        ("fieldSelector=user%21%3Dx", "fieldSelector: user can be selected by = only"),
        ("fieldSelector=user", "fieldSelector: invalid selector"),
        ("limit=-1", 'limit: "-1" is not a number'),
        ("limit=%C2%B2", "limit: "),
        ("continue=abc", 'continue: "abc" is not a number'),
        ("continue=1000000000000000000000", "continue: "),
    ],
)
async def test_invalid_audit_record_query_is_a_bad_request_naming_the_parameter(server, query, says):
    answer = await server.send("GET", f"auditrecords?{query}", token=ADMIN_TOKEN)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].startswith(says)
