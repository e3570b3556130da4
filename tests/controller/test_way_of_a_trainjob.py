"""Lifecycle of a TrainJob, whose pods are known from the JobSet that Kubeflow Trainer creates, in three releases."""

from __future__ import annotations

import copy
from contextlib import AsyncExitStack

import pytest
import yaml
from custom_kinds import definition, pods_of, until
from every_kind import held_by, node, queue_of, through_the_webhook
from job_examples import TOLERATION, flavor, job, local_queue, runs
from kind_manifests import FOLDER, GI, GPU
from topology_examples import HOSTNAME, queues_by, racks
from trainer import FIELDS, KAI, KINDS, TRAIN_JOB, trainer, trainjobs

from admission.kinds.base import RENDERED
from admission.kinds.definitions import differences

MANIFEST, RUNTIME = yaml.safe_load_all((FOLDER / "trainjob-v2.yaml").read_text())
NAME = MANIFEST["metadata"]["name"]
AMOUNTS = {"cpu": 16000, "memory": 64 * GI, GPU: 4, "pods": 4}
SELECTOR = {"type": "kwok"}
RUNTIME_FOR_KAI, MANIFEST_FOR_KAI, *_ = yaml.safe_load_all((FOLDER / "trainjob-kai.yaml").read_text())
FOR_KAI = {"cpu": 8000, "memory": 16 * GI, GPU: 2, "pods": 2}
QUEUE_OF_KAI = {KAI: "team-a-train"}


@pytest.fixture
async def sluice(world):
    """A running Sluice with exactly the quota for the manifest's TrainJob."""
    for number in range(2):
        await world.user.create("nodes", "", node(number))
    await world.apply(flavor(), queue_of(AMOUNTS), local_queue("user-queue"))
    return world


async def submitted(world, **labels):
    """Create the manifest's TrainJob, whose pods run until they are stopped. `labels`: of its JobSet."""
    runtime = copy.deepcopy(RUNTIME)
    runtime["spec"]["template"]["metadata"] = {"labels": labels}
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {"sandbox.sluice.dev/run-seconds": "1000000"}}
    await world.user.create("trainingruntimes", "team-a", runtime)
    return await world.user.create("trainjobs", "team-a", through_the_webhook(copy.deepcopy(MANIFEST), TRAIN_JOB))


async def end_and_delete(world, name, jobset, cpu):
    """Let its pods succeed, delete it, and start a Job with its quota."""
    for each in pods_of(world.user, jobset):
        ended = {"status": {"phase": "Succeeded"}}
        await world.user.patch("pods", "team-a", each["metadata"]["name"], ended, subresource="status")
    assert (await world.record(name, "finished")).outcome == "Succeeded"
    await world.user.delete("trainjobs", "team-a", name, propagation="Background")
    await world.submit(job("after", queue="user-queue", cpu=cpu))
    await world.job("after", runs)


def started(obj):
    return obj["spec"].get("suspend") is False


async def made(world, holds=lambda _: True):
    return await until(world.user, "jobsets", NAME, holds)


def template_of(jobset):
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


async def until_running(world, release, created):
    """Wait until its pods run, and check that they have the flavor's node selector and tolerations."""
    await until(world.user, "trainjobs", NAME, started)
    record = await world.record(NAME, "admitted")
    assert held_by(record) == AMOUNTS
    jobset = await made(world, lambda each: each["spec"]["suspend"] is False)
    assert template_of(jobset)["spec"]["nodeSelector"] == SELECTOR
    assert template_of(jobset)["spec"]["tolerations"] == [TOLERATION]
    labels = template_of(jobset)["metadata"].get("labels", {})
    of_its_start = {"sluice.dev/workload-uid": created["metadata"]["uid"], "sluice.dev/pod-set": "node"}
    assert labels == ({} if release == "2.0" else of_its_start)
    await until(world.user, "trainjobs", NAME, lambda each: each["status"]["jobsStatus"][0]["ready"] == 1)
    assert len(pods_of(world.user, jobset)) == 4
    return jobset


