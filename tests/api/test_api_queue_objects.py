"""List, get, create, replace and delete of queue objects."""

from __future__ import annotations

import pytest
from api_client import on_both_databases
from queue_objects import (
    admission_check,
    cluster_queue,
    cohort,
    flavor,
    local_queue,
    manifest,
    priority_class,
    provisioning_config,
    topology,
)
from workload_records import NOW, record

from admission.store.records import Changes, CheckRecord, State

ALL = [
    ("clusterqueues", cluster_queue("one")),
    ("cohorts", cohort("one")),
    ("namespaces/team-a/localqueues", local_queue("one", "team-a", "cq")),
    ("resourceflavors", flavor("one", pool="a100")),
    ("workloadpriorityclasses", priority_class("one", 7)),
    ("admissionchecks", admission_check("one")),
    ("topologies", topology("one", "block", "rack")),
]


@on_both_databases
@pytest.mark.parametrize(("path", "document"), ALL, ids=[path for path, _ in ALL])
async def test_each_kind_is_created_read_replaced_and_deleted(api, path, document):
    created = await api.post(path, document)
    assert created.status == 201
    assert created.body["metadata"]["generation"] == 1
    assert created.body["metadata"]["uid"]

    got = await api.get(f"{path}/one")
    assert got.status == 200
    assert got.body == created.body

    labelled = {**created.body, "metadata": {**created.body["metadata"], "labels": {"cost-centre": "12"}}}
    replaced = await api.put(f"{path}/one", labelled)
    assert replaced.status == 200
    assert replaced.body["metadata"]["labels"] == {"cost-centre": "12"}
    assert replaced.body["metadata"]["generation"] == 1
    assert int(replaced.body["metadata"]["resourceVersion"]) > int(created.body["metadata"]["resourceVersion"])

    deleted = await api.delete(f"{path}/one")
    assert deleted.status == 200
    assert deleted.body["status"] == "Success"
    assert deleted.body["details"]["uid"] == created.body["metadata"]["uid"]
    assert (await api.get(f"{path}/one")).status == 404


async def test_replacement_without_a_difference_keeps_the_resource_version(api):
    created = await api.post("clusterqueues", cluster_queue("one"))
    same = await api.put("clusterqueues/one", cluster_queue("one"))
    assert same.body["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]
    more = await api.put("clusterqueues/one", cluster_queue("one", cpu="5"))
    assert more.body["metadata"]["generation"] == 2


@on_both_databases
async def test_a_stale_resource_version_is_a_conflict(api):
    first = (await api.post("clusterqueues", cluster_queue("one"))).body
    await api.put("clusterqueues/one", cluster_queue("one", cpu="5"))
    stale = cluster_queue("one", cpu="6")
    stale["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"]

    refused = await api.put("clusterqueues/one", stale)

    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["details"] == {"name": "one", "group": "sluice.dev", "kind": "clusterqueues"}
    left = (await api.get("clusterqueues/one")).body
    assert left["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "5"
    preconditions = {"preconditions": {"resourceVersion": first["metadata"]["resourceVersion"]}}
    assert (await api.delete("clusterqueues/one", preconditions)).status == 409


async def test_creation_of_an_existing_object_gets_already_exists(api):
    await api.post("cohorts", cohort("one"))
    again = await api.post("cohorts", cohort("one"))
    assert (again.status, again.body["reason"]) == (409, "AlreadyExists")


@on_both_databases
@pytest.mark.parametrize("method", ["create", "replace", "delete"])
async def test_a_dry_run_answers_like_the_write_and_writes_nothing(api, method):
    await api.post("cohorts", cohort("there"))
    before = (await api.get("cohorts")).body
    query = {"params": {"dryRun": "All"}}
    match method:
        case "create":
            answer = await api.post("cohorts", cohort("new"), **query)
            assert answer.status == 201
            assert answer.body["metadata"]["name"] == "new"
        case "replace":
            answer = await api.put("cohorts/there", cohort("there", parent="root"), **query)
            assert answer.status == 200
            assert answer.body["spec"]["parentName"] == "root"
        case "delete":
            answer = await api.delete("cohorts/there", **query)
            assert answer.status == 200
    assert (await api.get("cohorts")).body == before


async def test_dry_run_in_the_delete_options_deletes_nothing(api):
    await api.post("cohorts", cohort("there"))
    assert (await api.delete("cohorts/there", {"dryRun": ["All"]})).status == 200
    assert (await api.get("cohorts/there")).status == 200


@on_both_databases
async def test_local_queue_list_is_sorted_and_paginated(api):
    for namespace, name in [("b", "x"), ("a", "y"), ("a", "x"), ("c", "x"), ("b", "z")]:
        await api.post(f"namespaces/{namespace}/localqueues", local_queue(name, namespace, "cq"))
    whole = (await api.get("localqueues")).body
    keys = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in whole["items"]]
    assert keys == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "z"), ("c", "x")]
    assert whole["kind"] == "LocalQueueList"
    assert "continue" not in whole["metadata"]

    paged, remaining, token = [], [], ""
    while True:
        page = (await api.get("localqueues", params={"limit": "2", "continue": token})).body
        paged += page["items"]
        remaining.append(page["metadata"].get("remainingItemCount"))
        if not (token := page["metadata"].get("continue")):
            break
    assert paged == whole["items"]
    assert remaining == [3, 1, None]

    of_b = (await api.get("namespaces/b/localqueues")).body
    assert [item["metadata"]["name"] for item in of_b["items"]] == ["x", "z"]


