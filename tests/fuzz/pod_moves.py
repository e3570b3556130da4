"""Moves about pods, pod groups, and the pods of Deployments and StatefulSets, as plain JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fuzz import oddities
from tests.fuzz.documents import BY_RACK, FLOOR
from tests.fuzz.topology_moves import PLACED_GROUP

USERS = ("alice", "bob")
GROUPS = ("ga", "gb")
"""Names of pod groups, Deployments and StatefulSets in each user's namespace."""
CONTROLLERS = ("statefulsets", "statefulsets", "deployments")
_QUEUES = ("main", "main", "main", "main", "main", "main", "side", "nowhere", "", "boundless")
_GROUP_LABELS = ("kueue.x-k8s.io/pod-group-name", "sluice.dev/pod-group-name")
_TOTALS = ("kueue.x-k8s.io/pod-group-total-count", "sluice.dev/pod-group-total-count")
_OTHERS = (
    "sluice.dev/retriable-in-group",
    "kueue.x-k8s.io/retriable-in-group",
    "sluice.dev/pod-group-fast-admission",
    "kueue.x-k8s.io/pod-group-fast-admission",
    "sluice.dev/pod-group-role",
    "sluice.dev/start-with-owner",
    "sluice.dev/hold",
    "sluice.dev/submitted-by",
    "sluice.dev/submitter-groups",
)


def _one(*options: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(options)


def _move(do: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"do": st.just(do), "user": _one(*USERS), **arguments})


_SHAPE: dict[str, st.SearchStrategy[Any]] = {
    "queue": _one(*_QUEUES),
    "seconds": _one(1, 5, 20, 10_000, 10_000),
    "stop": _one(None, None, "5", "20", "grace", "never"),
    "cpu": _one("1", "1", "1", "500m", "2"),
}
_LABEL_VALUES = _one("ga", "gb", "", None, "no name!", "x" * 63)
_COUNTS = _one("1", "2", "3", "4", "0", "-1", "", "99999", "100000", "\u0663", "3.0", None)


def _group_notes() -> list[st.SearchStrategy[Any]]:
    return [
        *(oddities.change("metadata", "labels", label, value=_LABEL_VALUES) for label in _GROUP_LABELS),
        *(oddities.change("metadata", "annotations", key, value=_COUNTS) for key in _TOTALS),
        *(oddities.change("metadata", "annotations", key, value=_one("true", "false", "", "x")) for key in _OTHERS),
    ]


def _of_a_pod() -> st.SearchStrategy[Any]:
    """Strategy for a field of a new pod."""
    return st.one_of(oddities.of_a_new_pod(), *_group_notes())


def _of_a_changed_pod() -> st.SearchStrategy[Any]:
    """Strategy for a change of an existing pod."""
    labels = [
        *(
            oddities.change("metadata", "labels", label, value=_one("main", "side", "nowhere", "", None))
            for label in oddities.QUEUE_LABELS
        ),
        oddities.change("metadata", "labels", "sluice.dev/managed", value=_one(None, "", "false")),
        oddities.change("metadata", "labels", value=st.none()),
        oddities.change("metadata", "annotations", value=st.none()),
        oddities.change("metadata", "ownerReferences", value=oddities.owner()),
    ]
    return st.sampled_from([st.one_of(labels), st.one_of(_group_notes()), oddities.note()]).flatmap(lambda it: it)


_POD = _move("pod", **_SHAPE, odd=st.lists(_of_a_pod(), max_size=2) | st.just([]), settle=st.booleans())
_MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "name": _one(*GROUPS),
    **_SHAPE,
    "total": _one(2, 3, 3, 4, 4),
    "missing": _one(0, 0, 0, 0, 1, -1),
    "other_cpu": _one(None, None, None, "2", "500m"),
    "fast": _one(False, False, True),
    "retriable": _one(True, True, False),
    "odd": st.lists(_of_a_pod(), max_size=1) | st.just([]),
    "settle": _one(True, True, False),
}
_GROUP = _move("group", **_MEMBERS)
PLACE_GROUP = _move(
    "group",
    **_MEMBERS
    | {"queue": _one(FLOOR, FLOOR, BY_RACK), "missing": st.just(0), "other_cpu": st.none(), "odd": st.just([])},
    placed=PLACED_GROUP,
)
"""Creates a group whose pods are placed by topology."""
_CONTROLLER = _move(
    "controller",
    kind=_one(*CONTROLLERS),
    name=_one(*GROUPS),
    **{**_SHAPE, "seconds": _one(10_000)},
    replicas=_one(1, 2, 3, 4),
    grouped=_one(True, True, False),
    miscounted=_one(0, 0, 0, 1, -1),
    parallel=st.booleans(),
    settle=_one(True, True, False),
)
_PICK = st.integers(0, 11)

WITH_PODS = [
    *[_POD] * 6,
    *[_GROUP] * 8,
    *[_CONTROLLER] * 3,
    *[_move("more", name=_one(*GROUPS), count=_one(1, 1, 2), cpu=_one(None, None, "2"))] * 3,
    *[_move("patch_pod", pick=_PICK, changes=st.lists(_of_a_changed_pod(), min_size=1, max_size=2))] * 5,
    *[_move("ungate", pick=_PICK, beside=_one("", "", "labels", "queue", "role"))] * 3,
    _move("ungate_all", name=_one(*GROUPS)),
    *[_move("delete_pod", pick=_PICK, force=_one(False, False, True))] * 3,
    *[_move("delete_part", name=_one(*GROUPS), share=_one(0.3, 0.5, 1.0), force=_one(False, False, True))] * 2,
    *[_move("scale", kind=_one(*CONTROLLERS), name=_one(*GROUPS), replicas=st.integers(0, 6))] * 3,
    _move("roll", kind=_one(*CONTROLLERS), name=_one(*GROUPS), cpu=_one("1", "2")),
    _move(
        "delete_controller",
        kind=_one(*CONTROLLERS),
        name=_one(*GROUPS),
        propagation=_one("Background", "Background", "Foreground", "Orphan"),
    ),
]
"""Moves, repeated by their relative frequency."""
