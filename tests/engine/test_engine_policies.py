"""Contract of an admission policy, with the policy `MaxRunning`: filter with message, charge and release."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import (
    AdmissionFairSharing,
    AdmissionPolicy,
    Engine,
    EngineView,
    Policy,
    QueueObjectChanged,
    QueueObjectDeleted,
    Refusal,
    WorkloadAdmitted,
    WorkloadPending,
)
from tests.engine.max_running import MaxRunning
from tests.engine.scenes import World, cluster_queue, cohort, consumption, local_queue, manifest, workload

REFUSED = "MaxRunningPerUser", "user ann runs 2 workloads of at most 2, in all ClusterQueues"


def new_world(limit: int = 2, *, fair: bool = False, strategy: str = "BestEffortFIFO", policies=()) -> World:
    """Return two ClusterQueues of 4 CPUs each, in one Cohort."""
    policy = Policy(fair_sharing=fair, policies=(MaxRunning(limit), *policies))
    queues = [cluster_queue(name, 4, cohort="all", queueingStrategy=strategy) for name in "ab"]
    return World(cohort("all"), *queues, local_queue("a"), local_queue("b"), engine=Engine(policy))


def of(user: str, name: str, queue: str = "a", cpu: float = 1, **fields):
    return workload(name, queue, cpu, user=user, **fields)


def parked(decisions) -> dict[str, tuple[str, str]]:
    return {park.workload.name: (park.reason, park.message) for park in decisions.parked}


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("fair", [False, True])
def test_refused_workload_is_parked_with_its_reason_and_blocks_no_other(fair, strategy):
    world = new_world(fair=fair, strategy=strategy)
    world.submit(*(of("ann", f"ann-{number}", created=number) for number in range(4)), of("bob", "bob-0", created=9))
    decisions = world.engine.settle(world.now)
    assert [admit.workload.name for admit in decisions.admitted] == ["ann-0", "ann-1", "bob-0"]
    assert parked(decisions) == {"ann-2": REFUSED, "ann-3": REFUSED}
    for name in ("ann-2", "ann-3"):
        explanation = world.engine.explain(name)
        assert (explanation.state, explanation.reason, explanation.message) == ("Pending", *REFUSED)
    places = world.engine.listing("a", limit=9)
    assert [(place.workload.name, place.reason) for place in places] == [("ann-2", REFUSED[0]), ("ann-3", REFUSED[0])]


def test_refused_workload_is_admitted_after_a_workload_in_another_tree_ends():
    policy = Policy(policies=(MaxRunning(1),))
    objects = [cluster_queue("a", 4), cluster_queue("b", 4), local_queue("a"), local_queue("b")]
    world = World(*objects, engine=Engine(policy))
    world.submit(of("ann", "runs", "a"))
    assert world.admitted() == ["runs"]
    world.submit(of("ann", "waits", "b"))
    assert world.admitted() == []
    world.gone("runs")
    assert world.admitted() == ["waits"]


@pytest.mark.parametrize("fair", [False, True])
def test_admission_of_a_head_is_charged_before_the_next_head_of_the_cycle(fair):
    world = new_world(limit=1, fair=fair)
    world.submit(of("ann", "one", "a"), of("ann", "other", "b", created=1))
    decisions = world.engine.cycle(world.now)
    assert [admit.workload.name for admit in decisions.admitted] == ["one"]
    said = "user ann runs 1 workloads of at most 1, in all ClusterQueues"
    assert parked(decisions) == {"other": ("MaxRunningPerUser", said)}
    world.gone("one")
    assert world.admitted() == ["other"]


def test_refused_workload_does_not_preempt():
    policy = Policy(policies=(MaxRunning(1),))
    preempts = cluster_queue("a", 2, preemption={"withinClusterQueue": "LowerPriority"})
    world = World(preempts, local_queue("a"), engine=Engine(policy))
    world.submit(of("bob", "victim"), of("ann", "runs"))
    assert sorted(world.admitted()) == ["runs", "victim"]
    world.submit(of("ann", "greedy", priority=5))
    assert world.engine.settle(world.now).evicted == ()
    world.gone("runs")
    assert world.admitted() == ["greedy"]


def test_forgotten_admission_is_released_by_the_policy():
    world = new_world(limit=1)
    world.submit(of("ann", "first"), of("ann", "second", created=1))
    (admit,) = world.engine.settle(world.now).admitted
    world.engine.forget(admit)
    assert world.admitted() == ["first"]
    world.gone("first")
    assert world.admitted() == ["second"]


def test_unchanged_refusal_is_not_reported_again():
    world = new_world(limit=1)
    world.submit(of("ann", "first"), of("ann", "second", created=1))
    assert parked(world.engine.settle(world.now)).keys() == {"second"}
    world.submit(of("bob", "other"))
    world.gone("nobody")
    assert parked(world.engine.settle(world.now)) == {}


def test_restarted_engine_charges_loaded_admissions():
    world = new_world()
    world.submit(*(of("ann", f"ann-{number}", created=number) for number in range(3)))
    admitted = world.engine.settle(world.now).admitted
    restarted = new_world()
    for admit in admitted:
        restarted.engine.observe(WorkloadAdmitted(admit.workload, admit.admission, at=0.0), now=restarted.now)
    restarted.submit(of("ann", "ann-2", created=2))
    assert parked(restarted.engine.settle(restarted.now)) == {"ann-2": REFUSED}
    restarted.gone("ann-0")
    assert restarted.admitted() == ["ann-2"]


def test_resized_admission_is_charged_once():
    world = new_world(limit=1)
    world.submit(of("ann", "shrinks", cpu=2))
    (admit,) = world.engine.settle(world.now).admitted
    smaller = replace(admit.admission.pod_sets[0], usage={"cpu": 1000})
    resized = replace(admit.admission, pod_sets=(smaller,))
    world.engine.observe(WorkloadAdmitted(admit.workload, resized, at=0.0), now=world.now)
    world.submit(of("ann", "waits", created=1))
    assert world.admitted() == []
    world.gone("shrinks")
    assert world.admitted() == ["waits"]


def test_policy_works_beside_admission_fair_sharing():
    sharing = AdmissionFairSharing(half_life=60.0)
    world = new_world(limit=1, policies=(sharing,))
    world.tell(cluster_queue("a", 4, admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"}))
    world.submit(of("ann", "first"), of("ann", "second", created=1))
    assert world.admitted() == ["first"]
    assert consumption(world.engine)["ns", "a"].current == {"cpu": 1000}
    world.gone("first")
    assert world.admitted() == ["second"]


def test_refused_workload_is_not_admitted_in_a_queue_that_the_workload_left():
    world = new_world(limit=1)
    world.submit(of("ann", "runs"), of("ann", "moves", created=1), of("ann", "goes", created=2))
    assert world.admitted() == ["runs"]
    world.gone("goes")
    world.engine.observe(QueueObjectDeleted("LocalQueue", "ns", "a"), now=world.now)
    world.engine.settle(world.now)
    world.gone("runs")
    assert world.admitted() == []
    world.submit(of("ann", "moves", "b", created=1))
    assert world.admitted() == ["moves"]


@dataclass(frozen=True, slots=True)
class OpensAt:
    """Policy that refuses all workloads before a time."""

    at: float

    def start(self, view: EngineView) -> Opening:
        return Opening(self.at, view)


class Opening(AdmissionPolicy):
    def __init__(self, at: float, view: EngineView) -> None:
        self._at = at
        self._view = view

    def filter(self, workload, cluster_queue, usage, victims=()):
        seconds = self._at - self._view.now
        return Refusal("Closed", f"opens in {seconds:.0f} s", until=self._at) if seconds > 0 else None


def test_engine_wakes_at_the_time_given_by_a_policy():
    world = World(cluster_queue("a", 4), local_queue("a"), engine=Engine(Policy(policies=(OpensAt(1060.0),))))
    assert world.engine.wake_at() is None
    world.submit(of("ann", "early"))
    assert world.admitted() == []
    assert world.engine.wake_at() == 1060.0
    assert world.engine.explain("early").message == "opens in 60 s"
    world.now = 1059.0
    assert world.admitted() == []
    world.now = 1060.0
    assert world.admitted() == ["early"]
    assert world.engine.wake_at() is None


class OneFlavor(AdmissionPolicy):
    """Policy that refuses a flavor while a Cohort of its name exists; it counts the workloads that hold quota."""

    def __init__(self) -> None:
        self.idle = True
        self._flavors: set[str] = set()
        self.charged: list[str] = []

    def start(self, view: EngineView) -> OneFlavor:
        del view
        return self

    def observe(self, event):
        if isinstance(event, QueueObjectDeleted):
            self._flavors.discard(event.name)
        elif isinstance(event, QueueObjectChanged) and event.object.kind == "Cohort":
            self._flavors.add(event.object.name)
        self.idle = not self._flavors
        if self.idle:
            self.charged.clear()

    def filter(self, workload, cluster_queue, usage, victims=()):
        refused = self._flavors & {flavor for flavor, _ in usage}
        return Refusal("Refused", f"{', '.join(refused)}: {dict(usage)}") if refused else None

    def charge(self, held, *, restored):
        self.charged.append((held.workload.name, restored))

    def release(self, held):
        self.charged.remove((held.workload.name, True))


def test_policy_is_asked_with_the_flavors_before_anything_is_preempted():
    preempts = cluster_queue("a", {"spot": 2}, preemption={"withinClusterQueue": "LowerPriority"})
    policy = OneFlavor()
    world = World(
        manifest("ResourceFlavor", "spot", {}), preempts, local_queue("a"), engine=Engine(Policy(policies=(policy,)))
    )
    world.submit(of("bob", "low", cpu=2))
    assert world.admitted() == ["low"]
    assert policy.charged == []  # it was idle
    world.tell(cohort("spot"))
    assert policy.charged == [("low", True)]
    world.submit(of("ann", "high", cpu=2, priority=9))
    decisions = world.engine.settle(world.now)
    refusal = "Refused", "spot: {('spot', 'cpu'): 2000}"
    assert (decisions.evicted, parked(decisions)) == ((), {"high": refusal})
    explanation = world.engine.explain("high")
    assert (explanation.reason, explanation.message) == refusal
    world.gone("low")
    assert (policy.charged, world.admitted()) == ([], [])


def test_refused_workloads_are_tried_when_the_policy_has_nothing_to_decide_any_more():
    policy = OneFlavor()
    world = World(cluster_queue("a", 2), local_queue("a"), cohort("default"), engine=Engine(Policy(policies=(policy,))))
    world.submit(of("ann", "waits"))
    assert world.admitted() == []
    world.engine.observe(QueueObjectDeleted("Cohort", "", "default"), now=world.now)
    assert world.admitted() == ["waits"]


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from("ab"), st.sampled_from(["ann", "bob"]), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("withdraw"), st.integers(0, 9)),
        st.tuples(st.just("hold"), st.integers(0, 9)),
    ),
    max_size=30,
)


@pytest.mark.costly
@settings(max_examples=150)
@given(_steps, st.integers(1, 3), st.booleans(), st.booleans())
def test_policy_limit_always_holds_and_no_admissible_workload_waits(steps, limit, fair, strict):
    """A pending workload exceeds the limit, is on hold, does not fit, or is behind a StrictFIFO head that does not."""
    world = new_world(limit, fair=fair, strategy="StrictFIFO" if strict else "BestEffortFIFO")
    waiting, running, on_hold = {}, {}, set()
    for number, step in enumerate(steps):
        match step:
            case ("arrive", queue, user, cpu):
                item = of(user, f"w{number}", queue, cpu, created=float(number))
                waiting[item.uid] = item
                world.submit(item)
            case ("end", pick) if running:
                uid = list(running)[pick % len(running)]
                del running[uid]
                world.gone(uid)
            case ("withdraw", pick) if waiting:
                uid = list(waiting)[pick % len(waiting)]
                del waiting[uid]
                on_hold.discard(uid)
                world.gone(uid)
            case ("hold", pick) if waiting:
                uid = list(waiting)[pick % len(waiting)]
                on_hold ^= {uid}
                world.engine.observe(WorkloadPending(waiting[uid], on_hold=uid in on_hold), now=world.now)
        for admit in world.engine.settle(world.now).admitted:
            running[admit.workload.uid] = waiting.pop(admit.workload.uid)
        users = [item.user for item in running.values()]
        assert all(users.count(user) <= limit for user in ("ann", "bob"))
        used = sum(item.pod_sets[0].requests["cpu"] for item in running.values())
        for uid, item in waiting.items():
            if uid not in on_hold and users.count(item.user) < limit and not strict:
                assert used + item.pod_sets[0].requests["cpu"] > 8000
                assert world.engine.explain(uid).reason == "WaitingForQuota"
