"""Sluice's own user name at the API server, by which the webhook recognises Sluice's own writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.cluster.errors import BadAnswer, NotFound

if TYPE_CHECKING:
    from admission.cluster.client import Client

_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_TOKEN = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path


async def whoami(client: Client) -> str:
    """Our user name.

    By SelfSubjectReview, which everybody may ask for since Kubernetes 1.28; on a server without it by a TokenReview of
    our own token, which needs the right to create one. BadAnswer if neither tells; other ClusterErrors as they come.
    """
    try:
        answer = await client.create(_SELF, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
        name = answer.get("status", {}).get("userInfo", {}).get("username")
    except NotFound:
        name = await _by_token(client)
    if not name:
        raise BadAnswer(
            f"{client.server} does not tell which user Sluice is: give Sluice a bearer token to identify it"
        )
    return str(name)


async def _by_token(client: Client) -> str:
    token = await client.bearer_token()
    if token is None:
        return ""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await client.create(_TOKEN, review)
    return str(answer.get("status", {}).get("user", {}).get("username", ""))
