"""From Kueue to Sluice in a cluster that is at work: what runs, runs on with the same pods, and holds its quota."""

from __future__ import annotations

import asyncio
from contextlib import closing
from copy import deepcopy

import pytest
from click.testing import CliRunner
from job_examples import TOLERATION, is_gated, job, runs

from admission.cli.main import main

KINDS = {
    "ResourceFlavor": "resourceflavors",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Topology": "topologies",
    "Workload": "workloads",
}
NAMESPACED = {"LocalQueue", "Workload"}
ADMITTED_AT = "2025-06-15T15:06:40Z"
ADMITTED = 1_750_000_000.0


def crd(kind, version):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    plural = KINDS[kind]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    annotations = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue/pull/1"}
    return {
        "metadata": {"name": f"{plural}.kueue.x-k8s.io", "annotations": annotations},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Namespaced" if kind in NAMESPACED else "Cluster",
            "names": names,
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


class Kueue:
    """A cluster where Kueue was at work, and is stopped now; what it has written is there."""

    def __init__(self, world, kubeconfig, version):
        self.world, self.kubeconfig, self.version = world, kubeconfig, version

    async def create(self, kind, name, *, namespace="", **content):
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": f"kueue.x-k8s.io/{self.version}", "kind": kind, "metadata": metadata, **content}
        return await self.world.user.create(KINDS[kind], namespace, body)

    async def queues(self, cpu="3"):
        await self.create(
            "ResourceFlavor", "default", spec={"nodeLabels": {"type": "kwok"}, "tolerations": [TOLERATION]}
        )
        quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        cohort = {"v1beta1": "cohort", "v1beta2": "cohortName"}[self.version]
        spec = {"namespaceSelector": {}, "resourceGroups": groups, cohort: "all"}
        await self.create("ClusterQueue", "cq", spec=spec, status={"pendingWorkloads": 3})
        await self.create("LocalQueue", "lq", namespace="team-a", spec={"clusterQueue": "cq"})
        await self.create("Topology", "racks", spec={"levels": [{"nodeLabel": "rack"}]})

    async def job(self, name, *, admitted, evicted=False, active=True, **fields):
        """A Job as Kueue left it, and its Workload."""
        body = job(name, queue=None, suspend=not admitted, **fields)
        body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq"
        template = deepcopy(body["spec"]["template"])
        if admitted:
            body["spec"]["template"]["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "main"}
            body["spec"]["template"]["spec"] |= {"nodeSelector": {"type": "kwok"}, "tolerations": [TOLERATION]}
        made = await self.world.submit(body)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"]}
        status = {}
        if admitted:
            assignment = {
                "name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"},
            }  # fmt: skip
            true = {"status": "True", "lastTransitionTime": ADMITTED_AT, "reason": "Preempted", "message": "m"}
            names = ["QuotaReserved", "Admitted", *(["Evicted"] if evicted else [])]
            status = {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
                "conditions": [{"type": each, **true} for each in names],
            }
        await self.world.user.create("workloads", "team-a", {
            "apiVersion": f"kueue.x-k8s.io/{self.version}",
            "kind": "Workload",
            "metadata": {
                "name": f"job-{name}", "namespace": "team-a", "ownerReferences": [owner | {"controller": True}],
            },
            "spec": {
                "active": active, "queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}],
            },
            "status": status,
        })  # fmt: skip
        return made["spec"]["template"]

    async def migrate(self, *arguments):
        """`sluice import kueue`, into the database."""
        command = ["import", "kueue", "--kubeconfig", str(self.kubeconfig), "--database-url", self.world.url]
        return await asyncio.to_thread(CliRunner().invoke, main, [*command, *arguments], catch_exceptions=False)


@pytest.fixture
async def kueue(request, world, tmp_path):
    version = getattr(request, "param", "v1beta2")
    for kind in KINDS:
        await world.user.create("customresourcedefinitions", "", crd(kind, version))
    kubeconfig = tmp_path / "admin"
    world.sandbox.write_kubeconfig(kubeconfig, "admin")
    return Kueue(world, kubeconfig, version)


def pods(world):
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.user.list("pods", "team-a")}


async def until_pods(world, count):
    with closing(world.user.watch("pods")) as changes:
        async for _ in changes:
            found = world.user.list("pods", "team-a")
            if sum(pod.get("status", {}).get("phase") == "Running" for pod in found) == count:
                return pods(world)
    raise AssertionError("the watch ended")


