"""Fault injection into HTTP requests and watches, drawn from a seed, for tests of robustness."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from admission.sandbox.aggregation.proxy import cut_off
from admission.sandbox.apiserver.errors import ApiError, bad_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.requests import User
    from admission.sandbox.apiserver.storage import StorageEvent
    from admission.sandbox.auth.rbac import RequestAttributes

_REASONS = {
    400: "BadRequest", 404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError",
    503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip
_WRITES = ("create", "update", "patch", "delete", "deletecollection")

Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Match(_Document):
    """Selects requests: each field that is given must match. `verb` may be `write`, for all that change something."""

    verb: Texts = ()
    group: Texts = ()
    resource: Texts = ()
    """Plurals, or plural/subresource such as `jobs/status`."""
    namespace: Texts = ()
    name: Texts = ()
    user: Texts = ()


class Rule(_Document):
    """One fault and the requests it affects. Durations are seconds of real time, not of the sandbox's clock."""

    match: Match = Match()
    probability: float = Field(default=1.0, ge=0, le=1)
    limit: int | None = Field(default=None, ge=0)
    """Maximum number of injections; unlimited by default."""
    do: Literal["error", "drop", "delay", "expired", "duplicate", "reorder", "closeWatches"]
    when: Literal["before", "after"] = "before"
    """For error, drop and delay: before the request is served, or afterwards, when only its answer is left."""
    code: int = Field(default=500, ge=400, le=599)
    retry_after: int | None = Field(default=None, ge=0)
    seconds: float = Field(default=0.02, ge=0, le=600)
    """For delay: how long, unless the rules are replaced or removed before. For reorder: how long a watch that starts
    under this rule waits for further events, so that there are some to reorder."""
    events: int = Field(default=5, ge=1)
    """For duplicate: number of events before its resourceVersion that a resumed watch receives again."""
    abrupt: bool = False
    """For closeWatches: reset the connection instead of ending the response."""


class FaultPlan(_Document):
    """Body of POST /sandbox/faults."""

    seed: int = 0
    rules: tuple[Rule, ...] = ()


@dataclass(slots=True, eq=False)
class _ActiveRule:
    """A rule with its counters."""

    rule: Rule
    index: int
    matched: int = 0
    struck: int = 0
    seen: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Number of matching requests by verb, group, resource, namespace, name and user."""

    def applies(self, seed: int, attributes: RequestAttributes, user: User) -> bool:
        """Draw whether to inject the fault into a request.

        The result depends on the seed and on the number of equal requests before, not on other requests in between,
        so that a run can be repeated.
        """
        if not _matches(self.rule.match, attributes, user):
            return False
        self.matched += 1
        if self.rule.limit is not None and self.struck >= self.rule.limit:
            return False
        request = (
            attributes.verb,
            attributes.group,
            attributes.resource or attributes.path,
            attributes.namespace,
            attributes.name,
            user.name,
        )
        self.seen[request] += 1
        text = repr((seed, self.index, request, self.seen[request])).encode()
        drawn = int.from_bytes(blake2b(text, digest_size=8).digest()) / 2**64
        if drawn >= self.rule.probability:
            return False
        self.struck += 1
        return True


class InjectedFaults:
    """The installed rules; without any, no faults occur."""

    def __init__(self) -> None:
        self._seed = 0
        self._rules: list[_ActiveRule] = []
        self._subscribers: set[Callable[[], None]] = set()
        self._removed = asyncio.Event()
        """Set when the current rules are removed, which ends their delays."""

    def install(self, document: Any) -> None:
        """Validate a document (see Plan) and replace all rules by its rules. Raises ApiError (400)."""
        try:
            plan = FaultPlan.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the document"
            raise bad_request(f"{place}: {first['msg']}") from error
        self.remove()
        self._seed = plan.seed
        self._rules = [_ActiveRule(rule, index) for index, rule in enumerate(plan.rules)]
        for wake in self._subscribers:
            wake()

    def remove(self) -> None:
        """Remove all rules; delayed requests continue."""
        self._rules = []
        self._removed.set()
        self._removed = asyncio.Event()

    def describe(self) -> Object:
        """Return the rules, with the number of requests that each one matched and that it affected (`struck`)."""
        rules = [
            {**each.rule.model_dump(mode="json", by_alias=True, exclude_unset=True), "matched": each.matched,
             "struck": each.struck}
            for each in self._rules
        ]  # fmt: skip
        return {"seed": self._seed, "rules": rules}

    def draw(self, does: str, attributes: RequestAttributes, user: User) -> Rule | None:
        """Return the first rule with the action `does` that applies to the request."""
        for each in self._rules:
            if each.rule.do == does and each.applies(self._seed, attributes, user):
                return each.rule
        return None

    def for_request(self, request: web.BaseRequest, attributes: RequestAttributes, user: User) -> RequestFaults:
        """Draw the faults of one request."""
        chosen = [
            each.rule
            for each in self._rules
            if each.rule.do in ("error", "drop", "delay") and each.applies(self._seed, attributes, user)
        ]
        # The faults of a watch are early: once its stream has ended, there is no answer left that could fail.
        is_early = [rule.when == "before" or attributes.verb == "watch" for rule in chosen]
        early = [rule for rule, is_first in zip(chosen, is_early, strict=True) if is_first]
        late = [rule for rule, is_first in zip(chosen, is_early, strict=True) if not is_first]
        return RequestFaults(request, early, late, self._removed)

    def for_watch(self, request: web.BaseRequest, attributes: RequestAttributes, user: User) -> WatchFaults:
        """Return the faults of one watch, which are drawn while it runs."""
        return WatchFaults(self, request, attributes, user, self.draw("reorder", attributes, user))

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` when rules are installed, until `unsubscribe`."""
        self._subscribers.add(wake)

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        self._subscribers.discard(wake)


