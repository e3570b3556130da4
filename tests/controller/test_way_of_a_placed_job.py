"""Jobs that are placed by topology, from creation until their pods run in the domains of their assignment."""

from __future__ import annotations

from collections import Counter

import pytest
from job_examples import asks, is_gated, job, provisioning_check, provisioning_config, runs
from topology_examples import (
    HOSTNAME,
    REQUIRED,
    bound,
    fail,
    gpu_node,
    lose_pods,
    placed_job,
    pods_of,
    queues_by,
    racks,
    racks_of,
)

from admission.sandbox.controllers.autoscaler import NAME as AUTOSCALER
from admission.sandbox.controllers.autoscaler import REQUESTS
from admission.sandbox.operators import serve_kinds

REFUSES_EVERY_SECOND_NODE = {
    "metadata": {"name": "half"},
    "webhooks": [
        {
            "name": "half.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/nobody-listens"},
            "matchConditions": [
                {
                    "name": "some",
                    "expression": "request.userInfo.username == 'sluice' && "
                    "object.spec.nodeSelector['kubernetes.io/hostname'].endsWith('-0')",
                }
            ],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}],
        }
    ],
}
"""Webhook configuration that fails Sluice's updates of pods for every second node, as its URL is unreachable."""


async def test_each_job_runs_within_one_rack(world):
    await racks(world)
    await world.begin(*queues_by("block", "rack"))
    for name in ("one", "two", "three"):
        await world.submit(placed_job(name, 6))
    found = [racks_of(await bound(world, name, 6)) for name in ("one", "two", "three")]
    assert sorted(map(len, found)) == [1, 1, 1]
    assert set.union(*found) == {"a1", "a2", "b1"}
    template = world.user.get("jobs", "team-a", "one")["spec"]["template"]
    assert "schedulingGates" not in template["spec"]  # one domain is a node selector of the template
    await world.submit(placed_job("waits", 3))
    record = await world.record("waits", "pending", reason="WaitingForQuota")
    assert "topology" in record.message


async def test_pods_of_several_domains_are_ungated_one_by_one_by_their_index(world):
    await racks(world)
    await world.begin(*queues_by("block", "rack", HOSTNAME))
    await world.submit(placed_job("train", 7, indexed=True))
    pods = await bound(world, "train", 7)
    assert len(racks_of(pods)) == 1
    assert max(Counter(pod["spec"]["nodeName"] for pod in pods).values()) <= 4
    order = sorted(pods, key=lambda pod: int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))
    nodes = [pod["spec"]["nodeName"] for pod in order]
    assert nodes == sorted(nodes)  # neighbours by index are neighbours by node
    for pod in pods:
        assert pod["spec"]["nodeSelector"][HOSTNAME] == pod["spec"]["nodeName"]
        assert not pod["spec"].get("schedulingGates")
    (rack,) = racks_of(pods)
    now = world.clock()
    stays = await world.store.reports.stays(rack, start=now, end=now)
    assert [(stay.name, stay.domain, stay.pods) for stay in stays] == [("train", (f"block-{rack[0]}", rack), 7)]


async def test_pods_of_others_take_room(world):
    await racks(world, 1, "a1", "b1")
    for number, rack in enumerate(("a1", "b1")):
        await world.user.create("pods", "team-b", {
            "metadata": {"name": f"other-{number}"},
            "spec": {
                "nodeName": f"{rack}-0",
                "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": str(2 - number)}}}],
            },
        })  # fmt: skip
    await world.begin(*queues_by("rack", HOSTNAME))
    await world.submit(placed_job("train", 3))
    assert racks_of(await bound(world, "train", 3)) == {"b1"}
    await world.submit(placed_job("waits", 3))
    await world.record("waits", "pending", reason="WaitingForQuota")
    await world.user.delete("pods", "team-b", "other-0")
    assert racks_of(await bound(world, "waits", 3)) == {"a1"}


