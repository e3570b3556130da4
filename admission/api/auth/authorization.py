"""Authorization of API requests by the cluster's RBAC (SubjectAccessReview), in Kubernetes' terms."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from admission.api.auth.authentication import AUTHENTICATION, PUBLIC, route_pattern
from admission.api.auth.delegation import Attributes
from admission.api.auth.identity import IDENTITY, AuthMethod
from admission.api.errors import Forbidden, ReviewUnavailable, TooManyRequests
from admission.api.http.failures import RESOURCE
from admission.api.http.request_options import flag
from admission.api.registry import GROUP, PREFIX, WORKLOADS, by_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from admission.api.auth.delegation import Delegation
    from admission.api.auth.identity import Identity

MASTERS = "system:masters"
"""The group that every Kubernetes API server authorizes for everything."""

PODS_ROUTE = "/session/namespaces/{namespace}/workloads/{name}/pods"
POD_LOG_ROUTE = "/session/namespaces/{namespace}/workloads/{name}/log"
"""The handlers of these two routes check the rights to the workload, and to its pods or their logs, themselves."""

_FOR_ALL_USERS = (
    "/apis", f"/apis/{GROUP}", PREFIX, "/version", "/logout",
    "/session", "/session/access", "/session/namespaces", "/session/workloads", PODS_ROUTE, POD_LOG_ROUTE,
)  # fmt: skip
"""Routes that every authenticated user may request.

Discovery reveals nothing about queued workloads; API servers allow all users as much by the role system:discovery.
The routes under `/session` check their rights themselves, because they need more than one.
"""

_AT_A_TIME = 3
"""Reviews of a batch that are sent at the same time."""

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_COLLECTIONS = {"get": "list", "delete": "deletecollection"}


class Authorization:
    """Authorizes each request by a SubjectAccessReview of `delegation`; superusers are not reviewed.

    Without a delegation (no cluster) only superusers are authorized.
    """

    def __init__(self, delegation: Delegation | None) -> None:
        self._delegation = delegation

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Authorize requests whose route needs a right. Raises Forbidden and ReviewUnavailable."""
        route = route_pattern(request)
        if route and route not in PUBLIC and not _is_for_all_users(route):
            await self.require(request, attributes(request))
        return await handler(request)

    async def require(self, request: web.Request, wanted: Attributes) -> None:
        """Check that the request's user has the right `wanted`. Raises Forbidden and ReviewUnavailable."""
        if not await self.allows(request, wanted):
            who = request[IDENTITY]
            if (resource := by_name(wanted.resource)) is not None:
                request[RESOURCE] = resource
            raise Forbidden(_refusal(who, wanted))

    async def allows(self, request: web.Request, wanted: Attributes) -> bool:
        """Return whether the user has the right `wanted`. Raises ReviewUnavailable and TooManyRequests."""
        who = request[IDENTITY]
        return is_superuser(who) or (self._delegation is not None and await self._delegation.allows(who, wanted))

    async def allows_each(self, request: web.Request, wanted: Sequence[Attributes]) -> list[bool]:
        """Return for each right of a batch whether the request's user has it. Raises as `allows`.

        Few are reviewed at a time, so that other requests of the user have their turn, and none after one has failed.
        """
        allowed: list[bool] = []
        for at in range(0, len(wanted), _AT_A_TIME):
            allowed += await asyncio.gather(*(self.allows(request, each) for each in wanted[at : at + _AT_A_TIME]))
        return allowed


AUTHORIZATION = web.AppKey("authorization", Authorization)


async def require(request: web.Request, verb: str) -> None:
    """Check the right to another verb on the same object, such as `create` for a PATCH that creates it.

    Raises Forbidden and ReviewUnavailable.
    """
    own = attributes(request)
    wanted = Attributes(verb, own.resource, own.subresource, own.namespace, own.name)
    await request.app[AUTHORIZATION].require(request, wanted)


