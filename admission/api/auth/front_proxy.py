"""The API server's front proxy: whom it names in headers is believed, if it shows the certificate that it must have.

What it must show, and which headers it uses, is in the ConfigMap kube-system/extension-apiserver-authentication
(https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/). From anybody else these headers
mean nothing.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from admission.api.auth.authentication import Door, Identity
from admission.model.errors import ClusterError
from admission.serving.tls import client_ca_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web
    from multidict import CIMultiDictProxy

    from admission.cluster.client import Client

_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """Whom to believe about which headers."""

    client_ca: str
    """PEM certificates, one of which has signed the front proxy's."""
    allowed_names: tuple[str, ...]
    """Common names that its certificate may have; none: any."""
    username: tuple[str, ...]
    uid: tuple[str, ...]
    group: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    @classmethod
    def of(cls, data: Mapping[str, str]) -> RequestHeaders | None:
        """From the ConfigMap's data; None if the API server has no front proxy. Raises ValueError."""
        client_ca = data.get("requestheader-client-ca-file", "")
        username = _names(data, "requestheader-username-headers")
        if not client_ca or not username:
            return None
        return cls(
            client_ca,
            _names(data, "requestheader-allowed-names"),
            username,
            _names(data, "requestheader-uid-headers"),
            _names(data, "requestheader-group-headers"),
            _names(data, "requestheader-extra-headers-prefix"),
        )

    def identity(self, headers: CIMultiDictProxy[str], source: str) -> Identity | None:
        """The user that the headers name; None if they name none."""
        name = _first(headers, self.username)
        if not name:
            return None
        groups = [value for header in self.group for value in headers.getall(header, [])]
        extra: dict[str, tuple[str, ...]] = {}
        for header, value in headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    extra[key] = (*extra.get(key, ()), value)
                    break
        # The API server adds the address that it was asked from to the end of the list.
        source = headers.get("X-Forwarded-For", source).rpartition(",")[2].strip()
        return Identity(
            name,
            Door.FRONT_PROXY,
            uid=_first(headers, self.uid),
            groups=tuple(groups),
            extra=tuple(sorted(extra.items())),
            source=source,
        )


class FrontProxy:
    """The front proxy of one cluster, as it was last known."""

    def __init__(self) -> None:
        self._trusted: RequestHeaders | None = None

    @property
    def client_ca(self) -> str:
        """What TLS connections have to ask certificates for; empty as long as there is no front proxy."""
        return self._trusted.client_ca if self._trusted else ""

    async def refresh(self, client: Client) -> None:
        """Look at the ConfigMap again. A failure is logged, and what was known before stays in force."""
        try:
            found = RequestHeaders.of((await client.get(_CONFIG_MAP)).get("data") or {})
        except (ClusterError, ValueError) as error:
            _log.warning("the front proxy's certificates cannot be looked up: %s", error)
            return
        if found is None and self._trusted is None:
            _log.warning("the API server has no front proxy, so kubectl cannot reach Sluice through it")
        self._trusted = found

    def identity(self, request: web.Request) -> Identity | None:
        """The user whom the front proxy names; None if it is not the front proxy who asks, or if it names nobody."""
        trusted = self._trusted
        if trusted is None or request.transport is None:
            return None
        # TLS has verified that the client CA of that time signed it, or there is none.
        certificate = request.transport.get_extra_info("peercert")
        if not certificate or (trusted.allowed_names and _common_name(certificate) not in trusted.allowed_names):
            return None
        if not _certificates(client_ca_of(request.transport)) <= _certificates(trusted.client_ca):
            # One of those CAs is trusted no more. Over a new connection it will be seen by which one it comes.
            request.protocol.close()
            return None
        return trusted.identity(request.headers, request.remote or "")


@lru_cache(maxsize=16)
def _certificates(pem: str) -> frozenset[str]:
    """Each of the certificates in a bundle."""
    return frozenset("".join(part.split()) for part in pem.split("-----BEGIN CERTIFICATE-----")[1:])


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    names = json.loads(data.get(key) or "[]")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} is no list of strings")
    return tuple(names)


def _first(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str:
    return next((headers[name] for name in names if headers.get(name)), "")


def _common_name(certificate: Mapping[str, Any]) -> str:
    return next((value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"), "")
