"""`sluice serve` with either gate: an outage of it, the change from one gate to the other, managed namespaces."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import JOBSET, KINDS, definition, jobset, until
from serve_processes import NODE, QUEUES, Object, Replica, all_complete, gate_flags, job, serving

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from tests.queue_objects import create_objects

QUEUE, KUEUE_QUEUE = "sluice.dev/queue-name", "kueue.x-k8s.io/queue-name"
DELAY = 0.5
"""Seconds that the API server needs to put a change of webhooks or policies in force."""
TEAM_QUEUES = f"""{QUEUES}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: default, namespace: team-a}}
spec: {{clusterQueue: cq}}
"""


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sluice.db'}"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60, admission_delay=DELAY) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        for name in ("team-a", "probes"):
            await admin.create("namespaces", "", {"metadata": {"name": name, "labels": {"team": "a"}}})
        yield sandbox


@pytest.fixture
async def queues(sandbox: Sandbox, tmp_path: Path, database_url: str) -> None:
    await ensure_ready(database_url)
    await create_objects(database_url, TEAM_QUEUES)


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    return gate_flags(tmp_path)


async def in_force(
    replica: Replica, local: Any, namespace: str = "default", make: Callable[[str], Object] = job
) -> None:
    """Wait until Sluice is ready, and its gate suspends Jobs that `make` makes in a namespace."""
    await replica.until_ready()
    number = 0
    while True:
        number += 1
        try:
            created = await local.create("jobs", namespace, make(f"probe-{replica.process.pid}-{number}"))
        except ApiError:
            continue
        if created["spec"]["suspend"]:
            return
        await asyncio.sleep(0.05)


async def gone(local: Any, plural: str) -> None:
    watcher = local.watch(plural)
    batches = aiter(watcher)
    while local.list(plural):
        await anext(batches)
    watcher.close()


# ---------------------------------------------------------------------- an outage of Sluice


@pytest.mark.costly
async def test_policies_gate_jobs_while_sluice_is_down(sandbox, queues, tmp_path, database_url):
    alice, admin = sandbox.local("alice"), sandbox.local("admin")
    await admin.create("customresourcedefinitions", "", definition(KINDS.get(*JOBSET)))
    (tmp_path / "sluice.yaml").write_text("integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}")
    flags = (f"--config={tmp_path / 'sluice.yaml'}", "--admission=policies")
    async with serving(tmp_path, database_url, *flags) as replica:
        await in_force(replica, alice)
        made = jobset("set", suspend=False)
        made["metadata"] |= {"namespace": "default", "labels": {QUEUE: "lq"}}
        while not (await alice.create("jobsets", "default", made))["spec"][
            "suspend"
        ]:  # the policy of JobSets takes effect later
            await alice.delete("jobsets", "default", "set")
            await asyncio.sleep(0.05)
        await alice.delete("jobsets", "default", "set")
        replica.send(signal.SIGKILL)
        await replica.process.wait()
    for number in range(20):
        created = await alice.create("jobs", "default", job(f"j{number}"))
        assert created["spec"]["suspend"] is True
        assert created["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
        with pytest.raises(ApiError, match="this Job is queued, and only Sluice starts it"):
            await alice.patch("jobs", "default", f"j{number}", {"spec": {"suspend": False}})
    assert (await alice.create("jobsets", "default", made))["spec"]["suspend"] is True
    assert all(one["spec"]["suspend"] for one in admin.list("jobs") if one["metadata"]["name"].startswith("j"))
    async with serving(tmp_path, database_url, flags[0], "--admission=auto"):
        await all_complete(admin, len(admin.list("jobs")))
        await until(admin, "jobsets", "set", lambda obj: not obj["spec"]["suspend"])


@pytest.mark.costly
async def test_misconfigured_job_behind_policies_is_reported_by_the_controller(sandbox, queues, tmp_path, database_url):
    alice = sandbox.local("alice")
    async with serving(tmp_path, database_url, "--admission=policies") as replica:
        await in_force(replica, alice)
        faulty = job("faulty")
        faulty["metadata"]["annotations"] = {"sluice.dev/hold": "perhaps"}
        await alice.create("jobs", "default", faulty)
        path = "/apis/sluice.dev/v1/namespaces/default/workloads"
        while "Misconfigured" not in (await replica.get(path))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert "metadata.annotations[sluice.dev/hold]: must be" in (await replica.get(path))[1]


async def test_api_server_without_admission_policies_ends_the_start(tmp_path, database_url):
    async with Sandbox(controllers=False, minor=35) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        async with serving(tmp_path, database_url, "--admission=policies") as replica:
            assert await replica.process.wait() == 1
    (line,) = [line for line in replica.log.decode().splitlines() if line.startswith("error: ")]
    assert "this API server has no MutatingAdmissionPolicy" in line
    assert "set admission to auto or webhooks" in line


@pytest.mark.costly
async def test_gate_without_webhook_url_is_described_in_the_log(sandbox, queues, tmp_path, database_url):
    (tmp_path / "sluice.yaml").write_text("integrations: {frameworks: [batch/job, pod, deployment]}")
    config = f"--config={tmp_path / 'sluice.yaml'}"
    async with serving(tmp_path, database_url, config, "--admission=policies") as replica:
        await replica.until_ready()
    assert (
        "no --webhook-url: policies cannot gate Pod, Deployment, so that these run without quota"
        in replica.log.decode()
    )
    async with serving(tmp_path, database_url, config) as replica:
        await replica.until_ready()
    assert "the admission policies of an earlier run still gate Jobs" in replica.log.decode()
    assert "start before Sluice can stop them" not in replica.log.decode()


# ---------------------------------------------------------------------- the change from one gate to the other


class Creating:
    """A user who creates Jobs continuously; `created` has each Job as the API server stored it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._alice = sandbox.local("alice")
        self.created: list[Object] = []

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            try:
                self.created.append(await self._alice.create("jobs", "default", job(f"load-{number}", seconds=1)))
            except ApiError as error:
                if "failed calling webhook" not in error.message:  # Sluice is down
                    raise
            await asyncio.sleep(0.02)


