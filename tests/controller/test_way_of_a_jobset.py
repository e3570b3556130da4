"""Lifecycle of a JobSet, a kind defined as data, whose CustomResourceDefinition is installed and removed."""

from __future__ import annotations

import pytest
from custom_kinds import JOBSET, KINDS, jobset, pods_of, served, until
from grouped_kinds import pods_until, running
from job_examples import TOLERATION, job, runs

from admission.model import child_sentences, sentences

JOBSETS = KINDS.get(*JOBSET)


def started(obj):
    return obj["spec"]["suspend"] is False


def is_ready(obj):
    return JOBSETS.observe(obj).ready


def replaces_finished(obj):
    return obj["spec"]["podReplacementPolicy"] == "Failed"


def conditions(obj):
    return {each["type"]: each["status"] for each in obj.get("status", {}).get("conditions", ())}


@pytest.fixture
async def sluice(world):
    """A running Sluice for Jobs and JobSets, with 4 CPUs; JobSet's definition is not installed yet."""
    await world.begin(kinds=KINDS)
    return world


async def test_missing_jobset_definition_does_not_delay_jobs(sluice):
    await sluice.submit(job("a"))
    await sluice.job("a", runs)
    assert "jobsets" not in sluice.controller.watches.informers()
    assert not [key for key in sluice.client.requests if "jobsets" in key[1]]


async def test_jobset_is_started_by_one_patch_and_releases_quota_when_completed(sluice):
    async with served(sluice.sandbox, JOBSETS):
        await sluice.user.create("jobsets", "team-a", jobset("a", seconds=60))
        running = await until(sluice.user, "jobsets", "a", started)
        for replicated in running["spec"]["replicatedJobs"]:
            template = replicated["template"]["spec"]["template"]
            assert template["spec"]["nodeSelector"] == {"type": "kwok"}
            assert template["spec"]["tolerations"] == [TOLERATION]
        admitted = await sluice.record("a", "admitted")
        assert [(each.name, each.usage, each.count) for each in admitted.admission.pod_sets] == [
            ("driver", {"cpu": 1000}, 1),
            ("workers", {"cpu": 2000}, 2),
        ]
        assert (admitted.workload.kind, admitted.workload.api_version) == ("JobSet", "jobset.x-k8s.io/v1alpha2")
        await until(sluice.user, "jobsets", "a", is_ready)
        await until(sluice.user, "jobsets", "a", lambda obj: conditions(obj).get("Completed") == "True")
        finished = await sluice.record("a", "finished")
        assert finished.outcome == "Succeeded"
        assert sluice.controller.writer.outcomes == {"ok": 1}
        await sluice.submit(job("next", cpu="4"))
        await sluice.job("next", runs)


async def test_pod_that_its_deleted_job_has_left_is_named_while_it_holds_quota(sluice):
    async with served(sluice.sandbox, JOBSETS):
        await sluice.user.create("jobsets", "team-a", jobset("a"))
        running = await until(sluice.user, "jobsets", "a", is_ready)
        jobs = sluice.user.controlled_by("jobs", running["metadata"]["uid"])
        (driver,) = [each for each in jobs if "driver" in each["metadata"]["name"]]
        (pod,) = sluice.user.controlled_by("pods", driver["metadata"]["uid"])
        await sluice.user.delete("jobs", "team-a", driver["metadata"]["name"], propagation="Orphan")
        await sluice.order("a", held=True)
        name = pod["metadata"]["name"]

        async def named() -> bool:
            return (await sluice.store.workloads.get("team-a", "a")).message == sentences.left_pods("team-a", [name])

        await sluice.eventually(named)
        assert f"kubectl delete pod -n team-a {name}" in sentences.left_pods("team-a", [name])
        await sluice.user.delete("pods", "team-a", name)
        await sluice.record("a", "pending", reason="OnHold")


