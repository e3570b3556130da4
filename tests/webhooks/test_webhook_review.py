"""Responses of the webhook: it gates, records the submitter, reverts changes reserved for Sluice, refuses faults."""

from __future__ import annotations

import base64
import copy
import json

import jsonpatch
import pytest
from review_examples import (
    REVIEWER,
    RUNNING,
    SLUICE,
    WAITING,
    judge,
    make_job,
    make_review,
    make_reviewer,
    mutate,
    submitter,
)

from admission.kinds import all_kinds
from webhooks.errors import MalformedReview
from webhooks.review import Reviewer

# Creating ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suspend", [{}, {"suspend": False}, {"suspend": True}, {"suspend": None}])
@pytest.mark.parametrize("label", ["sluice.dev/queue-name", "kueue.x-k8s.io/queue-name"])
def test_queued_job_is_gated_and_its_submitter_recorded(label, suspend):
    stored, warnings = mutate(make_job(labels={label: "main"}, **suspend))
    assert stored["spec"]["suspend"] is True
    assert submitter(stored) == "alice"
    assert warnings == []


def test_a_job_without_queue_is_left_alone():
    job = make_job(queue="", annotations={"sluice.dev/submitted-by": "anyone"})
    assert mutate(job) == (job, [])


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("sluice.dev/queue-nam", "sluice.dev/queue-name"),
        ("sluice.dev/queue_name", "sluice.dev/queue-name"),
        ("sluice.dev/Queue", "sluice.dev/queue-name"),
        ("kueue.x-k8s.io/queue_name", "kueue.x-k8s.io/queue-name"),
        ("x.example/queue-name", ""),
        ("sluice.dev/other", ""),
    ],
)
def test_misspelled_queue_label_causes_a_warning_only_at_creation(key, meant):
    job = make_job(labels={key: "main"})
    stored, warnings = mutate(job)
    assert stored == job
    says = f"metadata.labels[{key}]: not a queue label, so the Job is not queued; use {meant}"
    assert warnings == ([says] if meant else [])
    assert mutate(job | {"spec": {**job["spec"], "suspend": True}}, job)[1] == []
    assert mutate(make_job(labels={key: "main", "sluice.dev/queue-name": "main"}))[1] == []


def test_a_job_of_another_controller_is_left_alone():
    job = make_job(managedBy="example.com/another")
    assert mutate(job) == (job, [])


def test_running_job_handed_over_by_another_controller_is_suspended():
    old = make_job(managedBy="example.com/another", suspend=False)
    stored, _ = mutate(make_job(suspend=False), old)
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"


def test_forged_submitter_is_replaced_with_a_warning():
    stored, warnings = mutate(make_job(annotations={"sluice.dev/submitted-by": "boss", "other": "x"}))
    assert stored["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice", "other": "x"}
    assert len(warnings) == 1
    assert "sluice.dev/submitted-by" in warnings[0]


def test_groups_of_the_submitter_are_recorded_without_those_of_kubernetes():
    groups = ["system:authenticated", "staff", "CN=ML,OU=Research", "two\nlines", "staff"]
    asked = make_job(annotations={"sluice.dev/submitter-groups": "admins"})
    stored, warnings = mutate(asked, userInfo={"username": "alice", "groups": groups})
    assert stored["metadata"]["annotations"]["sluice.dev/submitter-groups"] == "CN=ML,OU=Research\nstaff"
    assert len(warnings) == 1
    changed = copy.deepcopy(stored)
    changed["metadata"]["annotations"]["sluice.dev/submitter-groups"] = "admins"
    kept, warnings = mutate(changed, stored, userInfo={"username": "alice", "groups": ["admins"]})
    assert kept["metadata"]["annotations"] == stored["metadata"]["annotations"]
    assert len(warnings) == 1


def test_groups_that_a_user_without_groups_writes_are_removed():
    stored, _ = mutate(make_job(annotations={"sluice.dev/submitter-groups": "admins"}))
    assert stored["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice"}


