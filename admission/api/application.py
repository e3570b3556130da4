"""The REST API: construction of the aiohttp application, its routes, and its listener."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from admission.api.auth.authentication import AUTHENTICATION, Authentication
from admission.api.auth.authorization import AUTHORIZATION, POD_LOG_ROUTE, PODS_ROUTE, Authorization
from admission.api.auth.cluster_rights import CLUSTER_RIGHTS, ClusterRights, warn_of_silent_clusters
from admission.api.auth.login import Login
from admission.api.auth.oidc.issuer import Issuer
from admission.api.auth.oidc.sign_in import BEGIN, FINISH, OidcSignIn
from admission.api.auth.session_rights import SessionRights
from admission.api.auth.sessions import Sessions
from admission.api.errors import AddressUnusable
from admission.api.http.bodies import PARSER_SLOTS
from admission.api.http.database_timeout import DatabaseTimeout, mark_started
from admission.api.http.failures import RESOURCE, failures
from admission.api.http.rate_limits import RateLimiter
from admission.api.http.responses import add_warning
from admission.api.kinds.descriptor import no_cluster_check, no_receiver_fault
from admission.api.openapi import discovery, document
from admission.api.probes import Probes, no_webhook_fault, none_not_queued
from admission.api.registry import (
    ALL_REPORTS,
    ATTENTION_REPORT,
    CLUSTER_REPORT,
    COST_REPORT,
    DRAIN_REPORT,
    FAIRNESS_REPORT,
    GROUP,
    NAMESPACE_REPORT,
    NODE_REPORT,
    OBJECTIVE_REPORT,
    PENDING_REPORT,
    PREFIX,
    QUOTE,
    RESOURCES,
    STAY_REPORT,
    SUBRESOURCES,
    TOPOLOGY_REPORT,
    USAGE_OF_MINE,
    USAGE_REPORT,
    WHAT_IFS,
    WORKLOADS,
)
from admission.api.resources.attention_report import AttentionReports
from admission.api.resources.audit_records import AuditRecords
from admission.api.resources.calendars import Calendars
from admission.api.resources.cancellations import Cancellations
from admission.api.resources.cluster_report import ClusterReports
from admission.api.resources.cluster_views import ClusterViews
from admission.api.resources.clusters_in_reach import ClustersInReach
from admission.api.resources.consistency_audits import Audits
from admission.api.resources.cost_report import CostReports
from admission.api.resources.drain_report import DrainReports
from admission.api.resources.dry_run import Previews
from admission.api.resources.explaining_engine import Engines, NoController
from admission.api.resources.explanations import Explanations
from admission.api.resources.fairness_report import FairnessReports
from admission.api.resources.history import QueueObjectHistories, WorkloadHistories
from admission.api.resources.leader_view import NoLeader
from admission.api.resources.objective_report import ObjectiveReports
from admission.api.resources.queue_objects import QueueObjects
from admission.api.resources.start_estimates import no_estimates
from admission.api.resources.topology_report import TopologyReports
from admission.api.resources.usage_reports import UsageReports
from admission.api.resources.what_if import WhatIfs
from admission.api.resources.workload_lookup import WorkloadLookup
from admission.api.resources.workload_pods import PodsOfWorkloads
from admission.api.resources.workload_search import WorkloadSearch
from admission.api.resources.workloads import WorkloadHandlers
from admission.api.watch.broadcast import Watches
from admission.dashboard import add_dashboard
from admission.serving import listener
from admission.serving.connections import ConnectionLimits, Connections

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    from admission.api.auth.delegation import Delegation
    from admission.api.auth.front_proxy import FrontProxy
    from admission.api.auth.oidc.client import OidcClient
    from admission.api.kinds.descriptor import ClusterCheck, ReceiverFault
    from admission.api.probes import Checks, NotQueuedObjects, WebhookFault
    from admission.api.registry import NamedReport, Resource
    from admission.api.resources.cancellations import ChangeableCluster
    from admission.api.resources.clusters_in_reach import Reach
    from admission.api.resources.explaining_engine import LocalController
    from admission.api.resources.leader_view import LeaderView
    from admission.api.resources.start_estimates import EstimateOf
    from admission.api.resources.what_if import WhatIf
    from admission.store.store import Store

    Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_METHODS = {
    "create": "POST",
    "delete": "DELETE",
    "deletecollection": "DELETE",
    "get": "GET",
    "list": "GET",
    "patch": "PATCH",
    "update": "PUT",
}
_ON_COLLECTION = ("create", "deletecollection", "list")
_SHUTDOWN_SECONDS = 5.0
"""Time that requests under way may still take when the server stops."""
_PARSER_THREADS = 2
"""Large request bodies that are parsed concurrently, each in a thread."""

REQUESTS_PER_SECOND, REQUESTS_BURST = 200.0, 2000.0
"""Rate limit of each user: sustained rate and burst of requests."""

_LOGINS_PER_SECOND, _LOGINS_BURST = 1.0, 20.0
"""Rate limit of attempts to sign in from each client address."""


def create_app(
    store: Store,
    *,
    checks: Checks,
    token: str | None = None,
    delegation: Delegation | None = None,
    front_proxy: FrontProxy | None = None,
    oidc: OidcClient | None = None,
    controller: LocalController | None = None,
    leader: LeaderView | None = None,
    estimate_of: EstimateOf = no_estimates,
    what_if: WhatIf | None = None,
    receiver_fault: ReceiverFault = no_receiver_fault,
    check_cluster: ClusterCheck = no_cluster_check,
    webhook_fault: WebhookFault = no_webhook_fault,
    not_queued: NotQueuedObjects = none_not_queued,
    cluster: ChangeableCluster | None = None,
    reach: Reach | None = None,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
) -> web.Application:
    """Return the API on `store`.

    checks: the readiness checks of /readyz.
    token: bearer token of an admin with all rights.
    delegation: authenticates and authorizes the cluster's users by TokenReview and SubjectAccessReview.
    front_proxy: proxies that are trusted to name users in headers.
    oidc: the issuer that users may sign in at.
    controller: the controller in this process, if there is one; it answers explanations and dry runs.
    leader: the leading replica, as seen from this one.
    estimate_of: start estimates of pending workloads.
    what_if: replays past periods.
    receiver_fault: checks the receivers of subscriptions.
    check_cluster: connects to a cluster that is to join, and asks for the rights there.
    webhook_fault: says why the API server does not reach the webhooks.
    not_queued: objects that have a queue label and are not queued.
    cluster: pods, their logs, and nodes; what a name is that no workload has; deletion of what is cancelled.
    reach: connects to the other clusters: for what they allow users, and for pods that were dispatched to them.
    clock: monotonic, seconds. now: Unix time, seconds.

    Raises UnusableCertificate (`oidc`), and ValueError if there is neither a token nor a delegation.
    """
    issuer = "" if oidc is None else oidc.issuer
    sessions = Sessions(store.browser_sessions, clock=clock)
    limiter = RateLimiter(per_second=REQUESTS_PER_SECOND, burst=REQUESTS_BURST, clock=clock)
    authentication = Authentication(
        token=token, delegation=delegation, front_proxy=front_proxy, sessions=sessions, limiter=limiter, issuer=issuer
    )
    authorization = Authorization(delegation)
    timeout = DatabaseTimeout(store).middleware
    app = web.Application(middlewares=[failures, timeout, authentication.middleware, authorization.middleware])
    app[AUTHENTICATION] = authentication
    app[AUTHORIZATION] = authorization
    app[CLUSTER_RIGHTS] = ClusterRights(store, reach, clock=clock)
    app[PARSER_SLOTS] = asyncio.Semaphore(_PARSER_THREADS)
    controller, leader = controller or NoController(), leader or NoLeader()
    app.on_response_prepare.extend((add_security_headers, mark_started, partial(_warn_of_standstill, leader)))
    app.on_response_prepare.append(warn_of_silent_clusters)
    logins = RateLimiter(per_second=_LOGINS_PER_SECOND, burst=_LOGINS_BURST, clock=clock)
    login = Login(authentication, sessions, logins, issuer=issuer, standstill=leader.standstill)
    lookup = WorkloadLookup(store, cluster, not_queued)
    cancellations = Cancellations(store, lookup, cluster)
    app.cleanup_ctx.append(cancellations.telling_of_lost_ones)
    rights = SessionRights(store, cancellations.available, clock=clock)
    _add_sessions(app, login, rights)
    if oidc is not None:
        _add_oidc(app, Issuer(oidc, clock=clock), sessions, logins)
    _add_probes(app, Probes(checks, authentication, webhook_fault=webhook_fault))
    _add_discovery(app)
    app.router.add_get(f"{PREFIX}/auditrecords", AuditRecords(store, now=now).list)
    attention = AttentionReports(store, leader, now=now, webhook_fault=webhook_fault, not_queued=not_queued)
    views = ClusterViews(store, cluster)
    clusters = ClustersInReach(store, cluster, reach)
    pods = PodsOfWorkloads(store, lookup.visible, clusters)
    app.on_shutdown.append(lambda _: pods.close())
    app.router.add_get(PODS_ROUTE, pods.pods)
    app.router.add_get(POD_LOG_ROUTE, pods.last_lines)
    usage = UsageReports(store, views)
    costs = CostReports(store, usage)
    reports: dict[NamedReport, Handler] = {
        USAGE_REPORT: usage.usage,
        USAGE_OF_MINE: usage.mine,
        STAY_REPORT: usage.node,
        PENDING_REPORT: usage.pending,
        COST_REPORT: costs.get,
        QUOTE: costs.quote,
        NODE_REPORT: views.nodes,
        ATTENTION_REPORT: attention.get,
        FAIRNESS_REPORT: FairnessReports(store).get,
        OBJECTIVE_REPORT: ObjectiveReports(store).get,
        DRAIN_REPORT: DrainReports(store, clusters, rights).get,
        CLUSTER_REPORT: ClusterReports(store).get,
        TOPOLOGY_REPORT: TopologyReports(store, controller, rights).get,
        NAMESPACE_REPORT: rights.report,
    }
    for report in ALL_REPORTS:
        for path in report.paths:
            app.router.add_get(path, reports[report])
    _add_audits(app, Audits(store, controller, leader, webhook_fault=webhook_fault, not_queued=not_queued))
    app.router.add_post(WHAT_IFS.collection(), WhatIfs(what_if, controller, now=now).post)
    engines = Engines(store, controller, receiver_fault=receiver_fault, check_cluster=check_cluster, clock=now)
    _add_resources(app, store, engines, estimate_of, lookup, rights, cancellations, pods, now=now)
    add_dashboard(app)
    return app


def _add_audits(app: web.Application, audits: Audits) -> None:
    app.router.add_get(f"{PREFIX}/audits", audits.get)
    app.router.add_post(f"{PREFIX}/audits", audits.post)


def _add_probes(app: web.Application, probes: Probes) -> None:
    app.router.add_get("/livez", probes.alive)
    app.router.add_get("/readyz", probes.ready)
    app.router.add_get("/healthz", probes.ready)


def _add_discovery(app: web.Application) -> None:
    """Add discovery and OpenAPI, from which kubectl and other clients learn the resources."""
    app.router.add_get("/apis", discovery.groups)
    app.router.add_get(f"/apis/{GROUP}", discovery.group)
    app.router.add_get(PREFIX, discovery.resources)
    app.router.add_get("/openapi/v3", document.index)
    app.router.add_get(f"/openapi/v3/{document.DOCUMENT_PATH}", document.document)


async def _warn_of_standstill(leader: LeaderView, request: web.Request, response: web.StreamResponse) -> None:
    """Add a warning to responses about objects while Sluice makes no decisions."""
    if request.path.startswith(f"{PREFIX}/") and (text := leader.standstill()):
        add_warning(response, text)


def _add_sessions(app: web.Application, login: Login, rights: SessionRights) -> None:
    """Add the routes of the dashboard's sessions: sign in, sign out, and the rights of the user."""
    app.router.add_get("/login", login.methods)
    app.router.add_post("/login", login.login)
    app.router.add_post("/logout", login.logout)
    app.router.add_get("/session", login.session)
    app.router.add_post("/session/access", rights.access)
    app.router.add_get("/session/namespaces", rights.namespaces)