@dataclass(frozen=True, slots=True)
class RequestFaults:
    """Faults of one request."""

    _request: web.BaseRequest
    _early: list[Rule]
    _late: list[Rule]
    _removed: asyncio.Event

    async def before(self) -> None:
        """Inject the faults before the request is served. Raises ApiError, ConnectionResetError."""
        for rule in self._early:
            await _inject(rule, self._request, self._removed)

    async def after(self) -> None:
        """Inject the faults after the request was served, before its answer. Raises ApiError, ConnectionResetError."""
        for rule in self._late:
            await _inject(rule, self._request, self._removed)


@dataclass(frozen=True, slots=True)
class WatchFaults:
    """Faults of one watch."""

    rules: InjectedFaults
    _request: web.BaseRequest
    _attributes: RequestAttributes
    _user: User
    _reorder: Rule | None
    """Rule by which the watch reorders events, from its start to its end; None: it does not."""

    def is_expired(self) -> bool:
        """Return whether to reject the watch's resourceVersion as too old (410)."""
        return self._draw("expired") is not None

    def rewind(self, position: int, first: int) -> int:
        """Return the position at which a resumed watch starts: earlier if events are to be duplicated."""
        rule = self._draw("duplicate")
        return position if rule is None else max(first, position - rule.events)

    def should_close(self) -> bool:
        """Return whether to end the watch now. Raises ConnectionResetError if it is to end abruptly.

        A watch that reorders events is never reset abruptly. Its client resumes from the latest resourceVersion that it
        received and would miss the events with smaller ones that were still to come, which no API server causes.
        """
        rule = self._draw("closeWatches")
        if rule is not None and rule.abrupt and self._reorder is None:
            cut_off(self._request)
        return rule is not None

    async def wait_to_reorder(self) -> bool:
        """If events are to be reordered, wait for further ones; return whether they are."""
        if self._reorder is not None:
            await asyncio.sleep(self._reorder.seconds)
        return self._reorder is not None

    def _draw(self, does: str) -> Rule | None:
        return self.rules.draw(does, self._attributes, self._user)


def reordered(events: list[StorageEvent]) -> list[StorageEvent]:
    """Shuffle events, but keep the order of each object's events.

    The newest stays last: a client that resumes from the last received resourceVersion must not miss any other event.
    """
    *rest, last = events
    draw = random.Random(last.rv)
    queues: dict[tuple[str, str], list[StorageEvent]] = {}
    for event in rest:
        queues.setdefault((event.namespace, event.name), []).append(event)
    order = [key for key, queue in queues.items() for _ in queue]
    draw.shuffle(order)
    remaining = {key: iter(queue) for key, queue in queues.items()}
    return [*(next(remaining[key]) for key in order), last]


async def _inject(rule: Rule, request: web.BaseRequest, removed: asyncio.Event) -> None:
    match rule.do:
        case "delay":
            with suppress(TimeoutError):
                await asyncio.wait_for(removed.wait(), rule.seconds)
        case "drop":
            cut_off(request)
        case _:
            headers = {} if rule.retry_after is None else {"Retry-After": str(rule.retry_after)}
            details = {} if rule.retry_after is None else {"retryAfterSeconds": rule.retry_after}
            reason = _REASONS.get(rule.code, "")
            raise ApiError(rule.code, reason, "an injected fault", details=details, headers=headers)


def _matches(match: Match, attributes: RequestAttributes, user: User) -> bool:
    verbs = match.verb + _WRITES if "write" in match.verb else match.verb
    return all(
        not wanted or found in wanted
        for wanted, found in (
            (verbs, attributes.verb), (match.group, attributes.group), (match.resource, attributes.resource),
            (match.namespace, attributes.namespace), (match.name, attributes.name), (match.user, user.name),
        )
    )  # fmt: skip
