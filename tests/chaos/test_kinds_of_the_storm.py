"""The chaos test with several kinds: which objects it observes, and that it detects changed specs."""

from __future__ import annotations

import copy

import pytest

from admission.cli.demo.account import SceneAccount
from admission.cli.demo.gangs import WORKLOAD
from admission.cluster.client import Client
from tests.chaos.kinds import RestorationCheck, documents, plan_of_kinds

PLAN = plan_of_kinds(1, speed=60)
RAY_JOB, STATEFUL_SET = (
    next(documents(PLAN, job, priority_class=None)[0] for job in PLAN.jobs if job.kind == kind)
    for kind in ("RayJob", "StatefulSet")
)


@pytest.fixture
def restoration():
    return RestorationCheck(Client.from_kubeconfig("/nonexistent"), PLAN)


def test_job_that_submits_a_ray_job_is_not_taken_for_it():
    account, key = SceneAccount(PLAN), f"rayjobs/{RAY_JOB['metadata']['name']}"
    labels, main = {WORKLOAD: RAY_JOB["metadata"]["name"]}, {"containers": [{}]}
    for number in range(10):
        metadata = {"namespace": "rayjobs", "labels": labels, "uid": str(number)}
        account.pod(str(number), {"metadata": metadata, "spec": main, "status": {"phase": "Succeeded"}})
    spec = {"parallelism": 1, "completions": 1, "template": {"spec": main}}
    complete = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    account.job(key, {"metadata": {"namespace": "rayjobs"}, "spec": spec, "status": complete})
    assert account.jobs[key].succeeded == account.jobs[key].wanted == 10


def version(obj, *, suspend=None, **changed):
    found = copy.deepcopy(obj)
    found["spec"] |= changed | ({} if suspend is None else {"suspend": suspend})
    return found


@pytest.mark.parametrize("restored", [True, False])
def test_restart_without_restoration_of_the_written_spec_is_detected(restoration, restored):
    restoration.see(version(RAY_JOB, suspend=True))
    for _ in range(2):
        restoration.see(version(RAY_JOB, suspend=False, entrypoint="changed"))
        restoration.see(version(RAY_JOB, suspend=True, entrypoint="changed"))
        if restored:
            restoration.see(version(RAY_JOB, suspend=True))
    assert bool(restoration.altered) is not restored


def test_change_of_an_object_without_suspend_field_is_detected(restoration):
    restoration.see(STATEFUL_SET)
    restoration.see(version(STATEFUL_SET))
    assert not restoration.altered
    restoration.see(version(STATEFUL_SET, replicas=3))
    assert restoration.altered == {"StatefulSet statefulsets/statefulsets-0000"}
