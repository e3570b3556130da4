"""Certificates for several replicas: all serve those of one Secret, so that whichever is asked is trusted."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from admission.cluster.errors import AlreadyExists, Conflict, NotFound
from webhooks.errors import CertificateError

if TYPE_CHECKING:
    from admission.cluster.client import Client, Object
    from webhooks.certificates import Certificates

_ATTEMPTS = 5


async def refresh_shared(client: Client, certificates: Certificates, *, namespace: str, name: str) -> None:
    """Take what the Secret holds, renew what has to be, and write that back.

    Of replicas that renew at the same time one is first, and the others take what it has written. Raises ClusterError
    and CertificateError.
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
    raise CertificateError(f"the Secret {namespace}/{name} is being changed all the time; look who else writes it")


async def _find(client: Client, path: str) -> Object | None:
    try:
        return await client.get(path)
    except NotFound:
        return None
