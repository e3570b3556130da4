"""A cluster in which Kueue ran and is stopped: its objects, and their import by `sluice import kueue`."""

from __future__ import annotations

import asyncio
from contextlib import closing
from copy import deepcopy

from click.testing import CliRunner
from job_examples import TOLERATION, job

from admission.cli.main import main

KINDS = {
    "ResourceFlavor": "resourceflavors",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "AdmissionCheck": "admissionchecks",
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
    """A cluster with the objects that a stopped Kueue of `version` (of its API) has left."""

    def __init__(self, world, kubeconfig, version):
        self.world, self.kubeconfig, self.version = world, kubeconfig, version

    async def create(self, kind, name, *, namespace="", owners=(), **content):
        metadata = {"name": name, "ownerReferences": [*owners]} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": f"kueue.x-k8s.io/{self.version}", "kind": kind, "metadata": metadata, **content}
        return await self.world.user.create(KINDS[kind], namespace, body)

    async def queues(self, cpu="3"):
        """Create Kueue's queue objects: a ResourceFlavor, a ClusterQueue, a LocalQueue and a Topology."""
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

    async def job(
        self,
        name,
        *,
        admitted,
        started=True,
        reserved=False,
        evicted=False,
        active=True,
        pods=1,
        given=1,
        gates=(),
        placed=None,
        annotations=None,
        more_sets=(),
        **status,
    ):
        """Create a Job and its Workload as left by Kueue; if admitted, it runs with `given` of its `pods` pods.

        `started`: False if Kueue was stopped between its admission and its start. `gates`: of a topology, for example;
        `placed`: its topologyAssignment.
        """
        body = job(name, queue=None, pods=pods, suspend=not (admitted and started))
        body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq"
        body["metadata"]["annotations"] = annotations or {}
        template = deepcopy(body["spec"]["template"])
        if admitted and started:
            body["spec"]["parallelism"] = given
            body["spec"]["template"]["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "main"}
            body["spec"]["template"]["spec"] |= {"nodeSelector": {"type": "kwok"}, "tolerations": [TOLERATION]}
            body["spec"]["template"]["spec"] |= {"schedulingGates": [{"name": each} for each in gates]} if gates else {}
        made = await self.world.submit(body)
        if admitted or reserved:
            assignment = {
                "name": "main", "count": given, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": str(given)},
            } | ({"topologyAssignment": placed} if placed else {})  # fmt: skip
            true = {"status": "True", "lastTransitionTime": ADMITTED_AT, "reason": "Preempted", "message": "m"}
            names = ["QuotaReserved", *(["Admitted"] if admitted else []), *(["Evicted"] if evicted else [])]
            status |= {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
                "conditions": [{"type": each, **true} for each in names],
            }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"]}
        pod_sets = [{"name": "main", "count": pods, "template": template}, *more_sets]
        await self.create(
            "Workload",
            f"job-{name}",
            namespace="team-a",
            owners=[owner | {"controller": True}],
            spec={"active": active, "queueName": "lq", "podSets": pod_sets},
            status=status,
        )

    async def migrate(self, *arguments):
        """Run `sluice import kueue` with the database of the test."""
        command = ["import", "kueue", "--kubeconfig", str(self.kubeconfig), "--database-url", self.world.url]
        return await asyncio.to_thread(CliRunner().invoke, main, [*command, *arguments], catch_exceptions=False)


async def installed(world, tmp_path, version="v1beta2"):
    """Install Kueue's CustomResourceDefinitions in the cluster, and return helpers for its objects."""
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