async def test_namespace_and_name_missing_in_the_body_are_taken_from_the_path(api):
    document = local_queue("main", "", "cq")
    created = await api.post("namespaces/team-a/localqueues", document)
    assert created.body["metadata"]["namespace"] == "team-a"
    del document["metadata"]["name"]
    assert (await api.put("namespaces/team-a/localqueues/main", document)).status == 200


async def test_yaml_body_is_accepted(api):
    text = "apiVersion: sluice.dev/v1\nkind: Cohort\nmetadata: {name: root}\n"
    headers = {"Content-Type": "application/yaml", "Authorization": "Bearer correct-horse-battery"}
    assert (await api.post("cohorts", data=text, headers=headers)).status == 201


async def test_reference_to_a_missing_object_is_a_warning(api):
    created = await api.post("clusterqueues", cluster_queue("one", flavor="a100"))
    assert created.status == 201
    warnings = created.headers.getall("Warning")
    assert warnings == ['299 - "there is no ResourceFlavor a100; nothing is admitted before it is created"']
    created = await api.post("namespaces/a/localqueues", local_queue("one", "a", "nowhere"))
    assert "there is no ClusterQueue nowhere" in created.headers["Warning"]

    checks = {"admissionChecks": [{"name": "budget"}]}
    created = await api.post("clusterqueues", cluster_queue("two", admissionChecksStrategy=checks))
    assert any("there is no AdmissionCheck budget" in warning for warning in created.headers.getall("Warning"))

    await api.post("resourceflavors", flavor("a100"))
    again = await api.put("clusterqueues/one", cluster_queue("one", flavor="a100", cpu="5"))
    assert "Warning" not in again.headers


async def test_a_cluster_queue_that_matches_no_namespace_is_a_warning(api):
    await api.post("resourceflavors", flavor("default"))
    closed = cluster_queue("one")
    del closed["spec"]["namespaceSelector"]
    created = await api.post("clusterqueues", closed)
    told = (
        "spec.namespaceSelector is not set, which matches no namespace: nothing is admitted; set {} for all namespaces"
    )
    assert (created.status, created.headers.getall("Warning")) == (201, [f'299 - "{told}"'])
    assert "Warning" not in (await api.put("clusterqueues/one", cluster_queue("one"))).headers


