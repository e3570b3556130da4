"""Several clusters of one Sluice: their sandboxes, an observer over all of them, and their faults.

The sandboxes run in this process, so that the observer processes each version of each object when it is written: it has
the order of all changes in all clusters, which watches of several API servers do not have.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import NAMESPACE_URL, uuid5
from zlib import crc32

from admission.cli.demo.account import Phase
from admission.cli.demo.gangs import workload_of
from admission.cli.demo.live_pods import is_gated
from admission.cli.demo.load import operated, prepare
from admission.cli.demo.plan import job_document, queue_documents
from admission.cli.demo.stage import SLUICE_USER
from admission.cluster.client import Client
from admission.cluster.errors import Invalid, NotFound
from admission.kinds.dispatched import ORIGIN, RUNS_IN
from admission.model.errors import ClusterError
from admission.sandbox.operators import serve_kinds
from admission.sandbox.sandbox import Sandbox
from tests.chaos.fleet import Stuck
from tests.chaos.kinds import FIRST_GROUP, deleted, object_name, path_of
from tests.chaos.schedule import Fault
from tests.chaos.service import Link
from tests.sandbox_errors import recorded
from webhooks.policies import GATE_POLICIES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from admission.cli.demo.account import SceneAccount
    from admission.cli.demo.plan import Document, PlannedJob, ScenePlan
    from admission.sandbox.apiserver.storage import StorageEvent, StoredCollection
    from admission.sandbox.local import LocalClient
    from tests.chaos.fleet import Fleet
    from tests.chaos.ledger import Promise

HUB: Final = "local"
OTHERS: Final = ("b", "c", "d", "e", "f")
LOST_TIMEOUT: Final = 10.0
"""Seconds for which a lost cluster holds the quota of what was dispatched to it; the shortest that can be set."""
_SHORT: Final = 7.0
"""Seconds after which a cluster that must not be given up is reached again."""
_PATIENCE: Final = 150.0
_LONG: Final = 12
"""So many times as long as planned runs one of eight Jobs, so that it runs longer than its cluster may be lost."""
_KINDS: Final = ("Job", "Job", "Job", "PodGroup", "StatefulSet", "LeaderWorkerSet")
"""What is dispatched, in turn."""
_SETS: Final = "leaderworkerset.x-k8s.io/leaderworkerset"
_MOMENTS: Final = ("created", "deleted", "scaled")
"""What happens to a copy when the leader is killed."""
_FORGED: Final = "-forged"
"""The end of the names of Jobs that others forge."""
_MOMENT: Final = 5.0
"""Seconds for which that is waited for."""
_CLUSTERS: Final = "/apis/sluice.dev/v1/clusters"
_WORKLOADS: Final = "/apis/sluice.dev/v1/workloads"
_GATE: Final = f"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/{GATE_POLICIES[0]}"


def plan_over_clusters(plan: ScenePlan) -> ScenePlan:
    """Return a plan in which some Jobs run long, and some of what is dispatched are groups of pods."""
    jobs = []
    for job in plan.jobs:
        seconds = job.run_seconds * (_LONG if _draw(job.name) // 64 % 8 == 0 else 1)
        kind = _KINDS[_draw(job.name) // 512 % len(_KINDS)] if _is_dispatched(job) else "Job"
        name = f"{job.name}{FIRST_GROUP}" if kind == "LeaderWorkerSet" else job.name
        jobs.append(replace(job, name=name, run_seconds=seconds, kind=kind))
    return replace(plan, jobs=tuple(jobs), kinds=("pod", "statefulset", _SETS), noun="objects")


def queues_of_clusters(plan: ScenePlan, clusters: int) -> list[Document]:
    """Return the queue objects of a plan, whose one flavor is in all clusters, and the clusters."""
    documents = queue_documents(plan)
    for document in documents:
        if document["kind"] == "ClusterQueue":
            document["spec"]["dispatch"] = {}
    joining = [
        {
            "apiVersion": "sluice.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"kubeconfig": f"{name}.yaml"},
        }
        for name in OTHERS[: clusters - 1]
    ]
    return [*documents, *joining]


@dataclass(eq=False)
class _Cluster:
    """One cluster, across all that are built under its name."""

    name: str
    link: Link
    """Between Sluice and the cluster; all others reach it directly."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    sandbox: Sandbox = field(init=False)
    client: Client = field(init=False)
    """An admin's."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether users may submit Jobs: they are gated."""
    copies: dict[str, str] = field(default_factory=dict)
    """Uids of the copies that have not finished, and the uids of their objects."""
    former: set[str] = field(default_factory=set)
    """Those of them that were given up, and have to be stopped before anything is started here."""
    pods: dict[str, str] = field(default_factory=dict)
    """Keys of live pods, and the uids of their owners."""
    ended: set[str] = field(default_factory=set)
    """Uids of the copies that have finished or were deleted."""
    succeeded: set[str] = field(default_factory=set)
    """Uids of the objects whose copies have succeeded here."""
    fault: asyncio.Task[None] | None = None
    """The fault that is under way."""

    def counted(self) -> set[str]:
        """Return the uids of the objects whose copies run here, and are not given up."""
        return {origin for uid, origin in self.copies.items() if uid not in self.former}

    @property
    def uid(self) -> str:
        """Uid of the namespace kube-system."""
        namespace = self.sandbox.local("admin").get("namespaces", "", "kube-system")
        assert namespace is not None
        return str(namespace["metadata"]["uid"])


