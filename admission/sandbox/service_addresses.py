"""Resolution of Services that the API server calls: webhooks and extension API servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


def host_of(service: Object) -> str:
    """Return the host of a Service: its external name or cluster IP; empty if it has neither.

    The sandbox allocates no cluster IPs. A test may set one, at which its server has to listen.
    """
    spec = service.get("spec", {})
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or "")
    address = spec.get("clusterIP") or "None"
    return "" if address == "None" else str(address)
