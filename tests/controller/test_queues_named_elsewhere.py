"""Queue names in annotations and fields of other systems: from the webhook to the queue, and down to the pods."""

from __future__ import annotations

import pytest
from custom_kinds import served, until
from grouped_kinds import pods_until, running
from job_examples import cluster_queue, flavor, job, local_queue, runs
from kind_manifests import document
from pod_examples import gated, pod
from queue_objects import priority_class
from test_way_of_a_stateful_set import stateful_set

from admission.cli.configuration.integrations import IntegrationsSettings

YUNIKORN, VOLCANO = "yunikorn.apache.org/queue", "scheduling.volcano.sh/queue-name"
SETTINGS = IntegrationsSettings(
    frameworks=("batch/job", "pod", "statefulset", "kubeflow.org/pytorchjob"),
    queue_labels=("kai.scheduler/queue",),
    queue_annotations=(YUNIKORN, VOLCANO),
    queue_fields=("spec.runPolicy.schedulingPolicy.queue",),
    priority_labels=("ray.io/priority-class-name",),
)
KINDS, RULES = SETTINGS.registry(), SETTINGS.queue_rules()


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose gate and controller have the same settings, with two queues of 2 CPUs."""
    queues = [cluster_queue(cpu="2"), cluster_queue("cq2", cpu="2"), local_queue("root.a"), local_queue("b", "cq2")]
    await world.apply(flavor(), *queues)
    async with gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates", rules=RULES):
        await world.start(kinds=KINDS)
        yield world


def annotated(name, value="root.a", **options):
    obj = job(name, queue=None, suspend=False, **options)
    obj["metadata"] |= {"labels": {"ray.io/priority-class-name": "soon"}, "annotations": {YUNIKORN: value}}
    return obj


@pytest.mark.costly
async def test_lifecycle_of_job_whose_queue_is_named_by_an_annotation(cluster):
    alice = cluster.sandbox.local("alice")
    soon = priority_class("soon", 7)
    await cluster.apply(soon)
    await alice.create("jobs", "team-a", annotated("first", cpu="2"))
    await cluster.job("first", runs)
    await alice.create("jobs", "team-a", annotated("second", cpu="2"))
    waiting = await cluster.record("second", "pending", reason="WaitingForQuota")
    assert (waiting.workload.queue, waiting.workload.priority) == ("root.a", 7)

    # A changed or removed annotation neither moves nor releases a Job.
    for value in ("b", None):
        for name in ("first", "second"):
            await alice.patch("jobs", "team-a", name, {"metadata": {"annotations": {YUNIKORN: value}}})
    await alice.create("jobs", "team-a", annotated("last", "b", cpu="2"))
    await cluster.job("last", runs)
    assert (await cluster.record("second", "pending")).workload.queue == "root.a"
    assert (await cluster.record("first", "admitted")).workload.queue == "root.a"
    assert cluster.user.get("jobs", "team-a", "second")["spec"]["suspend"] is True

    await alice.delete("jobs", "team-a", "first", propagation="Background")
    started = await cluster.job("second", runs)
    assert started["metadata"]["labels"] == {"ray.io/priority-class-name": "soon", "sluice.dev/queue-name": "root.a"}


async def test_queue_is_read_from_annotations_of_pods_and_field_of_pytorchjob(cluster):
    alice = cluster.sandbox.local("alice")
    alone = pod("alone", queue=None)
    alone["metadata"]["annotations"][VOLCANO] = "root.a"
    await alice.create("pods", "team-a", alone)
    web = stateful_set(2, labels={})
    web["spec"]["template"]["metadata"]["annotations"][VOLCANO] = "b"
    await alice.create("statefulsets", "team-a", web)
    await pods_until(cluster.user, "team-a", running(3))
    group = await cluster.record("web", "admitted")
    assert (group.workload.queue, [each.count for each in group.workload.pod_sets]) == ("b", [2])
    assert (await cluster.record("alone", "admitted")).workload.queue == "root.a"

    kind = KINDS.get("kubeflow.org", "PyTorchJob")
    async with served(cluster.sandbox, kind):
        obj = document("pytorchjob-v1")
        obj["metadata"] = {"name": "training", "namespace": "team-a"}
        obj["spec"]["runPolicy"]["schedulingPolicy"] = {"queue": "nowhere"}
        await alice.create("pytorchjobs", "team-a", obj)
        kept = await until(cluster.user, "pytorchjobs", "training", lambda each: kind.observe(each).suspended)
        assert kept["metadata"]["labels"] == {"sluice.dev/queue-name": "nowhere"}
        waiting = await cluster.record("training", "pending")
        assert waiting.workload.queue == "nowhere"
