"""How the API server learns of the webhooks: two configurations, written by Sluice itself and kept as they should be.

Only objects with a queue label are sent, so that an outage of Sluice stops nobody else; those are refused meanwhile
(failurePolicy Fail), because a Job that slipped through would run beside all quotas.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from admission.cluster.desired import ensure
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from admission.cluster.client import Client
    from admission.kinds.base import Kind, Object
    from webhooks.certificates import Certificates

logger = logging.getLogger(__name__)

_PERIOD = 600.0
"""Seconds between two looks at what others may have changed or deleted."""

_PATH = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service in front of the webhook, for a Sluice that runs inside of the cluster."""

    namespace: str
    name: str
    port: int = 443


Endpoint: TypeAlias = str | ServiceReference
"""Where the API server finds the webhook: a Service, or a URL such as `https://192.0.2.1:9443`."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What decides the content of the two configurations."""

    kinds: tuple[Kind, ...]
    endpoint: Endpoint
    own_usernames: tuple[str, ...]
    """Sluice's own updates are not sent: nothing in them would be changed."""
    excluded_namespaces: tuple[str, ...] = ("kube-system",)

    def configurations(self, ca_bundle: bytes) -> tuple[Object, Object]:
        """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration."""
        return (
            self._configuration("Mutating", "mutate", ca_bundle, reinvocationPolicy="IfNeeded"),
            self._configuration("Validating", "validate", ca_bundle),
        )

    def _configuration(self, prefix: str, verb: str, ca_bundle: bytes, **extra: str) -> Object:
        # One entry for each kind: a kind whose objects fail to be matched must not stop the others.
        webhooks = [
            {
                "name": f"{kind.plural}.{verb}.sluice.dev",
                "admissionReviewVersions": ["v1"],
                "clientConfig": self._client_config(f"/{verb}", ca_bundle),
                "failurePolicy": "Fail",
                "matchConditions": self._match_conditions(kind),
                "matchPolicy": "Equivalent",
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": list(self.excluded_namespaces),
                        }
                    ]
                },
                "rules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": [kind.version],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [kind.plural],
                        "scope": "Namespaced",
                    }
                ],
                "sideEffects": "None",
                "timeoutSeconds": 5,
                **extra,
            }
            for kind in self.kinds
        ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{prefix}WebhookConfiguration",
            "metadata": {"name": "sluice", "labels": {"app.kubernetes.io/name": "sluice"}},
            "webhooks": webhooks,
        }

    def _client_config(self, path: str, ca_bundle: bytes) -> Object:
        bundle = base64.b64encode(ca_bundle).decode()
        if isinstance(self.endpoint, str):
            return {"caBundle": bundle, "url": f"{self.endpoint.rstrip('/')}{path}"}
        service = {"namespace": self.endpoint.namespace, "name": self.endpoint.name, "port": self.endpoint.port}
        return {"caBundle": bundle, "service": {**service, "path": path}}

    def _match_conditions(self, kind: Kind) -> list[Object]:
        def labelled(variable: str) -> str:
            labels = " || ".join(f"'{label}' in {variable}.metadata.labels" for label in kind.conventions.queue_labels)
            return f"({variable} != null && has({variable}.metadata.labels) && ({labels}))"

        conditions = [{"name": "queued", "expression": f"{labelled('object')} || {labelled('oldObject')}"}]
        if self.own_usernames:
            names = ", ".join(f"'{name}'" for name in self.own_usernames)
            ours = f"request.operation == 'UPDATE' && request.userInfo.username in [{names}]"
            conditions.append({"name": "not-sluice", "expression": f"!({ours})"})
        return conditions


async def ensure_registered(client: Client, configurations: Iterable[Object]) -> bool:
    """Create the configurations, or patch those that differ. Whether anything had to be done. Raises ClusterError."""
    return any([await ensure(client, f"{_PATH}/{wanted['kind'].lower()}s", wanted) for wanted in configurations])


async def keep_registered(
    client: Client,
    registration: Registration,
    certificates: Certificates,
    *,
    refresh: Callable[[], Awaitable[None]],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """For ever: `refresh` the certificates in time and keep the configurations as they should be. Raises nothing."""
    while True:
        await sleep(_PERIOD)
        try:
            await refresh()
            if await ensure_registered(client, registration.configurations(certificates.ca_bundle)):
                logger.info("the webhook configurations were brought up to date")
        except SluiceError as error:
            logger.warning("the webhook's registration could not be checked: %s", error)
