"""Simulated controllers of custom kinds."""

import pytest
from custom_kinds import JOBSET, KINDS, jobset, served, until

from admission.sandbox.operators import serve_kinds
from admission.sandbox.sandbox import Sandbox


async def test_object_managed_by_another_controller_gets_no_children():
    kind = KINDS.get(*JOBSET)
    async with Sandbox(speed=60) as sandbox, served(sandbox, kind):
        user = sandbox.local("admin")
        other, own = (jobset(name, suspend=False) for name in ("other", "own"))
        other["spec"]["managedBy"] = "example.com/other"
        for each in (other, own):
            each["metadata"]["namespace"] = "default"
            await user.create("jobsets", "default", each)
        await until(user, "jobsets", "own", lambda each: "status" in each)  # written after its Jobs are created
        assert [each["metadata"]["name"] for each in user.list("jobs")] == ["own-driver-0", "own-workers-0"]
        assert "status" not in user.get("jobsets", "default", "other")


@pytest.mark.virtual_time
@pytest.mark.parametrize("operators", [True, False])
async def test_kind_that_is_served_without_its_operator_keeps_the_status_that_was_written(operators):
    async with (
        Sandbox(controllers=False) as sandbox,
        serve_kinds(sandbox, ["jobset.x-k8s.io/jobset"], operators=operators),
    ):
        user = sandbox.local("admin")
        await user.create("jobsets", "default", jobset("a", suspend=False))
        await user.patch("jobsets", "default", "a", {"status": {"restarts": 3}}, subresource="status")
        await sandbox.clock.sleep(60)  # an operator would act at once
        is_untouched = user.get("jobsets", "default", "a")["status"] == {"restarts": 3}
        assert is_untouched is not operators


async def test_failed_jobset_is_restarted_with_new_jobs_until_it_has_failed_too_often():
    kind = KINDS.get(*JOBSET)
    async with Sandbox(speed=60) as sandbox, served(sandbox, kind):
        user = sandbox.local("admin")
        amounts = {"cpu": "9", "memory": "9Gi", "pods": "9"}
        node = {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}}
        await user.create("nodes", "", {"metadata": node, "status": {"allocatable": amounts, "capacity": amounts}})
        failing = jobset("set", suspend=False, seconds=1)
        failing["metadata"]["namespace"] = "default"
        failing["spec"]["failurePolicy"] = {"maxRestarts": 1}
        driver = failing["spec"]["replicatedJobs"][0]["template"]["spec"]
        driver["backoffLimit"] = 0
        driver["template"]["metadata"]["annotations"]["sandbox.sluice.dev/exit-code"] = "1"
        await user.create("jobsets", "default", failing)
        first = await until(user, "jobs", "set-driver-0", lambda each: True)
        second = await until(
            user, "jobs", "set-driver-0", lambda each: each["metadata"]["uid"] != first["metadata"]["uid"]
        )
        assert second["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1"
        failed = await until(
            user, "jobsets", "set", lambda each: each.get("status", {}).get("terminalState") == "Failed"
        )
        assert failed["status"]["restarts"] == 1
        assert failed["status"]["conditions"][-1]["reason"] == "ReachedMaxRestarts"
