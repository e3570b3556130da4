"""`sluice uninstall`: print a plan, or with `--yes` remove Sluice's objects, annotations and labels from a cluster."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.cluster import ClusterFlags, cluster_options
from admission.cli.arguments.database import DatabaseFlags
from admission.cli.arguments.job_kinds import known_kinds
from admission.cli.configuration.settings import EXTERNAL_SERVICE
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.cluster.claim import LEASE_DURATION, NAME, NAMESPACE
from admission.cluster.client import PatchType
from admission.cluster.errors import Conflict, Forbidden, Invalid, NotFound, StatusError
from admission.controller.intake.served import watched
from admission.controller.state.faults import cause
from admission.kinds import all_kinds, scaling
from admission.kinds.added_labels import ADDED_LABELS, added_labels
from admission.kinds.base import MANAGED, SCALE_REQUEST, START_WITH_OWNER, SUBMITTED_BY, SUBMITTER_GROUPS, WORKLOAD_UID
from admission.kinds.dispatched import COPY, RUNS_IN, runs_in
from admission.kinds.grouping import ROLE, STARTED_WITH
from admission.kinds.mcad import DISPATCH, is_legacy
from admission.kinds.patches import pointer
from admission.kinds.registry import api_root, holds_items
from admission.model.errors import InvalidObject, Misconfigured
from admission.model.quantity import UNLIMITED
from webhooks.switch import OWN_OBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.cluster.client import Client, Object
    from admission.kinds import Kind
    from admission.kinds.base import Observed

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_GATES: Final = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
)
"""Types of webhooks and policies, in the order of their deletion: a binding before its policy."""
_ANNOTATIONS: Final = (
    SUBMITTED_BY, SUBMITTER_GROUPS, START_WITH_OWNER, SCALE_REQUEST, DISPATCH, ROLE, STARTED_WITH, ADDED_LABELS,
    RUNS_IN, COPY,
)  # fmt: skip
"""Annotations that Sluice sets on objects of users."""
_CLAIM: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
"""Path of the Lease by which a leader claims the cluster."""
_POLICY_DENIAL: Final = ".sluice.dev' denied request"
"""Text in the error of an API server after the name of a policy of Sluice that denies a request."""

_DENIAL_TIMEOUT: Final = 10.0
"""Seconds to retry a denied request: API servers enforce a deleted policy until their next check, once a second."""


@dataclass
class UninstallPlan:
    """Objects that an uninstall deletes, and objects of users that it restores."""

    objects: list[tuple[str, str]] = field(default_factory=list)
    """(path, uid) of the objects to delete, in this order."""
    marked: list[MarkedObject] = field(default_factory=list)
    """Objects of users with an annotation of Sluice."""

    @property
    def waiting(self) -> int:
        """Number of those that are suspended and not finished."""
        return sum(bool(each.resume) for each in self.marked)

    @property
    def stopped(self) -> int:
        """Number of those that are stopped and visibly still have the fields that their start has set."""
        return sum(each.is_stopped for each in self.marked)

    @property
    def restored(self) -> int:
        """Number of those that are restored as they were before their start."""
        return sum(each.restoration is not None for each in self.marked)


@dataclass(frozen=True, slots=True)
class MarkedObject:
    """An object of a user that Sluice has annotated."""

    path: str
    kind: Kind
    object: Object
    original: Object
    """Fields that its start has replaced, from the database; empty: unknown, or it was not started."""
    resume: list[Object] = field(default_factory=list)
    """JSON patch that unsuspends it or scales it to the requested pods; empty: it is not waiting or cannot be read."""
    is_stopped: bool = False
    """Whether it is suspended after it ran: pods are still terminating, or its templates have the label of a start."""
    restoration: Object | list[Object] | None = None
    """Merge or JSON patch that restores it as it was before its start; None: it is running, or nothing differs."""

    def patch(self, *, restore: bool) -> list[Object]:
        """Return the JSON patch that removes Sluice's annotations and labels, and with `restore` unsuspends the object.

        Labels are those that Sluice set itself. The patch tests their values: it fails if the object was changed since.
        """
        resumed = self.resume if restore else []
        metadata, given = self.object["metadata"], added_labels(self.object)
        same = [{"op": "test", "path": pointer("metadata", "labels", key), "value": given[key]} for key in given]
        removed = [
            {"op": "remove", "path": pointer("metadata", where, key)}
            for where, key in (
                *(("annotations", key) for key in _ANNOTATIONS),
                *(("labels", key) for key in (MANAGED, *given)),
            )
            if key in (metadata.get(where) or {})
        ]
        return [*resumed, *same, *(each for each in removed if each not in resumed)]


@click.command()
@cluster_options
@click.option(
    "-n",
    "--namespace",
    default="sluice-system",
    metavar="NAME",
    show_default=True,
    help="Namespace in which Sluice is installed.",
)
@click.option("--restore", is_flag=True, help="Unsuspend waiting objects, as if they had never been queued.")
@click.option(
    "--kind", "kind_name", default="", metavar="KIND", help="Only clean up objects of a kind that is no longer enabled."
)
@click.option("--database-url", metavar="URL", help="Database with which stopped objects are restored as submitted.")
@click.option("--database-url-file", type=click.Path(path_type=Path), help="File with that URL.")
@click.option("--yes", is_flag=True, help="Carry out the plan.")
def uninstall(
    cluster: ClusterFlags,
    *,
    namespace: str,
    restore: bool,
    kind_name: str,
    database_url: str | None,
    database_url_file: Path | None,
    yes: bool,
) -> None:
    """Remove the objects and annotations of Sluice from a cluster, after Sluice is stopped.

    Without --yes the plan is printed, and nothing is changed. The gate is deleted first,
    then the APIService, certificates and Leases; objects lose the annotations of Sluice,
    and the queue label if Sluice and not their user has set it. Running objects keep
    running; waiting ones stay suspended or gated, unless --restore is used.

    Objects that were stopped after they had run, and are not restored yet, keep the node
    selectors and the number of pods of their start, unless the database is given.

    Queue names in the pod templates of StatefulSets, LeaderWorkerSets and Volcano Jobs
    are kept: without Sluice they have no effect, and their removal would restart pods.
    The database is kept, and so are the objects that Helm or kustomize created; the chart
    runs this command itself when its release is uninstalled. Custom kinds are read from
    the configuration file in SLUICE_CONFIG.

    With --kind Sluice keeps running, and only objects of a kind that was removed from its
    integrations are cleaned up.

    \b
    Examples:
      sluice uninstall --context prod
      sluice uninstall --context prod --restore --yes
      sluice uninstall --context prod --database-url-file database-url --yes
      sluice uninstall --context prod --kind jobset.x-k8s.io/jobset --restore
    """
    try:
        kinds = all_kinds(frameworks=(kind_name,)) if kind_name else known_kinds()
    except InvalidObject as error:
        raise click.BadParameter(error.causes[0][1], param_hint="--kind") from error

    database = DatabaseFlags({"database_url": database_url, "database_url_file": database_url_file}, None)

    async def run() -> None:
        originals = await _originals(database.url()) if database.is_set else {}
        async with cluster.client() as client:
            if kind_name:
                await _refuse_if_enabled(client, kinds.gated[0], kind_name)
            else:
                await _refuse_if_running(client)
            own = [] if kind_name else await own_objects(client, namespace)
            plan = UninstallPlan(own, await marked_objects(client, kinds, originals))
            for line in plan_lines(plan, restore=restore, knows_originals=database.is_set):
                print_line(line)
            if yes:
                await carry_out(client, plan, restore=restore)
            print_line("done" if yes else "nothing was changed; use --yes to carry out the plan")

    asyncio.run(run())


async def _refuse_if_running(client: Client) -> None:
    """Raise CommandError if a leader is active: it would register everything again, and stop what was unsuspended."""
    if holder := await is_running(client):
        raise CommandError(
            f"Sluice is still running, as {holder}: stop it first; if it was killed, wait {LEASE_DURATION:g} s"
        )


async def is_running(client: Client) -> str:
    """Return the process that decides for the cluster; empty: none does."""
    try:
        spec = (await client.get(_CLAIM)).get("spec") or {}
    except NotFound:
        return ""
    renewed = datetime.fromisoformat(spec["renewTime"]) if spec.get("renewTime") else None
    holds = renewed is not None and (datetime.now(UTC) - renewed).total_seconds() < LEASE_DURATION
    return str(spec.get("holderIdentity") or "") if holds else ""


async def _refuse_if_enabled(client: Client, kind: Kind, name: str) -> None:
    """Raise CommandError if webhooks or policies still gate the kind: Sluice would stop what was unsuspended."""
    rules: list[Object] = []
    with suppress(NotFound):
        found = await client.get(f"{_ADMISSION}/mutatingwebhookconfigurations/sluice")
        rules += [rule for webhook in found.get("webhooks") or () for rule in webhook["rules"]]
    with suppress(NotFound):
        policy = await client.get(f"{_ADMISSION}/mutatingadmissionpolicies/kinds.gate.sluice.dev")
        rules += policy["spec"]["matchConstraints"]["resourceRules"]
    if any(kind.group in rule["apiGroups"] and kind.plural in rule["resources"] for rule in rules):
        raise CommandError(f"{name} is still enabled: add it to integrations.exclude and restart Sluice first")


async def own_objects(client: Client, namespace: str) -> list[tuple[str, str]]:
    """Return (path, uid) of the objects that Sluice has registered, in the order of their deletion."""
    objects = []
    served = {resource["name"] for resource in (await client.get(_ADMISSION))["resources"]}
    for plural in _GATES:
        if plural in served:
            found = await client.get(f"{_ADMISSION}/{plural}", params={"labelSelector": OWN_OBJECTS})
            metadata = [obj["metadata"] for obj in found["items"]]
            objects += [(f"{_ADMISSION}/{plural}/{each['name']}", each["uid"]) for each in metadata]
    for path in (
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.sluice.dev",
        f"/api/v1/namespaces/{namespace}/services/{EXTERNAL_SERVICE.partition('/')[2]}",
        f"/api/v1/namespaces/{namespace}/secrets/sluice-webhook-certificates",
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/sluice",
        _CLAIM,
    ):
        try:
            objects.append((path, (await client.get(path))["metadata"]["uid"]))
        except NotFound:
            continue
    return objects


async def _originals(url: str) -> dict[str, Object]:
    """Return the fields that its start has replaced, by uid of the object, of all unfinished workloads."""
    from admission.store.records import State
    from admission.store.store import Store
    from admission.store.workloads.queries import ColumnFilter

    unfinished = ColumnFilter("state", frozenset({State.FINISHED.value}), negated=True)
    async with Store.open(url) as store:
        found = (await store.workloads.list(where=[unfinished])).workloads
    return {each.workload.uid: each.original for each in found if each.original}


async def marked_objects(client: Client, kinds: Iterable[Kind], originals: Mapping[str, Object]) -> list[MarkedObject]:
    """Return the objects of these kinds in the cluster that Sluice has annotated."""
    found = []
    for kind in kinds:
        for version in kind.versions:
            base = api_root(kind.group, version)
            params = {"labelSelector": watched(kind)}
            try:
                async for page in client.list_pages(f"{base}/{kind.plural}", params=params):
                    for obj in page["items"]:
                        metadata = obj["metadata"]
                        if any(key in (metadata.get("annotations") or {}) for key in _ANNOTATIONS):
                            where = f"{base}/namespaces/{metadata['namespace']}/{kind.plural}/{metadata['name']}"
                            found.append(_read(where, kind, obj, originals.get(metadata["uid"], {})))
            except NotFound:
                continue
            except Forbidden:
                if kind.group == "batch":
                    raise
                continue  # also the answer for a kind that is not installed, if RBAC has no rule for it
            break
    return found


def _read(path: str, kind: Kind, obj: Object, original: Object) -> MarkedObject:
    """Return the object with the patches that restore and unsuspend it; without them if it cannot be read."""
    try:
        observed = kind.observe(obj)
        # The webhook notes in an annotation how many more pods a running object is to get; a waiting one has them in
        # its spec.
        request = dict.fromkeys(scaling.scale_request(obj), UNLIMITED)
        scale_up = [] if kind.scaling is None else kind.scaling.scale_patch(obj, request)
        # The items of an MCAD AppWrapper are created by Sluice or MCAD only: unsuspended it would not run.
        # Beside a copy that runs elsewhere it would run twice.
        is_kept = (holds_items(kind) and is_legacy(obj)) or bool(runs_in(obj))
        waits = observed.suspended and observed.finished is None and not is_kept
        return MarkedObject(
            path,
            kind,
            obj,
            original,
            resume=[*scale_up, *(kind.resume_patch(obj) if waits else ())],
            is_stopped=waits and _is_stopped(kind, obj, observed),
            restoration=kind.suspension.restore_patch(obj, original)
            if waits and original and kind.suspension
            else None,
        )
    except Exception as error:  # noqa: BLE001  one object that cannot be read must not keep others from being restored
        print_line(f"cannot be read, and is not unsuspended: {path}: {cause(error)}", err=True)
        return MarkedObject(path, kind, obj, original)


def _is_stopped(kind: Kind, obj: Object, observed: Observed) -> bool:
    with suppress(Misconfigured):  # without readable templates there is none with a label
        labels = ((each.get("metadata") or {}).get("labels") or {} for each in kind.templates(obj))
        if any(WORKLOAD_UID in each for each in labels):
            return True
    return kind.reports_pods and observed.active


def plan_lines(plan: UninstallPlan, *, restore: bool, knows_originals: bool) -> list[str]:
    """Return the plan for users."""
    lines = [f"delete {path.rsplit('/', 2)[1]}/{path.rsplit('/', 1)[1]}" for path, _ in plan.objects]
    if knows_originals:
        lines.append(f"restore as submitted what is stopped: {_objects(plan.restored)}")
    elif plan.stopped:
        lines.append(f"keep the fields that a start has set: {_objects(plan.stopped)}; to restore them: --database-url")
    lines.append(f"remove the annotations of Sluice from {_objects(len(plan.marked))}")
    start = "; to start them: --restore" if plan.waiting and not restore else ""
    lines.append(f"{'unsuspend' if restore else 'keep suspended'} what is waiting: {_objects(plan.waiting)}{start}")
    return lines


def _objects(number: int) -> str:
    return f"{number} object{'' if number == 1 else 's'}"


async def carry_out(client: Client, plan: UninstallPlan, *, restore: bool) -> None:
    """Delete and patch the objects of the plan, except those that are gone; report those that cannot be patched."""
    refused = 0
    for path, uid in plan.objects:
        try:
            await client.delete(path, {"preconditions": {"uid": uid}})
        except NotFound:
            continue
    for each in plan.marked:
        try:
            await _patch(client, each, restore=restore)
        except NotFound:
            continue
        except _NotRestored as error:
            message = f"not restored: {each.path}: {error}; run the command again when its pods have terminated"
            print_line(message, err=True)
        except (Conflict, Invalid):
            print_line(f"skipped, because it has just been changed: {each.path}; run the command again", err=True)
        except StatusError as error:  # for example by the webhook of another system
            refused += 1
            print_line(f"not cleaned up: {error}", err=True)
    if refused:
        raise CommandError(f"{_objects(refused)} could not be cleaned up, see above; then run the command again")


class _NotRestored(Exception):
    """Raised with the API server's message if it refuses to restore an object."""


