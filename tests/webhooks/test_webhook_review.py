"""What the webhooks answer: they gate, note who asked, undo what only Sluice may do, and refuse nonsense."""

from __future__ import annotations

import base64
import copy
import json

import jsonpatch
import pytest

from admission.kinds import all_kinds
from webhooks.errors import MalformedReview
from webhooks.review import Reviewer

SLUICE = "system:serviceaccount:sluice:sluice"
QUEUES = {("team-a", "main"), ("team-a", "other")}


def make_reviewer(**options):
    return Reviewer(
        all_kinds(), own_usernames=[SLUICE], queue_exists=lambda namespace, name: (namespace, name) in QUEUES, **options
    )


REVIEWER = make_reviewer()


def make_job(*, queue="main", labels=None, annotations=None, **spec):
    metadata = {"name": "train"}
    if labels is not None or queue:
        metadata["labels"] = labels if labels is not None else {"sluice.dev/queue-name": queue}
    if annotations is not None:
        metadata["annotations"] = annotations
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    return {"metadata": metadata, "spec": {"parallelism": 2, "template": template, **spec}}


def make_review(new, old=None, *, user="alice", **request):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r-1",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "operation": "CREATE" if old is None else "UPDATE",
            "namespace": "team-a",
            "userInfo": {"username": user},
            "object": new,
            "oldObject": old,
            **request,
        },
    }


def mutate(new, old=None, **request):
    """The object as it is stored in the end, and the warnings."""
    review = make_review(new, old, **request)
    sent = copy.deepcopy(review)
    answer = REVIEWER.review(review)
    assert review == sent
    response = answer["response"]
    assert (answer["kind"], response["uid"], response["allowed"]) == ("AdmissionReview", "r-1", True)
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert ("patchType" in response) == bool(operations)
    stored = jsonpatch.apply_patch(new, operations)
    if old is None or request.get("user") != SLUICE:
        # Reinvocation: what has been mutated needs no mutation.
        assert "patch" not in REVIEWER.review(make_review(stored, old, **request))["response"]
    return stored, response.get("warnings", [])


def judge(new, old=None, **request):
    """The answer but for the patch."""
    response = REVIEWER.review(make_review(new, old, **request))["response"]
    return {key: value for key, value in response.items() if not key.startswith("patch")}


def submitter(job):
    return job["metadata"].get("annotations", {}).get("sluice.dev/submitted-by")


WAITING = make_job(suspend=True, annotations={"sluice.dev/submitted-by": "alice"})
RUNNING = make_job(suspend=False, annotations={"sluice.dev/submitted-by": "alice"})


# Creating ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suspend", [{}, {"suspend": False}, {"suspend": True}, {"suspend": None}])
@pytest.mark.parametrize("label", ["sluice.dev/queue-name", "kueue.x-k8s.io/queue-name"])
def test_a_queued_job_is_gated_and_its_submitter_noted(label, suspend):
    stored, warnings = mutate(make_job(labels={label: "main"}, **suspend))
    assert stored["spec"]["suspend"] is True
    assert submitter(stored) == "alice"
    assert warnings == []


def test_a_job_without_queue_is_left_alone():
    job = make_job(queue="", annotations={"sluice.dev/submitted-by": "anyone"})
    assert mutate(job) == (job, [])


def test_a_job_of_another_controller_is_left_alone():
    job = make_job(managedBy="kueue.x-k8s.io/multikueue")
    assert mutate(job) == (job, [])


def test_nobody_submits_in_the_name_of_another():
    stored, warnings = mutate(make_job(annotations={"sluice.dev/submitted-by": "boss", "other": "x"}))
    assert stored["metadata"]["annotations"] == {"sluice.dev/submitted-by": "alice", "other": "x"}
    assert len(warnings) == 1
    assert "sluice.dev/submitted-by" in warnings[0]


def test_whoever_shares_sluices_user_is_gated_too():
    stored, _ = mutate(make_job(), user=SLUICE)
    assert stored["spec"]["suspend"] is True


def test_a_dry_run_gets_the_same_answer():
    review, dry = make_review(make_job()), make_review(make_job(), dryRun=True)
    assert REVIEWER.review(review) == REVIEWER.review(dry)


# Updating ---------------------------------------------------------------------------------------------------------


def test_a_user_cannot_start_what_waits():
    stored, warnings = mutate(RUNNING, WAITING)
    assert stored == WAITING
    assert len(warnings) == 1
    assert "only Sluice starts" in warnings[0]


def test_sluice_starts_what_waits():
    assert mutate(RUNNING, WAITING, user=SLUICE) == (RUNNING, [])


def test_a_user_may_stop_what_runs():
    assert mutate(WAITING, RUNNING) == (WAITING, [])


def test_a_waiting_job_may_be_moved_to_another_queue():
    moved = make_job(queue="other", suspend=True, annotations={"sluice.dev/submitted-by": "alice"})
    assert mutate(moved, WAITING) == (moved, [])


def test_a_waiting_job_leaves_its_queue_suspended():
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