@pytest.mark.costly
@pytest.mark.parametrize("release", FIELDS)
async def test_lifecycle_of_a_trainjob(sluice, release):
    user = sluice.user
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(trainer(sluice.sandbox, release))
        await sluice.start(kinds=KINDS)
        await sluice.submit(job("before", queue="user-queue", cpu="16"))
        await sluice.job("before", runs)
        created = await submitted(sluice)
        waiting = await sluice.record(NAME, "pending", reason="WaitingForQuota")
        assert [(each.name, each.count) for each in waiting.workload.pod_sets] == [("node", 4)]
        assert waiting.workload.pod_sets[0].requests == {"cpu": 4000, "memory": 16 * GI, GPU: 1}
        assert "less is free" in waiting.message

        await user.delete("jobs", "team-a", "before", propagation="Background")
        jobset = await until_running(sluice, release, created)
        assert [field for field in FIELDS.values() if field in user.get("trainjobs", "team-a", NAME)["spec"]] == [
            FIELDS[release]
        ]

        await sluice.order(NAME, held=True)
        assert (await sluice.record(NAME, "pending", reason="OnHold")).admission is None
        assert pods_of(user, jobset) == []
        stopped = user.get("trainjobs", "team-a", NAME)
        assert stopped["spec"] == created["spec"]
        assert stopped["metadata"].get("labels") == created["metadata"]["labels"]
        assert stopped["metadata"]["annotations"] == created["metadata"]["annotations"]
        await sluice.order(NAME, held=False)
        jobset = await until_running(sluice, release, created)
        assert [reason for reason, _ in await sluice.history(NAME)].count("Admitted") == 2

        await end_and_delete(sluice, NAME, jobset, cpu="16")


async def until_running_for_kai(world):
    """Wait until the pods of the TrainJob for KAI run, and check that they have the fields that KAI reads."""
    name = MANIFEST_FOR_KAI["metadata"]["name"]

    def is_ready(obj):
        roles = (obj.get("status") or {}).get("jobsStatus") or [{}]
        return started(obj) and roles[0].get("ready") == 1

    running = await until(world.user, "trainjobs", name, is_ready)
    assert running["metadata"]["labels"] == QUEUE_OF_KAI
    assert held_by(await world.record(name, "admitted")) == FOR_KAI
    jobset = world.user.get("jobsets", "team-a", name)
    assert template_of(jobset)["spec"]["nodeSelector"] == SELECTOR
    pods = pods_of(world.user, jobset)
    assert len(pods) == FOR_KAI["pods"]
    for pod in pods:
        assert pod["metadata"]["labels"].items() >= QUEUE_OF_KAI.items()
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
    return jobset


@pytest.mark.costly
async def test_lifecycle_of_trainjob_for_kai_keeps_the_fields_of_kai(sluice):
    user, name, manifest = sluice.user, MANIFEST_FOR_KAI["metadata"]["name"], copy.deepcopy(MANIFEST_FOR_KAI)
    runtime = copy.deepcopy(RUNTIME_FOR_KAI)
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"]["annotations"] = {"sandbox.sluice.dev/run-seconds": "1000000"}
    template["spec"]["restartPolicy"] = "Never"  # required by Trainer's webhook
    await sluice.apply(queue_of(FOR_KAI), local_queue("team-a-train"))
    async with trainer(sluice.sandbox, "2.2"):
        await sluice.start(kinds=KINDS)
        await sluice.submit(job("before", queue="user-queue", cpu="8"))
        await sluice.job("before", runs)
        await user.create("clustertrainingruntimes", "", runtime)
        created = await user.create("trainjobs", "team-a", through_the_webhook(manifest, TRAIN_JOB))
        waiting = await sluice.record(name, "pending", reason="WaitingForQuota")
        assert "less is free" in waiting.message
        assert [(each.count, each.requests) for each in waiting.workload.pod_sets] == [
            (2, {"cpu": 4000, "memory": 8 * GI, GPU: 1})
        ]
        await user.delete("jobs", "team-a", "before", propagation="Background")
        jobset = await until_running_for_kai(sluice)
        await sluice.order(name, held=True)
        assert (await sluice.record(name, "pending", reason="OnHold")).admission is None
        stopped = user.get("trainjobs", "team-a", name)
        assert pods_of(user, jobset) == []
        assert stopped["spec"] == created["spec"]
        assert stopped["metadata"]["labels"] == created["metadata"]["labels"] == QUEUE_OF_KAI
        await sluice.order(name, held=False)
        jobset = await until_running_for_kai(sluice)
        await end_and_delete(sluice, name, jobset, cpu="8")