async def _restore(client: Client, marked: MarkedObject) -> MarkedObject:
    """Restore a stopped object as it was before its start, and read it again. Raises _NotRestored."""
    if (patch := marked.restoration) is None or (suspension := marked.kind.suspension) is None:
        return marked
    try:
        try:
            obj = await _send(client, marked.path, patch)
        except Invalid:  # before Kubernetes 1.36 a Job's template may change only after its start time was cleared
            cleared = suspension.clear_start_time_patch(marked.object)
            obj = await client.patch(f"{marked.path}/status", cleared)
            patch = suspension.restore_patch(obj, marked.original)
            obj = obj if patch is None else await _send(client, marked.path, patch)
    except (Conflict, Invalid) as error:
        raise _NotRestored(str(error)) from error
    return _read(marked.path, marked.kind, obj, {})


async def _send(client: Client, path: str, patch: Object | list[Object]) -> Object:
    patch_type = PatchType.JSON if isinstance(patch, list) else PatchType.MERGE
    return await client.patch(path, patch, patch_type=patch_type)


async def _patch(client: Client, marked: MarkedObject, *, restore: bool) -> None:
    """Patch an object, with retries while API servers still enforce a policy of Sluice that was just deleted."""
    deadline = time.monotonic() + _DENIAL_TIMEOUT
    while True:
        try:
            marked = await _restore(client, marked)
            await client.patch(marked.path, marked.patch(restore=restore), patch_type=PatchType.JSON)
        except Forbidden as error:
            if _POLICY_DENIAL not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return
        await asyncio.sleep(0.25)