async def test_deleted_jobset_holds_quota_until_its_orphaned_pods_are_gone(sluice):
    async with served(sluice.sandbox, JOBSETS):
        await sluice.user.create("jobsets", "team-a", jobset("a"))
        running = await until(sluice.user, "jobsets", "a", is_ready)
        await sluice.submit(job("next", cpu="3"))
        await sluice.record("next", "pending", reason="WaitingForQuota")
        assert len(pods_of(sluice.user, running)) == 3
        await sluice.user.delete("jobsets", "team-a", "a", propagation="Orphan")
        evicting = await sluice.record("a", "evicting")
        assert evicting.admission is not None
        for name in ("a-driver-0", "a-workers-0"):  # they run on
            await sluice.user.delete("jobs", "team-a", name, propagation="Background")
        assert (await sluice.record("a", "finished")).outcome == "Deleted"
        await sluice.job("next", runs)


@pytest.mark.costly
async def test_running_jobset_scaled_up_by_user_is_evicted(sluice):
    async with served(sluice.sandbox, JOBSETS):
        created = await sluice.user.create("jobsets", "team-a", jobset("a"))
        running = await until(sluice.user, "jobsets", "a", is_ready)
        more = running["spec"]["replicatedJobs"]
        more[1]["replicas"] = 5
        await sluice.user.patch("jobsets", "team-a", "a", {"spec": {"replicatedJobs": more}})
        waiting = await sluice.record("a", "pending", reason="ExceedsMaxQuota")
        assert "11 CPU (default)" in waiting.message
        assert created["metadata"]["uid"] == waiting.workload.uid


