"""`sluice uninstall`: the cluster as it was before Sluice; first the plan, then, with --yes, what it says."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.cluster import ClusterFlags, cluster_options
from admission.cli.arguments.kubernetes import known_kinds
from admission.cli.configuration.settings import EXTERNAL_SERVICE
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.cluster.claim import DURATION, NAME, NAMESPACE
from admission.cluster.client import PatchType
from admission.cluster.errors import Conflict, Forbidden, Invalid, NotFound
from admission.controller.intake.served import watched
from admission.controller.state.faults import cause
from admission.kinds import all_kinds, scaling
from admission.kinds.base import ASKS_FOR, MANAGED, START_WITH_OWNER, SUBMITTED_BY
from admission.kinds.given import GIVEN_LABELS, given_labels
from admission.kinds.grouping import ROLE, STARTED_WITH
from admission.kinds.mcad import DISPATCH, is_legacy
from admission.kinds.patches import pointer
from admission.kinds.registry import api_root, holds_items
from admission.model.errors import InvalidObject
from admission.model.quantity import UNLIMITED
from webhooks.switch import OURS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.cluster.client import Client, Object
    from admission.kinds import Kind

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_GATES: Final = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
)
_ANNOTATIONS: Final = (SUBMITTED_BY, START_WITH_OWNER, ASKS_FOR, DISPATCH, ROLE, STARTED_WITH, GIVEN_LABELS)
_CLAIM: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
_OUR_POLICY: Final = ".sluice.dev' denied request"
"""What an API server says of an admission policy, after its name."""

_STILL_DENIED: Final = 10.0
"""Seconds for which an API server may go by a policy that was deleted; it looks at its list of them once a second."""


@dataclass
class Plan:
    """What an uninstall takes away, and which Jobs it gives back."""

    objects: list[tuple[str, str]] = field(default_factory=list)
    """Paths, in the order in which they go, and uids."""
    marked: list[Marked] = field(default_factory=list)
    """Objects with an annotation of Sluice's."""

    @property
    def waiting(self) -> int:
        """How many of them are suspended and not finished."""
        return sum(bool(each.resume) for each in self.marked)


@dataclass(frozen=True, slots=True)
class Marked:
    """An object that Sluice has written something into."""

    path: str
    object: Object
    resume: list[Object]
    """The JSON patch that unsuspends it, or gives it what it asks for; empty: it does not wait, or cannot be read."""

    def patch(self, *, restore: bool) -> list[Object]:
        """The JSON patch that takes off what Sluice has written and, to `restore` it, unsuspends it.

        That is its annotations, and the labels that it gave. It fails if the object has changed since.
        """
        resumed = self.resume if restore else []
        metadata, given = self.object["metadata"], given_labels(self.object)
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
@click.option("-n", "--namespace", default="sluice-system", show_default=True, help="Where Sluice was installed.")
@click.option("--restore", is_flag=True, help="Unsuspend what waits, as if it had never been queued.")
@click.option("--kind", "kind_name", default="", metavar="NAME", help="Give back the objects of one kind that is off.")
@click.option("--yes", is_flag=True, help="Do what the plan says.")
def uninstall(cluster: ClusterFlags, *, namespace: str, restore: bool, kind_name: str, yes: bool) -> None:
    """Take away what Sluice has registered and written in a cluster, once it is stopped.

    Without --yes you see the plan, and nothing is changed. The gate goes first, then the
    APIService, certificates and Leases; objects lose the annotations that Sluice gave them,
    and the queue label if that is from Sluice and not from their user.
    What runs, runs on; what waits stays suspended, or gated, unless you say --restore.
    What pod templates of StatefulSets, LeaderWorkerSets and Volcano Jobs say of the queue
    stays there: without Sluice it means nothing, and to take it out would restart pods.
    The database and what Helm or kustomize has made are left alone: the chart runs this by
    itself when its release is uninstalled. Kinds of your own are those that the
    configuration in the variable SLUICE_CONFIG describes.

    With --kind Sluice goes on, and only the objects of a kind that was taken out of its
    integrations are given back.

    \b
    Examples:
      sluice uninstall --context prod
      sluice uninstall --context prod --restore --yes
      sluice uninstall --context prod --kind jobset.x-k8s.io/jobset --restore
    """
    try:
        kinds = all_kinds(frameworks=(kind_name,)) if kind_name else known_kinds()
    except InvalidObject as error:
        raise click.BadParameter(error.causes[0][1], param_hint="--kind") from error

    async def run() -> None:
        async with cluster.client() as client:
            if kind_name:
                await _refuse_while_it_is_gated(client, kinds.gated[0], kind_name)
            else:
                await _refuse_while_it_decides(client)
            plan = Plan([] if kind_name else await _own_objects(client, namespace), await _marked(client, kinds))
            for line in _lines(plan, restore=restore):
                print_line(line)
            if not yes:
                print_line("nothing was changed; add --yes")
                return
            await _carry_out(client, plan, restore=restore)
            print_line("done")

    asyncio.run(run())


