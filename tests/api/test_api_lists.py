"""Lists: selectors, pages, resource versions, tables, and partial object metadata."""

from __future__ import annotations

import pytest
from api_client import TOKEN, on_both_databases, serving
from queue_objects import (
    admission_check,
    budget,
    cluster_queue,
    cohort,
    drain,
    flavor,
    local_queue,
    manifest,
    price_book,
    priority_class,
    provisioning_config,
    reservation,
    topology,
    user_limit,
)
from workload_records import NOW, record

from admission.api.resources import pagination
from admission.store.records import State

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def as_form(accept: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Authorization": f"Bearer {TOKEN}", "Accept": accept}}


async def names(api, path: str, **params: str) -> list[str]:
    answer = await api.get(path, params=params)
    assert answer.status == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


async def test_queue_objects_are_selected_by_labels_and_fields(api):
    for name, parent, labels in [("a", "", {}), ("b", "root", {"team": "x"}), ("c", "root", {"team": "y", "gpu": ""})]:
        await api.post("cohorts", cohort(name, parent) | {"metadata": {"name": name, "labels": labels}})
    assert await names(api, "cohorts", labelSelector="team in (x,y)") == ["b", "c"]
    assert await names(api, "cohorts", labelSelector="team!=x") == ["a", "c"]
    assert await names(api, "cohorts", labelSelector="gpu") == ["c"]
    assert await names(api, "cohorts", labelSelector="!team") == ["a"]
    assert await names(api, "cohorts", fieldSelector="spec.parentName=root") == ["b", "c"]
    assert await names(api, "cohorts", fieldSelector="spec.parentName=root,metadata.name!=b") == ["c"]
    assert await names(api, "cohorts", fieldSelector="metadata.name=a") == ["a"]


async def test_field_selectors_filter_cluster_queues_local_queues_and_checks(api):
    await api.post("clusterqueues", cluster_queue("one", cohortName="root"))
    await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"))
    await api.post("admissionchecks", admission_check("check"))
    for path, field, value in [
        ("clusterqueues", "spec.cohortName", "root"), ("localqueues", "spec.clusterQueue", "one"),
        ("localqueues", "metadata.namespace", "a"), ("admissionchecks", "spec.controllerName", "example.com/budget"),
    ]:  # fmt: skip
        assert len(await names(api, path, fieldSelector=f"{field}={value}")) == 1
        assert await names(api, path, fieldSelector=f"{field}!={value}") == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"labelSelector": "a b"}, "unable to parse requirement"),
        ({"fieldSelector": "spec.nothing=1"}, "field label not supported: spec.nothing; supported are metadata.name"),
        ({"fieldSelector": "x"}, "can't understand"),
    ],
)
@pytest.mark.parametrize("path", ["clusterqueues", "workloads"])
async def test_invalid_selector_is_a_bad_request(api, path, query, says):
    answer = await api.get(path, params=query)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert says in answer.body["message"]


