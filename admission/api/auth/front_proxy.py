"""Proxies in front: whom they name in headers is believed, if they show the certificate that they must have.

What that of the API server must show, and which headers it uses, is in the ConfigMap
kube-system/extension-apiserver-authentication
(https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/); what one of the admin's must is
configured. From anybody else these headers mean nothing.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from admission.api.auth.authentication import Door, Identity
from admission.api.auth.outside_names import outside_user
from admission.apimachinery.errors import UnusableCertificate
from admission.model.errors import ClusterError
from admission.serving.tls import client_ca_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
    door: Door = Door.FRONT_PROXY

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

    def allows(self, common_name: str) -> bool:
        """Whether a certificate with that name may be the proxy's."""
        return not self.allowed_names or common_name in self.allowed_names

    def identity(self, headers: CIMultiDictProxy[str], source: str) -> Identity | None:
        """The user that the headers name; None if they name none. Raises Forbidden."""
        name = _first(headers, self.username)
        if not name:
            return None
        groups = [value for header in self.group for value in headers.getall(header, [])]
        # Each proxy adds the address that it was asked from to the end of the list.
        source = headers.get("X-Forwarded-For", source).rpartition(",")[2].strip()
        if self.door is Door.OWN_PROXY:
            return outside_user(name, groups, self.door, source=source)
        extra: dict[str, tuple[str, ...]] = {}
        for header, value in headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    extra[key] = (*extra.get(key, ()), value)
                    break
        return Identity(
            name,
            self.door,
            uid=_first(headers, self.uid),
            groups=tuple(groups),
            extra=tuple(sorted(extra.items())),
            source=source,
        )


@dataclass(frozen=True, slots=True)
class OwnProxy:
    """A proxy that the admin has put in front, which knows users by means of its own."""

    client_ca_file: Path
    """Of the authority that has signed its certificate by itself, without one in between."""
    allowed_names: tuple[str, ...]
    username_headers: tuple[str, ...]
    group_headers: tuple[str, ...]

    def read(self) -> RequestHeaders:
        """Whom to believe, by the file as it is now. Raises UnusableCertificate."""
        try:
            client_ca = self.client_ca_file.read_text()
            x509.load_pem_x509_certificates(client_ca.encode())
        except (OSError, ValueError) as error:
            raise UnusableCertificate(f"requestHeader.clientCaFile {self.client_ca_file}: {error}") from error
        headers = self.username_headers, (), self.group_headers, ()
        return RequestHeaders(client_ca, self.allowed_names, *headers, door=Door.OWN_PROXY)


class FrontProxy:
    """The front proxy of one cluster, as it was last known, and the admin's `own`."""

    def __init__(self, own: OwnProxy | None = None) -> None:
        self._of_cluster: RequestHeaders | None = None
        self._own_proxy = own
        self._own: RequestHeaders | None = None

    @property
    def client_ca(self) -> str:
        """What TLS connections have to ask certificates for; empty as long as there is no front proxy."""
        return "\n".join(each.client_ca for each in self._trusted())

    async def refresh(self, client: Client) -> None:
        """Look at ConfigMap and file again. Raises UnusableCertificate for the file, and what was known stays in force.

        A failure of the cluster is logged, and what was known before stays in force.
        """
        if self._own_proxy is not None:
            self._own = self._own_proxy.read()
        try:
            found = RequestHeaders.of((await client.get(_CONFIG_MAP)).get("data") or {})
        except (ClusterError, ValueError) as error:
            _log.warning("the front proxy's certificates cannot be looked up: %s", error)
            return
        if found is None and self._of_cluster is None:
            _log.warning("the API server has no front proxy, so kubectl cannot reach Sluice through it")
        self._of_cluster = found

    def identity(self, request: web.Request) -> Identity | None:
        """The user whom a front proxy names; None if it is no front proxy who asks, or if it names nobody.

        Raises Forbidden.
        """
        trusted = self._trusted()
        if not trusted or request.transport is None:
            return None
        # TLS has verified that one of the client CAs of that time signed it, or there is none.
        certificate = request.transport.get_extra_info("peercert")
        named = [each for each in trusted if certificate and each.allows(_common_name(certificate))]
        if not named:
            return None
        if not _certificates(client_ca_of(request.transport)) <= _certificates(self.client_ca):
            # One of those CAs is trusted no more. Over a new connection it will be seen by which one it comes.
            request.protocol.close()
            return None
        if len(trusted) > 1:
            encoded = request.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            named = [each for each in named if _has_signed(each.client_ca, encoded)]
        found = (each.identity(request.headers, request.remote or "") for each in named)
        return next((who for who in found if who is not None), None)

    def _trusted(self) -> list[RequestHeaders]:
        return [each for each in (self._of_cluster, self._own) if each is not None]


@lru_cache(maxsize=64)
def _has_signed(client_ca: str, encoded: bytes) -> bool:
    """Whether one of the certificates (PEM) has signed a client's (DER), whose validity TLS has looked at."""
    certificate = x509.load_der_x509_certificate(encoded)
    for authority in x509.load_pem_x509_certificates(client_ca.encode()):
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


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
