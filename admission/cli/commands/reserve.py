"""`sluice reserve`: quota of a ClusterQueue that is kept for some workloads for a time."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.quota_flags import parse_quotas
from admission.cli.output.printing import WritingFlags, print_outcome, writing_options


@click.command()
@click.argument("name")
@click.option("--clusterqueue", required=True, metavar="NAME", help="ClusterQueue whose workloads use it.")
@click.option("--quota", required=True, multiple=True, metavar="QUOTA", help='What is kept: "h100:nvidia.com/gpu=8".')
@click.option(
    "--topology", default="", metavar="LEVEL[=N]", help="Whole domains of a topology: cloud.example.com/rack=2."
)
@click.option(
    "--domain", "domains", multiple=True, metavar="NAME", help="Which of them; repeatable.  [default: Sluice chooses]"
)
@click.option("--start", required=True, metavar="TIME", help="Local time at which it begins: 2026-11-30T20:00.")
@click.option("--end", required=True, metavar="TIME", help="Local time at which it ends.")
@click.option("--time-zone", default="", metavar="ZONE", help="Time zone of both.  [default: UTC]")
@click.option("--user", "users", multiple=True, help="For workloads of this user; repeatable.")
@click.option("--for-namespace", "namespaces", multiple=True, metavar="NAME", help="For a namespace; repeatable.")
@click.option("--localqueue", "local_queues", multiple=True, metavar="NAME", help="For a LocalQueue; repeatable.")
@click.option("--preempt", is_flag=True, help="Evict what is in its way at its start.")
@click.option(
    "--release-unused-after", type=click.IntRange(60, 10**7), metavar="SECONDS", help="End it early if it is unused."
)
@writing_options
@connection_options
def reserve(
    name: str,
    *,
    clusterqueue: str,
    quota: tuple[str, ...],
    topology: str,
    domains: tuple[str, ...],
    start: str,
    end: str,
    time_zone: str,
    users: tuple[str, ...],
    namespaces: tuple[str, ...],
    local_queues: tuple[str, ...],
    preempt: bool,
    release_unused_after: int | None,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Keep quota of a ClusterQueue for some of its workloads from a time to a time.

    With --topology others get no node of a rack, or of another domain, whose pods may
    still run then. Sluice chooses the domains with least in the way, a few seconds later.

    Without --user, --for-namespace and --localqueue it is kept for all workloads of the
    ClusterQueue. `sluice get reservations` lists them, `sluice delete reservation/NAME`
    ends one.

    \b
    Example:
      sluice reserve benchmark --clusterqueue team-a --quota "default:cpu=2" --user ada \\
          --start 2030-12-01T08:00 --end 2030-12-01T18:00 --time-zone Europe/Berlin
      sluice reserve rack --clusterqueue team-a --quota "default:cpu=2" \\
          --topology rack --start 2030-12-01T08:00 --end 2030-12-01T18:00
    """
    holders = {"users": users, "namespaces": namespaces, "localQueues": local_queues}
    spec: dict[str, Any] = {
        "clusterQueue": clusterqueue,
        "quotas": [
            {"flavor": flavor, "resource": resource, "amount": amount}
            for flavor, amounts in parse_quotas("--quota", quota).items()
            for resource, amount in amounts.items()
        ],
        "holders": {key: [*value] for key, value in holders.items() if value},
        "start": start,
        "end": end,
        "timeZone": time_zone or "UTC",
        "atStart": "Preempt" if preempt else "Wait",
    }
    if topology:
        spec["topology"] = _topology(topology, domains)
    elif domains:
        raise click.UsageError("--domain needs --topology, the level of the domains")
    if release_unused_after is not None:
        spec["releaseUnusedAfterSeconds"] = release_unused_after
    asyncio.run(_reserve(name, spec, writing, connection))


def _topology(text: str, domains: tuple[str, ...]) -> dict[str, Any]:
    """Return the topology in the option's text. Raises BadParameter."""
    level, _, number = text.partition("=")
    if number and not number.isdecimal():
        raise click.BadParameter(f'--topology: "{text}" is not LEVEL or LEVEL=N, such as cloud.example.com/rack=2')
    count = int(number) if number else max(len(domains), 1)
    return {"level": level, "count": count, **({"domains": [*domains]} if domains else {})}


async def _reserve(name: str, spec: dict[str, Any], writing: WritingFlags, connection: ApiConnection) -> None:
    from admission.model.manifests import parse_manifest

    document = {"apiVersion": "sluice.dev/v1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}
    parse_manifest(document)
    async with connect(connection) as sluice:
        answer = None
        if writing.dry_run != "client":
            answer = await sluice.documents("reservations").create(document, options=writing.options)
        print_outcome(f"reservation.sluice.dev/{name}", "created", writing, answer)