@on_both_databases
async def test_deletion_of_a_referenced_cohort_warns_of_its_members(api):
    await api.post("cohorts", cohort("all"))
    await api.post("cohorts", cohort("research", "all"))
    await api.post("cohorts", cohort("vision", "research"))
    await api.post("clusterqueues", cluster_queue("one", cohortName="research"))
    told = (
        "Cohort research is still named by ClusterQueue one, Cohort vision: deleting its object takes its quota, its "
        "limits and all of Cohort all from them; name another Cohort there, or restore it by `sluice rollback "
        "cohort/research`"
    )
    for answer in (
        await api.send("DELETE", "cohorts/research", params={"dryRun": "All"}),
        await api.delete("cohorts/research"),
    ):
        assert answer.status == 200
        assert f'299 - "{told}"' in answer.headers.getall("Warning")
    assert "Warning" not in (await api.delete("cohorts/vision")).headers


async def test_deletion_of_all_cohorts_warns_only_of_members_that_remain(api):
    await api.post("cohorts", cohort("all"))
    await api.post("cohorts", cohort("research", "all"))
    await api.post("clusterqueues", cluster_queue("one", cohortName="all"))
    gone = await api.delete("cohorts")
    (told,) = gone.headers.getall("Warning")
    assert "Cohort all is still named by ClusterQueue one: deleting its object takes its quota and its limits" in told


async def test_field_without_effect_is_a_warning(api):
    rack = manifest("ResourceFlavor", "rack", spec={"nodeLabels": {"a": "b"}, "topologyName": "racks"})
    assert "there is no Topology racks" in (await api.post("resourceflavors", rack)).headers["Warning"]


@pytest.mark.parametrize(
    ("stop", "flavors", "expected"),
    [
        ("None", ["default"], ("True", "Ready", "Can admit new workloads")),
        (
            "None",
            [],
            ("False", "FlavorNotFound", "Can't admit new workloads: references missing ResourceFlavor(s): default."),
        ),
        ("Hold", ["default"], ("False", "Stopped", "Can't admit new workloads: is stopped.")),
    ],
)
async def test_condition_active_shows_whether_a_cluster_queue_can_admit_workloads(api, stop, flavors, expected):
    for name in flavors:
        await api.post("resourceflavors", flavor(name))
    await api.post("clusterqueues", cluster_queue("one", stopPolicy=stop))
    (condition,) = (await api.get("clusterqueues/one")).body["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == expected
    assert (condition["type"], condition["observedGeneration"]) == ("Active", 1)


async def test_a_cluster_queue_is_inactive_without_its_admission_checks(api):
    await api.post("resourceflavors", flavor("default"))
    checks = {"admissionChecks": [{"name": "budget"}]}
    await api.post("clusterqueues", cluster_queue("one", admissionChecksStrategy=checks))
    (condition,) = (await api.get("clusterqueues/one")).body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "AdmissionCheckNotFound")
    assert "references missing AdmissionCheck(s): budget" in condition["message"]

    check = (await api.post("admissionchecks", admission_check("budget"))).body
    assert check["status"]["conditions"][0]["reason"] == "NotAnswered"
    (condition,) = (await api.get("clusterqueues/one")).body["status"]["conditions"]
    assert (condition["status"], condition["message"]) == (
        "True",
        "Can admit new workloads; AdmissionCheck budget: example.com/budget has not answered for any workload yet",
    )
    refused = await api.delete("admissionchecks/budget")
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")


