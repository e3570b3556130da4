"""The client, the informer and the writes against the whole sandbox: real objects, rules and watches over TLS."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from admission.cluster import errors
from admission.cluster.client import Client, PatchType
from admission.cluster.events import EventRecorder, ObjectReference
from admission.cluster.identity import whoami
from admission.cluster.informer import Informer
from admission.cluster.writer import Patch, Writer
from admission.sandbox import Sandbox

JOBS = "/apis/batch/v1/namespaces/default/jobs"
EVERYWHERE = "/apis/batch/v1/jobs"


def job(name: str, **labels: str) -> dict:
    container = {"name": "main", "image": "busybox:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels | {"made": "here"}},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


@pytest.fixture
async def sandbox():
    async with Sandbox(controllers=False) as sandbox:
        yield sandbox


@pytest.fixture
async def client(sandbox, tmp_path):
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
        yield client


async def test_client_verbs_and_their_errors_against_the_sandbox(client):
    made = await client.create(JOBS, job("a"))
    with pytest.raises(errors.AlreadyExists):
        await client.create(JOBS, job("a"))
    patched = await client.patch(f"{JOBS}/a", {"spec": {"suspend": False}})
    assert patched["spec"]["suspend"] is False
    with pytest.raises(errors.Conflict):
        await client.replace(f"{JOBS}/a", made)
    add = [{"op": "add", "path": "/metadata/labels/x", "value": "y"}]
    assert (await client.patch(f"{JOBS}/a", add, patch_type=PatchType.JSON))["metadata"]["labels"]["x"] == "y"
    with pytest.raises(errors.Invalid, match=r"422: .*spec\.parallelism"):
        await client.patch(f"{JOBS}/a", {"spec": {"parallelism": -1}})
    await client.delete(f"{JOBS}/a", params={"propagationPolicy": "Background"})
    with pytest.raises(
        errors.NotFound, match=r"GET https://127.0.0.1:\d+/apis/batch/v1/namespaces/default/jobs/a: 404"
    ):
        await client.get(f"{JOBS}/a")


async def test_user_without_permission_is_identified_and_forbidden_to_list(sandbox, tmp_path):
    sandbox.write_kubeconfig(tmp_path / "alice", user="alice")
    async with Client.from_kubeconfig(str(tmp_path / "alice")) as alice:
        assert await whoami(alice) == "alice"
        with pytest.raises(errors.Forbidden, match=r'403: .*"alice" cannot list'):
            await alice.get(JOBS)


async def test_list_pages_have_the_requested_size_and_together_all_objects(client):
    for number in range(5):
        await client.create(JOBS, job(f"job-{number}"))
    pages = [page async for page in client.list_pages(JOBS, limit=2)]
    names = [[item["metadata"]["name"] for item in page["items"]] for page in pages]
    assert names == [["job-0", "job-1"], ["job-2", "job-3"], ["job-4"]]


async def test_next_page_is_requested_while_a_page_is_processed(sandbox, client):
    for number in range(5):
        await client.create(JOBS, job(f"job-{number}"))
    before = sandbox.requests["GET", "jobs", "admin"]
    async with aclosing(client.list_pages(JOBS, limit=2)) as pages:
        await anext(pages)
        while sandbox.requests["GET", "jobs", "admin"] < before + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    # The iteration was ended during the request of a page: the client must still work.
    assert len((await client.get(JOBS))["items"]) == 5


async def test_informer_reports_additions_modifications_and_deletions(sandbox, client):
    await client.create(JOBS, job("before"))
    told: list[tuple[str, str]] = []
    async with aclosing(Informer(client, EVERYWHERE, label_selector="made=here", page=1).batches()) as batches:

        async def hear(*expected: tuple[str, str]) -> None:
            while len(told) < len(expected):
                told.extend((change.type, change.key) for change in await anext(batches))
            assert tuple(told) == expected
            told.clear()

        await hear(("ADDED", "default/before"))
        await client.create(JOBS, job("after"))
        await client.patch(f"{JOBS}/after", {"spec": {"suspend": False}})
        await hear(("ADDED", "default/after"), ("MODIFIED", "default/after"))
        await client.patch(f"{JOBS}/before", {"metadata": {"labels": {"made": None}}})
        await hear(("DELETED", "default/before"))
        await client.delete(f"{JOBS}/after", params={"propagationPolicy": "Background"})
        await hear(("DELETED", "default/after"))


async def test_changes_during_an_expired_gap_are_reported_as_a_difference(sandbox, client):
    local = sandbox.local("admin")
    await local.create("jobs", "default", job("gone"))
    await local.create("jobs", "default", job("stays"))
    told: list[tuple[str, str]] = []
    pauses = 0

    async def meanwhile(_seconds: float) -> None:
        """Change objects during the first pause of the informer; expire the history in each pause."""
        nonlocal pauses
        pauses += 1
        if pauses == 1:
            await local.delete("jobs", "default", "gone", propagation="Background")
            await local.create("jobs", "default", job("new"))
        sandbox.expire_history()

    informer = Informer(client, EVERYWHERE, idle_timeout=0.1, clock=lambda: 0.0, sleep=meanwhile)
    async with aclosing(informer.batches()) as batches:
        while len(told) < 4:
            told += [(change.type, change.key) for change in await anext(batches)]
    assert told[:2] == [("ADDED", "default/gone"), ("ADDED", "default/stays")]
    assert sorted(told[2:]) == [("ADDED", "default/new"), ("DELETED", "default/gone")]


@pytest.mark.costly
async def test_writer_sends_one_request_per_patch(sandbox, client):
    local = sandbox.local("admin")
    for number in range(200):
        await local.create("jobs", "default", job(f"job-{number}"))
    before = sandbox.requests.copy()
    writer, done = Writer(client), []
    async with asyncio.TaskGroup() as group:
        running = group.create_task(writer.run())
        for number in range(200):
            writer.submit(Patch(f"{JOBS}/job-{number}", {"spec": {"suspend": False}}), done.append)
        await writer.idle()
        running.cancel()
    assert len(done) == 200
    assert not any(found["spec"]["suspend"] for found in local.list("jobs", "default"))
    assert sum((sandbox.requests - before).values()) == 200


async def test_recorded_event_is_accepted_and_refers_to_its_job(sandbox, client):
    made = await client.create(JOBS, job("a"))
    regarding = ObjectReference("batch/v1", "Job", "a", made["metadata"]["uid"], "default")
    recorder = EventRecorder(client)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(recorder.run())
        recorder.record(regarding, reason="Admitted", action="Admit", note="in ClusterQueue team-a")
        await recorder.idle()
        running.cancel()
    assert recorder.outcomes == {"ok": 1}
    (event,) = (await client.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
    assert event["regarding"]["uid"] == made["metadata"]["uid"]
    assert event["reportingController"] == "sluice.dev/sluice"


async def test_event_of_one_occasion_is_stored_once_across_recorders(client):
    regarding = ObjectReference("batch/v1", "Job", "a", "uid-a", "default")
    recorders = [EventRecorder(client, instance=name) for name in ("first", "second")]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(recorder.run()) for recorder in recorders]
        for number, recorder in enumerate(recorders):
            for occasion in ("waits since 1", "waits since 2"):
                note = f"WaitingForQuota: {occasion}, {number}"
                assert recorder.record(regarding, reason="Pending", action="Queue", note=note, occasion=occasion)
            await recorder.idle()
        for task in running:
            task.cancel()
    assert [recorder.outcomes for recorder in recorders] == [{"ok": 2}, {"repeated": 2}]
    events = (await client.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
    assert {event["reportingInstance"] for event in events} == {"first"}
    assert len(events) == 2
