"""Serving of the REST API in `sluice serve`: TLS, authentication, and the APIService for kubectl."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from admission.api.application import create_app
from admission.api.auth.delegation import Delegation
from admission.api.auth.front_proxy import AuthenticatingProxy, FrontProxy
from admission.api.kinds.descriptor import no_cluster_check, no_receiver_fault
from admission.api.probes import no_webhook_fault, none_not_queued
from admission.api.registry import GROUP, VERSION
from admission.cli.configuration.addresses import listening_host, split_address
from admission.cli.configuration.settings import EXTERNAL_SERVICE
from admission.cli.errors import InvalidSettings
from admission.cluster.desired import ensure
from admission.cluster.errors import AlreadyExists, NotFound
from admission.model.errors import SluiceError
from admission.serving.tls import ReloadingContext
from webhooks.exposition import expiry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from admission.api.kinds.descriptor import ClusterCheck, ReceiverFault
    from admission.api.probes import Checks, NotQueuedObjects, WebhookFault
    from admission.api.resources.clusters_in_reach import Reach
    from admission.api.resources.explaining_engine import LocalController
    from admission.api.resources.leader_view import LeaderView
    from admission.api.resources.start_estimates import EstimateOf
    from admission.api.resources.what_if import WhatIf
    from admission.cli.configuration.settings import Settings
    from admission.cli.serve.certificates import OwnCertificates
    from admission.cluster.client import Client, Object
    from admission.store.store import Store

log = logging.getLogger(__name__)

_PERIOD = 60.0
"""Seconds between checks of certificates and of the APIService, which others may have changed or deleted."""

_APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LABELS = {"app.kubernetes.io/name": "sluice"}


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Route from the API server to the REST API: a Service, of type ExternalName for Sluice outside the cluster."""

    namespace: str
    service: str
    port: int
    external_name: str = ""
    """Host name of Sluice outside the cluster; empty if the Service selects Sluice's pods."""

    @property
    def host(self) -> str:
        """Return the host name that the serving certificate must have."""
        return f"{self.service}.{self.namespace}.svc"

    @property
    def route(self) -> str:
        """Return a description of the route from the API server to Sluice, for messages."""
        service = f"the Service {self.namespace}/{self.service}, port {self.port}"
        return f"{service}, which leads to {self.external_name}" if self.external_name else service

    def api_service(self, ca_bundle: bytes) -> Object:
        """Return the manifest of the APIService."""
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}", "labels": _LABELS},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": {"namespace": self.namespace, "name": self.service, "port": self.port},
                "caBundle": base64.b64encode(ca_bundle).decode(),
            },
        }

    async def ensure(self, client: Client, ca_bundle: bytes) -> bool:
        """Create or correct APIService and Service; return whether anything was changed. Raises ClusterError."""
        changed = False
        if self.external_name:
            changed = await self._ensure_service(client)
        return await ensure(client, _APISERVICES, self.api_service(ca_bundle)) or changed

    async def _ensure_service(self, client: Client) -> bool:
        service: Object = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.service, "labels": _LABELS},
            "spec": {"type": "ExternalName", "externalName": self.external_name, "ports": [{"port": self.port}]},
        }
        collection = f"/api/v1/namespaces/{self.namespace}/services"
        try:
            return await ensure(client, collection, service)
        except NotFound:  # the namespace does not exist yet
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            try:
                await client.create("/api/v1/namespaces", namespace)
            except AlreadyExists:
                log.debug("another replica has created the namespace %s", self.namespace)
            return await ensure(client, collection, service)


def service_of_api(settings: Settings) -> str:
    """Return NAMESPACE/NAME of the Service through which the API server reaches the REST API.

    Outside the cluster the default is not the chart's Service: Helm would refuse to install over an object that it did
    not create.
    """
    if settings.apiservice_url is not None and "api_service" not in settings.model_fields_set:
        return EXTERNAL_SERVICE
    return settings.api_service


