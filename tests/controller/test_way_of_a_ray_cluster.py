"""RayClusters that are scaled while they run, with the webhook and a simulated KubeRay."""

from __future__ import annotations

from contextlib import closing

import pytest
from custom_kinds import pod, pods_of, served, until
from job_examples import cluster_queue, flavor, job, local_queue, runs
from other_clusters import cluster as cluster_object
from other_clusters import other_cluster, state
from pod_examples import gated

from admission.cluster.client import Client
from admission.controller.clusters import Connection
from admission.kinds import all_kinds

NAME = "ray.io/raycluster"
KINDS = all_kinds(frameworks=("batch/job", NAME))
KIND = KINDS.get("ray.io", "RayCluster")
CLUSTERS = "rayclusters"
SCALED = "sluice.dev/asks-for"
ADMITTED = "Admitted by ClusterQueue cq on default."


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose RayClusters are gated, with a queue of 6 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(cpu="6"), local_queue())
    async with (
        served(world.sandbox, KIND),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"),
    ):
        await world.start(kinds=KINDS)
        yield world


def ray_cluster(stop="1", **replicas):
    """A RayCluster of a head and worker groups of the given sizes, with one CPU per pod."""

    def template():
        one = pod(cpu="1", seconds=1_000_000)
        one["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = stop
        return one

    groups = [
        {"groupName": name, "replicas": count, "minReplicas": 0, "maxReplicas": 9, "template": template()}
        for name, count in replicas.items()
    ]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups},
    }


async def submit(cluster, **fields):
    return await cluster.sandbox.local("alice").create(CLUSTERS, "team-a", ray_cluster(**fields))


async def ready(cluster, number):
    """Wait until the RayCluster requests `number` pods and is ready; return the uids of its pods by name."""
    obj = await until(
        cluster.user,
        CLUSTERS,
        "ray",
        lambda each: KIND.observe(each).ready and sum(place.pods for place in KIND.places(each)) == number,
    )
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods_of(cluster.user, obj)}


async def scale(cluster, **replicas):
    """Change replicas as Ray's autoscaler does."""
    groups = cluster.user.get(CLUSTERS, "team-a", "ray")["spec"]["workerGroupSpecs"]
    scaled = [{**each, "replicas": replicas.get(each["groupName"], each["replicas"])} for each in groups]
    autoscaler = cluster.sandbox.local("autoscaler")
    return await autoscaler.patch(CLUSTERS, "team-a", "ray", {"spec": {"workerGroupSpecs": scaled}})


@pytest.mark.costly
async def test_scaled_down_raycluster_releases_quota_only_as_its_pods_end(cluster):
    await submit(cluster, stop="never", gpu=3, cpu=2)
    before = await ready(cluster, 6)
    first = await cluster.record("ray", "admitted")
    await cluster.submit(job("next", cpu="3"))
    await cluster.record("next", "pending", reason="WaitingForQuota")
    await scale(cluster, gpu=1, cpu=1)
    for number in (1, 2):
        await end(cluster, "gpu")
        await cluster.holds(1000 * (6 - number), "ray")  # includes the quota of terminating pods
    # The next leader continues to count terminating pods.
    await cluster.end()
    await cluster.start(kinds=KINDS)
    assert not runs(cluster.user.get("jobs", "team-a", "next"))
    await end(cluster, "cpu")
    await cluster.job("next", runs)
    await cluster.holds(3000, "ray")
    after = await ready(cluster, 3)
    assert after.items() <= before.items()
    now = await cluster.record("ray", "admitted")
    assert (now.admitted_at, now.workload.uid) == (first.admitted_at, first.workload.uid)
    assert [(each.name, each.count) for each in now.workload.pod_sets] == [("head", 1), ("gpu", 1), ("cpu", 1)]
    assert [amount for amount, _ in await ledger(cluster)][-3:] == [1000, 1000, 1000]


def group_of(pod):
    return pod["metadata"]["labels"]["ray.io/group"]


async def end(cluster, group, user=None):
    """Let one of the terminating pods of a worker group end, as soon as there is one. `user`: of the pods' cluster."""
    user = user or cluster.user

    async def one():
        found = user.list("pods", "team-a")
        return [each for each in found if "deletionTimestamp" in each["metadata"] and group_of(each) == group]

    found = await cluster.eventually(one)
    await user.delete("pods", "team-a", found[0]["metadata"]["name"], grace=0)


