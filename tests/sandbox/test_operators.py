"""Simulated controllers of custom kinds."""

from copy import deepcopy

import pytest
from custom_kinds import JOBSET, KINDS, jobset, served, until

from admission.apimachinery.patches import merge_patch
from admission.sandbox.apiserver.errors import ApiError
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


@pytest.mark.virtual_time
async def test_operators_refuse_edits_of_what_they_hold_fixed():
    names = ("jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob", "workload.codeflare.dev/appwrapper")
    async with Sandbox(controllers=False) as sandbox, serve_kinds(sandbox, names):
        user = sandbox.local("admin")
        await sandbox.clock.sleep(1)  # the operators run

        async def edit(plural, name, **spec):
            return await user.patch(plural, "default", name, {"spec": spec})

        async def refused(plural, name, **spec):
            with pytest.raises(ApiError, match="field is immutable"):
                await edit(plural, name, **spec)

        made = jobset("a")
        roles = (await user.create("jobsets", "default", made | {"metadata": {"name": "a"}}))["spec"]["replicatedJobs"]
        placed = [merge_patch(each, PLACED) for each in roles]
        more = [{**each, "replicas": 5} for each in roles]
        await refused("jobsets", "a", replicatedJobs=more)
        await edit("jobsets", "a", replicatedJobs=placed)
        await edit("jobsets", "a", suspend=False)
        await refused("jobsets", "a", replicatedJobs=roles)
        await edit("jobsets", "a", replicatedJobs=roles, suspend=True)

        train = {"runtimeRef": {"kind": "TrainingRuntime", "name": "r"}, "trainer": {"numNodes": 1}}
        await user.create("trainjobs", "default", about("trainer.kubeflow.org/v1alpha1", "TrainJob", train))
        await refused("trainjobs", "a", trainer={"numNodes": 2})
        await edit("trainjobs", "a", suspend=True)

        component = {"template": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}}
        spec = {"suspend": True, "components": [component]}
        await user.create("appwrappers", "default", about("workload.codeflare.dev/v1beta2", "AppWrapper", spec))
        await refused("appwrappers", "a", components=[component, component])
        await edit("appwrappers", "a", components=[{**component, "podSetInfos": [{}]}])


PLACED = {"template": {"spec": {"template": {"spec": {"nodeSelector": {"pool": "x"}}}}}}


@pytest.mark.virtual_time
async def test_appwrapper_creates_what_it_wraps_and_stays_as_it_was_written():
    async with Sandbox() as sandbox, serve_kinds(sandbox, ["workload.codeflare.dev/appwrapper"]):
        user = sandbox.local("admin")
        wrapped = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}}}
        template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": wrapped}
        spec = {"suspend": False, "components": [{"template": template, "podSetInfos": [PLACED_PODS]}]}
        await user.create(
            "appwrappers", "default", about("workload.codeflare.dev/v1beta2", "AppWrapper", deepcopy(spec))
        )
        job = await until(user, "jobs", "job", lambda each: True)
        assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "x"}
        assert job["spec"]["template"]["metadata"]["labels"]["workload.codeflare.dev/appwrapper"] == "a"
        assert user.get("appwrappers", "default", "a")["spec"]["components"] == spec["components"]


PLACED_PODS = {"nodeSelector": {"pool": "x"}}


def about(api_version, kind, spec):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.virtual_time
async def test_rayservice_that_is_resumed_while_it_is_suspended_finishes_that_first_and_gets_a_new_cluster():
    async with Sandbox() as sandbox, serve_kinds(sandbox, ["ray.io/rayservice"]):
        user = sandbox.local("admin")

        async def clusters():
            await sandbox.clock.sleep(60)
            return [each["metadata"]["name"] for each in user.list("rayclusters")]

        cluster = {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}}}
        service = about("ray.io/v1", "RayService", {"suspend": False, "rayClusterConfig": cluster})
        await user.create("rayservices", "default", service)
        (old,) = await clusters()
        await user.patch("rayclusters", "default", old, {"metadata": {"finalizers": ["example.com/slow"]}})
        await user.patch("rayservices", "default", "a", {"spec": {"suspend": True}})
        assert await clusters() == [old]
        await user.patch("rayservices", "default", "a", {"spec": {"suspend": False}})
        assert await clusters() == [old]
        await user.patch("rayclusters", "default", old, {"metadata": {"finalizers": None}})
        (new,) = await clusters()
        assert new != old
