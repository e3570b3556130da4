"""An AReaL experiment by manifests of its controller and roles: one gang, although the roles follow one another."""

from __future__ import annotations

import copy
from dataclasses import replace

import orjson
import pytest
import yaml
from every_kind import held_by, node, queue_of
from grouped_kinds import GATE, pods_until
from job_examples import TOLERATION, flavor, job, local_queue, runs
from kind_manifests import FOLDER, GI, GPU
from pod_examples import gated
from test_way_of_an_experiment import KINDS, RULE

NAME = "gsm8k.t0"
WORKER = {"cpu": 8000, "memory": 64 * GI, GPU: 4}
POD_SETS = [("controller", 1, {"cpu": 2000, "memory": 8 * GI}), ("actor", 2, WORKER), ("rollout", 2, WORKER)]
"""Computed by hand."""
AMOUNTS = {"cpu": 34000, "memory": 264 * GI, GPU: 16, "pods": 5}


def controller():
    """The manifest's Job, with its roles declared as in docs/tasks/areal.md, and the queue label on its template."""
    obj = yaml.safe_load((FOLDER / "areal-controller-job.yaml").read_text())
    roles = orjson.loads(obj["metadata"]["annotations"].pop("sluice.dev/child-podsets"))
    queue = {key: obj["metadata"]["labels"].pop(key) for key in list(obj["metadata"]["labels"]) if "queue-name" in key}
    name = ".".join(roles["matchLabels"].values())
    group = {"sluice.dev/pod-group-name": name, "sluice.dev/pod-set-name": "controller"}
    declared = orjson.dumps([{"name": "controller", "count": 1}, *roles["podSets"]]).decode()
    notes = {"sluice.dev/pod-group-pod-sets": declared, "sandbox.sluice.dev/run-seconds": "1000000"}
    obj["spec"]["template"]["metadata"] = {"labels": {**queue, **group}, "annotations": notes}
    return obj


def statefulsets():
    """The manifest's StatefulSets by role, as AReaL applies them, with pods that terminate immediately."""
    documents = yaml.safe_load_all((FOLDER / "statefulset-areal.yaml").read_text())
    found = [copy.deepcopy(obj) for obj in documents if obj["kind"] == "StatefulSet"]
    for obj in found:
        obj["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    return {obj["metadata"]["labels"]["areal.openpsi.io/role"]: obj for obj in found}


def are(running, waiting=0):
    """Predicate: `running` pods run with their flavor's fields, `waiting` are gated, and no others are alive."""

    def until(found):
        found = [each for name, each in found.items() if name.startswith("areal")]
        alive = [each for each in found if each["status"].get("phase") not in ("Succeeded", "Failed")]
        run = [
            each
            for each in alive
            if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
            if each["spec"]["nodeSelector"] == {"type": "kwok"} and TOLERATION in each["spec"]["tolerations"]
        ]
        waits = [each for each in alive if GATE in each["spec"].get("schedulingGates", ())]
        return (len(run), len(waits), len(alive)) == (running, waiting, running + waiting)

    return until


@pytest.fixture
async def sluice(world, tmp_path):
    """A running Sluice with exactly the quota for the experiment."""
    for number in range(2):
        await world.user.create("nodes", "", node(number))
    await world.apply(flavor(), queue_of(AMOUNTS), local_queue("user-queue"))
    rule = replace(RULE, queue="user-queue")
    async with gated(world.user, KINDS, tmp_path / "certificates", rules=(rule,)):
        await world.start(kinds=KINDS)
        yield world


async def held(world):
    return held_by(await world.record(NAME, "admitted"))


@pytest.mark.costly
async def test_lifecycle_of_areal_experiment_manifests(sluice):
    user, whole = sluice.user, queue_of(AMOUNTS)
    areal = sluice.sandbox.local("alice")
    await sluice.submit(job("before", queue="user-queue", cpu="34"))
    await sluice.job("before", runs)
    await areal.create("jobs", "team-a", controller())
    waiting = await sluice.record(NAME, "pending", reason="WaitingForQuota")
    found = [(each.name, each.count, dict(each.requests)) for each in waiting.workload.pod_sets]
    assert found == POD_SETS
    assert "less is free" in waiting.message
    await user.delete("jobs", "team-a", "before", propagation="Background")
    await pods_until(user, "team-a", are(1))
    assert await held(sluice) == AMOUNTS  # before any role is there
    sets = statefulsets()
    created = {"actor": await areal.create("statefulsets", "team-a", sets["actor"])}
    await pods_until(user, "team-a", are(3))
    created["rollout"] = await areal.create("statefulsets", "team-a", sets["rollout"])
    await pods_until(user, "team-a", are(5))
    assert await held(sluice) == AMOUNTS

    await sluice.apply({**whole, "spec": {**whole["spec"], "stopPolicy": "HoldAndDrain"}})
    await pods_until(user, "team-a", are(0, 4))  # the Job has no retries
    for role, obj in created.items():
        stopped = user.get("statefulsets", "team-a", obj["metadata"]["name"])
        assert stopped["spec"] == obj["spec"], role
        assert stopped["metadata"]["labels"] == sets[role]["metadata"]["labels"]
    await user.delete("jobs", "team-a", "areal-gsm8k-t0", propagation="Background")
    await areal.create("jobs", "team-a", controller())
    await sluice.apply(whole)
    await pods_until(user, "team-a", are(5))
    assert await held(sluice) == AMOUNTS

    for obj in created.values():
        await areal.delete("statefulsets", "team-a", obj["metadata"]["name"], propagation="Background")
    (pod,) = (await pods_until(user, "team-a", lambda found: len(found) == 1)).values()
    assert await held(sluice) == AMOUNTS
    ended = {"status": {"phase": "Succeeded"}}
    await user.patch("pods", "team-a", pod["metadata"]["name"], ended, subresource="status")
    assert (await sluice.record(NAME, "finished")).admission is None
    await areal.delete("jobs", "team-a", "areal-gsm8k-t0", propagation="Background")
    await sluice.submit(job("after", queue="user-queue", cpu="34"))
    await sluice.job("after", runs)
