"""Orders of admins for workloads by PATCH, and reports of admission checks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from api_client import on_both_databases
from queue_objects import cluster_queue, local_queue
from workload_records import NOW, record

from admission.store.records import Changes, CheckRecord, State

PATH = "namespaces/a/workloads/train"


@pytest.fixture
async def queues(api):
    await api.post("clusterqueues", cluster_queue("one"))
    for name in ("main", "fast"):
        await api.post("namespaces/a/localqueues", local_queue(name, "a", "one"))


def spec_of(answer) -> dict[str, object]:
    assert answer.status == 200, answer.body
    return {name: answer.body["spec"].get(name) for name in ("queueName", "priority", "hold", "active")}


@on_both_databases
async def test_admin_order_is_applied_and_reverted(api, commit, queues):
    await commit(record("u1", "train"))
    ordered = await api.patch(PATH, {"spec": {"queueName": "fast", "priority": 9, "hold": True, "active": False}})
    assert spec_of(ordered) == {"queueName": "fast", "priority": 9, "hold": True, "active": False}
    assert spec_of(await api.get(PATH)) == spec_of(ordered)

    back = {"spec": {"queueName": None, "priority": None, "hold": False, "active": True}}
    assert spec_of(await api.patch(PATH, back)) == {"queueName": "main", "priority": 5, "hold": False, "active": True}


async def test_order_is_a_new_resource_version_with_author_and_reason(api, store, commit, queues):
    await commit(record("u1", "train"))
    before = (await api.get(PATH)).body["metadata"]["resourceVersion"]
    patch = {"spec": {"hold": True}, "metadata": {"annotations": {"sluice.dev/change-reason": "too hot"}}}
    after = (await api.patch(PATH, patch)).body["metadata"]["resourceVersion"]
    assert int(after) > int(before)
    (order,) = (await store.orders.of(["u1"])).orders
    assert (order.held, order.author, order.reason) == (True, "sluice:admin", "too hot")


async def test_order_can_be_given_by_json_patch(api, commit, queues):
    await commit(record("u1", "train"))
    path = "/spec/priority"
    patch = [{"op": "test", "path": path, "value": 5}, {"op": "replace", "path": path, "value": 6}]
    assert spec_of(await api.patch(PATH, patch, form="json"))["priority"] == 6
    refused = await api.patch(PATH, patch, form="json")
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")


@on_both_databases
async def test_order_places_a_workload_at_the_top_or_before_another_workload(api, store, commit, queues):
    first, second = record("u1", "train"), record("u2", "eval", created=NOW + 1)
    await commit(first, second)

    async def rank(uid: str) -> tuple[int | None, float | None]:
        orders = (await store.orders.of([uid])).orders
        return (orders[0].rank_priority, orders[0].rank_at) if orders else (None, None)

    top = await api.patch("namespaces/a/workloads/eval", {"spec": {"order": {"top": True}}})
    assert top.status == 200
    assert set(top.body["spec"]["order"]) == {"priority", "since"}
    assert await rank("u2") < (5, NOW)
    name = (await api.get("namespaces/a/workloads/eval")).body["metadata"]["name"]
    await api.patch(PATH, {"spec": {"order": {"before": name}}})
    assert await rank("u1") < await rank("u2")
    # A place can be changed and removed.
    assert (await api.patch(PATH, {"spec": {"order": {"top": True}}})).status == 200
    back = await api.patch(PATH, {"spec": {"order": None}})
    assert "order" not in back.body["spec"]
    assert await rank("u1") == (None, None)


@pytest.mark.parametrize(
    ("patch", "field", "says"),
    [
        ({"spec": {"priority": "high"}}, "spec.priority", "must be an integer"),
        ({"spec": {"priority": 2**40}}, "spec.priority", "must be from -2147483648 to 2147483647"),
        ({"spec": {"hold": "yes"}}, "spec.hold", ""),
        ({"spec": {"active": 1}}, "spec.active", ""),
        ({"spec": {"queueName": "A B"}}, "spec.queueName", "is no name"),
        ({"spec": {"queueName": "nowhere"}}, "spec.queueName", "does not exist"),
        ({"spec": {"order": "top"}}, "spec.order", "must be an object"),
        ({"spec": {"order": {}}}, "spec.order", 'must be {"top": true} or'),
        ({"spec": {"order": {"top": True, "before": "x"}}}, "spec.order", 'must be {"top": true} or'),
        ({"spec": {"order": {"top": False}}}, "spec.order.top", ""),
        ({"spec": {"order": {"below": "x"}}}, "spec.order.below", "unknown field"),
        ({"spec": {"order": {"before": "nobody"}}}, "spec.order.before", 'there is no workload "nobody"'),
        ({"spec": {"podSets": []}}, "spec.podSets", "cannot be changed"),
        ({"spec": {"object": {"name": "x"}}}, "spec.object.name", "cannot be changed"),
        ({"spec": {"odd": 1}}, "spec.odd", "cannot be changed"),
        ({"spec": None}, "spec", "cannot be changed"),
        ({"metadata": {"labels": {"a": "b"}}}, "metadata.labels.a", "cannot be changed"),
        ({"metadata": None}, "metadata", "must be an object"),
        ({"kind": "Job"}, "kind", "cannot be changed"),
    ],
)
async def test_invalid_order_is_refused_with_its_field(api, commit, queues, patch, field, says):
    await commit(record("u1", "train"))
    before = (await api.get(PATH)).body
    refused = await api.patch(PATH, patch)
    assert refused.status == 422, refused.body
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == field
    assert says in cause["message"]
    assert (await api.get(PATH)).body == before


async def test_patch_of_status_or_unchanged_priority_writes_nothing(api, commit, queues):
    await commit(record("u1", "train"))
    before = (await api.get(PATH)).body
    same = await api.patch(PATH, {"status": {"state": "finished"}, "spec": {"priority": 5}})
    assert (same.status, same.body) == (200, before)


async def test_order_with_a_stale_resource_version_or_wrong_uid_is_a_conflict(api, commit, queues):
    await commit(record("u1", "train"))
    old = (await api.get(PATH)).body["metadata"]["resourceVersion"]
    await api.patch(PATH, {"spec": {"priority": 6}})
    for metadata in ({"resourceVersion": old}, {"uid": "another"}):
        refused = await api.patch(PATH, {"metadata": metadata, "spec": {"priority": 7}})
        assert (refused.status, refused.body["reason"]) == (409, "Conflict")


async def test_order_for_a_finished_workload_is_a_conflict(api, commit, queues):
    await commit(record("u1", "train", State.FINISHED))
    refused = await api.patch(PATH, {"spec": {"hold": True}})
    assert refused.status == 409
    assert "is finished" in refused.body["message"]


async def test_dry_run_of_an_order_writes_nothing(api, commit, queues):
    await commit(record("u1", "train"))
    before = (await api.get(PATH)).body
    assert (await api.patch(PATH, {"spec": {"hold": True}}, dryRun="All")).status == 200
    assert (await api.get(PATH)).body == before


async def test_server_side_apply_of_a_workload_is_unsupported(api, commit):
    await commit(record("u1", "train"))
    assert (await api.patch(PATH, {}, form="apply", fieldManager="a")).status == 415
    assert (await api.patch("namespaces/a/workloads/nobody", {})).status == 404


# ---------------------------------------------------------------------- admission checks


@pytest.fixture
async def asked(store, commit):
    """A workload that holds quota and waits for two checks."""
    admitted = replace(record("u1", "train", State.ADMITTED, admitted_at=NOW), checks_pending=True)
    await commit(admitted)
    epoch = await store.lead("again", elected=True)
    checks = tuple(CheckRecord("u1", name, "Pending", NOW) for name in ("budget", "nodes"))
    await store.commit(Changes(checks=checks), epoch=epoch)


@on_both_databases
async def test_admission_check_reports_its_state_by_merge_patch(api, asked):
    before = (await api.get(PATH)).body["status"]
    assert [(check["name"], check["state"]) for check in before["admissionChecks"]] == [
        ("budget", "Pending"), ("nodes", "Pending"),
    ]  # fmt: skip
    conditions = {each["type"]: each["status"] for each in before["conditions"]}
    assert conditions == {"QuotaReserved": "True", "Admitted": "False"}

    update = {"name": "main", "nodeSelector": {"pool": "spot"}}
    ready = {**before["admissionChecks"][0], "state": "Ready", "message": "paid", "podSetUpdates": [update]}
    answer = await api.patch(f"{PATH}/status", {"status": {"admissionChecks": [ready, before["admissionChecks"][1]]}})
    assert answer.status == 200
    budget, nodes = answer.body["status"]["admissionChecks"]
    assert (budget["state"], budget["message"], budget["podSetUpdates"]) == ("Ready", "paid", [update])
    assert nodes == before["admissionChecks"][1]
    assert (await api.get(f"{PATH}/status")).body == answer.body


async def test_answer_that_names_a_former_admission_is_refused(api, asked, store):
    (first, *_) = (await api.get(PATH)).body["status"]["admissionChecks"]
    again = replace(record("u1", "train", State.ADMITTED, admitted_at=NOW + 60), checks_pending=True)
    await store.commit(Changes(workloads=(again,)), epoch=await store.lead("later", elected=True))
    late = await api.patch(f"{PATH}/status", {"status": {"admissionChecks": [{**first, "state": "Ready"}]}})
    assert late.status == 409
    assert f"about the admission of {first['quotaReservedAt']}, which has ended" in late.body["message"]
    (second, *_) = (await api.get(PATH)).body["status"]["admissionChecks"]
    assert second == {**first, "quotaReservedAt": second["quotaReservedAt"]}
    answer = await api.patch(f"{PATH}/status", {"status": {"admissionChecks": [{**second, "state": "Ready"}]}})
    assert (answer.status, answer.body["status"]["admissionChecks"][0]["state"]) == (200, "Ready")


async def test_admission_check_reports_its_state_by_json_patch(api, asked):
    patch = [
        {"op": "test", "path": "/status/admissionChecks/1/name", "value": "nodes"},
        {"op": "replace", "path": "/status/admissionChecks/1/state", "value": "Retry"},
        {"op": "add", "path": "/status/admissionChecks/1/requeueAfterSeconds", "value": 60},
    ]
    answer = await api.patch(f"{PATH}/status", patch, form="json")
    assert answer.status == 200
    assert answer.body["status"]["admissionChecks"][1]["requeueAfterSeconds"] == 60


@pytest.mark.parametrize(
    ("status", "field", "says"),
    [
        ({"admissionChecks": [{"name": "budget", "state": "Good"}]}, "status.admissionChecks[0].state", "Good"),
        ({"admissionChecks": [{"name": "budget", "state": "Ready", "x": 1}]}, "status.admissionChecks[0].x", "unknown"),
        ({"admissionChecks": [{"name": "other", "state": "Ready"}]}, "status.admissionChecks", "is not an admission"),
        ({"admissionChecks": ["budget"]}, "status.admissionChecks[0]", "must be an object"),
        ({"admissionChecks": "Ready"}, "status.admissionChecks", "must be a list"),
        ({"state": "finished"}, "status.state", "cannot be changed"),
        (None, "status", "must be an object"),
    ],
)  # fmt: skip
async def test_invalid_admission_check_report_is_refused_with_its_field(api, asked, status, field, says):
    refused = await api.patch(f"{PATH}/status", {"status": status})
    assert refused.status == 422, refused.body
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == field
    assert says in cause["message"]


async def test_patch_of_the_status_subresource_does_not_change_the_spec(api, asked):
    answer = await api.patch(f"{PATH}/status", {"spec": {"priority": 99}})
    assert (answer.status, answer.body["spec"]["priority"]) == (200, 5)