async def ledger(cluster):
    """(amount, end reason) of all ledger rows, in order."""
    record = await cluster.store.workloads.get("team-a", "ray")
    return [(row.amount, row.end_reason) for row in await cluster.store.workloads.ledger(record.workload.uid)]


@pytest.mark.costly
async def test_copy_follows_the_numbers_of_its_raycluster_and_quota_the_pods_of_the_copy(world, tmp_path):
    async with other_cluster(tmp_path) as there, served(there.sandbox, KIND), served(world.sandbox, KIND):
        in_b = {**flavor(), "spec": {**flavor()["spec"], "clusters": ["b"]}}
        await world.apply(in_b, cluster_queue(cpu="6", dispatch={}), local_queue(), cluster_object("b"))

        def join(_):
            return Connection(Client.from_kubeconfig(there.kubeconfig), all_kinds(frameworks=(NAME,)), None)

        async with gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"):
            await world.start(kinds=KINDS, join=join)
            await state(world, "Active")
            manifest = ray_cluster(stop="never", gpu=3, cpu=2)
            manifest["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
            await world.sandbox.local("alice").create(CLUSTERS, "team-a", manifest)
            before = await ready(there, 6)
            await until(world.user, CLUSTERS, "ray", lambda each: KIND.observe(each).ready)
            await world.end()
            await world.start(kinds=KINDS, join=join)
            await scale(world, gpu=1)
            await end(world, "gpu", there.user)
            await world.holds(5000, "ray")  # includes the quota of terminating pods
            asked = await scale(world, cpu=3)
            assert asked["spec"]["workerGroupSpecs"][1]["replicas"] == 2
            grown = await ready(there, 5)
            await world.holds(6000, "ray")
            assert len(before.items() & grown.items()) == 5  # one of them is still terminating
            assert len(there.user.list("pods", "team-a")) == 6
            shown = world.user.get(CLUSTERS, "team-a", "ray")
            assert [each["replicas"] for each in shown["spec"]["workerGroupSpecs"]] == [1, 3]
            assert SCALED not in shown["metadata"].get("annotations", {})
            assert "OutOfSync" not in [reason for reason, _ in await world.history("ray")]


@pytest.mark.costly
async def test_scale_up_waits_for_quota_and_does_not_restart_running_workers(cluster):
    await submit(cluster, gpu=1)
    before = await ready(cluster, 2)
    # With free quota the scale-up takes effect at once.
    asked = await scale(cluster, gpu=3)
    assert asked["spec"]["workerGroupSpecs"][0]["replicas"] == 1
    grown = await ready(cluster, 4)
    assert before.items() <= grown.items()
    await cluster.holds(4000, "ray")
    assert SCALED not in cluster.user.get(CLUSTERS, "team-a", "ray")["metadata"].get("annotations", {})
    # Without free quota the request waits in the queue, before later Jobs.
    await cluster.submit(job("beside", cpu="2"))
    await cluster.job("beside", runs)
    await scale(cluster, gpu=5)
    await cluster.submit(job("later", cpu="2"))
    await cluster.record("later", "pending", reason="WaitingForQuota")
    await cluster.holds(4000, "ray")
    await cluster.says(
        "ray", f"{ADMITTED} It asks for 2 more pods: as soon as there is quota, without a restart.", "admitted"
    )
    line = [place.workload.name for place in cluster.controller.engine().listing("cq", limit=9)]
    assert line == ["ray", "later"]
    # Sluice ends before it could update the RayCluster: the next leader does.
    await cluster.cut_off()
    await cluster.user.delete("jobs", "team-a", "beside", propagation="Background")
    await cluster.holds(6000, "ray")
    await cluster.end()
    assert cluster.user.get(CLUSTERS, "team-a", "ray")["spec"]["workerGroupSpecs"][0]["replicas"] == 3
    await cluster.reconnect()
    await cluster.start(kinds=KINDS)
    whole = await ready(cluster, 6)
    assert grown.items() <= whole.items()
    await cluster.says("ray", ADMITTED, "admitted")
    await cluster.record("later", "pending", reason="WaitingForQuota")
    assert [reason for reason, _ in await cluster.history("ray")].count("Resized") == 2


@pytest.mark.costly
async def test_invalid_rayclusters_are_misconfigured_and_block_no_other(world):
    """The RayClusters were not rejected, as there is no webhook: for example with admission policies."""
    await world.apply(flavor(), cluster_queue(cpu="6"), local_queue())
    negative, misshaped, fine = ray_cluster(gpu=-1), ray_cluster(gpu=1), ray_cluster(gpu=1)
    negative["metadata"]["name"], misshaped["metadata"]["name"] = "negative", "misshaped"
    misshaped["spec"]["headGroupSpec"]["template"]["spec"] = {"containers": "x"}
    async with served(world.sandbox, KIND):
        await world.start(kinds=KINDS)
        for each in (negative, misshaped, fine):
            each["spec"]["suspend"] = each is not fine
            await world.user.create(CLUSTERS, "team-a", each)
        path = "spec.headGroupSpec.template.spec.containers: must be a list"
        assert (await world.record("misshaped", "pending", reason="Misconfigured")).message == path
        assert "but is -1" in (await world.record("negative", "pending", reason="Misconfigured")).message
        await ready(world, 2)


@pytest.mark.costly
async def test_scale_request_can_be_withdrawn_and_scale_up_past_webhook_is_evicted(cluster):
    await submit(cluster, gpu=2, cpu=1)
    await ready(cluster, 4)
    await cluster.submit(job("beside", cpu="2"))
    await cluster.job("beside", runs)
    wished = await scale(cluster, gpu=4)
    assert SCALED in wished["metadata"]["annotations"]
    fewer = await scale(cluster, gpu=1)
    assert SCALED not in fewer["metadata"]["annotations"]
    await cluster.holds(3000, "ray")
    await cluster.says("ray", ADMITTED, "admitted")
    await ready(cluster, 3)
    await cluster.user.delete("mutatingwebhookconfigurations", "", "sluice")
    before = await cluster.record("ray", "admitted")
    await scale(cluster, gpu=4)
    await cluster.record("ray", "pending", reason="WaitingForQuota")
    await cluster.holds(0, "ray")
    assert before.workload.uid == (await cluster.record("ray", "pending")).workload.uid


@pytest.mark.costly
async def test_scale_request_waits_while_local_queue_points_to_another_cluster_queue(cluster):
    await submit(cluster, gpu=1)
    before = await ready(cluster, 2)
    await cluster.submit(job("beside", cpu="4"))
    await cluster.job("beside", runs)
    await scale(cluster, gpu=2)
    await cluster.says(
        "ray", f"{ADMITTED} It asks for 1 more pod: as soon as there is quota, without a restart.", "admitted"
    )
    await cluster.apply(cluster_queue("new", cpu="99"), local_queue(cluster_queue="new"))
    barred = (
        "It asks for 1 more pod, and gets none as it is: LocalQueue lq now points to ClusterQueue new. "
        "Hold it and release it (`sluice hold`, `sluice release`) to have all of it queue there."
    )
    await cluster.says("ray", f"{ADMITTED} {barred}", "admitted")
    await cluster.user.delete("jobs", "team-a", "beside", propagation="Background")
    await scale(cluster, gpu=3)
    await cluster.says("ray", f"{ADMITTED} {barred.replace('1 more pod', '2 more pods')}", "admitted")
    await cluster.holds(2000, "ray")
    await cluster.apply(local_queue())
    grown = await ready(cluster, 4)
    assert before.items() <= grown.items()
    await cluster.says("ray", ADMITTED, "admitted")


@pytest.mark.costly
async def test_scale_up_is_declined_with_message_if_queue_has_admission_checks(cluster):
    check = {"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"}}
    await cluster.apply(
        {"apiVersion": "sluice.dev/v1", "kind": "AdmissionCheck", **check},
        cluster_queue(cpu="6", admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]}),
    )
    await submit(cluster, gpu=1)
    await cluster.record("ray", "admitted")
    await cluster.report("ray", {"name": "budget", "state": "Ready", "message": ""})
    await ready(cluster, 2)
    await scale(cluster, gpu=2)
    none = "It asks for 1 more pod, and gets none: the admission checks of its ClusterQueue were not asked about them."
    await cluster.says("ray", f"{ADMITTED} {none}", "admitted")
    await cluster.holds(2000, "ray")
    await cluster.user.patch(CLUSTERS, "team-a", "ray", {"metadata": {"annotations": {SCALED: None}}})
    await cluster.says("ray", ADMITTED, "admitted")


