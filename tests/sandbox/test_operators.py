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