@on_both_databases
async def test_workloads_are_selected_by_labels_and_fields(api, commit):
    await commit(
        record("u1", "train", reason="x"),
        record("u2", "done", State.FINISHED),
        record("u3", "other", namespace="b", queue="fast", priority=7, user="bob"),
    )
    (train,) = (await api.get("workloads", params={"fieldSelector": "metadata.uid=u1"})).body["items"]

    async def found(**params: str) -> list[str]:
        answer = await api.get("workloads", params=params)
        assert answer.status == 200, answer.body
        assert "remainingItemCount" not in answer.body["metadata"]
        return [item["metadata"]["uid"] for item in answer.body["items"]]

    assert await found(fieldSelector="status.state=pending") == ["u1", "u3"]
    assert await found(fieldSelector="status.state!=pending") == ["u2"]
    assert await found(fieldSelector="spec.queueName=fast") == ["u3"]
    assert await found(fieldSelector="spec.priority=7") == ["u3"]
    assert await found(fieldSelector="spec.priority=high") == []
    assert await found(fieldSelector="spec.user=bob,status.state=pending") == ["u3"]
    # The pending ones ran in ClusterQueue one before, and may wait for another one by now.
    assert train["status"]["clusterQueue"] == ""
    assert await found(fieldSelector="status.clusterQueue=one") == ["u2"]
    assert await found(fieldSelector="status.clusterQueue=") == ["u1", "u3"]
    assert await found(fieldSelector="status.clusterQueue!=one,metadata.namespace=b") == ["u3"]
    assert await found(fieldSelector=f"metadata.name={train['metadata']['name']}") == ["u1"]
    assert await found(fieldSelector="metadata.name=job-train-00000") == []
    assert await found(labelSelector="kueue.x-k8s.io/job-uid in (u1,u2)") == ["u2", "u1"]
    assert await found(labelSelector="kueue.x-k8s.io/queue-name=fast") == ["u3"]
    assert await found(labelSelector="kueue.x-k8s.io/queue-name") == ["u2", "u1", "u3"]
    assert await found(labelSelector="!kueue.x-k8s.io/queue-name") == []
    assert await found(labelSelector="team=a") == []
    assert await found(labelSelector="team!=a") == ["u2", "u1", "u3"]


@on_both_databases
async def test_selected_workloads_are_paginated(api, commit):
    states = [State.PENDING, State.FINISHED]
    await commit(*(record(f"u{number}", f"job-{number}", states[number % 2]) for number in range(10)))
    seen, query = [], {"fieldSelector": "status.state=pending", "limit": "2"}
    while True:
        page = (await api.get("workloads", params=query)).body
        seen += [item["metadata"]["uid"] for item in page["items"]]
        if not (token := page["metadata"].get("continue")):
            break
        query["continue"] = token
    assert seen == ["u0", "u2", "u4", "u6", "u8"]


async def test_all_pages_of_a_list_have_the_resource_version_of_the_first_page(api):
    for name in "abc":
        await api.post("resourceflavors", flavor(name))
    first = (await api.get("resourceflavors", params={"limit": "1"})).body["metadata"]
    await api.post("resourceflavors", flavor("d"))
    second = (await api.get("resourceflavors", params={"limit": "5", "continue": first["continue"]})).body
    assert second["metadata"]["resourceVersion"] == first["resourceVersion"]
    # A watch from that version delivers changes that the pages may have missed.
    async with api.watch("resourceflavors", resourceVersion=first["resourceVersion"]) as watch:
        assert await watch.next_types_and_names(1) == [("ADDED", "d")]


async def test_expired_continue_token_is_answered_with_a_new_token(store):
    time = NOW
    async with serving(store, options={"now": lambda: time}) as api:
        for name in "ab":
            await api.post("cohorts", cohort(name))
        token = (await api.get("cohorts", params={"limit": "1"})).body["metadata"]["continue"]
        time += 3600
        expired = await api.get("cohorts", params={"continue": token})
        assert (expired.status, expired.body["reason"]) == (410, "Expired")
        assert await names(api, "cohorts", **{"continue": expired.body["metadata"]["continue"]}) == ["b"]


