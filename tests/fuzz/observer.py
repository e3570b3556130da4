"""Independent check of quota: compares the requests of running pods with the quotas that the admin wrote.

It does not use Sluice's data. The bound is generous where queues change: ClusterQueues that were ever connected, by a
cohort, a LocalQueue that moved or a Job that moved, are summed up, and a reduced quota applies once no pods that may
have started before it are left. Pods that started in a cohort may use borrowed quota: they may stay when a
ClusterQueue leaves the cohort, and are not summed up with pods that start later. Pods above this bound have bypassed
the queue.

Pods that were created with a gate of Sluice count from its removal. Where a user has removed it, or claims that the pod
belongs to a Job, Sluice can only delete the pod: then it counts if it is not being deleted after a while.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from admission.cli.demo.live_pods import requests_of
from tests.fuzz.findings import Finding
from tests.fuzz.kind_documents import MCAD, WRAPPERS
from tests.fuzz.pod_players import is_gated
from tests.fuzz.topology_rules import GATE as TOPOLOGY

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from admission.sandbox.local import LocalClient

Object = dict[str, Any]

_QUEUE_LABELS = ("sluice.dev/queue-name", "kueue.x-k8s.io/queue-name")
_ENDED = ("Succeeded", "Failed")
_CONTROLLER = "kubernetes.io/job-controller"
_SUBMITTED_BY = "sluice.dev/submitted-by"
_UID = "sluice.dev/workload-uid"


def _is_suspended(job: Object) -> bool:
    return job["spec"].get("suspend") is True


SUSPENDED: dict[str, Callable[[Object], bool]] = {
    **dict.fromkeys(("rayclusters", "rayjobs", "jobsets", WRAPPERS), _is_suspended),
    "trainingruns": lambda obj: obj["spec"].get("paused") is True,
    MCAD: lambda obj: (obj["metadata"].get("annotations") or {}).get("sluice.dev/dispatch") != "true",
}
"""Kinds whose pods have no gate, to a function that returns whether an object is suspended (may have no pods)."""
POOL = "sluice.test/pool"
"""Node label that distinguishes the flavors."""
_LAG = 10.0
"""Maximum seconds between an admission and its last pod."""
_DELETION_TIME = 20.0
"""Seconds within which Sluice has to delete a pod that its user has ungated, on an idle machine."""


@dataclass
class SeenJob:
    """Observed state of a Job, of another object with pods, or of a pod that is queued by itself."""

    name: str
    queues: set[tuple[str, str]] = field(default_factory=set)
    """All (namespace, LocalQueue) that its labels ever named."""
    queue: str = ""
    """LocalQueue that its labels name now."""
    suspended: bool = True
    charged: bool = False
    """Whether it was in a queue when it was last unsuspended, or left it in that request. A Job that left its queue
    earlier is not Sluice's concern."""
    cpu: Fraction | None = None
    """Smallest request of its pods in CPUs: a LimitRange may have been created after its admission."""


def _note_queue(job: SeenJob, metadata: Object, *, suspended: bool, boundless: Container[tuple[str, str]]) -> str:
    """Update `job` from its object's metadata, and whether it counts if it has just started; return its LocalQueue."""
    labels = metadata.get("labels") or {}
    queue = str(next((labels[key] for key in _QUEUE_LABELS if labels.get(key)), ""))
    if job.suspended and not suspended:
        started_from = queue or job.queue
        job.charged = bool(started_from) and (metadata["namespace"], started_from) not in boundless
    job.suspended, job.queue = suspended, queue
    if queue:
        job.queues.add((metadata["namespace"], queue))
    return queue


def _owner_of(metadata: Object) -> str:
    return next((ref["uid"] for ref in metadata.get("ownerReferences") or () if ref.get("controller")), "")


