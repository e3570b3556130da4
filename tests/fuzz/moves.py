"""Moves of the players, as plain JSON, so that a game can be printed, shortened and replayed.

`games` draws them with Hypothesis: the same seed gives the same games. A move refers to objects by a small set of
names, so that it remains playable when earlier moves are left out.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz import oddities
from tests.fuzz.kind_moves import PLACE_WHOLE, WITH_KINDS
from tests.fuzz.pod_moves import PLACE_GROUP, WITH_PODS
from tests.fuzz.topology_moves import WITH_NODES, placed
from tests.fuzz.world import BOUNDLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Move = dict[str, Any]
"""`do` is the name of a method of Players, PodPlayers or KindPlayers; the other keys are its arguments."""

Game = list[Move]

USERS = ("alice", "bob")
NAMES = ("one", "two", "three")
"""Names of Jobs in each user's namespace: few, so that many moves concern the same Job."""

MOVES = 40
"""Number of moves of each game."""

QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "sluice.dev/queue-name")
QUEUES = ("main", "side", "nowhere", "")
POOLS = ("main", "spare")


def _one(*options: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(options)


def _move(do: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Move]:
    return st.fixed_dictionaries({"do": st.just(do), **arguments})


def _some(what: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(what, min_size=count, max_size=count)


def _weighted(moves: list[st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Draw a strategy with a probability by its number of occurrences, which `one_of` ignores."""
    return st.sampled_from(moves).flatmap(lambda chosen: chosen)


_WHO = {"user": _one(*USERS), "name": _one(*NAMES)}

_ODD = oddities.of_a_new_job()
_JOB: dict[str, st.SearchStrategy[Any]] = {
    "name": _one(*NAMES),
    "queue": _one(*["main"] * 8, *QUEUES),
    "label": _one(*QUEUE_LABELS),
    "pods": _one(1, 2, 3, 4, 4, 4),
    "mode": _one("fixed", "fixed", "indexed", "indexed", "many", "until one succeeds", "partial", "partial indexed"),
    "cpu": _one("1", "1", "1", "500m", "2"),
    "seconds": _one(1, 5, 20, 10_000, 10_000),
    "stop": _one(None, None, "5", "20", "grace", "never"),
    "suspend": _one(None, None, None, True, False),
    "odd": st.sampled_from([_some(_ODD, count) for count in (0, 0, 1, 1, 2)]).flatmap(lambda chosen: chosen),
    "settle": _one(True, True, False),
}
_CREATE = _move("create", user=_one(*USERS), **_JOB)
_CREATE_HUGE = _move(
    "create",
    user=_one(*USERS),
    **_JOB | {"queue": st.just(BOUNDLESS), "pods": _one(2, 3, 4), "cpu": oddities.huge(), "suspend": _one(None, True)},
)

_PATCH = _move(
    "patch", **_WHO, changes=st.lists(oddities.of_a_change(), min_size=1, max_size=2), status=_one(*[False] * 9, True)
)

_DELETE = _move(
    "delete", **_WHO, propagation=_one("Background", "Background", "Foreground", "Orphan", None), force=st.booleans()
)

_PATCH_STATUS = _move("patch", **_WHO, changes=_some(oddities.of_a_status(), 1), status=st.just(True))

_STUBBORN = _JOB | {
    "queue": st.just("main"),
    "pods": _one(3, 4),
    "mode": _one("fixed", "indexed"),
    "cpu": st.just("1"),
    "seconds": st.just(10_000),
    "stop": _one("20", "20", "never"),
    "suspend": st.none(),
    "settle": st.just(False),
}
"""Arguments of a Job whose pods terminate slowly."""

_RECREATE = _move(
    "recreate",
    user=_one(*USERS),
    times=st.integers(2, 3),
    propagation=_one("Background", "Background", "Orphan", "Foreground"),
    like=st.fixed_dictionaries(_STUBBORN | {"odd": _some(oddities.way_in(), 1)}),
)

_START_AND_FLIP = _move(
    "start_and_flip",
    user=_one(*USERS),
    times=st.integers(1, 3),
    like=st.fixed_dictionaries(_STUBBORN | {"odd": st.just([])}),
)

_START_AND_RAISE = _move(
    "start_and_raise",
    user=_one(*USERS),
    count=st.integers(5, 8),
    like=st.fixed_dictionaries(_STUBBORN | {"odd": st.just([])}),
)

_JOIN = _move(
    "join",
    user=_one(*USERS),
    like=st.fixed_dictionaries(
        _JOB
        | {"queue": st.just(""), "suspend": _one(True, True, None), "odd": _some(oddities.note(), 1)}
        | {"settle": st.just(False)}
    ),
    queue=_one("main", "main", "side"),
)

_WITH_JOBS = [
    *[_CREATE] * 10,
    *[_PATCH] * 10,
    _CREATE_HUGE,
    _PATCH_STATUS,
    _RECREATE,
    _START_AND_FLIP,
    _START_AND_RAISE,
    _JOIN,
    _DELETE,
    _DELETE,
    _move("flip", **_WHO, times=st.integers(1, 3)),
    _move("delete_pods", **_WHO, force=st.booleans()),
    _move("delete_all", user=_one(*USERS)),
    _move("outbid", stop=_one("20", "40")),
]

_FITTING = {"cpu": _one("1", "1", "1", "500m", "2"), "mode": _one("fixed", "indexed", "indexed", "partial indexed")}
_PLACE = _move("create", user=_one(*USERS), **placed(_JOB | _FITTING))
_PLACED_STUBBORN = st.fixed_dictionaries(placed(_STUBBORN) | {"odd": st.just([])})
_ON_THE_FLOOR = [
    *[_PLACE] * 12,
    *[PLACE_WHOLE] * 4,
    *[PLACE_GROUP] * 3,
    *[_PATCH] * 3,
    *WITH_NODES,
    *[_DELETE] * 3,
    _move("flip", **_WHO, times=st.integers(1, 3)),
    *[_move("delete_pods", **_WHO, force=st.booleans())] * 2,
    _move("delete_all", user=_one(*USERS)),
    _move("start_and_flip", user=_one(*USERS), times=st.integers(1, 3), like=_PLACED_STUBBORN),
    _move(
        "recreate",
        user=_one(*USERS),
        times=st.integers(2, 3),
        propagation=_one("Background", "Orphan", "Foreground"),
        like=_PLACED_STUBBORN,
    ),
    _move("kill_half_ungated", user=_one(*USERS), like=_PLACED_STUBBORN),
]

_READ = _move("read", **_WHO)

_OF_ADMINS = [
    _move("quota", queue=_one("a", "b"), cpu=st.integers(0, 6)),
    _move("stop", queue=_one("a", "b"), policy=_one("None", "None", "Hold", "HoldAndDrain")),
    _move("stop_local", user=_one(*USERS), policy=_one("None", "None", "Hold", "HoldAndDrain")),
    _move("cohort", queue=_one("a", "b"), cohort=_one("", "all")),
    _move("lose_queue", what=_one("a", "b", "main/alice", "main/bob", "spare")),
    _move("restore_queues"),
    _move("limit_range", user=_one(*USERS), limit=oddities.limit_range()),
    _move("runtime_class", name=_one("heavy", "nope"), there=st.booleans()),
    _move("priority_class", name=_one("high", "nope"), there=st.booleans()),
    _move("activate", **_WHO, active=st.booleans()),
]


def _of_fate(meanwhile: list[st.SearchStrategy[Any]]) -> list[st.SearchStrategy[Any]]:
    return [
        _move("restart", kindly=st.booleans(), meanwhile=st.lists(_weighted(meanwhile), max_size=3)),
        *[_move("wait", seconds=_one(0.05, 0.3, 1.0))] * 2,
        *[_move("settle")] * 6,
    ]


@cache
def a_move(about: str = "") -> st.SearchStrategy[Move]:
    """Return the strategy for one move; most are about Jobs, or about "pods", "kinds" or "topology"."""
    acting = {
        "pods": [*_WITH_JOBS[::2], *WITH_PODS],
        "kinds": [*_WITH_JOBS[::4], *WITH_KINDS],
        "topology": _ON_THE_FLOOR,
    }.get(about, [*_WITH_JOBS, *_ON_THE_FLOOR[::6]])
    users, admins = _weighted([*acting, _READ]), st.one_of(*_OF_ADMINS)
    return _weighted([users] * 9 + [admins, _weighted(_of_fate(acting))])


def games(number: int, about: str = "") -> Iterator[Game]:
    """Yield games without end, the same for the same seed `number`; `about` as in `a_move`."""
    moves = a_move(about)
    return (_game(f"{number}/{place}", moves) for place in count())


def _game(name: str, moves: st.SearchStrategy[Move]) -> Game:
    found: list[Game] = []

    # The first example is the minimal one, which is no useful game, and those after the second only vary it.
    @seed(name)
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(moves, min_size=MOVES, max_size=MOVES))
    def draw(game: Game) -> None:
        found.append(game)

    play: Callable[[], None] = draw
    play()
    return found[-1]
