"""Webhooks in `sluice serve`: each replica serves, registers and checks them, with certificates that all share."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import secrets
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
import orjson

from admission.cli.configuration.addresses import listening_host, split_address
from admission.cli.serve.gate_process import supervised, webhook_sockets
from admission.model.errors import SluiceError
from webhooks.gate import GateConfig
from webhooks.gate_reconciler import GateReconciler
from webhooks.policies import has_policies
from webhooks.registration import Registration, ServiceReference
from webhooks.scope import Scope
from webhooks.server import SELF_CHECK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AsyncExitStack

    from admission.cli.configuration.settings import Settings
    from admission.cli.serve.certificates import OwnCertificates
    from admission.cli.serve.gate_process import GateProcess
    from admission.cluster.client import Client
    from admission.kinds import Kinds

log = logging.getLogger(__name__)

T = TypeVar("T")


class RetryRequest(Protocol):
    """Repeats a request to the API server until it succeeds."""

    async def __call__(self, request: Callable[[], Awaitable[T]], /) -> T:
        """Return the result of the request."""


_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def in_pod() -> bool:
    """Whether this process runs in a pod of the cluster."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def own_namespace() -> str:
    """Return the namespace of the pod in which this process runs; empty outside a pod."""
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else ""


async def start_gate(stack: AsyncExitStack, settings: Settings, username: str) -> GateProcess | None:
    """Start the process that serves the webhooks and wait until it answers.

    Returns None if the API server could not reach it, or if it runs separately (`--no-webhook-process`). Raises
    AddressUnusable.
    """
    if _endpoint(settings) is None or not settings.webhook_process:
        return None
    host, port = webhook_listening(settings)
    sockets = await webhook_sockets(host, port)
    for one in sockets:
        stack.callback(one.close)
    config = GateConfig(
        certificate_directory=str(settings.certificate_directory),
        own_usernames=(username,),
        kueue_labels=settings.accept_kueue_labels,
        frameworks=settings.integrations.enabled,
        by_label=settings.integrations.by_label,
        kinds=settings.integrations.kinds,
        queue_labels=settings.integrations.queue_labels,
        priority_labels=settings.integrations.priority_labels,
        group_labels=settings.integrations.group_labels,
        rules=settings.integrations.queue_rules(),
        refuses_claims=settings.policy().devices.refuses_all,
        log_level=settings.log_level,
        log_format=settings.log_format,
        opentelemetry=settings.opentelemetry,
        descriptors=tuple(one.fileno() for one in sockets),
    )
    gate = await stack.enter_async_context(supervised(config))
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
    retry: RetryRequest,
    leads: Callable[[], bool],
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Register webhooks or admission policies with the API server.

    Returns the background task that keeps the registration up to date; None if Jobs are not gated. `retry` repeats the
    requests until they succeed.
    """
    endpoint = _endpoint(settings)
    scope = gate_scope(settings, username)
    reconciler = GateReconciler(
        client,
        settings.admission,
        kinds.gated,
        scope,
        webhook=None
        if endpoint is None
        else lambda: Registration(kinds.gated, endpoint, scope).configuration(certificates.webhook_ca),
        is_leader=leads,
        off=kinds.off,
    )
    await retry(reconciler.ensure)
    by_policies = await retry(reconciler.gates_by_policies)
    if by_policies:
        log.info("Jobs are gated by admission policies in the API server")
        if endpoint is None and (ungated := [kind.kind for kind in kinds.gated if not has_policies(kind)]):
            log.warning(
                "no --webhook-url: policies cannot gate %s, so that these run without quota; start with --webhook-url, "
                "or take them out with integrations.exclude",
                ", ".join(ungated),
            )
    elif endpoint is None:
        await _warn_of_no_webhook(reconciler, retry)
        return None
    else:
        log.info("webhooks are registered at %s", endpoint)
    return partial(reconciler.run, refresh=certificates.refresh)


async def _warn_of_no_webhook(reconciler: GateReconciler, retry: RetryRequest) -> None:
    """Log what gates Jobs if this process registers nothing: the gate of an earlier run, or nothing."""
    registered, policies = await retry(reconciler.registered_webhook), await retry(reconciler.has_registered_policies)
    if registered:
        log.warning(
            "no --webhook-url, but the API server still calls the webhook of an earlier run at %s: while nothing "
            "answers there it refuses Jobs with a queue label; start with --webhook-url, or delete the webhook "
            "with `kubectl delete mutatingwebhookconfiguration sluice`",
            registered,
        )
    if policies:
        log.warning(
            "no --webhook-url, but the admission policies of an earlier run still gate Jobs, and only the user of that "
            "run can start them: set admission to policies, or start with --webhook-url"
        )
    if not registered and not policies:
        log.warning("no --webhook-url: Jobs that are not created suspended start before Sluice can stop them")


def gate_scope(settings: Settings, username: str) -> Scope:
    """Return the scope of the gate: users, namespaces and rules that it distinguishes."""
    managed = None
    if (selector := settings.managed_namespaces()) is not None:
        # Labels become expressions: the registration is merged into an existing one, in which a match label that was
        # removed from the settings would remain.
        labels = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.match_labels.items()]
        dumped = selector.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        managed = (*labels, *dumped.get("matchExpressions", ()))
    excluded = tuple(sorted(excluded_namespaces()))
    integrations = settings.integrations
    return Scope((username,), excluded, managed, integrations.queue_rules(), integrations.by_label)


def excluded_namespaces() -> tuple[str, ...]:
    """Return the namespaces in which nothing is queued. Sluice's own pods must be able to start without Sluice."""
    return tuple(filter(None, ("kube-system", own_namespace())))


