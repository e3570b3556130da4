"""The life of each kind, all in one cluster: queued, run, evicted, preempted, ended; with `kill -9` in each state."""

from __future__ import annotations

from functools import partial

import pytest
from custom_kinds import restored_spec, served, until
from every_kind import (
    KINDS,
    OLDER,
    EveryKind,
    as_one_wave,
    held_by,
    key_of,
    node,
    plural_of,
    queue_of,
    through_the_webhook,
    urgent,
)
from job_examples import TOLERATION, flavor, local_queue
from job_manifests import JOBS
from kind_manifests import GOLDEN, document, total
from test_group_manifests import kept

from admission.kinds import GROUPED, TRAIN_JOB, all_kinds, frameworks_known
from admission.kinds.paths import at
from admission.sandbox.background import background


@pytest.fixture
async def cluster(world, tmp_path):
    found = EveryKind(world, tmp_path)
    await found.prepare()
    controllers = {name: each.run() for name, each in found.controllers().items()}
    async with background(quota=found.watch_quota(), **controllers):
        await found.start()
        try:
            yield found
        finally:
            await found.kill()


def objects(cluster):
    """Return all objects as they are, by namespace, kind and name."""
    return {
        (namespace, obj["kind"], obj["metadata"]["name"]): cluster.user.get(
            plural_of(obj), namespace, obj["metadata"]["name"]
        )
        for namespace, case in cluster.cases.items()
        for obj in case.objects
    }


def check_injected_fields(cluster, as_submitted):
    """Check that all pods have the fields of their flavor, and the templates of declared kinds a label, too."""
    for each in cluster.pods():
        assert each["spec"]["nodeSelector"] == {"type": "kwok"}, each["metadata"]
        assert TOLERATION in each["spec"]["tolerations"], each["metadata"]
    running = objects(cluster)
    for key, created in as_submitted.items():
        if key[0] not in GOLDEN:
            continue
        for place in KINDS.get(*key_of(created)).places(created):
            if place.target:
                template = at(running[key], place.target)
                metadata = template[place.metadata] if place.metadata else template
                metadata = metadata if place.flat or place.metadata else template["metadata"]
                assert metadata["labels"]["sluice.dev/workload-uid"] == created["metadata"]["uid"], key


def of_others(obj):
    """Return the fields of a Job that belong to other systems, which Sluice must not change."""
    template = obj["spec"]["template"]
    labels = {key: value for key, value in (obj["metadata"].get("labels") or {}).items() if "sluice.dev/" not in key}
    in_template, fields = kept({"metadata": template.get("metadata", {}), "spec": template["spec"]})
    pods = {
        key: each for key, each in in_template["labels"].items() if not key.endswith(("controller-uid", "job-name"))
    }
    return labels, {**in_template, "labels": pods}, fields, obj["spec"].get("scheduling")


def check_fields_of_other_systems(cluster, as_submitted):
    running = objects(cluster)
    for case in JOBS:
        key = case.namespace, "Job", case.name
        theirs = of_others(as_submitted[key])
        assert of_others(running[key]) == theirs
        _, template, fields, scheduling = of_others(as_one_wave(case.job()))
        assert theirs[1:] == (template, {"schedulerName": "default-scheduler", **fields}, scheduling)
        for each in cluster.pods(case.namespace):
            own, fields = kept(each)
            assert fields.items() >= theirs[2].items()
            assert own["labels"].items() >= theirs[1]["labels"].items()


