"""What the storm over kinds would notice: that something is started again otherwise than written, or is changed."""

from __future__ import annotations

import copy

import pytest

from admission.cluster.client import Client
from tests.chaos.kinds import GivenBack, documents, plan_of_kinds

PLAN = plan_of_kinds(1, speed=60)
RAY_JOB, STATEFUL_SET = (
    next(documents(PLAN, job, priority_class=None)[0] for job in PLAN.jobs if job.kind == kind)
    for kind in ("RayJob", "StatefulSet")
)


@pytest.fixture
def given_back():
    return GivenBack(Client.from_kubeconfig("/nonexistent"), PLAN)


def version(obj, *, suspend=None, **changed):
    found = copy.deepcopy(obj)
    found["spec"] |= changed | ({} if suspend is None else {"suspend": suspend})
    return found


@pytest.mark.parametrize("restored", [True, False])
def test_what_is_started_again_was_as_written_before(given_back, restored):
    given_back.see(version(RAY_JOB, suspend=True))
    for _ in range(2):
        given_back.see(version(RAY_JOB, suspend=False, entrypoint="changed"))
        given_back.see(version(RAY_JOB, suspend=True, entrypoint="changed"))
        if restored:
            given_back.see(version(RAY_JOB, suspend=True))
    assert bool(given_back.altered) is not restored


def test_what_has_no_suspend_field_stays_as_it_is(given_back):
    given_back.see(STATEFUL_SET)
    given_back.see(version(STATEFUL_SET))
    assert not given_back.altered
    given_back.see(version(STATEFUL_SET, replicas=3))
    assert given_back.altered == {"StatefulSet statefulsets/statefulsets-0000"}