def webhook_listening(settings: Settings) -> tuple[str, int]:
    """Return host and port that the webhooks listen on: `webhookAddress` if given, else derived from `webhookUrl`.

    A URL without a port is usually that of a load balancer, so that the default port remains. Outside a cluster and
    without a URL no API server is told where they are: they listen on loopback.
    """
    default = split_address(settings.webhook_address)
    if "webhook_address" in settings.model_fields_set:
        return default
    if settings.webhook_url is None:
        return default if in_pod() else ("127.0.0.1", default[1])
    url = urlsplit(settings.webhook_url)
    return listening_host(url.hostname or ""), url.port or default[1]


def webhook_hosts(settings: Settings) -> list[str]:
    """Return the host names that the webhooks' certificate must be valid for."""
    endpoint = _endpoint(settings)
    if endpoint is None:
        return []
    return [
        urlsplit(endpoint).hostname or "" if isinstance(endpoint, str) else f"{endpoint.name}.{endpoint.namespace}.svc"
    ]


def _endpoint(settings: Settings) -> str | ServiceReference | None:
    """Return the URL or Service at which the API server reaches the webhooks; None if they are not registered."""
    if settings.webhook_url is not None:
        return settings.webhook_url
    if not in_pod():
        return None
    namespace, _, name = settings.webhook_service.partition("/")
    return ServiceReference(namespace, name)


PERIOD: Final = 120.0
"""Seconds between two checks."""
RECHECK: Final = 10.0
"""Seconds between two checks after a failed one, so that the message disappears soon after a repair."""
CONFIRM: Final = 1.0
"""Seconds after which a failed check is repeated before it counts: the gate may be restarting or renew its
certificate."""
SERVICE_DELAY: Final = 30.0
"""Seconds before the first check of a Service, which leads to this pod only when the pod is ready."""
_ANSWER: Final = 5.0
"""Timeout of a call (s), that of the registered webhooks."""


