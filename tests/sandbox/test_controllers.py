"""The pretend controllers at work on a real registry: Jobs, pods on pretend nodes, garbage, namespaces."""

import asyncio
from contextlib import closing
from functools import partial

import pytest
from job_cluster import NAMESPACE, SPEED, Cluster, phases, started

from admission.sandbox.admission.chain import Admission
from admission.sandbox.apiserver.registry import Registry
from admission.sandbox.apiserver.requests import User
from admission.sandbox.clock import Clock
from admission.sandbox.controllers import controllers
from admission.sandbox.controllers.collector import Collector
from admission.sandbox.local import LocalClient


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

    async def test_suspending_a_running_job_stops_its_pods_and_counts_none(self, cluster):
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
        await cluster.job("b", suspend=True)  # goes on to look at others
        await cluster.status("b", conditions={"Suspended"})
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": False}})
        assert "startTime" in await cluster.status("a", conditions={"Suspended", "SuccessCriteriaMet", "Complete"})

    async def test_a_job_whose_status_cannot_be_written_stops_no_other(self, cluster):
        await cluster.node("n")
        await cluster.job("a", suspend=True, completionMode="Indexed", completions=3, parallelism=2)
        await cluster.status("a", conditions={"Suspended"})
        job = cluster.get_job("a")
        told = {**job["status"], "succeeded": 2, "completedIndexes": "0"}  # and no controller may take one away
        await cluster.client.update("jobs", NAMESPACE, {**job, "status": told}, subresource="status")
        await cluster.client.patch("jobs", NAMESPACE, "a", {"spec": {"suspend": False}})
        await cluster.job("b", run="1")
        await cluster.status("b", conditions={"SuccessCriteriaMet", "Complete"})

    async def test_a_failing_job_is_tried_again_and_given_up(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="1", code="3", backoffLimit=1)
        failed = await cluster.status("a", conditions={"FailureTarget", "Failed"})
        assert failed["failed"] == 2
        assert cluster.get_job("a")["status"]["conditions"][-1]["reason"] == "BackoffLimitExceeded"
        assert phases(cluster.pods()) == ["Failed", "Failed"]

    async def test_each_index_has_its_own_tries(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="1", code="3", completionMode="Indexed", completions=1, backoffLimitPerIndex=1)
        failed = await cluster.status("a", conditions={"FailureTarget", "Failed"})
        assert (failed["failedIndexes"], failed["failed"]) == ("0", 2)
        tries = [
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] for pod in cluster.pods()
        ]
        assert sorted(tries) == ["0", "1"]

    async def test_only_failed_pods_are_replaced_if_so_asked(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None, podReplacementPolicy="Failed")
        await cluster.status("a", ready=1)
        first = cluster.pods()[0]["metadata"]["name"]
        await cluster.client.delete("pods", NAMESPACE, first)
        replaced = await cluster.status("a", ready=1, failed=1, terminating=0)
        assert replaced["active"] == 1
        assert [pod["metadata"]["name"] for pod in cluster.pods()] != [first]

    async def test_a_deadline_stops_the_pods_before_the_job_counts_as_failed(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run=None, activeDeadlineSeconds=20)
        await cluster.status("a", conditions={"FailureTarget"}, terminating=1)
        await cluster.status("a", conditions={"FailureTarget", "Failed"}, terminating=0, failed=1)

    async def test_a_finished_job_goes_with_its_pods_when_its_time_to_live_is_over(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="1", ttlSecondsAfterFinished=5)
        await cluster.status("a", conditions={"SuccessCriteriaMet", "Complete"})
        await cluster.until(lambda: cluster.get_job("a") is None and not cluster.pods())

    async def test_the_controller_says_when_pods_are_refused_and_tries_again(self, cluster):
        limits = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
        await cluster.client.create("limitranges", NAMESPACE, {"metadata": {"name": "small"}, "spec": limits})
        await cluster.node("n")
        await cluster.job("a", cpu="2", run="1")
        await cluster.until(lambda: cluster.events("FailedCreate"))
        assert cluster.pods() == []
        await cluster.client.delete("limitranges", NAMESPACE, "small")
        await cluster.status("a", succeeded=1)

    async def test_a_job_managed_elsewhere_is_left_alone(self, cluster):
        await cluster.node("n")
        await cluster.job("other", managedBy="example.com/other")
        await cluster.job("own", run="1")
        await cluster.status("own", succeeded=1)
        assert cluster.get_job("other").get("status") in (None, {})
        assert cluster.pods("other") == []


