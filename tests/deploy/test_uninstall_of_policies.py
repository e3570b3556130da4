"""An API server goes by its admission policies for a second after they were deleted."""

from __future__ import annotations

import asyncio

from click.testing import CliRunner

from admission.cli.main import main
from admission.sandbox.sandbox import Sandbox

NAME = "jobs.keep.sluice.dev"


async def test_what_a_policy_denies_for_a_moment_is_given_back_all_the_same(tmp_path):
    async with Sandbox(controllers=False) as sandbox:
        admin = sandbox.local("admin")
        rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
        spec = {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.spec.suspend", "reason": "Forbidden"}],
        }
        binding = {"policyName": NAME, "validationActions": ["Deny"]}
        # Without the label of what Sluice registers: this test deletes them, when they have denied something.
        await admin.create("validatingadmissionpolicies", "", {"metadata": {"name": NAME}, "spec": spec})
        await admin.create("validatingadmissionpolicybindings", "", {"metadata": {"name": NAME}, "spec": binding})
        waiting = {
            "metadata": {"name": "waiting", "annotations": {"sluice.dev/submitted-by": "alice"}},
            "spec": {
                "suspend": True,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}},
            },
        }
        await admin.create("jobs", "default", waiting)
        sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        arguments = ["uninstall", "--restore", "--yes", "--kubeconfig", str(tmp_path / "kubeconfig")]
        running = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, main, arguments))
        while not running.done() and not sandbox.requests["PATCH", "jobs", "admin"]:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.02)
        await admin.delete("validatingadmissionpolicybindings", "", NAME)
        done = await running
        assert (done.exit_code, done.output.splitlines()[-1]) == (0, "done")
        assert admin.get("jobs", "default", "waiting")["spec"]["suspend"] is False
