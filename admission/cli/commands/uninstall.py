"""`sluice uninstall`: the cluster as it was before Sluice; first the plan, then, with --yes, what it says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.cluster import ClusterFlags, cluster_options
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.cluster.claim import DURATION, NAME, NAMESPACE
from admission.cluster.errors import Forbidden, NotFound
from admission.kinds import all_kinds, frameworks_known
from admission.kinds.base import START_WITH_OWNER, SUBMITTED_BY
from webhooks.switch import OURS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cluster.client import Client, Object

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_GATES: Final = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
)
_CLAIM: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"


@dataclass
class Plan:
    """What an uninstall takes away, and which Jobs it gives back."""

    objects: list[str] = field(default_factory=list)
    """Paths, in the order in which they go."""
    marked: list[tuple[str, Object]] = field(default_factory=list)
    """Jobs with an annotation of Sluice's, by path."""
    waiting: list[tuple[str, Object]] = field(default_factory=list)
    """Those of them that are suspended and not finished."""


@click.command()
@cluster_options
@click.option("-n", "--namespace", default="sluice-system", show_default=True, help="Where Sluice was installed.")
@click.option("--start-jobs", is_flag=True, help="Start the Jobs that wait; without it they stay suspended.")
@click.option("--yes", is_flag=True, help="Do what the plan says.")
def uninstall(cluster: ClusterFlags, *, namespace: str, start_jobs: bool, yes: bool) -> None:
    """Take away what Sluice has registered and written in a cluster, once it is stopped.

    Without --yes you see the plan, and nothing is changed. The gate goes first, then the
    APIService, certificates and Leases; Jobs lose the annotation that Sluice gave them.
    What runs, runs on. The database and what Helm or kustomize has made are left alone:
    the chart runs this by itself when its release is uninstalled.

    \b
    Examples:
      sluice uninstall --context prod
      sluice uninstall --context prod --start-jobs --yes
    """

    async def run() -> None:
        async with cluster.client() as client:
            await _refuse_while_it_decides(client)
            plan = await _plan(client, namespace)
            for line in _lines(plan, start_jobs=start_jobs):
                print_line(line)
            if not yes:
                print_line("nothing was changed; add --yes")
                return
            await _carry_out(client, plan, start_jobs=start_jobs)
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


async def _plan(client: Client, namespace: str) -> Plan:
    plan = Plan()
    offered = {resource["name"] for resource in (await client.get(_ADMISSION))["resources"]}
    for plural in _GATES:
        if plural in offered:
            found = await client.get(f"{_ADMISSION}/{plural}", params={"labelSelector": OURS})
            plan.objects += [f"{_ADMISSION}/{plural}/{obj['metadata']['name']}" for obj in found["items"]]
    for path in (
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.sluice.dev",
        f"/api/v1/namespaces/{namespace}/secrets/sluice-webhook-certificates",
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/sluice",
        _CLAIM,
    ):
        try:
            await client.get(path)
        except NotFound:
            continue
        plan.objects.append(path)
    async for path, job in _jobs(client):
        if SUBMITTED_BY in (job["metadata"].get("annotations") or {}):
            plan.marked.append((path, job))
            if job["spec"].get("suspend") and not _ended(job):
                plan.waiting.append((path, job))
    return plan


async def _jobs(client: Client) -> AsyncIterator[tuple[str, Object]]:
    """Of all kinds that Sluice knows and the cluster has."""
    for kind in all_kinds(frameworks=frameworks_known()):
        for version in kind.versions:
            base = f"/apis/{kind.group}/{version}"
            try:
                async for page in client.list_pages(f"{base}/{kind.plural}"):
                    for job in page["items"]:
                        metadata = job["metadata"]
                        where = f"{base}/namespaces/{metadata['namespace']}/{kind.plural}"
                        yield f"{where}/{metadata['name']}", job
            except NotFound:
                continue
            except Forbidden:
                if kind.group == "batch":
                    raise
                continue  # so it is also where a kind is not installed, to who has no rights to it
            break


def _ended(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def _lines(plan: Plan, *, start_jobs: bool) -> list[str]:
    lines = [f"delete {path.rsplit('/', 2)[1]}/{path.rsplit('/', 1)[1]}" for path in plan.objects]
    lines.append(f"take the annotation {SUBMITTED_BY} from {len(plan.marked)} Jobs")
    left = "start" if start_jobs else "leave suspended"
    lines.append(f"{left} {len(plan.waiting)} Jobs that wait")
    return lines


async def _carry_out(client: Client, plan: Plan, *, start_jobs: bool) -> None:
    for path in plan.objects:
        try:
            await client.delete(path)
        except NotFound:
            continue
    waiting = {path for path, _ in plan.waiting}
    for path, _ in plan.marked:
        body: dict[str, Any] = {"metadata": {"annotations": {SUBMITTED_BY: None, START_WITH_OWNER: None}}}
        if start_jobs and path in waiting:
            body["spec"] = {"suspend": False}
        try:
            await client.patch(path, body)
        except NotFound:
            continue