@pytest.mark.parametrize("kueue", ["v1beta2", "v1beta1"], indirect=True)
async def test_what_runs_runs_on_and_what_waits_waits(kueue):
    world = kueue.world
    await kueue.queues()
    for number in range(3):
        await kueue.job(f"run-{number}", admitted=True)
        await kueue.job(f"wait-{number}", admitted=False)
    before = await until_pods(world, 3)

    plan = await kueue.migrate()
    assert plan.exit_code == 0, plan.output
    assert "take over  job/team-a/run-0" in plan.output
    assert "queue      job/team-a/wait-0" in plan.output
    assert "topology-aware" in plan.output
    assert plan.output.endswith("nothing was written; add --yes\n")
    assert await world.store.queues.list("ClusterQueue") == ()

    done = await kueue.migrate("--yes")
    assert done.exit_code == 0, done.output
    again = await kueue.migrate("--yes")
    assert "same    job/team-a/run-0" in again.output
    assert again.output.endswith("there is nothing to do\n")

    await world.start()
    for number in range(3):
        record = await world.record(f"run-{number}", "admitted")
        assert record.admitted_at == ADMITTED
        await world.record(f"wait-{number}", "pending", reason="WaitingForQuota")
    status = await world.store.workloads.cluster_queue_status()
    assert status["cq"].usage == {("default", "cpu"): 3000}
    assert pods(world) == before
    (row, *_) = await world.store.workloads.ledger((await world.record("run-1", "admitted")).workload.uid)
    assert row.from_at == ADMITTED

    await world.user.delete("jobs", "team-a", "run-0", propagation="Background")
    await world.job(await world.eventually(lambda: _let_in(world)), runs)


async def _let_in(world):
    """Of those that waited, whoever is the eldest: they may have been created in the same second."""
    records = [await world.store.workloads.get("team-a", f"wait-{number}") for number in range(3)]
    return next((record.workload.name for record in records if record.state == "admitted"), None)


async def test_what_is_evicted_later_is_as_its_user_wrote_it(kueue):
    world = kueue.world
    await kueue.queues(cpu="1")
    await kueue.job("run", admitted=True)
    await until_pods(world, 1)
    await kueue.migrate("--yes")
    await world.start()
    await world.order("run", held=True)
    await world.record("run", "pending", reason="OnHold")
    restored = await world.job("run", is_gated)
    assert "nodeSelector" not in restored["spec"]["template"]["spec"]
    assert "tolerations" not in restored["spec"]["template"]["spec"]
    assert "kueue.x-k8s.io/podset" not in restored["spec"]["template"]["metadata"]["labels"]
    await world.order("run", held=False)
    again = await world.job("run", runs)
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}


async def test_an_eviction_that_kueue_began_is_brought_to_its_end(kueue):
    world = kueue.world
    await kueue.queues(cpu="1")
    await kueue.job("run", admitted=True, evicted=True)
    await until_pods(world, 1)
    await kueue.migrate("--yes")
    await world.start()
    await world.job("run", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 4)
    assert ("Admitted", "taken over from Kueue") in await world.story("run")


async def test_what_was_deactivated_in_kueue_does_not_start(kueue):
    await kueue.queues()
    await kueue.job("off", admitted=False, active=False)
    await kueue.migrate("--yes")
    again = await kueue.migrate("--yes")
    assert again.output.endswith("there is nothing to do\n")
    await kueue.world.start()
    record = await kueue.world.record("off", "pending", reason="Deactivated")
    assert not record.active
    await kueue.world.order("off", active=True)
    await kueue.world.job("off", runs)


async def test_nothing_is_taken_over_while_sluice_decides(kueue):
    await kueue.queues()
    await kueue.job("run", admitted=True)
    await kueue.world.start()
    refused = await kueue.migrate("--yes")
    assert refused.exit_code == 1
    assert "another Sluice" in refused.output
    assert await kueue.world.store.queues.list("ClusterQueue") == ()


async def test_a_job_whose_queue_is_not_imported_is_named(kueue):
    await kueue.job("run", admitted=True)
    plan = await kueue.migrate()
    assert "skip    job/team-a/run" in plan.output
    assert "status.admission.clusterQueue: there is no cq" in plan.output
