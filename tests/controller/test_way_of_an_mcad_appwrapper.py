"""AppWrappers of MCAD: their items are created on admission and deleted on eviction."""

from __future__ import annotations

import base64

import jsonpatch
import orjson
import pytest
from custom_kinds import definition, until
from job_examples import cluster_queue, flavor, local_queue
from kind_manifests import document

from admission.kinds import all_kinds
from admission.kinds.mcad import DISPATCH
from webhooks.review import Reviewer

KINDS = all_kinds(frameworks=("batch/job", "workload.codeflare.dev/appwrapper", "mcad.ibm.com/appwrapper"))
APP_WRAPPER = KINDS.get("workload.codeflare.dev", "AppWrapper")
NAME = "train-snxb5slvbnvdxl"


@pytest.fixture
async def cluster(world):
    """A cluster with the definition of AppWrappers and a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue("user-queue"))
    await world.user.create("customresourcedefinitions", "", definition(APP_WRAPPER, "v1beta1"))
    await world.start(kinds=KINDS, makes_items=True)
    return world


def of_torchx(cpu="1"):
    """TorchX's manifest with smaller pods, which run until they are stopped."""
    obj = document("mcad-torchx-ddp")
    for item in obj["spec"]["resources"]["GenericItems"][:2]:
        template = item["generictemplate"]
        template["metadata"]["annotations"]["sandbox.sluice.dev/run-seconds"] = "1000000"
        template["spec"]["terminationGracePeriodSeconds"] = 1
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return obj


async def submit(cluster, obj):
    return await cluster.user.create("appwrappers", "team-a", obj)


async def state(cluster, **fields):
    """Wait until the AppWrapper's status has these values, and return it."""

    def has(obj):
        status = obj.get("status") or {}
        return all(status.get(field) == value for field, value in fields.items())

    return await until(cluster.user, "appwrappers", NAME, has)


def pods(cluster):
    return {each["metadata"]["name"]: each for each in cluster.user.list("pods", "team-a")}


async def test_appwrapper_status_has_the_values_that_torchx_reads(cluster):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await submit(cluster, of_torchx())
    await state(cluster, state="Pending", isdispatched=False)
    assert pods(cluster) == {}
    await cluster.apply(cluster_queue())
    running = await state(cluster, state="Running", queuejobstate="Running", running=2, pending=0)
    service = cluster.user.get("services", "team-a", NAME)
    assert service["metadata"]["ownerReferences"][0]["uid"] == running["metadata"]["uid"]
    for each in pods(cluster).values():
        assert each["spec"]["nodeSelector"] == {"type": "kwok"}
        assert each["metadata"]["labels"]["appwrapper.mcad.ibm.com"] == NAME
    await cluster.end_pods("Succeeded", f"{NAME}-0")
    await cluster.end_pods("Succeeded", f"{NAME}-1")
    assert (await cluster.record(NAME, "finished")).outcome == "Succeeded"
    # `state` stays Running: TorchX does not know Completed, and its manifest does not request it.
    await state(cluster, state="Running", queuejobstate="Completed", Succeeded=2)


async def test_appwrapper_fails_when_a_pod_has_failed_and_none_runs(cluster):
    await submit(cluster, of_torchx())
    await state(cluster, running=2)
    await cluster.end_pods("Failed", f"{NAME}-0")
    await state(cluster, state="Running", running=1, failed=1)
    await cluster.end_pods("Succeeded", f"{NAME}-1")
    await state(cluster, state="Failed", Succeeded=1, failed=1)
    assert (await cluster.record(NAME, "finished")).outcome == "Failed"


@pytest.mark.costly
async def test_missing_items_are_created_and_remaining_items_deleted_after_restart(cluster):
    await submit(cluster, of_torchx())
    await state(cluster, running=2)
    await cluster.end()
    await cluster.user.delete("services", "team-a", NAME)
    await cluster.user.delete("pods", "team-a", f"{NAME}-1")
    await cluster.start(kinds=KINDS, makes_items=True)
    await until(cluster.user, "services", NAME, lambda _: True)
    await until(cluster.user, "pods", f"{NAME}-1", lambda obj: obj["status"].get("phase") == "Running")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await cluster.order(NAME, held=True)  # without a leader that deletes its pods, it holds its quota
    await until(cluster.user, "appwrappers", NAME, APP_WRAPPER.gated_by.is_closed)
    record = await cluster.record(NAME, "evicting")
    assert sum(each.usage["cpu"] for each in record.admission.pod_sets) == 2000
    await cluster.end()
    await cluster.start(kinds=KINDS, makes_items=True)
    assert (await cluster.record(NAME, "pending")).admission is None
    await state(cluster, state="Pending", isdispatched=False)
    assert pods(cluster) == {}