@on_both_databases
async def test_condition_active_shows_whether_an_admission_check_is_answered(api, store):
    async def active(name):
        (condition,) = (await api.get(f"admissionchecks/{name}")).body["status"]["conditions"]
        return condition["status"], condition["reason"]

    await api.post("admissionchecks", admission_check("budget"))
    assert await active("budget") == ("Unknown", "NotAnswered")
    epoch = await store.lead("tests")
    waiting = record("1", "train", State.ADMITTED, admitted_at=NOW, checks_pending=True)
    for state, expected in (("Pending", ("Unknown", "NotAnswered")), ("Ready", ("True", "Active"))):
        said = CheckRecord("1", "budget", state, NOW)
        await store.commit(Changes(workloads=(waiting,), checks=(said,)), epoch=epoch)
        assert await active("budget") == expected

    kueues = manifest("AdmissionCheck", "clusters", spec={"controllerName": "kueue.x-k8s.io/multikueue"})
    written = await api.post("admissionchecks", kueues)
    assert "kueue.x-k8s.io/multikueue is a part of Kueue" in written.headers["Warning"]
    assert await active("clusters") == ("False", "NoController")

    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "up"}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    written = await api.post("admissionchecks", manifest("AdmissionCheck", "nodes", spec=spec))
    assert "spec.parameters: there is no ProvisioningRequestConfig" in written.headers["Warning"]
    assert await active("nodes") == ("False", "BadParametersRef")
    await api.post("provisioningrequestconfigs", provisioning_config("up", "example.com"))
    assert await active("nodes") == ("True", "Active")


async def test_condition_active_shows_why_a_local_queue_cannot_admit_workloads(api):
    async def reason():
        (condition,) = (await api.get("namespaces/a/localqueues/main")).body["status"]["conditions"]
        return condition["reason"]

    await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"))
    assert await reason() == "ClusterQueueDoesNotExist"
    await api.post("clusterqueues", cluster_queue("one"))
    assert await reason() == "ClusterQueueIsInactive"
    await api.post("resourceflavors", flavor("default"))
    assert await reason() == "Ready"
    stopped = manifest("LocalQueue", "main", namespace="a", spec={"clusterQueue": "one", "stopPolicy": "Hold"})
    await api.put("namespaces/a/localqueues/main", stopped)
    assert await reason() == "Stopped"


async def test_a_cycle_of_cohorts_is_refused_with_its_path(api):
    await api.post("cohorts", cohort("a", parent="b"))
    await api.post("cohorts", cohort("b", parent="c"))
    refused = await api.post("cohorts", cohort("c", parent="a"))
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == "spec.parentName"
    assert "c -> a -> b -> c" in cause["message"]


async def test_object_in_use_cannot_be_deleted(api):
    await api.post("clusterqueues", cluster_queue("one"))
    await api.post("resourceflavors", flavor("default"))
    await api.post("namespaces/a/localqueues", local_queue("main", "a", "one"))
    for path in ("clusterqueues/one", "resourceflavors/default"):
        refused = await api.delete(path)
        assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert "a/main" in (await api.delete("clusterqueues/one")).body["message"]


@on_both_databases
async def test_a_topology_in_use_stays_as_admitted_pods_rest_on_it(api):
    gpu = {**flavor("gpu", pool="gpu"), "spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"}}
    await api.post("resourceflavors", gpu)
    await api.post("clusterqueues", cluster_queue("one", flavor="gpu"))
    (condition,) = (await api.get("clusterqueues/one")).body["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "TopologyNotFound",
        'Can\'t admit new workloads: there is no Topology "dc" for TAS flavor "gpu".',
    )
    await api.post("topologies", topology("dc", "block", "rack"))
    (condition,) = (await api.get("clusterqueues/one")).body["status"]["conditions"]
    assert condition["status"] == "True"
    refused = await api.delete("topologies/dc")
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert 'Topology "dc" is in use by ResourceFlavor gpu' in refused.body["message"]
    changed = await api.put("topologies/dc", topology("dc", "rack"))
    assert (changed.status, changed.body["details"]["causes"][0]["field"]) == (422, "spec.levels")
    elsewhere = {**gpu, "spec": {**gpu["spec"], "topologyName": "other"}}
    moved = await api.put("resourceflavors/gpu", elsewhere)
    assert (moved.status, moved.body["details"]["causes"][0]["field"]) == (422, "spec.topologyName")

    hosts = ("rack", "kubernetes.io/hostname")
    await api.post("topologies", topology("hosts", *hosts))
    assert (await api.put("topologies/hosts", topology("hosts", "block", *hosts))).status == 200