async def test_pods_of_others_take_room_though_they_are_annotated_as_if_they_were_placed(world):
    await racks(world, 1, "a1")
    await world.user.create("pods", "team-b", {
        "metadata": {"name": "other", "annotations": {REQUIRED: "rack"}},
        "spec": {
            "nodeName": "a1-0",
            "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "2"}}}],
        },
    })  # fmt: skip
    await world.begin(*queues_by("rack", HOSTNAME))
    await world.submit(placed_job("train", 3))
    record = await world.record("train", "pending", reason="TopologyPlacementFailed")
    assert "allows to fit only 2 out of 3 pod(s)" in record.message


async def test_a_node_selector_that_keeps_pods_from_their_domain_is_named(world):
    """Levels without hostnames do not look at node selectors, as in Kueue."""
    await racks(world, 1, "a1", "a2")
    await world.begin(*queues_by("block", "rack"))
    made = placed_job("train", 8, "block")
    made["spec"]["template"]["spec"]["nodeSelector"] = {"rack": "a1"}
    await world.submit(made)
    record = await world.record("train", "admitted", reason="PodsUnscheduled")
    assert "The API server refuses to ungate pod team-a/train-" in record.message
    assert "nodeSelector" in record.message


async def test_a_node_that_is_added_gives_room(world):
    await racks(world, 1, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    await world.submit(placed_job("train", 8))
    await world.record("train", "pending")
    await racks(world, 2, "b1")
    assert racks_of(await bound(world, "train", 8)) == {"b1"}


async def test_a_queue_without_topology_is_not_affected(world):
    """Nodes and pods are watched only from the first flavor that names a Topology on."""
    await world.begin(*queues_by("rack"))
    await world.submit(job("plain", queue="other"))
    assert not pods_of(world, "plain")


async def test_a_queue_whose_topology_is_missing_admits_nothing_before_it_exists(world):
    await racks(world, 1)
    dc, *others = queues_by("rack")
    await world.begin(*others)
    await world.submit(placed_job("train", 2))
    record = await world.record("train", "pending", reason="Suspended")
    assert "ResourceFlavor gpu, whose Topology dc does not exist" in record.message
    await world.apply(dc)
    await world.job("train", runs)


@pytest.mark.costly
async def test_an_evicted_job_leaves_nothing_of_its_placement_behind(world):
    await racks(world, 2, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    before = await world.submit(placed_job("train", 6))
    await bound(world, "train", 6)
    await world.order("train", held=True)
    await world.record("train", "pending")
    after = world.user.get("jobs", "team-a", "train")
    assert after["spec"]["template"] == before["spec"]["template"]
    await world.order("train", held=False)
    await bound(world, "train", 6)


@pytest.mark.costly
@pytest.mark.parametrize("indexed", [True, False])
async def test_ungating_continues_after_sluice_was_killed(world, indexed):
    """It ends while some pods are gated; its successor ungates them, and no node gets more pods than it was to get."""
    await racks(world)
    await world.begin(*queues_by("block", "rack", HOSTNAME))
    await world.user.create("validatingwebhookconfigurations", "", REFUSES_EVERY_SECOND_NODE)
    await world.submit(placed_job("train", 8, indexed=indexed))

    async def halfway() -> bool:
        gated = [pod for pod in pods_of(world, "train") if pod["spec"].get("schedulingGates")]
        return 0 < len(gated) < 8

    await world.eventually(halfway)
    await world.end()
    await world.user.delete("validatingwebhookconfigurations", "", "half")
    record = await world.record("train", "admitted")
    await world.start()
    pods = await bound(world, "train", 8)
    assert (await world.record("train", "admitted")).admission == record.admission
    places = {values[-1]: count for values, count in record.admission.pod_sets[0].topology.domains}
    assert Counter(pod["spec"]["nodeName"] for pod in pods) == places


@pytest.mark.costly
async def test_gated_orphans_of_a_deleted_job_get_their_places(world):
    """Otherwise they would stay gated, and hold its quota, for ever."""
    await racks(world)
    await world.begin(*queues_by("block", "rack", HOSTNAME))
    await world.user.create("validatingwebhookconfigurations", "", REFUSES_EVERY_SECOND_NODE)
    await world.submit(placed_job("train", 8, indexed=True))
    await world.record("train", "admitted", reason="PodsUnscheduled")
    await world.user.delete("jobs", "team-a", "train", propagation="Orphan")
    await world.record("train", "evicting", reason="Deleted")
    assert any(pod["spec"].get("schedulingGates") for pod in pods_of(world, "train"))
    await world.user.delete("validatingwebhookconfigurations", "", "half")
    await bound(world, "train", 8)


async def test_a_pod_that_is_made_again_gets_the_place_of_the_former_one(world):
    await racks(world, 2, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    made = placed_job("train", 8, indexed=True)
    made["spec"]["backoffLimit"] = 100
    await world.submit(made)
    pods = await bound(world, "train", 8)
    places = Counter(pod["spec"]["nodeName"] for pod in pods)
    for pod in pods[:3]:
        await world.user.delete("pods", "team-a", pod["metadata"]["name"])
    gone = {pod["metadata"]["uid"] for pod in pods[:3]}

    async def replaced() -> bool:
        now = pods_of(world, "train")
        all_bound = all(pod["spec"].get("nodeName") for pod in now)
        return len(now) == 8 and all_bound and gone.isdisjoint(pod["metadata"]["uid"] for pod in now)

    await world.eventually(replaced)
    assert Counter(pod["spec"]["nodeName"] for pod in pods_of(world, "train")) == places


@pytest.mark.costly
async def test_pods_of_a_failed_node_get_another_one_within_their_rack(world):
    await racks(world, 3, "a1", "b1")
    await world.begin(*queues_by("rack", HOSTNAME))
    made = placed_job("train", 8, indexed=True)
    made["spec"]["backoffLimit"] = 100
    await world.submit(made)
    before = await bound(world, "train", 8)
    (rack,) = racks_of(before)
    failing = before[0]["spec"]["nodeName"]
    stay = {pod["metadata"]["uid"] for pod in before if pod["spec"]["nodeName"] != failing}
    await fail(world, failing)

    async def moved() -> bool:
        now = pods_of(world, "train")
        nodes = {pod["spec"].get("nodeName") for pod in now}
        return len(now) == 8 and None not in nodes and failing not in nodes

    await world.eventually(moved)
    assert racks_of(pods_of(world, "train")) == {rack}
    assert stay <= {pod["metadata"]["uid"] for pod in pods_of(world, "train")}
    history = await world.history("train")
    assert any(reason == "NodeReplaced" and failing in message for reason, message in history), history


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_pod_left_on_a_node_that_comes_back_takes_its_room_until_it_is_gone(world, restarts):
    await racks(world, 2, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    await world.submit(placed_job("first", 1, cpu="3"))
    (left,) = await bound(world, "first", 1)
    node = left["spec"]["nodeName"]
    (gone,) = (each for each in world.user.list("nodes") if each["metadata"]["name"] == node)
    await world.user.delete("nodes", "", node)

    async def replaced() -> bool:
        return any(reason == "NodeReplaced" for reason, _ in await world.history("first"))

    await world.eventually(replaced)
    await world.user.create("nodes", "", gpu_node(node, gone["metadata"]["labels"]["rack"]))
    if restarts:
        await world.end()
        await world.start()
    await world.submit(placed_job("second", 1, cpu="3"))
    await world.record("second", "pending", reason="WaitingForQuota")
    await world.user.delete("pods", "team-a", left["metadata"]["name"], grace=0)
    await world.job("second", runs)


async def test_an_answer_that_comes_after_the_end_of_its_pod_leaves_the_place_to_the_next_pod(world):
    await racks(world, 1, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    ungating = {"user": "sluice", "verb": "patch", "resource": "pods"}
    late = {"match": ungating, "do": "delay", "seconds": 600, "when": "after", "limit": 1}
    world.sandbox.faults.install({"rules": [late]})
    made = placed_job("train", 1, cpu="3")
    made["spec"]["backoffLimit"] = 100
    await world.submit(made)
    for _ in range(2):
        (pod,) = await bound(world, "train", 1)
        await world.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)

        async def bound_again(former: str = pod["metadata"]["uid"]) -> bool:
            return any(
                each["metadata"]["uid"] != former and "nodeName" in each["spec"] for each in pods_of(world, "train")
            )

        await world.eventually(bound_again)
        world.sandbox.faults.remove()  # now the first request is answered


async def test_a_pod_that_may_have_been_sent_to_a_node_takes_its_room_until_that_is_known(world):
    await racks(world, 3, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    ungating = {"user": "sluice", "verb": "patch", "resource": "pods"}
    world.sandbox.faults.install({"rules": [{"match": ungating, "do": "delay", "seconds": 600}]})

    async def nodes() -> set[str]:
        (assignment,) = (await world.record("first", "admitted")).admission.pod_sets
        return {values[-1] for values, _ in assignment.topology.domains}

    async def sent() -> bool:
        (rule,) = world.sandbox.faults.describe()["rules"]
        return rule["struck"] == 2

    async def replaced() -> bool:
        return node not in await nodes()

    await world.submit(placed_job("first", 2, cpu="3"))
    await world.eventually(sent)
    node = min(await nodes())
    await world.user.delete("nodes", "", node)
    await world.eventually(replaced)
    await world.user.create("nodes", "", gpu_node(node, "a1"))
    await world.submit(placed_job("second", 1, cpu="3"))
    await world.record("second", "pending", reason="WaitingForQuota")
    world.sandbox.faults.remove()
    await world.job("second", runs)
    await world.job("first", runs)


@pytest.mark.costly
async def test_a_deleted_node_is_replaced_and_several_at_once_end_the_admission(world):
    await racks(world, 4, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    made = placed_job("train", 8, indexed=True)
    made["spec"]["backoffLimit"] = 100
    await world.submit(made)
    first = (await bound(world, "train", 8))[0]["spec"]["nodeName"]
    await world.user.delete("nodes", "", first)
    await lose_pods(world, first)

    async def moved() -> bool:
        nodes = {pod["spec"].get("nodeName") for pod in pods_of(world, "train")}
        return len(pods_of(world, "train")) == 8 and None not in nodes and first not in nodes

    await world.eventually(moved)
    both = sorted({pod["spec"]["nodeName"] for pod in pods_of(world, "train")})
    await world.end()
    for node in both:
        await world.user.delete("nodes", "", node)
        await lose_pods(world, node)
    await world.start()
    record = await world.record("train", "pending", reason="TopologyPlacementFailed")
    assert record.eviction.reason == "NodeFailures"
    assert f"multiple TAS assigned node failures, including: {', '.join(both)}" in record.eviction.message
    assert any(reason == "NodeReplaced" and first in message for reason, message in await world.history("train"))


async def test_pods_that_waited_for_a_failed_node_are_ungated_when_it_is_ready_again(world):
    await racks(world, 1, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    await world.user.create("validatingwebhookconfigurations", "", REFUSES_EVERY_SECOND_NODE)
    await world.submit(placed_job("train", 4))
    await world.record("train", "admitted", reason="PodsUnscheduled")  # the API server refuses to ungate its pods
    condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    await world.user.patch("nodes", "", "a1-0", {"status": {"conditions": [condition]}}, subresource="status")

    async def is_known() -> bool:
        return "topology" in (await world.record("train", "admitted")).message

    await world.eventually(is_known)  # there is no other node
    await world.user.delete("validatingwebhookconfigurations", "", "half")
    await world.user.patch(
        "nodes", "", "a1-0", {"status": {"conditions": [{**condition, "status": "True"}]}}, subresource="status"
    )
    await bound(world, "train", 4)


@pytest.mark.costly
async def test_nodes_whose_hostname_is_not_their_name_are_no_failed_ones(world):
    for number in range(3):
        made = gpu_node(f"a1-{number}", "a1")
        made["metadata"]["labels"][HOSTNAME] = f"host-{number}"
        await world.user.create("nodes", "", made)
    await world.begin(*queues_by("rack", HOSTNAME))
    made = placed_job("train", 8, indexed=True)
    made["spec"]["backoffLimit"] = 100
    await world.submit(made)
    pods = await bound(world, "train", 8)
    await world.user.patch("nodes", "", "a1-2", {"metadata": {"labels": {"any": "change"}}})
    await fail(world, failing := pods[0]["spec"]["nodeName"])

    async def moved() -> bool:
        nodes = {pod["spec"].get("nodeName") for pod in pods_of(world, "train")}
        return len(pods_of(world, "train")) == 8 and None not in nodes and failing not in nodes

    await world.eventually(moved)
    history = await world.history("train")
    assert [reason for reason, _ in history if reason in ("NodeReplaced", "NodeFailures")] == ["NodeReplaced"]


@pytest.mark.parametrize("limit", [None, 300])
async def test_a_taint_is_no_failure_if_pods_tolerate_it_without_limit(world, limit):
    await racks(world, 3, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    made = placed_job("train", 2, cpu="4")
    made["spec"]["backoffLimit"] = 100
    tolerated = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}
    made["spec"]["template"]["spec"]["tolerations"] = [
        tolerated if limit is None else {**tolerated, "tolerationSeconds": limit}
    ]
    await world.submit(made)
    tainted = (await bound(world, "train", 2))[0]["spec"]["nodeName"]
    before = (await world.record("train", "admitted")).admission
    taints = world.user.get("nodes", "", tainted)["spec"]["taints"]
    taint = {"key": "maintenance", "effect": "NoExecute"}
    await world.user.patch("nodes", "", tainted, {"spec": {"taints": [*taints, taint]}})
    await lose_pods(world, tainted)
    pods = await bound(world, "train", 2)
    assert ((await world.record("train", "admitted")).admission == before) is (limit is None)
    assert any(pod["spec"]["nodeName"] == tainted for pod in pods) is (limit is None)


@pytest.mark.costly
async def test_without_another_node_the_job_is_evicted_and_waits(world):
    await racks(world, 2, "a1")
    await world.begin(*queues_by("rack", HOSTNAME))
    made = placed_job("train", 8, indexed=True)
    made["spec"]["backoffLimit"] = 100
    await world.submit(made)
    await bound(world, "train", 8)
    await fail(world, "a1-1")
    record = await world.record("train", "pending", reason="TopologyPlacementFailed")
    assert record.eviction.reason == "NodeFailures"
    assert "no replacement for unhealthy node(s): a1-1" in record.eviction.message
    await world.user.patch(
        "nodes",
        "",
        "a1-1",
        {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}},
        subresource="status",
    )
    await bound(world, "train", 8)


async def test_pods_are_placed_when_the_nodes_that_a_check_provisions_are_there(world):
    """Until then the Job holds quota and has no place; then it has one on these nodes, though others are free."""
    nodes = provisioning_config(
        "never", podSetUpdates={"nodeSelector": [{"key": "made-for", "valueFromProvisioningClassDetail": "job"}]}
    )
    await racks(world, 2, "a1")
    async with serve_kinds(world.sandbox, [AUTOSCALER]):
        await world.apply(
            nodes, provisioning_check(), *queues_by("rack", HOSTNAME, admissionChecksStrategy=asks("nodes"))
        )
        await world.start()
        await world.submit(placed_job("train", 6, indexed=True))
        record = await world.record("train", "admitted", reason="QuotaReserved")
        assert record.admission.pod_sets[0].topology is None
        assert is_gated(world.user.get("jobs", "team-a", "train"))

        async def requested():
            return world.user.list(REQUESTS)

        (request,) = await world.eventually(requested)
        told = {"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "there they are"}
        told["lastTransitionTime"] = "2026-11-28T12:00:00Z"
        status = {"conditions": [told], "provisioningClassDetails": {"job": "train"}}
        await world.user.patch(
            REQUESTS, "team-a", request["metadata"]["name"], {"status": status}, subresource="status"
        )

        async def ready():
            (check,) = (await world.store.orders.of([record.workload.uid])).checks
            return check.state == "Ready"

        await world.eventually(ready)

        async def explained():  # the nodes of a1 are there, and not made for it
            record = await world.record("train", "admitted", reason="QuotaReserved")
            return "Total nodes: 2; excluded: nodeSelector: 2" in record.message

        await world.eventually(explained)
        await world.end()
        await world.start()  # what waits for its place is known from the database
        for number in range(2):
            made = gpu_node(f"b1-{number}", "b1")
            made["metadata"]["labels"]["made-for"] = "train"
            await world.user.create("nodes", "", made)
        assert racks_of(await bound(world, "train", 6)) == {"b1"}