@pytest.mark.long
async def test_no_job_is_created_ungated_while_the_gate_is_replaced(sandbox, queues, tmp_path, database_url, flags):
    admin = sandbox.local("admin")
    creating = Creating(sandbox)
    # Webhooks stay for the kinds that policies cannot gate.
    (tmp_path / "jobs.yaml").write_text("integrations: {frameworks: [batch/job]}")
    flags = (*flags, f"--config={tmp_path / 'jobs.yaml'}")
    async with serving(tmp_path, database_url, *flags) as replica:
        await in_force(replica, sandbox.local("alice"))
        load = asyncio.create_task(creating.run())
    for mode, other in (
        ("policies", "mutatingwebhookconfigurations"),
        ("webhooks", "mutatingadmissionpolicies"),
    ):
        async with serving(tmp_path, database_url, *flags, f"--admission={mode}") as replica:
            await replica.until_ready()
            assert admin.list(other) != []
            await gone(admin, other)
            before = len(creating.created)
            while len(creating.created) < before + 3 * DELAY / 0.02 / 2:
                assert not load.done(), await load
                await asyncio.sleep(0.02)
    load.cancel()
    assert [one["metadata"]["name"] for one in creating.created if not one["spec"]["suspend"]] == []
    assert len(creating.created) > 50


# ---------------------------------------------------------------------- managed namespaces

MANAGED = """
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchLabels: {team: a}
  matchExpressions: [{key: team, operator: NotIn, values: [b]}]
"""


def unlabelled(name: str, **metadata: Any) -> Object:
    made = job(name, seconds=3600)
    made["metadata"] = {"name": name, **metadata}
    return made


ATTEMPTS = [
    {"metadata": {"labels": {QUEUE: None}}},
    {"metadata": {"labels": {QUEUE: ""}}},
    {"metadata": {"labels": None}},
    {"spec": {"suspend": False}},
    {"spec": {"suspend": None}},
    {"metadata": {"labels": {QUEUE: None}}, "spec": {"suspend": False}},
    {"metadata": {"labels": {QUEUE: ""}}, "spec": {"suspend": False}},
]


