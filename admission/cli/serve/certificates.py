"""The certificate that Sluice generates, for all host names of webhooks and API; all replicas share it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from admission.cli.errors import InvalidSettings
from admission.cli.serve.aggregation import api_hosts
from admission.cli.serve.webhook_service import own_namespace, webhook_hosts
from webhooks.certificate_sharing import refresh_shared
from webhooks.certificates import Certificates

if TYPE_CHECKING:
    from admission.cli.configuration.settings import Settings
    from admission.cluster.client import Client


class OwnCertificates:
    """The generated certificate, in a directory and, in a cluster, in a Secret for all replicas.

    Nothing is generated if neither webhooks nor API need it. Raises InvalidSettings if `webhookCa` is given although
    `serve` itself serves the webhooks.
    """

    def __init__(self, settings: Settings, client: Client) -> None:
        self._client = client
        own = own_namespace()
        self._secret = settings.certificate_secret or (f"{own}/sluice-webhook-certificates" if own else None)
        self._webhook_ca = settings.webhook_ca
        if settings.webhook_ca is not None and settings.webhook_process:
            raise InvalidSettings(
                "webhookCa is for the certificate of `sluice webhook`, but this process serves the webhooks "
                "itself: set webhookProcess to false, or leave webhookCa out"
            )
        hosts = webhook_hosts(settings) if settings.webhook_ca is None else []
        self._hosts = list(dict.fromkeys([*hosts, *api_hosts(settings)]))
        self._kept = Certificates(settings.certificate_directory, self._hosts, now=lambda: datetime.now(tz=UTC))

    @property
    def webhook_ca(self) -> bytes:
        """Return the CA bundle (PEM) with which the API server verifies the webhooks. Call `refresh` before.

        Raises InvalidSettings if the file of `webhookCa` cannot be read.
        """
        if self._webhook_ca is None:
            return self._kept.ca_bundle
        try:
            return self._webhook_ca.read_bytes()
        except OSError as error:
            raise InvalidSettings(f"webhookCa: {self._webhook_ca} cannot be read: {error.strerror}") from error

    async def refresh(self) -> None:
        """Generate certificates that are missing or expire soon.

        Raises CertificateError, and ClusterError if the Secret cannot be read or written.
        """
        if not self._hosts:
            return
        if self._secret is None:
            self._kept.renew()
        else:
            namespace, _, name = self._secret.partition("/")
            await refresh_shared(self._client, self._kept, namespace=namespace, name=name)
