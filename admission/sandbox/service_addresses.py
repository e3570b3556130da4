"""Where a Service is, for what the API server calls by one: webhooks, and the servers behind APIServices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


def host_of(service: Object) -> str:
    """The host of a Service: its external name or cluster IP; empty if it has neither.

    The sandbox gives no cluster IPs: whoever creates a Service may name one, at which something has to listen.
    """
    spec = service.get("spec", {})
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or "")
    address = spec.get("clusterIP") or "None"
    return "" if address == "None" else str(address)