async def test_list_honours_resource_version_and_resource_version_match(api, monkeypatch):
    monkeypatch.setattr(pagination, "FUTURE_SECONDS", 0.01)
    now = int((await api.post("cohorts", cohort("a"))).body["metadata"]["resourceVersion"])
    for query in ({"resourceVersion": "0"}, {"resourceVersion": str(now)},
                  {"resourceVersion": str(now), "resourceVersionMatch": "Exact"},
                  {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"}):  # fmt: skip
        assert await names(api, "cohorts", **query) == ["a"]
    future = await api.get("workloads", params={"resourceVersion": str(now + 1)})
    assert (future.status, future.body["reason"], future.headers["Retry-After"]) == (504, "Timeout", "1")
    await api.post("cohorts", cohort("b"))
    old = await api.get("cohorts", params={"resourceVersion": str(now), "resourceVersionMatch": "Exact"})
    assert (old.status, old.body["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("path", "document", "columns", "cells"),
    [
        ("clusterqueues", cluster_queue("one", cohortName="root"),
         ["Name", "Cohort", "Strategy", "Pending Workloads", "Admitted Workloads", "Active", "Age"],
         ["one", "root", "BestEffortFIFO", 0, 0, "False"]),
        ("cohorts", cohort("one"), ["Name", "Parent", "Age"], ["one", None]),
        ("namespaces/a/localqueues", local_queue("one", "a", "cq"),
         ["Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Active", "Age"],
         ["one", "cq", 0, 0, "False"]),
        ("resourceflavors", flavor("one", pool="a100"), ["Name", "Node Labels", "Age"], ["one", "pool=a100"]),
        ("workloadpriorityclasses", priority_class("one", 7), ["Name", "Value", "Age"], ["one", 7]),
        ("admissionchecks", admission_check("one"), ["Name", "Controller", "Active", "Age"],
         ["one", "example.com/budget", "Unknown"]),
        ("provisioningrequestconfigs", provisioning_config("one", "example.com"), ["Name", "Class", "Age"],
         ["one", "example.com"]),
        ("topologies", topology("one", "block", "rack"), ["Name", "Levels", "Age"], ["one", "block,rack"]),
        ("budgets", budget("one", 100), ["Name", "Period", "Hours", "Spent", "Reserved", "Left", "Ends", "Age"],
         ["one", "Month", "", "", "", "", None]),
        ("drains", drain("one", "n17"), ["Name", "Drained", "Start", "Deadline", "Reason", "Age"],
         ["one", "n17,flavor/a100", None, "2030-12-01T18:00:00Z", "fans"]),
        ("userlimits", user_limit("one", 2, users=["ann", "bob"], groups=["ml", "it"], resources={"cpu": "4"}),
         ["Name", "For", "ClusterQueue", "Limits", "Age"],
         ["one", "ann,bob,group/ml,+1", None, "running=2,cpu=4"]),
        ("pricebooks", price_book("one", {"resource": "cpu", "perHour": 0.5}), ["Name", "Currency", "Prices", "Age"],
         ["one", "EUR", 1]),
        ("reservations", reservation("one", "cq", 4, topology={"level": "rack", "domains": ["r1", "r2"], "count": 2}),
         ["Name", "ClusterQueue", "Quota", "Where", "Start", "End", "State", "Age"],
         ["one", "cq", "default/cpu=4", "r1,r2", "2030-12-01T08:00:00Z", "2030-12-01T18:00:00Z", "Pending"]),
        ("clusters", manifest("Cluster", "one", spec={"kubeconfig": "one.yaml"}),
         ["Name", "State", "Since", "Nodes", "Held", "Seen", "Message", "Age"],
         ["one", "Connecting", None, None, "", None, "the leader has not tried yet to join it"]),
    ],
)  # fmt: skip
async def test_queue_objects_are_served_as_tables(api, path, document, columns, cells):
    created = (await api.post(path, document)).body
    for answer in (await api.get(path, **as_form(TABLE)), await api.get(f"{path}/one", **as_form(TABLE))):
        table = answer.body
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [column["name"] for column in table["columnDefinitions"]] == columns
        (row,) = table["rows"]
        assert row["cells"][:-1] == cells
        assert row["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    bare = (await api.get(path, params={"includeObject": "None"}, **as_form(TABLE))).body
    assert bare["rows"][0]["object"] is None
    whole = (await api.get(path, params={"includeObject": "Object"}, **as_form(TABLE))).body
    assert whole["rows"][0]["object"] == created


async def test_workload_table_has_the_columns_of_kueue(store, commit):
    async with serving(store, options={"now": lambda: NOW + 90}) as api:
        await commit(record("u1", "train", reason="ExceedsQuota"), record("u2", "run", State.ADMITTED, admitted_at=NOW))
        table = (await api.get("workloads", **as_form(TABLE))).body
    assert [column["name"] for column in table["columnDefinitions"] if not column["priority"]] == [
        "Name", "Queue", "Reserved in", "Admitted", "Finished", "Age",
    ]  # fmt: skip
    run, train = (row["cells"] for row in table["rows"])
    wide = [column["name"] for column in table["columnDefinitions"] if column["priority"]]
    assert wide == [
        "Priority",
        "User",
        "Waits for",
        "State",
        "Exit",
        "Flavor",
        "Cluster",
        "Pods",
        "Requests",
        "Waited",
        "Elapsed",
        "Starts",
        "Message",
    ]
    assert run[1:] == [
        "main", "one", "True", None, 5, "alice", None, "admitted", None, "default", None, "3", "cpu=1500m", "0s", "90s",
        None, "Admitted by ClusterQueue one on default.", "90s",
    ]  # fmt: skip
    assert train[1:] == [
        "main", None, None, None, 5, "alice", "ExceedsQuota",
        "pending", None, None, None, "3", "cpu=1500m,memory=3Gi", "90s", None, None, "", "90s",
    ]  # fmt: skip


async def test_exit_code_of_a_failed_workload_is_in_its_message_and_in_a_column(store, commit):
    ended = {"finished_at": NOW, "outcome": "Failed", "message": "Job has reached the specified backoff limit"}
    await commit(record("u1", "train", State.FINISHED, **ended), record("u2", "other", State.FINISHED, **ended))
    await store.note_failures({"u1": "exit code 137 (OOMKilled)"})
    async with serving(store, options={"now": lambda: NOW + 90}) as api:
        table = (await api.get("workloads", **as_form(TABLE))).body
    place = [column["name"] for column in table["columnDefinitions"]].index("Exit")
    other, train = (row["cells"] for row in table["rows"])
    assert (train[place], other[place]) == ("137 (OOMKilled)", None)
    assert train[-2] == "exit code 137 (OOMKilled): Job has reached the specified backoff limit"


async def test_age_counts_from_queueing_if_the_creation_is_in_the_future(store, commit):
    """As with an API server whose clock is ahead, for example a sandbox that runs faster than real time."""
    async with serving(store, options={"now": lambda: NOW + 90}) as api:
        await commit(record("u1", "train", created=NOW + 7200), record("u2", "old", created=NOW - 60))
        table = (await api.get("workloads", **as_form(TABLE))).body
    assert [row["cells"][-1] for row in table["rows"]] == ["2m30s", "90s"]


async def test_partial_object_metadata_is_served_on_request(api):
    created = (await api.post("cohorts", cohort("one"))).body
    form = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
    listed = (await api.get("cohorts", **as_form(form.format("List")))).body
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    (item,) = listed["items"]
    got = (await api.get("cohorts/one", **as_form(form.format("")))).body
    wanted = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}
    assert item == got == wanted
    for path, suffix in (("cohorts", ""), ("cohorts/one", "List")):
        assert (await api.get(path, **as_form(form.format(suffix)))).status == 406


@pytest.mark.parametrize("accept", ["text/html", "application/yaml", TABLE.partition(",")[0].replace("v1", "v2")])
async def test_unsupported_accept_header_gets_406(api, accept):
    refused = await api.get("cohorts", **as_form(accept))
    assert (refused.status, refused.body["reason"]) == (406, "NotAcceptable")


async def test_page_size_is_capped_even_without_a_limit_parameter(api, monkeypatch):
    monkeypatch.setattr("admission.api.http.request_options.LARGEST_PAGE", 2)
    for name in "abc":
        await api.post("cohorts", cohort(name))
    for query in ({}, {"limit": "3"}):
        page = (await api.get("cohorts", params=query)).body
        assert [item["metadata"]["name"] for item in page["items"]] == ["a", "b"]
        assert page["metadata"]["remainingItemCount"] == 1
