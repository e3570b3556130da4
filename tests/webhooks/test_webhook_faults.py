"""Refusals and warnings for faults of Jobs with a queue label."""

from __future__ import annotations

import copy

from review_examples import (
    REVIEWER,
    RUNNING,
    WAITING,
    judge,
    make_job,
    make_review,
    mutate,
)

from admission.kinds import all_kinds
from webhooks.review import Reviewer


def test_sound_jobs_are_accepted():
    assert judge(WAITING) == {"uid": "r-1", "allowed": True}


def test_faults_are_refused_with_their_paths():
    response = judge(make_job(annotations={"sluice.dev/hold": "maybe", "kueue.x-k8s.io/job-min-parallelism": "x"}))
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [
        "metadata.annotations[sluice.dev/hold]",
        "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]",
    ]
    assert 'metadata.annotations[sluice.dev/hold]: must be "true" or "false"' in response["status"]["message"]


def test_a_refusal_carries_no_patch():
    response = REVIEWER.review(make_review(make_job(annotations={"sluice.dev/hold": "maybe"})))["response"]
    assert response.keys() == {"uid", "allowed", "status"}


def test_what_is_refused_is_not_said_to_wait():
    response = judge(make_job(queue="team-b/main"))
    assert (response["allowed"], response.get("warnings")) == (False, None)


def test_what_is_undone_anyway_is_not_refused():
    moved = make_job(queue="-nothing-", suspend=False, annotations={"sluice.dev/submitted-by": "alice"})
    assert mutate(moved, RUNNING)[0] == RUNNING


def test_an_unknown_queue_is_a_warning():
    response = judge(make_job(queue="typo"))
    assert response["allowed"] is True
    label = "metadata.labels[sluice.dev/queue-name]"
    assert response["warnings"] == [f'{label}: no LocalQueue "typo" exists in namespace "team-a"; the Job waits for it']
    assert judge(make_job(queue="typo"), make_job(queue="typo")) == {"uid": "r-1", "allowed": True}
    assert "warnings" in judge(make_job(queue="typo"), WAITING)


def test_without_knowledge_of_queues_nothing_is_said_of_them():
    reviewer = Reviewer(all_kinds(), own_usernames=[])
    response = reviewer.review(make_review(make_job(queue="typo")))["response"]
    assert response["allowed"] is True
    assert "warnings" not in response


def test_an_old_fault_does_not_lock_an_object():
    broken = make_job(annotations={"sluice.dev/hold": "maybe"})
    assert judge(broken, broken)["allowed"] is True
    assert judge(broken, WAITING)["allowed"] is False
    deleting = copy.deepcopy(broken)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert judge(deleting, WAITING)["allowed"] is True


def test_faults_of_jobs_that_are_not_queued_are_nobodys_business():
    assert judge(make_job(queue="", annotations={"sluice.dev/hold": "maybe"}))["allowed"] is True


def test_faults_that_were_there_before_count_when_a_job_joins_a_queue():
    broken = make_job(queue="", annotations={"sluice.dev/hold": "maybe"}, suspend=True)
    joining = make_job(annotations={"sluice.dev/hold": "maybe"}, suspend=True)
    response = judge(joining, broken)
    assert response["allowed"] is False
    assert response["status"]["details"]["causes"][0]["field"] == "metadata.annotations[sluice.dev/hold]"
