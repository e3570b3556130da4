"""Simulated Kubeflow Trainer: definitions of its kinds in three releases, and its controller for TrainJobs."""

from __future__ import annotations

import asyncio
import copy
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from custom_kinds import definition, served

from admission.kinds import all_kinds
from admission.kinds.patches import merged
from admission.sandbox.background import background
from admission.sandbox.controllers.base import Controller, controller_of, owner_reference

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Object = dict[str, Any]

FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob")
KAI = "kai.scheduler/queue"
KINDS = all_kinds(frameworks=FRAMEWORKS, queue_labels=(KAI,))
TRAIN_JOB = KINDS.get("trainer.kubeflow.org", "TrainJob")
JOB_SET = KINDS.get("jobset.x-k8s.io", "JobSet")
FIELDS = {"2.0": "podSpecOverrides", "2.1": "podTemplateOverrides", "2.2": "runtimePatches"}
"""Release to the field of a TrainJob by which other controllers patch its pods."""
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def trainjobs(release: str) -> Object:
    """Return the definition of TrainJob with the fields of one release only."""
    found = definition(TRAIN_JOB)
    items: Object = {"type": "array", "items": _ANYTHING}
    spec = {
        "type": "object",
        "properties": {
            "suspend": {"type": "boolean"},
            "managedBy": {"type": "string"},
            "runtimeRef": _ANYTHING,
            "trainer": _ANYTHING,
            FIELDS[release]: items,
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": _ANYTHING}}
    found["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return found


def runtimes(kind: str = "TrainingRuntime") -> Object:
    """Return the definition of TrainingRuntime or ClusterTrainingRuntime."""
    found, plural = definition(TRAIN_JOB), f"{kind.lower()}s"
    found["metadata"]["name"] = f"{plural}.trainer.kubeflow.org"
    found["spec"]["names"] = {"plural": plural, "kind": kind, "singular": kind.lower()}
    found["spec"]["scope"] = "Cluster" if kind.startswith("Cluster") else "Namespaced"
    return found


class Trainer(Controller[tuple[str, str]]):
    """Creates a JobSet from each TrainJob and its TrainingRuntime, and updates it while either is suspended."""

    plurals = ("trainjobs", "jobsets")

    def __init__(self, local: Any, clock: Any) -> None:
        super().__init__(local, clock)
        self.works = asyncio.Event()
        """While it is not set, no TrainJob is reconciled."""
        self.works.set()

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the TrainJob; its JobSet has the same name."""
        self.enqueue((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def sync(self, key: tuple[str, str]) -> None:
        """Create or update the JobSet, as `pkg/runtime/framework/plugins/jobset` does, then the status."""
        await self.works.wait()
        job, present = self.local.get("trainjobs", *key), self.local.get("jobsets", *key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        named = job["spec"]["runtimeRef"]
        namespace = "" if named["kind"] == "ClusterTrainingRuntime" else key[0]
        runtime = self.local.get(f"{named['kind'].lower()}s", namespace, named["name"])
        if runtime is None:
            return
        wanted = self._wanted(job, runtime)
        if present is None:
            await self.local.create("jobsets", key[0], wanted)
            return
        if (controller_of(present) or {}).get("uid") != job["metadata"]["uid"]:
            return  # controlled by another object, or an orphan
        stopped = job["spec"].get("suspend") is True or present["spec"].get("suspend") is True
        if stopped and present["spec"] != wanted["spec"]:
            await self.local.update("jobsets", key[0], {**present, "spec": wanted["spec"]})
        await self._update_status(job, present)

    def _wanted(self, job: Object, runtime: Object) -> Object:
        spec = copy.deepcopy(runtime["spec"]["template"]["spec"])
        trainer = job["spec"].get("trainer") or {}
        for role in spec["replicatedJobs"]:
            inner = role["template"]["spec"]
            role.setdefault("replicas", 1)
            inner |= {"parallelism": 1, "completions": 1}
            if role["name"] == "node":
                inner |= dict.fromkeys(("parallelism", "completions"), trainer.get("numNodes", 1))
                inner["template"]["spec"]["containers"][0] |= (
                    {"resources": trainer["resourcesPerNode"]} if "resourcesPerNode" in trainer else {}
                )
            for change in pod_changes(job, role["name"]):
                inner["template"] = merged(inner["template"], change)
        spec["suspend"] = job["spec"].get("suspend") is True
        meta = {key: job["metadata"][key] for key in ("name", "namespace")}
        meta["labels"] = (runtime["spec"]["template"].get("metadata") or {}).get("labels") or {}
        owners = [owner_reference(job)]
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {**meta, "ownerReferences": owners},
            "spec": spec,
        }  # fmt: skip

    async def _update_status(self, job: Object, jobset: Object) -> None:
        jobset_status = jobset.get("status") or {}
        types = {"Completed": "Complete", "Failed": "Failed"}
        conditions = [
            {**each, "type": types[each["type"]]}
            for each in jobset_status.get("conditions", ())
            if each["type"] in types and each["status"] == "True"
        ]
        status = {"conditions": conditions, "jobsStatus": jobset_status.get("replicatedJobsStatus", [])}
        if status != job.get("status"):
            namespace = job["metadata"]["namespace"]
            await self.local.update("trainjobs", namespace, {**job, "status": status}, subresource="status")


def pod_changes(job: Object, role: str) -> list[Object]:
    """Return the patches for the pods of a role."""
    spec = job["spec"]
    found = []
    for entry in spec.get("runtimePatches", ()):
        jobs = entry.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", ())
        found += [each["template"]["spec"]["template"] for each in jobs if each["name"] == role]
    for field in ("podTemplateOverrides", "podSpecOverrides"):
        for entry in spec.get(field, ()):
            if {"name": role} in entry["targetJobs"]:
                rest = {key: value for key, value in entry.items() if key != "targetJobs"}
                found.append(rest if field == "podTemplateOverrides" else {"spec": rest})
    return found


@asynccontextmanager
async def trainer(sandbox: Any, release: str) -> AsyncIterator[Trainer]:
    """Serve the TrainJobs of a release, and run the simulated Trainer and JobSet controllers during the block."""
    admin = sandbox.local("admin")
    for each in (trainjobs(release), runtimes(), runtimes("ClusterTrainingRuntime")):
        await admin.create("customresourcedefinitions", "", each)
    async with served(sandbox, JOB_SET):
        operator = Trainer(sandbox.local("system:kube-controller-manager"), sandbox.clock)
        async with background(operator=operator.run()):
            yield operator
