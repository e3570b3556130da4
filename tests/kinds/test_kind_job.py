"""Adapter for batch/v1 Job: observed state, pod sets, and faults of an object."""

from __future__ import annotations

import pytest
from kind_jobs import JOBS, make_job

from admission.kinds import NamespaceContext, Outcome, all_kinds
from admission.model.errors import Misconfigured
from admission.model.workload import NodeRequirement, Toleration

EMPTY = NamespaceContext()


def test_observe_reads_identity_queue_priority_user_and_state():
    job = make_job(
        labels={"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "high"},
        annotations={"sluice.dev/submitted-by": "alice", "sluice.dev/hold": "true"},
        template={"priorityClassName": "pods-high"},
    )
    seen = JOBS.observe(job)
    assert (seen.uid, seen.key, seen.resource_version, seen.generation) == ("u-1", "team-a/train", "42", 3)
    assert seen.created == 1767323045.0
    assert (seen.queue, seen.priority_class, seen.pod_priority_class) == ("main", "high", "pods-high")
    assert (seen.user, seen.on_hold, seen.counts[0].wanted, seen.deleting) == ("alice", True, 3, False)
    assert (seen.suspended, seen.active, seen.started, seen.finished) == (True, False, False, None)


@pytest.mark.parametrize(
    ("spec", "status", "left", "needed"),
    [
        ({}, {}, 6, 3),
        ({}, {"succeeded": 3}, 3, 3),
        ({}, {"succeeded": 5}, 1, 1),
        ({"completions": None}, {"succeeded": 1}, 2, 2),
        ({"parallelism": 9}, {"succeeded": 1}, 5, 5),
        ({"completionMode": "Indexed"}, {"succeeded": 1, "completedIndexes": "1,3-5"}, 2, 2),
        ({"completionMode": "Indexed"}, {"succeeded": 2, "completedIndexes": "0-1", "failedIndexes": "2-4"}, 1, 1),
        ({"completionMode": "Indexed"}, {"succeeded": 2}, 4, 3),
    ],
)
def test_quota_is_requested_only_for_pods_that_are_still_needed(spec, status, left, needed):
    job = make_job(status=status, **spec)
    seen = JOBS.observe(job)
    (count,) = seen.counts
    assert (count.left, count.needed) == (left, needed)
    (pods,) = JOBS.pod_sets(job, EMPTY)
    assert pods.count == needed


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"ready": 2, "active": 3}, False),
        ({"ready": 3, "active": 3}, True),
        ({"ready": 1, "succeeded": 2}, True),
        ({"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}}, True),
    ],
)
def test_job_is_ready_if_all_pods_are_ready_or_succeeded(status, ready):
    assert JOBS.observe(make_job(status=status)).ready is ready


@pytest.mark.parametrize("label", ["sluice.dev/max-exec-time-seconds", "kueue.x-k8s.io/max-exec-time-seconds"])
def test_maximum_execution_time_is_read_from_a_label(label):
    labels = {"sluice.dev/queue-name": "main", label: "90"}
    assert JOBS.observe(make_job(labels=labels)).max_seconds == 90
    assert JOBS.faults(make_job(labels=labels)) == []


@pytest.mark.parametrize("text", ["0", "-1", "1h", "9999999999", "٣"])
def test_invalid_maximum_execution_time_is_misconfigured(text):
    job = make_job(labels={"sluice.dev/queue-name": "main", "sluice.dev/max-exec-time-seconds": text})
    assert JOBS.observe(job).max_seconds is None
    ((path, message),) = JOBS.faults(job)
    assert path == "metadata.labels[sluice.dev/max-exec-time-seconds]"
    assert "number of seconds from 1 to 999999999" in message
    with pytest.raises(Misconfigured, match="number of seconds"):
        JOBS.pod_sets(job, EMPTY)


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_hold_is_a_label_or_an_annotation(where):
    assert JOBS.observe(make_job(**{where: {"sluice.dev/hold": "true"}})).on_hold
    assert not JOBS.observe(make_job(**{where: {"sluice.dev/hold": "false"}})).on_hold


def test_queue_label_of_sluice_precedes_that_of_kueue():
    job = make_job(labels={"kueue.x-k8s.io/queue-name": "theirs", "sluice.dev/queue-name": "ours"})
    assert JOBS.queue_name(job) == "ours"