@pytest.fixture(params=["webhooks", "policies"])
async def managed(request, sandbox, queues, tmp_path, database_url, flags):
    """A `sluice serve` whose managed namespaces are those with the label team=a, with either gate."""
    (tmp_path / "sluice.yaml").write_text(MANAGED)
    arguments = (*flags, f"--config={tmp_path / 'sluice.yaml'}", f"--admission={request.param}")
    async with serving(tmp_path, database_url, *arguments) as replica:
        await in_force(replica, sandbox.local("alice"))
        await in_force(replica, sandbox.local("alice"), "probes", unlabelled)
        yield replica


def owned_by(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


async def use_up_team_quota(sandbox: Sandbox) -> None:
    """Use up the quota of the team, so that Sluice starts no other Job."""
    full = unlabelled("full")
    full["spec"] |= {"parallelism": 4, "completions": 4}
    alice = sandbox.local("alice")
    await alice.create("jobs", "team-a", full)
    watcher = alice.watch("jobs")
    async for batch in watcher:
        if any(obj["metadata"]["name"] == "full" and not obj["spec"]["suspend"] for _, _, obj, _ in batch):
            watcher.close()


@pytest.mark.costly
async def test_unlabelled_job_in_a_managed_namespace_is_queued_and_run(sandbox, managed):
    alice = sandbox.local("alice")
    created = await alice.create("jobs", "team-a", unlabelled("j"))
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["labels"] == {QUEUE: "default"}
    assert created["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
    watcher = alice.watch("jobs")
    async for batch in watcher:
        if any(obj["metadata"]["name"] == "j" and obj.get("status", {}).get("active") for _, _, obj, _ in batch):
            watcher.close()
    free = await alice.create("jobs", "default", unlabelled("free"))
    assert free["spec"]["suspend"] is False


@pytest.mark.costly
async def test_users_cannot_bypass_the_queue_of_a_managed_namespace(sandbox, managed):
    await use_up_team_quota(sandbox)
    alice = sandbox.local("alice")
    every_hour = {"schedule": "0 * * * *", "suspend": True, "jobTemplate": {"spec": unlabelled("x")["spec"]}}
    cron = await alice.create("cronjobs", "team-a", {"metadata": {"name": "cron"}, "spec": every_hour})
    owners = [[], [owned_by(cron)], [owned_by(alice.get("jobs", "team-a", "full"))]]
    names = []
    for kind, references in enumerate(owners):
        for number, change in enumerate(ATTEMPTS):
            name = f"j-{kind}-{number}"
            names.append(name)
            await alice.create("jobs", "team-a", unlabelled(name, ownerReferences=references))
            for one in (change, {"spec": {"suspend": False}}):
                try:
                    await alice.patch("jobs", "team-a", name, one)
                except ApiError as error:
                    if error.code not in (403, 422):  # denied, or undone
                        raise
    for name in names:
        one = alice.get("jobs", "team-a", name)
        assert one["spec"]["suspend"] is True, one
        assert one["metadata"]["labels"][QUEUE] == "default", one


@pytest.mark.costly
async def test_running_job_of_a_newly_managed_namespace_is_logged_and_suspended(sandbox, managed):
    alice = sandbox.local("alice")
    await alice.create("namespaces", "", {"metadata": {"name": "team-b"}})
    await alice.create("jobs", "team-b", unlabelled("old"))
    labels = {"metadata": {"labels": {"team": "a"}}}
    await alice.patch("namespaces", "", "team-b", labels)
    watcher = alice.watch("jobs")
    async for batch in watcher:
        for _, _, obj, _ in batch:
            if obj["metadata"]["name"] == "old" and obj["spec"]["suspend"]:
                watcher.close()
                assert obj["metadata"]["labels"][QUEUE] == "default"
    says = 'each is stopped, and waits in its LocalQueue "default": team-b/old'
    assert f"1 running Jobs without a queue are in managed namespaces: {says}" in managed.log.decode()
