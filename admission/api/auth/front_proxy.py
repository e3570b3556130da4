"""Request header authentication: users named in headers by a proxy that presents a trusted client certificate.

There may be two such proxies. That of the API server (aggregation layer) has its client CA, certificate names and
headers in the ConfigMap kube-system/extension-apiserver-authentication
(https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/). Those of an authenticating proxy of
the admin are settings (`requestHeader`). The headers are ignored on connections without such a certificate.
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

from admission.api.auth.identity import AuthMethod, Identity, external_user
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
    """Which client certificates identify a proxy, and in which headers it names users."""

    client_ca: str
    """PEM bundle of the authorities, one of which must have signed the proxy's certificate."""
    allowed_names: tuple[str, ...]
    """Common names that the proxy's certificate may have; empty: any."""
    username: tuple[str, ...]
    """Headers with the user name, in order of precedence; likewise for the uid and the groups."""
    uid: tuple[str, ...]
    group: tuple[str, ...]
    extra_prefixes: tuple[str, ...]
    auth_method: AuthMethod = AuthMethod.FRONT_PROXY

    @classmethod
    def of(cls, data: Mapping[str, str]) -> RequestHeaders | None:
        """Parse the ConfigMap's data; None if the API server has no front proxy. Raises ValueError."""
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
        """Return whether a certificate with that common name may be the proxy's."""
        return not self.allowed_names or common_name in self.allowed_names

    def identity(self, headers: CIMultiDictProxy[str], source: str) -> Identity | None:
        """Return the user that the headers name; None if they name none. Raises Forbidden.

        `source` is the address of the TCP peer, for requests without X-Forwarded-For.
        """
        name = _first(headers, self.username)
        if not name:
            return None
        groups = [value for header in self.group for value in headers.getall(header, [])]
        # Each proxy appends its peer's address: only the last one was added by the trusted proxy.
        source = headers.get("X-Forwarded-For", source).rpartition(",")[2].strip()
        if self.auth_method is AuthMethod.AUTHENTICATING_PROXY:
            return external_user(name, groups, self.auth_method, source=source)
        extra: dict[str, tuple[str, ...]] = {}
        for header, value in headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    extra[key] = (*extra.get(key, ()), value)
                    break
        return Identity(
            name,
            self.auth_method,
            uid=_first(headers, self.uid),
            groups=tuple(groups),
            extra=tuple(sorted(extra.items())),
            source=source,
        )


@dataclass(frozen=True, slots=True)
class AuthenticatingProxy:
    """An authenticating proxy in front of the API, as configured by the admin (setting `requestHeader`)."""

    client_ca_file: Path
    """PEM file of the authority that has signed the proxy's certificate directly, without an intermediate."""
    allowed_names: tuple[str, ...]
    username_headers: tuple[str, ...]
    group_headers: tuple[str, ...]

    def read(self) -> RequestHeaders:
        """Return the trusted headers with the current content of the CA file. Raises UnusableCertificate."""
        try:
            client_ca = self.client_ca_file.read_text()
            x509.load_pem_x509_certificates(client_ca.encode())
        except (OSError, ValueError) as error:
            raise UnusableCertificate(f"requestHeader.clientCaFile {self.client_ca_file}: {error}") from error
        headers = self.username_headers, (), self.group_headers, ()
        return RequestHeaders(client_ca, self.allowed_names, *headers, auth_method=AuthMethod.AUTHENTICATING_PROXY)


class FrontProxy:
    """Trusted proxies: the API server's front proxy, as last read from the cluster, and the `configured` one."""

    def __init__(self, configured: AuthenticatingProxy | None = None) -> None:
        self._of_cluster: RequestHeaders | None = None
        self._configured = configured
        self._of_configured: RequestHeaders | None = None

    @property
    def client_ca(self) -> str:
        """PEM bundle of the CAs for which TLS listeners request client certificates; empty without a trusted proxy."""
        return "\n".join(each.client_ca for each in self._trusted())

    async def refresh(self, client: Client) -> None:
        """Read the ConfigMap and the CA file again.

        What was read before stays in force after an error. Raises UnusableCertificate for the file; errors of the
        cluster are only logged.
        """
        if self._configured is not None:
            self._of_configured = self._configured.read()
        try:
            found = RequestHeaders.of((await client.get(_CONFIG_MAP)).get("data") or {})
        except (ClusterError, ValueError) as error:
            _log.warning("the front proxy's certificates cannot be looked up: %s", error)
            return
        if found is None and self._of_cluster is None:
            _log.warning("the API server has no front proxy, so kubectl cannot reach Sluice through it")
        self._of_cluster = found

    def identity(self, request: web.Request) -> Identity | None:
        """Return the user that a trusted proxy names; None if the client is no trusted proxy or names no user.

        Raises Forbidden.
        """
        trusted = self._trusted()
        if not trusted or request.transport is None:
            return None
        # TLS has verified the certificate, if there is one, at the handshake, against the client CAs of that time.
        certificate = request.transport.get_extra_info("peercert")
        named = [each for each in trusted if certificate and each.allows(_common_name(certificate))]
        if not named:
            return None
        if not _certificates(client_ca_of(request.transport)) <= _certificates(self.client_ca):
            # One of those CAs is no longer trusted, and TLS does not report which one has signed the certificate.
            # The proxy reconnects, and the new handshake verifies its certificate against the current CAs.
            request.protocol.close()
            return None
        if len(trusted) > 1:
            encoded = request.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            named = [each for each in named if _has_signed(each.client_ca, encoded)]
        found = (each.identity(request.headers, request.remote or "") for each in named)
        return next((who for who in found if who is not None), None)

    def _trusted(self) -> list[RequestHeaders]:
        return [each for each in (self._of_cluster, self._of_configured) if each is not None]


@lru_cache(maxsize=64)
def _has_signed(client_ca: str, encoded: bytes) -> bool:
    """Return whether a CA of a PEM bundle has signed a client certificate (DER). TLS has checked its validity."""
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
    """Split a PEM bundle into its certificates, without white space, so that bundles can be compared as sets."""
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