def aggregation(settings: Settings) -> Aggregation | None:
    """Return the aggregation that the settings configure; None if the API is not registered as an APIService."""
    namespace, _, name = service_of_api(settings).partition("/")
    if settings.apiservice_url is not None:
        parts = urlsplit(settings.apiservice_url)
        return Aggregation(namespace, name, parts.port or 443, parts.hostname or "")
    return Aggregation(namespace, name, 443) if settings.apiservice else None


def api_address(settings: Settings) -> tuple[str, int]:
    """Return host and port that the API listens on: `apiAddress` if given, else derived from `apiserviceUrl`."""
    if settings.apiservice_url is None or "api_address" in settings.model_fields_set:
        return split_address(settings.api_address)
    parts = urlsplit(settings.apiservice_url)
    return listening_host(parts.hostname or ""), parts.port or 443


def has_tls(settings: Settings) -> bool:
    """Whether the API uses TLS: always, except on loopback without certificate, APIService and authenticating proxy.

    Raises InvalidSettings if only one of apiCertificate and apiKey is given, or if apiCa is missing.
    """
    if (settings.api_certificate is None) != (settings.api_key is None):
        raise InvalidSettings("apiCertificate and apiKey belong together: give both or neither")
    if settings.api_certificate is not None and settings.api_ca is None and aggregation(settings) is not None:
        raise InvalidSettings(
            "the API server verifies apiCertificate by the CA in the APIService: give apiCa, the file of that CA, too"
        )
    needed = (settings.api_certificate, aggregation(settings), settings.request_header)
    given = any(each is not None for each in needed)
    return given or split_address(settings.api_address)[0] not in _LOOPBACK


def api_hosts(settings: Settings) -> list[str]:
    """Return the host names and addresses of the API's certificate; empty if Sluice does not have to generate one."""
    if not has_tls(settings) or settings.api_certificate is not None:
        return []
    namespace, _, name = service_of_api(settings).partition("/")
    listens, _ = api_address(settings)
    url = urlsplit(settings.apiservice_url or "").hostname
    named = [f"{name}.{namespace}.svc", url, *_LOOPBACK, None if listens in ("0.0.0.0", "::") else listens]  # noqa: S104
    return list(dict.fromkeys(filter(None, named)))


def api_app(
    settings: Settings,
    store: Store,
    client: Client,
    deciding: LocalController,
    leader: LeaderView,
    endpoint: TlsEndpoint | None,
    checks: Checks,
    estimate_of: EstimateOf,
    receiver_fault: ReceiverFault = no_receiver_fault,
    check_cluster: ClusterCheck = no_cluster_check,
    webhook_fault: WebhookFault = no_webhook_fault,
    not_queued: NotQueuedObjects = none_not_queued,
    what_if: WhatIf | None = None,
    reach: Reach | None = None,
) -> web.Application:
    """Return the API's application, which authenticates users of the cluster and, if configured, the admin token.

    Raises UnusableCertificate.
    """
    return create_app(
        store,
        checks=checks,
        token=None if settings.admin_token is None else settings.admin_token.get_secret_value(),
        delegation=Delegation(client, audiences=(settings.token_audience,) if settings.token_audience else ()),
        front_proxy=None if endpoint is None else endpoint.front_proxy,
        oidc=None if settings.oidc is None else settings.oidc.client(),
        controller=deciding,
        leader=leader,
        estimate_of=estimate_of,
        what_if=what_if,
        receiver_fault=receiver_fault,
        check_cluster=check_cluster,
        webhook_fault=webhook_fault,
        not_queued=not_queued,
        cluster=client,
        reach=reach,
    )


def _own_proxy(settings: Settings) -> AuthenticatingProxy | None:
    given = settings.request_header
    if given is None:
        return None
    return AuthenticatingProxy(given.client_ca_file, given.allowed_names, given.username_headers, given.group_headers)


async def tls_endpoint(settings: Settings, client: Client, certificates: OwnCertificates) -> TlsEndpoint | None:
    """Return the API's TLS endpoint, ready to listen; None if it serves plain HTTP. Raises UnusableCertificate."""
    if not has_tls(settings):
        return None
    endpoint = TlsEndpoint(settings, client, certificates)
    await endpoint.refresh()
    return endpoint


