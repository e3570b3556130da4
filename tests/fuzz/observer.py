"""Counts what pods are alive against quota, knowing pods, their requests, and what the admin wrote; not Sluice.

The bound is generous where queues change: ClusterQueues that were ever joined, by a cohort, a LocalQueue that moved or
a Job that moved, are counted together, and a lowered quota counts from when nothing that may have started before is
left. What has started in a cohort may be borrowed: it stays when a ClusterQueue leaves, and is not counted with what
starts then. What is above the bound after all has been let in past the queue.

Pods that were created with Sluice's gate count from when they have lost it. Where a user has taken it, or claims that
the pod is part of a Job, Sluice can only delete it: it counts if nobody has told it to end after a while.
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
from tests.fuzz.pod_players import is_gated

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from admission.sandbox.local import LocalClient

Object = dict[str, Any]

_QUEUE_LABELS = ("sluice.dev/queue-name", "kueue.x-k8s.io/queue-name")
_ENDED = ("Succeeded", "Failed")
_CONTROLLER = "kubernetes.io/job-controller"
_SUBMITTED_BY = "sluice.dev/submitted-by"
SUSPENDED: dict[str, Callable[[Object], bool]] = {
    "rayclusters": lambda obj: obj["spec"].get("suspend") is True,
    "trainingruns": lambda obj: obj["spec"].get("paused") is True,
    "appwrappers": lambda obj: (obj["metadata"].get("annotations") or {}).get("sluice.dev/dispatch") != "true",
}
"""Kinds whose pods have no gate, and whether one of them may have none."""
POOL = "sluice.test/pool"
"""The label of nodes by which flavors tell them apart."""
_LAG = 10.0
"""Seconds between an admission and its last pod."""
_LATE = 20.0
"""Seconds that a pod may be alive that a user has let run himself, on a machine that has nothing else to do."""


@dataclass
class SeenJob:
    """A Job, another object of which pods are part, or a pod that queues by itself, as the watch has shown it."""

    name: str
    queues: set[tuple[str, str]] = field(default_factory=set)
    """(namespace, LocalQueue) that it ever asked for."""
    queue: str = ""
    """The LocalQueue that it asks for now."""
    suspended: bool = True
    charged: bool = False
    """Whether it was in a queue when it was last unsuspended, or was taken out of one by that: a Job that has left its
    queue before is nobody's business."""
    cpu: Fraction | None = None
    """The least that any pod of it asked for: a LimitRange may have come after its admission."""


def _is_suspended(job: Object) -> bool:
    return job["spec"].get("suspend") is True


def _note_queue(job: SeenJob, metadata: Object, *, suspended: bool, boundless: Container[tuple[str, str]]) -> str:
    """Note where it asks for quota now, and whether it has just started from there; the LocalQueue."""
    labels = metadata.get("labels") or {}
    queue = str(next((labels[key] for key in _QUEUE_LABELS if labels.get(key)), ""))
    if job.suspended and not suspended:
        started_from = queue or job.queue
        job.charged = bool(started_from) and (metadata["namespace"], started_from) not in boundless
    job.suspended, job.queue = suspended, queue
    if queue:
        job.queues.add((metadata["namespace"], queue))
    return queue