def test_an_empty_queue_name_that_is_there_already_locks_nothing():
    old = make_job(labels={"sluice.dev/queue-name": ""}, suspend=True)
    assert judge(make_job(labels={"sluice.dev/queue-name": "", "x": "y"}, suspend=True), old)["allowed"] is True
    assert mutate(make_job(labels={"sluice.dev/queue-name": ""}, suspend=False), RUNNING)[0]["metadata"]["labels"] == {
        "sluice.dev/queue-name": "main"
    }


def test_an_owner_exempts_from_nothing():
    job = make_job(suspend=False)
    job["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "uid": "u", "controller": True}]
    assert mutate(job)[0]["spec"]["suspend"] is True
    owned = copy.deepcopy(RUNNING)
    owned["metadata"]["ownerReferences"] = job["metadata"]["ownerReferences"]
    assert mutate(owned, WAITING)[0]["spec"]["suspend"] is True


JOBSET_OWNER = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "name": "set",
    "uid": "u",
    "controller": True,
}


def review_child(new, old=None, user="system:serviceaccount:jobset-system:jobset-controller-manager"):
    """A Job of a JobSet as it is stored, where JobSets are queued, too; and the warnings."""
    for obj in (new, old):
        if obj is not None:
            obj["metadata"]["ownerReferences"] = [JOBSET_OWNER]
    reviewer = Reviewer(all_kinds(frameworks=("batch/job", "jobset.x-k8s.io/jobset")), own_usernames=[SLUICE])
    response = reviewer.review(make_review(new, old, user=user))["response"]
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return jsonpatch.apply_patch(new, operations), response.get("warnings", [])


def test_a_child_that_may_be_part_of_its_owner_is_gated_and_marked_to_be_started_with_it():
    stored, warnings = review_child(make_job(suspend=False))
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"]["sluice.dev/start-with-owner"] == "true"
    assert stored["metadata"]["annotations"]["sluice.dev/submitted-by"].endswith("jobset-controller-manager")
    assert warnings == []
    waiting = make_job(suspend=True, annotations={"sluice.dev/submitted-by": "jobsets"})
    again, warnings = review_child({**copy.deepcopy(waiting), "spec": {**waiting["spec"], "suspend": False}}, waiting)
    assert (again["spec"]["suspend"], warnings) == (True, [])
    assert again["metadata"]["annotations"]["sluice.dev/start-with-owner"] == "true"


def test_a_child_that_does_not_ask_to_run_is_not_marked():
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


def test_the_pods_of_a_job_outside_of_all_queues_are_its_own_business():
    old, new = (make_job(queue="", suspend=False, parallelism=count) for count in (2, 9))
    assert mutate(new, old) == (new, [])


def test_what_is_being_deleted_is_left_alone():
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
    assert "stays as it is" in warnings[0]


def test_suspending_and_moving_at_once_only_suspends():
    new = make_job(queue="other", suspend=True, annotations={"sluice.dev/submitted-by": "alice"})
    stored, warnings = mutate(new, RUNNING)
    assert stored == WAITING
    assert warnings


def test_a_job_that_runs_outside_of_all_queues_cannot_be_put_into_one():
    old = make_job(queue="", suspend=False)
    stored, warnings = mutate(make_job(suspend=False), old)
    assert stored["metadata"].get("labels", {}) == {}
    assert warnings


def test_a_suspended_job_that_gets_a_queue_is_submitted_by_who_labelled_it():
    old = make_job(queue="", suspend=True, annotations={"sluice.dev/submitted-by": "boss"})
    new = make_job(suspend=False, annotations={"sluice.dev/submitted-by": "boss"})
    stored, _ = mutate(new, old, user="bob")
    assert stored["spec"]["suspend"] is True
    assert submitter(stored) == "bob"


@pytest.mark.parametrize("old", [WAITING, RUNNING])
@pytest.mark.parametrize("given", ["boss", None])
def test_the_submitter_stays_whoever_updates(old, given):
    new = copy.deepcopy(old)
    if given is None:
        del new["metadata"]["annotations"]
    else:
        new["metadata"]["annotations"]["sluice.dev/submitted-by"] = given
    stored, warnings = mutate(new, old, user="bob")
    assert submitter(stored) == "alice"
    assert len(warnings) == (given is not None)


def test_a_submitter_cannot_be_invented_afterwards():
    old = make_job(suspend=True)
    stored, warnings = mutate(make_job(suspend=True, annotations={"sluice.dev/submitted-by": "boss"}), old)
    assert submitter(stored) is None
    assert warnings


def test_warnings_are_short_ascii():
    _, one = mutate(RUNNING, WAITING)
    _, two = mutate(make_job(queue="other", suspend=False, annotations={"sluice.dev/submitted-by": "x"}), RUNNING)
    for warning in (*one, *two):
        assert warning.isascii()
        assert len(warning) <= 120  # what the API server passes on


# Judging ----------------------------------------------------------------------------------------------------------


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
    assert response["warnings"] == ['there is no LocalQueue "typo" in namespace "team-a" yet: the Job waits for it']
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
def test_what_is_not_ours_is_allowed_untouched(request_fields):
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
def test_malformed_reviews_are_named_so(review):
    with pytest.raises(MalformedReview, match="no AdmissionReview"):
        REVIEWER.review(review)