class Observer:
    """Watches Jobs, pods and other objects. `violation` is the first violation of a quota."""

    def __init__(self, local: LocalClient, users: Mapping[str, str], *, kinds: Iterable[str] = ()) -> None:
        """`users`: namespace to the only user who creates objects in it; `kinds`: the served ones of `SUSPENDED`."""
        self._users = users
        self.violation: Finding | None = None
        self.most = Fraction(0)
        self._watcher = local.watch("jobs", "pods", *kinds)
        self._jobs: dict[str, SeenJob] = {}
        self._pods: dict[str, tuple[str, float, str]] = {}
        """Running pods by UID: UID of the Job (or of the pod itself), monotonic time of its start, node pool."""
        self._owners: dict[str, str] = {}
        """Uid of an observed Job or other object to that of its controller."""
        self._queued: set[str] = set()
        """UIDs of pods that were observed with Sluice's gate."""
        self._user_ungated: set[str] = set()
        """UIDs of pods whose gate a user removes or has removed."""
        self._overdue: dict[str, tuple[float, Fraction, str]] = {}
        """Pods that a user has ungated or enlarged, by UID: since when, CPUs, node pool."""
        self._nominal: dict[tuple[str, str], list[tuple[float, Fraction]]] = defaultdict(list)
        self._joined: dict[str, str] = {}
        self._borrowing: set[str] = set()
        """ClusterQueues that are in a cohort."""
        self._left: dict[str, float] = {}
        """ClusterQueue to the monotonic time at which it last left a cohort."""
        self._local_queues: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._boundless: set[tuple[str, str]] = set()

    # ------------------------------------------------------------------ writes of the admin

    def note_quota(self, queue: str, cpu: Fraction, *, pool: str = "main") -> None:
        """Record a write of a ClusterQueue's nominal quota in one pool."""
        self._nominal[queue, pool].append((time.monotonic(), cpu))

    def note_cohort(self, queue: str, cohort: str) -> None:
        """Record a write of a ClusterQueue's cohort, empty for none."""
        if cohort:
            self._join(queue, f"cohort {cohort}")
            self._borrowing.add(queue)
        elif queue in self._borrowing:
            self._borrowing.remove(queue)
            self._left[queue] = time.monotonic()

    def note_local_queue(self, namespace: str, name: str, queue: str) -> None:
        self._local_queues[namespace, name].add(queue)

    def note_boundless(self, namespace: str, name: str) -> None:
        """Record a LocalQueue without limits: Jobs that start from it do not count, nor does it add to other quotas."""
        self._boundless.add((namespace, name))

    def note_ungated(self, uid: str) -> None:
        """Record that a user is about to remove the gate of this pod."""
        self._user_ungated.add(uid)

    def note_still_gated(self, uid: str) -> None:
        """Record that the API server rejected that; if the pod is ungated meanwhile, Sluice has done it."""
        self._user_ungated.discard(uid)
        if (late := self._overdue.pop(uid, None)) is not None:
            self._count(uid, uid, late[1], late[2])

    # ------------------------------------------------------------------ observed objects

    async def run(self) -> None:
        """Watch until cancelled."""
        async for batch in self._watcher:
            for plural, change, obj, _ in batch:
                if plural == "pods":
                    self._see_pod(change, obj)
                else:
                    self._see_job(obj, suspended=SUSPENDED.get(plural, _is_suspended)(obj))

    def alive(self, uid: str) -> int:
        """Return the number of running pods of a Job."""
        return sum(job == uid for job, *_ in self._pods.values())

    def _see_job(self, obj: Object, *, suspended: bool) -> None:
        metadata = obj["metadata"]
        self._owners[metadata["uid"]] = _owner_of(metadata)
        job = self._jobs.setdefault(metadata["uid"], SeenJob(f"{metadata['namespace']}/{metadata['name']}"))
        if _note_queue(job, metadata, suspended=suspended, boundless=self._boundless):
            noted = (metadata.get("annotations") or {}).get(_SUBMITTED_BY)
            # The webhook does not check objects that are being deleted. A forged submitter has no effect there: Sluice
            # keeps the first one, and does not admit the object any more. Nor does it queue objects that another
            # controller manages.
            elsewhere = "deletionTimestamp" in metadata or obj["spec"].get("managedBy", _CONTROLLER) != _CONTROLLER
            # The RayCluster of a RayJob is its operator's.
            elsewhere = elsewhere or (obj["kind"] == "RayCluster" and self._owners[metadata["uid"]] in self._jobs)
            if not elsewhere and noted not in (None, self._users[metadata["namespace"]]) and self.violation is None:
                self.violation = Finding("submitted-by is forged", f"{job.name} says {noted!r}")

    def count_overdue(self) -> None:
        """Count pods that users have ungated and that Sluice has not deleted within its time."""
        patience = _DELETION_TIME * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        for uid, (since, cpu, pool) in list(self._overdue.items()):
            if time.monotonic() - since > patience:
                del self._overdue[uid]
                self._count(uid, uid, cpu, pool)

    def _see_pod(self, change: str, pod: Object) -> None:
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        if change == "DELETED" or pod.get("status", {}).get("phase") in _ENDED:
            self._pods.pop(uid, None)
            self._overdue.pop(uid, None)
            return
        # A pod without the selector was not started by Sluice; it counts against the flavor that all queues have.
        pool = (pod["spec"].get("nodeSelector") or {}).get(POOL, "main")
        cpu = Fraction(requests_of(pod["spec"], ("cpu",))["cpu"], 1000)
        owner = _owner_of(metadata)
        above = self._owners.get(owner, "")
        if owner in self._jobs and not self._jobs[owner].charged and above == (metadata.get("labels") or {}).get(_UID):
            owner = above  # the pod of a child, such as a Job of a JobSet, which the workload's start has labelled
        if uid in self._queued or is_gated(pod):
            self._see_queued_pod(pod, owner, cpu, pool)
        elif uid in self._pods or any(gate["name"] == TOPOLOGY for gate in pod["spec"].get("schedulingGates") or ()):
            return
        elif (job := self._jobs.get(owner)) is not None and job.charged:
            self._count(uid, owner, cpu, pool)

    def _see_queued_pod(self, pod: Object, owner: str, cpu: Fraction, pool: str) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        self._queued.add(uid)
        seen = self._jobs.setdefault(uid, SeenJob(f"{metadata['namespace']}/{metadata['name']}"))
        _note_queue(seen, metadata, suspended=is_gated(pod), boundless=self._boundless)
        if seen.suspended or not seen.charged:
            return
        if "deletionTimestamp" in metadata:
            self._overdue.pop(uid, None)
        elif uid not in self._pods and (uid in self._user_ungated or owner in self._jobs):
            self._overdue.setdefault(uid, (time.monotonic(), cpu, pool))
        elif uid not in self._pods:
            self._count(uid, uid, cpu, pool)
        elif seen.cpu is not None and cpu > seen.cpu and uid not in self._overdue:
            self._overdue[uid] = (time.monotonic(), cpu, pool)

    def _count(self, uid: str, job: str, cpu: Fraction, pool: str) -> None:
        seen = self._jobs[job]
        seen.cpu = cpu if seen.cpu is None or job == uid else min(cpu, seen.cpu)
        self._pods[uid] = (job, time.monotonic(), pool)
        self._compare(job, pool)

    # ------------------------------------------------------------------ the comparison

    def _compare(self, newest: str, pool: str) -> None:
        for uid in {job for job, *_ in self._pods.values()}:
            self._join_queues(self._jobs[uid])
        group = self._group_of(self._jobs[newest])
        queues = [queue for queue, of in self._nominal if of == pool and self._find(queue) == group]
        parted = max((self._left[queue] + _LAG for queue in queues if queue in self._left), default=0.0)
        alive = [
            (self._jobs[uid], since)
            for uid, since, where in self._pods.values()
            if where == pool and since > parted and self._group_of(self._jobs[uid]) == group
        ]
        used = sum((job.cpu or Fraction(0) for job, _ in alive), Fraction(0))
        oldest = min((since for _, since in alive), default=0.0)
        allowed = sum((self._most_since((queue, pool), oldest - _LAG) for queue in queues), Fraction(0))
        self.most = max(self.most, used)
        if used > allowed and self.violation is None:
            count: dict[str, int] = defaultdict(int)
            for job, _ in alive:
                count[f"{job.name} ({float(job.cpu or 0):g} cpu each)"] += 1
            pods = ", ".join(f"{number} of {name}" for name, number in sorted(count.items()))
            where = ", ".join(sorted(queues)) or "no ClusterQueue"
            self.violation = Finding(
                "quota is exceeded", f"{float(used):g} of {float(allowed):g} {pool} cpu of {where}: {pods}"
            )

    def _join_queues(self, job: SeenJob) -> None:
        queues = [queue for local_queue in job.queues for queue in sorted(self._local_queues[local_queue])]
        for queue in queues[1:]:
            self._join(queues[0], queue)

    def _group_of(self, job: SeenJob) -> str:
        queues = [queue for local_queue in sorted(job.queues) for queue in sorted(self._local_queues[local_queue])]
        return self._find(queues[0]) if queues else "nowhere"

    def _find(self, name: str) -> str:
        while (above := self._joined.get(name, name)) != name:
            name = above
        return name

    def _join(self, one: str, other: str) -> None:
        first, second = self._find(one), self._find(other)
        if first != second:
            self._joined[second] = first

    def _most_since(self, queue: tuple[str, str], moment: float) -> Fraction:
        """Return the largest quota in force at any time since `moment` (monotonic)."""
        history = self._nominal[queue]
        before = [cpu for at, cpu in history if at <= moment]
        return max([*before[-1:], *(cpu for at, cpu in history if at > moment)])
