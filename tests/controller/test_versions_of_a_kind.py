"""A custom resource that the API server serves in another version while Sluice runs."""

from __future__ import annotations

import asyncio

from custom_kinds import TRAINING_RUN_FORM, pod, served, until
from job_examples import cluster_queue, flavor, local_queue

from admission.controller.intake.watches import ClusterWatches
from admission.controller.state.faults import Faults
from admission.controller.state.inbox import Inbox, ObjectsChanged
from admission.kinds import all_kinds, parse_form
from admission.sandbox.background import background
from admission.sandbox.operators import definition

FORM = {**TRAINING_RUN_FORM, "versions": ["v2", "v1"]}
KINDS = all_kinds(frameworks=("batch/job",), own=[parse_form(FORM)])
TRAINING_RUN = KINDS.get("example.com", "TrainingRun")


def training_run(name, version="v1"):
    roles = [{"role": "worker", "count": 1, "template": pod(cpu="4", seconds=1_000_000)}]
    metadata = {"name": name, "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}}
    spec = {"paused": True, "roles": roles}
    return {"apiVersion": f"example.com/{version}", "kind": "TrainingRun", "metadata": metadata, "spec": spec}


async def serve_v2(world):
    """Serve the kind in the version v2, too, and wait until Sluice watches that."""
    both = definition(TRAINING_RUN, "v1")
    (old,) = both["spec"]["versions"]
    both["spec"]["versions"] = [old, {**old, "name": "v2", "storage": False}]
    await world.user.patch("customresourcedefinitions", "", both["metadata"]["name"], {"spec": both["spec"]})

    async def watches_new_version():
        return KINDS.api_version(TRAINING_RUN) == "example.com/v2"

    await world.eventually(watches_new_version)


async def test_object_deleted_while_its_kind_changes_version_releases_its_quota(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with served(world.sandbox, TRAINING_RUN, version="v1"):
        await world.start(kinds=KINDS)
        await world.user.create("trainingruns", "team-a", training_run("first"))
        await until(world.user, "trainingruns", "first", lambda obj: obj["spec"]["paused"] is False)
        match = {"user": "sluice", "resource": "trainingruns"}
        world.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 503}]})
        await serve_v2(world)
        await world.user.delete("trainingruns", "team-a", "first")
        world.sandbox.faults.remove()
        assert (await world.record("first", "finished")).outcome == "Deleted"
        await world.user.create("trainingruns", "team-a", training_run("second"))
        await until(world.user, "trainingruns", "second", lambda obj: obj["spec"]["paused"] is False)


async def test_deletion_that_waits_for_a_full_inbox_is_delivered_when_its_kind_changes_version(world):
    inbox, reported, changes = Inbox(capacity=1), asyncio.Queue(), []
    watches = ClusterWatches(world.client, KINDS, Faults(world.clock))
    watches.discovery_interval = 0.2
    watches.add_listener(lambda _, change: reported.put_nowait((change.type, change.key)), lambda: None)
    watches.hand_over(inbox)

    async def delivered(change_type, name):
        while not any((change.type, change.key) == (change_type, f"team-a/{name}") for change in changes):
            await inbox.wait()
            changes.extend(each for one in inbox.take() if isinstance(one, ObjectsChanged) for each in one.changes)

    await world.user.create("customresourcedefinitions", "", definition(TRAINING_RUN, "v1"))
    async with background(watches=watches.run()):
        await world.user.create("trainingruns", "team-a", training_run("first"))
        await delivered("ADDED", "first")
        await world.user.create("trainingruns", "team-a", training_run("fills-the-inbox"))
        while await reported.get() != ("ADDED", "team-a/fills-the-inbox"):
            pass
        await world.user.delete("trainingruns", "team-a", "first")
        assert await reported.get() == ("DELETED", "team-a/first")
        await serve_v2(world)
        await world.user.create("trainingruns", "team-a", training_run("second"))
        await delivered("ADDED", "second")
        assert ("DELETED", "team-a/first") in [(change.type, change.key) for change in changes]
