"""Whose token it is and who may do what, asked of the cluster: TokenReview and SubjectAccessReview, remembered briefly.

It fails closed: while the cluster does not answer, nobody gets in whose answer is not remembered, and no refusal is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from admission.api.auth.authentication import Door, Identity
from admission.api.auth.ttl_cache import Remembered
from admission.api.errors import ReviewUnavailable, TooManyRequests
from admission.api.http.rate_limits import Limits
from admission.api.registry import GROUP, VERSION
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.client import Client, Object

KNOWN_SECONDS, UNKNOWN_SECONDS = 10.0, 1.0
"""How long a token that is somebody's, and one that is nobody's, is not asked about again."""

ALLOWED_SECONDS, DENIED_SECONDS = 5.0, 1.0
"""How long a permission, and a refusal, is not asked about again."""

_REVIEW_SECONDS = 5.0
"""A request waits so long for the cluster's answer."""

_AT_ONCE = 10
"""Reviews under way; the connections to the API server are needed for other things, too."""

_TOKENS, _ACCESSES = 4096, 16_384
_LONGEST_TOKEN = 16_384
_NEW_TOKENS_PER_SECOND, _NEW_TOKENS_AT_ONCE = 50.0, 200.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attributes:
    """What somebody wants to do: with a resource of the group, or with a `path` if `resource` is empty."""

    verb: str
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    group: str = GROUP
    """The API group of the resource; empty for the core group."""

    def review(self) -> Object:
        """As a SubjectAccessReview has it."""
        if not self.resource:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        given = {"namespace": self.namespace, "name": self.name, "subresource": self.subresource}
        return {
            "resourceAttributes": {
                "verb": self.verb,
                "group": self.group,
                "version": VERSION if self.group == GROUP else "v1",
                "resource": self.resource,
                **{key: value for key, value in given.items() if value},
            }
        }


class Delegation:
    """The reviews of one cluster. `audiences`: a token must be meant for one of them; none: for the API server.

    `clock` gives seconds that never go back.
    """

    def __init__(
        self, client: Client, *, audiences: tuple[str, ...] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._audiences = audiences
        self._salt = secrets.token_bytes(16)
        self._users: Remembered[Object | None] = Remembered(size=_TOKENS, clock=clock)
        self._accesses: Remembered[bool] = Remembered(size=_ACCESSES, clock=clock)
        self._silent = False
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._newcomers = Limits(per_second=_NEW_TOKENS_PER_SECOND, at_once=_NEW_TOKENS_AT_ONCE, clock=clock)

    async def user(self, token: str, *, source: str) -> Identity | None:
        """Whose token it is; None: nobody's. Raises ReviewUnavailable, and TooManyRequests for guessing."""
        if not token or len(token) > _LONGEST_TOKEN or not (token.isascii() and token.isprintable()):
            return None
        # The table must be of no use to whoever gets to see it.
        key = hashlib.blake2b(token.encode(), key=self._salt).digest()
        if not self._users.known(key) and (wait := self._newcomers.wait(source)):
            raise TooManyRequests(f"too many new tokens come from {source}", retry_after=wait)
        user = await self._users.get(key, lambda: self._review_token(token))
        return None if user is None else _identity(user, source)

    async def allows(self, who: Identity, attributes: Attributes) -> bool:
        """Whether the cluster's RBAC lets `who` do that. Raises ReviewUnavailable."""
        key = (who.name, who.uid, who.groups, who.extra, attributes)
        return await self._accesses.get(key, lambda: self._review_access(who, attributes))

    async def _review_token(self, token: str) -> tuple[Object | None, float]:
        spec: Object = {"token": token} | ({"audiences": list(self._audiences)} if self._audiences else {})
        status = await self._review("authentication.k8s.io", "TokenReview", spec)
        is_ours = not self._audiences or bool({*self._audiences} & {*(status.get("audiences") or ())})
        user = status.get("user")
        if status.get("authenticated") is True and is_ours and isinstance(user, dict) and user.get("username"):
            return user, KNOWN_SECONDS
        return None, UNKNOWN_SECONDS

    async def _review_access(self, who: Identity, attributes: Attributes) -> tuple[bool, float]:
        spec: Object = {
            "user": who.name,
            "groups": list(who.groups),
            "extra": {key: list(values) for key, values in who.extra},
            **({"uid": who.uid} if who.uid else {}),
            **attributes.review(),
        }
        status = await self._review("authorization.k8s.io", "SubjectAccessReview", spec)
        allowed = status.get("allowed") is True and not status.get("denied")
        return allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS

    async def _review(self, group: str, kind: str, spec: Object) -> dict[str, Any]:
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        try:
            async with asyncio.timeout(_REVIEW_SECONDS), self._free:
                answer = await self._client.create(f"/apis/{group}/v1/{kind.lower()}s", body)
        except (ClusterError, TimeoutError) as error:
            if not self._silent:
                _log.error("nobody can be let in, the cluster does not answer: %s", str(error) or f"{kind}: too late")
            self._silent = True
            raise ReviewUnavailable(
                f"the cluster did not answer a {kind}, so nobody can be let in; try again later"
            ) from error
        if self._silent:
            _log.info("the cluster answers again who its users are")
        self._silent = False
        status = answer.get("status")
        return status if isinstance(status, dict) else {}


def _identity(user: Object, source: str) -> Identity:
    extra = user.get("extra") or {}
    return Identity(
        user["username"],
        Door.TOKEN,
        uid=user.get("uid", ""),
        groups=tuple(user.get("groups") or ()),
        extra=tuple(sorted((key, tuple(values)) for key, values in extra.items())),
        source=source,
    )