class Observer:
    """Watches Jobs and pods. `trouble` is the first time that quota did not hold."""

    def __init__(self, local: LocalClient, users: Mapping[str, str], *, kinds: Iterable[str] = ()) -> None:
        """`users` are who alone creates objects in a namespace; `kinds`: of `SUSPENDED` those that are served."""
        self._users = users
        self.trouble: Finding | None = None
        self.most = Fraction(0)
        self._watcher = local.watch("jobs", "pods", *kinds)
        self._jobs: dict[str, SeenJob] = {}
        self._pods: dict[str, tuple[str, float, str]] = {}
        """Alive: the UID of the Job, or of the pod that queues by itself, since when, and where it may go to."""
        self._queued: set[str] = set()
        """Pods that were seen with Sluice's gate."""
        self._ungated: set[str] = set()
        """Pods whose gate a user takes away, or has taken."""
        self._late: dict[str, tuple[float, Fraction, str]] = {}
        """Pods that a user has let run, or has enlarged: since when, their CPUs, and the nodes that they may go to."""
        self._nominal: dict[tuple[str, str], list[tuple[float, Fraction]]] = defaultdict(list)
        self._joined: dict[str, str] = {}
        self._borrowing: set[str] = set()
        """ClusterQueues that are in a cohort now."""
        self._left: dict[str, float] = {}
        """By ClusterQueue: when it last left a cohort."""
        self._doors: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._boundless: set[tuple[str, str]] = set()

    # ------------------------------------------------------------------ what the admin wrote

    def note_quota(self, queue: str, cpu: Fraction, *, pool: str = "main") -> None:
        """From now on the ClusterQueue may use so many CPUs of those nodes."""
        self._nominal[queue, pool].append((time.monotonic(), cpu))

    def note_cohort(self, queue: str, cohort: str) -> None:
        """From now on the ClusterQueue is in that cohort, or in none."""
        if cohort:
            self._join(queue, f"cohort {cohort}")
            self._borrowing.add(queue)
        elif queue in self._borrowing:
            self._borrowing.remove(queue)
            self._left[queue] = time.monotonic()

    def note_local_queue(self, namespace: str, name: str, queue: str) -> None:
        self._doors[namespace, name].add(queue)

    def note_boundless(self, namespace: str, name: str) -> None:
        """What starts from this LocalQueue is not counted, and whoever was in it has no more quota elsewhere."""
        self._boundless.add((namespace, name))

    def note_ungated(self, uid: str) -> None:
        """A user is about to take the gate from this pod."""
        self._ungated.add(uid)

    def note_still_gated(self, uid: str) -> None:
        """He was not let; if the pod has lost its gate since, it was not his doing."""
        self._ungated.discard(uid)
        if (late := self._late.pop(uid, None)) is not None:
            self._count(uid, uid, late[1], late[2])

    # ------------------------------------------------------------------ what there is

    async def run(self) -> None:
        """Watch until cancelled."""
        async for batch in self._watcher:
            for plural, change, obj, _ in batch:
                if plural == "pods":
                    self._see_pod(change, obj)
                else:
                    self._see_job(obj, suspended=SUSPENDED.get(plural, _is_suspended)(obj))

    def alive(self, uid: str) -> int:
        """How many pods of a Job there are."""
        return sum(job == uid for job, *_ in self._pods.values())

    def _see_job(self, obj: Object, *, suspended: bool) -> None:
        metadata = obj["metadata"]
        job = self._jobs.setdefault(metadata["uid"], SeenJob(f"{metadata['namespace']}/{metadata['name']}"))
        if _note_queue(job, metadata, suspended=suspended, boundless=self._boundless):
            noted = (metadata.get("annotations") or {}).get(_SUBMITTED_BY)
            # The webhook is not sent what is being deleted. Whatever its user writes there charges nobody else: Sluice
            # keeps whom it saw first, and admits it no more.
            # Nor does Sluice queue what another controller manages.
            elsewhere = "deletionTimestamp" in metadata or obj["spec"].get("managedBy", _CONTROLLER) != _CONTROLLER
            if not elsewhere and noted not in (None, self._users[metadata["namespace"]]) and self.trouble is None:
                self.trouble = Finding("submitted-by is forged", f"{job.name} says {noted!r}")

    def count_late_ones(self) -> None:
        """Count those that users have let run, and nobody has told to end for long enough."""
        patience = _LATE * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        for uid, (since, cpu, pool) in list(self._late.items()):
            if time.monotonic() - since > patience:
                del self._late[uid]
                self._count(uid, uid, cpu, pool)

    def _see_pod(self, change: str, pod: Object) -> None:
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        if change == "DELETED" or pod.get("status", {}).get("phase") in _ENDED:
            self._pods.pop(uid, None)
            self._late.pop(uid, None)
            return
        # What carries no selector was started by nobody, and is held against the flavor that all have.
        pool = (pod["spec"].get("nodeSelector") or {}).get(POOL, "main")
        cpu = Fraction(requests_of(pod["spec"], ("cpu",))["cpu"], 1000)
        owner = next((ref["uid"] for ref in metadata.get("ownerReferences") or () if ref.get("controller")), "")
        if uid in self._queued or is_gated(pod):
            self._see_queued_pod(pod, owner, cpu, pool)
        elif uid not in self._pods and (job := self._jobs.get(owner)) is not None and job.charged:
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
            self._late.pop(uid, None)
        elif uid not in self._pods and (uid in self._ungated or owner in self._jobs):
            self._late.setdefault(uid, (time.monotonic(), cpu, pool))
        elif uid not in self._pods:
            self._count(uid, uid, cpu, pool)
        elif seen.cpu is not None and cpu > seen.cpu and uid not in self._late:
            self._late[uid] = (time.monotonic(), cpu, pool)

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
        if used > allowed and self.trouble is None:
            count: dict[str, int] = defaultdict(int)
            for job, _ in alive:
                count[f"{job.name} ({float(job.cpu or 0):g} cpu each)"] += 1
            pods = ", ".join(f"{number} of {name}" for name, number in sorted(count.items()))
            where = ", ".join(sorted(queues)) or "no ClusterQueue"
            self.trouble = Finding(
                "quota is exceeded", f"{float(used):g} of {float(allowed):g} {pool} cpu of {where}: {pods}"
            )

    def _join_queues(self, job: SeenJob) -> None:
        queues = [queue for door in job.queues for queue in sorted(self._doors[door])]
        for queue in queues[1:]:
            self._join(queues[0], queue)

    def _group_of(self, job: SeenJob) -> str:
        queues = [queue for door in sorted(job.queues) for queue in sorted(self._doors[door])]
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
        """The largest quota that was in force at any time since then."""
        history = self._nominal[queue]
        before = [cpu for at, cpu in history if at <= moment]
        return max([*before[-1:], *(cpu for at, cpu in history if at > moment)])