class Clusters:
    """The clusters while the context is open; feeds the account of a storm."""

    settings: Final = {"clusterLostTimeout": LOST_TIMEOUT}
    """Further settings of `sluice serve`."""

    def __init__(
        self,
        folder: Path,
        plan: ScenePlan,
        account: SceneAccount,
        count: int,
        *,
        submit: Callable[[PlannedJob], Awaitable[None]],
    ) -> None:
        """`submit`: creates a Job again."""
        self._submit = submit
        self._folder = folder
        self._plan = plan
        self._account = account
        self._began = time.monotonic()
        self._stack = AsyncExitStack()
        self._all = {name: _Cluster(name, Link()) for name in (HUB, *OTHERS[: count - 1])}
        self._submitted: dict[str, PlannedJob] = {}
        self._origins: dict[str, str] = {}
        """Uid of a Job, or of a pod of a group, in the hub -> key of its object."""
        self._shown: set[str] = set()
        """Uids of pods of groups in the hub that say where their copy runs, and have not ended ..."""
        self._over: set[str] = set()
        """... and of those that have succeeded."""
        self._happened = {moment: asyncio.Event() for moment in _MOMENTS}
        """What happens to copies."""
        self._forged: list[tuple[LocalClient, str, str]] = []
        """Namespaces and names of Jobs of others that say that they are copies, each with an admin of its cluster."""
        self._orphaned = 0
        """How many Jobs were deleted while the cluster of their copy was cut off."""
        self._killed = Counter[str]()
        """What had just happened to a copy when the leader was killed, and how often."""
        self._scaling: set[asyncio.Task[None]] = set()
        self._requeued: set[str] = set()
        """Uids of Jobs and pods of the hub that are to be queued again, as their cluster is given up."""
        self._successes = Counter[str]()
        """Uid of a Job or pod of the hub -> number of its copies that have succeeded."""
        self._excused = Counter[str]()
        """... and how many of them were in clusters that were given up or destroyed."""
        self._late = 0
        """How many copies have succeeded while they were being deleted, as their pods had ended well."""
        self._copied = 0
        self.again = Counter[str]()
        """How often each Job may have been submitted again, as its cluster was destroyed."""
        self.unseen = 0
        """How many Jobs had ended in clusters that were destroyed, so that Sluice may not know how."""
        self.doubled: list[str] = []
        """Copies that were created while another one existed."""
        self.early: list[str] = []
        """What was started in a cluster before the copies that were given up there had been stopped."""

    async def __aenter__(self) -> Self:
        (self._folder / "credentials").mkdir()
        async with AsyncExitStack() as self._stack:
            self._errors = self._stack.enter_context(recorded())
            for cluster in self._all.values():
                await self._stack.enter_async_context(cluster.link)
                self._stack.push_async_callback(self._tear_down, cluster)
                await self._build(cluster)
            self._all[HUB].is_open.set()
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def hub(self) -> Client:
        """An admin's client of the cluster in which Sluice runs."""
        return self._all[HUB].client

    @property
    def kubeconfig(self) -> Path:
        """Sluice's, for the hub."""
        return self._folder / "kubeconfig"

    @property
    def options(self) -> tuple[str, ...]:
        """Further options of `sluice serve`."""
        return (f"--cluster-credentials={self._folder / 'credentials'}",)

    def elapsed(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._began

    async def gated(self) -> None:
        """Wait until Jobs are gated in all clusters."""
        for cluster in self._others:
            await self._gated(cluster)

    @property
    def _others(self) -> list[_Cluster]:
        return [cluster for cluster in self._all.values() if cluster.name != HUB]

    async def install(self, faults: Mapping[str, Any]) -> None:
        """Inject faults into Sluice's requests to all clusters; none: remove them."""
        for cluster in self._all.values():
            await cluster.client.create("/sandbox/faults", dict(faults))

    # --- Jobs

    def _home(self, job: PlannedJob) -> _Cluster:
        """Return the cluster in which a Job is created: one of two in the hub, to be dispatched."""
        if _is_dispatched(job):
            return self._all[HUB]
        names = [*self._all]
        return self._all[names[_draw(job.name) // 2 % len(names)]]

    async def place(self, job: PlannedJob, document: Document) -> Client:
        """Return the client for the cluster in which a Job is created now; the document is completed for it."""
        self._submitted[f"{job.team}/{job.name}"] = job
        cluster = self._home(job)
        if _is_dispatched(job):
            preferred = self._others[_draw(job.name) // 2 % len(self._others)].name
            affinity = json.dumps({"preferred": [{"clusters": [preferred]}]})
            spec = document["spec"]
            metadata = document["metadata"]
            if job.kind == "StatefulSet":
                metadata = spec["template"]["metadata"]
            if job.kind == "LeaderWorkerSet":
                metadata = spec["leaderWorkerTemplate"]["workerTemplate"]["metadata"]
                for other in self._others:
                    await other.is_open.wait()
                    await _serve(other, job)
            metadata.setdefault("annotations", {})["sluice.dev/cluster-affinity"] = affinity
            if job.kind == "Job":
                spec["managedBy"] = "sluice.dev/dispatch"
            spec.pop("serviceName", None)  # no cluster has that Service
        await cluster.is_open.wait()
        return cluster.client

    def client_of(self, key: str) -> Client:
        """Return the client for the cluster in which a Job (`namespace/name`) was created."""
        return self._home(self._submitted[key]).client

    # --- observer

    def _job(self, cluster: _Cluster, event: StorageEvent) -> None:
        job, is_gone = event.version.obj, event.type == "DELETED"
        if event.name.endswith(_FORGED):
            return
        metadata = job["metadata"]
        self._account.advance(self.elapsed())
        if origin := metadata.get("labels", {}).get(ORIGIN):
            self._copy(cluster, event, origin)
            return
        key = f"{event.namespace}/{event.name}"
        is_suspended = bool(job["spec"].get("suspend"))
        if cluster.name == HUB:
            self._origins[metadata["uid"]] = key
            if is_suspended or is_gone or "Complete" in _conditions(job):
                self._requeued.discard(metadata["uid"])
        elif not is_suspended and (event.before is None or event.before.obj["spec"].get("suspend")):
            self._started(cluster, key)
        self._account.job(key, None if is_gone else job)

    def _copy(self, cluster: _Cluster, event: StorageEvent, origin: str) -> None:
        """Process a version of a copy, which is a Job or a pod of a group."""
        copy, is_gone = event.version.obj, event.type == "DELETED"
        uid, key = copy["metadata"]["uid"], self._origins.get(origin, origin)
        self._note_moment(event)
        if uid not in cluster.copies and uid not in cluster.ended:
            self._copied += 1
            where = [other.name for other in self._others if origin in other.counted()]
            if where:
                self.doubled.append(f"{key} in {cluster.name}, while it is in {where}")
            self._started(cluster, key)
            cluster.copies[uid] = origin
        ended = _ends(copy)
        if is_gone or ended & {"Complete", "Failed"}:
            # A pod that ends well because it is deleted has not done its work.
            is_stopped = copy["kind"] == "Pod" and "deletionTimestamp" in copy["metadata"]
            if "Complete" in ended and uid not in cluster.ended and not is_stopped:
                self._successes[origin] += 1
                cluster.succeeded.add(origin)
                # The end of one that succeeds while it is deleted may not be seen, if Sluice or a watch fails then.
                is_late = "deletionTimestamp" in copy["metadata"]
                self._late += is_late
                self._excused[origin] += uid in cluster.former or is_late
            cluster.ended.add(uid)
            cluster.copies.pop(uid, None)
            cluster.former.discard(uid)

    def _note_moment(self, event: StorageEvent) -> None:
        copy, before = event.version.obj, None if event.before is None else event.before.obj
        if before is None:
            moment = "created"
        elif "deletionTimestamp" in copy["metadata"]:
            moment = "deleted"
        elif copy["spec"].get("parallelism") != before["spec"].get("parallelism"):
            moment = "scaled"
        else:
            return
        self._happened[moment].set()

    def _started(self, cluster: _Cluster, key: str) -> None:
        if cluster.former:
            self.early.append(f"{key} in {cluster.name}, where {len(cluster.former)} given up copies run")

    def _pod(self, cluster: _Cluster, event: StorageEvent) -> None:
        pod, key = event.version.obj, f"{cluster.name}/{event.namespace}/{event.name}"
        is_gone = event.type == "DELETED"
        if workload_of(pod).endswith(_FORGED):
            return
        self._account.advance(self.elapsed())
        if cluster.name == HUB and is_gated(pod):
            self._original(key, pod, is_gone=is_gone)
            return
        owners = pod["metadata"].get("ownerReferences") or [{"uid": ""}]
        origin, owner = (pod["metadata"].get("labels") or {}).get(ORIGIN), owners[0]["uid"]
        if origin:
            self._copy(cluster, event, origin)
            owner = pod["metadata"]["uid"]
        if is_gone:
            cluster.pods.pop(key, None)
        else:
            cluster.pods[key] = owner
        if owner in cluster.former:
            return
        if origin:  # its original shows to its user what it does
            self._account.live.pod(key, None if is_gone or is_gated(pod) else pod, self.elapsed())
        else:
            self._account.pod(key, None if is_gone else pod)

    def _original(self, key: str, pod: Document, *, is_gone: bool) -> None:
        """Process a pod of a group in the hub, which stays gated: for its user it runs where it says."""
        uid, workload = pod["metadata"]["uid"], workload_of(pod)
        self._origins[uid] = workload
        phase = pod.get("status", {}).get("phase")
        is_elsewhere = RUNS_IN in (pod["metadata"].get("annotations") or {})
        if is_elsewhere and not is_gone and phase not in ("Succeeded", "Failed"):
            self._shown.add(uid)
        else:
            self._shown.discard(uid)
            self._requeued.discard(uid)
        if phase == "Succeeded":
            self._over.add(uid)
        as_shown = {**pod, "spec": {**pod["spec"], "schedulingGates": []}} if is_elsewhere else pod
        self._account.gangs.pod(key, workload, None if is_gone else as_shown)
        self._account.submitted(workload)

    def _give_up(self, cluster: _Cluster) -> None:
        """Count what was dispatched to a cluster no more: its quota may be used elsewhere from now on."""
        self._excuse(cluster)
        cluster.former |= cluster.copies.keys()
        for uid in cluster.former:
            origin = cluster.copies[uid]
            if origin in self._shown or self._job_runs(self._origins.get(origin, "")):
                self._requeued.add(origin)
        for key, owner in cluster.pods.items():
            if owner in cluster.former:
                self._account.pod(key, None)

    def _excuse(self, cluster: _Cluster) -> None:
        """Let what has succeeded in a cluster, and may not be known in the hub, succeed once more."""
        for origin in cluster.succeeded:
            is_over = origin in self._over or _has_ended(self._account, self._origins.get(origin, ""))
            self._excused[origin] += not is_over
        cluster.succeeded.clear()

    def _job_runs(self, key: str) -> bool:
        """Whether a dispatched Job runs, as the hub shows it."""
        job = self._account.jobs.get(key)
        is_job = job is not None and self._submitted[key].kind == "Job"
        return is_job and job is not None and not job.suspended and job.phase is Phase.RUNNING

    # --- clusters

    async def _build(self, cluster: _Cluster) -> None:
        cluster.stack = AsyncExitStack()
        cluster.sandbox = await cluster.stack.enter_async_context(Sandbox(speed=self._plan.speed))
        for plural, group, see in (("jobs", "batch", self._job), ("pods", "", self._pod)):
            _follow(cluster.sandbox, group, plural, partial(see, cluster), cluster.stack)
        admin = self._folder / f"admin-{cluster.name}"
        cluster.sandbox.write_kubeconfig(admin)
        # A former client stays open: its users get no answer, and then use the present one.
        cluster.client = await self._stack.enter_async_context(Client.from_kubeconfig(str(admin)))
        await prepare(cluster.client, self._plan)
        is_hub = cluster.name == HUB
        if is_hub:
            await cluster.stack.enter_async_context(serve_kinds(cluster.sandbox, operated(self._plan)))
        for job in self._submitted.values():
            if job.kind == "LeaderWorkerSet":
                await _serve(cluster, job)
        document = cluster.sandbox.kubeconfig(SLUICE_USER)
        if not is_hub:
            cluster.link.port = int(cluster.sandbox.url.rpartition(":")[2])
            document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{cluster.link.address}"
        path = self.kubeconfig if is_hub else self._folder / "credentials" / f"{cluster.name}.yaml"
        path.write_text(json.dumps(document))  # JSON is YAML

    async def _tear_down(self, cluster: _Cluster) -> None:
        if cluster.fault is not None:
            cluster.fault.cancel()
            await asyncio.wait([cluster.fault])
        await cluster.stack.aclose()

    async def _gated(self, cluster: _Cluster) -> None:
        while not cluster.is_open.is_set():
            try:
                await cluster.client.get(_GATE)  # written after its policy
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                cluster.is_open.set()

    # --- faults

    async def moment(self, draw: float) -> None:
        """Wait until something happens to a copy, so that the leader is killed in the middle of that."""
        moment = _MOMENTS[int(draw * 1009 % len(_MOMENTS))]
        for event in self._happened.values():
            event.clear()
        if moment == "scaled":
            self._scale(draw)
        if not await _within(_MOMENT, self._happened[moment].wait()):
            moment = "created"
            self._happened[moment].clear()
            if not await _within(_MOMENT, self._happened[moment].wait()):
                return
        self._killed[moment] += 1

    def _scale(self, draw: float) -> None:
        """Let the user of a dispatched Job or StatefulSet that runs have fewer pods, and soon as many as before."""
        running = [
            key
            for key in self._account.running()
            if _is_dispatched(job := self._submitted[key]) and job.kind in ("Job", "StatefulSet")
        ]
        if running:
            task = asyncio.create_task(self._scaled(running[int(draw * len(running))], draw))
            self._scaling.add(task)
            task.add_done_callback(self._scaling.discard)

    async def _scaled(self, key: str, draw: float) -> None:
        job = self._submitted[key]
        path = path_of(job)
        field = "parallelism" if job.kind == "Job" else "replicas"
        await self._write(path, {"spec": {field: job.pods - 1}})
        await asyncio.sleep(3 * draw)
        await self._write(path, {"spec": {field: job.pods}})

    async def _write(self, path: str, change: Document) -> None:
        """Change an object of the hub as its user; retry while no webhook answers."""
        while True:
            try:
                await self.hub.patch(path, change)
            except (NotFound, Invalid):  # its user has deleted it meanwhile, or it has ended
                return
            except ClusterError:
                await asyncio.sleep(0.2)
            else:
                return

    async def _scale_some(self, draw: float) -> None:
        self._scale(draw)

    async def _delete_copy(self, draw: float) -> None:
        """Delete the copy of a Job, before its pods, as users do in another cluster who do not know what it is."""
        running = [
            (cluster.sandbox.local("admin"), copy["metadata"])
            for cluster in self._others
            for copy in cluster.sandbox.local("admin").list("jobs")
            if copy["metadata"]["uid"] in cluster.copies and copy["metadata"]["uid"] not in cluster.former
        ]
        if running:
            admin, metadata = running[int(draw * len(running))]
            await admin.delete("jobs", metadata["namespace"], metadata["name"], propagation="Background")

    async def _forge_copy(self, draw: float) -> None:
        """Create a Job that runs, and says that it is a copy, of an object that does not exist."""
        copies = [
            (admin, copy["metadata"])
            for admin in (cluster.sandbox.local("admin") for cluster in self._others)
            for copy in admin.list("jobs")
            if _is_copy(copy)
        ]
        if not copies:
            return
        admin, metadata = copies[int(draw * len(copies))]
        job = replace(self._submitted[f"{metadata['namespace']}/{metadata['name']}"], kind="Job")
        name = f"{job.name}-{len(self._forged)}{_FORGED}"
        document = job_document(self._plan, replace(job, name=name))
        document["metadata"] |= {
            "labels": {**metadata["labels"], ORIGIN: str(uuid5(NAMESPACE_URL, name))},
            "annotations": metadata["annotations"],
        }
        document["spec"].pop("suspend", None)
        await admin.create("jobs", job.team, document)
        self._forged.append((admin, job.team, name))

    def faults(self, fleet: Fleet) -> dict[Fault, Callable[[float], Awaitable[None]]]:
        """Return what injects each fault of clusters. They last, while others come; at most one in each cluster."""
        works = {
            Fault.CUT_CLUSTER: self._cut,
            Fault.LOSE_CLUSTER: self._lose,
            Fault.SLOW_CLUSTER: self._slow,
            Fault.DISABLE_CLUSTER: self._disable,
            Fault.REBUILD_CLUSTER: self._rebuild,
            Fault.ORPHAN_CLUSTER: self._orphan,
        }

        async def inject(fault: Fault, draw: float) -> None:
            cluster = self._others[int(draw * len(self._others))]
            if cluster.fault is not None:
                await cluster.fault
            cluster.fault = asyncio.create_task(self._within(fault, cluster, works[fault](fleet, cluster, draw)))

        of_users = {
            Fault.SCALE: self._scale_some,
            Fault.DELETE_COPY: self._delete_copy,
            Fault.FORGE_COPY: self._forge_copy,
        }
        return {**of_users, **{fault: partial(inject, fault) for fault in works}}

    async def all_over(self) -> None:
        """Wait until no fault is under way. Raises Stuck."""
        for cluster in self._others:
            if cluster.fault is not None:
                await cluster.fault
        await asyncio.gather(*self._scaling)

    async def cleared(self) -> None:
        """Wait until no cluster has a copy whose object is gone. Raises Stuck."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while left := self._orphans():  # noqa: ASYNC110  Sluice deletes them
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise Stuck(f"copies whose objects are gone are left {_PATIENCE:g} s later: {left}") from error

    def _orphans(self) -> list[str]:
        hub = self._all[HUB].sandbox.local("admin")
        known = {obj["metadata"]["uid"] for plural in ("jobs", "pods") for obj in hub.list(plural)}
        return [
            f"{copy['metadata']['namespace']}/{copy['metadata']['name']} in {cluster.name}"
            for cluster in self._others
            for plural in ("jobs", "pods")
            for copy in cluster.sandbox.local("admin").list(plural)
            if _is_copy(copy) and copy["metadata"]["labels"][ORIGIN] not in known
        ]

    async def _within(self, fault: Fault, cluster: _Cluster, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await work
        except TimeoutError as error:
            raise Stuck(f"{fault}: {cluster.name} is not used again {_PATIENCE:g} s later") from error

    async def _cut(self, fleet: Fleet, cluster: _Cluster, draw: float) -> None:
        """Cut a cluster off, but not so long that it is given up."""
        with cluster.link.cut(silently=_bit(draw, 1)):
            try:
                async with asyncio.timeout(_SHORT):
                    await _until(fleet, cluster, "Lost")
            except TimeoutError:
                pass
        await _until(fleet, cluster, "Active")

    async def _lose(self, fleet: Fleet, cluster: _Cluster, draw: float) -> None:
        """Cut a cluster off until what was dispatched to it is queued again."""
        with cluster.link.cut(silently=_bit(draw, 1)):
            await asyncio.sleep(LOST_TIMEOUT)
            self._give_up(cluster)
            # Also copies whose Jobs were not unsuspended yet are given up: only Sluice can tell when.
            await _until(fleet, cluster, "Lost")
            while await _holds_quota(fleet, cluster):  # noqa: ASYNC110  another process writes it
                await asyncio.sleep(0.1)
            waiting = {*self._requeued} & {*cluster.copies.values()}
            while waiting & self._requeued:  # noqa: ASYNC110  the observer updates it
                await asyncio.sleep(0.05)
        await _until(fleet, cluster, "Active")
        if cluster.former:
            self.early.append(f"{cluster.name} is Active, and runs {len(cluster.former)} given up copies")

    async def _orphan(self, fleet: Fleet, cluster: _Cluster, draw: float) -> None:
        """Cut a cluster off, and delete a Job that runs there; submit it again when the cluster is back."""

        async def some_run() -> None:
            while not self._running_in(cluster):  # noqa: ASYNC110  the observer updates it
                await asyncio.sleep(0.05)

        if not await _within(_MOMENT, some_run()):
            return
        keys = self._running_in(cluster)
        key = keys[int(draw * 1009 % len(keys))]
        job = self._submitted[key]
        self.again[key] += 1
        with cluster.link.cut(silently=_bit(draw, 1)):
            deleting = asyncio.create_task(deleted(self.hub, path_of(job)))
            await _within(_SHORT, _until(fleet, cluster, "Lost"))
        await deleting
        self._orphaned += 1
        await self._submit(job)
        await _until(fleet, cluster, "Active")

    def _running_in(self, cluster: _Cluster) -> list[str]:
        """Return the Jobs of the hub that run in a cluster."""
        keys = (self._origins.get(origin, "") for origin in cluster.counted())
        return [key for key in keys if key in self._submitted and self._job_runs(key)]

    async def _slow(self, fleet: Fleet, cluster: _Cluster, draw: float) -> None:
        with cluster.link.slowed(0.1 + draw):
            await asyncio.sleep(_SHORT)
        await _until(fleet, cluster, "Active")

    async def _disable(self, fleet: Fleet, cluster: _Cluster, draw: float) -> None:
        state = "Draining" if _bit(draw, 1) else "Disabled"
        await fleet.written("PATCH", f"{_CLUSTERS}/{cluster.name}", {"spec": {"state": state}})
        await _until(fleet, cluster, state)
        await asyncio.sleep(3 * draw)
        await fleet.written("PATCH", f"{_CLUSTERS}/{cluster.name}", {"spec": {"state": "Active"}})
        await _until(fleet, cluster, "Active")

    async def _rebuild(self, fleet: Fleet, cluster: _Cluster, draw: float) -> None:
        """Destroy a cluster with all that it runs; build another one under its name, and accept that as its admin.

        Its users submit their Jobs again, which have not ended.
        """
        cluster.is_open.clear()
        with cluster.link.cut(silently=_bit(draw, 1)):
            await cluster.stack.aclose()
            lost = [
                (key, job)
                for key, job in self._submitted.items()
                if self._home(job) is cluster and not _is_dispatched(job)
            ]
            over = {key for key, _ in lost if _has_ended(self._account, key)}
            self.unseen += len(over)
            for key, _ in lost:
                if key not in over:
                    self.again[key] += 1
                    self._account.job(key, None)
            self._excuse(cluster)
            for key in cluster.pods:
                self._account.pod(key, None)
            for known in (cluster.copies, cluster.former, cluster.pods, cluster.ended):
                known.clear()
            await self._build(cluster)
        await _until_another(fleet, cluster)
        await fleet.written("PATCH", f"{_CLUSTERS}/{cluster.name}", {"spec": {"uid": cluster.uid}})
        await _until(fleet, cluster, "Active")
        await self._gated(cluster)
        await asyncio.gather(*(self._submit(job) for key, job in lost if key not in over))

    # --- checks

    def unfinished(self) -> str:
        """Return what the clusters have of Jobs that have not ended, for failure messages."""
        lines = []
        for key, job in sorted(self._submitted.items()):
            if _has_ended(self._account, key):
                continue
            for cluster in self._all.values():
                admin = cluster.sandbox.local("admin")
                own = [obj for obj in (admin.get("jobs", job.team, job.name),) if obj is not None]
                for found in own or [pod for pod in admin.list("pods", job.team) if workload_of(pod) == key]:
                    state = {"suspend": found["spec"].get("suspend"), **found.get("status", {})}
                    lines.append(f"{key} in {cluster.name}: {found['metadata']} {state}")
        return "\n".join(lines[:12])

    def errors(self) -> list[str]:
        """Return the exceptions of the sandboxes' controllers."""
        return self._errors

    def promises(self) -> list[Promise]:
        """Return what must hold over all clusters, and whether it does."""
        twice = [
            self._origins.get(origin, origin)
            for origin, count in self._successes.items()
            if count > 1 + self._excused[origin]
        ]
        also = sum(count > 1 for count in self._successes.values())
        again = f"{also} also where they were given up or being deleted"
        killed = ", ".join(f"{moment} {self._killed[moment]} times" for moment in _MOMENTS)
        dispatched = f"in {self._copied} dispatches; the leader was killed when a copy had just been {killed}"
        dispatched += f"; {self._orphaned} Jobs were deleted while the cluster of their copy was cut off"
        forged = [
            f"{namespace}/{name}"
            for admin, namespace, name in self._forged
            if (job := admin.get("jobs", namespace, name)) is None or job["spec"].get("suspend")
        ]
        where = f"{again}; {self._late} copies succeeded while they were deleted"
        return [
            (not self.doubled, f"nothing had two copies, {dispatched} {self.doubled[:2] or ''}"),
            (not twice, f"none ran to success twice; {where} {twice[:2] or ''}"),
            (not forged, f"{len(self._forged)} forged copies were left alone {forged[:2] or ''}"),
            (not self.early, f"nothing was started where given up copies ran {self.early[:2] or ''}"),
        ]


async def _within(seconds: float, wait: Awaitable[object]) -> bool:
    """Whether something happens within a time."""
    try:
        async with asyncio.timeout(seconds):
            await wait
    except TimeoutError:
        return False
    return True


def _follow(
    sandbox: Sandbox, group: str, plural: str, see: Callable[[StorageEvent], None], stack: AsyncExitStack
) -> None:
    """Call `see` with each change of a resource, when it is made."""
    collection: StoredCollection = sandbox.registry.store.collections[group, plural]
    position = collection.end

    def wake() -> None:
        nonlocal position
        events = collection.since(position) or []
        position = collection.end
        for event in events:
            see(event)

    collection.subscribe(wake)
    stack.callback(collection.unsubscribe, wake)


async def _until(fleet: Fleet, cluster: _Cluster, state: str) -> None:
    while (await _status(fleet, cluster)).get("state") != state:  # noqa: ASYNC110  another process writes it
        await asyncio.sleep(0.1)


async def _until_another(fleet: Fleet, cluster: _Cluster) -> None:
    """Wait until Sluice says that a cluster is another one than before."""
    while "another cluster" not in (await _status(fleet, cluster)).get("message", ""):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def _status(fleet: Fleet, cluster: _Cluster) -> dict[str, str]:
    for replica in fleet.replicas:
        code, text = await fleet.get(replica, f"{_CLUSTERS}/{cluster.name}")
        if code == 200:
            status: dict[str, str] = json.loads(text).get("status") or {}
            return status
    return {}


async def _holds_quota(fleet: Fleet, cluster: _Cluster) -> bool:
    """Whether, as far as Sluice says, anything that was dispatched to a cluster has quota there."""
    selected = f"spec.cluster={HUB},status.clusterName={cluster.name},status.state!=finished"
    for replica in fleet.replicas:
        code, text = await fleet.get(replica, f"{_WORKLOADS}?fieldSelector={selected}&limit=1")
        if code == 200:
            return bool(json.loads(text)["items"])
    return True


async def _serve(cluster: _Cluster, job: PlannedJob) -> None:
    """Create the Service that the pods of a LeaderWorkerSet need."""
    admin, name = cluster.sandbox.local("admin"), object_name(job)
    if admin.get("services", job.team, name) is None:
        await admin.create("services", job.team, {"metadata": {"name": name}, "spec": {"clusterIP": "None"}})


def _is_copy(obj: Document) -> bool:
    """Whether an object is a copy that Sluice has made."""
    is_forged = workload_of(obj).endswith(_FORGED) or obj["metadata"]["name"].endswith(_FORGED)
    return ORIGIN in (obj["metadata"].get("labels") or {}) and not is_forged


def _ends(copy: Document) -> set[str]:
    """Return how a Job or a pod has ended, as conditions of a Job; empty: it has not."""
    if copy["kind"] == "Job":
        return _conditions(copy)
    phase = copy.get("status", {}).get("phase")
    return {"Succeeded": {"Complete"}, "Failed": {"Failed"}}.get(phase, set())


def _conditions(job: Document) -> set[str]:
    return {one["type"] for one in job.get("status", {}).get("conditions") or () if one["status"] == "True"}


def _has_ended(account: SceneAccount, key: str) -> bool:
    job = account.jobs.get(key)
    return job is not None and job.phase in (Phase.DONE, Phase.FAILED)


def _is_dispatched(job: PlannedJob) -> bool:
    return _draw(job.name) % 2 == 0


def _draw(name: str) -> int:
    """Return a number for a Job; `storm` uses its remainder by 5."""
    return crc32(name.removesuffix(FIRST_GROUP).encode()) // 5


def _bit(draw: float, number: int) -> bool:
    """Return a binary digit of a draw, so that one draw decides several things."""
    return bool(int(draw * 1009 * 2**number) % 2)
