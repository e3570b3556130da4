"""`sluice serve`: the one place where store, cluster, controller, webhooks and API are put together."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import socket
import sys
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click
from aiohttp import web

from admission.api.application import listening
from admission.api.metrics import Metrics
from admission.cli.aggregation import api_address, api_app, tls_doors
from admission.cli.certificates import OwnCertificates
from admission.cli.errors import InvalidSettings
from admission.cli.loop import new_loop
from admission.cli.metrics import Numbers
from admission.cli.roles import Role
from admission.cli.settings import load_settings, settings_options
from admission.cli.signals import until_signal
from admission.cli.starting import Starting
from admission.cli.webhook_role import in_pod, own_namespace, serve_webhooks
from admission.cluster.client import Client
from admission.cluster.identity import whoami
from admission.cluster.lease import Elector, Timing
from admission.controller import Controller
from admission.controller.local_queues import LocalQueues
from admission.kinds import all_kinds
from admission.model.errors import SluiceError
from admission.store.database import Location
from admission.store.migrate import ensure_ready
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from pathlib import Path

    from admission.cli.settings import Settings

log = logging.getLogger(__name__)


@click.command()
@settings_options
def serve(*, config: Path | None, **flags: Any) -> None:
    """Run Sluice: controller, webhooks and REST API in one process.

    Users of the API show a token of the cluster and may what its RBAC lets them. An admin
    may also have a token of Sluice's own, which is read from SLUICE_ADMIN_TOKEN, never from
    a flag, which other users of the machine could see. Outside of the cluster, --webhook-url
    registers the webhooks; without it Jobs are queued all the same if they are created
    suspended. --apiservice-url makes `kubectl get clusterqueues` work.

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
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(until_signal(run(settings)))


async def run(settings: Settings) -> None:
    """Everything, until cancelled. Raises SluiceError with one sentence for whatever keeps it from going on."""
    async with AsyncExitStack() as stack:
        starting = Starting(settings, lambda: _client(settings))
        stack.push_async_callback(starting.done)
        store = await starting.patiently(lambda: _open_store(stack, settings.database_url))
        client = await stack.enter_async_context(_client(settings))
        username = await starting.asked(lambda: whoami(client))
        (kind,) = all_kinds(kueue_labels=settings.accept_kueue_labels)
        identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(3)}"
        elector = _elector(settings, client, identity)
        leads = elector.leads if elector is not None else lambda: True
        controller = Controller(
            store=store,
            client=client,
            kind=kind,
            policy=settings.policy(),
            leads=leads,
            loading=_without_garbage,
            audit_interval=settings.audit_interval,
        )
        role = Role(store, controller, identity=identity, elector=elector, retention=settings.retention.policy())
        await starting.patiently(role.begin)
        local_queues = LocalQueues(store)
        background = [controller.watch(), role.run(), local_queues.run()]
        certificates = OwnCertificates(settings, client)
        await starting.asked(certificates.refresh)
        webhooks = await serve_webhooks(
            stack,
            settings,
            client=client,
            kind=kind,
            username=username,
            queue_exists=local_queues.exists,
            certificates=certificates,
            asked=starting.asked,
        )
        if webhooks is not None:
            background.append(webhooks)
        checks = {"database": store.health, "cluster": role.health}
        doors = await tls_doors(settings, client, certificates)
        app = api_app(settings, store, client, controller, doors, checks)
        app.router.add_get("/debug/statistics", _statistics(store, controller, role))
        app.router.add_get("/metrics", Metrics(Numbers(store, controller, role, client).families).get)
        context = None if doors is None else doors.context
        await starting.done()
        url = await stack.enter_async_context(listening(app, *api_address(settings), ssl_context=context))
        if doors is not None:
            await starting.asked(doors.register)
            background.append(doors.keep())
        log.info("API at %s, cluster at %s as %s, %s", url, client.server, username, role)
        _tune_the_interpreter()
        await _all(background)


async def _open_store(stack: AsyncExitStack, url: str) -> Store:
    await ensure_ready(url)
    return await stack.enter_async_context(Store.open(url))


def _tune_the_interpreter() -> None:
    """Two defaults of Python that cost a third of a watch event, and half of a commit, when it is busy."""
    # The commit's thread needs the interpreter back after each statement; 5 ms each time would be most of it.
    sys.setswitchinterval(0.0005)
    # What was imported lives for ever, and Kubernetes objects hold no cycles: all objects are looked through after 50
    # million new ones, the younger ones in portions of some milliseconds, for decisions and probes wait meanwhile.
    gc.freeze()
    gc.set_threshold(20_000, 5, 500)


@contextmanager
def _without_garbage() -> Iterator[None]:
    """While nearly all that is made stays: to look for garbage in 105,000 workloads, again and again, took 0.3 s."""
    usual = gc.get_threshold()
    gc.unfreeze()  # what an earlier lead has left
    gc.set_threshold(1_000_000)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*usual)


def _client(settings: Settings) -> Client:
    """By kubeconfig if one is named or usual; in a pod by its service account."""
    if settings.kubeconfig is None and in_pod() and not os.environ.get("KUBECONFIG"):
        return Client.in_cluster()
    return Client.from_kubeconfig(str(settings.kubeconfig) if settings.kubeconfig else None, settings.context)


def _elector(settings: Settings, client: Client, identity: str) -> Elector | None:
    """None: this is the only replica, and the database keeps a second one out."""
    own = own_namespace()
    on_sqlite = Location.parse(settings.database_url).path is not None
    lease = settings.lease or (f"{own}/sluice" if own and not on_sqlite else None)
    if lease is None:
        return None
    if on_sqlite:
        raise InvalidSettings(
            "there is a Lease for several replicas, but a SQLite database has room for one: "
            "leave lease out, or use PostgreSQL"
        )
    namespace, _, name = lease.partition("/")
    try:
        timing = Timing(settings.lease_duration, settings.renew_deadline, settings.retry_period)
    except ValueError as error:
        raise InvalidSettings(str(error)) from error
    return Elector(client, namespace=namespace, name=name, identity=identity, timing=timing)


def _statistics(store: Store, controller: Controller, role: Role) -> Callable[[web.Request], Awaitable[web.Response]]:
    """What Sluice has asked of others since it started, for the demo, the benchmarks and the curious."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "role": str(role),
                "writeTransactions": store.statistics.write_transactions,
                "patches": dict(controller.writer.outcomes),
                "events": dict(controller.events.outcomes),
                "flapping": controller.flapping,
                "differences": dict(controller.auditor.counts),
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