def test_a_thousand_groups_are_recorded_as_far_as_there_is_place():
    groups = [f"group-{number:04}-{'x' * 20}" for number in range(1000)]
    stored, _ = mutate(make_job(), userInfo={"username": "alice", "groups": groups})
    recorded = stored["metadata"]["annotations"]["sluice.dev/submitter-groups"]
    assert recorded.split("\n") == groups[: len(recorded.split("\n"))]
    assert 16_000 < len(recorded) < 16_384


def test_job_created_by_the_user_of_sluice_is_gated():
    stored, _ = mutate(make_job(), user=SLUICE)
    assert stored["spec"]["suspend"] is True


def test_a_dry_run_gets_the_same_answer():
    review, dry = make_review(make_job()), make_review(make_job(), dryRun=True)
    assert REVIEWER.review(review) == REVIEWER.review(dry)


# Updating ---------------------------------------------------------------------------------------------------------


def test_user_cannot_start_a_waiting_job():
    stored, warnings = mutate(RUNNING, WAITING)
    assert stored == WAITING
    assert len(warnings) == 1
    assert "only Sluice starts" in warnings[0]


def test_sluice_can_start_a_waiting_job():
    assert mutate(RUNNING, WAITING, user=SLUICE) == (RUNNING, [])


def test_user_can_suspend_a_running_job():
    assert mutate(WAITING, RUNNING) == (WAITING, [])


def test_a_waiting_job_may_be_moved_to_another_queue():
    moved = make_job(queue="other", suspend=True, annotations={"sluice.dev/submitted-by": "alice"})
    assert mutate(moved, WAITING) == (moved, [])


def test_waiting_job_that_leaves_its_queue_stays_suspended():
    stored, warnings = mutate(make_job(queue="", suspend=False), WAITING)
    left = make_job(queue="", suspend=True)
    assert stored == left
    assert len(warnings) == 1
    assert "unsuspend it in another request" in warnings[0]
    assert mutate(left, WAITING) == (left, [])
    free = make_job(queue="", suspend=False)
    assert mutate(free, left) == (free, [])


@pytest.mark.parametrize("old", [None, WAITING, make_job(queue="", suspend=True)])
@pytest.mark.parametrize("suspend", [True, False])
def test_an_empty_queue_name_is_refused(old, suspend):
    response = judge(make_job(labels={"sluice.dev/queue-name": ""}, suspend=suspend), old)
    assert response["allowed"] is False
    message = "metadata.labels[sluice.dev/queue-name]: is empty: name what it is for, or remove the label"
    assert response["status"]["message"] == message


def test_existing_empty_queue_name_does_not_prevent_updates():
    old = make_job(labels={"sluice.dev/queue-name": ""}, suspend=True)
    assert judge(make_job(labels={"sluice.dev/queue-name": "", "x": "y"}, suspend=True), old)["allowed"] is True
    assert mutate(make_job(labels={"sluice.dev/queue-name": ""}, suspend=False), RUNNING)[0]["metadata"]["labels"] == {
        "sluice.dev/queue-name": "main"
    }


