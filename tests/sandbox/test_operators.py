"""Simulated controllers of custom kinds."""

from custom_kinds import JOBSET, KINDS, jobset, pods_of, served, until

from admission.sandbox.sandbox import Sandbox


async def test_object_managed_by_another_controller_gets_no_pods():
    kind = KINDS.get(*JOBSET)
    async with Sandbox(speed=60) as sandbox, served(sandbox, kind):
        user = sandbox.local("admin")
        other, own = (jobset(name, suspend=False) for name in ("other", "own"))
        other["spec"]["managedBy"] = "example.com/other"
        for each in (other, own):
            each["metadata"]["namespace"] = "default"
        other = await user.create("jobsets", "default", other)
        own = await user.create("jobsets", "default", own)
        await until(user, "jobsets", "own", lambda each: "status" in each)  # written after its pods are created
        assert len(pods_of(user, own)) == 3
        assert pods_of(user, other) == []
        assert "status" not in user.get("jobsets", "default", "other")
