"""Stored pending reasons stay correct under all events (`Engine.reasons`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admission.engine import (
    Engine,
    NamespaceChanged,
    Policy,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadAdmitted,
    WorkloadEvicted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.vocabulary import HOPELESS, WAITING_FOR_PREEMPTED
from admission.model import sentences
from tests.engine.max_running import MaxRunning
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, manifest, workload

FLAVORS = ("default", "spot")
PREEMPT = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
_FOR_A_PREEMPTOR = (sentences.BEHIND_PREEMPTOR, sentences.KEPT_FOR_PREEMPTOR)


class Reasons(RuleBasedStateMachine):
    """State machine: a controller that stores the results of `Engine.reasons`, a few workloads at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.engine = Engine()
        self.policy = Policy()
        self.stored: dict[str, tuple[str, str]] = {}
        self.waiting: dict[str, WorkloadPending] = {}
        self.running: dict[str, WorkloadAdmitted] = {}
        self.objects: dict[tuple[str, str, str], QueueObjectChanged] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.number = 0

    @initialize(fair=st.booleans(), limit=st.sampled_from((0, 0, 1, 2)))
    def begin(self, fair, limit):
        self.policy = Policy(fair_sharing=fair, policies=(MaxRunning(limit),) if limit else ())
        self.engine = Engine(self.policy)
        self.label("team-a")
        for name in FLAVORS:
            self.tell(manifest("ResourceFlavor", name, {}))
        for name in ("a", "b"):
            self.tell(cluster_queue(name, {"default": 3}, cohort="all", preemption=PREEMPT))
            self.tell(manifest("LocalQueue", name, {"clusterQueue": name}, namespace="ns"))
        # A separate tree: only refusals by a policy depend on the other one.
        self.tell(cluster_queue("alone", {"default": 3}))
        self.tell(local_queue("c", to="alone"))
        self.settle()

    def observe(self, event):
        self.engine.observe(event, now=self.now)

    def tell(self, item):
        event = self.objects[item.key] = QueueObjectChanged(item)
        self.observe(event)

    def forget(self, kind, name, namespace=""):
        self.objects.pop((kind, namespace, name), None)
        self.observe(QueueObjectDeleted(kind, namespace, name))

    @rule(
        queue=st.sampled_from("abc"),
        cpu=st.integers(1, 5),
        priority=st.integers(0, 2),
        selector=st.sampled_from(({}, {}, {"zone": "x"}, {"zone": "y"})),
        more=st.sampled_from((1, 1, 3)),
        user=st.sampled_from(("ada", "bob")),
        others=st.sampled_from(({}, {}, {}, {"example.com/port": 1})),
    )
    def submit(self, queue, cpu, priority, selector, more, user, others):
        for _ in range(more):
            self.number += 1
            pods = {"node_selector": selector}
            created = float(self.number)
            item = workload(
                f"w{self.number}", queue, cpu, priority=priority, created=created, pods=pods, others=others, user=user
            )
            self.wait(WorkloadPending(item))

    def wait(self, event):
        self.waiting[event.workload.uid] = event
        self.observe(event)

    def one(self, data, among):
        return among[data.draw(st.sampled_from(sorted(among)))]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), held=st.booleans(), fault=st.booleans(), pause=st.sampled_from((0, 0, 5)))
    def change_pending_workload(self, data, held, fault, pause):
        event = self.one(data, self.waiting)
        not_before = self.now + pause if pause else 0.0
        why = ("Misconfigured", "it is wrong") if fault else None
        self.wait(replace(event, on_hold=held, fault=why, not_before=not_before))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove_pending_workload(self, data):
        event = self.one(data, self.waiting)
        del self.waiting[event.workload.uid]
        self.observe(WorkloadGone(event.workload.uid))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), requeue=st.booleans())
    def end_running_workload(self, data, requeue):
        event = self.one(data, self.running)
        uid = event.workload.uid
        del self.running[uid]
        self.observe(WorkloadGone(uid, requeue=event.workload if requeue else None))
        if requeue:
            self.waiting[uid] = WorkloadPending(event.workload)
            self.stored.pop(uid, None)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def evict_running_workload(self, data):
        uid = self.one(data, self.running).workload.uid
        self.running[uid] = replace(self.running[uid], evicting=True)
        self.observe(WorkloadEvicted(uid))

    @rule(
        name=st.sampled_from("ab"),
        default=st.integers(0, 5),
        spot=st.none() | st.integers(0, 4),
        strategy=st.sampled_from(("BestEffortFIFO", "StrictFIFO")),
        stop=st.sampled_from(("None", "None", "None", "Hold")),
        selector=st.sampled_from(({}, {}, {"matchLabels": {"team": "x"}})),
    )
    def edit_cluster_queue(self, name, default, spot, strategy, stop, selector):
        quota = {"default": default} | ({} if spot is None else {"spot": spot})
        fields = {"queueingStrategy": strategy, "stopPolicy": stop, "namespaceSelector": selector}
        self.tell(cluster_queue(name, quota, cohort="all", preemption=PREEMPT, **fields))

    @rule(
        name=st.sampled_from("abc"),
        to=st.sampled_from(("a", "b", "alone", "nowhere", "")),
        stop=st.sampled_from(("None", "Hold")),
    )
    def edit_local_queue(self, name, to, stop):
        if to:
            self.tell(local_queue(name, to=to, stopPolicy=stop))
        else:
            self.forget("LocalQueue", name, "ns")

    @rule(name=st.sampled_from(FLAVORS), zone=st.sampled_from(("", "x", "y")), gone=st.booleans())
    def edit_flavor(self, name, zone, gone):
        if gone and name == "spot":
            self.forget("ResourceFlavor", name)
        else:
            self.tell(manifest("ResourceFlavor", name, {"nodeLabels": {"zone": zone}} if zone else {}))

    @rule(name=st.sampled_from("ab"))
    def delete_cluster_queue(self, name):
        self.forget("ClusterQueue", name)

    @rule(quota=st.integers(0, 3))
    def edit_cohort(self, quota):
        self.tell(cohort("all", quota))

    @rule(team=st.sampled_from(("x", "y")))
    def label(self, team):
        self.namespaces["ns"] = {"team": team}
        self.observe(NamespaceChanged("ns", {"team": team}))

    @rule(seconds=st.integers(1, 10))
    def pass_time(self, seconds):
        self.now += seconds

    @rule()
    def settle(self):
        decisions = self.engine.settle(self.now)
        for admit in decisions.admitted:
            uid = admit.workload.uid
            del self.waiting[uid]
            self.stored.pop(uid, None)
            self.running[uid] = WorkloadAdmitted(admit.workload, admit.admission, at=self.now)
        for evict in decisions.evicted:
            uid = evict.workload.uid
            self.running[uid] = replace(self.running[uid], evicting=True)

    @rule(limit=st.integers(1, 4))
    def store_some_reasons(self, limit):
        self.store(limit)

    def store(self, limit):
        for park in self.engine.reasons(limit):
            self.stored[park.workload.uid] = park.reason, park.message

    @invariant()
    def stored_reasons_are_those_of_a_new_engine(self):
        if self.number % 2:  # not after each step, so that several changes come together
            return
        self.settle()
        for _ in range(1000):
            if not self.engine.reasons_are_due:
                break
            self.store(5)
        anew = Engine(self.policy)
        for name, labels in self.namespaces.items():
            anew.observe(NamespaceChanged(name, labels), now=self.now)
        for event in (*self.objects.values(), *self.running.values(), *self.waiting.values()):
            anew.observe(event, now=self.now)
        anew.refresh(self.now)
        for uid in self.waiting:
            now, fresh = self.engine.explain(uid), anew.explain(uid)
            assert self.stored[uid] == (now.reason, now.message), uid
            # A new engine does not know for whom workloads are being preempted.
            if now.reason == WAITING_FOR_PREEMPTED or now.message in _FOR_A_PREEMPTOR:
                assert any(event.evicting for event in self.running.values())
            else:
                assert (now.reason, now.message) == (fresh.reason, fresh.message)
        self.check_positions()

    def check_positions(self):
        """Positions count from 1 without gaps, except for workloads that a StrictFIFO queue tries but never fit."""
        objects = [event.object for event in self.objects.values()]
        for spec, name in [(item.spec, item.name) for item in objects if item.kind == "ClusterQueue"]:
            ahead = 0
            for place in self.engine.listing(name, limit=1000):
                uid, position = place.workload.uid, place.position_in_cluster_queue
                assert self.engine.explain(uid).position_in_cluster_queue == position
                assert position in (0, ahead + 1), place
                assert not position or place.reason not in HOPELESS, place
                assert position or place.reason not in ("WaitingForQuota", WAITING_FOR_PREEMPTED), place
                accepted = spec.namespace_selector.matches(self.namespaces["ns"])
                ahead += bool(position) or (spec.queueing_strategy == "StrictFIFO" and accepted)


