"""Lifecycle of StatefulSets with a queue label and the webhook: one workload that follows `replicas`."""

from __future__ import annotations

import pytest
from grouped_kinds import GATE, pods_until, running
from job_examples import cluster_queue, flavor, job, local_queue, runs
from pod_examples import gated, pod

from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod", "statefulset"))
SETS = "statefulsets"


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        yield world


def stateful_set(replicas, *, management="Parallel", stop="1", labels=None, in_template=None):
    """StatefulSet `web` with pods of one CPU each; `stop`: simulated seconds until they terminate."""
    one = pod("template", queue=None)
    annotations = one["metadata"]["annotations"] | {"sandbox.sluice.dev/stop-seconds": stop}
    spec = one["spec"] | {"restartPolicy": "Always", "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "web",
            "namespace": "team-a",
            "labels": {"sluice.dev/queue-name": "lq"} if labels is None else labels,
        },
        "spec": {
            "replicas": replicas,
            "serviceName": "web",
            "podManagementPolicy": management,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web", **(in_template or {})}, "annotations": annotations},
                "spec": spec,
            },
        },
    }


async def submit(cluster, *args, **fields):
    return await cluster.sandbox.local("alice").create(SETS, "team-a", stateful_set(*args, **fields))


async def scale(cluster, replicas):
    """Change replicas as `kubectl scale` does, which the webhook does not see."""
    await cluster.user.patch(SETS, "team-a", "web", {"spec": {"replicas": replicas}}, subresource="scale")


def web_pods(found):
    return {name: each for name, each in found.items() if name.startswith("web-")}


async def pods(cluster, *numbers):
    return web_pods(await pods_until(cluster.user, "team-a", lambda found: running(*numbers)(web_pods(found))))


def uids(found):
    return {name: each["metadata"]["uid"] for name, each in found.items()}


@pytest.mark.costly
@pytest.mark.parametrize("management", ["OrderedReady", "Parallel"])
async def test_stateful_set_starts_as_a_whole_and_quota_follows_replicas(cluster, management):
    await cluster.submit(job("before", cpu="2"))
    await cluster.job("before", runs)
    stored = await submit(cluster, 3, management=management)
    template = stored["spec"]["template"]["metadata"]
    assert template["labels"]["sluice.dev/queue-name"] == "lq"
    assert template["annotations"]["sluice.dev/pod-group-total-count"] == "3"
    waiting = await cluster.record("web", "pending", reason="WaitingForQuota")
    assert (waiting.workload.kind, waiting.workload.user) == ("PodGroup", "alice")
    assert [each.count for each in waiting.workload.pod_sets] == [3]
    await cluster.user.delete("jobs", "team-a", "before", propagation="Background")
    before = await pods(cluster, 3)
    await cluster.holds(3000)
    first = await cluster.record("web", "admitted")

    # Scale-up within the quota does not affect running pods.
    await scale(cluster, 4)
    grown = await pods(cluster, 4)
    await cluster.holds(4000)
    assert uids(before).items() <= uids(grown).items()
    await scale(cluster, 6)
    # With OrderedReady the next pod is created when this one runs.
    await pods(cluster, 4, 1 if management == "OrderedReady" else 2)
    await cluster.submit(job("after"))
    await cluster.record("after", "pending", reason="WaitingForQuota")
    await cluster.holds(4000)

    # After a scale-down the pending Job gets the quota.
    await scale(cluster, 3)
    shrunk = await pods(cluster, 3)
    assert uids(before) == uids(shrunk)
    await cluster.job("after", runs)
    await cluster.holds(4000)
    now = await cluster.record("web", "admitted")
    assert (now.workload.uid, now.admitted_at) == (first.workload.uid, first.admitted_at)
    assert [each.count for each in now.workload.pod_sets] == [3]

    await scale(cluster, 0)
    await cluster.record("web", "finished")
    await cluster.holds(1000)
    await scale(cluster, 2)
    await pods(cluster, 2)
    await cluster.holds(3000)
    await cluster.user.delete(SETS, "team-a", "web", propagation="Background")
    await cluster.holds(1000)


@pytest.mark.costly
async def test_scaled_down_stateful_set_releases_quota_only_as_its_pods_end(cluster):
    await submit(cluster, 4, stop="never")
    await pods(cluster, 4)
    await cluster.submit(job("next", cpu="2"))
    await cluster.record("next", "pending", reason="WaitingForQuota")
    await scale(cluster, 2)

    def ending(found):
        return {name for name, each in found.items() if "deletionTimestamp" in each["metadata"]} == {"web-2", "web-3"}

    await pods_until(cluster.user, "team-a", ending)
    await cluster.user.delete("pods", "team-a", "web-3", grace=0)
    await cluster.holds(3000)  # includes the pod that still terminates
    # The next leader counts the terminating pod, too.
    await cluster.end()
    await cluster.start(kinds=KINDS)
    assert "next" in [each["metadata"]["name"] for each in cluster.user.list("jobs", "team-a") if not runs(each)]
    await cluster.user.delete("pods", "team-a", "web-2", grace=0)
    await cluster.job("next", runs)
    await cluster.holds(4000)
    # Scaled up again without free quota, the new pod stays gated.
    await scale(cluster, 3)
    await pods_until(cluster.user, "team-a", lambda found: gated_ones(found) == {"web-2"})
    await cluster.user.delete("jobs", "team-a", "next", propagation="Background")
    await pods_until(cluster.user, "team-a", lambda found: "web-2" in found and not gated_ones(found))
    await cluster.holds(3000)


