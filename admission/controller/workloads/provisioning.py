"""Controller of the AdmissionChecks that ask an autoscaler for nodes by ProvisioningRequests, as Kueue has it.

It runs with the leader, from the first such AdmissionCheck on, and is level-based: what is requested follows from the
workloads that hold quota, and what a check says from the requests as they are. It reports like a controller of somebody
else: the report is committed before it has an effect.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import AlreadyExists, Forbidden, NotFound
from admission.cluster.events import ObjectReference
from admission.cluster.informer import Informer
from admission.cluster.writer import Creation, Deletion
from admission.kinds import provisioning
from admission.model.checks import CheckReport
from admission.model.errors import ClusterError, InvalidObject, Misconfigured, StoreError
from admission.store.audit_log import Author
from admission.store.errors import Conflict
from admission.store.errors import NotFound as NoWorkload
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from admission.cluster.client import Client, Object
    from admission.cluster.events import EventRecorder
    from admission.cluster.informer import WatchedChange
    from admission.cluster.writer import Writer
    from admission.controller.state.context import Context
    from admission.controller.state.faults import Faults
    from admission.controller.state.leader_state import WorkloadRegistry
    from admission.controller.state.tracked import Tracked
    from admission.kinds.provisioning import Requested, WantedRequest
    from admission.kinds.registry import Kinds
    from admission.model.checks import CheckState
    from admission.model.workload import Workload
    from admission.store.records import CheckRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

PAUSE: Final = 0.5
"""Seconds between two passes over the workloads."""
RETRY: Final = 10.0
"""Seconds until a write that the API server has refused is tried again."""
_AUTHOR: Final = Author("sluice", reason="ProvisioningRequest")
_COLLECTION: Final = f"/apis/{provisioning.API_VERSION}/namespaces/{{}}/provisioningrequests"
_TEMPLATES: Final = "/api/v1/namespaces/{}/podtemplates"
_UNSERVED: Final = (
    f"the API server does not serve ProvisioningRequests ({provisioning.API_VERSION}): install an autoscaler that "
    "answers them"
)


class Provisioning:
    """Requests of one leader, and the reports that follow from them."""

    def __init__(
        self,
        store: Store,
        client: Client,
        writer: Writer,
        events: EventRecorder,
        kinds: Kinds,
        context: Context,
        registry: Callable[[], WorkloadRegistry],
        faults: Faults,
    ) -> None:
        """`registry`: returns the unfinished workloads."""
        self._store = store
        self._client = client
        self._writer = writer
        self._events = events
        self._kinds = kinds
        self._context = context
        self._registry = registry
        self._faults = faults
        self._informer = Informer(client, provisioning.COLLECTION, label_selector=provisioning.SELECTOR)
        self._seen: dict[tuple[str, str], Requested] = {}
        """By (namespace, name)."""
        self._wake = asyncio.Event()
        self._busy: set[tuple[str, str]] = set()
        """Requests that are being created or deleted."""
        self._refused: dict[tuple[str, str], str] = {}
        """Why a request could not be made, until it is tried again, or is not wanted any more."""
        self._wanted: set[tuple[str, str]] = set()
        """Requests that the last pass wanted."""
        self._complete: set[str] = set()
        """Uids of requests all of whose PodTemplates exist."""

    def changed(self) -> None:
        """Workloads or queue objects have changed."""
        if self._context.provisioned_checks:
            self._wake.set()

    async def run(self) -> None:
        """Create ProvisioningRequests and report on them, once an AdmissionCheck asks for that; until cancelled."""
        await self._wake.wait()
        log.info("watching ProvisioningRequests, as an AdmissionCheck asks for nodes")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="provisioning requests")
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._pass(group)
                await asyncio.sleep(PAUSE)

    async def _watch(self) -> None:
        async with aclosing(self._informer.batches()) as batches:
            async for batch in batches:
                for change in batch:
                    self._note(change)
                self._wake.set()

    def _note(self, change: WatchedChange) -> None:
        namespace, _, name = change.key.partition("/")
        if change.type == "DELETED" or change.object is None:
            self._seen.pop((namespace, name), None)
            return
        try:
            self._seen[namespace, name] = provisioning.read(change.object)
        except Exception as error:  # noqa: BLE001  an autoscaler may have written anything into its status
            self._faults.report(f"ProvisioningRequest {change.key}", error)

    async def _pass(self, group: asyncio.TaskGroup) -> None:
        """Bring requests and checks of all workloads to what they have to be."""
        if not self._informer.synced.is_set() and not isinstance(self._informer.failure, NotFound | Forbidden):
            self._again(PAUSE)
            return
        self._wanted.clear()
        made: dict[tuple[str, str], list[Requested]] = {}
        for seen in self._seen.values():
            made.setdefault((seen.workload, seen.check), []).append(seen)
        reports: list[tuple[Tracked, float | None, CheckReport]] = []
        for tracked in self._registry():
            if tracked.record.state is not State.ADMITTED:
                continue
            for check in tracked.checks:
                if check.name not in self._context.provisioned_checks:
                    continue
                own = made.pop((tracked.uid, check.name), [])
                try:
                    report = self._answer(tracked, check, own, group)
                except Exception as error:  # noqa: BLE001  a defect about one workload must not end the others
                    self._faults.report(f"the ProvisioningRequest of workload {tracked.record.workload.key}", error)
                else:
                    if report is not None and not _says(check, report):
                        reports.append((tracked, tracked.record.admitted_at, report))
        for unused in made.values():
            self._delete(unused, group)
        self._refused = {key: why for key, why in self._refused.items() if key in self._busy or key in self._wanted}
        for tracked, admitted_at, report in reports:
            await self._report(tracked, admitted_at, report)

    def _answer(
        self, tracked: Tracked, check: CheckRecord, own: list[Requested], group: asyncio.TaskGroup
    ) -> CheckReport | None:
        """Return what the check has to say now; None: what it says. Requests what has to be requested.

        `own`: the requests for the check that exist.
        """
        if not tracked.record.checks_pending:  # the nodes are its own until it ends, whatever becomes of the config
            lost = next((each for each in own if each.is_true("CapacityRevoked")), None)
            return None if lost is None else _report(check, "Rejected", lost.message("CapacityRevoked"))
        name = self._context.provisioned_checks[check.name]
        config = self._context.provisioning_configs.get(name)
        if config is None:
            missing = f'there is no ProvisioningRequestConfig "{name}"' if name else "it names no configuration"
            return _report(check, "Pending", f"the check is not active: {missing}")
        workload, admission, obj, seen = (
            tracked.record.workload, tracked.record.admission, tracked.object, tracked.seen
        )  # fmt: skip
        if admission is None or obj is None or seen is None:
            return None
        try:
            wanted = provisioning.wanted(
                seen.kind, obj, workload, admission,
                flavors=self._context.flavors, config=config, check=check.name, attempt=check.retries + 1,
                owner=None if self._kinds.is_composed(workload) else _owner(workload),
            )  # fmt: skip
        except Misconfigured as error:
            return _report(check, "Rejected", str(error))
        fitting = None if wanted is None else next((one for one in own if provisioning.is_as_wanted(one, wanted)), None)
        self._delete([one for one in own if one is not fitting], group)
        if wanted is None:
            return _report(check, "Ready", provisioning.NOT_NEEDED)
        key = workload.namespace, wanted.request["metadata"]["name"]
        self._wanted.add(key)
        if fitting is None or fitting.deleting:
            if key not in self._seen and key not in self._busy:
                self._run(key, self._create(tracked, wanted), group)
        else:
            if fitting.uid not in self._complete and key not in self._busy:
                self._run(key, self._create_templates(fitting.uid, wanted), group)
            if key not in self._refused:
                return provisioning.answer(fitting, wanted, config)
        return _report(check, "Pending", self._refused.get(key, "the nodes are being requested"))

    def _again(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._wake.set)

    def _delete(self, unused: Iterable[Requested], group: asyncio.TaskGroup) -> None:
        for seen in unused:
            key = seen.namespace, seen.name
            if not seen.deleting and key not in self._busy:
                self._run(key, self._delete_one(seen), group)

    def _run(self, key: tuple[str, str], work: Coroutine[object, object, None], group: asyncio.TaskGroup) -> None:
        self._busy.add(key)
        group.create_task(self._finish(key, work), name=f"provisioning request {'/'.join(key)}")

    async def _finish(self, key: tuple[str, str], work: Coroutine[object, object, None]) -> None:
        """Do what changes a request; if the API server refuses it, say so in the check, and try again later."""
        self._refused.pop(key, None)
        try:
            await work
        except ClusterError as error:
            log.warning("ProvisioningRequest %s: %s", "/".join(key), error)
            self._refused[key] = _UNSERVED if isinstance(error, NotFound) else str(error)
            self._wake.set()
            await asyncio.sleep(RETRY)
        self._busy.discard(key)
        self._wake.set()

    async def _delete_one(self, seen: Requested) -> None:
        self._complete.discard(seen.uid)
        path = f"{_COLLECTION.format(seen.namespace)}/{seen.name}"
        with suppress(NotFound):
            await self._writer.request(Deletion(path, seen.uid, propagation="Background"))

    async def _create(self, tracked: Tracked, wanted: WantedRequest) -> None:
        request = wanted.request
        namespace = request["metadata"]["namespace"]
        made = await self._writer.request(Creation(_COLLECTION.format(namespace), request))
        seen = self._seen[namespace, request["metadata"]["name"]] = provisioning.read(made)
        workload = tracked.record.workload
        about = ObjectReference(workload.api_version, workload.kind, workload.name, workload.uid, workload.namespace)
        note = f'Created ProvisioningRequest: "{seen.name}"'
        self._events.record(about, reason="ProvisioningRequestCreated", action="Provision", note=note)
        await self._create_templates(seen.uid, wanted)

    async def _create_templates(self, uid: str, wanted: WantedRequest) -> None:
        """Create the PodTemplates of a request, which are deleted with it. Raises ClusterError."""
        metadata = wanted.request["metadata"]
        collection = _TEMPLATES.format(metadata["namespace"])
        owner = {"apiVersion": provisioning.API_VERSION, "kind": provisioning.KIND, "controller": True}
        owner |= {"name": metadata["name"], "uid": uid}
        for template in wanted.templates:
            body = {**template, "metadata": {**template["metadata"], "ownerReferences": [owner]}}
            try:
                await self._writer.request(Creation(collection, body))
            except AlreadyExists:
                found = await self._client.get(f"{collection}/{body['metadata']['name']}")
                if owner["uid"] not in [each["uid"] for each in found["metadata"].get("ownerReferences") or ()]:
                    raise  # of a former request: it goes soon
        self._complete.add(uid)

    async def _report(self, tracked: Tracked, admitted_at: float | None, report: CheckReport) -> None:
        """Write a report about the admission that began at `admitted_at`."""
        try:
            await self._store.orders.report(tracked.uid, [report], author=_AUTHOR, admitted_at=admitted_at)
        except (Conflict, NoWorkload, InvalidObject):
            pass  # that admission has ended, or its ClusterQueue no longer requires the check
        except StoreError as error:
            log.warning("the admission check %s of %s: %s", report.name, tracked.record.workload.key, error)
            self._again(RETRY)


def _report(check: CheckRecord, state: CheckState, message: str) -> CheckReport:
    return CheckReport(name=check.name, state=state, message=message)


def _says(check: CheckRecord, report: CheckReport) -> bool:
    """Whether the check says so already."""
    return (check.state, check.message, check.pod_set_updates) == (report.state, report.message, report.pod_set_updates)


def _owner(workload: Workload) -> Object:
    """Return a reference to a workload's object, with which its requests are deleted."""
    return {
        "apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name, "uid": workload.uid
    }  # fmt: skip
