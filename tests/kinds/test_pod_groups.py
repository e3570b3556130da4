"""What pods say of the groups that they are in."""

from __future__ import annotations

from admission.kinds.grouping import role_of


def test_no_two_of_very_many_sizes_have_one_role():
    """Whoever finds two runs the larger one on the quota of the smaller."""
    assert len({role_of(_pod(f"{number}m")) for number in range(20_000)}) == 20_000


def _pod(cpu):
    return {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
