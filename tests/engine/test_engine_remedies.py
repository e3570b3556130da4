"""Remedies: each suggested change is verified on a second engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenes import cluster_queue, local_queue, manifest, workload

from admission.engine import Engine, NamespaceChanged, Policy, QueueObjectChanged, WorkloadGone, WorkloadPending
from admission.model.workload import PodSet

GPU_NODES = manifest("ResourceFlavor", "gpu", {"nodeLabels": {"kind": "gpu"}})
NODES = manifest("ResourceFlavor", "default", {"nodeLabels": {"kind": "plain"}})
PREEMPTING = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def engine_of(*objects, running=(), waiting=(), policy=None):
    engine = Engine(policy or Policy())
    engine.observe(NamespaceChanged("ns", {}), now=0.0)
    for one in (NODES, GPU_NODES, *objects):
        engine.observe(QueueObjectChanged(one), now=0.0)
    for one in running:
        engine.observe(WorkloadPending(one), now=0.0)
    assert len(engine.settle(0.0).admitted) == len(running)
    for one in waiting:
        engine.observe(WorkloadPending(one), now=1.0)
    engine.settle(1.0)
    return engine


def admits(engine: Engine, changed) -> bool:
    """Whether the changed workload is admitted, immediately or after its targets have released their quota."""
    engine.observe(WorkloadPending(changed), now=2.0)
    decisions = engine.settle(2.0)
    for evict in decisions.evicted:
        engine.observe(WorkloadGone(evict.workload.uid), now=3.0)
    admitted = [*decisions.admitted, *engine.settle(3.0).admitted]
    return changed.uid in {admit.workload.uid for admit in admitted}


def hints(engine: Engine, uid: str) -> dict[str, str]:
    return {remedy.change: remedy.hint for remedy in engine.remedies(uid)}


def test_remedies_suggest_fewer_pods_smaller_request_other_queue_and_priority():
    low, wide = workload("low", "q", 6), workload("wide", "q", 1, count=8)
    queues = cluster_queue("q", 10, **PREEMPTING), local_queue("q"), cluster_queue("free", 20), local_queue("free")

    def scene() -> Engine:
        return engine_of(*queues, running=[low], waiting=[wide])

    assert hints(scene(), "wide") == {
        "Pods": "with 4 instead of 8 pods in pod set main",
        "Request": "if each pod of pod set main asked for 0.5 instead of 1 CPU",
        "LocalQueue": "in LocalQueue free",
        "Priority": "with priority 1 or more, by preemption of another workload",
    }
    (pods,) = wide.pod_sets
    assert not admits(scene(), replace(wide, pod_sets=(replace(pods, count=5),)))
    assert not admits(scene(), replace(wide, pod_sets=(replace(pods, requests={"cpu": 501}),)))
    for change in (
        {"pod_sets": (replace(pods, count=4),)},
        {"pod_sets": (replace(pods, requests={"cpu": 500}),)},
        {"queue": "free"},
        {"priority": 1},
    ):
        assert admits(scene(), replace(wide, **change)), change


def test_pod_set_that_is_named_by_a_hash_is_called_its_pods():
    """The pods of a group or a StatefulSet, which form pod sets by what they request."""
    role = "8c6c33af03e13140ceca55a38fb961b3-62e778"
    wide = replace(workload("wide", "q"), pod_sets=(PodSet(role, 8, {"cpu": 1000}),))
    engine = engine_of(cluster_queue("q", 10), local_queue("q"), running=[workload("low", "q", 6)], waiting=[wide])
    assert hints(engine, "wide") == {
        "Pods": "with 4 instead of 8 pods",
        "Request": "if each of its pods asked for 0.5 instead of 1 CPU",
    }
    tainted = manifest("ResourceFlavor", "default", {"nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}]})
    engine.observe(QueueObjectChanged(tainted), now=2.0)
    engine.refresh(2.0)
    message = engine.explain("wide").message
    assert message.startswith("Its pods do not fit in ClusterQueue q: flavor default has the taint gpu:NoSchedule")


@pytest.mark.parametrize(("others", "expected"), [(["checked"], None), (["checked", "free"], "in LocalQueue free")])
def test_remedy_names_no_queue_in_which_admission_checks_would_follow(others, expected):
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "clusters"}]}}
    check = manifest("AdmissionCheck", "clusters", {"controllerName": "kueue.x-k8s.io/multikueue"})
    queues = [cluster_queue(name, 10, **(checks if name == "checked" else {})) for name in others]
    objects = check, cluster_queue("q", 1), local_queue("q"), *queues, *map(local_queue, others)
    engine = engine_of(*objects, running=[workload("first", "q", 1)], waiting=[workload("second", "q", 1)])
    assert hints(engine, "second").get("LocalQueue") == expected


def test_remedy_names_a_flavor_that_the_node_selector_excludes():
    picky = replace(
        workload("picky", "q"), pod_sets=(PodSet("main", 1, {"cpu": 4000}, node_selector={"kind": "plain"}),)
    )
    queue = cluster_queue("q", {"default": 4, "gpu": 4})
    engine = engine_of(queue, local_queue("q"), running=[workload("first", "q", 3)], waiting=[picky])
    expected = "in flavor gpu, which its node selector, affinity or missing tolerations exclude"
    assert hints(engine, "picky")["Placement"] == expected
    assert admits(engine, replace(picky, pod_sets=(replace(picky.pod_sets[0], node_selector={}),)))


def test_workload_behind_a_blocked_strict_fifo_head_has_no_remedies():
    queue = cluster_queue("q", 10, queueingStrategy="StrictFIFO")
    first, second = workload("first", "q", 20), workload("second", "q", 12, created=1.0)
    engine = engine_of(queue, local_queue("q"), waiting=[first, second])
    assert hints(engine, "first")["Request"] == "if each pod of pod set main asked for 10 instead of 20 CPU"
    assert hints(engine, "second") == {}


@pytest.mark.parametrize("held", [True, False])
def test_workload_that_is_on_hold_or_fits_has_no_remedies(held):
    engine = engine_of(cluster_queue("q", 10), local_queue("q"))
    engine.observe(WorkloadPending(workload("a", "q", 5), on_hold=held), now=1.0)
    engine.refresh(1.0)
    assert engine.remedies("a") == ()
    assert engine.remedies("unknown") == ()


def test_higher_priority_is_no_remedy_while_enough_workloads_are_being_preempted():
    running = [workload("low", "q", 6), workload("equal", "q", 3, priority=2)]
    high = workload("high", "q", 6, priority=2)
    engine = engine_of(cluster_queue("q", 10, **PREEMPTING), local_queue("q"), running=running, waiting=[high])
    assert engine.explain("low").state == "Evicting"
    assert "Priority" not in hints(engine, "high")


def test_search_for_remedies_changes_no_decision():
    def decide(ask: bool) -> object:
        queues = [cluster_queue(name, 10, cohort="all", **PREEMPTING) for name in "ab"]
        local_queues = [local_queue(name) for name in "ab"]
        running = [workload(f"r{n}", "ab"[n % 2], 3, priority=n) for n in range(6)]
        waiting = [workload(f"w{n}", "ab"[n % 2], 4 + n, created=n) for n in range(8)]
        engine = engine_of(*queues, *local_queues, running=running, waiting=waiting)
        if ask:
            for one in waiting:
                engine.remedies(one.uid)
        engine.observe(WorkloadGone("r0"), now=4.0)
        return engine.settle(4.0), engine.usage()

    assert decide(ask=True) == decide(ask=False)
