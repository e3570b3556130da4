"""Sandbox pods whose annotations make them stop late, never, or with an error."""

import asyncio
from contextlib import closing

import pytest
from job_cluster import NAMESPACE, parse, phases, started

from admission.sandbox.controllers import EXIT_CODE, START, STOP_SECONDS
from admission.sandbox.controllers.jobpods import FAILURES, IGNORED_FAILURES, INDEX

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def cluster():
    async with started() as running:
        yield running


class TestPodsThatMisbehave:
    """Behaviour of pods by their annotations; each test first waits until its pod has reached the state in question."""

    async def suspend_running_job(self, cluster, notes, *, run=None, count=2, grace=30):
        """Create a Job, suspend it once its pods run, and wait until its pods are terminating."""
        await cluster.node("n")
        pod = {"terminationGracePeriodSeconds": grace}
        await cluster.job("a", run=run, notes=notes, pod=pod, parallelism=count, completions=count)
        await cluster.status("a", active=count, ready=count)
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": True}})
        stopped = await cluster.status("a", conditions={"Suspended"})
        assert ("active" in stopped, stopped["terminating"], stopped["ready"]) == (False, count, 0)
        assert phases(cluster.pods()) == ["Running"] * count

    @pytest.mark.parametrize(("seconds", "grace"), [("5", 30), ("20", 4), ("grace", 12)])
    async def test_pods_stay_terminating_for_their_stop_seconds_or_grace_period(self, cluster, seconds, grace):
        await self.suspend_running_job(cluster, {STOP_SECONDS: seconds}, grace=grace)
        asked = max(parse(pod["metadata"]["deletionTimestamp"]) for pod in cluster.pods()) - grace
        await cluster.until(lambda: not cluster.pods())
        takes = grace if seconds == "grace" else int(seconds)
        assert cluster.now() - asked >= takes
        await cluster.status("a", terminating=0)

    async def test_job_resumed_while_pods_terminate_gets_new_pods_beside_them(self, cluster):
        await self.suspend_running_job(cluster, {STOP_SECONDS: "never"})
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": False}})
        await cluster.status("a", active=2, ready=2, terminating=2)
        assert phases(cluster.pods()) == ["Running"] * 4

    async def test_pod_that_never_stops_is_removed_by_forced_deletion(self, cluster):
        await self.suspend_running_job(cluster, {STOP_SECONDS: "never"}, count=1, grace=1)
        (pod,) = cluster.pods()
        await cluster.job("later", run="60")
        await cluster.status("later", conditions={"SuccessCriteriaMet", "Complete"})
        assert cluster.get_job("a")["status"]["terminating"] == 1
        await cluster.client.delete("pods", NAMESPACE, pod["metadata"]["name"], grace=0)
        await cluster.status("a", terminating=0)
        assert cluster.pods("a") == []

    async def test_job_past_its_deadline_with_unstoppable_pod_does_not_block_other_jobs(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None, notes={STOP_SECONDS: "never"}, activeDeadlineSeconds=30)
        await cluster.status("a", conditions={"FailureTarget"})
        await cluster.job("later", run="60")
        await cluster.status("later", conditions={"SuccessCriteriaMet", "Complete"})
        assert cluster.get_job("a")["status"]["terminating"] == 1

    async def test_pod_that_never_stops_ends_after_its_annotation_is_removed(self, cluster):
        await self.suspend_running_job(cluster, {STOP_SECONDS: "never"}, count=1)
        (pod,) = cluster.pods()
        patch = {"metadata": {"annotations": {STOP_SECONDS: None}}}
        await cluster.client.patch("pods", NAMESPACE, pod["metadata"]["name"], patch)
        await cluster.status("a", terminating=0)

    async def test_pod_that_ignores_termination_may_succeed_within_its_grace_period(self, cluster):
        ends = []
        with closing(cluster.client.watch("pods")) as watcher:
            await self.suspend_running_job(cluster, {STOP_SECONDS: "grace"}, run="60", count=1, grace=600)
            await cluster.status("a", terminating=0)
            async with asyncio.timeout(120):
                while "Succeeded" not in ends:
                    ends += [pod["status"]["phase"] for _, _, pod, _ in await anext(aiter(watcher))]
        assert "succeeded" not in cluster.get_job("a")["status"]

    async def test_pod_that_fails_at_start_never_runs_and_ends_with_start_error(self, cluster):
        await cluster.node("n")
        with closing(cluster.client.watch("pods")) as watcher:
            await cluster.job("a", notes={START: "fails"}, backoffLimit=0)
            failed = await cluster.status("a", conditions={"FailureTarget", "Failed"})
            seen = [pod["status"]["phase"] for _, _, pod, _ in await anext(aiter(watcher))]
        assert (failed["failed"], set(seen)) == (1, {"Pending", "Failed"})
        (pod,) = cluster.pods()
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)

    async def test_pod_with_unpullable_image_stays_pending_and_blocks_no_other_job(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="1", notes={START: "unpullable"})
        waiting = await cluster.until(lambda: [p for p in cluster.pods() if p["status"].get("containerStatuses")])
        assert phases(waiting) == ["Pending"]
        assert waiting[0]["spec"]["nodeName"] == "n"
        assert waiting[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        await cluster.job("later", run="60")
        await cluster.status("later", conditions={"SuccessCriteriaMet", "Complete"})
        assert phases(cluster.pods("a")) == ["Pending"]

    async def test_pod_that_never_becomes_ready_runs_to_completion(self, cluster):
        await cluster.node("n")
        with closing(cluster.client.watch("jobs")) as watcher:
            await cluster.job("a", run="5", notes={START: "unready"})
            await cluster.status("a", conditions={"SuccessCriteriaMet", "Complete"})
            seen = [job["status"].get("ready") for _, _, job, _ in await anext(aiter(watcher)) if "status" in job]
        assert set(seen) <= {None, 0}

    async def test_unscheduled_pod_reports_unschedulable_and_blocks_no_other_pod(self, cluster):
        await cluster.node("n")
        await cluster.job("a", notes={START: "unscheduled"})
        told = await cluster.until(lambda: [p for p in cluster.pods("a") if p["status"].get("conditions")])
        assert told[0]["status"]["conditions"][0]["reason"] == "Unschedulable"
        await cluster.job("b")
        await cluster.status("b", conditions={"SuccessCriteriaMet", "Complete"})
        assert "nodeName" not in cluster.pods("a")[0]["spec"]

    async def test_pod_fails_with_its_exit_code_after_its_run_seconds(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="20", code="7", backoffLimit=0)
        running = await cluster.status("a", active=1)
        failed = await cluster.status("a", conditions={"FailureTarget", "Failed"})
        (pod,) = cluster.pods()
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], failed["failed"]) == (7, 1)
        assert parse(ended["finishedAt"]) - parse(running["startTime"]) >= 20

    async def test_huge_grace_period_does_not_prevent_termination(self, cluster):
        await self.suspend_running_job(cluster, {}, count=1, grace=2**62)
        await cluster.status("a", terminating=0)
        assert cluster.pods() == []

    @pytest.mark.parametrize(
        ("note", "text"), [(INDEX, "9" * 5000), (FAILURES, "many"), (IGNORED_FAILURES, "-1"), (EXIT_CODE, "9" * 5000)]
    )
    async def test_invalid_number_in_pod_annotation_does_not_stop_the_controllers(self, cluster, note, text):
        await cluster.node("n")
        await cluster.job("a", run=None, completionMode="Indexed", completions=1, backoffLimitPerIndex=1)
        await cluster.status("a", active=1, ready=1)
        name = cluster.pods()[0]["metadata"]["name"]
        await cluster.client.patch("pods", NAMESPACE, name, {"metadata": {"annotations": {note: text}}})
        await cluster.client.delete("pods", NAMESPACE, name)
        await cluster.job("b", run="1")
        await cluster.status("b", conditions={"SuccessCriteriaMet", "Complete"})
        await cluster.until(lambda: name not in {pod["metadata"]["name"] for pod in cluster.pods("a")})
