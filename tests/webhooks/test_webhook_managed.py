"""Managed namespaces gated by the webhook alone: the API server has no admission policies."""

from __future__ import annotations

import pytest
from policy_examples import SLUICE

from admission.cluster.errors import Invalid
from admission.kinds import all_kinds
from admission.kinds.added_labels import ADDED_LABELS
from admission.sandbox import Sandbox, User
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.gate_reconciler import GateReconciler
from webhooks.registration import Registration
from webhooks.review import Reviewer
from webhooks.scope import Scope
from webhooks.server import answering

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
ELSEWHERE = "/apis/batch/v1/namespaces/default/jobs"
SUBMITTED_BY = "sluice.dev/submitted-by"
QUEUE, KUEUE_QUEUE = "sluice.dev/queue-name", "kueue.x-k8s.io/queue-name"
SCOPE = Scope((SLUICE,), managed=({"key": "team", "operator": "Exists"},))


@pytest.fixture
async def sandbox():
    users = {f"{name}-token": User(name, groups=("system:masters",)) for name in (SLUICE, "alice")}
    async with Sandbox(controllers=False, users=users, minor=29) as sandbox:
        team = {"metadata": {"name": "team-a", "labels": {"team": "a"}}}
        await sandbox.local("alice").create("namespaces", "", team)
        yield sandbox


class Counting(Reviewer):
    """Reviewer that counts its reviews."""

    asked = 0

    def review(self, review, *, managed=False):
        self.asked += 1
        return super().review(review, managed=managed)


@pytest.fixture
async def reviewer(tmp_path, certificates, sluice):
    """Serve and register the webhook; return its reviewer."""
    (socket,) = await open_sockets("127.0.0.1", 0)
    reviewer = Counting(all_kinds(), own_usernames=[SLUICE])
    directory = tmp_path / "certificates"
    context = ReloadingContext(directory / "tls.crt", directory / "tls.key")
    async with answering(reviewer, [socket], ssl_context=context):
        registration = Registration(all_kinds(), f"https://127.0.0.1:{socket.getsockname()[1]}", SCOPE)
        configuration = registration.configuration(certificates.ca_bundle)
        assert await GateReconciler(sluice, "webhooks", all_kinds(), SCOPE, lambda: configuration).ensure()
        yield reviewer


def job(name, labels=None, **spec):
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"template": {"spec": pod}, **spec}}


def queues_of(obj):
    return {key: value for key, value in obj["metadata"]["labels"].items() if key in (QUEUE, KUEUE_QUEUE)}


@pytest.mark.parametrize("labels", [{}, {"another": "label"}])
async def test_job_without_queue_label_gets_the_default_queue_in_one_call(alice, reviewer, labels):
    created = await alice.create(JOBS, job("j", labels))
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["labels"] == {**labels, QUEUE: "default"}
    assert created["metadata"]["annotations"] == {SUBMITTED_BY: "alice", ADDED_LABELS: f"{QUEUE}=default"}
    assert reviewer.asked == 1


async def test_job_with_queue_label_keeps_its_queue_in_one_call(alice, reviewer):
    created = await alice.create(JOBS, job("j", {KUEUE_QUEUE: "q"}))
    assert created["metadata"]["labels"] == {KUEUE_QUEUE: "q"}
    assert reviewer.asked == 1


async def test_webhook_is_not_called_for_unmanaged_namespaces_or_other_controllers(alice, reviewer):
    assert (await alice.create(ELSEWHERE, job("j")))["spec"]["suspend"] is False
    assert (await alice.create(JOBS, job("j", managedBy="example.com/another")))["spec"]["suspend"] is False
    assert reviewer.asked == 0


async def test_waiting_job_can_change_its_queue_but_not_leave_it_or_start(alice, reviewer):
    await alice.create(JOBS, job("j", {QUEUE: "q"}))
    change = {"metadata": {"labels": {QUEUE: None}}, "spec": {"suspend": False}}
    kept = await alice.patch(f"{JOBS}/j", change)
    assert queues_of(kept) == {QUEUE: "q"}
    assert kept["spec"]["suspend"] is True
    with pytest.raises(Invalid, match=r"metadata\.labels\[sluice\.dev/queue-name\]: is empty"):
        await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {QUEUE: ""}}})
    moved = await alice.patch(f"{JOBS}/j", {"metadata": {"labels": {QUEUE: None, KUEUE_QUEUE: "p"}}})
    assert queues_of(moved) == {KUEUE_QUEUE: "p"}


async def test_a_running_job_keeps_its_queue(alice, sluice, reviewer):
    await alice.create(JOBS, job("j"))
    await sluice.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
    kept = await alice.patch(f"{JOBS}/j", {"metadata": {"labels": None}})
    assert queues_of(kept) == {QUEUE: "default"}
    assert kept["spec"]["suspend"] is False


@pytest.fixture
async def existing_jobs(alice):
    """Create two Jobs before the webhook is registered."""
    await alice.create(JOBS, job("waiting", suspend=True))
    await alice.create(JOBS, job("running"))


async def test_existing_suspended_job_joins_the_default_queue_when_unsuspended(existing_jobs, reviewer, alice):
    joined = await alice.patch(f"{JOBS}/waiting", {"spec": {"suspend": False}})
    assert joined["spec"]["suspend"] is True
    assert queues_of(joined) == {QUEUE: "default"}
    assert joined["metadata"]["annotations"] == {SUBMITTED_BY: "alice", ADDED_LABELS: f"{QUEUE}=default"}


async def test_existing_running_job_is_not_queued_by_the_webhook(existing_jobs, reviewer, alice):
    left = await alice.patch(f"{JOBS}/running", {"spec": {"parallelism": 2}})
    assert queues_of(left) == {}
    assert left["spec"]["suspend"] is False
