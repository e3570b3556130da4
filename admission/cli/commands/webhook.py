"""`sluice webhook`: the admission webhook server without `serve`, for a separate Deployment.

It starts fast, and needs no permissions in the cluster.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import click

from admission.cli.configuration.addresses import split_address
from admission.cli.configuration.integrations import IntegrationsSettings, read_integrations
from admission.cli.errors import InvalidSettings
from admission.serving.listener import open_sockets
from admission.serving.logs import LogFormat, LogLevel
from webhooks.exposition import Report
from webhooks.gate import GateConfig, run


@click.command()
@click.option(
    "--username",
    required=True,
    envvar="SLUICE_USERNAME",
    metavar="NAME",
    help="Kubernetes user of `sluice serve`; only this user may start queued Jobs.  [env: SLUICE_USERNAME]",
)
@click.option(
    "--webhook-address",
    default=":9443",
    show_default=True,
    envvar="SLUICE_WEBHOOK_ADDRESS",
    metavar="HOST:PORT",
    help="Address to listen on.  [env: SLUICE_WEBHOOK_ADDRESS]",
)
@click.option(
    "--certificate-directory",
    default=Path("sluice-certificates"),
    show_default=True,
    type=click.Path(path_type=Path),
    envvar="SLUICE_CERTIFICATE_DIRECTORY",
    metavar="DIRECTORY",
    help="Directory of tls.crt and tls.key; changes are picked up.  [env: SLUICE_CERTIFICATE_DIRECTORY]",
)
@click.option(
    "--accept-kueue-labels/--no-accept-kueue-labels",
    default=True,
    show_default=True,
    envvar="SLUICE_ACCEPT_KUEUE_LABELS",
    help="Queue Jobs by the label kueue.x-k8s.io/queue-name as well.  [env: SLUICE_ACCEPT_KUEUE_LABELS]",
)
@click.option(
    "--opentelemetry/--no-opentelemetry",
    default=False,
    show_default=True,
    envvar="SLUICE_OPENTELEMETRY",
    help="Send traces to OTEL_EXPORTER_OTLP_ENDPOINT.  [env: SLUICE_OPENTELEMETRY]",
)
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(get_args(LogLevel), case_sensitive=False),
    envvar="SLUICE_LOG_LEVEL",
    help="Minimum level of log messages; all: debug, also for libraries.  [env: SLUICE_LOG_LEVEL]",
)
@click.option(
    "--log-format",
    default="text",
    show_default=True,
    type=click.Choice(get_args(LogFormat), case_sensitive=False),
    envvar="SLUICE_LOG_FORMAT",
    help="Format of log messages: text, or json with an object on each line.  [env: SLUICE_LOG_FORMAT]",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="SLUICE_CONFIG",
    help="Configuration file of `sluice serve`; its integrations define which kinds are queued.  [env: SLUICE_CONFIG]",
)
def webhook(
    *,
    config: Path | None,
    username: str,
    webhook_address: str,
    certificate_directory: Path,
    accept_kueue_labels: bool,
    opentelemetry: bool,
    log_level: LogLevel,
    log_format: LogFormat,
) -> None:
    """Run the admission webhook server alone, for a separate Deployment.

    By default sluice serve runs it in a process of its own, which is sufficient for most
    clusters. Several replicas of this command keep the webhooks available while serve is
    replaced. It needs no permissions: serve --no-webhook-process registers the webhooks,
    and keeps their certificate in a Secret to be mounted at --certificate-directory.

    \b
    Example:
      sluice webhook --username system:serviceaccount:sluice-system:sluice \\
        --certificate-directory /certificates
    """
    integrations = IntegrationsSettings() if config is None else read_integrations(config)
    try:
        host, port = split_address(webhook_address)
    except ValueError as error:
        raise InvalidSettings(f"--webhook-address: {error}") from error
    try:
        sockets = asyncio.run(open_sockets(host, port))
    except OSError as error:
        why = error.strerror or error
        raise InvalidSettings(
            f"cannot listen on {webhook_address} ({why}); choose another --webhook-address"
        ) from error
    gate_config = GateConfig(
        str(certificate_directory),
        (username,),
        accept_kueue_labels,
        log_level,
        log_format,
        frameworks=integrations.enabled,
        by_label=integrations.by_label,
        kinds=integrations.kinds,
        queue_labels=integrations.queue_labels,
        priority_labels=integrations.priority_labels,
        group_labels=integrations.group_labels,
        rules=integrations.queue_rules(),
        opentelemetry=opentelemetry,
    )
    run(gate_config, sockets=sockets, alone=True, report=Report())