Reasons.TestCase.settings = settings(max_examples=60, stateful_step_count=50)
TestReasonsStayTrue = Reasons.TestCase


def stored(world: World) -> dict[str, str]:
    return {park.workload.uid: park.reason for park in world.engine.reasons(10_000)}


def test_lowered_quota_replaces_the_reason_of_all_workloads_of_a_shape():
    world = World(cluster_queue("cq", 2), local_queue("cq"))
    world.submit(*(workload(f"w{number}", "cq", 2, created=float(number)) for number in range(4)))
    assert world.admitted() == ["w0"]
    assert stored(world) == dict.fromkeys(("w1", "w2", "w3"), "WaitingForQuota")
    world.tell(cluster_queue("cq", 1))
    world.engine.settle(world.now)
    assert stored(world) == dict.fromkeys(("w1", "w2", "w3"), "ExceedsMaxQuota")


def test_preemptor_waits_for_its_victims_and_then_for_quota():
    policies = {"withinClusterQueue": "LowerPriority"}
    world = World(cluster_queue("cq", 2, preemption=policies, queueingStrategy="StrictFIFO"), local_queue("cq"))
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", 2, priority=1, created=1))
    assert [evict.workload.uid for evict in world.engine.settle(world.now).evicted] == ["low"]
    assert stored(world) == {"high": "WaitingForPreemptedWorkloads"}
    # A workload of higher priority is admitted first when the target has stopped.
    world.submit(workload("highest", "cq", 2, priority=2, created=2))
    world.gone("low")
    assert world.admitted() == ["highest"]
    assert stored(world) == {"high": "WaitingForQuota"}


