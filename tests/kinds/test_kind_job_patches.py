"""Adapter for batch/v1 Job: patches that are restored completely."""

from __future__ import annotations

import copy

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kind_jobs import FLAVORS, JOBS, admission, make_job, update

from admission.kinds import JobKind
from admission.kinds.base import Conventions
from admission.kinds.patches import merged
from admission.model.checks import PodSetUpdate
from admission.model.errors import Misconfigured

SAME = [
    {"op": "test", "path": "/metadata/uid", "value": "u-1"},
    {"op": "test", "path": "/metadata/generation", "value": 3},
]
UNSUSPEND = {"op": "add", "path": "/spec/suspend", "value": False}


def start(job, *flavors, count=3):
    """Return the Job after the start patch, and the original."""
    patch, original = JOBS.start_patch(job, admission(*flavors, count=count), FLAVORS)
    return jsonpatch.apply_patch(job, patch), original


def test_start_patch_injects_flavor_constraints_and_unsuspends():
    job = make_job(template={"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "mine", "operator": "Exists"}]})
    started, original = start(job, "spot", "a100")
    assert started["spec"]["suspend"] is False
    template = started["spec"]["template"]["spec"]
    assert template["nodeSelector"] == {"zone": "a", "pool": "spot", "gpu": "a100"}
    assert template["tolerations"] == [
        {"key": "mine", "operator": "Exists"},
        {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert template["containers"] == job["spec"]["template"]["spec"]["containers"]
    given = {"nodeSelector": {"pool": "spot", "gpu": "a100"}, "tolerations": template["tolerations"]}
    assert original == {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "mine", "operator": "Exists"}],
        "given": {"template": {"spec": given}},
    }
    assert JOBS.carries_start(started, original)
    assert not JOBS.carries_start(job, original)


def test_start_patch_fails_only_on_another_uid_or_generation():
    patch, _ = JOBS.start_patch(make_job(), admission("spot"), FLAVORS)
    for change in ({"resourceVersion": "43"}, {"labels": {"a": "b"}}):
        other = make_job(status={"active": 1})
        other["metadata"] |= change
        assert jsonpatch.apply_patch(other, patch)["spec"]["suspend"] is False
    for change in ({"uid": "u-2"}, {"generation": 4}):
        other = make_job()
        other["metadata"] |= change
        with pytest.raises(jsonpatch.JsonPatchTestFailed):
            jsonpatch.apply_patch(other, patch)


def test_start_patch_for_a_flavor_without_labels_only_unsuspends():
    patch, original = JOBS.start_patch(make_job(), admission("plain"), FLAVORS)
    assert patch == [*SAME, UNSUSPEND]
    assert original == {}
    assert JOBS.restore_patch(make_job(), original) is None


def test_flavor_constraints_already_in_the_template_are_not_injected():
    template = {
        "nodeSelector": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    }
    patch, original = JOBS.start_patch(make_job(template=template), admission("spot"), FLAVORS)
    assert (patch, original) == ([*SAME, UNSUSPEND], {})


def test_node_selector_that_conflicts_with_the_flavor_is_misconfigured():
    job = make_job(template={"nodeSelector": {"pool": "on-demand"}})
    with pytest.raises(Misconfigured, match=r'nodeSelector\[pool\]: is on-demand, but ResourceFlavor "spot" needs'):
        JOBS.start_patch(job, admission("spot"), FLAVORS)


def test_parallelism_lowered_by_partial_admission_is_restored():
    started, original = start(make_job(), "plain", count=2)
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (2, 6)
    assert JOBS.restore_patch(started, original)["spec"] == {"parallelism": 3}


def test_completions_follow_the_parallelism_if_annotated():
    annotations = {"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
    job = make_job(annotations=annotations, completionMode="Indexed", completions=3)
    started, original = start(job, "plain", count=2)
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (2, 2)
    assert JOBS.restore_patch(started, original)["spec"] == {"parallelism": 3, "completions": 3}


def test_completions_are_restored_together_with_a_parallelism_edited_by_a_user():
    """The API server accepts new completions of an Indexed Job only together with an equal parallelism."""
    annotations = {"sluice.dev/job-completions-equal-parallelism": "true"}
    job = make_job(annotations=annotations, completionMode="Indexed", completions=3)
    started, original = start(job, "plain", count=2)
    for parallelism in (0, 1, 7):
        changed = merged(started, {"spec": {"parallelism": parallelism}})
        assert JOBS.restore_patch(changed, original)["spec"] == {"parallelism": 3, "completions": 3}
    both = merged(started, {"spec": {"parallelism": 1, "completions": 1}})
    assert JOBS.restore_patch(both, original) is None


def test_restoration_that_changes_nothing_is_none():
    """Else an evicted Job would wait for it forever, and keep its quota."""
    job = make_job()
    same = {"parallelism": job["spec"]["parallelism"]}
    assert JOBS.restore_patch(job, {**same, "given": same}) is None


def test_resume_patch_only_unsuspends():
    assert JOBS.resume_patch(make_job()) == [*SAME, UNSUSPEND]


def test_stop_patch_tests_the_observed_uid_and_generation():
    suspend = {"op": "add", "path": "/spec/suspend", "value": True}
    assert JOBS.stop_patch(make_job()) == [*SAME, suspend]


def test_start_time_is_cleared_only_at_the_observed_resource_version():
    assert JOBS.clear_start_time_patch(make_job()) == {
        "metadata": {"resourceVersion": "42"},
        "status": {"startTime": None},
    }


selectors = st.none() | st.dictionaries(st.sampled_from(["zone", "arch", "disk"]), st.sampled_from("ab"), min_size=1)
tolerations = st.none() | st.lists(st.sampled_from([{"key": "spot", "operator": "Exists"}, {"key": "x"}]), min_size=1)


@given(selectors, tolerations, st.lists(st.sampled_from(sorted(FLAVORS)), min_size=1), st.integers(1, 3))
def test_job_is_restored_exactly_after_start_and_stop(selector, tolerated, given_flavors, count):
    fields = {"nodeSelector": selector, "tolerations": tolerated}
    job = make_job(template={key: value for key, value in fields.items() if value is not None})
    before = copy.deepcopy(job)
    started, original = start(job, *given_flavors, count=count)
    assert started["spec"]["suspend"] is False
    stopped = jsonpatch.apply_patch(started, JOBS.stop_patch(started))
    restored = merged(stopped, JOBS.restore_patch(stopped, original) or {})
    assert restored == before == job
    assert JOBS.restore_patch(restored, original) is None


def test_pod_set_updates_of_admission_checks_are_injected_and_removed():
    job = make_job(template={"nodeSelector": {"zone": "a"}})
    toleration = {"key": "new", "operator": "Exists"}
    updates = [
        update(nodeSelector={"zone": "a", "node": "n1"}, tolerations=[toleration]),
        update(labels={"team": "x"}, annotations={"note": "y"}),
        PodSetUpdate.model_validate({"name": "another", "labels": {"never": "seen"}}),
    ]
    patch, original = JOBS.start_patch(job, admission("spot"), FLAVORS, updates)
    started = jsonpatch.apply_patch(job, patch)
    template = started["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"zone": "a", "pool": "spot", "node": "n1"}
    assert template["spec"]["tolerations"][-1] == toleration
    assert template["metadata"] == {"labels": {"job-name": "train", "team": "x"}, "annotations": {"note": "y"}}
    restored = merged(started, JOBS.restore_patch(started, original))
    assert restored["spec"]["template"]["spec"] == job["spec"]["template"]["spec"]
    assert restored["spec"]["template"]["metadata"]["labels"] == {"job-name": "train"}
    assert not restored["spec"]["template"]["metadata"].get("annotations")
    assert JOBS.restore_patch(restored, original) is None


@pytest.mark.parametrize(
    ("one", "path"),
    [
        ({"nodeSelector": {"pool": "other"}}, "spec.template.spec.nodeSelector[pool]: is spot"),
        ({"labels": {"job-name": "other"}}, "spec.template.metadata.labels[job-name]: is train"),
    ],
)
def test_pod_set_update_that_conflicts_with_the_template_is_misconfigured(one, path):
    with pytest.raises(Misconfigured) as raised:
        JOBS.start_patch(make_job(), admission("spot"), FLAVORS, [update(**one)])
    assert path in str(raised.value)
    assert "an admission check needs other" in str(raised.value)


def test_restore_keeps_template_labels_of_the_api_server():
    job = make_job()
    started, original = start(job, "spot")
    restored = merged(started, JOBS.restore_patch(started, original))
    assert restored["spec"]["template"]["metadata"]["labels"] == {"job-name": "train"}


def test_gate_patch_suspends_a_job_that_is_not_suspended():
    assert JOBS.gate(make_job()) == []
    (operation,) = JOBS.gate(make_job(suspend=False))
    assert operation == {"op": "add", "path": "/spec/suspend", "value": True}
    unset = make_job()
    del unset["spec"]["suspend"]
    assert JOBS.gate(unset) == [operation]


def test_job_kinds_with_equal_conventions_are_equal():
    assert JobKind(Conventions()) == JobKind(Conventions())
