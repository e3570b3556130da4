"""The webhooks' part of `sluice serve`: every replica serves and registers them, with certificates that all share."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from admission.api.errors import AddressUnusable
from admission.cli.settings import split_address
from webhooks.registration import Registration, ServiceReference, ensure_registered, keep_registered
from webhooks.review import Reviewer
from webhooks.server import WebhookServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AsyncExitStack

    from admission.cli.certificates import OwnCertificates
    from admission.cli.settings import Settings
    from admission.cluster.client import Client
    from admission.kinds import Kind

log = logging.getLogger(__name__)

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def in_pod() -> bool:
    """Whether this process is part of the cluster that it works for."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def own_namespace() -> str:
    """The namespace that this process is a pod of; empty if it is none."""
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else ""


async def serve_webhooks(
    stack: AsyncExitStack,
    settings: Settings,
    *,
    client: Client,
    kind: Kind,
    username: str,
    queue_exists: Callable[[str, str], bool],
    certificates: OwnCertificates,
    asked: Callable[[Callable[[], Awaitable[bool]]], Awaitable[bool]],
) -> Coroutine[Any, Any, None] | None:
    """Listen, then register; what keeps both as they should be is returned to be run. None: nobody could call them.

    `asked` makes the request to register until it succeeds.
    """
    endpoint = _endpoint(settings)
    if endpoint is None:
        log.warning("no --webhook-url: Jobs that are not created suspended start before Sluice can stop them")
        return None
    reviewer = Reviewer([kind], own_usernames=[username], queue_exists=queue_exists)
    host, port = split_address(settings.webhook_address)
    try:
        await stack.enter_async_context(
            WebhookServer(reviewer, ssl_context=certificates.kept.ssl_context, host=host, port=port)
        )
    except OSError as error:
        why = error.strerror or error
        raise AddressUnusable(f"the webhooks cannot listen on {host}:{port} ({why}); choose another address") from error
    # Sluice must never have to ask itself.
    excluded = tuple(filter(None, ("kube-system", own_namespace())))
    registration = Registration((kind,), endpoint, (username,), excluded)
    await asked(lambda: ensure_registered(client, registration.configurations(certificates.kept.ca_bundle)))
    log.info("webhooks listen on %s:%d and are registered as %s", host, port, endpoint)
    return keep_registered(client, registration, certificates.kept, refresh=certificates.refresh)


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
