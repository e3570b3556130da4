"""Moves about Jobs that are placed by topology, and about the nodes of the floor, as plain JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fuzz.documents import BY_RACK, FLOOR
from tests.fuzz.topology_documents import (
    BLOCK,
    HOST,
    LEVELS,
    PREFERRED,
    RACK,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    UNCONSTRAINED,
)


def _one(*options: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(options)


def _move(do: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"do": st.just(do), **arguments})


_SLICES = st.fixed_dictionaries({SLICE_LEVEL: _one(RACK, HOST), SLICE_SIZE: _one("1", "2", "2", "4")})
_LEVEL = (
    st.fixed_dictionaries({REQUIRED: _one(RACK, RACK, *LEVELS)}),
    st.fixed_dictionaries({REQUIRED: _one(BLOCK, RACK)}),
    st.fixed_dictionaries({PREFERRED: _one(*LEVELS)}),
    st.just({UNCONSTRAINED: "true"}),
)
PLACED_GROUP = st.one_of(*_LEVEL)
"""Annotations of pods of a group that request a placement."""
PLACED = st.one_of(
    *_LEVEL,
    _SLICES,
    st.builds(lambda outer, inner: {**outer, **inner}, st.fixed_dictionaries({REQUIRED: st.just(BLOCK)}), _SLICES),
    st.just({}),
)
"""Annotations of pod templates that request a placement."""
_PICK = st.integers(0, 11)

WITH_NODES = [
    *[_move("node_fails", pick=_PICK)] * 2,
    _move("node_heals"),
    *[_move("node_goes", pick=_PICK, pods=_one("go", "go", "stay"))] * 2,
    *[_move("node_comes", pick=_PICK)] * 2,
    _move("node_is_labelled", pick=_PICK, label=_one(BLOCK, RACK, "sluice.test/pool"), value=_one("b0r0", "b1", None)),
    _move("node_is_cordoned", pick=_PICK, cordoned=_one(True, True, False)),
    _move("other_pod", pick=_PICK),
    _move("restore"),
]
"""Moves of those who run the nodes."""


def placed(arguments: dict[str, st.SearchStrategy[Any]]) -> dict[str, st.SearchStrategy[Any]]:
    """Return the arguments of a move that creates a Job, with a request of a placement."""
    return {**arguments, "queue": _one(FLOOR, FLOOR, FLOOR, BY_RACK), "placed": PLACED}
