"""`sluice serve`: assembles store, cluster client, controller, webhooks and REST API into one process."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from aiohttp import web

from admission.api.application import listening
from admission.api.metrics_endpoint import PATH, Metrics
from admission.cli.configuration.settings import load_settings
from admission.cli.configuration.settings_options import settings_options
from admission.cli.errors import InvalidSettings
from admission.cli.serve.adoption import check_ownership, new_claim
from admission.cli.serve.aggregation import api_address, api_app, tls_endpoint
from admission.cli.serve.certificates import OwnCertificates
from admission.cli.serve.clusters import Clusters, Reaching, kinds_of
from admission.cli.serve.leader_roles import LeaderReport, Role
from admission.cli.serve.metrics import ReplicaMetrics
from admission.cli.serve.reload import Reload
from admission.cli.serve.signals import until_signal
from admission.cli.serve.simulating import EstimatingProcess, WhatIfProcesses
from admission.cli.serve.startup import Startup
from admission.cli.serve.webhook_service import (
    WebhookCheck,
    excluded_namespaces,
    in_pod,
    own_namespace,
    register_gate,
    start_gate,
)
from admission.cluster.client import Client
from admission.cluster.identity import whoami
from admission.cluster.lease import LeaderElector, Timing
from admission.controller.controller import Controller
from admission.controller.intake.appwrappers import AppWrapperItems
from admission.controller.intake.local_queues import LocalQueues
from admission.controller.intake.namespace_queues import NamespaceQueues
from admission.controller.intake.not_queued import NotQueuedSearch
from admission.controller.intake.unqueued import UnqueuedObjects
from admission.kinds.registry import holds_items
from admission.model.base import LabelSelector
from admission.model.errors import SluiceError
from admission.notifications.notifier import Notifier
from admission.notifications.sending import NotificationSender
from admission.serving.logs import log_to_stderr, set_log_level
from admission.serving.runtime import new_loop, tune, without_garbage
from admission.store.database.connection import Location
from admission.store.database.migrations import ensure_ready, migrate
from admission.store.store import Store
from webhooks.gate_reconciler import registered_client_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from admission.cli.configuration.settings import Settings
    from admission.cli.serve.aggregation import TlsEndpoint
    from admission.cli.serve.gate_process import GateProcess
    from admission.cluster.claim import Claim
    from admission.controller.clusters import Join
    from admission.controller.intake.namespace_queues import Naming
    from admission.kinds import Kinds
    from admission.serving.tracing import Tracing


log = logging.getLogger(__name__)


@click.command()
@settings_options
@click.option("--adopt", is_flag=True, help="Adopt a cluster that the database does not know; running Jobs stop.")
def serve(*, config: Path | None, adopt: bool, **flags: Any) -> None:
    """Run Sluice: controller, webhooks and REST API.

    Users of the API authenticate with a token of the cluster, and its RBAC authorizes them.
    An admin can also use a token of Sluice's own. It is read from SLUICE_ADMIN_TOKEN, not
    from a flag, which other users of the machine could see. For Sluice outside the cluster,
    --webhook-url registers the webhooks; without it a Job that is not created suspended
    starts before Sluice can stop it. --apiservice-url makes `kubectl get clusterqueues` work.

    \b
    Examples:
      SLUICE_ADMIN_TOKEN=$(openssl rand -hex 16) sluice serve --kubeconfig ~/.kube/config
      sluice serve --config sluice.yaml --webhook-url https://192.0.2.7:9443
    """
    settings = load_settings(flags, config=config)
    files = [file for file in (config, settings.database_url_file) if file is not None]
    reload = (lambda: load_settings(flags, config=config), files)
    with log_to_stderr(settings.log_level, settings.log_format):
        log.info("sluice %s starts, process %d", installed_version("sluice"), os.getpid())
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(until_signal(run(settings, adopt=adopt, reload=reload)))
        except SluiceError as error:
            if settings.log_format == "text":
                raise
            log.error("%s", error)  # as a line of the JSON log, not as text
            click.get_current_context().exit(1)
        finally:
            log.info("ended")


async def run(settings: Settings, *, adopt: bool, reload: tuple[Callable[[], Settings], Sequence[Path]]) -> None:
    """Run all services until cancelled. Raises SluiceError, with a one-line message, if one of them cannot continue.

    `reload` has the function that loads the settings again, and the files that they are read from.
    """
    Location.parse(settings.database_url)  # report an invalid URL before anything waits for database or cluster
    tracing = opened_tracing(settings)
    async with AsyncExitStack() as stack:
        if tracing is not None:
            stack.push_async_callback(asyncio.to_thread, tracing.close)
        starting = Startup(settings, lambda: _client(settings))
        stack.push_async_callback(starting.done)
        replica = await _begin(stack, starting, settings, tracing, adopt=adopt)
        store, client, controller = replica.store, replica.client, replica.controller
        role, gate = replica.role, replica.gate
        background: list[Callable[[], Coroutine[Any, Any, None]]] = [controller.watch, role.run]
        background.append(Reload(settings, *reload, _reloadable(replica)).run)
        if settings.manage_jobs_without_queue_name:
            background.append(_unqueued(settings, replica).run)
        if settings.create_local_queues != "none":
            background.append(_namespace_queues(settings.create_local_queues, settings, replica).run)
        if any(map(holds_items, replica.kinds)):
            watches, events, engine = controller.watches, controller.events, controller.engine
            items = AppWrapperItems(client, controller.writer, watches, events, engine=engine)
            background.append(items.run)
        not_queued = NotQueuedSearch(
            client, controller.watches, controller.events, leads=replica.leads, on_record=store.workloads.unfinished_of
        )
        background.append(not_queued.run)
        checks = {"database": role.database_health, "cluster": role.health}
        if gate is not None:
            background.append(LocalQueues(store, gate.send_queues).run)
            checks["webhook"] = gate.health
        registered = await register_gate(
            settings,
            client=client,
            kinds=replica.kinds,
            username=replica.username,
            certificates=replica.certificates,
            retry=starting.retry_request,
            leads=replica.leads,
        )
        if registered is not None:
            background.append(registered)
        endpoint = await tls_endpoint(settings, client, replica.certificates)
        estimates = EstimatingProcess(settings, controller, store)
        background.append(estimates.run)
        fault = replica.notifier.receiver_fault
        webhook_check = WebhookCheck(lambda: registered_client_config(client))
        background.append(webhook_check.run)
        app = api_app(
            settings,
            store,
            client,
            controller,
            replica.report,
            endpoint,
            checks,
            estimates.of,
            fault,
            replica.clusters.check,
            lambda: webhook_check.fault,
            not_queued.found,
            WhatIfProcesses(settings).ask,
            (await stack.enter_async_context(Reaching(replica.clusters))).reach,
        )
        app.router.add_get("/debug/statistics", _statistics(store, controller, role))
        metrics = ReplicaMetrics(store, controller, role, client, replica.notifier, gate)
        app.router.add_get(PATH, Metrics(metrics.collectors).get)
        url = await _open_api(stack, starting, settings, app, endpoint)
        if endpoint is not None:
            background.append(endpoint.run)
        log.info(
            "API at %s, cluster at %s as %s, database %s, %s", url, client.server, replica.username, replica.claim, role
        )
        tune()
        await _run_all(background)


@dataclass(frozen=True, slots=True)
class _Replica:
    """Components of a running replica, after it has reached cluster and database and has begun its role."""

    client: Client
    store: Store
    kinds: Kinds
    username: str
    certificates: OwnCertificates
    gate: GateProcess | None
    claim: Claim
    leads: Callable[[], bool]
    controller: Controller
    clusters: Clusters
    notifications: AllowedReceivers
    notifier: Notifier
    role: Role
    report: LeaderReport


async def _begin(
    stack: AsyncExitStack, starting: Startup, settings: Settings, tracing: Tracing | None, *, adopt: bool
) -> _Replica:
    """Connect to cluster and database, check their claim, and begin to lead or follow, until `stack` is closed."""
    # An invalid kubeconfig is reported before a database file is created.
    client = await stack.enter_async_context(_client(settings))
    # Concurrently with the database: the gate needs only the cluster, and starts even if the database is unavailable.
    cluster_stack = await stack.enter_async_context(AsyncExitStack())
    reaching = asyncio.create_task(_reach_cluster(cluster_stack, starting, settings, client))
    stack.push_async_callback(_cancel, reaching)
    store = await starting.retry(lambda: _open_store(stack, settings))
    username, certificates, gate = await reaching
    kinds = kinds_of(settings)
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(3)}"
    elector = _elector(settings, client, identity)
    claim = await new_claim(starting, store, client, holder=identity, election=str(elector or ""))
    await check_ownership(starting, store, client, kinds, claim, adopt=adopt)

    def leads() -> bool:
        return claim.holds() and (elector is None or elector.leads())

    clusters = Clusters(settings, lambda: kinds_of(settings))
    controller = _controller(settings, store, client, kinds, leads, tracing, clusters.join(store, claim, leads))
    notifications = AllowedReceivers(settings)
    notifier = await stack.enter_async_context(notifications.opened(store))
    role = Role(
        store,
        controller,
        identity=identity,
        elector=elector,
        claim=claim,
        retention=settings.retention.policy(),
        notifier=notifier,
    )
    await starting.retry(role.begin)
    return _Replica(
        client=client,
        store=store,
        kinds=kinds,
        username=username,
        certificates=certificates,
        gate=gate,
        claim=claim,
        leads=leads,
        controller=controller,
        clusters=clusters,
        notifications=notifications,
        notifier=notifier,
        role=role,
        report=LeaderReport(store, controller, elector),
    )


def _reloadable(replica: _Replica) -> Mapping[str, Callable[[Settings], None]]:
    """Return the settings that can change at run time, with the functions that apply them."""

    def use_retention(settings: Settings) -> None:
        replica.role.retention = settings.retention.policy()

    def use_log_level(settings: Settings) -> None:
        set_log_level(settings.log_level)
        if replica.gate is not None:
            replica.gate.send_log_level(settings.log_level)

    return {
        "log_level": use_log_level,
        "retention": use_retention,
        "notifications": replica.notifications.use,
        "database_url": lambda settings: replica.store.use_password_of(settings.database_url),
    }


def _controller(
    settings: Settings,
    store: Store,
    client: Client,
    kinds: Kinds,
    leads: Callable[[], bool],
    tracing: Tracing | None,
    join: Join,
) -> Controller:
    return Controller(
        store=store,
        client=client,
        kinds=kinds,
        policy=settings.policy(),
        leads=leads,
        loading=without_garbage,
        audit_interval=settings.audit_interval,
        tracing=tracing,
        join=join,
    )


async def _open_api(
    stack: AsyncExitStack, starting: Startup, settings: Settings, app: web.Application, endpoint: TlsEndpoint | None
) -> str:
    """Serve the API until the stack is closed, and register its APIService if configured; return its URL."""
    context = None if endpoint is None else endpoint.context
    await starting.done()
    url = await stack.enter_async_context(listening(app, *api_address(settings), ssl_context=context))
    if endpoint is not None:
        await starting.retry_request(endpoint.register)
    return url


class _Cluster(NamedTuple):
    """Results of connecting to the cluster: own user name, certificates, and the gate if it runs here."""

    username: str
    certificates: OwnCertificates
    gate: GateProcess | None


async def _reach_cluster(stack: AsyncExitStack, starting: Startup, settings: Settings, client: Client) -> _Cluster:
    """Get the own user name, prepare certificates, and start the gate: its webhook may still be registered."""
    username = await starting.retry_request(lambda: whoami(client))
    certificates = OwnCertificates(settings, client)
    await starting.retry_request(certificates.refresh)
    return _Cluster(username, certificates, await start_gate(stack, settings, username))


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _unqueued(settings: Settings, replica: _Replica) -> UnqueuedObjects:
    return UnqueuedObjects(
        replica.controller.writer,
        replica.controller.watches,
        replica.controller.events,
        namespaces=settings.managed_jobs_namespace_selector or LabelSelector(),
        leads=lambda: replica.leads() and replica.controller.is_deciding,
        is_held=replica.controller.is_held_by_disabled,
    )


def _namespace_queues(naming: Naming, settings: Settings, replica: _Replica) -> NamespaceQueues:
    return NamespaceQueues(
        replica.store,
        replica.controller.watches,
        naming=naming,
        namespaces=settings.managed_jobs_namespace_selector or LabelSelector(),
        excluded=excluded_namespaces(),
        leads=lambda: replica.leads() and replica.controller.is_deciding,
    )


async def _open_store(stack: AsyncExitStack, settings: Settings) -> Store:
    url = settings.database_url
    if settings.migrate:
        before, after = await migrate(url)
        if before != after:
            log.info("schema %s -> %s", before or "base", after)
    else:
        await ensure_ready(url)
    return await stack.enter_async_context(Store.open(url))


def _client(settings: Settings) -> Client:
    """Return a client: in a pod with its service account, unless a kubeconfig is given; else with the kubeconfig."""
    if settings.kubeconfig is None and in_pod() and not os.environ.get("KUBECONFIG"):
        return Client.in_cluster()
    return Client.from_kubeconfig(str(settings.kubeconfig) if settings.kubeconfig else None, settings.context)


def _elector(settings: Settings, client: Client, identity: str) -> LeaderElector | None:
    """Return the elector of the replicas; None without a Lease: a lock on the database excludes others then."""
    own = own_namespace()
    on_sqlite = Location.parse(settings.database_url).path is not None
    lease = settings.lease or (f"{own}/sluice" if own and not on_sqlite else None)
    if lease is None:
        return None
    if on_sqlite:
        raise InvalidSettings(
            "a Lease is for several replicas, but a SQLite database supports only one: "
            "leave lease out, or use PostgreSQL"
        )
    namespace, _, name = lease.partition("/")
    try:
        timing = Timing(settings.lease_duration, settings.renew_deadline, settings.retry_period)
    except ValueError as error:
        raise InvalidSettings(str(error)) from error
    return LeaderElector(client, namespace=namespace, name=name, identity=identity, timing=timing)


def _statistics(store: Store, controller: Controller, role: Role) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of `/debug/statistics`: counters since the start, used by the demo and the benchmarks."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "role": str(role),
                "writeTransactions": store.statistics.write_transactions,
                "patches": dict(controller.writer.outcomes),
                "events": dict(controller.events.outcomes),
                "queuedEvents": controller.queued_events,
                "flapping": controller.metrics.flapping,
                "faults": controller.faults.count,
                "differences": dict(controller.auditor.counts),
            }
        )

    return answer


async def _run_all(background: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run all tasks until one fails; raise its error without the group if it is a SluiceError."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in background:
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise _first_sluice_error(errors) or errors from errors


def _first_sluice_error(errors: BaseExceptionGroup[BaseException]) -> SluiceError | None:
    for error in errors.exceptions:
        found = _first_sluice_error(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, SluiceError):
            return found
    return None


def opened_tracing(settings: Settings) -> Tracing | None:
    """Return the tracing, which the caller closes; None if it is disabled.

    Raises InvalidSettings if the packages of the extra `otel` are not installed.
    """
    if not settings.opentelemetry:
        return None
    try:
        from admission.serving.tracing import Tracing
    except ImportError as error:
        raise InvalidSettings(
            f"opentelemetry is on, but its packages are missing ({error}): pip install 'sluice[otel]'"
        ) from error
    return Tracing()


class AllowedReceivers:
    """The allowed receivers, which can change while `serve` runs."""

    def __init__(self, settings: Settings) -> None:
        self._allowed = settings.notifications.allowed()

    def use(self, settings: Settings) -> None:
        """Use the receivers of changed settings from now on."""
        self._allowed = settings.notifications.allowed()

    @asynccontextmanager
    async def opened(self, store: Store) -> AsyncIterator[Notifier]:
        """Open a notifier; its connections are closed at the end of the block."""
        async with NotificationSender.open(lambda: self._allowed) as sender:
            yield Notifier(store, lambda: self._allowed, sender, clock=store.now)
