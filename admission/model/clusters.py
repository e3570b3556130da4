"""Spec of a Cluster: how Sluice reaches it, and whether its Jobs are started."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from admission.model.base import FieldFaultsError, Model, Name

ClusterState: TypeAlias = Literal["Active", "Draining", "Disabled"]

_FILE = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"
FileName = Annotated[str, Field(pattern=_FILE)]
"""Name of a file in the directory of credentials: no path, which an author of queue objects must not choose."""


def _https(url: str) -> str:
    if not url.startswith("https://"):
        raise ValueError("must begin with https://")
    return url


class WebhookService(Model):
    """The Service of the gate in the cluster."""

    namespace: Name
    """Its namespace."""
    name: Name
    """Its name."""
    port: Annotated[int, Field(strict=True, ge=1, le=65535)] = 443
    """Its port."""


class ClusterWebhook(Model):
    """The gate that runs in, or near, the cluster (`sluice webhook`); Sluice registers it there."""

    url: Annotated[str, AfterValidator(_https), WithJsonSchema({"type": "string"})] | None = None
    """The URL at which the cluster's API server reaches it."""
    service: WebhookService | None = None
    """The Service at which the cluster's API server reaches it."""
    ca_file: FileName | None = None
    """The file in the directory `--cluster-credentials` with the certificate that its certificate is verified with. Not
    needed for a service: Sluice then keeps its certificate, in the Secret `sluice-webhook-certificates` beside it."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.url is None) is (self.service is None):
            raise FieldFaultsError([("url", "give either a url or a service")])
        if self.url is not None and self.ca_file is None:
            raise FieldFaultsError([("caFile", "give the certificate with which that of the url is verified")])
        return self


class ClusterSpec(Model):
    """How Sluice reaches the cluster, and whether its Jobs are started."""

    kubeconfig: FileName | None = None
    """The kubeconfig for the cluster: the name of a file in the directory `--cluster-credentials` of `sluice serve`.
    Only the cluster `local` has none."""
    context: Annotated[str, Field(max_length=253)] = ""
    """The context of the kubeconfig; empty: its current context."""
    state: ClusterState = "Active"
    """Active; Draining: nothing more is started there, and what runs may end; Disabled: Sluice does not contact it."""
    uid: Annotated[str, Field(max_length=64)] = ""
    """The uid of its namespace kube-system; empty: that of the first connection. Another one is another cluster, and is
    not used before its uid is given here: what the former one ran is then regarded as gone."""
    webhook: ClusterWebhook | None = None
    """The gate of the cluster; not given: admission policies gate its Jobs, if its API server has them."""
