"""`sluice serve`: the one place where store, cluster, controller, webhooks and API are put together."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import uvloop
from aiohttp import web

from admission.api.application import create_app, listening
from admission.api.errors import AddressUnusable
from admission.cli.errors import InvalidSettings
from admission.cli.settings import load_settings, settings_options, split_address
from admission.cli.signals import until_signal
from admission.cluster.client import Client
from admission.cluster.identity import whoami
from admission.controller import Controller
from admission.kinds import all_kinds
from admission.model.errors import SluiceError
from admission.store.migrate import ensure_ready
from admission.store.store import Store
from webhooks.certificates import Certificates
from webhooks.registration import Registration, ServiceReference, ensure_registered, keep_registered
from webhooks.review import Reviewer
from webhooks.server import WebhookServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from admission.cli.settings import Settings
    from admission.kinds import Kind

log = logging.getLogger(__name__)

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@click.command()
@settings_options
def serve(*, config: Path | None, **flags: Any) -> None:
    """Run Sluice: controller, webhooks and REST API in one process.

    The admin token of the API is read from SLUICE_ADMIN_TOKEN, never from a flag, which
    other users of the machine could see. Outside of the cluster, --webhook-url registers
    the webhooks; without it Jobs are queued all the same if they are created suspended.

    \b
    Examples:
      SLUICE_ADMIN_TOKEN=$(openssl rand -hex 16) sluice serve --kubeconfig ~/.kube/config
      sluice serve --config sluice.yaml --webhook-url https://192.0.2.7:9443
    """
    settings = load_settings(flags, config=config)
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_signal(run(settings)))


async def run(settings: Settings) -> None:
    """Everything, until cancelled. Raises SluiceError with one sentence for whatever keeps it from going on."""
    if settings.admin_token is None:
        raise InvalidSettings(
            "SLUICE_ADMIN_TOKEN is not set: choose the token that the API shall ask for, "
            "for example with `openssl rand -hex 16`"
        )
    await ensure_ready(settings.database_url)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(Store.open(settings.database_url))
        epoch = await store.lead(f"{socket.gethostname()}, process {os.getpid()}")
        client = await stack.enter_async_context(_client(settings))
        username = await whoami(client)
        (kind,) = all_kinds(kueue_labels=settings.accept_kueue_labels)
        controller = Controller(store=store, client=client, kind=kind, epoch=epoch)
        background = [controller.run()]
        if (endpoint := _endpoint(settings)) is not None:
            background.append(await _webhooks(stack, settings, endpoint, client, controller, kind, username))
        checks = {"database": store.health, "cluster": controller.health}
        app = create_app(store, token=settings.admin_token.get_secret_value(), checks=checks)
        app.router.add_get("/debug/statistics", _statistics(store, controller))
        url = await stack.enter_async_context(listening(app, *split_address(settings.api_address)))
        log.info("API at %s, cluster at %s as %s, epoch %d", url, client.server, username, epoch)
        _tune_the_interpreter()
        await _all(background)


def _tune_the_interpreter() -> None:
    """Two defaults of Python that cost a third of a watch event, and half of a commit, when it is busy."""
    # The commit's thread needs the interpreter back after each statement; 5 ms each time would be most of it.
    sys.setswitchinterval(0.0005)
    # What was imported lives for ever, and Kubernetes objects hold no cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _client(settings: Settings) -> Client:
    """By kubeconfig if one is named or usual; in a pod by its service account."""
    if settings.kubeconfig is None and _in_pod() and not os.environ.get("KUBECONFIG"):
        return Client.in_cluster()
    return Client.from_kubeconfig(str(settings.kubeconfig) if settings.kubeconfig else None, settings.context)


def _in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _endpoint(settings: Settings) -> str | ServiceReference | None:
    """Where the API server shall find the webhooks; None: nowhere, so they are not registered."""
    if settings.webhook_url is not None:
        return settings.webhook_url
    if not _in_pod():
        log.warning("no --webhook-url: Jobs that are not created suspended start before Sluice can stop them")
        return None
    namespace, _, name = settings.webhook_service.partition("/")
    return ServiceReference(namespace, name)


async def _webhooks(
    stack: AsyncExitStack,
    settings: Settings,
    endpoint: str | ServiceReference,
    client: Client,
    controller: Controller,
    kind: Kind,
    username: str,
) -> Coroutine[Any, Any, None]:
    """Listen, then register; what keeps both as they should be is returned to be run."""
    if isinstance(endpoint, str):
        hosts = [urlsplit(endpoint).hostname or ""]
    else:
        hosts = [f"{endpoint.name}.{endpoint.namespace}.svc"]
    certificates = Certificates(settings.certificate_directory, hosts, now=lambda: datetime.now(tz=UTC))
    certificates.refresh()
    reviewer = Reviewer([kind], own_usernames=[username], queue_exists=controller.context.has_local_queue)
    host, port = split_address(settings.webhook_address)
    try:
        await stack.enter_async_context(
            WebhookServer(reviewer, ssl_context=certificates.ssl_context, host=host, port=port)
        )
    except OSError as error:
        why = error.strerror or error
        raise AddressUnusable(f"the webhooks cannot listen on {host}:{port} ({why}); choose another address") from error
    registration = Registration((kind,), endpoint, (username,), ("kube-system", *_own_namespace()))
    await ensure_registered(client, registration.configurations(certificates.ca_bundle))
    log.info("webhooks listen on %s:%d and are registered as %s", host, port, endpoint)
    return keep_registered(client, registration, certificates)


def _own_namespace() -> list[str]:
    """The namespace that Sluice runs in: it must never have to ask itself."""
    return [_NAMESPACE_FILE.read_text().strip()] if _NAMESPACE_FILE.exists() else []


def _statistics(store: Store, controller: Controller) -> Callable[[web.Request], Awaitable[web.Response]]:
    """What Sluice has asked of others since it started, for the demo, the benchmarks and the curious."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "writeTransactions": store.statistics.write_transactions,
                "patches": dict(controller.writer.outcomes),
                "events": dict(controller.events.outcomes),
            }
        )

    return answer


async def _all(background: list[Coroutine[Any, Any, None]]) -> None:
    """Run all until one fails; its error alone, if it is one of ours."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in background:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise _first_of_ours(errors) or errors from errors


def _first_of_ours(errors: BaseExceptionGroup[BaseException]) -> SluiceError | None:
    for error in errors.exceptions:
        found = _first_of_ours(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, SluiceError):
            return found
    return None
