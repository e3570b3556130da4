"""Faults on purpose: what a cluster does to its clients on a bad day, drawn from a seed, for tests of robustness."""

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
    from admission.sandbox.apiserver.storage import Event
    from admission.sandbox.auth.rbac import Attributes

_REASONS = {
    400: "BadRequest", 404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError",
    503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip
_WRITES = ("create", "update", "patch", "delete", "deletecollection")

Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Match(_Written):
    """Which requests: one of the named in each field that is given. `verb` may be `write`, for all that change."""

    verb: Texts = ()
    group: Texts = ()
    resource: Texts = ()
    """Plurals, or plural/subresource."""
    namespace: Texts = ()
    name: Texts = ()
    user: Texts = ()


class Rule(_Written):
    """One kind of fault. Durations are seconds of the wall's clock."""

    match: Match = Match()
    probability: float = Field(default=1.0, ge=0, le=1)
    limit: int | None = Field(default=None, ge=0)
    """How often at most."""
    do: Literal["error", "drop", "delay", "expired", "duplicate", "reorder", "closeWatches"]
    when: Literal["before", "after"] = "before"
    """For error, drop and delay: before the request is served, or when all is done but the answer."""
    code: int = Field(default=500, ge=400, le=599)
    retry_after: int | None = Field(default=None, ge=0)
    seconds: float = Field(default=0.02, ge=0, le=600)
    """For delay: how long, unless the rules are replaced or removed before; for reorder: how long events are held back,
    to have some to reorder, in a watch that begins while the rule is in force."""
    events: int = Field(default=5, ge=1)
    """For duplicate: how many events a watch that goes on begins too early."""
    abrupt: bool = False
    """For closeWatches: cut the connection off instead of ending the answer."""


class Plan(_Written):
    """What is sent to have faults."""

    seed: int = 0
    rules: tuple[Rule, ...] = ()


@dataclass(slots=True, eq=False)
class _Running:
    """A rule at work."""

    rule: Rule
    index: int
    matched: int = 0
    struck: int = 0
    seen: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def strikes(self, seed: int, asked: Attributes, user: User) -> bool:
        """Whether this one is hit: by the seed and by how often the same was asked, not by what came in between."""
        if not _matches(self.rule.match, asked, user):
            return False
        self.matched += 1
        if self.rule.limit is not None and self.struck >= self.rule.limit:
            return False
        asker = (asked.verb, asked.group, asked.resource or asked.path, asked.namespace, asked.name, user.name)
        self.seen[asker] += 1
        text = repr((seed, self.index, asker, self.seen[asker])).encode()
        drawn = int.from_bytes(blake2b(text, digest_size=8).digest()) / 2**64
        if drawn >= self.rule.probability:
            return False
        self.struck += 1
        return True


class Faults:
    """The rules in force. Nothing happens while there are none."""

    def __init__(self) -> None:
        self._seed = 0
        self._rules: list[_Running] = []
        self._wakes: set[Callable[[], None]] = set()
        self._over = asyncio.Event()
        """Set when the rules are not in force any more."""

    def install(self, document: Any) -> None:
        """Replace all rules. Raises ApiError (400)."""
        try:
            plan = Plan.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the document"
            raise bad_request(f"{place}: {first['msg']}") from error
        self.remove()
        self._seed = plan.seed
        self._rules = [_Running(rule, index) for index, rule in enumerate(plan.rules)]
        for wake in self._wakes:
            wake()

    def remove(self) -> None:
        """Have no more faults. What is being delayed goes on."""
        self._rules = []
        self._over.set()
        self._over = asyncio.Event()

    def shown(self) -> Object:
        """The rules, with how many requests each one matched and how many of them it struck."""
        rules = [
            {**each.rule.model_dump(mode="json", by_alias=True, exclude_unset=True), "matched": each.matched,
             "struck": each.struck}
            for each in self._rules
        ]  # fmt: skip
        return {"seed": self._seed, "rules": rules}

    def drawn(self, does: str, asked: Attributes, user: User) -> Rule | None:
        """The first rule of a kind that strikes."""
        for each in self._rules:
            if each.rule.do == does and each.strikes(self._seed, asked, user):
                return each.rule
        return None

    def strike(self, request: web.BaseRequest, asked: Attributes, user: User) -> Struck:
        """Draw what goes wrong with a request."""
        struck = [
            each.rule
            for each in self._rules
            if each.rule.do in ("error", "drop", "delay") and each.strikes(self._seed, asked, user)
        ]
        # A watch is over when it is served: there is no answer that could still fail.
        is_early = [rule.when == "before" or asked.verb == "watch" for rule in struck]
        early = [rule for rule, is_so in zip(struck, is_early, strict=True) if is_so]
        late = [rule for rule, is_so in zip(struck, is_early, strict=True) if not is_so]
        return Struck(request, early, late, self._over)

    def disturbance(self, request: web.BaseRequest, asked: Attributes, user: User) -> Disturbance:
        """What may go wrong with a watch, as long as it lives."""
        return Disturbance(self, request, asked, user, self.drawn("reorder", asked, user))

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when there are new rules."""
        self._wakes.add(wake)

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        self._wakes.discard(wake)


@dataclass(frozen=True, slots=True)
class Struck:
    """What goes wrong with one request."""

    _request: web.BaseRequest
    _early: list[Rule]
    _late: list[Rule]
    _over: asyncio.Event

    async def before(self) -> None:
        """What comes before it is served. Raises ApiError, ConnectionResetError."""
        for rule in self._early:
            await _strike(rule, self._request, self._over)

    async def after(self) -> None:
        """What comes when all is done but the answer. Raises ApiError, ConnectionResetError."""
        for rule in self._late:
            await _strike(rule, self._request, self._over)


@dataclass(frozen=True, slots=True)
class Disturbance:
    """The faults of one watch."""

    faults: Faults
    _request: web.BaseRequest
    _asked: Attributes
    _user: User
    _reorder: Rule | None
    """By which it tells events in another order, from its beginning to its end; None: it does not."""

    def is_expired(self) -> bool:
        """Whether the version to go on from is said to be too old."""
        return self._drawn("expired") is not None

    def rewound(self, position: int, first: int) -> int:
        """Where a watch that goes on begins: some events are told again, in their order."""
        rule = self._drawn("duplicate")
        return position if rule is None else max(first, position - rule.events)

    def closes(self) -> bool:
        """Whether the watch ends here. Raises ConnectionResetError if it does so abruptly.

        One that tells events in another order never does: its reader, who goes on from the latest version that has
        reached him, would miss what was to come after it, which happens at no API server.
        """
        rule = self._drawn("closeWatches")
        if rule is not None and rule.abrupt and self._reorder is None:
            cut_off(self._request)
        return rule is not None

    async def holds_back(self) -> bool:
        """Wait for more events when they are to be reordered."""
        if self._reorder is not None:
            await asyncio.sleep(self._reorder.seconds)
        return self._reorder is not None

    def _drawn(self, does: str) -> Rule | None:
        return self.faults.drawn(does, self._asked, self._user)


def reordered(events: list[Event]) -> list[Event]:
    """The events in another order, each object's own in theirs.

    The newest stays last: who goes on from the last version that he was told must not miss another.
    """
    *rest, last = events
    draw = random.Random(last.rv)
    queues: dict[tuple[str, str], list[Event]] = {}
    for event in rest:
        queues.setdefault((event.namespace, event.name), []).append(event)
    order = [key for key, queue in queues.items() for _ in queue]
    draw.shuffle(order)
    turns = {key: iter(queue) for key, queue in queues.items()}
    return [*(next(turns[key]) for key in order), last]


async def _strike(rule: Rule, request: web.BaseRequest, over: asyncio.Event) -> None:
    match rule.do:
        case "delay":
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), rule.seconds)
        case "drop":
            cut_off(request)
        case _:
            headers = {} if rule.retry_after is None else {"Retry-After": str(rule.retry_after)}
            details = {} if rule.retry_after is None else {"retryAfterSeconds": rule.retry_after}
            reason = _REASONS.get(rule.code, "")
            raise ApiError(rule.code, reason, "a fault on purpose", details=details, headers=headers)


def _matches(match: Match, asked: Attributes, user: User) -> bool:
    verbs = match.verb + _WRITES if "write" in match.verb else match.verb
    return all(
        not wanted or found in wanted
        for wanted, found in (
            (verbs, asked.verb), (match.group, asked.group), (match.resource, asked.resource),
            (match.namespace, asked.namespace), (match.name, asked.name), (match.user, user.name),
        )
    )  # fmt: skip