def test_job_with_an_owner_is_gated_like_any_other():
    job = make_job(suspend=False)
    job["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "uid": "u", "controller": True}]
    assert mutate(job)[0]["spec"]["suspend"] is True
    owned = copy.deepcopy(RUNNING)
    owned["metadata"]["ownerReferences"] = job["metadata"]["ownerReferences"]
    assert mutate(owned, WAITING)[0]["spec"]["suspend"] is True


@pytest.mark.parametrize("refuses_claims", [False, True])
def test_devices_without_quota_are_warned_of_at_creation(refuses_claims):
    reviewer = make_reviewer(refuses_claims=refuses_claims)
    job = make_job(suspend=True)
    job["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    text = "its pods have resourceClaims, and no DeviceClass has a quota: the Job waits"
    response = reviewer.review(make_review(job))["response"]
    assert (response["allowed"], response.get("warnings", [])) == (True, [text] * refuses_claims)
    assert "warnings" not in reviewer.review(make_review(make_job(suspend=True)))["response"]


JOBSET_OWNER = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "name": "set",
    "uid": "u",
    "controller": True,
}


def review_child(new, old=None, user="system:serviceaccount:jobset-system:jobset-controller-manager"):
    """Return the Job of a JobSet as stored, with JobSets queued as well, and the warnings."""
    for obj in (new, old):
        if obj is not None:
            obj["metadata"]["ownerReferences"] = [JOBSET_OWNER]
    reviewer = Reviewer(all_kinds(frameworks=("batch/job", "jobset.x-k8s.io/jobset")), own_usernames=[SLUICE])
    response = reviewer.review(make_review(new, old, user=user))["response"]
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return jsonpatch.apply_patch(new, operations), response.get("warnings", [])


def test_child_of_a_queued_owner_is_gated_and_marked_to_start_with_it():
    stored, warnings = review_child(make_job(suspend=False))
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"]["sluice.dev/start-with-owner"] == "true"
    assert stored["metadata"]["annotations"]["sluice.dev/submitted-by"].endswith("jobset-controller-manager")
    assert warnings == []
    waiting = make_job(suspend=True, annotations={"sluice.dev/submitted-by": "jobsets"})
    again, warnings = review_child({**copy.deepcopy(waiting), "spec": {**waiting["spec"], "suspend": False}}, waiting)
    assert (again["spec"]["suspend"], warnings) == (True, [])
    assert again["metadata"]["annotations"]["sluice.dev/start-with-owner"] == "true"


def test_suspended_child_is_not_marked_to_start_with_its_owner():
    stored, _ = review_child(make_job(suspend=True))
    assert "sluice.dev/start-with-owner" not in stored["metadata"]["annotations"]


def running(**spec):
    return make_job(annotations={"sluice.dev/submitted-by": "alice"}, **{"suspend": False, **spec})


@pytest.mark.parametrize(
    ("had", "asked", "gets"),
    [
        ({"parallelism": 2}, {"parallelism": 40}, {"parallelism": 2}),
        (
            {"parallelism": 2, "completions": 2},
            {"parallelism": 9, "completions": 9},
            {"parallelism": 2, "completions": 2},
        ),
        (
            {"parallelism": 2, "completions": 2},
            {"parallelism": 9, "completions": 2},
            {"parallelism": 9, "completions": 2},
        ),
        ({"parallelism": 2, "completions": 1}, {"parallelism": 2}, {"parallelism": 2, "completions": 1}),
        ({"parallelism": 2}, {"parallelism": 1}, {"parallelism": 1}),
        ({"parallelism": 2}, {"parallelism": 0}, {"parallelism": 0}),
        ({"parallelism": 2}, {"parallelism": 4, "suspend": True}, {"parallelism": 4, "suspend": True}),
        ({"parallelism": 0}, {"parallelism": 4}, {"parallelism": 4, "suspend": True}),
        ({"podReplacementPolicy": "Failed"}, {"podReplacementPolicy": "X"}, {"podReplacementPolicy": "Failed"}),
        ({"podReplacementPolicy": "X"}, {"podReplacementPolicy": "Failed"}, {"podReplacementPolicy": "Failed"}),
        (
            {"parallelism": 1, "podReplacementPolicy": "Failed"},
            {"parallelism": 3, "podReplacementPolicy": "X"},
            {"parallelism": 1, "podReplacementPolicy": "Failed"},
        ),
    ],
)
def test_a_running_job_gets_no_more_pods_than_it_has(had, asked, gets):
    stored, warnings = mutate(running(**asked), running(**had))
    assert stored == running(**gets)
    assert len(warnings) == (stored != running(**asked))
    assert all(warning.isascii() and len(warning) <= 120 for warning in warnings)


def test_sluice_may_give_a_running_job_any_number_of_pods():
    assert mutate(running(parallelism=9), running(parallelism=2), user=SLUICE) == (running(parallelism=9), [])


def test_unqueued_running_job_may_get_more_pods():
    old, new = (make_job(queue="", suspend=False, parallelism=count) for count in (2, 9))
    assert mutate(new, old) == (new, [])


def test_job_that_is_being_deleted_is_left_alone():
    new = make_job(queue="", suspend=False)
    new["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    for old in (WAITING, RUNNING):
        assert mutate(new, old) == (new, [])


@pytest.mark.parametrize(
    "labels", [{"sluice.dev/queue-name": "other"}, {"kueue.x-k8s.io/queue-name": "main"}, {"x": "y"}, {}, None]
)
def test_a_running_job_keeps_its_queue(labels):
    new = copy.deepcopy(RUNNING)
    if labels is None:
        del new["metadata"]["labels"]
    else:
        new["metadata"]["labels"] = labels
    stored, warnings = mutate(new, RUNNING)
    rest = {key: value for key, value in (labels or {}).items() if "queue-name" not in key}
    assert stored["metadata"]["labels"] == {"sluice.dev/queue-name": "main", **rest}
    assert len(warnings) == 1
    assert "cannot change" in warnings[0]


def test_suspending_and_moving_in_one_request_only_suspends():
    new = make_job(queue="other", suspend=True, annotations={"sluice.dev/submitted-by": "alice"})
    stored, warnings = mutate(new, RUNNING)
    assert stored == WAITING
    assert warnings


def test_unqueued_running_job_cannot_join_a_queue():
    old = make_job(queue="", suspend=False)
    stored, warnings = mutate(make_job(suspend=False), old)
    assert stored["metadata"].get("labels", {}) == {}
    assert warnings


def test_submitter_of_a_suspended_job_is_the_user_who_adds_the_queue_label():
    old = make_job(queue="", suspend=True, annotations={"sluice.dev/submitted-by": "boss"})
    new = make_job(suspend=False, annotations={"sluice.dev/submitted-by": "boss"})
    stored, _ = mutate(new, old, user="bob")
    assert stored["spec"]["suspend"] is True
    assert submitter(stored) == "bob"


@pytest.mark.parametrize("old", [WAITING, RUNNING])
@pytest.mark.parametrize("given", ["boss", None])
def test_update_by_another_user_does_not_change_the_submitter(old, given):
    new = copy.deepcopy(old)
    if given is None:
        del new["metadata"]["annotations"]
    else:
        new["metadata"]["annotations"]["sluice.dev/submitted-by"] = given
    stored, warnings = mutate(new, old, user="bob")
    assert submitter(stored) == "alice"
    assert len(warnings) == (given is not None)


def test_submitter_annotation_cannot_be_added_by_an_update():
    old = make_job(suspend=True)
    stored, warnings = mutate(make_job(suspend=True, annotations={"sluice.dev/submitted-by": "boss"}), old)
    assert submitter(stored) is None
    assert warnings


def test_warnings_are_short_ascii():
    _, one = mutate(RUNNING, WAITING)
    _, two = mutate(make_job(queue="other", suspend=False, annotations={"sluice.dev/submitted-by": "x"}), RUNNING)
    for warning in (*one, *two):
        assert warning.isascii()
        assert len(warning) <= 120  # the limit that Kubernetes recommends


# Other requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_fields",
    [
        {"resource": {"group": "", "version": "v1", "resource": "pods"}},
        {"subResource": "scale"},
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT"},
    ],
)
def test_request_for_another_resource_or_operation_is_allowed_unchanged(request_fields):
    answer = REVIEWER.review(make_review(make_job(), **request_fields))
    assert answer["response"] == {"uid": "r-1", "allowed": True}


@pytest.mark.parametrize(
    "review",
    [
        None,
        [],
        "text",
        {},
        {"request": None},
        {"request": {}},
        make_review(None),
        make_review([]),
        make_review({"metadata": None, "spec": {}}),
        make_review({"metadata": {"labels": ["sluice.dev/queue-name"]}, "spec": {}}),
        make_review({"metadata": {"labels": {"sluice.dev/queue-name": "a"}}}),
        make_review(make_job(), userInfo=None),
        make_review(make_job(), resource="jobs"),
    ],
)
def test_malformed_review_is_an_error(review):
    with pytest.raises(MalformedReview, match="not an AdmissionReview"):
        REVIEWER.review(review)
