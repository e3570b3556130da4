"""The REST API as one aiohttp application, and the socket that it listens on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from admission.api import discovery
from admission.api.authentication import Authentication
from admission.api.endpoints import QueueObjects, Workloads
from admission.api.errors import AddressUnusable
from admission.api.failures import RESOURCE, failures
from admission.api.probes import Probes
from admission.api.registry import GROUP, PREFIX, RESOURCES
from admission.model.reading import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from admission.api.probes import Checks
    from admission.api.registry import Resource
    from admission.store.store import Store

_METHODS = {"list": "GET", "get": "GET", "create": "POST", "update": "PUT", "delete": "DELETE"}
_ON_COLLECTION = ("list", "create")
_SHUTDOWN_SECONDS = 5.0


def create_app(store: Store, *, token: str, checks: Checks) -> web.Application:
    """The API on `store`, behind `token`; `checks` decide about /readyz. Raises ValueError for an empty token."""
    authentication = Authentication(token)
    probes = Probes(checks, authentication)
    app = web.Application(middlewares=[failures, authentication.middleware], client_max_size=MAX_BYTES)
    app.router.add_get("/livez", probes.alive)
    app.router.add_get("/readyz", probes.ready)
    app.router.add_get("/healthz", probes.ready)
    app.router.add_get("/apis", discovery.groups)
    app.router.add_get(f"/apis/{GROUP}", discovery.group)
    app.router.add_get(PREFIX, discovery.resources)
    for resource in RESOURCES:
        endpoint = QueueObjects(store, resource, resource.model) if resource.model else Workloads(store, resource)
        for verb in resource.verbs:
            _route(app, resource, verb, getattr(endpoint, verb))
    return app


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve `app` for the time of the block and give its URL; port 0 takes a free one. Raises AddressUnusable."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            why = error.strerror or error
            raise AddressUnusable(f"the API cannot listen on {host}:{port} ({why}); choose another address") from error
        address, bound = runner.addresses[0][:2]
        yield f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
    finally:
        await runner.cleanup()


def _route(
    app: web.Application, resource: Resource, verb: str, handler: Callable[[web.Request], Awaitable[web.Response]]
) -> None:
    async def handle(request: web.Request) -> web.Response:
        request[RESOURCE] = resource
        return await handler(request)

    collection = resource.collection("{namespace}" if resource.namespaced else "")
    app.router.add_route(_METHODS[verb], collection if verb in _ON_COLLECTION else f"{collection}/{{name}}", handle)
    if verb == "list" and resource.namespaced:
        app.router.add_route("GET", resource.collection(), handle)
