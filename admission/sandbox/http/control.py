"""Control endpoints below /sandbox/, by which tests and demos act on the simulated cluster itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from admission.apimachinery.errors import success
from admission.sandbox.apiserver.bodies import decode_object, media_type
from admission.sandbox.apiserver.errors import ApiError, bad_request
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED
from admission.sandbox.http.operations import Answer
from admission.sandbox.http.representation import dump

if TYPE_CHECKING:
    from aiohttp import web

    from admission.sandbox.apiserver.query import Query
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.auth.users import Authenticator
    from admission.sandbox.http.faults import InjectedFaults

# Events that POST /sandbox/compact keeps for each resource by default, as the watch cache of a real API server would.
KEPT_BY_COMPACTION = 1000
_USERS = "/sandbox/users"


class NewUser(BaseModel):
    """Body of POST /sandbox/users."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
    token: str = ""
    expires: float | None = Field(default=None, gt=0)
    """Lifetime of the token in seconds of the sandbox's clock; unlimited by default."""


class Control:
    """Endpoints below /sandbox/, which require administrator rights. `requests` counts requests for API resources."""

    def __init__(self, registry: ObjectRegistry, authenticator: Authenticator, faults: InjectedFaults) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._faults = faults
        self.requests: Counter[tuple[str, str, str]] = Counter()

    async def answer(self, request: web.BaseRequest, query: Query) -> Answer | None:
        """Serve a request; None: there is no such path. Raises ApiError (400, 404)."""
        path = request.path
        match request.method, path:
            case "POST", "/sandbox/compact":
                keep = query.integer("keep")
                self._registry.store.compact(KEPT_BY_COMPACTION if keep is None else keep)
                return Answer(b"ok", media="text/plain")
            case "GET", "/sandbox/requests":
                return Answer(dump(self._request_counts()))
            case "POST", "/sandbox/users":
                return Answer(dump(self._add_user(await _body(request))), 201)
            case "DELETE", _ if path.startswith(f"{_USERS}/"):
                return self._remove_user(path.removeprefix(f"{_USERS}/"))
            case "POST", "/sandbox/faults":
                self._faults.install(await _body(request))
                return Answer(dump(self._faults.describe()), 201)
            case "GET", "/sandbox/faults":
                return Answer(dump(self._faults.describe()))
            case "DELETE", "/sandbox/faults":
                description = self._faults.describe()
                self._faults.remove()
                return Answer(dump(description))
            case _:
                return None

    def _request_counts(self) -> dict[str, object]:
        counted = [
            {"method": method, "resource": resource, "user": user, "count": count}
            for (method, resource, user), count in self.requests.items()
        ]
        return {"requests": counted}

    def _add_user(self, body: dict[str, Any]) -> dict[str, object]:
        try:
            new = NewUser.model_validate(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise bad_request(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
        groups = new.groups if AUTHENTICATED in new.groups else (*new.groups, AUTHENTICATED)
        user = User(new.name, new.uid, groups, tuple(sorted(new.extra.items())))
        token = self._authenticator.add(user, token=new.token, expires=new.expires)
        return {"name": new.name, "groups": list(groups), "token": token}

    def _remove_user(self, name: str) -> Answer:
        if not self._authenticator.remove(name):
            raise ApiError(404, "NotFound", f'users "{name}" not found')
        return Answer(dump(success()))


async def _body(request: web.BaseRequest) -> dict[str, Any]:
    raw = await request.read()
    return decode_object(raw, media_type(request.headers.get("Content-Type", "")), "sandbox document")