@pytest.fixture
async def running(sluice):
    """A TrainJob that runs under Trainer 2.2."""
    async with trainer(sluice.sandbox, "2.2"):
        await sluice.start(kinds=KINDS)
        created = await submitted(sluice)
        await until_running(sluice, "2.2", created)
        yield sluice


@pytest.mark.costly
async def test_trainjob_of_trainer_2_0_is_not_started_where_each_pod_needs_a_place(world):
    """Its pods cannot be annotated, so that they would stay gated; nothing of the attempt is left."""
    await racks(world, 2, "a1")
    await world.apply(*queues_by(HOSTNAME), local_queue("user-queue"))
    async with trainer(world.sandbox, "2.0"):
        await world.start(kinds=KINDS)
        runtime, manifest = copy.deepcopy(RUNTIME), copy.deepcopy(MANIFEST)
        manifest["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": "1"}}
        await world.user.create("trainingruntimes", "team-a", runtime)
        created = await world.user.create("trainjobs", "team-a", through_the_webhook(manifest, TRAIN_JOB))
        waiting = await world.record(NAME, "pending", reason="DeactivatedDueToStartImpossible")
        assert "Kubeflow Trainer 2.0 has no field for annotations of pods" in waiting.message
        await until(world.user, "trainjobs", NAME, lambda each: each["spec"] == created["spec"])


async def test_trainjob_without_jobset_is_misconfigured(sluice):
    for each in (trainjobs("2.2"), definition(KINDS.get("jobset.x-k8s.io", "JobSet"))):
        await sluice.user.create("customresourcedefinitions", "", each)
    await sluice.start(kinds=KINDS)
    await sluice.user.create("trainjobs", "team-a", through_the_webhook(copy.deepcopy(MANIFEST), TRAIN_JOB))
    waiting = await sluice.record(NAME, "pending", reason="Misconfigured")
    assert waiting.message.startswith("spec.runtimeRef: Kubeflow Trainer has created no JobSet for it yet")


@pytest.mark.costly
async def test_trainjob_is_suspended_when_its_running_jobset_gets_more_pods(running):
    jobset = copy.deepcopy(running.user.get("jobsets", "team-a", NAME))
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 5, "completions": 5}
    await running.user.update("jobsets", "team-a", jobset)
    await until(running.user, "trainjobs", NAME, lambda each: each["spec"]["suspend"])
    assert "OutOfSync" in [reason for reason, _ in await running.history(NAME)]


@pytest.mark.costly
async def test_trainjob_releases_quota_when_its_running_jobset_gets_fewer_pods(running):
    await running.submit(job("after", queue="user-queue", cpu="4"))
    await running.record("after", "pending", reason="WaitingForQuota")
    jobset = copy.deepcopy(running.user.get("jobsets", "team-a", NAME))
    fewer = {"parallelism": 3, "completions": 3}
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"] |= fewer
    await running.user.update("jobsets", "team-a", jobset)
    await running.user.patch("jobs", "team-a", f"{NAME}-node-0", {"spec": fewer})
    await running.job("after", runs)
    assert held_by(await running.record(NAME, "admitted"))["cpu"] == 12000


