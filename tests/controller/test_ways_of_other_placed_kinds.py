"""Pods, pod groups and kinds of several pod sets that are placed by topology."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager

import pytest
from custom_kinds import JOBSET, jobset, served
from custom_kinds import KINDS as DECLARED
from custom_kinds import pods_of as pods_of_object
from pod_examples import gated, pod
from pod_groups import KINDS, create, member, pods_until, runs
from test_way_of_a_ray_cluster import ray_cluster, scale
from topology_examples import HOSTNAME, REQUIRED, placed_job, queues_by, racks, racks_of
from topology_examples import bound as bound_pods

from admission.kinds import all_kinds

RAY = all_kinds(frameworks=("batch/job", "ray.io/raycluster"))
KUEUE = "kueue.x-k8s.io/podset-"


@asynccontextmanager
async def cluster_of_pods(world, folder, *levels):
    await world.apply(*queues_by(*levels))
    async with gated(world.user, KINDS, folder / "certificates"):
        await world.start(kinds=KINDS)
        yield world


def in_rack(each):
    each["metadata"]["annotations"][REQUIRED] = "rack"
    return each


def all_run(number):
    return lambda found: len(found) == number and all(map(runs, found.values()))


async def test_a_pod_gets_its_domain_with_its_start(world, tmp_path):
    await racks(world, 1, "a1", "b1")
    async with cluster_of_pods(world, tmp_path, "rack", HOSTNAME) as cluster:
        await create(cluster, *(in_rack(pod(f"p-{number}", cpu="3")) for number in range(3)))
        found = await pods_until(cluster, lambda pods: sum(map(runs, pods.values())) == 2 and len(pods) == 3)
        running = [each for each in found.values() if runs(each)]
        assert racks_of(running) == {"a1", "b1"}
        assert all(each["spec"]["nodeSelector"][HOSTNAME] == each["spec"]["nodeName"] for each in running)


async def test_a_group_is_placed_in_one_rack_in_the_order_of_its_indexes(world, tmp_path):
    await racks(world, 2, "a1", "b1")

    def indexed(number):
        made = in_rack(member(f"g-{number}", total=6))
        made["metadata"]["labels"]["my/rank"] = str(number)
        made["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-pod-index-label"] = "my/rank"
        return made

    async with cluster_of_pods(world, tmp_path, "rack", HOSTNAME) as cluster:
        await create(cluster, *map(indexed, (5, 3, 1, 4, 2, 0)))
        found = await pods_until(cluster, all_run(6))
        assert len(racks_of([*found.values()])) == 1
        nodes = [found[f"g-{number}"]["spec"]["nodeName"] for number in range(6)]
        assert nodes == sorted(nodes)
        record = await cluster.record("g", "admitted")
        places = {values[-1]: count for values, count in record.admission.pod_sets[0].topology.domains}
        assert Counter(nodes) == places

        await cluster.user.delete("pods", "team-a", "g-2", grace=0)
        await create(cluster, indexed(2))
        again = await pods_until(cluster, all_run(6))
        assert again["g-2"]["spec"]["nodeName"] == found["g-2"]["spec"]["nodeName"]


async def test_pods_that_still_run_on_a_node_that_is_not_ready_keep_their_places(world, tmp_path):
    """A pod by itself keeps it, too, when the node is gone: it ends with its node."""
    await racks(world, 2, "a1", "b1")
    async with cluster_of_pods(world, tmp_path, "rack", HOSTNAME) as cluster:
        await create(cluster, *(in_rack(member(f"g-{number}", total=6)) for number in range(6)))
        found = await pods_until(cluster, all_run(6))
        await create(cluster, in_rack(pod("alone", cpu="1")))
        alone = (await pods_until(cluster, all_run(7)))["alone"]["spec"]["nodeName"]
        places = [(await cluster.record(name, "admitted")).admission for name in ("g", "alone")]
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}}
        await cluster.user.patch("nodes", "", found["g-0"]["spec"]["nodeName"], unready, subresource="status")
        await cluster.user.patch("nodes", "", alone, unready, subresource="status")
        await create(cluster, in_rack(pod("last", cpu="1")))  # starts after the nodes were seen
        await pods_until(cluster, all_run(8))
        assert [(await cluster.record(name, "admitted")).admission for name in ("g", "alone")] == places


async def test_a_raycluster_that_grows_keeps_its_pods_where_they_are(world, tmp_path):
    """Its other workers join it in its rack, or wait."""
    await racks(world, 2, "a1", "b1")  # 8 CPUs each
    await world.apply(*queues_by("rack", HOSTNAME))
    async with (
        served(world.sandbox, RAY.get("ray.io", "RayCluster")),
        gated(world.sandbox.local("admin"), RAY, tmp_path / "certificates"),
    ):
        await world.start(kinds=RAY)
        made = ray_cluster(gpu=4)
        (group,) = made["spec"]["workerGroupSpecs"]
        for template in (made["spec"]["headGroupSpec"]["template"], group["template"]):
            in_rack(template)["metadata"]["annotations"][f"{KUEUE}group-name"] = "all"
        created = await world.user.create("rayclusters", "team-a", made)

        async def bound(number):
            pods = pods_of_object(world.user, created)
            all_bound = all(each["spec"].get("nodeName") for each in pods)
            return {each["metadata"]["uid"]: each for each in pods} if len(pods) == number and all_bound else None

        before = await world.eventually(lambda: bound(5))
        await scale(world, gpu=7)
        after = await world.eventually(lambda: bound(8))
        assert before.keys() < after.keys()
        assert len(racks_of([*after.values()])) == 1
        assert max(Counter(each["spec"]["nodeName"] for each in after.values()).values()) == 4

        await scale(world, gpu=8)
        await world.eventually(lambda: waits(world))
        assert len(pods_of_object(world.user, created)) == 8

        await scale(world, gpu=3)
        await world.submit(placed_job("fills", 8))
        await bound_pods(world, "fills", 8)
        await world.submit(placed_job("beside", 4))  # where four of the eight pods were
        beside = await bound_pods(world, "beside", 4)
        stayed = (await world.eventually(lambda: bound(4))).values()
        assert racks_of(beside) == racks_of([*stayed]) == racks_of([*after.values()])
        assert max(Counter(each["spec"]["nodeName"] for each in (*stayed, *beside)).values()) == 4


async def waits(world):
    record = await world.record("ray", "admitted")
    return "1 more pod" in record.message and "topology" in record.message


@pytest.mark.costly
async def test_leader_and_workers_of_a_jobset_are_in_one_rack(world):
    await racks(world, 2, "a1", "b1")
    await world.apply(*queues_by("rack", HOSTNAME))
    async with served(world.sandbox, DECLARED.get(*JOBSET)):
        await world.start(kinds=DECLARED)
        made = jobset("train", workers=2)
        for job in made["spec"]["replicatedJobs"]:
            template = job["template"]["spec"]["template"]
            annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
            annotations |= {f"{KUEUE}required-topology": "rack", f"{KUEUE}group-name": "all"}
        created = await world.user.create("jobsets", "team-a", made)

        async def bound():
            pods = pods_of_object(world.user, created)
            return pods if len(pods) == 5 and all(each["spec"].get("nodeName") for each in pods) else None

        pods = await world.eventually(bound)
        assert len(racks_of(pods)) == 1
        record = await world.record("train", "admitted")
        places = Counter()
        for assignment in record.admission.pod_sets:
            places.update({values[-1]: count for values, count in assignment.topology.domains})
        assert Counter(each["spec"]["nodeName"] for each in pods) == places