def test_kueues_labels_can_be_switched_off():
    own = all_kinds(kueue_labels=False).get("batch", "Job")
    job = make_job(labels={"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "high"})
    assert own.queue_name(job) == ""
    assert own.observe(job).priority_class == ""


@pytest.mark.parametrize(
    ("job", "queue"),
    [
        (make_job(labels={}), ""),
        (make_job(labels={"sluice.dev/queue-name": ""}), ""),
        (make_job(managedBy="kubernetes.io/job-controller"), "main"),
        (make_job(managedBy="example.com/another"), ""),
        (make_job(owners=[{"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}]), "main"),
        (make_job(owners=[{"apiVersion": "batch/v1", "kind": "Job", "controller": True}]), "main"),
    ],
)
def test_job_is_queued_by_its_label_unless_another_controller_manages_it(job, queue):
    assert JOBS.queue_name(job) == queue


NOTICED = {"type": "Suspended", "status": "True"}


@pytest.mark.parametrize(
    ("suspend", "status", "active"),
    [
        (True, {}, False),
        (True, {"conditions": [NOTICED]}, False),
        (False, {}, True),
        (False, {"startTime": "t", "active": 2}, True),
        # Just suspended: the Job controller has not seen it yet, and may not have counted the pods that it created.
        (True, {"startTime": "t"}, True),
        (True, {"startTime": "t", "active": 2}, True),
        (True, {"conditions": [NOTICED], "terminating": 2}, True),
        (True, {"startTime": "t", "conditions": [NOTICED]}, False),
        (True, {"active": 0, "terminating": 0, "conditions": [NOTICED]}, False),
        (False, {"conditions": [{"type": "Complete", "status": "True"}]}, False),
        (False, {"conditions": [{"type": "Failed", "status": "True"}], "terminating": 1}, True),
        (False, {"conditions": [{"type": "FailureTarget", "status": "True"}]}, True),
        (False, {"conditions": [{"type": "Complete", "status": "False"}]}, True),
    ],
)
def test_job_is_active_while_it_may_have_pods(suspend, status, active):
    assert JOBS.observe(make_job(suspend=suspend, status=status)).active is active


@pytest.mark.parametrize(("condition", "succeeded"), [("Complete", True), ("Failed", False)])
def test_outcome_is_read_from_the_terminal_condition(condition, succeeded):
    conditions = [
        {"type": "SuccessCriteriaMet", "status": "True"},
        {"type": condition, "status": "True", "reason": "Why", "message": "what"},
    ]
    seen = JOBS.observe(make_job(suspend=False, status={"conditions": conditions}))
    assert seen.finished == Outcome(succeeded, "Why", "what")


# Pod sets ---------------------------------------------------------------------------------------------------------


def test_pod_set_has_the_requests_and_scheduling_constraints_of_the_template():
    job = make_job(
        template={
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "x", "value": "y", "effect": "NoExecute"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                        ]
                    }
                }
            },
        }
    )
    (pods,) = JOBS.pod_sets(job, EMPTY)
    assert (pods.name, pods.count, pods.min_count, pods.requests) == ("main", 3, None, {"cpu": 1000})
    assert pods.node_selector == {"zone": "a"}
    assert pods.tolerations == (Toleration("spot", "Exists"), Toleration("x", "Equal", "y", "NoExecute"))
    assert pods.affinity == ((NodeRequirement("pool", "In", ("a", "b")),), ())


@pytest.mark.parametrize(
    ("parallelism", "completions", "count"), [(3, 6, 3), (6, 3, 3), (4, None, 4), (0, None, 0), (5, 0, 0)]
)
def test_pod_count_is_the_parallelism_limited_by_completions(parallelism, completions, count):
    job = make_job(parallelism=parallelism, completions=completions)
    assert JOBS.pod_sets(job, EMPTY)[0].count == count
    assert JOBS.observe(job).counts[0].wanted == count


@pytest.mark.parametrize("prefix", ["kueue.x-k8s.io", "sluice.dev"])
@pytest.mark.parametrize(("text", "minimum"), [("1", 1), ("2", 2), ("3", None)])
def test_minimum_parallelism_is_read_from_an_annotation(prefix, text, minimum):
    job = make_job(annotations={f"{prefix}/job-min-parallelism": text})
    assert JOBS.pod_sets(job, EMPTY)[0].min_count == minimum


@pytest.mark.parametrize("text", ["0", "4", "-1", "two", "", "1.5", "²"])
def test_invalid_minimum_parallelism_is_misconfigured(text):
    job = make_job(annotations={"kueue.x-k8s.io/job-min-parallelism": text})
    with pytest.raises(Misconfigured, match=r"job-min-parallelism\]: must be an integer from 1 to"):
        JOBS.pod_sets(job, EMPTY)
    assert [path for path, _ in JOBS.faults(job)] == ["metadata.annotations[kueue.x-k8s.io/job-min-parallelism]"]


def test_runtime_class_adds_node_selector_and_tolerations_to_the_pod_set():
    runtime = {
        "metadata": {"name": "kata"},
        "scheduling": {"nodeSelector": {"kata": "true"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
    }
    context = NamespaceContext((), [runtime])
    (pods,) = JOBS.pod_sets(make_job(template={"runtimeClassName": "kata", "nodeSelector": {"a": "b"}}), context)
    assert pods.node_selector == {"a": "b", "kata": "true"}
    assert pods.tolerations == (Toleration("kata", "Exists"),)
    with pytest.raises(Misconfigured, match=r"nodeSelector\[kata\]: is false, but the RuntimeClass needs true"):
        JOBS.pod_sets(make_job(template={"runtimeClassName": "kata", "nodeSelector": {"kata": "false"}}), context)


def test_jobs_with_equal_scheduling_fields_share_cached_pod_sets():
    one, other = make_job(), make_job(annotations={"note": "differs"}, backoffLimit=9)
    other["metadata"]["name"] = "other"
    other["spec"]["template"]["spec"]["containers"][0] |= {"image": "another", "name": "another"}
    assert JOBS.pod_sets(one, EMPTY) is JOBS.pod_sets(other, NamespaceContext())


@pytest.mark.parametrize(
    "edited",
    [
        make_job(parallelism=4),
        make_job(completions=2),
        make_job(annotations={"kueue.x-k8s.io/job-min-parallelism": "2"}),
        make_job(template={"nodeSelector": {"a": "b"}}),
        make_job(template={"tolerations": [{"operator": "Exists"}]}),
        make_job(template={"overhead": {"cpu": "1"}}),
        make_job(template={"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}]}),
        make_job(template={"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}),
    ],
)
def test_edits_of_counts_requests_and_constraints_change_the_pod_sets(edited):
    assert JOBS.pod_sets(edited, EMPTY) != JOBS.pod_sets(make_job(), EMPTY)


# Faults -----------------------------------------------------------------------------------------------------------

FOLLOWING = {"sluice.dev/job-min-parallelism": "1", "sluice.dev/job-completions-equal-parallelism": "true"}


@pytest.mark.parametrize(
    ("job", "path"),
    [
        (make_job(labels={"sluice.dev/queue-name": "Main_Q"}), "metadata.labels[sluice.dev/queue-name]"),
        (make_job(labels={"kueue.x-k8s.io/priority-class": "a_b"}), "metadata.labels[kueue.x-k8s.io/priority-class]"),
        (make_job(labels={"sluice.dev/hold": "yes"}), "metadata.labels[sluice.dev/hold]"),
        (make_job(annotations={"sluice.dev/hold": "True"}), "metadata.annotations[sluice.dev/hold]"),
        (
            make_job(annotations={"kueue.x-k8s.io/job-completions-equal-parallelism": "1"}),
            "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]",
        ),
        (
            make_job(annotations=FOLLOWING, completionMode="Indexed", parallelism=3, completions=5),
            "spec.completions",
        ),
        (
            make_job(template={"containers": [{"name": "c", "resources": {"requests": {"cpu": "-2"}}}]}),
            "spec.template.spec.containers[0].resources.requests.cpu",
        ),
        (make_job(template={"resourceClaims": [{"name": "x"}]}), "spec.template.spec.resourceClaims[0]"),
    ],
)
def test_fault_has_the_path_of_its_field(job, path):
    ((field, message),) = JOBS.faults(job)
    assert field == path
    assert message
    with pytest.raises(Misconfigured) as refused:  # also without a webhook that refuses the Job
        JOBS.pod_sets(job, EMPTY)
    assert str(refused.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    "job",
    [
        make_job(annotations=FOLLOWING, completionMode="Indexed", parallelism=3, completions=3),
        make_job(annotations=FOLLOWING, parallelism=3, completions=5),  # not Indexed: the annotation has no effect
        make_job(annotations=dict([*FOLLOWING.items()][1:]), completionMode="Indexed", parallelism=3, completions=5),
        make_job(
            annotations=FOLLOWING | {"sluice.dev/job-completions-equal-parallelism": "false"},
            completionMode="Indexed", parallelism=3, completions=5,
        ),
    ],
)  # fmt: skip
def test_completions_may_differ_from_parallelism_if_no_start_lowers_them(job):
    assert JOBS.faults(job) == []
    assert JOBS.pod_sets(job, EMPTY)


def test_misconfigured_message_lists_all_label_faults():
    job = make_job(labels={"sluice.dev/queue-name": "a_b", "sluice.dev/hold": "yes"})
    with pytest.raises(Misconfigured, match=r'"a_b" is no name: use lower-case .*; .*sluice.dev/hold.*not "yes"'):
        JOBS.pod_sets(job, EMPTY)


@pytest.mark.parametrize("key", ["sluice.dev/hold", "sluice.dev/job-min-parallelism"])
def test_values_quoted_in_faults_are_bounded_and_printable(key):
    ((_, message),) = JOBS.faults(make_job(annotations={key: "\x1b]0;x\x07\ud800" + "y" * 200_000}))
    assert message.isprintable()
    assert len(message) < 250


def test_outcome_reason_and_message_are_bounded_and_printable():
    condition = {"type": "Failed", "status": "True", "reason": "a\x00b", "message": "one\ntwo" + "\x00" * 1000}
    outcome = JOBS.observe(make_job(status={"conditions": [condition]})).finished
    assert (outcome.reason, outcome.message[:15]) == (r"a\x00b", r"one two\x00\x00"[:15])
    assert len(outcome.message) == 1000


def test_valid_job_has_no_faults():
    assert JOBS.faults(make_job(annotations={"sluice.dev/hold": "false"})) == []