@pytest.mark.costly
async def test_trainjob_is_suspended_when_pods_of_its_jobset_request_more(running):
    jobset = copy.deepcopy(running.user.get("jobsets", "team-a", NAME))
    template_of(jobset)["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
    await running.user.update("jobsets", "team-a", jobset)
    await until(running.user, "trainjobs", NAME, lambda each: each["spec"]["suspend"])
    assert "OutOfSync" in [reason for reason, _ in await running.history(NAME)]


@pytest.mark.costly
async def test_quota_of_a_trainjob_follows_what_a_webhook_adds_to_its_pods(sluice):
    proxy = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": "500m"}}}

    def injected(pod):
        return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], proxy]}}

    async def holds_more():
        return held_by(await sluice.record(NAME, "admitted"))["cpu"] == AMOUNTS["cpu"] + 4 * 500

    async with trainer(sluice.sandbox, "2.2"):
        with sluice.sandbox.local("admin").mutating_new("pods", injected):
            await sluice.start(kinds=KINDS)
            await submitted(sluice)
            await until(sluice.user, "trainjobs", NAME, started)
            await sluice.eventually(holds_more)
            # It runs on when it is seen again, and its JobSet, too.
            for plural in ("trainjobs", "jobsets"):
                await sluice.user.patch(plural, "team-a", NAME, {"metadata": {"annotations": {"note": "seen"}}})
            await sluice.submit(job("after", queue="user-queue", cpu="1m"))
            await sluice.record("after", "pending", reason="WaitingForQuota")
            assert await holds_more()
            assert started(sluice.user.get("trainjobs", "team-a", NAME))


async def test_trainjob_is_suspended_when_its_runtime_patches_are_removed(running):
    obj = copy.deepcopy(running.user.get("trainjobs", "team-a", NAME))
    del obj["spec"]["runtimePatches"]
    await running.user.update("trainjobs", "team-a", obj)
    await until(running.user, "trainjobs", NAME, lambda each: each["spec"]["suspend"])


async def test_jobset_of_trainjob_with_queue_label_is_no_separate_workload(sluice):
    """As in a managed namespace, where objects without a queue label get one."""
    async with trainer(sluice.sandbox, "2.2"):
        await sluice.start(kinds=KINDS)
        created = await submitted(sluice, **{"sluice.dev/queue-name": "user-queue"})
        await until_running(sluice, "2.2", created)
        (only,) = (await sluice.store.workloads.list(namespace="team-a")).workloads
        assert only.workload.uid == created["metadata"]["uid"]


@pytest.mark.costly
async def test_forged_second_jobset_of_trainjob_queues_as_a_separate_workload(running):
    forged = copy.deepcopy(running.user.get("jobsets", "team-a", NAME))
    forged["metadata"] = {key: forged["metadata"][key] for key in ("namespace", "ownerReferences")}
    forged["metadata"] |= {"name": "forged", "labels": {"sluice.dev/queue-name": "user-queue"}}
    forged.pop("status", None)
    await running.user.create("jobsets", "team-a", forged)
    await until(running.user, "jobsets", "forged", lambda each: each["spec"]["suspend"])
    assert (await running.record("forged", "pending", reason="WaitingForQuota")).admission is None


@pytest.mark.costly
async def test_pending_trainjob_unsuspended_by_user_is_suspended_again(sluice):
    async with trainer(sluice.sandbox, "2.2"):
        await sluice.start(kinds=KINDS)
        await sluice.submit(job("before", queue="user-queue", cpu="16"))
        await sluice.job("before", runs)
        await submitted(sluice)
        await sluice.record(NAME, "pending", reason="WaitingForQuota")
        await sluice.user.patch("trainjobs", "team-a", NAME, {"spec": {"suspend": False}})
        await until(sluice.user, "trainjobs", NAME, lambda each: each["spec"]["suspend"])
        # The JobSet must be suspended, too.
        await made(sluice, lambda each: each["spec"]["suspend"])


@pytest.mark.parametrize("release", FIELDS)
def test_trainjob_description_matches_its_definition_in_each_release(release):
    told = [message for _, message in differences(TRAIN_JOB.form, trainjobs(release)) if RENDERED not in message]
    assert told == []
