"""Dispatch of each kind that can name another controller: its manifest runs as a copy, is stopped, and ends there."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import yaml
from custom_kinds import TRAINING_RUN_FORM, pod, pods_of, served, until
from every_kind import (
    KINDS,
    MCAD,
    RESOURCES,
    node,
    queue_of,
    through_the_webhook,
    total,
    with_lasting_pods,
    wrapped_in,
)
from grouped_kinds import pods_until
from job_examples import flavor, local_queue
from kind_manifests import FOLDER, GOLDEN, document
from other_clusters import cluster, other_cluster, state
from trainer import FRAMEWORKS as TRAINER_FRAMEWORKS
from trainer import KINDS as TRAINER_KINDS
from trainer import TRAIN_JOB, trainer

from admission.cluster.client import Client
from admission.controller.clusters import Connection
from admission.kinds import all_kinds, parse_form
from admission.kinds.dispatched import autoscaler, is_dispatched, runs_in

KUEUES = "kueue.x-k8s.io/multikueue"
"""The only value beside their own that the operators of Kubeflow and Ray accept."""


def is_dispatchable(name):
    obj = document(name)
    group, _, version = obj["apiVersion"].rpartition("/")
    return version != MCAD and bool(KINDS.get(group, obj["kind"]).manager[0])


NAMES = [name for name in GOLDEN if is_dispatchable(name)]


def managed_elsewhere(kind, obj):
    """Have Sluice run an object elsewhere."""
    *holders, field = kind.manager[0]
    holder = obj
    for key in holders:
        holder = holder.setdefault(key, {})
    holder[field] = KUEUES
    return obj


OWN = {**TRAINING_RUN_FORM, "managedBy": {"path": "spec.controller.managedBy", "value": "example.com/operator"}}
"""Description of a user-defined kind with a field for its controller."""


STAYING = ("rayjob", "jobset", "appwrapper-v1beta2", "pytorchjob-v1")
"""Manifests that are also tried without the field: one of each operator's family."""


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "by_field"), [*((name, True) for name in NAMES), *((name, False) for name in STAYING)]
)
async def test_manifest_runs_as_a_copy_is_stopped_and_ends(world, tmp_path, name, by_field):
    obj = document(name)
    obj["spec"].pop("enableInTreeAutoscaling", None)
    kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    wrapped = wrapped_in(obj)

    def kinds():
        return all_kinds(frameworks=("batch/job", kind.form.name, *wrapped))

    obj = with_lasting_pods(kind, obj)
    stored = through_the_webhook(managed_elsewhere(kind, obj) if by_field else obj, kind)
    await live_as_a_copy(world, tmp_path, kind, stored, kinds=kinds, wrapped=wrapped, amounts=total(name))


@pytest.mark.costly
async def test_user_defined_kind_runs_as_a_copy_is_stopped_and_ends(world, tmp_path):
    def kinds():
        return all_kinds(own=[parse_form(OWN)])

    roles = [{"role": "worker", "count": 2, "template": pod(cpu="4", seconds=1_000_000)}]
    run = {
        "apiVersion": "example.com/v1",
        "kind": "TrainingRun",
        "metadata": {"name": "run", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "user-queue"}},
        "spec": {"paused": True, "roles": roles},
    }
    kind = kinds().get("example.com", "TrainingRun")
    amounts = dict.fromkeys(RESOURCES, 0) | {"cpu": 8000, "pods": 2}
    await live_as_a_copy(world, tmp_path, kind, managed_elsewhere(kind, run), kinds=kinds, amounts=amounts)


