"""The sandbox's controllers on a real registry: Jobs, scheduling, simulated nodes, garbage collection, namespaces."""

import asyncio
from contextlib import closing
from functools import partial

import pytest
from job_cluster import NAMESPACE, SPEED, Cluster, phases, started

from admission.sandbox.admission.chain import ConfiguredAdmission
from admission.sandbox.apiserver.registry import ObjectRegistry
from admission.sandbox.apiserver.requests import User
from admission.sandbox.clock import Clock
from admission.sandbox.controllers import STOP_SECONDS, controllers
from admission.sandbox.controllers.collector import Collector
from admission.sandbox.controllers.jobpods import FAILURES, INDEX
from admission.sandbox.local import LocalClient

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def cluster():
    async with started() as running:
        yield running


class TestJobs:
    async def test_a_suspended_job_starts_when_it_is_resumed_and_runs_to_its_end(self, cluster):
        await cluster.node("n")
        await cluster.job("a", suspend=True, completions=3, parallelism=2)
        waiting = await cluster.status("a", conditions={"Suspended"})
        assert "startTime" not in waiting
        assert cluster.pods() == []
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": False}})
        running = await cluster.status("a", active=2, ready=2)
        assert "startTime" in running
        done = await cluster.status("a", conditions={"SuccessCriteriaMet", "Complete"})
        assert (done["succeeded"], done["ready"], done["terminating"]) == (3, 0, 0)
        assert phases(cluster.pods()) == ["Succeeded"] * 3
        assert not any("finalizers" in pod["metadata"] for pod in cluster.pods())
        await cluster.until(lambda: cluster.events("Completed"))
        assert len(cluster.events("SuccessfulCreate")) == 3
        assert [len(cluster.events(reason)) for reason in ("Suspended", "Resumed")] == [1, 1]

    async def test_suspending_running_job_deletes_its_pods_without_counting_failures(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None, completions=2, parallelism=2)
        await cluster.status("a", ready=2)
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": True}})
        stopped = await cluster.status("a", conditions={"Suspended"})
        assert "startTime" not in stopped
        assert (stopped.get("active"), stopped["terminating"]) == (None, 2)
        gone = await cluster.status("a", terminating=0)
        assert "failed" not in gone
        assert cluster.pods() == []

    async def test_a_suspended_job_that_needs_no_more_pods_ends_when_it_is_resumed(self, cluster):
        await cluster.job("a", suspend=True, completionMode="Indexed", completions=2, parallelism=2)
        await cluster.status("a", conditions={"Suspended"})
        job = cluster.get_job("a")
        done = {**job["status"], "succeeded": 1, "completedIndexes": "0"}
        await cluster.client.update("jobs", NAMESPACE, {**job, "status": done}, subresource="status")
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"completions": 1, "parallelism": 1}})
        await cluster.job("b", suspend=True)  # the controller continues with other Jobs
        await cluster.status("b", conditions={"Suspended"})
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": False}})
        assert "startTime" in await cluster.status("a", conditions={"Suspended", "SuccessCriteriaMet", "Complete"})

    async def test_job_with_rejected_status_update_does_not_block_other_jobs(self, cluster):
        await cluster.node("n")
        await cluster.job("a", suspend=True, completionMode="Indexed", completions=3, parallelism=2)
        await cluster.status("a", conditions={"Suspended"})
        job = cluster.get_job("a")
        told = {**job["status"], "succeeded": 2, "completedIndexes": "0"}  # the API server rejects a lower count
        await cluster.client.update("jobs", NAMESPACE, {**job, "status": told}, subresource="status")
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": False}})
        await cluster.job("b", run="1")
        await cluster.status("b", conditions={"SuccessCriteriaMet", "Complete"})

    async def test_failing_job_is_retried_until_its_backoff_limit(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="1", code="3", backoffLimit=1)
        failed = await cluster.status("a", conditions={"FailureTarget", "Failed"})
        assert failed["failed"] == 2
        assert cluster.get_job("a")["status"]["conditions"][-1]["reason"] == "BackoffLimitExceeded"
        assert phases(cluster.pods()) == ["Failed", "Failed"]

    async def test_each_failed_index_is_retried_up_to_backoff_limit_per_index(self, cluster):
        await cluster.node("n")
        spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1}
        await cluster.job("a", run="1", code="3", **spec)
        failed = await cluster.status("a", conditions={"FailureTarget", "Failed"})
        assert (failed["failedIndexes"], failed["failed"]) == ("0,1", 4)
        notes = [pod["metadata"]["annotations"] for pod in cluster.pods()]
        tries = sorted((note[INDEX], note[FAILURES]) for note in notes)
        assert tries == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]

    async def test_deleted_pod_under_replacement_policy_failed_is_replaced_once_it_has_ended(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None, notes={STOP_SECONDS: "never"}, podReplacementPolicy="Failed")
        await cluster.status("a", ready=1)
        (first,) = (pod["metadata"]["name"] for pod in cluster.pods())
        await cluster.client.delete("pods", NAMESPACE, first)
        await cluster.status("a", terminating=1)
        await cluster.job("later", run="60")
        await cluster.status("later", conditions={"SuccessCriteriaMet", "Complete"})
        assert [pod["metadata"]["name"] for pod in cluster.pods("a")] == [first]

        patch = {"metadata": {"annotations": {STOP_SECONDS: None}}}
        await cluster.client.patch("pods", NAMESPACE, first, patch)
        replaced = await cluster.status("a", ready=1, failed=1, terminating=0)
        assert replaced["active"] == 1
        (second,) = (pod["metadata"]["name"] for pod in cluster.pods("a"))
        assert second != first

    async def test_active_deadline_stops_pods_before_the_job_is_marked_failed(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None, activeDeadlineSeconds=20)
        await cluster.status("a", conditions={"FailureTarget"}, terminating=1)
        await cluster.status("a", conditions={"FailureTarget", "Failed"}, terminating=0, failed=1)

    async def test_finished_job_and_its_pods_are_deleted_after_ttl(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="1", ttlSecondsAfterFinished=5)
        await cluster.status("a", conditions={"SuccessCriteriaMet", "Complete"})
        await cluster.until(lambda: cluster.get_job("a") is None and not cluster.pods())

    async def test_rejected_pod_creation_is_reported_as_event_and_retried(self, cluster):
        limits = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
        await cluster.client.create("limitranges", NAMESPACE, {"metadata": {"name": "small"}, "spec": limits})
        await cluster.node("n")
        await cluster.job("a", cpu="2", run="1")
        await cluster.until(lambda: cluster.events("FailedCreate"))
        assert cluster.pods() == []
        await cluster.client.delete("limitranges", NAMESPACE, "small")
        await cluster.status("a", succeeded=1)

    async def test_job_managed_by_another_controller_is_ignored(self, cluster):
        await cluster.node("n")
        await cluster.job("other", managedBy="example.com/other")
        await cluster.job("own", run="1")
        await cluster.status("own", succeeded=1)
        assert cluster.get_job("other").get("status") in (None, {})
        assert cluster.pods("other") == []


