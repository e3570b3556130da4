"""Refusals and warnings for faults of Jobs with a queue label."""

from __future__ import annotations

import copy

import pytest
from kind_manifests import document
from review_examples import (
    REVIEWER,
    RUNNING,
    WAITING,
    judge,
    make_job,
    make_review,
    mutate,
)

from admission.kinds import all_kinds, frameworks_known
from webhooks.review import Reviewer


def test_valid_job_is_accepted():
    assert judge(WAITING) == {"uid": "r-1", "allowed": True}


def test_job_with_faults_is_refused_with_field_paths():
    response = judge(make_job(annotations={"sluice.dev/hold": "maybe", "kueue.x-k8s.io/job-min-parallelism": "x"}))
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [
        "metadata.annotations[sluice.dev/hold]",
        "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]",
    ]
    assert 'metadata.annotations[sluice.dev/hold]: must be "true" or "false"' in response["status"]["message"]


def test_minimum_of_another_kind_on_a_job_is_refused_with_the_annotation_to_use():
    response = judge(make_job(annotations={"sluice.dev/min-count": "main=1"}))
    assert response["allowed"] is False
    assert response["status"]["message"] == (
        "metadata.annotations[sluice.dev/min-count]: a Job has sluice.dev/job-min-parallelism instead: "
        "give the minimum number of pods there"
    )
    added = judge(make_job(annotations={"sluice.dev/min-count": "main=1"}, suspend=True), WAITING)
    assert added["allowed"] is False


def test_refusal_has_no_patch():
    response = REVIEWER.review(make_review(make_job(annotations={"sluice.dev/hold": "maybe"})))["response"]
    assert response.keys() == {"uid", "allowed", "status"}


def test_refused_job_has_no_warning_about_a_missing_queue():
    response = judge(make_job(queue="team-b/main"))
    assert (response["allowed"], response.get("warnings")) == (False, None)


def test_invalid_queue_label_on_a_running_job_is_reverted_and_not_refused():
    moved = make_job(queue="-nothing-", suspend=False, annotations={"sluice.dev/submitted-by": "alice"})
    assert mutate(moved, RUNNING)[0] == RUNNING


def test_unknown_queue_causes_a_warning():
    response = judge(make_job(queue="typo"))
    assert response["allowed"] is True
    label = "metadata.labels[sluice.dev/queue-name]"
    assert response["warnings"] == [f'{label}: no LocalQueue "typo" exists in namespace "team-a"; the Job waits for it']
    assert judge(make_job(queue="typo"), make_job(queue="typo")) == {"uid": "r-1", "allowed": True}
    assert "warnings" in judge(make_job(queue="typo"), WAITING)


def test_reviewer_without_queue_lookup_gives_no_queue_warnings():
    reviewer = Reviewer(all_kinds(), own_usernames=[])
    response = reviewer.review(make_review(make_job(queue="typo")))["response"]
    assert response["allowed"] is True
    assert "warnings" not in response


def test_existing_fault_does_not_prevent_updates():
    broken = make_job(annotations={"sluice.dev/hold": "maybe"})
    assert judge(broken, broken)["allowed"] is True
    assert judge(broken, WAITING)["allowed"] is False
    deleting = copy.deepcopy(broken)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert judge(deleting, WAITING)["allowed"] is True


def test_faults_of_an_unqueued_job_are_ignored():
    assert judge(make_job(queue="", annotations={"sluice.dev/hold": "maybe"}))["allowed"] is True


def test_existing_fault_is_refused_when_a_job_joins_a_queue():
    broken = make_job(queue="", annotations={"sluice.dev/hold": "maybe"}, suspend=True)
    joining = make_job(annotations={"sluice.dev/hold": "maybe"}, suspend=True)
    response = judge(joining, broken)
    assert response["allowed"] is False
    assert response["status"]["details"]["causes"][0]["field"] == "metadata.annotations[sluice.dev/hold]"


@pytest.mark.parametrize(
    ("name", "resource", "spec"),
    [
        ("volcano-torchx-ddp", "jobs", {"tasks": "x"}),
        ("volcano-torchx-ddp", "jobs", {"tasks": [{"dependsOn": 3}]}),
        ("volcano-torchx-ddp", "jobs", {"queue": {}, "tasks": [3]}),
        ("volcano-torchx-ddp", "jobs", None),
        ("leaderworkerset", "leaderworkersets", {"leaderWorkerTemplate": [1]}),
        ("leaderworkerset", "leaderworkersets", {"leaderWorkerTemplate": {"workerTemplate": "x"}}),
    ],
)
def test_custom_resource_of_another_form_is_refused_in_one_sentence(name, resource, spec):
    obj = document(name) | {"spec": spec}
    group = obj["apiVersion"].partition("/")[0]
    reviewer = Reviewer(all_kinds(frameworks=frameworks_known()), own_usernames=())
    response = reviewer.review(make_review(obj, resource={"group": group, "resource": resource}))["response"]
    assert response["allowed"] is False
    assert response["status"]["message"].startswith(f"spec: has another form than a {obj['kind']} has (")


def test_autoscaler_that_can_get_no_more_workers_is_told_of_at_creation():
    obj, cluster = document("appwrapper-v1beta2"), document("raycluster")
    cluster["spec"]["enableInTreeAutoscaling"] = True
    obj["spec"]["components"] = [{"template": cluster}]
    reviewer = Reviewer(all_kinds(frameworks=frameworks_known()), own_usernames=())
    resource = {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"}
    answer = reviewer.review(make_review(obj, resource=resource))["response"]
    assert any("autoscaler" in warning for warning in answer["warnings"])


def test_update_by_a_controller_is_never_refused_but_warned_of():
    """Its controller would repeat it forever, while the object neither waits with a reason nor runs."""
    obj = document("appwrapper-v1beta2")
    reviewer = Reviewer(all_kinds(frameworks=frameworks_known()), own_usernames=())
    resource = {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"}
    waiting = copy.deepcopy(obj)
    waiting["spec"]["suspend"] = True
    changed = copy.deepcopy(waiting)
    changed["spec"]["components"][0]["podSets"][0]["path"] = "template.metadata"
    fault = "spec.components[0].podSets: a Job has its pods at template.spec.template; correct the path"
    by_user = reviewer.review(make_review(changed, waiting, resource=resource))["response"]
    assert (by_user["allowed"], by_user["status"]["message"]) == (False, fault)
    operator = "system:serviceaccount:appwrapper-system:appwrapper-controller-manager"
    answer = reviewer.review(make_review(changed, waiting, resource=resource, user=operator))["response"]
    assert (answer["allowed"], answer["warnings"]) == (True, [fault])


@pytest.mark.parametrize(("manifest", "longest"), [("rayjob", 47), ("rayservice", 47), ("raycluster", 53)])
def test_name_that_kuberay_does_not_accept_is_warned_of_at_creation(manifest, longest):
    obj = document(manifest)
    reviewer = Reviewer(all_kinds(frameworks=frameworks_known()), own_usernames=())
    resource = {"group": "ray.io", "version": "v1", "resource": f"{obj['kind'].lower()}s"}
    for length in (longest, longest + 1):
        obj["metadata"]["name"] = "r" * length
        warnings = reviewer.review(make_review(obj, resource=resource))["response"].get("warnings", [])
        assert any("KubeRay runs no" in text for text in warnings) is (length > longest)
