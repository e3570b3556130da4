"""What holds for whole runs: who gets what is his own, what preemption comes to, how shares even out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import Engine, Policy
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.model.queues import QueueObject
    from admission.model.workload import Workload


@dataclass(frozen=True)
class Branch:
    """A node of a random tree: a ClusterQueue, or a Cohort with what is under it."""

    drawn: dict[str, Any]
    """What was drawn for it."""
    under: tuple[Branch, ...] = ()

    def named(self, name: str = "r", parent: str = "") -> Iterator[tuple[str, str, Branch]]:
        """Each node with its name and its parent's, from the root down."""
        yield name, parent, self
        for number, child in enumerate(self.under):
            yield from child.named(f"{name}{number}", name)


def _trees(drawn: st.SearchStrategy[dict[str, Any]], depth: int = 3) -> st.SearchStrategy[Branch]:
    """Cohorts, at most `depth` of them on the way to a ClusterQueue, none without one; at most 3 under each."""
    queue = st.builds(Branch, drawn)
    below = queue if depth == 1 else queue | _trees(drawn, depth - 1)
    return st.builds(Branch, drawn, st.lists(below, min_size=1, max_size=3).map(tuple))


def _objects(tree: Branch, of_queue: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[QueueObject]:
    """The tree's nodes with the nominal quota, limits and weight that were drawn, and a LocalQueue for each queue."""
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


@settings(max_examples=100, deadline=None)
@given(_trees(_limited), st.randoms(use_true_random=False))
def test_within_nominal_work_gets_its_quota_back(tree, random):
    """Where all may be reclaimed, nobody waits for what is his own, and evictions come to an end or are told of.

    Assumed is what the reference's rules need for it: classical preemption (by shares, two at different heights of a
    tree may take the room from each other by turns), `reclaimWithinCohort: Any` in every ClusterQueue, one flavor, and
    in a StrictFIFO queue that it is the first one's turn.
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
                assert item.pod_sets[0].requests["cpu"] > free, f"{item.name} could run within nominal quota"


@pytest.mark.parametrize("seed", range(5))
def test_no_preemption_is_in_vain(seed):
    """In one queue, whoever preempts gets the room that was made."""
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
    """Let those that are evicted stop and wait again; whether that comes to an end."""
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


@settings(max_examples=40, deadline=None)
@given(_trees(_weighted), st.integers(1, 3), st.randoms(use_true_random=False))
def test_fair_shares_follow_the_weights_under_saturation(tree, cpu, random):
    """Wherever it began, once every workload that ran has ended, each node uses what its weight is worth.

    All quota is the root's, all workloads have the size g, and every queue always has some that wait. (Of different
    sizes, those that are too large for what is free at the moment are passed over, in the reference too.) An end then
    frees g, and the tournament gives g to the one that has the least share with it, at each Cohort on its way down.
    So when the child i of a Cohort last got something, u_i / w_i <= (u_j + g) / w_j for each other child j: w are
    weights, u is usage, and u_i counts what it got. Multiplied by w_j and summed over all n children, whose weights
    come to W, that is u_i * W / w_i <= u + (n - 1) * g, where the Cohort uses u. Since then u_i can only have shrunk.
    This bounds every node from above, beginning under the root, which uses all there is; and from below, as what its
    siblings can use at most is taken off what their Cohort uses at least.
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
    """Whether all below, and it itself, use as many slots as they should; how many it uses."""
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