async def may_read(request: web.Request, namespace: str) -> bool:
    """Return whether the request's user may list workloads of a namespace (empty: of all). Raises ReviewUnavailable."""
    return await request.app[AUTHORIZATION].allows(request, reading(namespace))


async def may_read_each(request: web.Request, namespaces: Sequence[str]) -> list[bool]:
    """Return `may_read` for each of the namespaces. Raises ReviewUnavailable."""
    return await request.app[AUTHORIZATION].allows_each(request, [*map(reading, namespaces)])


def reading(namespace: str) -> Attributes:
    """Return the right to list workloads of a namespace (empty: of all)."""
    return Attributes("list", WORKLOADS.plural, namespace=namespace)


async def may_patch_all_workloads(request: web.Request) -> bool:
    """Return whether the request's user may patch workloads of all namespaces. Raises ReviewUnavailable.

    Without that right `spec.order` of a workload is limited to positions within its namespace.
    """
    return await request.app[AUTHORIZATION].allows(request, Attributes("patch", WORKLOADS.plural))


async def recheck(request: web.Request) -> None:
    """Authenticate and authorize a long-running request (a watch) again. Raises Unauthorized and Forbidden.

    If the cluster does not answer, or too many new tokens come from the client's address, the earlier permission
    remains in force. Raises TooManyRequests if too many reviews of the user wait: by causing them, a user who has lost
    the right could keep the watch.
    """
    with suppress(ReviewUnavailable):
        with suppress(TooManyRequests):
            await request.app[AUTHENTICATION].renew(request)
        await request.app[AUTHORIZATION].require(request, attributes(request))


def is_superuser(who: Identity) -> bool:
    """Return whether a user is authorized for everything, without a SubjectAccessReview."""
    return who.auth_method is AuthMethod.ADMIN_TOKEN or MASTERS in who.groups


def attributes(request: web.Request) -> Attributes:
    """Return the attributes of a request for authorization.

    They are taken from the matched route, not parsed from the path a second time: both readings of a path always agree.
    """
    route, found = route_pattern(request), request.match_info
    if not route.startswith(f"{PREFIX}/"):
        return Attributes(request.method.lower(), path=request.path)
    parts = [found[part[1:-1]] if part.startswith("{") else part for part in route[len(PREFIX) + 1 :].split("/")]
    if route.startswith(f"{PREFIX}/namespaces/{{namespace}}/"):
        parts = parts[2:]
    resource, name, subresource = (*parts, "", "")[:3]
    verb = _VERBS.get(request.method, request.method.lower())
    if not name:
        verb = _OF_COLLECTIONS.get(verb, verb)
        if verb == "list":
            verb = "watch" if flag(request, "watch") else "list"
            name = _selected_name(request.query.get("fieldSelector", ""))
    return Attributes(verb, resource, subresource, found.get("namespace", ""), name)


def _selected_name(selector: str) -> str:
    """Return the name that a field selector restricts a list to; empty if it does not.

    As in Kubernetes, a right that is limited to that name (`resourceNames`) then suffices for list and watch.
    """
    if "\\" in selector:
        return ""
    for term in selector.split(","):
        field, _, value = term.partition("=")
        if field.strip() == "metadata.name":
            return value.removeprefix("=").strip()
    return ""


def _is_for_all_users(route: str) -> bool:
    return route in _FOR_ALL_USERS or route.startswith("/openapi/")


def _refusal(who: Identity, wanted: Attributes) -> str:
    if not wanted.resource:
        return f'forbidden: User "{who.name}" cannot {wanted.verb} path "{wanted.path}"'
    subject = f"{wanted.resource}.{GROUP}" + (f' "{wanted.name}"' if wanted.name else "")
    resource = "/".join(part for part in (wanted.resource, wanted.subresource) if part)
    scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    return (
        f'{subject} is forbidden: User "{who.name}" cannot {wanted.verb} resource "{resource}" '
        f'in API group "{GROUP}" {scope}'
    )
