"""Children of queued objects and `sluice serve` with its webhook, in a namespace where everything is queued."""

from __future__ import annotations

import asyncio
import copy
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import JOBSET, KINDS, Object, definition, jobset, until
from serve_processes import NODE, QUEUES, Replica, gate_flags, serving

from admission.model import child_sentences
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from tests.queue_objects import create_objects

CONFIGURATION = """
integrations: {frameworks: [batch/job, pod, jobset.x-k8s.io/jobset]}
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector: {matchLabels: {team: a}}
"""


@pytest.fixture
async def serve(sandbox: Sandbox, tmp_path: Path) -> Any:
    """Function that starts `sluice serve` with its webhook and the LocalQueue `default`."""
    (tmp_path / "sluice.yaml").write_text(CONFIGURATION)
    admin = sandbox.local("admin")
    await admin.create("nodes", "", NODE)
    await admin.create("namespaces", "", {"metadata": {"name": "team-a", "labels": {"team": "a"}}})
    await admin.create("customresourcedefinitions", "", definition(KINDS.get(*JOBSET)))
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await ensure_ready(url)
    text = QUEUES.replace("name: lq, namespace: default", "name: default, namespace: team-a")
    await create_objects(url, text)
    flags = (f"--config={tmp_path / 'sluice.yaml'}", *gate_flags(tmp_path))
    return lambda: serving(tmp_path, url, *flags)


def child_of(owner: Object, name: str, **spec: Any) -> Object:
    """A Job of a JobSet's workers, as the JobSet controller creates it: without a queue label, and not suspended."""
    reference = {"apiVersion": owner["apiVersion"], "kind": "JobSet", "name": "set", "controller": True}
    metadata = {"name": name, "namespace": "team-a"}
    return {
        "metadata": {**metadata, "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]},
        "spec": {**copy.deepcopy(owner["spec"]["replicatedJobs"][1]["template"]["spec"]), "suspend": False, **spec},
    }


def runs(obj: Object) -> bool:
    return obj["spec"]["suspend"] is False


async def workloads(replica: Replica) -> set[str]:
    _, body = await replica.get("/apis/sluice.dev/v1/namespaces/team-a/workloads")
    return {item["spec"]["object"]["name"] for item in json.loads(body)["items"]}


async def until_workloads(replica: Replica, names: set[str]) -> None:
    """Poll until these are the workloads of the namespace; the time limit of the test ends a wait in vain."""
    while await workloads(replica) != names:
        assert replica.process.returncode is None, replica.log.decode()
        await asyncio.sleep(0.02)


@pytest.mark.costly
async def test_children_start_with_their_owner_and_forged_children_are_queued(sandbox, serve):
    controller, admin = sandbox.local("jobset-controller"), sandbox.local("admin")
    unlabelled = jobset("set", suspend=False)
    del unlabelled["metadata"]["labels"]
    async with serve() as replica:
        await replica.until_ready()
        created = await admin.create("jobsets", "team-a", unlabelled)
        assert created["spec"]["suspend"] is True
        owner = await until(admin, "jobsets", "set", runs)
        child = await controller.create("jobs", "team-a", child_of(owner, "set-workers-0"))
        assert child["spec"]["suspend"] is True
        await until(admin, "jobs", "set-workers-0", runs)
        forged = await sandbox.local("mallory").create("jobs", "team-a", child_of(owner, "set-workers-1"))
        assert forged["spec"]["suspend"] is True
        large = await sandbox.local("mallory").create("jobs", "team-a", child_of(owner, "set-more", parallelism=9))
        assert large["spec"]["suspend"] is True
        await until_workloads(replica, {"set", "set-workers-1", "set-more"})
        replica.send(signal.SIGKILL)
        await replica.process.wait()
    async with serve() as replica:
        await replica.until_ready()
        assert await workloads(replica) == {"set", "set-workers-1", "set-more"}
        assert runs(admin.get("jobs", "team-a", "set-workers-0"))
        # The JobSet controller suspends and resumes the child, as when the JobSet restarts.
        await controller.patch("jobs", "team-a", "set-workers-0", {"spec": {"suspend": True}})
        gated = await controller.patch("jobs", "team-a", "set-workers-0", {"spec": {"suspend": False}})
        assert gated["spec"]["suspend"] is True
        await until(admin, "jobs", "set-workers-0", runs)
        # A pod of the JobSet: the namespace queues pods, too, so that the pod is gated and starts with its owner.
        made = child_of(owner, "own")["spec"]["template"] | {"metadata": child_of(owner, "own")["metadata"]}
        assert (await controller.create("pods", "team-a", made))["spec"]["schedulingGates"]
        await until(admin, "pods", "own", lambda obj: not obj["spec"].get("schedulingGates"))
        assert "own" not in await workloads(replica)


@pytest.mark.long
async def test_pending_events_of_owner_and_child_are_written_after_serve_was_killed(sandbox, serve):
    """Before the kill the API server delays all Events; after it nothing changes that would cause new ones."""
    admin = sandbox.local("admin")
    match = {"verb": "create", "group": "events.k8s.io", "resource": "events"}
    sandbox.faults.install({"rules": [{"match": match, "do": "delay", "seconds": 600}]})
    async with serve() as replica:
        await replica.until_ready()
        owner = await admin.create("jobsets", "team-a", jobset("set"))  # its LocalQueue does not exist
        await sandbox.local("jobset-controller").create("jobs", "team-a", child_of(owner, "set-workers-0"))
        while sandbox.faults.describe()["rules"][0]["struck"] == 0:
            assert replica.process.returncode is None, replica.log.decode()
            await asyncio.sleep(0.02)
        replica.send(signal.SIGKILL)
        await replica.process.wait()
    sandbox.faults.remove()
    async with serve() as replica:
        events: dict[str, str] = {}
        while {"set", "set-workers-0"} - events.keys():
            assert replica.process.returncode is None, replica.log.decode()
            await asyncio.sleep(0.1)
            found = [each for each in admin.list("events", "team-a") if each["reason"] == "Pending"]
            events = {each["involvedObject"]["name"]: each["message"] for each in found}
    assert events["set"].startswith("Misconfigured: LocalQueue team-a/lq does not exist. ")
    assert events["set-workers-0"] == child_sentences.starts_with_owner("JobSet", "set")