class TestScheduling:
    async def test_pods_wait_for_room_and_are_told_so_once(self, cluster):
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

    async def test_urgent_pods_go_first_when_room_is_scarce(self, cluster):
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

    async def test_gated_pods_wait_until_the_gates_are_gone(self, cluster):
        await cluster.node("n")
        await cluster.job("gated", run="1", pod={"schedulingGates": [{"name": "example.com/g"}]})
        await cluster.job("open", run="1")
        await cluster.status("open", succeeded=1)
        pod = cluster.pods("gated")[0]
        assert "nodeName" not in pod["spec"]
        await cluster.client.patch("pods", NAMESPACE, pod["metadata"]["name"], {"spec": {"schedulingGates": None}})
        await cluster.status("gated", succeeded=1)

    async def test_a_pod_that_names_its_node_takes_no_room_that_there_is_not(self, cluster):
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

    async def test_other_nodes_and_the_pods_on_them_are_left_alone(self, cluster):
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

    async def test_pods_of_a_node_that_went_away_are_replaced(self, cluster):
        await cluster.node("first")
        await cluster.job("a", run=None)
        await cluster.status("a", ready=1)
        await cluster.client.delete("nodes", "", "first")
        await cluster.node("second")
        await cluster.status("a", failed=1, ready=1)
        assert [pod["spec"]["nodeName"] for pod in cluster.pods()] == ["second"]


class TestDeletion:
    async def test_deleting_a_job_in_the_background_takes_its_pods_and_frees_the_node(self, cluster):
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

    async def test_orphans_run_on(self, cluster):
        await cluster.node("n")
        await cluster.job("a", run="30")
        await cluster.status("a", ready=1)
        await cluster.client.delete("jobs", NAMESPACE, "a", propagation="Orphan")
        await cluster.until(lambda: phases(cluster.pods()) == ["Succeeded"])
        assert cluster.get_job("a") is None
        assert not {"ownerReferences", "finalizers"} & cluster.pods()[0]["metadata"].keys()

    @pytest.mark.parametrize("propagation", ["Orphan", "Foreground"])
    async def test_a_user_may_take_an_owner_away_before_the_collector_comes(self, propagation):
        clock = Clock(SPEED)
        cluster = Cluster(clock)  # whose controllers do nothing by themselves
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

    async def test_what_loses_its_last_owner_goes_and_what_keeps_one_stays(self, cluster):
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

    async def test_a_job_goes_with_the_custom_resource_that_owns_it(self, cluster):
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

    async def test_a_namespace_goes_when_everything_in_it_is_gone(self, cluster):
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
    async def test_a_controller_that_fails_takes_the_sandbox_down(self):
        clock = Clock()
        empty = Registry(clock, partial(Admission, delay=0))  # serves nothing, so that there is nothing to watch
        with pytest.raises(ExceptionGroup, match="a part of the sandbox failed"):
            async with controllers(lambda user: LocalClient(empty, User(user)), clock):
                await asyncio.Event().wait()

    async def test_a_failure_of_the_body_is_passed_on_as_it_is(self):
        with pytest.raises(KeyError):
            async with started():
                raise KeyError("mine")

    async def test_a_hundred_jobs_cost_few_writes_for_each_pod(self):
        async with started() as cluster:
            for number in range(10):
                await cluster.node(f"n{number}", cpu="100")
            before = cluster.registry.store.revision
            for number in range(100):
                await cluster.job(f"j{number}", run="60", completions=5, parallelism=5)
            await cluster.until(lambda: len(cluster.events("Completed")) == 100)
            writes = cluster.registry.store.revision - before
        # For each pod: created, announced, bound, running, ended, released; for each Job: created, started, ready,
        # counted, complete, announced, and a few intermediate counts when its pods start or end apart.
        assert writes <= 100 * (5 * 6 + 16)