class TestScheduling:
    async def test_unschedulable_pod_gets_its_condition_once_and_runs_when_capacity_is_free(self, cluster):
        await cluster.node("n", cpu="2")
        await cluster.job("a", completions=3, parallelism=3)

        def told():
            waiting = [pod for pod in cluster.pods() if "nodeName" not in pod["spec"]]
            return waiting and waiting[0]["status"].get("conditions") and waiting[0]

        blocked = await cluster.until(told)
        assert blocked["status"]["conditions"][0]["reason"] == "Unschedulable"
        version = blocked["metadata"]["resourceVersion"]
        await cluster.node("elsewhere", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
        await cluster.until(lambda: cluster.client.get("nodes", "", "elsewhere")["status"].get("conditions"))
        assert told()["metadata"]["resourceVersion"] == version
        await cluster.status("a", succeeded=3)
        assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"n"}

    async def test_node_selectors_and_tolerations_choose_the_node(self, cluster):
        taint = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
        await cluster.node("plain")
        await cluster.node("tainted", taints=[taint])
        tolerating = {"nodeSelector": {"name": "tainted"}, "tolerations": [{"key": taint["key"], "operator": "Exists"}]}
        await cluster.job("a", run="1", pod=tolerating)
        await cluster.job("b", run="1", completions=4, parallelism=4)
        await cluster.status("a", succeeded=1)
        await cluster.status("b", succeeded=4)
        assert {pod["spec"]["nodeName"] for pod in cluster.pods("a")} == {"tainted"}
        assert {pod["spec"]["nodeName"] for pod in cluster.pods("b")} == {"plain"}

    async def test_pod_with_higher_priority_is_scheduled_first_when_capacity_is_scarce(self, cluster):
        await cluster.client.create("priorityclasses", "", {"metadata": {"name": "urgent"}, "value": 1000})
        await cluster.job("filler", run=None, cpu="4")
        await cluster.node("n")
        await cluster.status("filler", ready=1)
        await cluster.job("early", run=None, cpu="4")
        await cluster.job("urgent", run=None, cpu="4", pod={"priorityClassName": "urgent"})
        await cluster.until(lambda: cluster.pods("early") and cluster.pods("urgent"))
        await cluster.client.delete("jobs", NAMESPACE, "filler", propagation="Background")
        await cluster.status("urgent", ready=1)
        assert "nodeName" not in cluster.pods("early")[0]["spec"]

    async def test_gated_pod_is_scheduled_only_after_its_gates_are_removed(self, cluster):
        await cluster.node("n")
        await cluster.job("gated", run="1", pod={"schedulingGates": [{"name": "example.com/g"}]})
        await cluster.job("open", run="1")
        await cluster.status("open", succeeded=1)
        pod = cluster.pods("gated")[0]
        assert "nodeName" not in pod["spec"]
        await cluster.client.patch("pods", NAMESPACE, pod["metadata"]["name"], {"spec": {"schedulingGates": None}})
        await cluster.status("gated", succeeded=1)

    async def test_pod_with_node_name_fails_with_out_of_cpu_while_the_node_lacks_capacity(self, cluster):
        await cluster.node("n", cpu="2")
        await cluster.job("first", run=None)
        await cluster.status("first", ready=1)
        await cluster.job("greedy", cpu="2", pod={"nodeName": "n"}, backoffLimit=0)
        await cluster.status("greedy", failed=1)
        assert [pod["status"]["reason"] for pod in cluster.pods("greedy")] == ["OutOfcpu"]
        await cluster.job("other", run="1")
        await cluster.status("other", succeeded=1)
        await cluster.client.delete("jobs", NAMESPACE, "first", propagation="Background")
        await cluster.until(lambda: not cluster.pods("first"))
        await cluster.job("modest", run="1", cpu="2", pod={"nodeName": "n"})
        await cluster.status("modest", succeeded=1)

    async def test_nodes_that_are_not_simulated_and_pods_bound_to_them_are_ignored(self, cluster):
        await cluster.node("foreign", pretend=False)
        await cluster.job("a", run="1")
        await cluster.until(cluster.pods)
        pod = cluster.pods()[0]
        await cluster.client.bind(NAMESPACE, pod["metadata"]["name"], "foreign")
        await cluster.node("own")
        await cluster.job("b", run="1", completions=4, parallelism=4)
        await cluster.status("b", succeeded=4)
        assert phases(cluster.pods("a")) == ["Pending"]
        assert {pod["spec"]["nodeName"] for pod in cluster.pods("b")} == {"own"}

    async def test_pods_of_deleted_node_are_replaced(self, cluster):
        await cluster.node("first")
        await cluster.job("a", run=None)
        await cluster.status("a", ready=1)
        await cluster.client.delete("nodes", "", "first")
        await cluster.node("second")
        await cluster.status("a", failed=1, ready=1)
        assert [pod["spec"]["nodeName"] for pod in cluster.pods()] == ["second"]