async def test_dispatch_annotation_set_by_user_creates_no_items(cluster):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await submit(cluster, of_torchx())
    await cluster.record(NAME, "pending")
    mark = {"metadata": {"annotations": {DISPATCH: "true"}}}
    await cluster.user.patch("appwrappers", "team-a", NAME, mark)  # past the webhook
    await until(cluster.user, "appwrappers", NAME, APP_WRAPPER.gated_by.is_closed)
    await state(cluster, state="Pending", isdispatched=False)
    assert pods(cluster) == {}
    assert not [key for key in cluster.client.requests if key[:2] == ("POST", "pods")], "not even for a moment"
    unqueued = of_torchx()
    unqueued["metadata"] = {"name": "other", "annotations": {DISPATCH: "true"}}
    await submit(cluster, unqueued)
    await cluster.apply(cluster_queue())
    await state(cluster, running=2)
    assert set(pods(cluster)) == {f"{NAME}-0", f"{NAME}-1"}


async def test_items_are_deleted_when_queue_label_is_removed_past_the_webhook(cluster):
    await submit(cluster, of_torchx())
    await state(cluster, running=2)
    gone = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}}
    await cluster.user.patch("appwrappers", "team-a", NAME, gone)
    await state(cluster, state="Pending", isdispatched=False)
    assert pods(cluster) == {}


async def test_malformed_appwrappers_do_not_block_others(cluster):
    for number, change in enumerate(
        ({"schedulingSpec": []}, {"resources": {"GenericItems": [7]}}, {"resources": [], "components": 3}, None)
    ):
        odd = of_torchx()
        odd["metadata"]["name"] = f"odd-{number}"
        items = odd["spec"]["resources"]["GenericItems"]
        for each in items:
            each["generictemplate"]["metadata"] |= {"name": f"odd-{items.index(each)}", "labels": [1]}
        odd["spec"] = None if change is None else odd["spec"] | change
        await submit(cluster, odd)
    await submit(cluster, of_torchx())
    await state(cluster, running=2)


async def test_existing_object_with_the_name_of_an_item_is_not_adopted(cluster):
    item = of_torchx()["spec"]["resources"]["GenericItems"][0]["generictemplate"]
    mine = await cluster.user.create("pods", "team-a", item)
    await submit(cluster, of_torchx())
    failed = await state(cluster, state="Failed")
    assert failed["status"]["message"] == (
        f"Pod {NAME}-0 already exists and does not belong to this AppWrapper; use another name"
    )
    await cluster.record(NAME, "finished")
    assert pods(cluster)[f"{NAME}-0"]["metadata"]["uid"] == mine["metadata"]["uid"]


@pytest.mark.parametrize("code", [403, 422])
async def test_created_items_are_deleted_when_a_later_item_cannot_be_created(cluster, code):
    """The Service follows both pods in the manifest."""
    match = {"verb": "create", "resource": "services", "user": "sluice"}
    cluster.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": code}]})
    kept = of_torchx()
    for item in kept["spec"]["resources"]["GenericItems"][:2]:
        item["generictemplate"]["metadata"]["finalizers"] = ["example.com/keep"]
    await submit(cluster, kept)

    async def ending():
        return any("deletionTimestamp" in each["metadata"] for each in pods(cluster).values())

    await cluster.eventually(ending)
    assert (await cluster.record(NAME, "admitted")).admission is not None, "it holds quota until they are gone"
    for name in pods(cluster):
        await cluster.user.patch("pods", "team-a", name, {"metadata": {"finalizers": None}})
    failed = await state(cluster, state="Failed")
    assert pods(cluster) == {}
    assert failed["status"]["message"].startswith(f"Service {NAME} cannot be created: ")
    assert (await cluster.record(NAME, "finished")).outcome == "Failed"

    async def told():
        events = [each for each in cluster.user.list("events", "team-a") if each["type"] == "Warning"]
        return [each for each in events if each.get("message") == failed["status"]["message"]]

    assert len(await cluster.eventually(told)) == 1
    cluster.sandbox.faults.remove()
    other = of_torchx(cpu="2")  # all of the quota is free again
    other["metadata"]["name"] = "other"
    for item in other["spec"]["resources"]["GenericItems"]:
        item["generictemplate"]["metadata"]["name"] += "-other"
    await submit(cluster, other)
    await until(cluster.user, "appwrappers", "other", lambda obj: obj.get("status", {}).get("running") == 2)


