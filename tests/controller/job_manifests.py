"""Manifests of batch/v1 Jobs for several queueing systems, with the requests of their pods computed by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from kind_manifests import FOLDER, GI, GPU, MI, RESOURCES
from queue_objects import priority_class

Object = dict[str, Any]

YUNIKORN = "yunikorn.apache.org/queue"
QUEUES = ("user-queue", "root.team-a")
"""The LocalQueues that the manifests name."""

KATA: Object = {
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "160Mi"}},
}
HIGH = priority_class("high", 1)
"""WorkloadPriorityClass that the manifests name."""


@dataclass(frozen=True)
class JobCase:
    """A Job of a manifest: file name, Job name, number of pods, and requests of each pod in milli-CPU or base units."""

    manifest: str
    name: str
    pods: int
    requests: dict[str, int]
    says: str
    """What is special in it."""

    @property
    def namespace(self) -> str:
        """The namespace of this case alone."""
        return f"jobs-{self.name}"

    def amounts(self) -> dict[str, int]:
        """Return the sum of its pods' requests by resource."""
        each = dict.fromkeys(RESOURCES, 0) | self.requests | {"pods": 1}
        return {resource: self.pods * amount for resource, amount in each.items()}

    def documents(self) -> list[Object]:
        """Return all objects of the manifest, moved to the namespace of the case."""
        text = (FOLDER / f"{self.manifest}.yaml").read_text()
        found = list(yaml.safe_load_all(text))
        for obj in found:
            if "namespace" in obj["metadata"]:
                obj["metadata"]["namespace"] = self.namespace
        return found

    def limit_ranges(self) -> list[Object]:
        """Return the LimitRanges of the manifest."""
        return [obj for obj in self.documents() if obj["kind"] == "LimitRange"]

    def job(self) -> Object:
        """Return the Job, or the CronJob's Job; its pods run until stopped, with a grace period of 1 s.

        A deadline is a thousand times as long: it counts seconds of the sandbox's clock, which is fast.
        """
        jobs = [obj for obj in self.documents() if obj["kind"] in ("Job", "CronJob")]
        named = [obj for obj in jobs if obj["metadata"].get("name") == self.name]
        (obj,) = named or (each for each in jobs if "name" not in each["metadata"])
        if obj["kind"] == "CronJob":
            made = obj["spec"]["jobTemplate"]
            metadata = {**made["metadata"], "namespace": self.namespace}
            obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": made["spec"]}
        obj["metadata"]["name"] = self.name
        template = obj["spec"]["template"]
        annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
        annotations["sandbox.sluice.dev/run-seconds"] = "1000000"
        template["spec"]["terminationGracePeriodSeconds"] = 1
        if "activeDeadlineSeconds" in obj["spec"]:
            obj["spec"]["activeDeadlineSeconds"] *= 1000
        return obj


JOBS = [
    JobCase("job", "sample-job", 3, {"cpu": 3100, "memory": 2112 * MI}, "a sidecar; may start with fewer pods"),
    JobCase("cronjob", "nightly", 1, {"cpu": 1000, "memory": 512 * MI}, "created by a CronJob"),
    JobCase("job-limitrange", "no-resources", 1, {"cpu": 200, "memory": 256 * MI}, "requests from a LimitRange"),
    JobCase(
        "job-limitrange",
        "limits-only",
        1,
        {"cpu": 800, "memory": 256 * MI},
        "its limit overrides the LimitRange's request",
    ),
    JobCase(
        "job-pod-level-resources",
        "pod-level",
        1,
        {"cpu": 2250, "memory": 1184 * MI, GPU: 1},
        "pod-level requests, overhead of a RuntimeClass",
    ),
    JobCase("job-yunikorn", "yk-gang", 3, {"cpu": 1000, "memory": GI}, "queue and gang of YuniKorn, which are kept"),
    JobCase(
        "talk-scalability-job",
        "sample",
        10,
        {"cpu": 2000, "memory": 2 * GI},
        "`activeDeadlineSeconds`, counted from its start",
    ),
    JobCase(
        "areal-controller-job",
        "areal-gsm8k-t0",
        1,
        {"cpu": 2000, "memory": 8 * GI},
        "the controller of an experiment, alone",
    ),
    JobCase("native-1.36-v1alpha2", "train", 2, {"cpu": 1000}, "its pods in a PodGroup of Kubernetes 1.36"),
    JobCase("native-1.37-v1beta1", "gang-job", 4, {"cpu": 1000}, "a gang of Kubernetes 1.37, `spec.scheduling`"),
]