def _add_oidc(app: web.Application, issuer: Issuer, sessions: Sessions, logins: RateLimiter) -> None:
    app.cleanup_ctx.append(issuer.opened)
    sign_in = OidcSignIn(issuer, sessions, logins)
    app.router.add_post(BEGIN, sign_in.begin)
    app.router.add_post(FINISH, sign_in.finish)


def _add_resources(
    app: web.Application,
    store: Store,
    engines: Engines,
    estimate_of: EstimateOf,
    lookup: WorkloadLookup,
    rights: SessionRights,
    cancellations: Cancellations,
    pods: PodsOfWorkloads,
    *,
    now: Callable[[], float],
) -> None:
    """Add the routes of all resources and subresources of `admission.api.registry`."""
    watches, previews = Watches(store, now=now), Previews(engines)
    app.on_shutdown.append(lambda _: watches.close())
    workloads = WorkloadHandlers(store, WORKLOADS, watches, previews, estimate_of, lookup, now=now)
    app.router.add_get("/session/workloads", WorkloadSearch(store, rights, workloads, now=now).get)
    explanations = Explanations(store, lookup, engines, estimate_of)
    calendars = Calendars(store, engines)
    subresources: dict[tuple[str, str, str], Handler] = {
        ("clusterqueues", "calendar", "get"): calendars.of_cluster_queue,
        ("cohorts", "calendar", "get"): calendars.of_cohort,
        ("clusterqueues", "pendingworkloads", "get"): explanations.of_cluster_queue,
        ("localqueues", "pendingworkloads", "get"): explanations.of_local_queue,
        ("workloads", "cancel", "create"): cancellations.create,
        ("workloads", "explain", "get"): explanations.explain,
        ("workloads", "history", "get"): WorkloadHistories(store, lookup, now=now).get,
        ("workloads", "log", "get"): pods.log,
        ("workloads", "pods", "get"): pods.pods,
        ("workloads", "status", "get"): workloads.get,
        ("workloads", "status", "patch"): workloads.patch_status,
    }
    for resource in RESOURCES:
        verbs: WorkloadHandlers | QueueObjects = workloads
        if resource.model is not None:
            verbs = QueueObjects(store, resource, resource.model, watches, previews, now=now)
            histories = QueueObjectHistories(store, resource, verbs)
            subresources[resource.plural, "history", "get"] = histories.get
            subresources[resource.plural, "rollback", "create"] = histories.rollback
        for verb in resource.verbs:
            if verb != "watch":  # a watch is a list request with `?watch=true`
                _route(app, resource, verb, getattr(verbs, verb))
    for row in SUBRESOURCES:
        for verb in row.verbs:
            _route(app, row.resource, verb, subresources[row.of, row.name, verb], f"/{row.name}")