class WebhookCheck:
    """Calls the registered webhook periodically; `fault` says what is wrong.

    The result does not make a replica unready: a Service has no endpoints without ready pods, so that a failed check
    could never succeed again. `registered` returns the clientConfig of the webhooks, None if there are none.
    """

    def __init__(self, registered: Callable[[], Awaitable[dict[str, Any] | None]]) -> None:
        self._registered = registered
        self._unresolved = ""
        """The Service of which it was logged that it cannot be checked from here."""
        self.fault = ""
        """One sentence that says what is wrong; empty: nothing, or it is not known yet."""

    async def run(self, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Check until cancelled. Errors are logged, not raised."""
        first = True
        while True:
            try:
                config = await self._registered()
                if first and config is not None and "service" in config:
                    await sleep(SERVICE_DELAY)
                if await self._check(config):
                    await sleep(CONFIRM)
                    config = await self._registered()
                    self._note(await self._check(config))
                else:
                    self._note("")
            except SluiceError as error:  # the API server does not answer; the last result stays
                log.debug("the registered webhooks cannot be read: %s", error)
            except Exception:  # a defect, or a malformed configuration, must not end the process
                log.exception("the registered webhooks could not be checked, and are checked again")
            first = False
            await sleep(RECHECK if self.fault else PERIOD)

    def _note(self, fault: str) -> None:
        if fault and fault != self.fault:
            log.error("%s", fault)
        elif self.fault and not fault:
            log.info("the webhooks answer at their registered address again")
        self.fault = fault

    async def _check(self, config: dict[str, Any] | None) -> str:
        """Return what is wrong with the webhook that this clientConfig leads to; empty if it answers rightly."""
        if config is None:
            return ""
        service = config.get("service")
        url = str(config["url"]) if service is None else _url(service)
        try:
            wrong = await _call(url, _tls(config.get("caBundle") or ""))
        except aiohttp.ClientConnectorDNSError:
            if service:  # the API server finds Services without DNS, which not every pod or host can ask
                if url != self._unresolved:
                    log.info("the webhooks at %s cannot be checked from here: the name is not resolved", url)
                self._unresolved = url
                return ""
            wrong = "the host name cannot be resolved"
        if not wrong:
            return ""
        remedy = (
            f"check the Service {service['namespace']}/{service['name']} and network policies"
            if service
            else "check webhookUrl and webhookAddress, and firewalls in between"
        )
        return (
            f"the webhooks are registered at {url}, but {wrong}, so that the API server refuses Jobs with a queue "
            f"label: {remedy}"
        )


def _url(service: dict[str, Any]) -> str:
    return f"https://{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}{service.get('path', '')}"


def _tls(bundle: str) -> ssl.SSLContext:
    """Return a context that trusts the bundle (base64 of PEM) alone, with the checks that Go makes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False
    try:
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode())
    except (ssl.SSLError, binascii.Error, ValueError):
        log.debug("the registered CA bundle is not PEM")  # no certificate is trusted then, which the call finds
    return context


async def _call(url: str, context: ssl.SSLContext) -> str:
    """Send a review of nothing in particular; return what is wrong. Raises ClientConnectorDNSError."""
    uid = secrets.token_hex(8)
    request = {
        "uid": uid,
        "operation": SELF_CHECK,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    timeout = aiohttp.ClientTimeout(total=_ANSWER)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, json=review, ssl=context, allow_redirects=False) as response,
        ):
            answer = orjson.loads(await response.read())
            return "" if answer["response"]["uid"] == uid else _OTHER
    except aiohttp.ClientConnectorDNSError:
        raise
    except aiohttp.ClientConnectorCertificateError as error:
        cause = error.certificate_error
        return f"the certificate there does not fit ({getattr(cause, 'verify_message', '') or cause})"
    except aiohttp.ClientConnectorSSLError:
        return "what answers there does not speak TLS"
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno  # asyncio writes a message of its own, with the address once more
        return f"nothing answers there ({os.strerror(number) if number else error.os_error})"
    except TimeoutError:
        return f"nothing answers there within {_ANSWER:g} s"
    except (aiohttp.ClientError, OSError):
        return "the connection breaks"
    except (ValueError, TypeError, KeyError):
        return _OTHER


_OTHER: Final = "something other than Sluice's webhooks answers there"
