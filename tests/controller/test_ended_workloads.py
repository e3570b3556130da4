"""Memory of finished workloads: the ones that finished last are remembered."""

from __future__ import annotations

from admission.controller.state.leader_state import MAX_REMEMBERED, EndedWorkloads


def test_workload_that_ran_again_is_remembered_from_its_last_end():
    ended = EndedWorkloads(["again", *map(str, range(MAX_REMEMBERED - 1))])
    ended.add("again", "7")
    ended.add("other", "8")
    assert ended.has("again", "7")
    assert not ended.has("0", "1")
