"""The commands and their options."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from admission.cli.arguments.connection import ApiConnection
from admission.cli.arguments.groups import CommandGroup
from admission.cli.commands.cluster.hub import SECRET, HubFlags
from admission.cli.commands.cluster.there import NAMESPACE
from admission.cli.configuration.local_file import LocalFile
from admission.model.names import is_dns_subdomain, is_label_value
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable


def _hub_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the hub, which the command receives as `hub`."""

    @click.option("--server", metavar="URL", help="URL of the Sluice API.  [env: SLUICE_SERVER]")
    @click.option("--token-file", metavar="FILE", type=click.Path(path_type=Path), help="File with its bearer token.")
    @click.option("--ca", metavar="FILE", help="PEM file with the CA certificate of the server.  [env: SLUICE_CA]")
    @click.option(
        "--hub-kubeconfig",
        metavar="FILE",
        help="Kubeconfig of the cluster in which Sluice runs.  [env: KUBECONFIG, unless SLUICE_SERVER is set]",
    )
    @click.option("--hub-context", metavar="NAME", help="Its context.  [default: the current context]")
    @click.option(
        "--secret",
        default=SECRET,
        show_default=True,
        metavar="NAMESPACE/NAME",
        help="Secret with the credentials of clusters, where Sluice runs in a cluster (clusters.secretName).",
    )
    @click.option(
        "--directory",
        type=click.Path(path_type=Path),
        help="Directory of credentials of a sluice serve outside of a cluster (--cluster-credentials).",
    )
    @functools.wraps(command)
    def with_hub(
        *args: Any,
        server: str | None,
        token_file: Path | None,
        ca: Path | None,
        hub_kubeconfig: str | None,
        hub_context: str | None,
        secret: str,
        directory: Path | None,
        **kwargs: Any,
    ) -> Any:
        if (hub_kubeconfig or hub_context) and (server or token_file):
            raise click.UsageError("--server and --token-file cannot be used together with --hub-kubeconfig")
        connection = ApiConnection(server, token_file, ca, hub_kubeconfig, hub_context)
        return command(*args, hub=HubFlags(connection, secret, directory), **kwargs)

    return with_hub


def _checked_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    del ctx
    if value == LOCAL:
        raise click.BadParameter(f"{LOCAL} is the cluster in which Sluice runs", param=parameter)
    if not (is_dns_subdomain(value) and is_label_value(value)):  # it names an object, and is the value of a label there
        raise click.BadParameter(
            f'{value!r} is no name: use lower-case letters, digits, "-" and ".", at most 63 characters', param=parameter
        )
    return value


_name = click.argument("name", callback=_checked_name)
_namespace = click.option(
    "-n", "--namespace", default=NAMESPACE, show_default=True, metavar="NAME", help="Namespace of Sluice there."
)
_context = click.option("--context", metavar="NAME", help="Context of that kubeconfig.  [default: the current context]")


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Let a cluster join Sluice, so that its Jobs share the quota, or leave it.

    `sluice get clusters` lists those that have joined.

    \b
    Examples:
      sluice cluster join b --kubeconfig b-admin.yaml
      sluice cluster leave b --kubeconfig b-admin.yaml --wait
    """


@cluster.command()
@_name
@click.option("--kubeconfig", required=True, type=LocalFile(), help="Kubeconfig of an admin of the cluster that joins.")
@_context
@_namespace
@click.option(
    "--api-server",
    metavar="URL",
    help="Address of that cluster's API server for Sluice.  [default: that in the kubeconfig]",
)
@click.option(
    "--gate",
    type=click.Choice(["auto", "policies", "webhook"]),
    default="auto",
    show_default=True,
    help="What gates Jobs there; auto: admission policies, if the API server has them for all kinds it serves.",
)
@click.option("--dispatch", is_flag=True, help="Let Jobs of the hub run there: grant Sluice to create and delete Jobs.")
@click.option(
    "--copy-along",
    is_flag=True,
    help="Let the hub's ConfigMaps and Secrets be copied there for them: grant Sluice to read and write these.",
)
@click.option("--image", metavar="IMAGE", help="Image of the webhook.  [default: that of the hub]")
@click.option(
    "--config",
    type=LocalFile(),
    help="Configuration file of sluice serve, for the kinds that are queued.  [default: the hub's ConfigMap]",
)
@click.option("--uid", default="", help="Accept the cluster with this uid of kube-system: see the message that asks.")
@click.option("--timeout", default=180.0, show_default=True, help="Seconds to wait until the cluster is active.")
@click.option("--dry-run", is_flag=True, help="Print the manifests, and change nothing.")
@_hub_options
def join(name: str, hub: HubFlags, **options: Any) -> None:
    """Let a cluster join as NAME: make what Sluice needs there, and the Cluster here.

    In that cluster it makes a namespace, a ServiceAccount, roles, a lasting token and,
    unless admission policies gate Jobs, the webhook. The token goes to the Secret or
    directory that sluice serve reads. Run it again to repair what is missing, or after
    the deletion of Secret sluice-token for another token.

    --kubeconfig and --context are those of the cluster that joins. Sluice is located by
    the other options, or as for all commands by the environment.

    \b
    Examples:
      sluice cluster join b --kubeconfig b-admin.yaml --dry-run
      sluice cluster join b --kubeconfig b-admin.yaml --hub-context prod
      sluice cluster join b --kubeconfig b-admin.yaml --directory /etc/sluice/clusters
    """
    from admission.cli.commands.cluster.joining import Joining

    async def run() -> None:
        async with hub.open() as opened:
            await Joining(name, opened, **options).run()

    asyncio.run(run())


@cluster.command()
@_name
@click.option("--kubeconfig", type=LocalFile(), help="Kubeconfig of an admin of the cluster that leaves.")
@_context
@_namespace
@click.option("--wait", is_flag=True, help="Wait until what runs there has ended.")
@click.option("--restore", is_flag=True, help="Unsuspend there what is waiting, as if it had never been queued.")
@_hub_options
def leave(name: str, hub: HubFlags, **options: Any) -> None:
    """Drain a cluster, delete its Cluster, and take away there what join has made.

    Nothing more is started there from now on. While workloads of the cluster hold quota,
    its Cluster cannot be deleted: wait with --wait, or run the command again. The gate is
    taken away, and so are the annotations of Sluice; what waits stays suspended, unless
    --restore is used. Without --kubeconfig everything in that cluster stays.

    \b
    Examples:
      sluice cluster leave b --kubeconfig b-admin.yaml --wait
      sluice cluster leave b --kubeconfig b-admin.yaml --restore
    """
    from admission.cli.commands.cluster.leaving import Leaving

    async def run() -> None:
        async with hub.open() as opened:
            await Leaving(name, opened, **options).run()

    asyncio.run(run())