async def pods_until(cluster, *, staying, ending=()):
    """Wait for `staying` pods beside terminating ones of the groups `ending`; never more than 6, its quota."""
    with closing(cluster.user.watch("pods")) as changes:
        async for _ in changes:
            found = cluster.user.list("pods", "team-a")
            assert len(found) <= 6
            told = [group_of(each) for each in found if "deletionTimestamp" in each["metadata"]]
            if sorted(told) == sorted(ending) and len(found) - len(told) == staying:
                return
    raise AssertionError("the watch ended")


@pytest.mark.costly
async def test_scale_up_waits_until_pods_of_previous_scale_down_have_ended(cluster):
    """KubeRay creates new pods while old ones terminate."""
    await submit(cluster, stop="never", gpu=3, cpu=2)
    await ready(cluster, 6)
    await scale(cluster, gpu=1, cpu=2)
    await pods_until(cluster, staying=4, ending=("gpu", "gpu"))
    await scale(cluster, gpu=2, cpu=3)
    await end(cluster, "gpu")
    await pods_until(cluster, staying=4, ending=("gpu",))
    await end(cluster, "gpu")
    await pods_until(cluster, staying=6)
    await cluster.holds(6000, "ray")
    assert SCALED not in cluster.user.get(CLUSTERS, "team-a", "ray")["metadata"].get("annotations", {})