async def test_object_whose_autoscaler_would_add_pods_elsewhere_is_not_sent(world):
    """Nobody would hold them back there until there is quota for them."""
    cluster_of, job_of = (document(name) for name in ("raycluster", "rayjob"))
    job_of["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    queue = queue_of(dict.fromkeys(RESOURCES, 2**50))
    queue["spec"]["dispatch"] = {}
    elsewhere = {**flavor(), "spec": {**flavor()["spec"], "clusters": ["b"]}}
    await world.apply(elsewhere, queue, local_queue("user-queue"))
    kinds = [KINDS.get("ray.io", obj["kind"]) for obj in (cluster_of, job_of)]
    async with AsyncExitStack() as stack:
        for kind in kinds:
            await stack.enter_async_context(served(world.sandbox, kind))
        await world.start(kinds=all_kinds(frameworks=("batch/job", *(kind.form.name for kind in kinds))))
        sent = through_the_webhook(managed_elsewhere(kinds[0], cluster_of), kinds[0])
        await world.user.create("rayclusters", "team-a", sent)
        waiting = await world.record(cluster_of["metadata"]["name"], "pending", reason="Misconfigured")
        assert waiting.message.startswith("spec.enableInTreeAutoscaling: its autoscaler would add pods")
        await world.user.create("rayjobs", "team-a", through_the_webhook(job_of, kinds[1]))
        await world.record(job_of["metadata"]["name"], "pending", reason="NoMatchingFlavor")


@pytest.mark.parametrize(
    ("api_version", "path"),
    [
        ("ray.io/v1", "spec.rayClusterConfig.enableInTreeAutoscaling"),
        ("kubeflow.org/v1", "spec.elasticPolicy.metrics"),
        ("example.com/v1", ""),
    ],
)
def test_autoscalers_are_found_in_objects_and_in_what_they_wrap(api_version, path):
    spec = {"rayClusterConfig": {"enableInTreeAutoscaling": True}, "elasticPolicy": {"metrics": [{}]}}
    obj = {"apiVersion": api_version, "spec": spec}
    assert autoscaler(obj) == path
    wrapper = {"spec": {"components": [7, {"template": "no"}, {"template": obj}]}}
    assert autoscaler(wrapper) == (path and f"spec.components[2].template.{path}")


async def test_trainjob_for_another_cluster_says_why_it_waits(world):
    manifest, runtime = yaml.safe_load_all((FOLDER / "trainjob-v2.yaml").read_text())
    name = manifest["metadata"]["name"]
    queue = queue_of({"cpu": 16000, **dict.fromkeys(RESOURCES[1:], 2**50)})
    queue["spec"]["dispatch"] = {}
    await world.apply(flavor(), queue, local_queue("user-queue"))
    async with trainer(world.sandbox, "2.2"):
        await world.user.create("trainingruntimes", "team-a", runtime)
        await world.user.create("trainjobs", "team-a", through_the_webhook(manifest, TRAIN_JOB))
        await until(world.user, "jobsets", name, lambda _: True)
        # Real releases up to 2.2 do not read the field, so that the JobSet is there in spite of it.
        await world.user.patch("trainjobs", "team-a", name, {"spec": {"managedBy": KUEUES}})
        await world.start(kinds=TRAINER_KINDS)
        waiting = await world.record(name, "pending", reason="Misconfigured")
        assert waiting.message.startswith("spec.managedBy: a TrainJob with this field cannot be sent")


@pytest.mark.costly
@pytest.mark.parametrize(("phase", "condition"), [("Succeeded", "Complete"), ("Failed", "Failed")])
async def test_trainjob_stays_suspended_and_ends_as_its_copy(world, tmp_path, phase, condition):
    manifest, runtime = yaml.safe_load_all((FOLDER / "trainjob-v2.yaml").read_text())
    name, user = manifest["metadata"]["name"], world.user
    spec = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["backoffLimit"] = 0
    spec["template"]["metadata"] = {"annotations": {"sandbox.sluice.dev/run-seconds": "1000000"}}
    queue, nodes = queue_of({"cpu": 16000, **dict.fromkeys(RESOURCES[1:], 2**50)}), flavor()
    queue["spec"]["dispatch"] = {}
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(other_cluster(tmp_path, "b"))
        for sandbox in (world.sandbox, there.sandbox):
            await stack.enter_async_context(trainer(sandbox, "2.2"))
            await sandbox.local("admin").create("trainingruntimes", "team-a", runtime)
        for number in range(2):
            await there.user.create("nodes", "", node(number))
        await world.apply(
            {**nodes, "spec": {**nodes["spec"], "clusters": ["b"]}}, queue, local_queue("user-queue"), cluster("b")
        )

        def join(cluster):
            return Connection(Client.from_kubeconfig(there.kubeconfig), all_kinds(frameworks=TRAINER_FRAMEWORKS), None)

        await world.start(kinds=TRAINER_KINDS, join=join)
        await state(world, "Active")
        created = await user.create("trainjobs", "team-a", through_the_webhook(manifest, TRAIN_JOB))
        await until(user, "trainjobs", name, lambda each: runs_in(each) == "b")
        pods = await pods_until(there.user, "team-a", lambda found: sum(map(is_running, found.values())) == 4)
        uid = created["metadata"]["uid"]
        assert {pod["metadata"]["labels"]["sluice.dev/workload-uid"] for pod in pods.values()} == {uid}
        assert user.list("pods") == []

        await world.end()
        await world.start(kinds=TRAINER_KINDS, join=join)
        await state(world, "Active")
        await world.order(name, held=True)
        await world.record(name, "pending", reason="OnHold")
        assert "OutOfSync" not in [reason for reason, _ in await world.history(name)]
        assert there.user.list("trainjobs") == []
        assert user.get("trainjobs", "team-a", name)["spec"] == created["spec"]
        await world.order(name, held=False)
        pods = await pods_until(there.user, "team-a", lambda found: sum(map(is_running, found.values())) == 4)
        for pod in pods:
            await there.user.patch("pods", "team-a", pod, {"status": {"phase": phase}}, subresource="status")
        ended = await until(user, "trainjobs", name, lambda each: TRAIN_JOB.observe(each).finished)
        assert ended["status"]["conditions"][-1]["type"] == condition
        assert ended["spec"]["suspend"] is True
        assert (await world.record(name, "finished")).outcome == phase


def is_running(pod):
    return pod.get("status", {}).get("phase") == "Running"


async def live_as_a_copy(world, tmp_path, kind, stored, *, kinds, amounts, wrapped=()):
    """Create an object that runs elsewhere, stop it, start it, and let it end, if it can, and delete it.

    `kinds`: returns those of a cluster. `wrapped`: names of those whose objects it has as components. `amounts`: quota
    that it needs.
    """
    user, key, version = world.user, stored["metadata"]["name"], stored["apiVersion"].rpartition("/")[2]
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(other_cluster(tmp_path, "b"))
        for number in range(2):
            await there.user.create("nodes", "", node(number))
        for each in (user, there.user):
            await each.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 0})
        for sandbox in (world.sandbox, there.sandbox):
            for one in wrapped:
                await stack.enter_async_context(served(sandbox, all_kinds(frameworks=(one,)).gated[0]))
            await stack.enter_async_context(served(sandbox, kind, version=version))
        queue, nodes = queue_of(amounts), flavor()
        queue["spec"]["dispatch"] = {}
        await world.apply(
            {**nodes, "spec": {**nodes["spec"], "clusters": ["b"]}}, queue, local_queue("user-queue"), cluster("b")
        )

        def join(cluster):
            return Connection(Client.from_kubeconfig(there.kubeconfig), kinds(), None)

        await world.start(kinds=kinds(), join=join)
        await state(world, "Active")

        created = await user.create(kind.plural, "team-a", stored)
        copy = await until(there.user, kind.plural, key, lambda each: kind.observe(each).ready)
        assert kind.manager[0][-1] not in str(copy["spec"])
        assert (await world.record(key, "admitted")).admission.cluster == "b"
        if is_dispatched(kind, stored):
            shown = await until(user, kind.plural, key, lambda each: kind.observe(each).ready)
            assert not kind.observe(shown).suspended
        else:
            shown = await until(user, kind.plural, key, lambda each: runs_in(each) == "b")
            assert kind.observe(shown).suspended
        assert user.list("pods") == []

        await world.order(key, held=True)
        await world.record(key, "pending", reason="OnHold")
        assert there.user.get(kind.plural, "team-a", key) is None
        assert there.user.list("pods") == []
        back = user.get(kind.plural, "team-a", key)
        assert (back["spec"], runs_in(back)) == (created["spec"], "")
        await world.order(key, held=False)
        again = await until(there.user, kind.plural, key, lambda each: kind.observe(each).ready)

        if kind.form.succeeded:

            async def has_ended():
                for pod in pods_of(there.user, again):  # that of a RayJob's submitter comes late
                    status = {"status": {"phase": "Succeeded"}}
                    await there.user.patch("pods", "team-a", pod["metadata"]["name"], status, subresource="status")
                return kind.observe(there.user.get(kind.plural, "team-a", key)).finished

            await world.eventually(has_ended)
            assert (await world.record(key, "finished")).outcome == "Succeeded"
            assert kind.observe(user.get(kind.plural, "team-a", key)).finished.succeeded
        await user.delete(kind.plural, "team-a", key, propagation="Background")
        await world.record(key, "finished")

        async def is_gone():
            return there.user.get(kind.plural, "team-a", key) is None

        await world.eventually(is_gone)
