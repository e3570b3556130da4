"""Moves about other kinds (`wholes`, see kind_documents) and pod groups of other systems, as plain JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fuzz import oddities
from tests.fuzz.documents import FLOOR
from tests.fuzz.kind_documents import MCAD, WRAPPERS
from tests.fuzz.topology_moves import PLACED

USERS = ("alice", "bob")
KINDS = (
    *["rayclusters"] * 2,
    *["rayjobs"] * 2,
    *["jobsets"] * 2,
    *[WRAPPERS] * 2,
    "trainingruns",
    *["statefulsets"] * 2,
    "vcjobs",
    MCAD,
)
_NAMES = ("wa", "wb")
"""Names of the objects of each kind, in each user's namespace."""
_GANGS = ("koordinator", "plugins", "native", "yunikorn", "declared")
_ASKED = ('{"w0": {"replicas": 9}, "w1": {"replicas": 2}}', '{"w0": {"count": 3}}', '{"head": {"replicas": 4}}', "x")


def _one(*options: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(options)


def _move(do: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"do": st.just(do), "user": _one(*USERS), **arguments})


_WHICH: dict[str, st.SearchStrategy[Any]] = {"kind": _one(*KINDS), "name": _one(*_NAMES)}
_NEW: dict[str, st.SearchStrategy[Any]] = {
    "queue": _one("main", "main", "main", "main", "side", "nowhere", ""),
    "stop": _one(None, "5", "20", "20", "never"),
    "pods": st.lists(st.integers(0, 3), min_size=2, max_size=2),
    "fewest": _one("", "", "w0=2", "w2=1"),
}


def _of_metadata() -> st.SearchStrategy[Any]:
    """Strategy for changes of an existing object's labels and annotations."""
    labels = [
        oddities.change("metadata", "labels", label, value=_one("main", "side", "nowhere", "", None))
        for label in oddities.QUEUE_LABELS
    ]
    notes = [
        oddities.change("metadata", "annotations", "sluice.dev/asks-for", value=_one(*_ASKED, None)),
        oddities.change("metadata", "annotations", "sluice.dev/min-count", value=_one("w0=1", "w1=2", "0", "", None)),
        oddities.change("metadata", "annotations", "sluice.dev/dispatch", value=_one("true", "", None)),
        oddities.change("metadata", "ownerReferences", value=oddities.owner()),
    ]
    return st.sampled_from([*labels, *notes, oddities.note()]).flatmap(lambda chosen: chosen)


_CREATE = _move("whole", **_WHICH, **_NEW, settle=_one(True, True, False))
_CREATE_FLEXIBLE = _move(
    "whole",
    kind=_one("rayclusters", "rayjobs", "trainingruns"),
    name=_one(*_NAMES),
    queue=_one("main", "main", "side"),
    stop=_one(None, "5"),
    pods=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    settle=_one(True, False),
    fewest=st.just("w0=1,w1=1"),
)
"""Creates an object that may start with fewer pods than it requests (partial admission)."""
PLACE_WHOLE = _move(
    "whole",
    kind=_one("jobsets", "jobsets", "rayclusters"),
    name=_one(*_NAMES),
    **{**_NEW, "queue": st.just(FLOOR)},
    placed=PLACED,
    settle=_one(True, False),
)
"""Creates an object whose pods are placed by topology."""
_NUMBERS = st.lists(st.integers(0, 6), min_size=1, max_size=3) | _one([1, 2], [0, 3])
_RESIZE = _move("resize", **_WHICH, group=_one(0, 0, 1), numbers=_NUMBERS | _one([-1], [2, -3]))

_GANG = _move(
    "gang",
    way=_one(*_GANGS),
    name=_one("gc", "gd"),
    total=_one(1, 2, 3),
    count=_one(1, 2, 3, 4),
    large=_one(False, False, False, True),
)
_GANG_SIZE = _move(
    "gang_size", way=_one("plugins", "native"), name=_one("gc", "gd"), total=_one(1, 2, 3, 0, -1, "x", None)
)
_GANG_TREE = _move(
    "gang_tree",
    plural=_one("podgroups", "podgroups", "compositepodgroups"),
    name=_one("gc", "gd", "ta", "tb"),
    parent=_one("ta", "ta", "tb", "gc", "", "X_"),
    number=_one(1, 2, 1, 2, 0, "x"),
    gone=_one(*[False] * 5, True),
)
_GANG_OF_TREE = _move(
    "gang",
    way=st.just("native"),
    name=_one("gc", "gd"),
    total=st.just(1),
    count=_one(1, 2, 3),
    large=_one(False, False, True),
)
_CHANGES = ("resize", "resize", "sway", "sway", "sway", "rename", "add", "enlarge", "reverse")
_START_AND_CHANGE = _move(
    "start_and_change",
    kind=_one("rayclusters", "rayclusters", "rayjobs", "jobsets", WRAPPERS, "trainingruns", "statefulsets"),
    name=_one(*_NAMES),
    stop=_one("20", "never"),
    what=_one(*_CHANGES),
    numbers=st.lists(st.integers(0, 4), min_size=2, max_size=3),
)

WITH_KINDS = [
    PLACE_WHOLE,
    *[_CREATE] * 8,
    *[_CREATE_FLEXIBLE] * 4,
    *[_RESIZE] * 6,
    *[_START_AND_CHANGE] * 3,
    *[_move("rework", **_WHICH, what=_one("rename", "add", "enlarge", "reverse", "misshape"), pods=st.integers(1, 4))]
    * 3,
    *[_move("note_whole", **_WHICH, changes=st.lists(_of_metadata(), min_size=1, max_size=2))] * 3,
    _move("flip_whole", **_WHICH, times=st.integers(1, 3)),
    *[_move("delete_whole", **_WHICH, propagation=_one("Background", "Background", "Foreground", "Orphan"))] * 2,
    _move("recreate_whole", **_WHICH, **_NEW, times=st.integers(2, 3), propagation=_one("Background", "Orphan")),
    _move("delete_pod", pick=st.integers(0, 11), force=_one(False, True)),
    *[_GANG] * 3,
    *[_GANG_SIZE] * 2,
    *[_GANG_TREE] * 4,
    *[_GANG_OF_TREE] * 2,
]
"""Moves, repeated by their relative frequency."""
