"""Room for a pod in the pod sets of its owner, compared with a search of all assignments."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from admission.kinds.pod_matching import has_room

NAMES = ("a", "b", "c")
fitting = st.frozensets(st.sampled_from(NAMES), min_size=1)


def max_assignable(pods, needed):
    """Return the largest number of pods that can be assigned, by a search of all assignments."""
    return max(sum(min(chosen.count(name), needed[name]) for name in NAMES) for chosen in product(*map(sorted, pods)))


@given(st.lists(fitting, max_size=5), fitting, st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 3))))
def test_pod_has_room_if_one_more_pod_can_be_assigned(others, pod, needed):
    assert has_room(pod, others, needed) == (max_assignable([*others, pod], needed) > max_assignable(others, needed))