def gated_ones(found):
    return {name for name, each in found.items() if GATE in each["spec"].get("schedulingGates", ())}


@pytest.mark.costly
async def test_scale_up_of_stateful_set_is_completed_after_restart(cluster):
    await submit(cluster, 1)
    await pods(cluster, 1)
    await cluster.cut_off()
    await scale(cluster, 4)
    await cluster.holds(4000)
    await cluster.end()
    assert len(gated_ones({each["metadata"]["name"]: each for each in cluster.user.list("pods", "team-a")})) == 3
    await cluster.reconnect()
    await cluster.start(kinds=KINDS)
    await pods(cluster, 4)
    await cluster.holds(4000)


@pytest.mark.costly
async def test_evicted_stateful_set_is_recreated_gated_and_queues_with_new_replicas(cluster):
    await submit(cluster, 3)
    await pods(cluster, 3)
    first = await cluster.record("web", "admitted")
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods(cluster, 0, 3)
    await cluster.holds(0)
    await scale(cluster, 2)
    await pods(cluster, 0, 2)
    await cluster.apply(cluster_queue())
    await pods(cluster, 2)
    await cluster.holds(2000)
    assert (await cluster.record("web", "admitted")).workload.uid == first.workload.uid


async def test_pod_beyond_quota_whose_gate_is_removed_is_replaced_by_gated_pod(cluster):
    await submit(cluster, 4)
    await pods(cluster, 4)
    await scale(cluster, 5)
    before = await pods(cluster, 4, 1)
    await cluster.user.patch("pods", "team-a", "web-4", {"spec": {"schedulingGates": None}})
    await pods_until(
        cluster.user, "team-a", lambda found: running(4, 1)(found) and uids(found)["web-4"] != uids(before)["web-4"]
    )
    await cluster.holds(4000)


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_queue_label_and_injected_template_fields_cannot_be_removed(cluster, when):
    if when == "waiting":
        await cluster.apply(cluster_queue(stopPolicy="Hold"))
    stored = await submit(cluster, 2)
    await pods(cluster, *((0, 2) if when == "waiting" else (2,)))
    mine = cluster.sandbox.local("alice")
    again = await mine.patch(SETS, "team-a", "web", {"spec": stateful_set(2)["spec"]})
    template = {"metadata": {"labels": {"sluice.dev/queue-name": None}, "annotations": None}}
    bare = await mine.patch(SETS, "team-a", "web", {"spec": {"template": template}})
    label = await mine.patch(SETS, "team-a", "web", {"metadata": {"labels": {"sluice.dev/queue-name": None}}})
    assert again["spec"] == stored["spec"]
    for each in (bare, label):
        assert each["metadata"]["labels"] == stored["metadata"]["labels"]
        kept = each["spec"]["template"]["metadata"]
        assert kept["labels"]["sluice.dev/queue-name"] == "lq"
        assert kept["annotations"]["sluice.dev/pod-group-total-count"] == "2"
    await pods(cluster, *((0, 2) if when == "waiting" else (2,)))


async def test_larger_pod_of_edited_template_waits_beside_running_pod(cluster):
    await submit(cluster, 2)
    await pods(cluster, 2)
    stored = cluster.user.get(SETS, "team-a", "web")
    (container,) = stored["spec"]["template"]["spec"]["containers"]
    larger = {"containers": [{**container, "resources": {"requests": {"cpu": "2"}}}]}
    await cluster.sandbox.local("alice").patch(SETS, "team-a", "web", {"spec": {"template": {"spec": larger}}})
    await pods(cluster, 1, 1)
    await cluster.holds(2000)


def owners(obj):
    return obj["metadata"].get("ownerReferences", ())


async def test_workload_of_deleted_set_ends_with_its_last_orphaned_pod(cluster):
    await submit(cluster, 3)
    await pods(cluster, 3)
    await cluster.user.delete(SETS, "team-a", "web", propagation="Orphan")
    await pods_until(cluster.user, "team-a", lambda found: not any(map(owners, web_pods(found).values())))
    await cluster.holds(3000)
    for name in ("web-0", "web-1"):
        await cluster.user.delete("pods", "team-a", name)
    await pods(cluster, 1)
    await cluster.submit(job("next", cpu="2"))
    await cluster.record("next", "pending", reason="WaitingForQuota")
    await cluster.holds(3000)
    await cluster.user.delete("pods", "team-a", "web-2")
    await cluster.record("web", "finished")
    await cluster.job("next", runs)
    await cluster.holds(2000)


async def test_queue_label_on_template_is_used_and_pod_group_of_user_is_kept(cluster):
    await submit(cluster, 2, labels={}, in_template={"sluice.dev/queue-name": "lq"})
    await pods(cluster, 2)
    assert [each.count for each in (await cluster.record("web", "admitted")).workload.pod_sets] == [2]
    await cluster.user.delete(SETS, "team-a", "web", propagation="Foreground")
    await cluster.holds(0)
    own = {"sluice.dev/queue-name": "lq", "sluice.dev/pod-group-name": "both"}
    stored = await submit(cluster, 1, labels={}, in_template=own)
    assert "sluice.dev/pod-group-total-count" not in stored["spec"]["template"]["metadata"]["annotations"]
