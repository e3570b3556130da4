"""Front proxy: identity of the API server towards extension API servers, and headers that carry the user."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import orjson
from multidict import CIMultiDict

from admission.sandbox.auth.certificates import Authority

if TYPE_CHECKING:
    import ssl

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.requests import User

NAME = "front-proxy-client"
CONFIG_MAP = "extension-apiserver-authentication"
USER, UID, GROUP, EXTRA = "X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-"


class ProxyCertificate:
    """Client certificate of the proxy, signed by an authority that signs nothing else."""

    def __init__(self) -> None:
        authority = Authority("front-proxy-ca")
        self._ca_pem = authority.pem
        self._certificate = authority.client(NAME)

    def load(self, context: ssl.SSLContext) -> None:
        """Load the client certificate into a TLS context."""
        self._certificate.load(context)

    def config_map(self, client_ca_pem: str) -> Object:
        """Return the ConfigMap by which extension API servers authenticate the proxy and, directly, clients."""
        data = {
            "client-ca-file": client_ca_pem,
            "requestheader-allowed-names": _list(NAME),
            "requestheader-client-ca-file": self._ca_pem,
            "requestheader-extra-headers-prefix": _list(EXTRA),
            "requestheader-group-headers": _list(GROUP),
            "requestheader-uid-headers": _list(UID),
            "requestheader-username-headers": _list(USER),
        }
        return {"metadata": {"name": CONFIG_MAP, "namespace": "kube-system"}, "data": data}


def remote_headers(user: User) -> CIMultiDict[str]:
    """Return the X-Remote-* headers for a user."""
    headers = CIMultiDict({USER: user.name})
    if user.uid:
        headers[UID] = user.uid
    for group in user.groups:
        headers.add(GROUP, group)
    for key, values in user.extra:
        for value in values:
            headers.add(EXTRA + quote(key.lower(), safe="!#$&'*+-.^_`|~"), value)
    return headers


def is_identity(header: str) -> bool:
    """Return whether a header asserts an identity; those of a client must never be forwarded."""
    lower = header.lower()
    return lower in _IDENTITY or lower.startswith((EXTRA.lower(), "impersonate-"))


_IDENTITY = {"authorization", USER.lower(), UID.lower(), GROUP.lower()}


def _list(text: str) -> str:
    return orjson.dumps([text]).decode()
