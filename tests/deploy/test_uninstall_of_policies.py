"""Uninstallation while an API server still applies deleted admission policies, which it does for about a second."""

from __future__ import annotations

import asyncio

from click.testing import CliRunner

from admission.cli.main import main
from admission.sandbox.sandbox import Sandbox

NAME = "jobs.keep.sluice.dev"


async def test_uninstall_retries_the_unsuspension_that_a_policy_denies_temporarily(tmp_path):
    async with Sandbox(controllers=False) as sandbox:
        admin = sandbox.local("admin")
        rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
        spec = {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.spec.suspend", "reason": "Forbidden"}],
        }
        binding = {"policyName": NAME, "validationActions": ["Deny"]}
        # Without Sluice's label, so that the uninstallation keeps them: the test deletes the binding after a denial.
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
        while not running.done() and not sandbox.requests["PATCH", "jobs", "admin"]:  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.02)
        await admin.delete("validatingadmissionpolicybindings", "", NAME)
        done = await running
        assert (done.exit_code, done.output.splitlines()[-1]) == (0, "done")
        assert admin.get("jobs", "default", "waiting")["spec"]["suspend"] is False
