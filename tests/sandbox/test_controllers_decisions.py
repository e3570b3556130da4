"""Pure decisions of the sandbox's controllers: indexes, counts, outcomes, policies, pods, node fit, clock."""

import asyncio
from itertools import combinations
from types import MappingProxyType

import pytest

from admission.sandbox.clock import Clock, parse_rfc3339, rfc3339, rfc3339_micro
from admission.sandbox.controllers import fit, jobpods, jobstate
from admission.sandbox.controllers.jobstate import format_indexes, parse_indexes
from admission.sandbox.controllers.podlife import run_seconds
from tests.virtual_time import VirtualTimeLoop


def job(status=None, **spec):
    defaults = {"backoffLimit": 6, "completions": 2, "parallelism": 2, "podReplacementPolicy": "TerminatingOrFailed"}
    template = {"spec": {"containers": [{"name": "main"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": "d", "uid": "j"},
        "spec": {**defaults, "template": template, **spec},
        "status": status or {},
    }


def pod(uid, phase="Running", *, index=None, ready=False, code=None, node="n", created=0, tracked=True, **metadata):
    annotations = {} if index is None else {jobpods.INDEX: str(index)}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    if code is not None:
        status["containerStatuses"] = [
            {"name": "main", "state": {"terminated": {"exitCode": code, "finishedAt": rfc3339(1000)}}}
        ]
    return {
        "metadata": {
            "name": uid,
            "namespace": "d",
            "uid": uid,
            "creationTimestamp": rfc3339(created),
            "annotations": {**annotations, **metadata.pop("annotations", {})},
            "finalizers": [jobpods.TRACKING] if tracked else [],
            **metadata,
        },
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


class TestIndexes:
    @pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "0,2", "1-3,5,7-9", "0,1,3-5"])
    def test_index_notation_survives_a_round_trip(self, text):
        assert format_indexes(parse_indexes(text, 100)) == text

    def test_indexes_beyond_the_completions_are_dropped(self):
        assert parse_indexes("0-9,20", 3) == {0, 1, 2}


class TestCounting:
    def test_pods_listed_as_uncounted_in_the_status_are_counted_once(self):
        before = {"uncountedTerminatedPods": {"succeeded": ["x"]}, "succeeded": 1}
        tally = jobstate.count(job(before), [pod("x", "Succeeded"), pod("y", "Succeeded")])
        assert tally.succeeded == 3

    def test_terminating_pod_counts_as_failed_unless_replacement_policy_is_failed(self):
        going = pod("x", deletionTimestamp=rfc3339(1))
        assert jobstate.count(job(), [going]).failed == 1
        assert jobstate.count(job(podReplacementPolicy="Failed"), [going]).failed == 0

    def test_an_indexed_job_counts_indexes_not_pods(self):
        pods = [pod("x", "Succeeded", index=0), pod("y", "Succeeded", index=0), pod("z", "Succeeded", index=7)]
        tally = jobstate.count(job({"completedIndexes": "1"}, completionMode="Indexed"), pods)
        assert tally.completed == {0, 1}
        assert tally.succeeded == 2

    def test_a_work_queue_is_complete_when_one_pod_succeeded_and_the_rest_ended(self):
        queue = job()
        del queue["spec"]["completions"]
        tally = jobstate.count(queue, [pod("x", "Succeeded"), pod("y")])
        assert jobstate.wanted_active(tally) == 1
        assert not jobstate.is_complete(tally, 1)
        assert jobstate.is_complete(tally, 0)

    def test_failed_index_is_not_retried_beyond_backoff_limit_per_index(self):
        spec = {"completionMode": "Indexed", "backoffLimitPerIndex": 0, "completions": 3, "parallelism": 3}
        tally = jobstate.count(job(**spec), [pod("x", "Failed", index=1, code=1)])
        assert tally.failed_indexes == {1}
        assert jobstate.wanted_active(tally) == 2


class TestOutcome:
    def test_more_failures_than_the_backoff_limit_end_the_job(self):
        failed = [pod("x", "Failed", code=1)]
        assert jobstate.find_outcome(jobstate.count(job(backoffLimit=1), failed), 0) is None
        end = jobstate.find_outcome(jobstate.count(job(backoffLimit=0), failed), 0)
        assert end is not None
        assert (end.target, end.final, end.reason) == ("FailureTarget", "Failed", "BackoffLimitExceeded")

    def test_active_deadline_fails_running_job_but_not_suspended_job(self):
        running = job({"startTime": rfc3339(100)}, activeDeadlineSeconds=10)
        assert jobstate.find_outcome(jobstate.count(running, []), 109.9) is None
        assert jobstate.find_outcome(jobstate.count(running, []), 110).reason == "DeadlineExceeded"
        running["spec"]["suspend"] = True
        assert jobstate.find_outcome(jobstate.count(running, []), 999) is None

    def test_job_fails_when_failed_indexes_exceed_max_failed_indexes(self):
        spec = {"completionMode": "Indexed", "backoffLimitPerIndex": 0, "completions": 5, "maxFailedIndexes": 1}
        end = jobstate.find_outcome(jobstate.count(job({"failedIndexes": "0,1"}, **spec), []), 0)
        assert end.reason == "MaxFailedIndexesExceeded"

    def test_failure_target_condition_decides_the_outcome_despite_a_later_success(self):
        doomed = [{"type": "FailureTarget", "status": "True", "reason": "Because", "message": "m"}]
        end = jobstate.find_outcome(jobstate.count(job({"conditions": doomed}), [pod("x", "Succeeded")]), 0)
        assert (end.final, end.reason) == ("Failed", "Because")


class TestPolicies:
    RULES = (
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2], "containerName": "main"}},
    )

    @pytest.mark.parametrize(("code", "action"), [(42, "FailJob"), (7, "FailIndex"), (1, "")])
    def test_first_matching_pod_failure_policy_rule_decides(self, code, action):
        judged = jobstate.match_failure_policy(
            job(podFailurePolicy={"rules": self.RULES}), pod("x", "Failed", code=code)
        )
        assert (judged.action, judged.counts) == (action, True)

    def test_disrupted_pod_is_ignored_by_pod_failure_policy(self):
        lost = pod("x", "Failed", code=42)
        lost["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
        judged = jobstate.match_failure_policy(job(podFailurePolicy={"rules": self.RULES}), lost)
        assert (judged.action, judged.counts) == ("Ignore", False)

    @pytest.mark.parametrize(
        ("rule", "met"),
        [
            ({"succeededIndexes": "0-1"}, True),
            ({"succeededIndexes": "0-2"}, False),
            ({"succeededIndexes": "0-2", "succeededCount": 2}, True),
            ({"succeededCount": 3}, False),
        ],
    )
    def test_success_policy_requires_indexes_or_count(self, rule, met):
        spec = job(completions=5, successPolicy={"rules": [rule]})
        assert (jobstate.met_success_policy(spec, {0, 1}) is not None) == met


class TestPods:
    def test_surplus_pods_are_stopped_unbound_and_pending_first(self):
        pods = [pod("ready", ready=True), pod("running"), pod("pending", "Pending"), pod("unbound", "Pending", node="")]
        assert [each["metadata"]["uid"] for each in jobpods.surplus(job(), pods, 3)] == [
            "unbound",
            "pending",
            "running",
        ]

    def test_pods_with_duplicate_or_excess_index_are_surplus(self):
        indexed = job(completionMode="Indexed", completions=2)
        pods = [pod("a", index=0, created=1), pod("b", index=0, created=2), pod("c", index=5)]
        assert {each["metadata"]["uid"] for each in jobpods.surplus(indexed, pods, 0)} == {"b", "c"}

    def test_indexed_pod_gets_its_index_without_a_change_of_the_jobs_template(self):
        indexed = job(completionMode="Indexed")
        made = jobpods.make_pod(indexed, 3, (2, 1))
        assert made["spec"]["hostname"] == "a-3"
        assert made["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
        assert made["metadata"]["annotations"] == {
            jobpods.INDEX: "3",
            jobpods.FAILURES: "2",
            jobpods.IGNORED_FAILURES: "1",
        }
        assert indexed["spec"]["template"] == {"spec": {"containers": [{"name": "main"}]}}

    def test_backoff_doubles_with_each_failure_up_to_ten_minutes(self):
        assert [jobpods.backoff(failures) for failures in (0, 1, 2, 3, 7, 99)] == [0, 10, 20, 40, 600, 600]

    def test_succeeded_pod_resets_the_backoff(self):
        tally = jobstate.count(job(), [pod("x", "Succeeded", code=0)])
        assert jobstate.backoff_state(tally, (3, 900.0)) == (0, 0.0)


def node(labels=None, taints=(), **spec):
    return {"metadata": {"name": "n", "labels": labels or {}}, "spec": {"taints": list(taints), **spec}}


def shape(**spec):
    return fit.shape_of({"containers": [{}], **spec})


class TestFit:
    TAINT = MappingProxyType({"key": "k", "value": "v", "effect": "NoSchedule"})

    @pytest.mark.parametrize(
        ("toleration", "fits"),
        [
            ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
            ({"key": "k", "value": "other"}, False),
            ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"operator": "Exists"}, True),
        ],
    )
    def test_taints_need_a_toleration(self, toleration, fits):
        assert not fit.matches_node(shape(), node(taints=[dict(self.TAINT)]))
        assert fit.matches_node(shape(tolerations=[toleration]), node(taints=[dict(self.TAINT)])) == fits

    def test_cordoned_node_accepts_no_pod(self):
        assert not fit.matches_node(shape(), node(unschedulable=True))

    @pytest.mark.parametrize(
        ("rule", "fits"),
        [
            ({"key": "zone", "operator": "In", "values": ["a"]}, True),
            ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
            ({"key": "absent", "operator": "NotIn", "values": ["a"]}, True),
            ({"key": "absent", "operator": "DoesNotExist"}, True),
            ({"key": "size", "operator": "Gt", "values": ["3"]}, True),
            ({"key": "size", "operator": "Lt", "values": ["3"]}, False),
        ],
    )
    def test_required_node_affinity_expressions_select_nodes(self, rule, fits):
        terms = {"nodeSelectorTerms": [{}, {"matchExpressions": [rule]}]}
        wanted = shape(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
        assert fit.matches_node(wanted, node({"zone": "a", "size": "4"})) == fits

    def test_requests_count_sidecars_and_the_largest_init_container(self):
        def asks(cpu, **more):
            return {"resources": {"requests": {"cpu": cpu}}, **more}

        inits = [asks("500m", restartPolicy="Always"), asks("3")]
        wanted = shape(containers=[asks("1"), asks("1")], initContainers=inits, overhead={"cpu": "100m"})
        assert dict(wanted.requests) == {"cpu": 3600, "pods": 1}
        assert fit.fits({"cpu": 3600, "pods": 1}, wanted)
        assert not fit.fits({"cpu": 3600, "pods": 0}, wanted)

    SPEC = MappingProxyType({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]})

    def test_shape_key_ignores_container_name_and_hostname(self):
        other = {"containers": [{"name": "b", "resources": {"requests": {"cpu": "1"}}}], "hostname": "h"}
        assert fit.shape_key(self.SPEC) == fit.shape_key(other)

    def test_shape_key_differs_for_each_scheduling_requirement(self):
        asks = {"resources": {"requests": {"cpu": "2"}}}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}
        requirements = [
            {},
            {"containers": [asks]},
            {"initContainers": [asks]},
            {"initContainers": [{**asks, "restartPolicy": "Always"}]},
            {"overhead": {"cpu": "1"}},
            {"priority": 1},
            {"nodeSelector": {"x": "y"}},
            {"tolerations": [{"operator": "Exists"}]},
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}},
        ]
        for one, other in combinations([{**self.SPEC, **each} for each in requirements], 2):
            assert fit.shape_key(one) != fit.shape_key(other)


