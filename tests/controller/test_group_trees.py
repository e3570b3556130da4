"""`GroupTrees`: which PodGroups start together as one workload, and which wait for that."""

from __future__ import annotations

import pytest

from admission.controller.workloads.group_trees import LEVELS, GroupState, GroupTrees, TreePlace
from admission.model import child_sentences

LEAF, WHOLE = "PodGroup", "CompositePodGroup"


def trees(*groups, served=True):
    """Return the trees of groups (kind, name, parent, gang size), the oldest first. Gang size 0: no gang."""
    found = GroupTrees(lambda: served)
    for age, (kind, name, parent, needed) in enumerate(groups):
        found.take(("ns", kind, name), TreePlace(parent, needed, f"{age:03}"))
    return found


def state(held=(), started=()):
    """Return a lookup of GroupState by workload. `held`: PodGroups for whose pods a workload holds quota."""

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


def test_gang_consists_of_the_oldest_groups_at_each_level():
    assert trees(*NESTED).gang("ns", "rc") == ({"head": 1, "a": 3}, "")
    assert trees(*NESTED).gang("ns", "late") == ({"c": 5, "d": 1}, "")
    assert trees(*NESTED[:2]).gang("ns", "rc") == ({"head": 1}, child_sentences.groups_incomplete("rc", 1, 2))


@pytest.mark.parametrize(
    ("leaf", "name", "waits"), [("head", "rc", ""), ("a", "rc", ""), ("b", "b", AFTER), ("c", "late", AFTER)]
)
def test_group_outside_the_gang_waits_until_the_gang_has_started(leaf, name, waits):
    assert trees(*NESTED).assign("ns", leaf, state()) == (name, waits)
    assert trees(*NESTED).assign("ns", leaf, state(held={"rc": ("head", "a")})) == (name, "")
    assert trees(*NESTED).assign("ns", leaf, state(started=("rc",))) == (name, "")


def test_workload_with_quota_keeps_its_pod_groups_instead_of_the_oldest():
    held = state(held={"rc": ("head", "b")})
    assert [trees(*NESTED).assign("ns", leaf, held).group for leaf in ("head", "a", "b")] == ["rc", "a", "rc"]


def test_group_with_quota_of_its_own_stays_a_separate_workload():
    held = state(held={"a": ("a",), "late": ("c", "d")})
    assert [trees(*NESTED).assign("ns", leaf, held).group for leaf in ("head", "a", "c")] == ["rc", "a", "late"]


def test_groups_older_than_their_parent_are_chosen_last():
    found = trees((LEAF, "squatter", "rc", 9), *NESTED[:2], (LEAF, "gpu", "rc", 4))
    assert found.gang("ns", "rc").pods == {"head": 1, "gpu": 4}
    found = trees((LEAF, "head", "rc", 1), (LEAF, "gpu", "rc", 4), (LEAF, "late", "rc", 1), (WHOLE, "rc", "", 2))
    assert found.gang("ns", "rc").pods == {"head": 1, "gpu": 4}


def test_groups_without_a_gang_above_them_are_separate_workloads():
    basic = ((WHOLE, "set", "", 0), (WHOLE, "one", "set", 2), (LEAF, "a", "one", 1), (LEAF, "b", "one", 0),
             (LEAF, "c", "set", 2), (LEAF, "d", "set", 0))  # fmt: skip
    assert [trees(*basic).assign("ns", leaf, state()).group for leaf in "abcd"] == ["one", "one", "c", ""]
    assert [trees(*basic, served=False).assign("ns", leaf, state()).group for leaf in "abcd"] == ["a", "", "c", ""]


@pytest.mark.parametrize("levels", range(2, LEVELS + 2))
def test_tree_has_at_most_four_levels(levels):
    chain = [(WHOLE, f"c-{level}", f"c-{level - 1}" if level else "", 1) for level in range(levels - 1)]
    found = trees(*chain, (LEAF, "leaf", f"c-{levels - 2}", 1))
    assigned = found.assign("ns", "leaf", state())
    if levels > LEVELS:
        assert assigned == ("leaf", child_sentences.group_too_deep(LEAF, "leaf", LEVELS))
        assert found.gang("ns", "c-0") == ({}, child_sentences.group_too_deep(WHOLE, f"c-{LEVELS - 1}", LEVELS))
    else:
        assert assigned == ("c-0", "")
        assert found.gang("ns", "c-0") == ({"leaf": 1}, "")


def test_cyclic_parents_yield_a_wait_message():
    found = trees((WHOLE, "a", "b", 1), (WHOLE, "b", "a", 1), (LEAF, "leaf", "a", 1), (WHOLE, "self", "self", 1))
    assert found.assign("ns", "leaf", state()) == ("leaf", child_sentences.group_too_deep(LEAF, "leaf", LEVELS))
    for name in ("a", "b", "self"):
        assert found.gang("ns", name).wait_message


def test_missing_parent_is_named_in_the_wait_message():
    found = trees((WHOLE, "part", "rc", 1), (LEAF, "leaf", "part", 1))
    assert found.assign("ns", "leaf", state()) == ("rc", child_sentences.group_without_parent("rc"))
    assert found.assign("ns", "leaf", state(held={"rc": ("other",)})).group == "leaf"
    assert found.assign("ns", "strange", state()).group == "strange"
    assert found.assign("other", "leaf", state()).group == "leaf"  # the trees have no group in this namespace


def test_take_returns_the_roots_of_changed_trees():
    found = trees((WHOLE, "rc", "", 2), (WHOLE, "part", "rc", 1), (WHOLE, "other", "", 1))
    assert found.take(("ns", LEAF, "leaf"), TreePlace("part", 1, "3")) == {"rc"}
    assert found.take(("ns", LEAF, "leaf"), TreePlace("part", 1, "3")) == set()
    assert found.gang("ns", "rc").pods == {"leaf": 1}
    assert found.take(("ns", LEAF, "leaf"), TreePlace("other", 1, "3")) == {"rc", "other"}
    assert found.gang("ns", "rc").pods == {}
    assert found.take(("ns", LEAF, "leaf"), None) == {"other"}
    assert found.gang("ns", "other").pods == {}
