"""The webhook's part of `sluice serve`: every replica answers and registers it, with certificates that all share."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from admission.cli.configuration.addresses import split_address
from admission.cli.serve.gate_process import supervised, webhook_sockets
from webhooks.gate import Order
from webhooks.registration import Registration, ServiceReference
from webhooks.scope import Scope
from webhooks.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AsyncExitStack

    from admission.cli.configuration.settings import Settings
    from admission.cli.serve.certificates import OwnCertificates
    from admission.cli.serve.gate_process import Gate
    from admission.cluster.client import Client
    from admission.kinds import Kinds

log = logging.getLogger(__name__)

T = TypeVar("T")


class Asked(Protocol):
    """Makes a request to the API server until it succeeds."""

    async def __call__(self, request: Callable[[], Awaitable[T]], /) -> T:
        """What the request gives."""


_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def in_pod() -> bool:
    """Whether this process is part of the cluster that it works for."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def own_namespace() -> str:
    """The namespace that this process is a pod of; empty if it is none."""
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else ""


async def start_gate(stack: AsyncExitStack, settings: Settings, username: str) -> Gate | None:
    """The process that answers the webhook, once it does. None: nobody could call it, or it runs elsewhere.

    Raises AddressUnusable.
    """
    if _endpoint(settings) is None or not settings.webhook_process:
        return None
    host, port = split_address(settings.webhook_address)
    sockets = await webhook_sockets(host, port)
    for one in sockets:
        stack.callback(one.close)
    order = Order(
        certificate_directory=str(settings.certificate_directory),
        own_usernames=(username,),
        kueue_labels=settings.accept_kueue_labels,
        frameworks=settings.integrations.frameworks,
        kinds=settings.integrations.kinds,
        queue_labels=settings.integrations.queue_labels,
        priority_labels=settings.integrations.priority_labels,
        group_labels=settings.integrations.group_labels,
        rules=settings.integrations.queue_rules(),
        log_level=settings.log_level,
        log_format=settings.log_format,
        opentelemetry=settings.opentelemetry,
        descriptors=tuple(one.fileno() for one in sockets),
    )
    gate = await stack.enter_async_context(supervised(order))
    await gate.ready()
    log.info("webhooks listen on %s:%d, in a process of their own", host, port)
    return gate


async def register_gate(
    settings: Settings,
    *,
    client: Client,
    kinds: Kinds,
    username: str,
    certificates: OwnCertificates,
    asked: Asked,
    leads: Callable[[], bool],
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Let the API server gate Jobs; what keeps it so is returned to be run. None: there is no gate.

    `asked` makes the request to register until it succeeds.
    """
    endpoint = _endpoint(settings)
    scope = gate_scope(settings, username)
    standing = Standing(
        client,
        settings.admission,
        kinds.gated,
        scope,
        webhook=None
        if endpoint is None
        else lambda: Registration(kinds.gated, endpoint, scope).configuration(certificates.webhook_ca),
        leads=leads,
    )
    await asked(standing.ensure)
    by_policies = await asked(standing.gates_by_policies)
    if by_policies:
        log.info("Jobs are gated by admission policies in the API server")
    elif endpoint is None:
        if registered := await asked(standing.registered_webhook):
            log.warning(
                "no --webhook-url, but the API server still calls the webhook of an earlier run at %s: while nothing "
                "answers there it refuses Jobs with a queue label; start with --webhook-url, or take the webhook away "
                "by `kubectl delete mutatingwebhookconfiguration sluice`",
                registered,
            )
        else:
            log.warning("no --webhook-url: Jobs that are not created suspended start before Sluice can stop them")
        return None
    else:
        log.info("webhooks are registered at %s", endpoint)
    return partial(standing.keep, refresh=certificates.refresh)


def gate_scope(settings: Settings, username: str) -> Scope:
    """Whom the gate is about."""
    managed = None
    if (selector := settings.managed_namespaces()) is not None:
        # As expressions alone: of an object that is merged into an older one, a label would stay.
        labels = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.match_labels.items()]
        dumped = selector.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        managed = (*labels, *dumped.get("matchExpressions", ()))
    excluded = tuple(sorted(excluded_namespaces()))
    return Scope((username,), excluded, managed, settings.integrations.queue_rules())


def excluded_namespaces() -> tuple[str, ...]:
    """Where nothing is queued: Sluice must never have to ask itself before something of its own can start."""
    return tuple(filter(None, ("kube-system", own_namespace())))


def webhook_hosts(settings: Settings) -> list[str]:
    """Whom the webhooks' certificate has to be for."""
    endpoint = _endpoint(settings)
    if endpoint is None:
        return []
    return [
        urlsplit(endpoint).hostname or "" if isinstance(endpoint, str) else f"{endpoint.name}.{endpoint.namespace}.svc"
    ]


def _endpoint(settings: Settings) -> str | ServiceReference | None:
    """Where the API server shall find the webhooks; None: nowhere, so they are not registered."""
    if settings.webhook_url is not None:
        return settings.webhook_url
    if not in_pod():
        return None
    namespace, _, name = settings.webhook_service.partition("/")
    return ServiceReference(namespace, name)