async def test_earlier_items_are_deleted_when_the_name_of_a_later_item_is_taken(cluster):
    item = of_torchx()["spec"]["resources"]["GenericItems"][1]["generictemplate"]
    mine = await cluster.user.create("pods", "team-a", item)
    await submit(cluster, of_torchx())
    await state(cluster, state="Failed")

    async def is_alone():
        return {name: each["metadata"]["uid"] for name, each in pods(cluster).items()} == {
            f"{NAME}-1": mine["metadata"]["uid"]
        }

    await cluster.eventually(is_alone)


@pytest.mark.parametrize(("when", "code", "created"), [("before", 503, (2, 1)), ("after", 500, (1, 0))])
async def test_items_are_created_once_despite_temporary_errors_of_the_api_server(cluster, when, code, created):
    """The request is refused, or is carried out and its response is lost; for the first pod, and for the Service."""
    fault = {"do": "error", "code": code, "when": when, "limit": 1}
    rules = [
        {"match": {"verb": "create", "resource": plural, "user": "sluice"}, **fault} for plural in ("pods", "services")
    ]
    cluster.sandbox.faults.install({"rules": rules})
    await submit(cluster, of_torchx())
    await state(cluster, running=2)
    assert set(pods(cluster)) == {f"{NAME}-0", f"{NAME}-1"}
    requests = cluster.client.requests
    assert [requests["POST", plural, str(code)] for plural in ("pods", "services")] == [1, 1]
    assert tuple(requests["POST", plural, "201"] for plural in ("pods", "services")) == created
    assert not [key for key in requests if key[0] == "DELETE"]


def reviewed(new, old=None):
    request = {
        "uid": "r",
        "resource": {"group": APP_WRAPPER.group, "version": "v1beta1", "resource": APP_WRAPPER.plural},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "team-a",
        "userInfo": {"username": "alice"},
        "object": new,
        "oldObject": old,
    }
    response = Reviewer(KINDS, own_usernames=["sluice"]).review({"request": request})["response"]
    patch = orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return response, jsonpatch.apply_patch(new, patch)


def test_webhook_removes_dispatch_annotation_set_by_user():
    marked = of_torchx()
    marked["metadata"]["annotations"] = {DISPATCH: "true"}
    _, stored = reviewed(marked)
    assert stored["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice"}
    response, stored = reviewed(marked, of_torchx())
    assert DISPATCH not in stored["metadata"]["annotations"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"metadata.annotations[{DISPATCH}]: only Sluice starts a queued AppWrapper")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1"},
            "kind: Sluice creates no",
        ),
        ({"metadata": {}}, "metadata.name: is missing, or no valid name for the object to be created"),
        ({"metadata": {"name": f"{NAME}-1"}}, "metadata.name: there are two of Pod"),
    ],
)
def test_appwrapper_with_invalid_item_is_rejected(change, says):
    obj = of_torchx()
    items = obj["spec"]["resources"]["GenericItems"]
    items[0]["generictemplate"] |= change
    response, _ = reviewed(obj)
    assert not response["allowed"]
    assert says in response["status"]["message"]


@pytest.mark.parametrize(("items", "replicas"), [(1001, 1), (2, 501), (5000, 1000)])
def test_appwrapper_with_too_many_objects_is_rejected(items, replicas):
    """Items are counted before they are expanded, which could keep the webhook busy for minutes."""
    obj = of_torchx()
    first = {**obj["spec"]["resources"]["GenericItems"][0], "replicas": replicas}
    template = first["generictemplate"]
    obj["spec"]["resources"]["GenericItems"] = [
        {**first, "generictemplate": {**template, "metadata": {**template["metadata"], "name": f"p{number}"}}}
        for number in range(items)
    ]
    response, _ = reviewed(obj)
    assert not response["allowed"]
    assert "spec.resources.GenericItems: there are more than 1000 objects" in response["status"]["message"]


async def test_replica_that_no_longer_leads_creates_no_items(cluster, caplog):
    """The leadership ends between two attempts of a request."""
    creates = {"user": "sluice", "verb": "create", "resource": "pods"}
    faults = cluster.sandbox.faults
    faults.install({"rules": [{"match": creates, "do": "error", "code": 503, "retry_after": 1}]})
    await submit(cluster, of_torchx())

    async def is_refused():
        return faults.describe()["rules"][0]["struck"]

    await cluster.eventually(is_refused)
    cluster.leads = False
    faults.install({"rules": []})

    async def has_given_up():
        return "cannot create or delete the objects of an AppWrapper" in caplog.text

    await cluster.eventually(has_given_up)
    assert pods(cluster) == {}
    cluster.leads = True
    await state(cluster, state="Running", running=2)