def test_reason_of_a_pending_workload_changes_when_the_workload_preempts():
    world = World(cluster_queue("cq", 2), local_queue("cq"))
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", 2, priority=1, created=1))
    world.engine.settle(world.now)
    assert stored(world) == {"high": "WaitingForQuota"}
    world.tell(cluster_queue("cq", 2, preemption={"withinClusterQueue": "LowerPriority"}))
    assert [evict.workload.uid for evict in world.engine.settle(world.now).evicted] == ["low"]
    assert stored(world) == {"high": "WaitingForPreemptedWorkloads"}


def test_refusals_of_a_policy_are_reported_in_all_trees_for_each_workload():
    """A limit per user depends neither on the tree that has changed nor on the shape."""
    queues = [item for name in "ab" for item in (cluster_queue(name, 2), local_queue(name))]
    world = World(*queues, engine=Engine(Policy(policies=(MaxRunning(1),))))
    world.submit(workload("full", "b", 2, user="bob"))
    assert world.admitted() == ["full"]
    world.submit(*(workload(f"{user}-waits", "b", 2, created=1, user=user) for user in ("cyd", "zoe")))
    world.engine.settle(world.now)
    assert stored(world) == dict.fromkeys(("zoe-waits", "cyd-waits"), "WaitingForQuota")
    world.submit(workload("zoe-runs", "a", 1, user="zoe"))
    assert world.admitted() == ["zoe-runs"]
    assert stored(world) == {"zoe-waits": "MaxRunningPerUser"}
    world.gone("zoe-runs")
    world.engine.settle(world.now)
    assert stored(world) == {"zoe-waits": "WaitingForQuota"}


def test_unchanged_reasons_of_many_workloads_of_a_shape_cost_a_single_check():
    """While nothing changes for them, 1,000 workloads of a shape cost one check."""
    world = World(cluster_queue("cq", 2), local_queue("cq"))
    world.submit(*(workload(f"w{number}", "cq", 1, created=float(number)) for number in range(1000)))
    assert len(world.admitted()) == 2
    assert len(stored(world)) == 998
    world.gone("w0")
    assert world.admitted() == ["w2"]
    assert world.engine.reasons_are_due
    assert world.engine.reasons(1) == ()
    assert not world.engine.reasons_are_due


@pytest.mark.parametrize(
    ("selector", "labels", "taints", "said"),
    [
        ({"zone": "b"}, {"zone": "a"}, [], "flavor default has the node label zone=a, and the pods ask for zone=b"),
        (
            {},
            {},
            [{"key": "gpu", "value": "on", "effect": "NoSchedule"}],
            "flavor default has the taint gpu=on:NoSchedule",
        ),
    ],
)
def test_message_names_the_label_or_taint_that_excludes_the_flavor(selector, labels, taints, said):
    world = World(cluster_queue("cq", 2), local_queue("cq"))
    world.tell(manifest("ResourceFlavor", "default", {"nodeLabels": labels, "nodeTaints": taints}))
    world.submit(workload("w", "cq", pods={"node_selector": selector}))
    assert world.admitted() == []
    explanation = world.engine.explain("w")
    assert explanation.reason == "NoMatchingFlavor"
    assert said in explanation.message
    assert "change nodeSelector, affinity or tolerations" in explanation.message


def test_resource_without_quota_is_the_reason_although_a_flavor_has_enough_cpu():
    quota = {"small": 1, "large": 4}  # example.com/port is judged after cpu, by the order of their hashes
    world = World(
        *(manifest("ResourceFlavor", name, {}) for name in quota), cluster_queue("cq", quota), local_queue("cq")
    )
    world.submit(workload("w", "cq", 2, others={"example.com/port": 1}))
    assert world.admitted() == []
    (park,) = world.engine.reasons(10)
    assert park.reason == "NoMatchingFlavor"
    assert "example.com/port" in park.message


def test_resource_without_quota_is_the_reason_also_while_cpu_is_in_use():
    world = World(cohort("all", 3), cluster_queue("cq", 3, cohort="all"), local_queue("cq"))
    world.submit(workload("never", "cq", 4, created=1.0, others={"example.com/port": 1}))
    assert world.admitted() == []
    assert stored(world) == {"never": "NoMatchingFlavor"}
    world.submit(workload("runs", "cq", 3, created=2.0))
    assert world.admitted() == ["runs"]
    found = world.engine.explain("never")
    assert (found.reason, found.position_in_cluster_queue) == ("NoMatchingFlavor", 0)
