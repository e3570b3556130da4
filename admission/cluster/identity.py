"""Sluice's own user name at the API server, by which the webhook recognises writes of Sluice itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.cluster.errors import BadAnswer, Forbidden, NotFound

if TYPE_CHECKING:
    from admission.cluster.client import Client

_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_TOKEN = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCOUNT = "system:serviceaccount:"


async def whoami(client: Client) -> str:
    """Return the client's own user name.

    By SelfSubjectReview, which every user may create since Kubernetes 1.28; on an older server by a TokenReview of the
    client's token, which requires the right to create one. Raises BadAnswer if neither has the name, and ClusterError.
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


async def account_namespace(client: Client) -> str:
    """Return the namespace of the ServiceAccount that the client is; empty: it is another user, or that is not known.

    Raises ClusterError if the API server does not answer.
    """
    try:
        name = await whoami(client)
    except (BadAnswer, Forbidden):
        return ""
    return name.removeprefix(_ACCOUNT).partition(":")[0] if name.startswith(_ACCOUNT) else ""


async def _by_token(client: Client) -> str:
    token = await client.bearer_token()
    if token is None:
        return ""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await client.create(_TOKEN, review)
    return str(answer.get("status", {}).get("user", {}).get("username", ""))
