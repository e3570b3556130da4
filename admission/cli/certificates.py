"""Sluice's own certificate: one for all names that webhooks and API are reached by, shared by all replicas."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from admission.cli.aggregation import api_hosts
from admission.cli.webhook_role import own_namespace, webhook_hosts
from webhooks.certificates import Certificates
from webhooks.sharing import refresh_shared

if TYPE_CHECKING:
    from admission.cli.settings import Settings
    from admission.cluster.client import Client


class OwnCertificates:
    """Kept in a directory, and in a Secret if there may be several replicas; nothing at all where nobody needs one."""

    def __init__(self, settings: Settings, client: Client) -> None:
        self._client = client
        own = own_namespace()
        self._secret = settings.certificate_secret or (f"{own}/sluice-webhook-certificates" if own else None)
        self._hosts = list(dict.fromkeys([*webhook_hosts(settings), *api_hosts(settings)]))
        self.kept = Certificates(settings.certificate_directory, self._hosts, now=lambda: datetime.now(tz=UTC))
        """To be used after a `refresh`."""

    async def refresh(self) -> None:
        """Make what is missing or ends soon. Raises CertificateError, and ClusterError for the Secret."""
        if not self._hosts:
            return
        if self._secret is None:
            self.kept.renew()
        else:
            namespace, _, name = self._secret.partition("/")
            await refresh_shared(self._client, self.kept, namespace=namespace, name=name)
