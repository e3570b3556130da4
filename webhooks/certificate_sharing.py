"""Sharing of the webhook's certificates between replicas by a Secret, so that API servers trust each replica."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from admission.cluster.errors import AlreadyExists, Conflict, NotFound
from webhooks.errors import CertificateError

if TYPE_CHECKING:
    from admission.cluster.client import Client, Object
    from webhooks.certificates import Certificates

_ATTEMPTS = 5
"""Attempts to write the Secret; each one after the first follows a write by another client."""


async def refresh_shared(client: Client, certificates: Certificates, *, namespace: str, name: str) -> None:
    """Load the certificates from the Secret, renew those that expire soon, and write changes back to the Secret.

    If several replicas renew at the same time, the first one to write wins, and the others load its certificates.
    Raises ClusterError and CertificateError.
    """
    collection = f"/api/v1/namespaces/{namespace}/secrets"
    for _ in range(_ATTEMPTS):
        secret = await _find(client, f"{collection}/{name}")
        if secret is not None:
            certificates.adopt({key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()})
        certificates.renew()
        data = {key: base64.b64encode(content).decode() for key, content in certificates.files().items()}
        try:
            if secret is None:
                await client.create(collection, {"metadata": {"name": name}, "type": "Opaque", "data": data})
            elif secret.get("data") != data:
                await client.replace(f"{collection}/{name}", secret | {"data": data})
        except (AlreadyExists, Conflict):
            continue
        return
    raise CertificateError(
        f"Secret {namespace}/{name}: changed by another client during each of {_ATTEMPTS} attempts to update it; "
        "find out which other client writes it"
    )


async def _find(client: Client, path: str) -> Object | None:
    try:
        return await client.get(path)
    except NotFound:
        return None