@pytest.mark.costly
async def test_every_kind_continues_after_kill_in_each_state(cluster):
    user, faults = cluster.user, cluster.world.sandbox.faults
    for case in cluster.cases.values():
        await cluster.submit(case)
    waiting = await cluster.wait_for_state("pending")
    as_submitted = objects(cluster)
    await cluster.restart()
    assert await cluster.wait_for_state("pending") == waiting
    assert cluster.pods() == []

    # All workloads hold quota, but none is started, as the API server rejects all changes by Sluice.
    refused = {"do": "error", "code": 503}
    changes = [{"match": {"user": "sluice", "verb": "patch"}, **refused},
               {"match": {"user": "sluice", "verb": "create", "resource": ["jobs", "pods"]}, **refused}]  # fmt: skip
    faults.install({"rules": changes})
    await cluster.stop_queues(None)
    admitted = await cluster.wait_for_state("admitted")
    assert cluster.pods() == []
    await cluster.kill()
    faults.remove()
    await cluster.start()
    pods = await cluster.wait_until_ready()
    assert {uid: each[2] for uid, each in (await cluster.wait_for_state("admitted")).items()} == {
        uid: each[2] for uid, each in admitted.items()
    }
    check_injected_fields(cluster, as_submitted)
    check_fields_of_other_systems(cluster, as_submitted)
    # It is recorded with the answer to a start, and a kill may come before it is written: here none has yet.
    assert await cluster.world.eventually(partial(ignored_child_podsets, cluster)) == {("areal-gsm8k-t0", "Warning")}
    await cluster.restart()
    assert await cluster.wait_until_ready() == pods
    running = await cluster.wait_for_state("admitted")
    assert running.keys() == admitted.keys()

    for each in cluster.pods():
        note = {"metadata": {"annotations": {"sandbox.sluice.dev/stop-seconds": "never"}}}
        await user.patch("pods", each["metadata"]["namespace"], each["metadata"]["name"], note)
    await cluster.stop_queues("HoldAndDrain")
    await cluster.wait_for_state("evicting")
    await cluster.restart()
    await cluster.wait_for_state("evicting")
    await cluster.kill()
    for each in cluster.pods():
        await user.delete("pods", each["metadata"]["namespace"], each["metadata"]["name"], grace=0)
    await cluster.start()
    for case in cluster.cases.values():
        if case.is_remade:
            await cluster.submit(case)
    await cluster.wait_for_state("pending")
    assert cluster.pods() == []
    restored = {key: obj["spec"] for key, obj in objects(cluster).items()}
    assert restored == {key: restored_spec(obj) for key, obj in as_submitted.items()}
    await cluster.stop_queues(None)
    await cluster.wait_until_ready()
    await cluster.wait_for_state("admitted")

    # Another object of the same kind, with a higher priority, takes the quota, and gives it back.
    await cluster.submit_urgent()
    await cluster.restart()
    await cluster.wait_until_run(urgent_ones=True)
    await cluster.wait_until_told("less is free")
    await cluster.delete_urgent()
    for case in cluster.cases.values():
        if case.is_remade and urgent(case):
            await cluster.submit(case)
    await cluster.wait_until_run(urgent_ones=False)

    await cluster.kill()
    await cluster.end_all()
    await cluster.start()
    await cluster.wait_until_finished()
    await cluster.restart()
    await cluster.wait_until_finished()
    await a_pod_above_its_limit_range_is_named(cluster)


async def a_pod_above_its_limit_range_is_named(cluster):
    case = next(each for each in JOBS if each.manifest == "job-limitrange")
    obj = next(each for each in case.documents() if each["metadata"]["name"] == "request-over-default-limit")
    await cluster.user.create("jobs", case.namespace, obj)
    told = await cluster.world.record(obj["metadata"]["name"], "pending", case.namespace, reason="Misconfigured")
    assert told.message.startswith(
        "spec.template.spec.containers[0].resources: the cpu request of 2 is more than the limit of 1 that LimitRange"
    )


async def ignored_child_podsets(cluster):
    """(name, type) of Events that an annotation which seems to reserve quota is ignored."""
    found = (await cluster.world.client.get("/apis/events.k8s.io/v1/events"))["items"]
    told = "the annotation sluice.dev/child-podsets is ignored: quota is reserved for the pods of this Job alone"
    return {(each["regarding"]["name"], each["type"]) for each in found if each["note"].startswith(told)}


@pytest.mark.costly
async def test_object_of_an_older_version_runs_with_the_quota_of_its_pods(world):
    obj, amounts = document(OLDER), total(OLDER)
    kind = KINDS.get(*key_of(obj))
    for number in range(2):
        await world.user.create("nodes", "", node(number))
    await world.apply(flavor(), queue_of(amounts), local_queue("user-queue"))
    kinds = all_kinds(frameworks=("batch/job", kind.form.name))
    served_kind = kinds.get(kind.group, kind.kind)
    async with served(world.sandbox, served_kind, version=obj["apiVersion"].rpartition("/")[2]):
        await world.start(kinds=kinds)
        await world.user.create(kind.plural, "team-a", through_the_webhook(obj, kind))
        await until(world.user, kind.plural, obj["metadata"]["name"], lambda each: kind.observe(each).ready)
        assert held_by(await world.record(obj["metadata"]["name"], "admitted")) == amounts


def test_the_manifest_of_each_declared_kind_is_played():
    played = {f"{document(name)['apiVersion'].rpartition('/')[0]}/{document(name)['kind'].lower()}" for name in GOLDEN}
    # TrainJobs, and kinds whose pods are grouped, are played as well; AppWrappers of the group mcad.ibm.com have the
    # form of the other group, in their older version.
    assert played | {TRAIN_JOB, "mcad.ibm.com/appwrapper", *GROUPED} == {
        name for name in frameworks_known() if "." in name or name in GROUPED
    }
