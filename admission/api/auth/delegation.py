"""Delegated authentication and authorization: the cluster's TokenReview and SubjectAccessReview, cached for seconds.

It fails closed: while the cluster does not answer, only requests with a cached review are served. Failed reviews are
not cached. Users share the reviews in flight fairly, so that none makes the others wait for all the reviews that it
causes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter, OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from admission.api.auth.identity import AuthMethod, Identity
from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import ReviewUnavailable, TooManyRequests
from admission.api.http.rate_limits import RateLimiter
from admission.api.registry import GROUP, VERSION
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from admission.cluster.client import Object

VALID_TOKEN_SECONDS, INVALID_TOKEN_SECONDS = 10.0, 1.0
"""Seconds for which the TokenReview of a valid token and of an invalid one is cached."""

ALLOWED_SECONDS, DENIED_SECONDS = 5.0, 1.0
"""Seconds for which a SubjectAccessReview that allows, and one that denies, is cached."""

REVIEW_SECONDS = 5.0
"""Timeout of a review, from the moment at which it is sent."""

_CONCURRENT_REVIEWS = 10
"""Most reviews of each of the two kinds in flight: the controller needs connections to the API server, too."""

_REVIEWS_OF_USER, _REVIEWS_OF_ADDRESS = 3, 8
"""Most SubjectAccessReviews of a user, and TokenReviews for a client address, in flight: a proxy has many users."""

_WAITING_REVIEWS = 200
"""Most reviews of each kind that wait, for each user or client address; as many as its burst of new tokens."""

_TOKENS, _ACCESSES = 4096, 16_384
"""Sizes of the two caches, in reviews."""
_LONGEST_TOKEN = 16_384
_NEW_TOKENS_PER_SECOND, _NEW_TOKENS_BURST = 50.0, 200.0
"""Rate limit, for each client address, of tokens that need a TokenReview: it slows down guessing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a SubjectAccessReview is about: a verb on a resource, or on a non-resource `path` if `resource` is empty."""

    verb: str
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    group: str = GROUP
    """The API group of the resource; empty for the core group."""

    def review(self) -> Object:
        """Return the part of a SubjectAccessReview's spec for these attributes."""
        if not self.resource:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        optional = {"namespace": self.namespace, "name": self.name, "subresource": self.subresource}
        return {
            "resourceAttributes": {
                "verb": self.verb,
                "group": self.group,
                "version": VERSION if self.group == GROUP else "v1",
                "resource": self.resource,
                **{key: value for key, value in optional.items() if value},
            }
        }


class Reviewer(Protocol):
    """Requests for reviews, with Sluice's own rights."""

    async def create(self, path: str, body: object) -> Object:
        """Ask for a review, and return it. Raises ClusterError."""