@asynccontextmanager
async def listening(
    app: web.Application, host: str, port: int, *, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve `app` within the block, and yield its URL; port 0 takes a free port. Raises AddressUnusable."""
    try:
        sockets = await listener.open_sockets(host, port)
    except OSError as error:
        why = error.strerror or error
        raise AddressUnusable(
            f"the API cannot listen on {host}:{port} ({why}); choose another address: --api-address HOST:PORT"
        ) from error
    connections = Connections(ConnectionLimits.for_this_process())
    async with listener.listening(
        app, sockets, connections=connections, ssl_context=ssl_context, shutdown_seconds=_SHUTDOWN_SECONDS
    ) as ((address, bound), *_):
        scheme = "http" if ssl_context is None else "https"
        yield f"{scheme}://[{address}]:{bound}" if ":" in address else f"{scheme}://{address}:{bound}"


def _route(app: web.Application, resource: Resource, verb: str, handler: Handler, subresource: str = "") -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        request[RESOURCE] = resource
        return await handler(request)

    collection = resource.collection("{namespace}" if resource.namespaced else "")
    is_collection = verb in _ON_COLLECTION and not subresource
    path = collection if is_collection else f"{collection}/{{name}}{subresource}"
    app.router.add_route(_METHODS[verb], path, handle)
    if verb == "list" and resource.namespaced:
        app.router.add_route("GET", resource.collection(), handle)


_HEADERS = {
    "Cache-Control": "no-cache, private",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ONE_YEAR = "max-age=31536000"
"""Strict-Transport-Security, over TLS only."""


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers before a response is sent (signal `on_response_prepare`).

    Headers that a handler has set are kept: the dashboard's pages have a Content-Security-Policy of their own.
    """
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.secure:
        response.headers.setdefault("Strict-Transport-Security", _ONE_YEAR)