@pytest.mark.costly
async def test_pod_deleted_by_user_is_recreated_after_its_termination(cluster):
    """KubeRay counts it until then, so that pod and successor never need quota at the same time."""
    await submit(cluster, stop="never", gpu=3, cpu=2)
    await ready(cluster, 6)
    pods = cluster.user.list("pods", "team-a")
    name = next(each["metadata"]["name"] for each in pods if group_of(each) == "cpu")
    await cluster.user.delete("pods", "team-a", name)
    await scale(cluster, gpu=2, cpu=2)  # makes KubeRay reconcile
    await pods_until(cluster, staying=4, ending=("cpu", "gpu"))
    await cluster.user.delete("pods", "team-a", name, grace=0)
    await pods_until(cluster, staying=5, ending=("gpu",))


@pytest.mark.costly
async def test_raycluster_with_changed_worker_groups_is_requeued_before_new_pods_exist(cluster):
    await submit(cluster, stop="never", gpu=3, cpu=2)
    await ready(cluster, 6)
    groups = cluster.user.get(CLUSTERS, "team-a", "ray")["spec"]["workerGroupSpecs"]
    others = [{**groups[0], "groupName": "tpu"}, groups[1]]
    await cluster.user.patch(CLUSTERS, "team-a", "ray", {"spec": {"workerGroupSpecs": others}})
    pods = cluster.user.list("pods", "team-a")
    names = {each["metadata"]["name"] for each in pods}
    await pods_until(cluster, staying=0, ending=[*map(group_of, pods)])
    for name in names:
        await cluster.user.delete("pods", "team-a", name, grace=0)
    await pods_until(cluster, staying=6)
    record = await cluster.record("ray", "admitted")
    assert [(each.name, each.count) for each in record.workload.pod_sets] == [("head", 1), ("tpu", 3), ("cpu", 2)]


@pytest.mark.costly
async def test_raycluster_evicted_with_pending_scale_request_requests_all_its_pods(cluster):
    await submit(cluster, gpu=3)
    await ready(cluster, 4)
    await cluster.submit(job("beside", cpu="2"))
    await cluster.job("beside", runs)
    await scale(cluster, gpu=4)
    await cluster.order("ray", held=True)
    await cluster.record("ray", "pending", reason="OnHold")
    await cluster.submit(job("after", cpu="4"))
    await cluster.job("after", runs)
    for name in ("beside", "after"):
        await cluster.user.delete("jobs", "team-a", name, propagation="Background")
    await cluster.order("ray", held=False)
    await ready(cluster, 5)
    await cluster.holds(5000, "ray")
