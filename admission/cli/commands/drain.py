"""`sluice drain`: keep workloads off nodes and flavors that are to be maintained, and see what stands in the way."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.output.printing import WritingFlags, print_line, print_outcome, writing_options
from admission.cli.output.tables import aligned
from admission.model.drains import seconds
from admission.model.durations import parse_duration
from admission.model.manifests import API_VERSION
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.client import Sluice
    from admission.client.transport import Document


@click.group(cls=CommandGroup, invoke_without_command=True)
@connection_options
@click.pass_context
def drain(context: click.Context, *, connection: ApiConnection) -> None:
    """List Drains, as `sluice get drains` does; or keep workloads off nodes and flavors.

    \b
    Examples:
      sluice drain node n17 --until 18:00 --reason "new power supply"
      sluice drain node n17 --cancel
    """
    if context.invoked_subcommand is None:
        from admission.cli.commands.get import get

        context.invoke(get, what="drains", names=(), **asdict(connection))
    elif connection != ApiConnection():
        raise click.UsageError(f"write the options that locate Sluice behind {context.invoked_subcommand}")


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--cancel", is_flag=True, help="End the drain: workloads start there again."),
        click.option("--running", is_flag=True, help="Change nothing; list the workloads that run there."),
        click.option(
            "--until", default="", metavar="TIME", help="When to evict what still runs there.  [default: never]"
        ),
        click.option(
            "--from",
            "start",
            default="",
            metavar="TIME",
            help="When the maintenance begins: until then workloads start whose time limit ends before.  "
            "[default: nothing starts any more]",
        ),
    ):
        command = option(command)
    return command


@drain.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--cluster", default=LOCAL, help="The cluster that the nodes are in.  [default: that of Sluice]")
@_options
@writing_options
@connection_options
def node(names: tuple[str, ...], **options: Any) -> None:
    """Keep workloads off nodes; evict by a deadline what still runs there.

    With a Topology the nodes get no more pods. Without one Kubernetes chooses nodes: cordon
    them, too (`kubectl cordon`). TIME is 18:00 (the next one), 2026-11-30T18:00, with a zone
    if it is not that of this machine, or a duration such as 2h.

    \b
    Examples:
      sluice drain node n17 n18 --until 18:00 --reason "new power supply"
      sluice drain node n17 --cancel
    """
    asyncio.run(_drain("node", names, **options))


@drain.command()
@click.argument("names", nargs=-1, required=True)
@_options
@writing_options
@connection_options
def flavor(names: tuple[str, ...], **options: Any) -> None:
    """Let nothing start in flavors any more; evict by a deadline what still runs in them.

    TIME is as for nodes: see `sluice drain node --help`.

    \b
    Examples:
      sluice drain flavor a100 --running
      sluice drain flavor a100 --from 17:00 --until 18:00 --reason "driver update"
    """
    asyncio.run(_drain("flavor", names, **options))


def instant(text: str, now: datetime, after: datetime | None = None) -> str:
    """Return the instant that a time on a command line means; of hours the next one `after`. Raises UsageError."""
    if re.fullmatch(r"\d{1,2}:\d\d", text):
        hour, minute = map(int, text.split(":"))
        if hour > 23 or minute > 59:
            raise click.UsageError(f'"{text}" is no time of a day')
        at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        while at <= (after or now):
            at += timedelta(days=1)
    else:
        try:
            at = now + timedelta(seconds=parse_duration(text))
        except ValueError:
            try:
                at = datetime.fromisoformat(text)
            except ValueError:
                raise click.UsageError(
                    f'"{text}" is no time; write 18:00, 2026-11-30T18:00 or a duration such as 2h'
                ) from None
            at = at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _drain(
    kind: str,
    names: tuple[str, ...],
    *,
    cluster: str = LOCAL,
    cancel: bool,
    running: bool,
    until: str,
    start: str,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    if cancel + running > 1 or ((cancel or running) and (until or start)):
        raise click.UsageError("give --cancel, --running, or the times of a drain")
    now = datetime.now().astimezone()
    spec: dict[str, Any] = {} if cluster == LOCAL else {"cluster": cluster}
    if start:
        spec["startTime"] = instant(start, now)
    if until:
        begins = datetime.fromisoformat(spec["startTime"]) if start else None
        spec["deadline"] = instant(until, now, begins)
    if start and until and seconds(spec["deadline"]) < seconds(spec["startTime"]):
        raise click.UsageError(f"--until {until} ({spec['deadline']}) is before --from {start} ({spec['startTime']})")
    if writing.reason:
        spec["reason"] = writing.reason
    async with connect(connection) as sluice:
        for name in names:
            if cancel:
                await _cancel(sluice, kind, name, cluster, writing)
            elif not running:
                await _put(sluice, kind, name, cluster, spec, writing)
            if not cancel:
                await _print_running(sluice, kind, name, cluster, needed=running)


def _name(kind: str, name: str, cluster: str) -> str:
    return f"{kind}-{name}" if cluster == LOCAL else f"{kind}-{cluster}.{name}"


async def _put(sluice: Sluice, kind: str, name: str, cluster: str, spec: dict[str, Any], writing: WritingFlags) -> None:
    from admission.client import AlreadyExists

    drains = sluice.documents("drains")
    written: Document = {
        "apiVersion": API_VERSION,
        "kind": "Drain",
        "metadata": {"name": _name(kind, name, cluster)},
        "spec": {f"{kind}s": [name], **spec},
    }
    document, outcome = None, "drained"
    if writing.dry_run != "client":
        try:
            document = await drains.create(written, options=writing.options)
        except AlreadyExists:
            found = await drains.get(_name(kind, name, cluster))
            written["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            document, outcome = await drains.replace(written, options=writing.options), "drained, as now given"
    ends = f"what runs there is evicted at {spec['deadline']}" if "deadline" in spec else "what runs there may end"
    details = [ends]
    if kind == "node":
        details.append(f"pods that Sluice does not place may still come: kubectl cordon {name} keeps them away")
    print_outcome(f"{kind}/{name}", outcome, writing, document, details=details)


async def _cancel(sluice: Sluice, kind: str, name: str, cluster: str, writing: WritingFlags) -> None:
    if writing.dry_run != "client":
        await sluice.documents("drains").delete(_name(kind, name, cluster), options=writing.options)
    print_outcome(f"{kind}/{name}", "no longer drained", writing)


async def _print_running(sluice: Sluice, kind: str, name: str, cluster: str, *, needed: bool) -> None:
    """Print who runs there. `needed`: raise if that is not known, as nothing else was asked for."""
    from admission.client import ClientError
    from admission.client.transport import PREFIX

    try:
        report = await sluice.request("GET", f"{PREFIX}/reports/drain", params={kind: name, "cluster": cluster})
    except ClientError as error:
        if needed:
            raise
        print_line(f"  which workloads run there is not known: {error}")
        return
    if not report["items"]:
        print_line(f"  no workload runs on {kind} {name}")
        return
    rows = [["NAMESPACE", "NAME", "KIND", "PODS", "PRIORITY", "ENDS BY"]]
    for each in report["items"]:
        pods = "" if each["pods"] is None else str(each["pods"])
        who = (each["namespace"] or "(hidden)", each["name"] or "(hidden)", each["kind"])
        rows.append([*who, pods, str(each["priority"]), each["endsBy"] or "no time limit"])
    for line in aligned(rows):
        print_line(f"  {line}")
