"""Properties of whole runs: reclaimed nominal quota, effect of preemption, convergence of fair shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import Engine, Policy
from admission.model.queues import QueueObject
from admission.model.workload import Workload
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload


@dataclass(frozen=True)
class Branch:
    """A node of a random tree: a ClusterQueue, or a Cohort with its subtree."""

    drawn: dict[str, Any]
    """The random values of the node, such as quota and weight."""
    under: tuple[Branch, ...] = ()

    def named(self, name: str = "r", parent: str = "") -> Iterator[tuple[str, str, Branch]]:
        """Yield (name, name of the parent, node) from the root down."""
        yield name, parent, self
        for number, child in enumerate(self.under):
            yield from child.named(f"{name}{number}", name)


def _trees(drawn: st.SearchStrategy[dict[str, Any]], depth: int = 3) -> st.SearchStrategy[Branch]:
    """Strategy for trees with at most `depth` Cohorts on a path, 3 children per node, and ClusterQueues as leaves."""
    queue = st.builds(Branch, drawn)
    below = queue if depth == 1 else queue | _trees(drawn, depth - 1)
    return st.builds(Branch, drawn, st.lists(below, min_size=1, max_size=3).map(tuple))


def _objects(tree: Branch, of_queue: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[QueueObject]:
    """Return the queue objects of a tree with drawn quota, limits and weights, and a LocalQueue per ClusterQueue."""
    for name, parent, node in tree.named():
        drawn = node.drawn
        limits = {"borrowingLimit": drawn.get("borrowing"), "lendingLimit": drawn.get("lending")}
        amounts = {"name": "cpu", "nominalQuota": drawn["nominal"]}
        amounts |= {field: limit for field, limit in limits.items() if parent and limit is not None}
        spec = {
            "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [amounts]}]},
            ],
            "fairSharing": {"weight": str(drawn["weight"])},
        }
        if node.under:
            yield manifest("Cohort", name, spec | ({"parentName": parent} if parent else {}))
        else:
            yield manifest(
                "ClusterQueue", name, spec | {"namespaceSelector": {}, "cohortName": parent} | of_queue(drawn)
            )
            yield local_queue(name)


_limit = st.none() | st.none() | st.integers(0, 6)
_limited = st.fixed_dictionaries(
    {
        "nominal": st.integers(0, 6),
        "borrowing": _limit,
        "lending": _limit,
        "weight": st.integers(1, 4),
        "within": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "strategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
    }
).map(lambda drawn: drawn | {"lending": None if drawn["lending"] is None else min(drawn["lending"], drawn["nominal"])})


@pytest.mark.costly
@settings(max_examples=100)
@given(_trees(_limited), st.randoms(use_true_random=False))
def test_workloads_within_nominal_quota_reclaim_lent_quota(tree, random):
    """Workloads within nominal quota are admitted by reclaim, and evictions end or are reported.

    Kueue's rules guarantee this only with classical preemption (with shares, two workloads at different heights of a
    tree may preempt each other in turns), `reclaimWithinCohort: Any` in every ClusterQueue, one flavor, and for the
    head of a StrictFIFO queue.
    """

    def of_queue(drawn: dict[str, Any]) -> dict[str, Any]:
        policies = {"withinClusterQueue": drawn["within"], "reclaimWithinCohort": "Any"}
        return {"preemption": policies, "queueingStrategy": drawn["strategy"]}

    world = World(*_objects(tree, of_queue))
    queues = {name: node.drawn for name, _, node in tree.named() if not node.under}
    items: dict[str, Workload] = {}
    running: set[str] = set()
    for number in range(8 * len(queues)):
        if running and random.random() < 0.2:
            uid = random.choice(sorted(running))
            running.remove(uid)
            world.gone(uid)
        else:
            uid, cpu, priority = f"w{number}", random.randint(1, 4), random.randint(0, 2)
            items[uid] = workload(uid, random.choice(sorted(queues)), cpu, priority=priority, created=float(number))
            world.submit(items[uid])
        if not _settle_with_evictions(world, items, running):
            return
        usage = world.engine.usage()
        for name, drawn in queues.items():
            free = 1000 * drawn["nominal"] - usage.get(name, {}).get("default", {}).get("cpu", 0)
            waiting = [place.workload for place in world.engine.listing(name, limit=100)]
            for item in waiting[:1] if drawn["strategy"] == "StrictFIFO" else waiting:
                found = world.engine.explain(item.uid)
                rests = found is not None and found.not_before is not None  # preempted again for the same workload
                assert rests or item.pod_sets[0].requests["cpu"] > free, f"{item.name} could run within nominal quota"


@pytest.mark.parametrize("seed", range(5))
def test_preemptors_are_admitted_after_their_victims_stop(seed):
    """In a single ClusterQueue every preemptor gets the released quota."""
    world = World(cluster_queue("q", 7, preemption={"withinClusterQueue": "LowerPriority"}), local_queue("q"))
    items = {}
    for number in range(60):
        cpu, priority = 1 + (number * 3 + seed) % 4, (number * 7 + seed) % 5
        item = items[f"w{number}"] = workload(f"w{number}", "q", cpu, priority=priority, created=float(number))
        world.submit(item)
        decisions = world.engine.settle(world.now)
        for evict in decisions.evicted:
            world.gone(evict.workload.uid, requeue=items[evict.workload.uid])
        got = {admit.workload.uid for admit in world.engine.settle(world.now).admitted}
        assert {evict.preemptor for evict in decisions.evicted} <= got


def _settle_with_evictions(world: World, items: dict[str, Workload], running: set[str]) -> bool:
    """Requeue evicted workloads, and settle again; return whether evictions come to an end."""
    flapping = 0
    for _ in range(50):
        decisions = world.engine.settle(world.now)
        flapping += len(decisions.flapping)
        running |= {admit.workload.uid for admit in decisions.admitted}
        running -= {evict.workload.uid for evict in decisions.evicted}
        if not decisions.evicted:
            return True
        for evict in decisions.evicted:
            world.gone(evict.workload.uid, requeue=items[evict.workload.uid])
    assert flapping > 10, "nobody was told that it does not"
    return False


_SLOTS = 24
_weighted = st.fixed_dictionaries({"nominal": st.just(0), "weight": st.integers(1, 4)})


@pytest.mark.costly
@settings(max_examples=40)
@given(_trees(_weighted), st.integers(1, 3), st.randoms(use_true_random=False))
def test_fair_shares_follow_the_weights_under_saturation(tree, cpu, random):
    """From any start, after all workloads that ran have finished, each node's usage is proportional to its weight.

    All quota belongs to the root, all workloads have the size g, and every queue always has pending workloads. (With
    different sizes, workloads that are too large for the free quota are passed over, in Kueue, too.) A finished
    workload then releases g, and the tournament gives g to the child with the least share with it, at each Cohort on
    the way down. So when the child i of a Cohort was last given quota, u_i / w_i <= (u_j + g) / w_j for each other
    child j: w are weights, u is usage, and u_i includes the quota given. Multiplied by w_j and summed over all n
    children, whose weights add up to W, that is u_i * W / w_i <= u + (n - 1) * g, where u is the usage of the Cohort.
    Since then u_i can only have shrunk. This bounds every node from above, beginning under the root, which uses all
    quota; and from below, by subtracting the upper bounds of its siblings from the lower bound of their Cohort.
    """
    root = replace(tree, drawn={**tree.drawn, "nominal": _SLOTS * cpu})
    world = World(*_objects(root, lambda _: {}), engine=Engine(Policy(fair_sharing=True)))
    queues = [name for name, _, node in root.named() if not node.under]
    running: list[str] = []
    for name in random.sample(queues, len(queues)):  # the first one gets all
        world.submit(*(workload(f"{name}-{number}", name, cpu, created=float(number)) for number in range(3 * _SLOTS)))
        running += world.admitted()
    assert len(running) == _SLOTS
    for uid in random.sample(running, len(running)):
        world.gone(uid)
        running.remove(uid)
        running += world.admitted()
    for _ in range(_SLOTS):
        world.gone(running.pop(random.randrange(len(running))))
        running += world.admitted()
    used = Counter(uid.partition("-")[0] for uid in running)
    _check_usage(root, "r", used, _SLOTS, _SLOTS)


def _check_usage(node: Branch, name: str, used: Counter[str], least: int, most: int) -> int:
    """Check that the usage (in slots) of a node and its subtree is within its bounds, and return the node's usage."""
    if not node.under:
        assert least <= used[name] <= most
        return used[name]
    weights = [child.drawn["weight"] for child in node.under]
    bounds = [weight * (most + len(weights) - 1) // sum(weights) for weight in weights]
    total = sum(
        _check_usage(child, f"{name}{number}", used, least - sum(bounds) + bounds[number], bounds[number])
        for number, child in enumerate(node.under)
    )
    assert least <= total <= most
    return total