class TlsEndpoint:
    """The API's TLS endpoint: its certificate, the front proxies that it trusts, and its APIService."""

    def __init__(self, settings: Settings, client: Client, certificates: OwnCertificates) -> None:
        """Raises UnusableCertificate."""
        self._client = client
        self._certificates = certificates
        self._aggregation = aggregation(settings)
        own = settings.certificate_directory
        certificate, key = settings.api_certificate, settings.api_key
        self._ca_file = settings.api_ca or (own / "ca.crt")
        self._certificate_file = certificate or own / "tls.crt"
        self.context = ReloadingContext(self._certificate_file, key or own / "tls.key")
        self.front_proxy = FrontProxy(_own_proxy(settings))
        self._expired = b""
        """The certificate (PEM) that was logged as expired."""
        self._refused = ""
        """Reason of the condition Available=False at the last check; empty if it was True or unknown."""

    async def refresh(self) -> None:
        """Load the front proxies' configuration and the certificates, before the first request and then periodically.

        An error of the cluster, and an expired certificate, are logged; `run` tries again. Raises UnusableCertificate.
        """
        await self.front_proxy.refresh(self._client)
        self.context.refresh(self.front_proxy.client_ca)
        self._log_expiry()

    def _log_expiry(self) -> None:
        """Log once that the certificate in use has expired."""
        pem = self.context.certificate
        if pem == self._expired or (end := expiry(pem)) is None or time.time() < end:
            return
        self._expired = pem
        log.error(
            "the certificate of the REST API has expired (%s), so that clients and the API server refuse it: "
            "replace %s and its key, which are read again every minute",
            *(datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"), self._certificate_file),
        )

    async def register(self) -> None:
        """Register the APIService if the settings ask for it. Raises ClusterError, and InvalidSettings for apiCa."""
        if self._aggregation is None:
            return
        try:
            ca_bundle = self._ca_file.read_bytes()
        except OSError as error:
            raise InvalidSettings(f"apiCa: {self._ca_file} cannot be read: {error.strerror}") from error
        if await self._aggregation.ensure(self._client, ca_bundle):
            log.info("registered as APIService %s.%s with the Service %s", VERSION, GROUP, self._aggregation.host)

    async def check_availability(self) -> None:
        """Log once when the API server can no longer reach the API, with the cause, and once when it can again.

        Raises ClusterError.
        """
        if self._aggregation is None:
            return
        found = await self._client.get(f"{_APISERVICES}/{VERSION}.{GROUP}")
        conditions = found.get("status", {}).get("conditions", ())
        faults = (one for one in conditions if one["type"] == "Available" and one["status"] == "False")
        fault: dict[str, Any] = next(faults, {})
        refused = str(fault.get("reason", ""))  # not the message, which may differ at each check
        if refused and refused != self._refused:
            log.warning(
                "kubectl and `sluice --kubeconfig` do not reach Sluice: APIService %s.%s is not available, %s: %s; "
                "check that firewalls and network policies let the API server connect to %s, and that this is the "
                "process that answers there",
                *(VERSION, GROUP, refused, fault.get("message", ""), self._aggregation.route),
            )
        elif self._refused and not refused:
            log.info("the API server reaches Sluice as APIService %s.%s again", VERSION, GROUP)
        self._refused = refused

    async def run(self, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Periodically load renewed certificates and front proxies and correct the APIService, until cancelled.

        Errors are logged, not raised.
        """
        while True:
            await sleep(_PERIOD)
            try:
                await self._certificates.refresh()
                await self.refresh()
                await self.register()
                await self.check_availability()
            except (SluiceError, OSError) as error:
                log.warning("the API's certificates or its APIService could not be checked: %s", error)
            except Exception:  # a defect, or a malformed answer of the API server, must not end the process
                log.exception("the API's certificates or its APIService could not be checked, and are checked again")