async def limited(sluice, name):
    """Wait until an Event about an object says that more pods were taken back."""

    async def look():
        found = (await sluice.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
        return [each for each in found if (each["regarding"]["name"], each["reason"]) == (name, "Limited")]

    return await sluice.eventually(look)


def pods_at_a_time(number):
    return {"spec": {"parallelism": number, "completions": number}}


async def test_child_job_edited_to_have_more_pods_gets_back_those_of_its_running_jobset(sluice):
    """Its Jobs have no queue label, so that no webhook sees the edit."""
    async with served(sluice.sandbox, JOBSETS):
        created = await sluice.user.create("jobsets", "team-a", jobset("a"))
        await until(sluice.user, "jobsets", "a", is_ready)
        before = {each["metadata"]["uid"] for each in pods_of(sluice.user, created)}
        await sluice.user.patch("jobs", "team-a", "a-workers-0", pods_at_a_time(9))
        few = await sluice.job("a-workers-0", lambda each: each["spec"]["parallelism"] == 2)
        assert few["spec"]["completions"] == 2
        await pods_until(sluice.user, "team-a", lambda found: len(found) == 3)
        assert before == {each["metadata"]["uid"] for each in pods_of(sluice.user, created)}
        (event,) = await limited(sluice, "a")
        assert event["note"] == child_sentences.more_than_owner_holds("JobSet a")
        assert (await limited(sluice, "a-workers-0"))[0]["note"] == event["note"]
        await sluice.user.patch("jobs", "team-a", "a-workers-0", pods_at_a_time(1))  # fewer are its user's business
        await pods_until(sluice.user, "team-a", lambda found: len(found) == 2)


async def test_child_job_that_was_edited_while_sluice_was_down_gets_back_the_pods_of_its_jobset(sluice):
    async with served(sluice.sandbox, JOBSETS):
        await sluice.user.create("jobsets", "team-a", jobset("a"))
        await until(sluice.user, "jobsets", "a", is_ready)
        await sluice.end()
        await sluice.user.patch("jobs", "team-a", "a-workers-0", pods_at_a_time(9))
        await pods_until(sluice.user, "team-a", lambda found: len(found) == 10)
        await sluice.start(kinds=KINDS)
        await sluice.job("a-workers-0", lambda each: each["spec"]["parallelism"] == 2)
        await pods_until(sluice.user, "team-a", lambda found: len(found) == 3)
        assert await limited(sluice, "a")


@pytest.mark.costly
async def test_jobsets_stay_unchanged_while_their_integration_is_disabled(sluice):
    async with served(sluice.sandbox, JOBSETS):
        await sluice.user.create("jobsets", "team-a", jobset("runs"))
        await until(sluice.user, "jobsets", "runs", is_ready)
        await sluice.user.create("jobsets", "team-a", jobset("waits"))
        await sluice.record("waits", "pending", reason="WaitingForQuota")
        await sluice.end()
        await sluice.start()
        waits = await sluice.record("waits", "pending", reason="Misconfigured")
        assert waits.message == (
            "jobset.x-k8s.io/jobset is not among the enabled integrations: its object is left as it is. "
            "An admin can enable it."
        )
        assert (await sluice.record("runs", "admitted")).admission is not None
        assert started(sluice.user.get("jobsets", "team-a", "runs"))
        await sluice.end()
        await sluice.start(kinds=KINDS)
        await sluice.user.delete("jobsets", "team-a", "runs")
        await until(sluice.user, "jobsets", "waits", is_ready)


@pytest.mark.costly
async def test_children_of_a_running_object_run_on_while_its_kind_is_taken_out(sluice):
    """In a managed namespace the webhook has given them a queue label: without their owner they would be queued."""
    async with served(sluice.sandbox, JOBSETS):
        await sluice.user.create("jobsets", "team-a", jobset("a"))
        await until(sluice.user, "jobsets", "a", is_ready)
        await sluice.end()
        labels = job("a-workers-0")["metadata"]["labels"]
        await sluice.user.patch("jobs", "team-a", "a-workers-0", {"metadata": {"labels": labels}})
        await sluice.start()
        await sluice.submit(job("other", cpu="2"))
        await sluice.record("other", "pending", reason="WaitingForQuota")
        assert sluice.user.get("jobs", "team-a", "a-workers-0")["spec"]["suspend"] is False
        names = [each.workload.name for each in (await sluice.store.workloads.list(namespace="team-a")).workloads]
        assert sorted(names) == ["a", "other"]
        await sluice.end()
        await sluice.start(kinds=KINDS)
        await sluice.user.delete("jobsets", "team-a", "a")
        await sluice.job("other", runs)


async def test_deletion_of_jobset_definition_ends_its_workloads_and_informer(sluice):
    async with served(sluice.sandbox, JOBSETS):
        await sluice.user.create("jobsets", "team-a", jobset("a"))
        await until(sluice.user, "jobsets", "a", is_ready)
    await sluice.user.delete("customresourcedefinitions", "", "jobsets.jobset.x-k8s.io")
    for name in ("a-driver-0", "a-workers-0"):
        await sluice.user.delete("jobs", "team-a", name, propagation="Background")
    assert (await sluice.record("a", "finished")).outcome == "Deleted"

    async def let_go():
        return "jobsets" not in sluice.controller.watches.informers()

    await sluice.eventually(let_go)
    await sluice.submit(job("next", cpu="4"))
    await sluice.job("next", runs)


async def test_deleted_pods_of_a_jobset_are_replaced_when_terminated(sluice):
    async with served(sluice.sandbox, JOBSETS):
        made = jobset("a", workers=1)
        for role in made["spec"]["replicatedJobs"]:
            template = role["template"]["spec"]["template"]
            template["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "never"
        await sluice.user.create("jobsets", "team-a", made)
        before = await pods_until(sluice.user, "team-a", running(3))
        for name in before:
            await sluice.user.delete("pods", "team-a", name)
        for name in ("a-driver-0", "a-workers-0"):
            await sluice.job(name, replaces_finished)
        back = {"spec": {"podReplacementPolicy": "TerminatingOrFailed"}}
        patched = await sluice.user.patch("jobs", "team-a", "a-workers-0", back)
        generation = patched["metadata"]["generation"]
        await sluice.job("a-workers-0", lambda obj: obj["metadata"]["generation"] > generation)
        await sluice.job("a-workers-0", replaces_finished)
        for name in before:
            await sluice.user.delete("pods", "team-a", name, grace=0)
        await pods_until(sluice.user, "team-a", lambda found: len(found) == 3 and not found.keys() & before.keys())