class TestDeletion:
    async def test_background_deletion_of_job_deletes_its_pods_and_frees_the_node(self, cluster):
        await cluster.node("n", cpu="1")
        await cluster.job("a", run=None)
        await cluster.status("a", ready=1)
        await cluster.job("next", run="1")
        await cluster.client.delete("jobs", NAMESPACE, "a", propagation="Background")
        assert cluster.get_job("a") is None
        await cluster.status("next", succeeded=1)
        assert cluster.pods("a") == []

    async def test_a_foreground_deletion_waits_for_the_pods(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None)
        await cluster.status("a", ready=1)
        await cluster.client.delete("jobs", NAMESPACE, "a", propagation="Foreground")
        await cluster.until(lambda: "deletionTimestamp" in cluster.pods()[0]["metadata"])
        assert cluster.get_job("a") is not None
        await cluster.until(lambda: cluster.get_job("a") is None)
        assert cluster.pods() == []

    async def test_pods_of_job_deleted_with_orphan_propagation_run_to_completion(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="30")
        await cluster.status("a", ready=1)
        await cluster.client.delete("jobs", NAMESPACE, "a", propagation="Orphan")
        await cluster.until(lambda: phases(cluster.pods()) == ["Succeeded"])
        assert cluster.get_job("a") is None
        assert not {"ownerReferences", "finalizers"} & cluster.pods()[0]["metadata"].keys()

    @pytest.mark.parametrize("propagation", ["Orphan", "Foreground"])
    async def test_object_without_its_owner_reference_survives_the_deletion_of_the_owner(self, propagation):
        clock = Clock(SPEED)
        cluster = Cluster(clock)  # its controllers are not started
        collector = Collector(cluster.local("collector"), clock)
        await cluster.client.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
        owner = await cluster.client.create("configmaps", NAMESPACE, {"metadata": {"name": "owner"}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        metadata = {"name": "owned", "ownerReferences": [reference], "finalizers": ["example.com/keep"]}
        owned = await cluster.client.create("configmaps", NAMESPACE, {"metadata": metadata})
        for obj in (owner, owned):
            collector.observe("configmaps", "ADDED", obj, None)
        await cluster.client.delete("configmaps", NAMESPACE, "owner", propagation=propagation)
        await cluster.client.patch("configmaps", NAMESPACE, "owned", {"metadata": {"ownerReferences": None}})
        await collector.sync(owner["metadata"]["uid"])
        assert cluster.client.get("configmaps", NAMESPACE, "owner") is None
        assert cluster.client.get("configmaps", NAMESPACE, "owned") is not None

    async def test_object_is_collected_with_its_last_owner_and_kept_while_an_owner_remains(self, cluster):
        for name in ("x", "y"):
            await cluster.client.create("configmaps", NAMESPACE, {"metadata": {"name": name}})
        owners = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": found["metadata"]["uid"]}
            for name in ("x", "y")
            if (found := cluster.client.get("configmaps", NAMESPACE, name)) is not None
        ]
        for name, references in (("both", owners), ("one", owners[:1])):
            metadata = {"name": name, "ownerReferences": references}
            await cluster.client.create("secrets", NAMESPACE, {"metadata": metadata})
        await cluster.client.delete("configmaps", NAMESPACE, "x")

        def settled():
            both = cluster.client.get("secrets", NAMESPACE, "both")
            return cluster.client.get("secrets", NAMESPACE, "one") is None and both["metadata"]["ownerReferences"]

        with closing(cluster.client.watch("secrets")) as watcher:
            async for _ in watcher:
                if kept := settled():
                    break
        assert kept == owners[1:]

    async def test_job_is_deleted_with_the_custom_resource_that_owns_it(self, cluster):
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        names = {"plural": "trainings", "singular": "training", "kind": "Training", "listKind": "TrainingList"}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        await cluster.client.create(
            "customresourcedefinitions", "", {"metadata": {"name": "trainings.example.com"}, "spec": spec}
        )
        training = {"apiVersion": "example.com/v1", "kind": "Training", "metadata": {"name": "t"}}
        owner = await cluster.client.create("trainings", NAMESPACE, training)
        reference = {**training, "name": "t", "uid": owner["metadata"]["uid"], "controller": True}
        del reference["metadata"]
        await cluster.job("a", run=None)
        await cluster.client.patch("jobs", NAMESPACE, "a", {"metadata": {"ownerReferences": [reference]}})
        await cluster.until(cluster.pods)
        await cluster.client.delete("trainings", NAMESPACE, "t")
        await cluster.until(lambda: cluster.get_job("a") is None and not cluster.pods())

    async def test_namespace_is_removed_after_all_its_objects_are_gone(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None)
        await cluster.status("a", ready=1)
        metadata = {"name": "held", "finalizers": ["example.com/hold"]}
        await cluster.client.create("configmaps", NAMESPACE, {"metadata": metadata})
        await cluster.client.delete("namespaces", "", NAMESPACE)

        def reasons():
            conditions = cluster.client.get("namespaces", "", NAMESPACE)["status"].get("conditions", ())
            return {entry["type"]: entry["reason"] for entry in conditions}

        await cluster.until(lambda: reasons().get("NamespaceFinalizersRemaining") == "SomeFinalizersRemain")
        await cluster.client.patch("configmaps", NAMESPACE, "held", {"metadata": {"finalizers": None}})
        await cluster.until(lambda: cluster.client.get("namespaces", "", NAMESPACE) is None)
        assert cluster.pods() == []


class TestRunning:
    async def test_failing_controller_stops_the_sandbox(self):
        clock = Clock()
        empty = ObjectRegistry(
            clock, partial(ConfiguredAdmission, delay=0)
        )  # serves nothing, so that there is nothing to watch
        with pytest.raises(ExceptionGroup, match="a part of the sandbox failed"):
            async with controllers(lambda user: LocalClient(empty, User(user)), clock):
                await asyncio.Event().wait()

    async def test_exception_for_one_object_is_logged_and_retried_and_stops_no_other(self, controller_errors):
        """A pod without an image, which the API rejects, is here any object that a controller cannot process."""
        async with started() as cluster:
            await cluster.node("n")
            pods = cluster.registry.resources["", "v1", "pods"]
            spec = {"nodeName": "n", "containers": [{"name": "main", "resources": {}}]}
            odd = {"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"phase": "Pending"}}
            odd["metadata"] = {"name": "odd", "namespace": NAMESPACE}
            pods.strategy.default(odd)
            cluster.registry.seed(pods, odd)
            await cluster.job("good", run="1")
            await cluster.status("good", conditions={"SuccessCriteriaMet", "Complete"})
            image = {"spec": {"containers": [{"name": "main", "image": "pause"}]}}
            await cluster.client.patch("pods", NAMESPACE, "odd", image)
            await cluster.until(lambda: cluster.client.get("pods", NAMESPACE, "odd")["status"]["phase"] == "Running")
        assert "Kubelet could not reconcile" in controller_errors[0]
        assert "KeyError: 'image'" in controller_errors[0]
        controller_errors.clear()

    async def test_exception_in_the_with_block_is_raised_unwrapped(self):
        with pytest.raises(KeyError):
            async with started():
                raise KeyError("mine")

    @pytest.mark.costly
    async def test_hundred_jobs_stay_within_the_expected_number_of_writes(self):
        async with started() as cluster:
            for number in range(10):
                await cluster.node(f"n{number}", cpu="100")
            before = cluster.registry.store.revision
            for number in range(100):
                await cluster.job(f"j{number}", run="60", completions=5, parallelism=5)
            await cluster.until(lambda: len(cluster.events("Completed")) == 100)
            writes = cluster.registry.store.revision - before
        # For each pod: creation, event, binding, start, end, finalizer; for each Job: creation, start, readiness,
        # counts, completion, event, and a few intermediate counts if its pods start or end at different times.
        assert writes <= 100 * (5 * 6 + 16)
