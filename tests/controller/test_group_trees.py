"""Trees of PodGroups and CompositePodGroups, as values: what starts together, and what waits for it."""

from __future__ import annotations

import pytest

from admission.controller.workloads.group_trees import LEVELS, GroupState, GroupTrees, Place
from admission.model import child_sentences

LEAF, WHOLE = "PodGroup", "CompositePodGroup"


def trees(*groups, served=True):
    """Of (kind, name, parent, number); the number 0: it is no gang. Each is older than the next."""
    found = GroupTrees(lambda: served)
    for age, (kind, name, parent, needed) in enumerate(groups):
        found.take(("ns", kind, name), Place(parent, needed, f"{age:03}"))
    return found


def state(held=(), started=()):
    """Of workloads: those that hold quota for the pods of which PodGroups, and those that are over."""

    def of(name):
        leaves = dict(held).get(name)
        return GroupState(
            None if leaves is None else frozenset(leaves), (), lambda: leaves is not None or name in started
        )

    return of


NESTED = (
    (WHOLE, "rc", "", 2),
    (LEAF, "head", "rc", 1),
    (WHOLE, "part", "rc", 1),
    (LEAF, "a", "part", 3),
    (LEAF, "b", "part", 4),
    (WHOLE, "late", "rc", 2),
    (LEAF, "c", "late", 5),
    (LEAF, "d", "late", 0),
)
AFTER = child_sentences.starts_after("rc", 2)


def test_a_whole_needs_the_oldest_groups_at_each_level():
    assert trees(*NESTED).gang("ns", "rc") == ({"head": 1, "a": 3}, "")
    assert trees(*NESTED).gang("ns", "late") == ({"c": 5, "d": 1}, "")
    assert trees(*NESTED[:2]).gang("ns", "rc") == ({"head": 1}, child_sentences.groups_incomplete("rc", 1, 2))


@pytest.mark.parametrize(
    ("leaf", "name", "waits"), [("head", "rc", ""), ("a", "rc", ""), ("b", "b", AFTER), ("c", "late", AFTER)]
)
def test_what_is_beside_the_oldest_waits_until_they_have_started(leaf, name, waits):
    assert trees(*NESTED).assign("ns", leaf, state()) == (name, waits)
    assert trees(*NESTED).assign("ns", leaf, state(held={"rc": ("head", "a")})) == (name, "")
    assert trees(*NESTED).assign("ns", leaf, state(started=("rc",))) == (name, "")


def test_what_a_workload_holds_quota_for_decides_once_it_does():
    held = state(held={"rc": ("head", "b")})
    assert [trees(*NESTED).assign("ns", leaf, held).group for leaf in ("head", "a", "b")] == ["rc", "a", "rc"]


def test_a_part_that_holds_quota_by_itself_stays_so():
    held = state(held={"a": ("a",), "late": ("c", "d")})
    assert [trees(*NESTED).assign("ns", leaf, held).group for leaf in ("head", "a", "c")] == ["rc", "a", "late"]


def test_what_is_older_than_what_it_is_part_of_comes_last():
    found = trees((LEAF, "squatter", "rc", 9), *NESTED[:2], (LEAF, "gpu", "rc", 4))
    assert found.gang("ns", "rc").pods == {"head": 1, "gpu": 4}
    found = trees((LEAF, "head", "rc", 1), (LEAF, "gpu", "rc", 4), (LEAF, "late", "rc", 1), (WHOLE, "rc", "", 2))
    assert found.gang("ns", "rc").pods == {"head": 1, "gpu": 4}


def test_without_gangs_above_each_group_is_by_itself():
    basic = ((WHOLE, "set", "", 0), (WHOLE, "one", "set", 2), (LEAF, "a", "one", 1), (LEAF, "b", "one", 0),
             (LEAF, "c", "set", 2), (LEAF, "d", "set", 0))  # fmt: skip
    assert [trees(*basic).assign("ns", leaf, state()).group for leaf in "abcd"] == ["one", "one", "c", ""]
    assert [trees(*basic, served=False).assign("ns", leaf, state()).group for leaf in "abcd"] == ["a", "", "c", ""]


@pytest.mark.parametrize("levels", range(2, LEVELS + 2))
def test_a_tree_has_four_levels(levels):
    chain = [(WHOLE, f"c-{level}", f"c-{level - 1}" if level else "", 1) for level in range(levels - 1)]
    found = trees(*chain, (LEAF, "leaf", f"c-{levels - 2}", 1))
    assigned = found.assign("ns", "leaf", state())
    if levels > LEVELS:
        assert assigned == ("leaf", child_sentences.group_too_deep(LEAF, "leaf", LEVELS))
        assert found.gang("ns", "c-0") == ({}, child_sentences.group_too_deep(WHOLE, f"c-{LEVELS - 1}", LEVELS))
    else:
        assert assigned == ("c-0", "")
        assert found.gang("ns", "c-0") == ({"leaf": 1}, "")


def test_circles_end():
    found = trees((WHOLE, "a", "b", 1), (WHOLE, "b", "a", 1), (LEAF, "leaf", "a", 1), (WHOLE, "self", "self", 1))
    assert found.assign("ns", "leaf", state()) == ("leaf", child_sentences.group_too_deep(LEAF, "leaf", LEVELS))
    for name in ("a", "b", "self"):
        assert found.gang("ns", name).wait_message


def test_what_is_missing_is_named():
    found = trees((WHOLE, "part", "rc", 1), (LEAF, "leaf", "part", 1))
    assert found.assign("ns", "leaf", state()) == ("rc", child_sentences.group_without_parent("rc"))
    assert found.assign("ns", "leaf", state(held={"rc": ("other",)})).group == "leaf"
    assert found.assign("ns", "strange", state()).group == "strange"
    assert found.assign("other", "leaf", state()).group == "leaf"  # in another namespace nothing is known of it


def test_each_change_tells_which_trees_it_is_of():
    found = trees((WHOLE, "rc", "", 2), (WHOLE, "part", "rc", 1), (WHOLE, "other", "", 1))
    assert found.take(("ns", LEAF, "leaf"), Place("part", 1, "3")) == {"rc"}
    assert found.take(("ns", LEAF, "leaf"), Place("part", 1, "3")) == set()
    assert found.gang("ns", "rc").pods == {"leaf": 1}
    assert found.take(("ns", LEAF, "leaf"), Place("other", 1, "3")) == {"rc", "other"}
    assert found.gang("ns", "rc").pods == {}
    assert found.take(("ns", LEAF, "leaf"), None) == {"other"}
    assert found.gang("ns", "other").pods == {}