class Delegation:
    """Cached TokenReviews and SubjectAccessReviews of one cluster.

    `audiences`: a token must have been issued for one of them; empty: for the API server. `of`: the cluster, for
    messages. `clock`: monotonic, seconds.
    """

    def __init__(
        self,
        client: Reviewer,
        *,
        audiences: tuple[str, ...] = (),
        of: str = "the cluster",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._of = of
        self._audiences = audiences
        self._salt = secrets.token_bytes(16)
        self._users: TtlCache[Object | None] = TtlCache(size=_TOKENS, clock=clock)
        self._accesses: TtlCache[bool] = TtlCache(size=_ACCESSES, clock=clock)
        self._unavailable = False
        # A user is not known before the TokenReview, so that client addresses take turns there.
        self._token_slots = _slots(each=_REVIEWS_OF_ADDRESS)
        self._access_slots = _slots(each=_REVIEWS_OF_USER)
        self._new_token_limiter = RateLimiter(per_second=_NEW_TOKENS_PER_SECOND, burst=_NEW_TOKENS_BURST, clock=clock)

    async def user(self, token: str, *, source: str) -> Identity | None:
        """Return the user of a bearer token, or None if it is not valid. `source` is the client's address.

        Raises ReviewUnavailable, and TooManyRequests if too many tokens without a cached review come from `source`, or
        wait for it.
        """
        if not token or len(token) > _LONGEST_TOKEN or not (token.isascii() and token.isprintable()):
            return None
        # Salted digests, not tokens, are the keys: a memory dump of the cache reveals no token.
        key = hashlib.blake2b(token.encode(), key=self._salt).digest()
        if not self._users.has_answer(key) and (wait := self._new_token_limiter.retry_after(source)):
            raise TooManyRequests(f"too many new tokens come from {source}", retry_after=wait)
        user = await self._users.get(key, lambda: self._review_token(token, source))
        return None if user is None else _identity(user, source)

    async def allows(self, who: Identity, attributes: Attributes) -> bool:
        """Return whether the cluster's RBAC authorizes `who` for `attributes`.

        Raises ReviewUnavailable, and TooManyRequests if too many reviews of the user wait.
        """
        key = (who.name, who.uid, who.groups, who.extra, attributes)
        return await self._accesses.get(key, lambda: self._review_access(who, attributes))

    async def _review_token(self, token: str, source: str) -> tuple[Object | None, float]:
        spec: Object = {"token": token} | ({"audiences": list(self._audiences)} if self._audiences else {})
        status = await self._review(self._token_slots, source, "authentication.k8s.io", "TokenReview", spec)
        is_ours = not self._audiences or bool({*self._audiences} & {*(status.get("audiences") or ())})
        user = status.get("user")
        if status.get("authenticated") is True and is_ours and isinstance(user, dict) and user.get("username"):
            return user, VALID_TOKEN_SECONDS
        return None, INVALID_TOKEN_SECONDS

    async def _review_access(self, who: Identity, attributes: Attributes) -> tuple[bool, float]:
        spec: Object = {
            "user": who.name,
            "groups": list(who.groups),
            "extra": {key: list(values) for key, values in who.extra},
            **({"uid": who.uid} if who.uid else {}),
            **attributes.review(),
        }
        status = await self._review(self._access_slots, who.name, "authorization.k8s.io", "SubjectAccessReview", spec)
        allowed = status.get("allowed") is True and not status.get("denied")
        return allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS

    async def _review(self, slots: ReviewSlots, user: str, group: str, kind: str, spec: Object) -> dict[str, Any]:
        """Return the status of a review, sent when it is the turn of `user`, the user or client address causing it."""
        if slots.is_full(user):
            raise TooManyRequests(
                f"requests of {user} need {_WAITING_REVIEWS} {kind}s that wait to be sent, which is the most that "
                "Sluice allows; send fewer requests at the same time",
                retry_after=1,
            )
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        try:
            async with slots.slot(user):
                answer = await self._send(slots, f"/apis/{group}/v1/{kind.lower()}s", body)
        except (ClusterError, TimeoutError) as error:
            if not self._unavailable:
                _log.error(
                    "requests cannot be authorized, no answer of %s: %s", self._of, str(error) or f"{kind}: timeout"
                )
            self._unavailable = True
            raise ReviewUnavailable(
                f"{self._of} did not answer a {kind}, so the request cannot be authorized; try again later"
            ) from error
        if self._unavailable:
            _log.info("%s answers TokenReviews and SubjectAccessReviews again", self._of)
        self._unavailable = False
        status = answer.get("status")
        return status if isinstance(status, dict) else {}

    async def _send(self, slots: ReviewSlots, path: str, body: Object) -> Object:
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                return await self._client.create(path, body)
        except TimeoutError:
            # In an outage reviews would otherwise wait for the timeouts of all earlier ones.
            slots.give_up(REVIEW_SECONDS)
            raise


def _slots(*, each: int) -> ReviewSlots:
    return ReviewSlots(slots=_CONCURRENT_REVIEWS, each=each, waiting=_WAITING_REVIEWS)


def _identity(user: Object, source: str) -> Identity:
    extra = user.get("extra") or {}
    return Identity(
        user["username"],
        AuthMethod.TOKEN,
        uid=user.get("uid", ""),
        groups=tuple(user.get("groups") or ()),
        extra=tuple(sorted((key, tuple(values)) for key, values in extra.items())),
        source=source,
    )


class ReviewSlots:
    """At most `slots` reviews are in flight, and at most `each` of one user; at most `waiting` of one user wait."""

    def __init__(self, *, slots: int, each: int, waiting: int) -> None:
        self._free = slots
        self._each = each
        self._waiting = waiting
        self._in_flight: Counter[str] = Counter()
        self._queues: OrderedDict[str, dict[asyncio.Future[bool], float]] = OrderedDict()
        """What waits, with the loop's time of its arrival, by user. First are the user whose turn is next, and the
        oldest of a user."""

    def is_full(self, user: str) -> bool:
        """Return whether no further review of the user may wait."""
        return len(self._queues.get(user, ())) >= self._waiting

    @asynccontextmanager
    async def slot(self, user: str) -> AsyncIterator[None]:
        """Hold a slot for the time of the block. Raises TimeoutError if `give_up` ends the wait for one."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._queues.setdefault(user, {})[turn] = loop.time()
        self._give_slot()
        try:
            if not await turn:
                raise TimeoutError
            yield
        finally:
            if turn.cancelled():
                self._leave(user, turn)
            elif turn.result():
                self._release(user)

    def give_up(self, seconds: float) -> None:
        """End the wait of all reviews that have waited for `seconds` or longer."""
        since = asyncio.get_running_loop().time() - seconds
        late = [(user, turn) for user, queue in self._queues.items() for turn, began in queue.items() if began <= since]
        for user, turn in late:
            if not turn.cancelled():
                self._leave(user, turn)
                turn.set_result(False)

    def _give_slot(self) -> None:
        """Give a slot, if one is free, to the first user in turn who may have one more."""
        if not self._free:
            return
        for user, queue in self._queues.items():
            # A cancelled turn leaves the queue itself, a moment later.
            turn = next((each for each in queue if not each.cancelled()), None)
            if turn is not None and self._in_flight[user] < self._each:
                self._free -= 1
                self._in_flight[user] += 1
                self._queues.move_to_end(user)
                self._leave(user, turn)
                turn.set_result(True)
                return

    def _leave(self, user: str, turn: asyncio.Future[bool]) -> None:
        del self._queues[user][turn]
        if not self._queues[user]:
            del self._queues[user]

    def _release(self, user: str) -> None:
        self._free += 1
        self._in_flight[user] -= 1
        if not self._in_flight[user]:
            del self._in_flight[user]
        self._give_slot()