@pytest.mark.parametrize(
    ("annotations", "container", "seconds"),
    [
        ({"sandbox.sluice.dev/run-seconds": "1.5"}, {"command": ["sleep", "9"]}, 1.5),
        ({}, {"command": ["sleep", "9"]}, 9),
        ({}, {"command": ["/bin/sleep"], "args": ["9s"]}, 9),
        ({}, {"command": ["sh", "-c", "sleep 9"]}, 9),
        ({}, {"command": ["sleep", "infinity"]}, float("inf")),
        ({}, {"command": ["python", "train.py"]}, None),
        ({"sandbox.sluice.dev/run-seconds": "soon"}, {}, None),
    ],
)
def test_run_seconds_come_from_annotation_or_sleep_command(annotations, container, seconds):
    assert run_seconds({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}) == seconds


class TestClock:
    def test_clock_and_its_sleeps_run_faster_by_the_speed(self):
        async def sleep():
            loop = asyncio.get_running_loop()
            clock = Clock(60, monotonic=loop.time)
            began, instant = loop.time(), clock.now()
            await clock.sleep(90)
            await clock.sleep_until(instant + 120)
            return loop.time() - began, clock.now() - instant

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            assert runner.run(sleep()) == (pytest.approx(2, abs=0.01), pytest.approx(120, abs=0.6))

    async def test_sleep_until_an_instant_in_the_past_returns(self):
        clock = Clock()
        await clock.sleep_until(clock.now() - 1e6)

    async def test_sleep_until_reaches_the_instant(self):
        clock = Clock(3600)
        instant = clock.now() + 30
        await clock.sleep_until(instant)
        assert clock.now() >= instant

    def test_rfc3339_formatting_and_parsing(self):
        assert rfc3339(1.9) == "1970-01-01T00:00:01Z"
        assert rfc3339_micro(1.25) == "1970-01-01T00:00:01.250000Z"
        assert parse_rfc3339("1970-01-01T00:00:01.250000Z") == 1.25

    def test_clock_rejects_speed_zero(self):
        with pytest.raises(ValueError, match="must be positive"):
            Clock(0)
