"""Who may do what: every request on a resource is put to the cluster's RBAC, in Kubernetes' own terms."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from admission.api.auth.authentication import AUTHENTICATION, IDENTITY, PUBLIC, Door, pattern
from admission.api.auth.delegation import Attributes
from admission.api.errors import Forbidden, ReviewUnavailable, TooManyRequests
from admission.api.http.failures import RESOURCE
from admission.api.http.request_options import flag
from admission.api.registry import GROUP, PREFIX, WORKLOADS, by_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.api.auth.authentication import Identity
    from admission.api.auth.delegation import Delegation

MASTERS = "system:masters"
"""The group that may everything, in every cluster."""

PODS_ROUTE = "/session/namespaces/{namespace}/workloads/{name}/pods"
POD_LOG_ROUTE = "/session/namespaces/{namespace}/workloads/{name}/log"
"""These two ask for the rights to the workload, and to its pods or their logs, by themselves."""

_FOR_ALL_USERS = (
    "/apis", f"/apis/{GROUP}", PREFIX, "/version", "/logout",
    "/session", "/session/access", "/session/namespaces", "/session/workloads", PODS_ROUTE, POD_LOG_ROUTE,
)  # fmt: skip
"""What tells nothing about what is queued; the API server lets all users read as much, by the role system:discovery.

Also what asks for more than one right by itself.
"""

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_COLLECTIONS = {"get": "list", "delete": "deletecollection"}


class Authorization:
    """Asks `delegation` about each request, unless its user may everything; without one, nobody else may anything."""

    def __init__(self, delegation: Delegation | None) -> None:
        self._delegation = delegation

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse what the user may not do. Raises Forbidden and ReviewUnavailable."""
        route = pattern(request)
        if route and route not in PUBLIC and not _is_for_all_users(route):
            await self.require(request, attributes(request))
        return await handler(request)

    async def require(self, request: web.Request, wanted: Attributes) -> None:
        """Raises Forbidden unless the request's user may do what is wanted, and ReviewUnavailable."""
        if not await self.allows(request, wanted):
            who = request[IDENTITY]
            if (resource := by_name(wanted.resource)) is not None:
                request[RESOURCE] = resource
            raise Forbidden(_refusal(who, wanted))

    async def allows(self, request: web.Request, wanted: Attributes) -> bool:
        """Whether the request's user may do that as well. Raises ReviewUnavailable."""
        who = request[IDENTITY]
        return may_everything(who) or (self._delegation is not None and await self._delegation.allows(who, wanted))


AUTHORIZATION = web.AppKey("authorization", Authorization)


async def require(request: web.Request, verb: str) -> None:
    """For a request that turns out to be another one, too (a PATCH that creates): its user needs the right to `verb`.

    Raises Forbidden and ReviewUnavailable.
    """
    asked = attributes(request)
    wanted = Attributes(verb, asked.resource, asked.subresource, asked.namespace, asked.name)
    await request.app[AUTHORIZATION].require(request, wanted)


async def may_read(request: web.Request, namespace: str) -> bool:
    """Whether the request's user may read the workloads of a namespace. Raises ReviewUnavailable."""
    wanted = Attributes("list", WORKLOADS.plural, namespace=namespace)
    return await request.app[AUTHORIZATION].allows(request, wanted)


async def may_order_everywhere(request: web.Request) -> bool:
    """Whether the request's user may order workloads of all namespaces. Raises ReviewUnavailable."""
    return await request.app[AUTHORIZATION].allows(request, Attributes("patch", WORKLOADS.plural))


async def recheck(request: web.Request) -> None:
    """For a request that lasts: its user is still known, and still may do it. Raises Unauthorized and Forbidden.

    While the cluster does not answer what was allowed stays allowed.
    """
    with suppress(ReviewUnavailable, TooManyRequests):
        await request.app[AUTHENTICATION].renew(request)
        await request.app[AUTHORIZATION].require(request, attributes(request))


def may_everything(who: Identity) -> bool:
    """Whether the cluster need not be asked about this user."""
    return who.door is Door.ADMIN_TOKEN or MASTERS in who.groups


def attributes(request: web.Request) -> Attributes:
    """What the request wants to do, from the route that it takes, so that nobody can see another name in its path."""
    route, found = pattern(request), request.match_info
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
    """The one name that a field selector lets through, if so: a right to that name is enough then."""
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