async def _refuse_while_it_decides(client: Client) -> None:
    """It would register everything again, and stop what was started."""
    try:
        spec = (await client.get(_CLAIM))["spec"]
    except NotFound:
        return
    renewed = datetime.fromisoformat(spec["renewTime"]) if spec.get("renewTime") else None
    if spec.get("holderIdentity") and renewed and (datetime.now(UTC) - renewed).total_seconds() < DURATION:
        raise CommandError(
            f"Sluice decides still, as {spec['holderIdentity']}: stop it, and wait {DURATION:g} s if it was killed"
        )


async def _refuse_while_it_is_gated(client: Client, kind: Kind, name: str) -> None:
    """Sluice would stop what was started."""
    rules: list[Object] = []
    with suppress(NotFound):
        found = await client.get(f"{_ADMISSION}/mutatingwebhookconfigurations/sluice")
        rules += [rule for webhook in found.get("webhooks") or () for rule in webhook["rules"]]
    with suppress(NotFound):
        policy = await client.get(f"{_ADMISSION}/mutatingadmissionpolicies/kinds.gate.sluice.dev")
        rules += policy["spec"]["matchConstraints"]["resourceRules"]
    if any(kind.group in rule["apiGroups"] and kind.plural in rule["resources"] for rule in rules):
        raise CommandError(f"{name} is still queued: take it out of integrations.frameworks, and restart Sluice first")


async def _own_objects(client: Client, namespace: str) -> list[tuple[str, str]]:
    """Path and uid of what Sluice has registered, in the order in which it goes."""
    objects = []
    offered = {resource["name"] for resource in (await client.get(_ADMISSION))["resources"]}
    for plural in _GATES:
        if plural in offered:
            found = await client.get(f"{_ADMISSION}/{plural}", params={"labelSelector": OURS})
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


async def _marked(client: Client, kinds: Iterable[Kind]) -> list[Marked]:
    """The objects of these kinds that the cluster has and Sluice has marked."""
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
                            found.append(Marked(where, obj, _resume_patch(kind, obj, where)))
            except NotFound:
                continue
            except Forbidden:
                if kind.group == "batch":
                    raise
                continue  # so it is also where a kind is not installed, to who has no rights to it
            break
    return found


def _resume_patch(kind: Kind, obj: Object, path: str) -> list[Object]:
    try:
        seen = kind.observe(obj)
        # Of what runs the webhook has noted what it is to have more; what waits has it in its spec.
        more = kind.scale_patch(obj, dict.fromkeys(scaling.asked_for(obj), UNLIMITED))
        # What MCAD's AppWrappers hold only Sluice, or MCAD, makes.
        waits = seen.suspended and seen.finished is None and not (holds_items(kind) and is_legacy(obj))
        return [*more, *(kind.resume_patch(obj) if waits else ())]
    except Exception as error:  # noqa: BLE001  one object that cannot be read must not keep others from being given back
        print_line(f"cannot be read, and is not unsuspended: {path}: {cause(error)}", err=True)
        return []


def _lines(plan: Plan, *, restore: bool) -> list[str]:
    lines = [f"delete {path.rsplit('/', 2)[1]}/{path.rsplit('/', 1)[1]}" for path, _ in plan.objects]
    lines.append(f"take what Sluice has noted from {_objects(len(plan.marked))}")
    left = "start" if restore else "leave as it is"
    lines.append(f"{left} what waits: {_objects(plan.waiting)}")
    return lines


def _objects(number: int) -> str:
    return f"{number} object{'' if number == 1 else 's'}"


async def _carry_out(client: Client, plan: Plan, *, restore: bool) -> None:
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
        except (Conflict, Invalid):
            print_line(f"left as it is, because it has just changed: {each.path}; run the command again", err=True)


async def _patch(client: Client, marked: Marked, *, restore: bool) -> None:
    """Give it back. API servers go by a policy of ours for a second or so after its deletion: that is waited out."""
    deadline = time.monotonic() + _STILL_DENIED
    while True:
        try:
            await client.patch(marked.path, marked.patch(restore=restore), patch_type=PatchType.JSON)
        except Forbidden as error:
            if _OUR_POLICY not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return
        await asyncio.sleep(0.25)
