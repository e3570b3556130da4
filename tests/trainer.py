"""Simulated Kubeflow Trainer: definitions of its kinds in three releases, and its controller for TrainJobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from custom_kinds import definition, served

from admission.kinds import all_kinds
from admission.sandbox.background import background
from admission.sandbox.controllers.descriptions import DESCRIPTIONS
from admission.sandbox.controllers.operator import Operator

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


class Trainer(Operator):
    """Operator of TrainJobs that can be stopped."""

    def __init__(self, local: Any, clock: Any) -> None:
        description = DESCRIPTIONS["trainer.kubeflow.org/trainjob"]
        super().__init__(local, clock, TRAIN_JOB, description, refuses=False)  # as in releases before 2.3
        self.works = asyncio.Event()
        """While it is not set, no TrainJob is reconciled."""
        self.works.set()

    async def sync(self, key: tuple[str, str]) -> None:
        """Reconcile a TrainJob, as soon as it works."""
        await self.works.wait()
        await super().sync(key)


@asynccontextmanager
async def trainer(sandbox: Any, release: str) -> AsyncIterator[Trainer]:
    """Serve the TrainJobs of a release, and run the simulated Trainer and JobSet controllers during the block."""
    admin = sandbox.local("admin")
    for each in (trainjobs(release), runtimes(), runtimes("ClusterTrainingRuntime")):
        await admin.create("customresourcedefinitions", "", each)
    async with served(sandbox, JOB_SET, refuses=False):
        operator = Trainer(sandbox.local("system:kube-controller-manager"), sandbox.clock)
        async with background(operator=operator.run()):
            yield operator
